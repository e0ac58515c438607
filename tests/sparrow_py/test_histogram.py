"""Histograms of seconds count each value once, in the bucket that it is in, and have rows for so many apps only."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.timing.histogram import (
    APPS_MAX,
    OTHER,
    ROUND_TRIP_BOUNDS_S,
    SECONDS_MAX,
    TASK_BOUNDS_S,
    ByApp,
    EndedTasks,
    Example,
    Histogram,
    TaskTimes,
    merged,
    round_trips,
)

SECONDS = st.one_of(st.sampled_from(TASK_BOUNDS_S), st.floats(0, 1e4))


@given(st.lists(st.tuples(SECONDS, SECONDS)))
def test_each_task_is_in_the_buckets_that_hold_what_it_took(tasks: list[tuple[float, float]]) -> None:
    times = TaskTimes()
    for number, (wait_s, service_s) in enumerate(tasks):
        times.add(wait_s, service_s, f"j{number}", float(number))
    for histogram, values in ((times.wait, [one for one, _ in tasks]), (times.service, [one for _, one in tasks])):
        assert sum(histogram.counts) == len(tasks)
        assert histogram.sum_s == pytest.approx(sum(values))
        for number, bound in enumerate(TASK_BOUNDS_S):
            assert sum(histogram.counts[: number + 1]) == sum(value <= bound for value in values)
        for number, example in enumerate(histogram.examples):
            below, above = (-1.0, *TASK_BOUNDS_S)[number], (*TASK_BOUNDS_S, math.inf)[number]
            here = [(f"j{at}", value, at) for at, value in enumerate(values) if below < value <= above]
            assert example == (here[-1] if here else None)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, SECONDS_MAX])
def test_what_is_no_time_does_not_spoil_the_sums(seconds: float) -> None:
    times, histogram = TaskTimes(), Histogram(TASK_BOUNDS_S)
    times.add(seconds, 1.0, "j", 1.0)
    times.add(1.0, seconds, "j", 1.0)
    times.add(1.0, -1.0, "j", 1.0)
    histogram.add(seconds, "j", 1.0)
    assert sum(times.wait.counts) == sum(times.service.counts) == sum(histogram.counts) == 0
    assert times.wait.sum_s == times.service.sum_s == histogram.sum_s == 0


def test_a_start_before_its_reservation_by_clocks_that_differ_is_no_wait() -> None:
    times = TaskTimes()
    times.add(-0.5, 1.0, "j", 1.0)
    assert (times.wait.counts[0], times.wait.sum_s) == (1, 0.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), SECONDS)))
def test_tasks_that_are_counted_together_are_each_of_their_app(tasks: list[tuple[str, float]]) -> None:
    ended = EndedTasks()
    for app, seconds in tasks:
        ended.pending.append((app, seconds, 0.5, "j", 1.0))
    found = ended.apps
    assert not ended.pending and found is ended.apps
    for app in "ab":
        waits = [seconds for one, seconds in tasks if one == app]
        assert (app in found) == bool(waits)
        if waits:
            assert sum(found[app].wait.counts) == sum(found[app].service.counts) == len(waits)
            assert found[app].wait.sum_s == pytest.approx(sum(waits))


def test_apps_beyond_so_many_share_a_row() -> None:
    times = ByApp(TaskTimes)
    for number in range(APPS_MAX + 3):
        times.of(f"app{number}").add(1.0, 1.0, "j", 1.0)
    assert len(times.apps) == APPS_MAX + 1
    assert sum(times.apps[OTHER].wait.counts) == 3
    assert times.of("app0") is times.apps["app0"]


def test_an_app_that_is_called_like_the_others_is_one_of_them() -> None:
    times = ByApp(TaskTimes)
    for name in (OTHER, *map(str, range(APPS_MAX + 1))):
        times.of(name)
    assert len(times.apps) == APPS_MAX + 1


def test_several_are_counted_together_with_the_latest_of_their_examples() -> None:
    first, second = round_trips(), round_trips()
    first.of("a").add(0.001, "early", 1.0)
    second.of("a").add(0.001, "late", 2.0)
    second.of("a").add(9.0, "slow", 3.0)
    second.of("b").add(0.2, "b", 4.0)
    together = merged([first, second]).apps
    assert sorted(together) == ["a", "b"]
    one = together["a"]
    assert one.counts[ROUND_TRIP_BOUNDS_S.index(0.001)] == 2 and one.counts[-1] == 1 and sum(one.counts) == 3
    assert one.sum_s == pytest.approx(9.002)
    assert one.examples[ROUND_TRIP_BOUNDS_S.index(0.001)] == Example("late", 0.001, 2.0)
    assert first.apps["a"].counts[ROUND_TRIP_BOUNDS_S.index(0.001)] == 1
