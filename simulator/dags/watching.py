"""What somebody may want to know of a simulation, beside what comes of its jobs."""

from __future__ import annotations

from scheduler.altruistic.allocator import Allocator, Start


class Watcher:
    """Is told what happens; does nothing of it."""

    def started(self, start: Start) -> None:
        """Tasks have started."""

    def ended(self, start: Start, tasks: int) -> None:
        """So many of them run no more."""

    def pumped(self, allocator: Allocator, now_s: float) -> None:
        """All that happens at this time has."""
