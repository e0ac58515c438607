"""Virtual time: events in order of time, those of the same time in the order in which they were added.

Two kinds of queue behind one clock. Most events of a simulated cluster are frames on a network whose delay is the same
for all: they happen in the order in which they were sent, so a plain queue (the lane) holds them in constant time. All
others go to a heap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]
Event = tuple[float, int, Action, Any]
"""(when, number, action, its argument)."""
Delivery = tuple[float, int, Callable[[Any, list[Any]], None], Any, list[Any]]
"""(when, number, who receives, from whom, the frame)."""


class Engine:
    """The clock and what is to happen. `now_s`: seconds of virtual time.

    end_of_turn: called after each event; what the event caused is sent from there.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self.now_s = start_s
        self.events = 0
        """Events that have happened."""
        self.end_of_turn: Callable[[], None] = _nothing
        self._heap: list[Event] = []
        self.lane: deque[Delivery] = deque()
        """For `Network`, which adds to it without a call: deliveries none of which is due before the one before it."""
        self.added = 0
        """Events added so far: the number of the last one."""

    def at(self, at_s: float, action: Action, argument: Any = None) -> None:
        """Call `action(argument)` once it is `at_s`; a time that has passed is now."""
        self.added += 1
        heappush(self._heap, (at_s if at_s > self.now_s else self.now_s, self.added, action, argument))

    def next_s(self) -> float | None:
        """When the next event is due; None if nothing is to happen."""
        return min((queue[0][0] for queue in (self._heap, self.lane) if queue), default=None)

    def run(self, until_s: float = float("inf")) -> None:
        """Let everything happen that is due until then, what it causes included."""
        heap, lane, end_of_turn = self._heap, self.lane, self.end_of_turn
        while True:
            # Comparing two of them compares their times and numbers, which differ, and never what is to be done.
            if lane and not (heap and heap[0] < lane[0]):
                if lane[0][0] > until_s:
                    break
                self.now_s, _, receive, sender, frame = lane.popleft()
                self.events += 1
                receive(sender, frame)
            elif heap:
                if heap[0][0] > until_s:
                    break
                self.now_s, _, action, argument = heappop(heap)
                self.events += 1
                action(argument)
            else:
                break
            end_of_turn()
        if until_s != float("inf"):
            self.now_s = max(self.now_s, until_s)


def _nothing() -> None:
    """There is nothing to be done at the end of a turn."""
