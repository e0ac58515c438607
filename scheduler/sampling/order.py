"""Which of a user's waiting stages is served first, whichever of them a reservation was made for.

A node that asks does not care whose task it gets, as long as it is of the user whose turn it is there, and may run on
it. So a scheduler may serve the user's stages of one kind in any order (fairness between users stays with the nodes):

- "reserved": the stage that the reservation was made for, as in the paper (§3.2);
- "oldest": the stage that was submitted first, since a job is as late as its last task;
- "shortest": the stage with the least work left, unplaced tasks × expected duration. Jobs respond sooner on average,
  as short ones do not wait behind long ones; Eagle (Delgado et al., SoCC 2016) orders the queues of its nodes so, and
  like Eagle this one limits how often a stage is overtaken, so that none starves.

This module is the third. Pure: no clock, no randomness, no I/O.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

DURATION_DEFAULT_S = 0.1
"""What a task is taken to last (seconds) if its job does not say: the paper's tasks last about 100 ms."""

_SLACK = 64
"""Superseded entries kept beyond the number of live ones before they are thrown out."""

T = TypeVar("T")
_Entry = tuple[float, int, int, T]
"""Work left, the item's number by when it began to wait, the entry's own, the item."""


def work_s(unplaced: int, expected_duration_s: float | None) -> float:
    """Slot time (seconds) that so many tasks will take."""
    return unplaced * (DURATION_DEFAULT_S if expected_duration_s is None else expected_duration_s)


class ShortestFirst(Generic[T]):
    """Items that wait, least work first; but one that more than `overtaken_max` tasks have overtaken goes before all.

    A task overtakes all items that began to wait before its own did and still wait. Of all that wait the one that has
    waited for longest was overtaken by most: what overtook another overtook it too. So only that one is looked at, and
    what overtook it are the tasks of all items that came later, those that are gone included. `overtook` counts them,
    by the items' numbers, and drops what is not later than the first in line any more.

    An operation costs O(log n), amortised, for n items that wait. Ties go to who began to wait first.
    """

    __slots__ = (
        "_entries",
        "_heap",
        "_line",
        "_live",
        "_next",
        "_overtook",
        "_overtook_from",
        "_total",
        "overtaken_max",
    )

    def __init__(self, overtaken_max: int) -> None:
        self.overtaken_max = overtaken_max
        self._live: dict[T, _Entry[T]] = {}
        self._heap: list[_Entry[T]] = []
        """The live entry of each item, and superseded ones."""
        self._line: deque[_Entry[T]] = deque()
        """The first entry of each item, oldest first, and those of items that are gone."""
        self._next = 0
        self._entries = 0
        self._overtook: dict[int, int] = {}
        """Number to tasks served, of the items later than the first in line."""
        self._overtook_from = 0
        """Numbers below this one have been dropped from it."""
        self._total = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, item: T) -> bool:
        return item in self._live

    def put(self, item: T, work: float) -> None:
        """The item waits with so much work left: it did not wait before, or its work was another."""
        known = self._live.get(item)
        if known is not None and known[0] == work:
            return
        if known is None:
            number = self._next
            self._next += 1
        else:
            number = known[1]
        self._entries += 1
        entry = self._live[item] = (work, number, self._entries, item)
        heap = self._heap
        if known is not None and heap[0] is known:
            heapreplace(heap, entry)
            return
        heappush(heap, entry)
        if known is None:
            self._line.append(entry)
        if max(len(heap), len(self._line)) > 2 * len(self._live) + _SLACK:
            self._trim()

    def remove(self, item: T) -> None:
        """The item waits no more, if it did."""
        self._live.pop(item, None)

    def first(self) -> T | None:
        """Who goes first; None if nobody waits."""
        longest = self._longest()
        if longest is None:
            return None
        if self._total > self.overtaken_max:
            return longest
        heap, live = self._heap, self._live
        while live.get(heap[0][3]) is not heap[0]:
            heappop(heap)
        return heap[0][3]

    def served(self, item: T, count: int, work: float) -> None:
        """So many tasks of an item that waits were started, and it has so much work left."""
        if len(self._live) > 1:  # Else there is nobody to overtake.
            self._longest()
            number = self._live[item][1]
            if number >= self._overtook_from:
                self._overtook[number] = self._overtook.get(number, 0) + count
                self._total += count
        self.put(item, work)

    def _longest(self) -> T | None:
        """Who has waited for longest."""
        line = self._line
        while line and not self._waits(line[0]):
            line.popleft()
        if not line:
            return None
        number, item = line[0][1], line[0][3]
        while self._overtook_from <= number:
            self._total -= self._overtook.pop(self._overtook_from, 0)
            self._overtook_from += 1
        return item

    def _waits(self, entry: _Entry[T]) -> bool:
        """Whether the entry's item waits, and has done so since."""
        live = self._live.get(entry[3])
        return live is not None and live[1] == entry[1]

    def _trim(self) -> None:
        """Throw out what is superseded: constant time, amortised."""
        self._heap = list(self._live.values())
        heapify(self._heap)
        self._line = deque(entry for entry in self._line if self._waits(entry))
