"""`sparrow run`, which starts a cluster of its own and ends it."""

from __future__ import annotations

from benchmarks.habits.gnu_parallel import OURS, argv_of
from benchmarks.peers.peer import Tool


class SparrowRun(Tool):
    """Ours."""

    name = OURS
    ours = True
    packages = ("sparrow-py",)

    def command(self, at_once: int) -> list[str]:
        """As GNU parallel is called."""
        return argv_of(OURS, at_once)
