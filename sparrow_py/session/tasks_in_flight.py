"""Whether tasks of this program's clients run beside others: by this their output is marked."""

from __future__ import annotations


class TasksInFlight:
    """Which clients of this program have several tasks in flight: the lines of one that is alone need no mark."""

    def __init__(self) -> None:
        self._known = False
        self._several: set[object] = set()

    def submitted(self, client: object, *, several: bool) -> None:
        """The client submits a job, and has `several` tasks in flight with it."""
        self._known = True
        if several:
            self._several.add(client)
        else:
            self._several.discard(client)

    def ended(self, client: object) -> None:
        """The client has ended."""
        self._several.discard(client)

    @property
    def several(self) -> bool:
        """Whether there may be several. Until a client of this program submits a job, tasks are other programs'."""
        return bool(self._several) or not self._known
