"""When a cluster gets another node monitor, and when it loses one. Pure.

It grows at once: as soon as the jobs could use more slots than there are, by as many node monitors as that takes,
within its bounds. It shrinks late: a node leaves once it has had nothing to do for `quiet_s`, and if the slots that
stay are as many as were ever wanted in that time. So a load that comes and goes within `quiet_s` costs no start.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sparrow_py.errors import InvalidRequest
from sparrow_py.job import check_number, check_whole

NODES_MAX = 10_000
QUIET_S_MIN, QUIET_S_MAX = 0.1, 86_400.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many node monitors there are at least and at most, and for how long a node has nothing to do before it
    leaves. `InvalidRequest` for what cannot be."""

    minimum: int
    maximum: int
    quiet_s: float

    def __post_init__(self) -> None:
        check_whole("minimum", self.minimum, 0, NODES_MAX)
        check_whole("maximum", self.maximum, 1, NODES_MAX)
        check_number("quiet_s", self.quiet_s, QUIET_S_MIN, QUIET_S_MAX)
        if self.minimum > self.maximum:
            raise InvalidRequest("minimum", self.minimum, f"at most maximum={self.maximum}")


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node that the schedulers list. `idle`: none of them has anything there. `own`: whether it can be told to leave;
    another one counts with its slots alone. `launched`: how many tasks they have sent there."""

    id: str
    slots: int
    idle: bool
    takes_tasks: bool = True
    own: bool = True
    launched: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What is there now. wanted: slots that the jobs could use. starting, leaving: node monitors that no scheduler
    lists yet, and those that were told to leave and have not gone. room: how many more can be started now."""

    wanted: int
    nodes: Collection[SeenNode]
    starting: int = 0
    leaving: frozenset[str] = frozenset()
    room: int = NODES_MAX


@dataclass(frozen=True, slots=True)
class Decision:
    """So many node monitors are to be started, and these nodes are to leave. Never both."""

    start: int = 0
    leave: tuple[str, ...] = ()


class Adaptation:
    """What it remembers from look to look: since when nodes have nothing to do, and what was wanted."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._idle_since_s: dict[str, float] = {}
        self._launched: dict[str, int] = {}
        """Of each node at the last look: where it has changed, tasks came and went in between."""
        self._wanted = PeakOf(bounds.quiet_s)
        self._slots_each = 0
        """Of a node of its own, on average, when there was one; 0 before."""

    def look(self, seen: Seen, now_s: float) -> Decision:
        """What is to be done now."""
        staying = [node for node in seen.nodes if node.id not in seen.leaving]
        own = [node for node in staying if node.own]
        if own:
            self._slots_each = max(1, math.ceil(sum(node.slots for node in own) / len(own)))
        self._note_idle(own, now_s)
        peak = self._wanted.of(seen.wanted, now_s)
        slots = sum(node.slots for node in staying if node.takes_tasks)
        start = self._missing(seen, slots, len(own) + seen.starting)
        if start:
            # Those that leave still have their machines.
            at_most = self.bounds.maximum - len(own) - seen.starting - len(seen.leaving)
            return Decision(start=max(0, min(start, at_most, seen.room)))
        if seen.starting:
            return Decision()
        return Decision(leave=self._surplus(own, slots - peak, now_s))

    def stays(self, node_id: str) -> None:
        """A node that was to leave does not, since it has something to do after all."""
        self._idle_since_s.pop(node_id, None)

    def _missing(self, seen: Seen, slots: int, present: int) -> int:
        """How many more node monitors it takes."""
        more = seen.wanted - slots - seen.starting * self._slots_each
        if more <= 0:
            wanted = 0
        elif self._slots_each:
            wanted = math.ceil(more / self._slots_each)
        else:
            wanted = 0 if seen.starting else 1  # It will say how many slots a node has.
        return max(wanted, self.bounds.minimum - present)

    def _note_idle(self, own: Iterable[SeenNode], now_s: float) -> None:
        before, self._launched = self._launched, {node.id: node.launched for node in own}
        since_s = {one: at_s for one, at_s in self._idle_since_s.items() if before.get(one) == self._launched.get(one)}
        idle = {node.id for node in own if node.idle}
        self._idle_since_s = {name: since_s.get(name, now_s) for name in sorted(idle)}

    def _surplus(self, own: Collection[SeenNode], spare: int, now_s: float) -> tuple[str, ...]:
        """Nodes that have had nothing to do for long, the longest first, whose slots are all spare."""
        since_s = self._idle_since_s
        rested = [node for node in own if now_s - since_s.get(node.id, now_s) >= self.bounds.quiet_s]
        leave = list[str]()
        for node in sorted(rested, key=lambda node: (since_s[node.id], node.id)):
            taken = node.slots if node.takes_tasks else 0
            if len(own) - len(leave) > self.bounds.minimum and taken <= max(spare, 0):
                leave.append(node.id)
                spare -= taken
        return tuple(leave)


class PeakOf:
    """The largest of the numbers of the last seconds. Times do not go back."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._falling: deque[tuple[float, int]] = deque()
        """Numbers that none after them has reached, with their times: the first is the largest."""

    def of(self, number: int, now_s: float) -> int:
        """Add a number of now; returns the largest."""
        while self._falling and self._falling[-1][1] <= number:
            self._falling.pop()
        self._falling.append((now_s, number))
        while self._falling[0][0] < now_s - self._window_s:
            self._falling.popleft()
        return self._falling[0][1]
