"""Stages that have unplaced tasks and may run, for planes to keep: in groups whose members may stand in for each other
at a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.kinds import Kind

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState

Group = tuple[str, Kind, int]
"""(user, kind, prefetch): a reservation of one such stage is as good as another's."""


def group_of(stage: StageState) -> Group | None:
    """The stage's group; None if it shares with nobody, as its tasks want nodes of their own."""
    spec = stage.spec
    return None if spec.local else (stage.job.user, stage.kind, spec.prefetch)


class WaitingStages:
    """The waiting stages of a scheduler."""

    def __init__(self) -> None:
        self.groups: dict[Group, dict[StageState, None]] = {}
        """Oldest stage first."""
        self.alone: dict[StageState, None] = {}
        """Those of no group."""

    def __bool__(self) -> bool:
        return bool(self.groups or self.alone)

    def all(self) -> list[StageState]:
        """Group by group, and then those of no group."""
        return [*(stage for group in self.groups.values() for stage in group), *self.alone]

    def add(self, stage: StageState, group: Group | None) -> None:
        """The stage waits, if it did not already."""
        if group is None:
            self.alone[stage] = None
            return
        stages = self.groups.setdefault(group, {})
        if stage in stages:
            return
        stages[stage] = None
        if stage.fresh:  # It was there before and comes back: oldest first must hold again.
            self.groups[group] = dict.fromkeys(
                sorted(stages, key=lambda one: (one.job.submitted_at_s, one.job.id, one.index))
            )

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

    def oldest(self, group: Group | None) -> StageState | None:
        """The stage of the group that was submitted first, or None if none waits."""
        return next(iter(self.groups.get(group, ())), None) if group is not None else None
