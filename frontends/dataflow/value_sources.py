"""Where each value of an epoch comes from, by worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from frontends.dataflow.blocks import Slot
from frontends.dataflow.control_messages import Layout, PlaceOf


def places_of(layout: Layout) -> set[PlaceOf]:
    """All partitions of all datasets; one of each replicated one."""
    return {(dataset, index) for dataset, count in enumerate(layout.partitions) for index in range(count)}


def groups_of(layout: Layout) -> dict[int, int]:
    """Each group and how many partitions it has."""
    return {group: layout.partitions[group] for group in sorted(set(layout.groups)) if group >= 0}


class ValueSources:
    """Of the epoch that begins: each value is made, kept, sent by another worker, or read from a snapshot."""

    def __init__(self, members: list[int], layout: Layout, placed: Mapping[Slot, int]) -> None:
        self._made: dict[int, list[PlaceOf]] = {member: [] for member in members}
        self._kept: dict[int, list[PlaceOf]] = {member: [] for member in members}
        self._awaited: dict[int, list[PlaceOf]] = {member: [] for member in members}
        self._given: dict[int, list[tuple[PlaceOf, int]]] = {member: [] for member in members}
        self._wanted: list[tuple[PlaceOf, int]] = []
        """Each value and who is to have it."""
        for dataset, count in enumerate(layout.partitions):
            group = layout.groups[dataset]
            if group < 0:
                self._wanted += [((dataset, 0), member) for member in members if count]
            else:
                self._wanted += [((dataset, index), placed[group, index]) for index in range(count)]

    def from_start(self) -> None:
        for place, worker in self._wanted:
            self._made[worker].append(place)

    def from_snapshot(self, stored: set[PlaceOf]) -> None:
        for place, worker in self._wanted:
            (self._awaited if place in stored else self._made)[worker].append(place)

    def from_workers(self, datasets: int, members: set[int], holder_of: Callable[[int, int], int | None]) -> None:
        """As the workers of the epoch before have them; datasets from the number `datasets` on are made. `holder_of` a
        dataset and an index: who has the latest value; None if all members have."""
        for place, worker in self._wanted:
            dataset, index = place
            if dataset >= datasets:
                self._made[worker].append(place)
                continue
            holder = holder_of(dataset, index)
            if holder is None:
                holder = worker if worker in members else min(members)
            if holder == worker:
                self._kept[worker].append(place)
            else:
                self._awaited[worker].append(place)
                self._given[holder].append((place, worker))

    def of(self, worker: int) -> tuple[list[PlaceOf], list[PlaceOf], list[PlaceOf], list[tuple[PlaceOf, int]]]:
        return self._made[worker], self._kept[worker], self._awaited[worker], self._given[worker]
