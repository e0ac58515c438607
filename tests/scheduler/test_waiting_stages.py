"""Stages that wait, in groups whose members may stand in for each other: beside a model that sorts anew each time."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.book import waiting_stages
from scheduler.book.jobs import JobState, StageState
from scheduler.book.waiting_stages import WaitingStages, group_of
from tests.support.recorder import submission


def stage_of(number: int) -> StageState:
    """Stages of two users and two kinds; every seventh wants nodes of its own."""
    local = number % 7 == 6
    job = submission(f"j{number:02}", 3, prefetch=number % 2, local=local)
    (stage,) = JobState(job, "c", "anna" if number % 3 else "bert", float(number // 2)).stages
    stage.add_tasks([b""] * 3, {})
    return stage


def age(stage: StageState) -> tuple[float, str]:
    return stage.job.submitted_at_s, stage.job.id


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["come", "come", "go", "place"]), st.integers(0, 13)), max_size=40))
def test_each_group_has_its_oldest_stage_first_whatever_comes_and_goes(events: list[tuple[str, int]]) -> None:
    stages = [stage_of(number) for number in range(14)]
    groups = [group_of(stage) for stage in stages]
    waiting, model, newest = WaitingStages(), list[StageState](), -1
    for kind, number in events:
        stage = stages[number]
        if kind == "come" and (number <= newest + 1 or stage.fresh):
            if number > newest:
                newest = number
            elif not stage.fresh and stage not in model:
                continue  # A stage that never had a task placed comes once, in the order of its job.
            waiting.add(stage, group_of(stage))
            model = [*(one for one in model if one is not stage), stage]
        elif kind == "go" and stage in model:
            if not stage.fresh:
                stage.take_next()
            waiting.remove(stage, group_of(stage))
            model = [one for one in model if one is not stage]
        elif kind == "place" and stage in model and stage.unplaced > 1:
            stage.take_next()
        group = groups[number]
        members = sorted((other for other in model if groups[stages.index(other)] == group), key=age)
        assert waiting.oldest(group) is (members[0] if group is not None and members else None)
        assert sorted(waiting.all(), key=age) == sorted(model, key=age)
        assert bool(waiting) == bool(model) and all(waiting.groups.values())


def test_a_stage_that_is_removed_twice_or_never_came_changes_nothing() -> None:
    waiting, stage, alone = WaitingStages(), stage_of(0), stage_of(6)
    for one in (stage, alone):
        waiting.remove(one, group_of(one))
    waiting.add(stage, group_of(stage))
    waiting.add(stage, group_of(stage))
    assert waiting.all() == [stage]
    for _ in range(2):
        waiting.remove(stage, group_of(stage))
    assert not waiting


def test_stages_that_want_nodes_of_their_own_are_of_no_group_and_come_last() -> None:
    waiting, alone, other = WaitingStages(), stage_of(6), stage_of(7)
    assert group_of(alone) is None
    for one in (alone, other):
        waiting.add(one, group_of(one))
    assert waiting.all() == [other, alone] and waiting.oldest(None) is None


def test_the_first_is_found_at_once_though_many_before_have_left() -> None:
    """A plain dict looks past the places of all that have left, each time: a minute for 300,000 stages."""
    waiting, stage = WaitingStages(), stage_of(0)
    waiting.add(stage, group_of(stage))
    (line,) = waiting.groups.values()
    assert isinstance(line, OrderedDict)


def test_stages_that_come_back_are_put_in_order_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may come back together, when a node is lost."""
    waiting, stages = WaitingStages(), [stage_of(number) for number in range(0, 12, 6)]
    for stage in stages:
        stage.take_next()
    sorts = []
    monkeypatch.setattr(waiting_stages, "sorted", lambda *a, **k: sorts.append(1) or sorted(*a, **k), raising=False)
    for stage in reversed(stages):
        waiting.add(stage, group_of(stages[0]))
    assert not sorts
    assert [waiting.oldest(group_of(stages[0])) for _ in range(3)] == [stages[0]] * 3 and len(sorts) == 1
