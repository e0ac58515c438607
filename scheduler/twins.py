"""Node monitors that have one name: each link of the one ends that of the other, and tasks there are lost.

A node monitor whose link is taken over may be dead: its machine was cut off, or it was started again, perhaps
elsewhere. One that comes back after another has taken its link over is not. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TWIN_S = 60.0
"""Two that take turns are told of for so long after they have last been seen to. They do so every few seconds."""
RUNS_MAX = 4
"""Node monitors that are remembered of a name."""


@dataclass(slots=True)
class _Name:
    """Of a node that is linked."""

    runs: dict[str, str] = field(default_factory=dict)
    """Those that have followed each other without a gap, with their places; the one that is linked is the last."""
    other: str = ""
    """Where the other one is that was linked last, once that is known."""
    seen_at_s: float = 0.0
    said_at_s: float = float("-inf")


class Twins:
    """The names of the nodes that are linked, and which of them two node monitors have."""

    def __init__(self) -> None:
        self._names: dict[str, _Name] = {}

    def came(self, node_id: str, run: str, place: str, now_s: float) -> str:
        """A node monitor is linked. run: of its process alone. The place of another one that has this name, if that is
        now certain, and has not been said for a while; else nothing."""
        name = self._names.setdefault(node_id, _Name())
        last = next(reversed(name.runs), run)
        is_back = run in name.runs and run != last
        if is_back:
            name.other, name.seen_at_s = name.runs[last], now_s
        name.runs.pop(run, None)
        name.runs[run] = place
        if len(name.runs) > RUNS_MAX:
            del name.runs[next(iter(name.runs))]
        if not is_back or now_s - name.said_at_s < TWIN_S:
            return ""
        name.said_at_s = now_s
        return name.other

    def gone(self, node_id: str) -> None:
        """No node monitor of this name is linked any more."""
        self._names.pop(node_id, None)

    def other(self, node_id: str, now_s: float) -> str:
        """Where another one is that has the name of this node, which is linked; empty if there is none."""
        name = self._names.get(node_id)
        return name.other if name is not None and now_s - name.seen_at_s < TWIN_S else ""
