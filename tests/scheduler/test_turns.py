"""Stages that wait: in groups, oldest first or by their work."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book.jobs import JobState, StageState
from scheduler.book.waiting_stages import WaitingStages, group_of
from scheduler.options import ORDERS, SchedulerOptions
from scheduler.sampling.plan import StagePlan
from scheduler.sampling.turns import Turns
from tests.support.recorder import submission


def stage_of(job: str, now_s: float, tasks: int = 1, user: str = "anna", **fields: Any) -> StageState:
    (stage,) = JobState(submission(job, tasks, **fields), "c", user, now_s).stages
    stage.add_tasks([b""] * tasks, {})
    stage.plan = StagePlan(stage)
    return stage


def test_stages_of_one_user_kind_and_prefetch_are_a_group() -> None:
    first = stage_of("a", 0.0)
    assert group_of(first) == group_of(stage_of("b", 1.0, tasks=5))
    others = [stage_of("c", 0.0, user="bert"), stage_of("c", 0.0, app="other"), stage_of("c", 0.0, prefetch=1)]
    assert len({group_of(stage) for stage in [first, *others]}) == 4
    assert group_of(stage_of("d", 0.0, local=True)) is None


def test_the_highest_priority_is_first_and_no_lower_one_than_the_groups_is() -> None:
    for order in ORDERS:
        turns = Turns(SchedulerOptions(order=order))
        low, high = stage_of("low", 0.0, 1, priority=1), stage_of("high", 1.0, 5, priority=7)
        assert low.plan.group != high.plan.group
        turns.add(low, low.plan.group)
        assert turns.first(low.plan.group) is low and turns.first(high.plan.group) is None
        turns.add(high, high.plan.group)
        assert turns.first(low.plan.group) is turns.first(high.plan.group) is high
        assert turns.all() == [high, low] and turns.mixed == 1
        turns.remove(low, low.plan.group)
        assert turns.first(low.plan.group) is high and turns.mixed == 0
        turns.remove(high, high.plan.group)
        assert turns.first(low.plan.group) is None and not turns.families


def test_a_stage_that_comes_back_has_its_place_by_age_again() -> None:
    waiting = WaitingStages()
    old, young = stage_of("old", 0.0, 2), stage_of("young", 1.0)
    group = group_of(old)
    for stage in (old, young):
        waiting.add(stage, group)
    old.take_next()
    waiting.remove(old, group)
    assert waiting.oldest(group) is young
    waiting.add(old, group)
    assert waiting.oldest(group) is old and waiting.all() == [old, young]


def test_nothing_is_left_when_nobody_waits() -> None:
    turns = Turns(SchedulerOptions())
    stages = [stage_of("a", 0.0), stage_of("b", 0.0), stage_of("c", 0.0, local=True)]
    for stage in stages:
        turns.add(stage, stage.plan.group)
    assert len(turns.all()) == 3 and turns
    for stage in stages * 2:
        turns.remove(stage, stage.plan.group)
    assert not turns and not turns.by_work and turns.oldest(stages[0].plan.group) is None


@pytest.mark.parametrize(("order", "first"), [("shortest", "short"), ("oldest", "long"), ("reserved", "long")])
def test_who_is_first(order: str, first: str) -> None:
    assert order in ORDERS
    turns = Turns(SchedulerOptions(order=order))
    stages = [stage_of("long", 0.0, 5), stage_of("short", 1.0, 1)]
    for stage in stages:
        turns.add(stage, stage.plan.group)
    found = turns.first(stages[0].plan.group)
    assert found is not None and found.job.id == first
    assert turns.first(None) is None


def test_less_work_makes_a_stage_the_first() -> None:
    turns = Turns(SchedulerOptions())
    stages = [stage_of("five", 0.0, 5), stage_of("three", 1.0, 3)]
    for stage in stages:
        turns.add(stage, stage.plan.group)
    stages[0].unplaced = 2
    turns.has_less_work(stages[0])
    assert turns.first(stages[0].plan.group) is stages[0]
    assert turns.problem() is None
    turns.groups[stages[0].plan.group].pop(stages[0])
    assert turns.problem() == "stages that wait and stages in order of work differ"
