"""Tasks that are at the node and wait for their turn: pushed by their scheduler (direct placement), or asked for ahead
of a slot (prefetch).

Each has one of the reservations of its ticket, which stays queued, so it shares the node as others do (§3.5): when the
queue's policy takes a reservation of the ticket, the task starts, and nobody is asked for one. A pushed task comes just
before its reservation. What has no slot is charged to nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from node_monitor.queueing.tickets import Key
from sparrow_py.wire.messages import Launch


class ReadyTasks:
    """Tasks that wait for their turn, by ticket, in the order in which they came."""

    def __init__(self) -> None:
        self._by_ticket: dict[Key, OrderedDict[int, Launch]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_ticket)

    def all(self) -> Iterator[tuple[Key, Launch]]:
        """All of them, with their tickets' keys."""
        for key, tasks in self._by_ticket.items():
            for task in tasks.values():
                yield key, task

    def count(self, key: Key) -> int:
        """How many the ticket has."""
        tasks = self._by_ticket.get(key)
        return 0 if tasks is None else len(tasks)

    def add(self, key: Key, task: Launch) -> None:
        """A task has come for the ticket."""
        tasks = self._by_ticket.get(key)
        if tasks is None:
            tasks = self._by_ticket[key] = OrderedDict()
        tasks[task.attempt] = task

    def first(self, key: Key) -> Launch | None:
        """The ticket's first task; None if there is none."""
        tasks = self._by_ticket.get(key)
        return None if tasks is None else next(iter(tasks.values()))

    def take(self, key: Key) -> Launch | None:
        """The ticket's first task, which waits no more; None if there is none."""
        tasks = self._by_ticket.get(key)
        if tasks is None:
            return None
        _, task = tasks.popitem(last=False)
        if not tasks:
            del self._by_ticket[key]
        return task

    def take_last(self, key: Key, count: int) -> list[tuple[Key, Launch]]:
        """Take out the newest so many of the ticket's, oldest first."""
        tasks = self._by_ticket.get(key)
        if tasks is None:
            return []
        taken = [(key, tasks.popitem()[1]) for _ in range(min(count, len(tasks)))]
        if not tasks:
            del self._by_ticket[key]
        return taken[::-1]

    def take_attempt(self, scheduler: str, job: str, attempt: int) -> tuple[Key, Launch] | None:
        """Take out one task of this scheduler; None if it is not here."""
        for key, tasks in self._by_ticket.items():
            task = tasks.get(attempt) if key[0] == scheduler else None
            if task is not None and task.job == job:
                del tasks[attempt]
                if not tasks:
                    del self._by_ticket[key]
                return key, task
        return None

    def remove(self, wanted: Callable[[Key, Launch], bool]) -> list[tuple[Key, Launch]]:
        """Take out all that are wanted."""
        removed = [(key, task) for key, task in self.all() if wanted(key, task)]
        for key, task in removed:
            tasks = self._by_ticket[key]
            del tasks[task.attempt]
            if not tasks:
                del self._by_ticket[key]
        return removed
