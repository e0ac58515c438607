"""Which nodes stages may use that may not use all: their kind, what they refuse, jobs to avoid, tasks' own wishes; and
which ones their tasks prefer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from scheduler.altruistic.profile import Flags

if TYPE_CHECKING:
    from scheduler.altruistic.allocator import Allocator
    from scheduler.book.jobs import StageState
    from scheduler.plane import BookForPlane


class UsableNodes:
    """As flags, one a machine. They are kept where only what the plane hears of can change them."""

    def __init__(self, book: BookForPlane) -> None:
        self._book = book
        self._kept: dict[StageState, Flags | None] = {}
        """None: it may use all."""

    def look_again(self, stage: StageState) -> None:
        """Something has happened to the stage."""
        self._kept.pop(stage, None)

    def nodes_changed(self) -> None:
        """Nodes have come, gone, or offer other things."""
        self._kept.clear()

    def limits(self, allocator: Allocator, waiting: Iterable[StageState]) -> dict[tuple[str, int], Flags]:
        """By job and group: the machines that its tasks may use, of stages that may not use all."""
        found: dict[tuple[str, int], Flags] = {}
        for stage in waiting:
            flags = self._kept[stage] if stage in self._kept else self._flags(allocator, stage)
            if flags is not None:
                found[stage.job.id, stage.index] = flags
        return found

    def preferred(self, allocator: Allocator, waiting: Iterable[StageState]) -> dict[tuple[str, int], Flags]:
        """By job and group: the machines that tasks of it prefer, of stages of which some that wait do."""
        found: dict[tuple[str, int], Flags] = {}
        numbers = allocator.machines.number
        for stage in waiting:
            if stage.preferences is None or not stage.preferences.wanting:
                continue
            flags = np.zeros(len(numbers), np.bool_)
            flags[[numbers[node_id] for node_id in stage.preferences.wanting if node_id in numbers]] = True
            found[stage.job.id, stage.index] = flags
        return found

    def _flags(self, allocator: Allocator, stage: StageState) -> Flags | None:
        job, search = stage.job, stage.search
        others_matter = bool(job.avoids) or job.using is not None or stage.preferences is not None
        flags = None
        eligible = self._book.nodes.eligible(stage.kind)
        is_limited = search.refused_by or search.barred_by or len(eligible) < len(self._book.nodes)
        if others_matter or is_limited:
            flags = self._tested(allocator, stage)
        if not others_matter:
            self._kept[stage] = flags
        return flags

    def _tested(self, allocator: Allocator, stage: StageState) -> Flags:
        book, preferences = self._book, stage.preferences
        allowed = book.test_node(stage)
        flags = np.zeros(len(allocator.machines), np.bool_)
        for number, node_id in enumerate(allocator.machines.names):
            node = book.nodes.get(node_id)
            if node is None or not allowed(node_id) or not book.may_start_at(stage.job, node):
                continue
            flags[number] = preferences is None or preferences.free > 0 or node_id in preferences.wanting
        return flags
