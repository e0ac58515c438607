"""Stages that have unplaced tasks and may run, for planes to keep: in groups whose members may stand in for each other
at a node."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from operator import neg
from typing import TYPE_CHECKING

from scheduler.book.kinds import Kind
from sparrow_py.wire.messages import DEPTH_MAX

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState

Group = tuple[str, Kind, int, int]
"""(user, kind, prefetch, priority): a reservation of one such stage is as good as another's."""
Family = tuple[str, Kind, int]
"""The same but for the priority: a reservation of a lower one is as good for stages of a higher one, which are served
first, but not the other way round, as other users may stand between the two."""


def group_of(stage: StageState) -> Group | None:
    """The stage's group; None if it shares with nobody, as its tasks want nodes of their own. Of one priority a deeper
    job has a higher one: tasks wait for it."""
    job, spec = stage.job, stage.spec
    priority = stage.priority * (DEPTH_MAX + 1) + job.depth
    return None if spec.local else (job.user, stage.kind, spec.prefetch, priority)


class WaitingStages:
    """The waiting stages of a scheduler."""

    def __init__(self) -> None:
        self.groups: dict[Group, OrderedDict[StageState, None]] = {}
        """Oldest stage first, but in groups that are to be ordered again. Of a plain dict the first is ever harder to
        find where stages leave in the order in which they came."""
        self._disordered: set[Group] = set()
        """Groups to which stages have come back: thousands at a time, if a node is lost."""
        self.families: dict[Family, list[int]] = {}
        """The priorities of a family's groups, highest first."""
        self.mixed = 0
        """Families of several priorities."""
        self.alone: dict[StageState, None] = {}
        """Those of no group."""

    def __bool__(self) -> bool:
        return bool(self.groups or self.alone)

    def all(self) -> list[StageState]:
        """Family by family, and then those of no group."""
        return [*(stage for family in self.families for group in self.of(family) for stage in group), *self.alone]

    def of(self, family: Family) -> Iterator[Iterable[StageState]]:
        """The family's stages, highest priority first."""
        for priority in self.families[family]:
            yield self.in_order((*family, priority))

    def in_order(self, group: Group | None) -> Iterable[StageState]:
        """The group's stages, the oldest first; there may be none."""
        if group is None:
            return ()
        if group in self._disordered:
            self._disordered.discard(group)
            self.groups[group] = OrderedDict.fromkeys(
                sorted(self.groups[group], key=lambda one: (one.job.submitted_at_s, one.job.id, one.index))
            )
        return self.groups.get(group, ())

    def add(self, stage: StageState, group: Group | None) -> None:
        """The stage waits, if it did not already."""
        if group is None:
            self.alone[stage] = None
            return
        stages = self.groups.get(group)
        if stages is None:
            stages = self.groups[group] = OrderedDict()
            priorities = self.families.setdefault(group[:3], [])
            insort(priorities, group[3], key=neg)
            self.mixed += len(priorities) == 2
        elif stage in stages:
            return
        stages[stage] = None
        if stage.fresh and len(stages) > 1:  # It was there before and comes back: oldest first must hold again.
            self._disordered.add(group)

    def remove(self, stage: StageState, group: Group | None) -> None:
        """The stage waits no more, if it did."""
        if group is None:
            self.alone.pop(stage, None)
            return
        stages = self.groups.get(group)
        if stages is not None:
            stages.pop(stage, None)
            if not stages:
                del self.groups[group]
                self._disordered.discard(group)
                priorities = self.families[group[:3]]
                priorities.remove(group[3])
                self.mixed -= len(priorities) == 1
                if not priorities:
                    del self.families[group[:3]]

    def oldest(self, group: Group | None) -> StageState | None:
        """The stage of the group that was submitted first, or None if none waits."""
        return next(iter(self.in_order(group)), None)
