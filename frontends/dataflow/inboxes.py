"""Chunks that have come for the partitions of this worker, and from which sources none will come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from frontends.dataflow.errors import ProtocolError


@dataclass(slots=True)
class Inbox:
    """What has come for one partition from one call of a scatter."""

    stage: int
    chunks: dict[int, list[Any]] = field(default_factory=dict)
    nothing: set[int] = field(default_factory=set)
    """Sources that yielded nothing for it."""

    def covered(self) -> int:
        """How many sources are accounted for. A source that moved while it scattered counts once."""
        return len(self.chunks) + len(self.nothing)

    def in_order(self) -> list[Any]:
        """The chunks by source, and of each source as they were yielded."""
        return [chunk for source in sorted(self.chunks) for chunk in self.chunks[source]]


class Inboxes:
    """Inboxes by the call of the scatter and the destination's index."""

    def __init__(self) -> None:
        self._inboxes: dict[tuple[int, int], Inbox] = {}

    def _at(self, call: int, index: int, stage: int) -> Inbox:
        inbox = self._inboxes.get((call, index))
        if inbox is None:
            inbox = self._inboxes[call, index] = Inbox(stage)
        return inbox

    def add(self, call: int, stage: int, index: int, source: int, chunks: list[Any]) -> int:
        """Take chunks; how many sources are covered then."""
        inbox = self._at(call, index, stage)
        if source in inbox.chunks or source in inbox.nothing:
            raise ProtocolError(f"call {call}: chunks of partition {source} for partition {index} came twice")
        inbox.chunks[source] = chunks
        return inbox.covered()

    def cover(self, call: int, stage: int, index: int, sources: tuple[int, ...]) -> int:
        """Sources have nothing for the partition; how many are covered then."""
        inbox = self._at(call, index, stage)
        if not inbox.nothing.isdisjoint(sources) or not inbox.chunks.keys().isdisjoint(sources):
            raise ProtocolError(f"call {call}: sources of partition {index} are covered twice: {sources}")
        inbox.nothing.update(sources)
        return inbox.covered()

    def covered(self, call: int, index: int) -> int:
        inbox = self._inboxes.get((call, index))
        return 0 if inbox is None else inbox.covered()

    def take(self, call: int, index: int) -> list[Any]:
        """The chunks, for the gather that takes them."""
        return self._inboxes.pop((call, index)).in_order()

    def leave(self, index: int, stages: frozenset[int]) -> list[tuple[int, int, dict[int, list[Any]], frozenset[int]]]:
        """All that has come for a partition from these scatters: it moves with the partition."""
        leaving = [key for key, inbox in self._inboxes.items() if key[1] == index and inbox.stage in stages]
        left = []
        for call, _ in sorted(leaving):
            inbox = self._inboxes.pop((call, index))
            left.append((call, inbox.stage, inbox.chunks, frozenset(inbox.nothing)))
        return left

    def __len__(self) -> int:
        return len(self._inboxes)
