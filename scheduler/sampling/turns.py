"""Whose turn it is among the waiting stages of a user: see `order`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.waiting_stages import Group, WaitingStages
from scheduler.sampling.order import ShortestFirst, work_s

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.options import SchedulerOptions


class Turns(WaitingStages):
    """The stages that have unplaced tasks and may run."""

    def __init__(self, options: SchedulerOptions) -> None:
        super().__init__()
        self._overtaken_max = options.overtaken_max
        self.by_work: dict[Group, ShortestFirst[StageState]] | None = {} if options.order == "shortest" else None
        """The groups, least work first, where that is their order."""

    def add(self, stage: StageState, group: Group | None) -> None:
        if self.by_work is not None and group is not None:
            by_work = self.by_work.get(group)
            if by_work is None:
                by_work = self.by_work[group] = ShortestFirst(self._overtaken_max)
            by_work.put(stage, work_s(stage.unplaced, stage.spec.expected_duration_s))
        super().add(stage, group)

    def remove(self, stage: StageState, group: Group | None) -> None:
        super().remove(stage, group)
        if self.by_work and group in self.by_work:
            self.by_work[group].remove(stage)
            if group not in self.groups:
                del self.by_work[group]

    def first(self, group: Group | None) -> StageState | None:
        """The stage that is to be served first at a reservation of the group: one of the highest priority, but of no
        lower one than the reservation's."""
        if group is None:
            return None
        if self.mixed or group not in self.groups:
            highest = self.families.get(group[:3], [group[3]])[0]
            group = (*group[:3], max(highest, group[3]))
        if self.by_work is None:
            return self.oldest(group)
        by_work = self.by_work.get(group)
        return by_work.first() if by_work is not None else None

    def served(self, stage: StageState, count: int) -> None:
        """So many tasks of the stage were placed."""
        by_work = self._by_work_of(stage)
        if by_work is not None:
            by_work.served(stage, count, work_s(stage.unplaced, stage.spec.expected_duration_s))

    def has_less_work(self, stage: StageState) -> None:
        """Some of the stage's unplaced tasks need no place any more, and some still do."""
        by_work = self._by_work_of(stage)
        if by_work is not None:
            by_work.put(stage, work_s(stage.unplaced, stage.spec.expected_duration_s))

    def _by_work_of(self, stage: StageState) -> ShortestFirst[StageState] | None:
        """The stages among which it waits, if it does, and if they are served by their work."""
        by_work = self.by_work.get(stage.plan.group) if self.by_work else None
        return by_work if by_work is not None and stage in by_work else None

    def problem(self) -> str | None:
        """What is wrong with these books, or None."""
        if self.by_work is None or {group: len(stages) for group, stages in self.groups.items()} == {
            group: len(stages) for group, stages in self.by_work.items()
        }:
            return None
        return "stages that wait and stages in order of work differ"
