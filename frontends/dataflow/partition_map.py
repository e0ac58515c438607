"""Which worker has which partition in memory: a table of slots, (group, index), with a version per entry.

Datasets that stages touch together are one group (`Definition.groups`), and a partition of a group moves as one: a map
that leaves a stage's arrays on two workers cannot be written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from frontends.dataflow.blocks import Slot


class Entry(NamedTuple):
    worker: int
    version: int


class Update(NamedTuple):
    slot: Slot
    entry: Entry


class PartitionMap:
    """Entries by slot. The controller makes newer ones (`move`), workers learn of them (`apply`) in any order."""

    def __init__(self, workers: Mapping[Slot, int]) -> None:
        self._entries = {slot: Entry(worker, 1) for slot, worker in workers.items()}

    @classmethod
    def of_entries(cls, entries: Mapping[Slot, Entry]) -> PartitionMap:
        made = cls({})
        made._entries = dict(entries)
        return made

    def copy(self) -> PartitionMap:
        return self.of_entries(self._entries)

    def __getitem__(self, slot: Slot) -> Entry:
        return self._entries[slot]

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterable[tuple[Slot, Entry]]:
        return self._entries.items()

    def held_by(self, worker: int) -> list[Slot]:
        return sorted(slot for slot, entry in self._entries.items() if entry.worker == worker)

    def move(self, slot: Slot, worker: int) -> Update:
        """The next version of an entry."""
        entry = self._entries[slot] = Entry(worker, self._entries[slot].version + 1)
        return Update(slot, entry)

    def apply(self, slot: Slot, entry: Entry) -> bool:
        """Take an entry over if it is newer; whether it was."""
        if entry.version <= self._entries[slot].version:
            return False
        self._entries[slot] = entry
        return True

    def check_invariants(self, workers: Iterable[int] | None = None) -> None:
        known = None if workers is None else set(workers)
        for slot, entry in self._entries.items():
            assert entry.version >= 1, (slot, entry)
            assert known is None or entry.worker in known, (slot, entry)
