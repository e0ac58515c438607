"""For how long a node monitor has had nothing to do. Pure."""

from __future__ import annotations


class Idleness:
    """Looked at now and then. What came and went between two looks is seen by a count that has changed."""

    def __init__(self, exit_s: float) -> None:
        self.exit_s = exit_s
        """After so long without anything to do the node monitor leaves."""
        self._since_s: float | None = None
        self._count = -1

    def is_over(self, busy: bool, count: int, now_s: float) -> bool:
        """Whether it has been idle for so long. `busy`: whether there is something to do now; `count`: of the tasks
        that were started so far."""
        if busy or count != self._count or self._since_s is None:
            self._since_s = None if busy else now_s
            self._count = count
        return self._since_s is not None and now_s - self._since_s >= self.exit_s
