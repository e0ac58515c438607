"""Estimates: whose figure holds, when the stage's own tasks are right, and estimates that are wrong on purpose."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.durations import DURATION_S_MAX, DURATION_S_MIN
from scheduler.altruistic.estimates import (
    DIFFERS_BY,
    ENOUGH_TASKS,
    MISESTIMATION_MAX,
    MISESTIMATION_MIN,
    Change,
    Estimate,
    EstimateError,
    Source,
    StageEstimate,
    misestimated,
)
from scheduler.altruistic.runs import AMOUNT_MAX, DURATION, Figure, Figures

HISTORY = {DURATION: Figure(3, 50.0), "cpu": Figure(3, 2.0), "memory_bytes": Figure(3, 1e9)}
TASKS = 100
SECONDS = st.floats(DURATION_S_MIN, 1e6)
AMOUNTS = st.floats(0, 1e12)
NAMES = st.sampled_from(["cpu", "memory_bytes", "net_bytes_per_s"])
DEMANDS = st.dictionaries(NAMES, AMOUNTS)
HISTORIES: st.SearchStrategy[Figures] = st.dictionaries(
    st.sampled_from([DURATION, "cpu", "memory_bytes"]), st.builds(Figure, st.integers(1, 9), st.floats(0.1, 1e6))
)
RUNNING = st.one_of(st.just((0, 0.0)), st.tuples(st.integers(1, 12), SECONDS))
FINISHED = st.lists(st.tuples(SECONDS, st.dictionaries(NAMES, AMOUNTS), RUNNING), max_size=15)
"""How long each took, what it used, how many ran still, and for how long together."""
Finished = list[tuple[float, dict[str, float], tuple[int, float]]]
MISESTIMATIONS = st.floats(MISESTIMATION_MIN, MISESTIMATION_MAX)


def finish(
    estimate: StageEstimate, *durations_s: float, running: int = 0, running_s: float = 0.0, cpu: float | None = None
) -> list[Change]:
    return [estimate.finished(duration_s, {"cpu": cpu}, running, running_s) for duration_s in durations_s]


def test_what_the_submitter_says_goes_before_what_is_remembered() -> None:
    now = StageEstimate(TASKS, {"slots": 1, "cpu": 4.0}, 10.0, HISTORY).now
    assert now.demand == {"slots": 1, "cpu": 4.0, "memory_bytes": 1e9} and now.duration_s == 10
    assert now.source is now.sources["cpu"] is Source.SUBMITTER and now.sources["memory_bytes"] is Source.HISTORY


def test_what_is_remembered_holds_if_the_submitter_says_nothing() -> None:
    now = StageEstimate(TASKS, {"slots": 1}, None, HISTORY).now
    assert now.demand == {"slots": 1, "cpu": 2.0, "memory_bytes": 1e9} and now.duration_s == 50
    assert now.source is now.sources["cpu"] is Source.HISTORY


def test_without_either_the_first_finished_tasks_tell() -> None:
    estimate = StageEstimate(TASKS, {"slots": 1})
    assert estimate.now == Estimate({"slots": 1}, None, {"slots": Source.SUBMITTER})
    assert estimate.now.source is Source.NONE
    changes = finish(estimate, *[8.0] * ENOUGH_TASKS, cpu=0.5)
    assert changes == [Change.NONE] * (ENOUGH_TASKS - 1) + [Change.ROSE]
    assert estimate.now.demand == {"slots": 1, "cpu": 0.5} and estimate.now.duration_s == 8
    assert estimate.now.source is estimate.now.sources["cpu"] is Source.FIRST_TASKS


@pytest.mark.parametrize(
    ("took_s", "change"),
    [(100.0, Change.ROSE), (10 * DIFFERS_BY, Change.NONE), (10 / DIFFERS_BY, Change.NONE), (1.0, Change.FELL)],
)
def test_a_stages_own_tasks_are_right_once_there_are_enough_that_differ(took_s: float, change: Change) -> None:
    estimate = StageEstimate(TASKS, {}, 10.0, HISTORY)
    assert finish(estimate, *[took_s] * ENOUGH_TASKS)[-1] is change
    assert estimate.now.duration_s == (10.0 if change is Change.NONE else took_s)


def test_of_a_small_stage_half_of_its_tasks_are_enough() -> None:
    estimate = StageEstimate(3, {}, 10.0)
    assert finish(estimate, 100.0, 100.0) == [Change.NONE, Change.ROSE]


def test_an_estimate_does_not_fall_while_more_tasks_run_than_have_finished() -> None:
    estimate = StageEstimate(TASKS, {}, 10.0)
    assert set(finish(estimate, *[1.0] * 20, running=21)) == {Change.NONE}
    assert finish(estimate, 1.0, running=21) == [Change.FELL]
    unknown = StageEstimate(TASKS, {})
    assert set(finish(unknown, *[1.0] * 20, running=21)) == {Change.NONE} and unknown.now.duration_s is None


def test_a_duration_falls_no_further_than_tasks_that_still_run_allow() -> None:
    estimate = StageEstimate(TASKS, {}, 100.0)
    assert set(finish(estimate, *[10.0] * 10, running=10, running_s=600.0)) == {Change.NONE}, "70 s is near enough"
    assert finish(estimate, 10.0, running=9, running_s=440.0) == [Change.FELL]
    assert estimate.now.duration_s == pytest.approx(10.0 + 440 / 11)


@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0])
def test_durations_that_differ_much_do_not_spoil_a_right_estimate(sigma: float) -> None:
    """500 tasks on 100 slots, with durations of a lognormal distribution: those that finish first take a tenth of its
    mean."""
    rng = random.Random(1)
    durations_s = [60 * rng.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(500)]
    estimate = StageEstimate(len(durations_s), {}, 60.0)
    running = [(duration_s, 0.0) for duration_s in durations_s[:100]]
    waiting = durations_s[100:]
    heapq.heapify(running)
    while running:
        now_s, start_s = heapq.heappop(running)
        if waiting:
            heapq.heappush(running, (now_s + waiting.pop(), now_s))
        running_s = sum(now_s - start_s for _, start_s in running)
        assert estimate.finished(now_s - start_s, {}, len(running), running_s) is Change.NONE
    assert estimate.now.source is Source.SUBMITTER


def test_an_estimate_rises_whatever_still_runs() -> None:
    assert finish(StageEstimate(TASKS, {}, 10.0), *[20.0] * ENOUGH_TASKS, running=90)[-1] is Change.ROSE


def test_a_duration_that_falls_and_a_demand_that_rises_are_a_rise() -> None:
    estimate = StageEstimate(TASKS, {}, 10.0, {"cpu": Figure(1, 1.0)})
    assert finish(estimate, *[1.0] * ENOUGH_TASKS, cpu=3.0)[-1] is Change.ROSE
    assert estimate.now.duration_s == 1 and estimate.now.demand == {"cpu": 3.0}


def test_a_remembered_demand_falls_and_a_stated_one_does_not() -> None:
    remembered = StageEstimate(TASKS, {}, 1.0, {"cpu": Figure(1, 4.0)})
    assert finish(remembered, *[1.0] * ENOUGH_TASKS, cpu=1.0)[-1] is Change.FELL
    assert remembered.now.demand == {"cpu": 1.0}
    stated = StageEstimate(TASKS, {"cpu": 4.0}, 1.0)
    assert finish(stated, *[1.0] * ENOUGH_TASKS, cpu=1.0)[-1] is Change.NONE
    assert stated.now.demand == {"cpu": 4.0}


@pytest.mark.parametrize(("stated_s", "planned_s"), [(0.0, DURATION_S_MIN), (1e9, DURATION_S_MAX)])
def test_whatever_is_stated_can_be_planned(stated_s: float, planned_s: float) -> None:
    now = StageEstimate(1, {"slots": 1}, stated_s).now
    assert now.duration_s == planned_s
    assert Dag([Group(1, (1.0,), now.duration_s)]).critical_path_s == planned_s


@given(DEMANDS, st.none() | SECONDS, HISTORIES, FINISHED)
def test_estimates_stay_near_what_tasks_show_and_never_below_what_is_stated(
    demand: dict[str, float],
    duration_s: float | None,
    history: Figures,
    finished: Finished,
) -> None:
    estimate = StageEstimate(10, demand, duration_s, history)
    for took_s, used, (running, running_s) in finished:
        before = estimate.now
        change = estimate.finished(took_s, used, running, running_s)
        now = estimate.now
        assert (change is Change.NONE) is (now == before)
        figures = {DURATION: now.duration_s, **now.demand}
        known = {DURATION: before.duration_s, **before.demand}
        before_it = {name: -1.0 if known.get(name) is None else known[name] for name in figures}
        rose = any(value is not None and value > before_it[name] for name, value in figures.items())
        assert (change is Change.ROSE) is rose
        assert all(now.demand[name] >= amount for name, amount in demand.items())
        if estimate.run.tasks < ENOUGH_TASKS:
            assert change is Change.NONE
            continue
        for name, (_, shown) in estimate.run.figures.items():
            thought, least = figures.get(name), demand.get(name, 0.0)
            assert thought is None or thought * DIFFERS_BY >= shown * (1 - 1e-9)
            if estimate.run.tasks >= running:
                most = max(shown, least) if name != DURATION else shown + running_s / estimate.run.tasks
                assert thought is not None and thought <= most * DIFFERS_BY * (1 + 1e-9)


@given(DEMANDS, st.none() | SECONDS, HISTORIES, FINISHED)
def test_equal_sequences_give_equal_estimates(
    demand: dict[str, float],
    duration_s: float | None,
    history: Figures,
    finished: Finished,
) -> None:
    one, other = (StageEstimate(10, dict(demand), duration_s, dict(history)) for _ in range(2))
    for took_s, used, running in finished:
        assert one.finished(took_s, used, *running) is other.finished(took_s, used, *running)
        assert one.now == other.now


@given(st.none() | SECONDS, HISTORIES, HISTORIES)
def test_more_evidence_never_makes_the_first_estimate_less(
    duration_s: float | None, history: Figures, other: Figures
) -> None:
    more = {name: Figure(1, value + other.get(name, Figure(1, 0.0)).value) for name, (_, value) in history.items()}
    less, most = (StageEstimate(1, {}, duration_s, figures).now for figures in (history, more))
    assert all(amount <= most.demand[name] for name, amount in less.demand.items())
    assert (less.duration_s or 0) <= (most.duration_s or 0)


# ---- estimates that are wrong on purpose -----------------------------------------------------

ESTIMATES = st.builds(
    Estimate, st.dictionaries(NAMES, AMOUNTS), st.none() | SECONDS, st.just({DURATION: Source.SUBMITTER})
)


@pytest.mark.parametrize(("wrong_by", "cpu", "duration_s"), [(0.5, 3.0, 20.0), (-0.5, 1.0, 60.0), (0.0, 2.0, 30.0)])
def test_demands_and_durations_are_misestimated_as_the_paper_says(
    wrong_by: float, cpu: float, duration_s: float
) -> None:
    seen = misestimated(Estimate({"cpu": 2.0}, 30.0, {}), wrong_by)
    assert seen.demand == {"cpu": cpu} and seen.duration_s == duration_s


@given(ESTIMATES)
def test_without_a_misestimation_nothing_changes(estimate: Estimate) -> None:
    assert misestimated(estimate, 0.0) == estimate


@given(ESTIMATES, MISESTIMATIONS)
def test_work_is_what_it_is(estimate: Estimate, wrong_by: float) -> None:
    seen = misestimated(estimate, wrong_by)
    assert seen.sources == estimate.sources and seen.demand.keys() == estimate.demand.keys()
    assert all(0 <= amount <= AMOUNT_MAX for amount in seen.demand.values())
    if estimate.duration_s is None:
        assert seen.duration_s is None
        return
    assert seen.duration_s is not None and DURATION_S_MIN <= seen.duration_s <= DURATION_S_MAX
    assume(seen.duration_s > DURATION_S_MIN)
    for name, amount in estimate.demand.items():
        assert seen.demand[name] * seen.duration_s == pytest.approx(amount * estimate.duration_s)


@pytest.mark.parametrize("wrong_by", [-1.0, -0.91, 9.1, math.nan, math.inf])
def test_a_misestimation_that_cannot_be_is_named(wrong_by: float) -> None:
    with pytest.raises(
        EstimateError, match=rf"^misestimation: {wrong_by} is not valid; allowed: a number from -0.9 to 9"
    ):
        misestimated(Estimate({}, None, {}), wrong_by)
