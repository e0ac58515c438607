"""What finished tasks have shown: means, what tasks came up to, and runs that follow each other."""

from __future__ import annotations

import functools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.altruistic.durations import DURATION_S_MAX, DURATION_S_MIN
from scheduler.altruistic.runs import (
    AMOUNT_MAX,
    DURATION,
    KEPT,
    PEAK_KEPT,
    RESOURCES_MAX,
    Figure,
    Figures,
    Run,
    followed,
)

SECONDS = st.floats(DURATION_S_MIN, 1e6)
AMOUNTS = st.floats(0, 1e12)
TASKS = st.lists(st.tuples(SECONDS, AMOUNTS), min_size=1, max_size=8)
"""How long each took, and what it used of each resource."""
RUNS = st.lists(TASKS, min_size=1, max_size=5)
NAMES = (DURATION, "cpu", "memory_bytes")


def run_of(tasks: list[tuple[float, float]]) -> Run:
    run = Run()
    for duration_s, amount in tasks:
        run.finished(duration_s, {"cpu": amount, "memory_bytes": amount})
    return run


def figures_of(runs: list[list[tuple[float, float]]]) -> Figures:
    return functools.reduce(followed, (run_of(tasks).as_one() for tasks in runs))


def about(figures: Figures) -> dict[str, tuple[int, object]]:
    return {name: (samples, pytest.approx(value)) for name, (samples, value) in figures.items()}


def test_a_run_has_means_of_durations_and_cpus_and_the_most_memory() -> None:
    run = run_of([(1.0, 4.0), (2.0, 2.0), (6.0, 3.0)])
    assert run.tasks == 3
    assert run.figures == about({DURATION: Figure(3, 3.0), "cpu": Figure(3, 3.0), "memory_bytes": Figure(3, 4.0)})
    assert run.as_one() == about({DURATION: Figure(1, 3.0), "cpu": Figure(1, 3.0), "memory_bytes": Figure(1, 4.0)})


def test_later_runs_count_more_and_what_runs_came_up_to_fades() -> None:
    figures = figures_of([[(10.0, 10.0)], [(20.0, 5.0)]])
    assert figures[DURATION] == (2, pytest.approx((KEPT * 10 + 20) / (KEPT + 1)))
    assert figures["memory_bytes"] == (2, pytest.approx(PEAK_KEPT * 10))
    assert figures_of([[(10.0, 5.0)], [(20.0, 10.0)]])["memory_bytes"] == (2, 10.0)


def test_runs_count_alike_however_many_tasks_they_have() -> None:
    assert figures_of([[(10.0, 1.0)] * 7, [(20.0, 2.0)]]) == about(figures_of([[(10.0, 1.0)], [(20.0, 2.0)]]))


def test_what_was_not_measured_in_a_run_does_not_fade() -> None:
    measured = run_of([(1.0, 8.0)]).as_one()
    without = Run()
    without.finished(1.0, {"cpu": None})
    assert followed(measured, without.as_one())["memory_bytes"] == (1, 8.0)


@pytest.mark.parametrize("amount", [None, -1.0, math.nan, math.inf])
def test_what_is_no_amount_is_not_known(amount: float | None) -> None:
    run = Run()
    run.finished(1.0, {"cpu": amount})
    assert run.figures == {DURATION: (1, 1.0)}


@pytest.mark.parametrize("duration_s", [-1.0, math.nan, math.inf])
def test_a_task_without_a_duration_shows_nothing(duration_s: float) -> None:
    run = Run()
    run.finished(duration_s, {"cpu": 1.0})
    assert run.tasks == 0 and run.figures == {}


def test_figures_are_bounded() -> None:
    run = Run()
    run.finished(0.0, {"cpu": 1e300, DURATION: 5.0})
    run.finished(1e300, {f"resource{number}": 1.0 for number in range(100)})
    assert run.figures["cpu"] == (1, AMOUNT_MAX)
    assert run.figures[DURATION] == (2, pytest.approx((DURATION_S_MIN + DURATION_S_MAX) / 2))
    assert len(run.figures) == RESOURCES_MAX + 1


@given(RUNS)
def test_means_lie_among_what_was_measured_and_no_peak_above(runs: list[list[tuple[float, float]]]) -> None:
    figures = figures_of(runs)
    durations, amounts = zip(*(task for tasks in runs for task in tasks), strict=True)
    for name, values in zip(NAMES, (durations, amounts, amounts), strict=True):
        lowest = min(values) if name != "memory_bytes" else max(run[1] for run in runs[-1])
        assert lowest * (1 - 1e-9) <= figures[name].value <= max(values) * (1 + 1e-9)
        assert figures[name].samples == len(runs)


@given(st.tuples(SECONDS, AMOUNTS), st.integers(1, 9), st.integers(1, 9))
def test_runs_that_are_all_the_same_have_just_their_figures(task: tuple[float, float], tasks: int, runs: int) -> None:
    figures = figures_of([[task] * tasks] * runs)
    assert figures[DURATION].value == task[0]
    assert figures["cpu"].value == figures["memory_bytes"].value == task[1]


@given(RUNS, RUNS, RUNS)
def test_runs_may_be_put_together_in_any_grouping(
    a: list[list[tuple[float, float]]], b: list[list[tuple[float, float]]], c: list[list[tuple[float, float]]]
) -> None:
    first, then, last = figures_of(a), figures_of(b), figures_of(c)
    whole = about(figures_of([*a, *b, *c]))
    assert followed(followed(first, then), last) == whole == followed(first, followed(then, last))


@given(RUNS, st.data())
def test_tasks_that_take_more_show_no_less(runs: list[list[tuple[float, float]]], data: st.DataObject) -> None:
    more = [[(s + data.draw(SECONDS), amount + data.draw(AMOUNTS)) for s, amount in tasks] for tasks in runs]
    less, most = figures_of(runs), figures_of(more)
    assert all(less[name].value <= most[name].value * (1 + 1e-9) for name in NAMES)
