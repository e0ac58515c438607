"""Measures what late binding costs (§4.3): for how long slots are idle because they wait for the answer to a getTask.

Exact: the node monitor's core knows at each moment how many of its slots ask; that number is summed over time.
"""

from __future__ import annotations

from typing import Any

from simulator.hosts import NodeHost
from simulator.policies import POLICIES, Sparrow

WATCHED = "sparrow-watched"
"""Its name among the policies, once this module is imported."""


class WatchedNodeHost(NodeHost):
    """A node monitor whose asking slots are counted."""

    __slots__ = ("_asking", "_since_s", "asking_s")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asking_s = 0.0
        """Seconds that its slots have spent asking, summed over its slots."""
        self._asking = 0
        self._since_s = 0.0

    def from_scheduler(self, scheduler: str, frame: list[Any]) -> None:
        super().from_scheduler(scheduler, frame)
        self._watch()

    def done(self, run: tuple[int, float, float]) -> None:
        super().done(run)
        self._watch()

    def _watch(self) -> None:
        """Something has happened here: until now as many slots asked as after the last time."""
        asking = self.core.asking
        if asking != self._asking:
            now_s = self._engine.now_s
            self.asking_s += self._asking * (now_s - self._since_s)
            self._asking, self._since_s = asking, now_s


class WatchedSparrow(Sparrow):
    """Sparrow; `counts()` has the time that slots spent asking, `asking_us`, in whole microseconds."""

    node_host: type[NodeHost] = WatchedNodeHost
    nodes: list[Any]

    def counts(self) -> dict[str, int]:
        return super().counts() | {"asking_us": round(1e6 * sum(node.asking_s for node in self.nodes))}


POLICIES[WATCHED] = WatchedSparrow
