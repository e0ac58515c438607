"""Kinds of tasks, which say what machines tasks may go to, and the tasks of kinds without machines: these wait outside
the graph of a cluster, and cost it nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from scheduler.flow.policies.policy import Task


class KindsInGraph:
    """See the module's docstring. A kind of which nothing was said may go anywhere."""

    def __init__(self) -> None:
        self._machines: dict[str, frozenset[str] | None] = {}
        self._tasks: dict[str, dict[str, None]] = {}
        """By kind: its tasks in the graph."""
        self._outside: dict[str, dict[str, Task]] = {}
        """By kind: its tasks outside, those first that came first."""
        self._outside_kind: dict[str, str] = {}
        """By task outside: its kind."""
        self._outside_of: Counter[str] = Counter()
        """By user: how many tasks are outside."""
        self._opened: dict[str, None] = {}
        """Kinds that had no machine, and have one now: their tasks are to come in."""
        self._changed: set[str] = set()
        self._gone: set[str] = set()
        """Kinds that are forgotten as soon as no task is of them."""

    def machines(self, name: str) -> frozenset[str] | None:
        """Those that tasks of a kind may go to; None: all."""
        return self._machines.get(name)

    def is_closed(self, name: str) -> bool:
        """Whether tasks of the kind may go nowhere."""
        machines = self._machines.get(name)
        return machines is not None and not machines

    def tell(self, name: str, machines: Collection[str] | None) -> bool:
        """Whether that is new."""
        self._gone.discard(name)
        allowed = None if machines is None else frozenset(machines)
        was_closed = self.is_closed(name)
        if allowed == self._machines.get(name):
            return False
        self._machines[name] = allowed
        self._changed.add(name)
        if self.is_closed(name):
            self._opened.pop(name, None)
        elif was_closed:
            self._opened[name] = None
        return True

    def take_changed(self) -> set[str]:
        """Kinds with other machines than when this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def gone(self, name: str) -> None:
        """Nobody has tasks of the kind any more that are to be placed."""
        self._gone.add(name)

    def forget_gone(self) -> set[str]:
        """Kinds that have gone, and have no task: they are forgotten."""
        forgotten = {kind for kind in self._gone if kind not in self._tasks and kind not in self._outside}
        for name in forgotten:
            self._machines.pop(name, None)
        self._gone -= forgotten
        return forgotten

    # ---- tasks -------------------------------------------------------------------------------

    def tasks(self, name: str) -> list[str]:
        """Those of a kind that are in the graph."""
        return list(self._tasks.get(name, ()))

    def joined(self, task: Task) -> None:
        """The task is in the graph."""
        self._tasks.setdefault(task.kind, {})[task.name] = None

    def left(self, task: Task) -> None:
        """It is no more."""
        tasks = self._tasks[task.kind]
        del tasks[task.name]
        if not tasks:
            del self._tasks[task.kind]

    @property
    def outside(self) -> int:
        """How many tasks are outside."""
        return len(self._outside_kind)

    def is_outside(self, task: str) -> bool:
        """Whether it is."""
        return task in self._outside_kind

    def has_outside(self, user: str) -> bool:
        """Whether tasks of the user are."""
        return user in self._outside_of

    def put_outside(self, task: Task) -> None:
        """Its kind has no machine."""
        self._outside_of[task.user] += 1
        self._outside.setdefault(task.kind, {})[task.name] = task
        self._outside_kind[task.name] = task.kind

    def take_from_outside(self, name: str) -> Task | None:
        """None if it is not outside."""
        kind = self._outside_kind.pop(name, None)
        if kind is None:
            return None
        tasks = self._outside[kind]
        task = tasks.pop(name)
        if not tasks:
            del self._outside[kind]
        self._outside_of[task.user] -= 1
        if not self._outside_of[task.user]:
            del self._outside_of[task.user]
        return task

    def take_opened(self) -> list[Task]:
        """Tasks that were outside and are to be added, as their kinds have machines now."""
        opened, self._opened = self._opened, {}
        tasks = [task for kind in opened for task in self._outside.get(kind, {}).values()]
        for task in tasks:
            self.take_from_outside(task.name)
        return tasks
