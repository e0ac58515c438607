"""Tasks that a scheduler pushed (direct placement): they came without having been asked for, and wait for their turn.

A pushed task takes one of the reservations of its ticket, which follow it, so it shares the node as others do (§3.5):
when the queue's policy takes a reservation of the ticket, the task starts, and nobody is asked for one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from node_monitor.queues import Key
from sparrow_py.messages import Launch


class PushedTasks:
    """Pushed tasks that have not started, by ticket, in the order in which they came."""

    def __init__(self) -> None:
        self._by_ticket: dict[Key, OrderedDict[int, Launch]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_ticket)

    def all(self) -> Iterator[tuple[Key, Launch]]:
        """All of them, with their tickets' keys."""
        for key, tasks in self._by_ticket.items():
            for task in tasks.values():
                yield key, task

    def add(self, key: Key, task: Launch) -> None:
        """A task has come for the ticket."""
        tasks = self._by_ticket.get(key)
        if tasks is None:
            tasks = self._by_ticket[key] = OrderedDict()
        tasks[task.attempt] = task

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
        """Take out the newest so many of the ticket's."""
        tasks = self._by_ticket.get(key, OrderedDict())
        newest = set(list(tasks)[-count:])
        return self.remove(lambda of, task: of == key and task.attempt in newest)

    def remove(self, wanted: Callable[[Key, Launch], bool]) -> list[tuple[Key, Launch]]:
        """Take out all that are wanted."""
        removed = [(key, task) for key, task in self.all() if wanted(key, task)]
        for key, task in removed:
            tasks = self._by_ticket[key]
            del tasks[task.attempt]
            if not tasks:
                del self._by_ticket[key]
        return removed
