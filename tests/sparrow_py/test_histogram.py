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
    RoundTrips,
    TaskTimes,
    merged,
)

SECONDS = st.one_of(st.sampled_from(TASK_BOUNDS_S), st.floats(0, 1e4))
ODD = st.sampled_from([math.nan, math.inf, -math.inf, SECONDS_MAX, -1.0, -0.0])


def times_of(tasks: list[tuple[float, float]]) -> TaskTimes:
    """Of tasks of one app that waited and ran so long, of jobs j0, j1 and so on, at times 0, 1 and so on."""
    ended = EndedTasks()
    ended.pending += [("a", *task, f"j{number}", float(number)) for number, task in enumerate(tasks)]
    return ended.apps.get("a", TaskTimes(Histogram(TASK_BOUNDS_S), Histogram(TASK_BOUNDS_S)))


def check(histogram: Histogram, values: dict[int, float]) -> None:
    """It has counted these, by the number of their job."""
    assert sum(histogram.counts) == len(values)
    assert histogram.sum_s == pytest.approx(sum(values.values()))
    for number, bound in enumerate(TASK_BOUNDS_S):
        assert sum(histogram.counts[: number + 1]) == sum(value <= bound for value in values.values())
    for number, example in enumerate(histogram.examples):
        below, above = (-1.0, *TASK_BOUNDS_S)[number], (*TASK_BOUNDS_S, math.inf)[number]
        here = [(f"j{at}", value, at) for at, value in values.items() if below < value <= above]
        assert example == (here[-1] if here else None)


@given(st.lists(st.tuples(SECONDS, SECONDS)))
def test_each_task_is_in_the_buckets_that_hold_what_it_took(tasks: list[tuple[float, float]]) -> None:
    times = times_of(tasks)
    check(times.wait, dict(enumerate(wait_s for wait_s, _ in tasks)))
    check(times.service, dict(enumerate(service_s for _, service_s in tasks)))


@given(st.lists(st.tuples(st.one_of(SECONDS, ODD), st.one_of(SECONDS, ODD))))
def test_what_is_no_time_is_not_counted_and_spoils_nothing(tasks: list[tuple[float, float]]) -> None:
    """A wait that is negative, of clocks that differ, is none."""
    counted = {
        number: (max(wait_s, 0.0), service_s)
        for number, (wait_s, service_s) in enumerate(tasks)
        if wait_s < SECONDS_MAX and 0.0 <= service_s < SECONDS_MAX
    }
    times = times_of(tasks)
    check(times.wait, {number: wait_s for number, (wait_s, _) in counted.items()})
    check(times.service, {number: service_s for number, (_, service_s) in counted.items()})


@given(st.lists(st.one_of(SECONDS, ODD)))
def test_round_trips_are_counted_that_are_times(trips: list[float]) -> None:
    counted = RoundTrips()
    counted.pending += [("a", seconds, "j", 1.0) for seconds in trips]
    found = counted.apps.get("a", Histogram(ROUND_TRIP_BOUNDS_S))
    are_times = [seconds for seconds in trips if 0.0 <= seconds < SECONDS_MAX]
    assert (sum(found.counts), found.sum_s) == (len(are_times), pytest.approx(sum(are_times)))


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
    trips = RoundTrips()
    for number in range(APPS_MAX + 3):
        trips.pending.append((f"app{number}", 1.0, "j", 1.0))
        trips.count()
    assert len(trips.apps) == APPS_MAX + 1
    assert sum(trips.apps[OTHER].counts) == 3
    assert sum(trips.apps["app0"].counts) == 1


def test_an_app_that_is_called_like_the_others_is_one_of_them() -> None:
    times = ByApp(list[float])
    for name in (OTHER, *map(str, range(APPS_MAX + 1))):
        times.of(name)
    assert len(times.apps) == APPS_MAX + 1


def test_several_are_counted_together_with_the_latest_of_their_examples() -> None:
    first, second = RoundTrips(), RoundTrips()
    first.pending.append(("a", 0.001, "early", 1.0))
    second.pending += [("a", 0.001, "late", 2.0), ("a", 9.0, "slow", 3.0), ("b", 0.2, "b", 4.0)]
    together = merged([first, second])
    assert sorted(together) == ["a", "b"]
    one = together["a"]
    assert one.counts[ROUND_TRIP_BOUNDS_S.index(0.001)] == 2 and one.counts[-1] == 1 and sum(one.counts) == 3
    assert one.sum_s == pytest.approx(9.002)
    assert one.examples[ROUND_TRIP_BOUNDS_S.index(0.001)] == Example("late", 0.001, 2.0)
    assert first.apps["a"].counts[ROUND_TRIP_BOUNDS_S.index(0.001)] == 1
