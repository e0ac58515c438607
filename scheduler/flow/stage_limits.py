"""What the tasks of a stage have in common beside their kind: gangs, limits of a node and a rack, stages to be near."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scheduler.flow.policies.policy import Group

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState, StageState


class StageRelations:
    """Which stages of a job are to be near which others: looked up once for all of them, as there may be a thousand."""

    __slots__ = ("by_name", "wanted")

    def __init__(self, job: JobState) -> None:
        self.wanted = {stage.spec.together_with for stage in job.stages if stage.spec.together_with}
        """Names of stages near which others are to be."""
        self.by_name = {stage.spec.name: stage for stage in job.stages} if self.wanted else {}


def has_limits(stage: StageState) -> bool:
    """Whether its tasks depend on where others of it, or of another stage, are."""
    spec = stage.spec
    limited = spec.gang or spec.max_per_node is not None or spec.max_per_rack is not None
    return bool(limited or spec.together_with or is_wanted_near(stage))


def is_wanted_near(stage: StageState) -> bool:
    """Whether another stage of its job is to be where its tasks are."""
    relations: StageRelations = stage.plan.relations
    return stage.spec.name in relations.wanted


def running_at(stage: StageState) -> Counter[str]:
    """By node: tasks of the stage that are placed there."""
    attempts = stage.job.attempts
    return Counter(attempts[attempt].node_id for attempt in stage.attempts.values())


def group_of(stage: StageState) -> Group:
    """The stage's limits, as the network knows them."""
    spec = stage.spec
    return Group(
        gang=len(stage.plan.since_s) if spec.gang else 0,
        max_per_machine=spec.max_per_node or 0,
        max_per_rack=spec.max_per_rack or 0,
        together_with="" if (near := near_of(stage)) is None or near.over else str(near.plan.number),
        running=dict(running_at(stage)),
    )


def near_of(stage: StageState) -> StageState | None:
    """The other stage that this one is to be near."""
    relations: StageRelations = stage.plan.relations
    return relations.by_name.get(stage.spec.together_with) if stage.spec.together_with else None


def nodes_near(stage: StageState) -> frozenset[str] | None:
    """Nodes with tasks of the stage that this one is to be near; None if there is none, or it is over: any will do."""
    near = near_of(stage)
    return None if near is None or near.over else frozenset(running_at(near))
