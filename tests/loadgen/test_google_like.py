"""The made-up Google workload has the statistics that are published of the real one, at a fixed seed."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.google_like import GoogleLike, Running, event_times_s, events_in_windows
from sparrow_py.errors import InvalidOption

HOURS = 6
WORKLOAD = GoogleLike(seconds=HOURS * 3600.0)


@pytest.fixture(scope="module")
def running() -> Running:
    return WORKLOAD.running(1)


def test_what_runs_at_the_beginning(running: Running) -> None:
    sizes = np.bincount(running.job)
    assert (len(running.job), len(sizes)) == (135_000, 1_800)
    assert np.mean(sizes > 1_000) == pytest.approx(0.012, abs=0.003)
    assert sizes.max() > 20_000
    is_batch = np.isfinite(running.left_s)
    assert np.mean(is_batch) == pytest.approx(0.26, abs=0.01)
    assert all(len(set(is_batch[running.job == job])) == 1 for job in range(0, 1_800, 100))


def test_durations_and_sizes_of_batch_jobs() -> None:
    """Published: half of the tasks below 7 minutes, 90 % below an hour, 99 % below 5 hours; 1.2 % of jobs above 1,000
    tasks, some above 20,000."""
    arrivals = WORKLOAD.arrivals(1)
    assert np.percentile(arrivals.duration_s, 50) == pytest.approx(420, rel=0.2)
    assert np.percentile(arrivals.duration_s, 90) == pytest.approx(3_600, rel=0.2)
    assert np.percentile(arrivals.duration_s, 99) == pytest.approx(18_300, rel=0.25)
    sizes = np.bincount(arrivals.job)
    assert np.mean(sizes > 1_000) == pytest.approx(0.012, abs=0.002)
    assert sizes.max() > 20_000
    assert np.all(np.diff(arrivals.at_s) >= 0)


def test_events_in_windows_are_as_published() -> None:
    """Figure 5.9."""
    times_s = event_times_s(WORKLOAD, 1)
    short = events_in_windows(times_s, 0.5, WORKLOAD.seconds)
    assert 0.6 <= np.mean(short < 10) <= 0.75
    assert np.mean(short < 100) == pytest.approx(0.95, abs=0.015)
    long = events_in_windows(times_s, 20, WORKLOAD.seconds)
    assert 500 <= np.median(long) <= 600
    assert np.percentile(long, 95) == pytest.approx(5_000, rel=0.2)


def test_as_many_end_as_come(running: Running) -> None:
    """The tasks that run at the beginning end at the rate at which others come: nothing settles first."""
    ends = np.sort(running.left_s)
    in_first_minutes = int(np.searchsorted(ends, 600.0))
    assert in_first_minutes == pytest.approx(600 * WORKLOAD.tasks_per_s, rel=0.4)


def test_equal_seeds_are_equal_and_others_differ() -> None:
    one, same, other = (GoogleLike(machines=500, seconds=600).arrivals(seed) for seed in (1, 1, 2))
    assert one.at_s.tobytes() == same.at_s.tobytes() and one.duration_s.tobytes() == same.duration_s.tobytes()
    assert one.at_s.tobytes() != other.at_s.tobytes()


def test_a_smaller_cluster_has_smaller_jobs() -> None:
    workload = GoogleLike(machines=100, seconds=3600)
    running = workload.running(1)
    assert len(running.job) == 1_800  # One task each, as there are so many jobs.
    assert np.bincount(workload.arrivals(1).job).max() <= 320
    assert len(GoogleLike(machines=100, jobs_running=50).running(1).job) == 1_080


def test_accelerated_tasks_are_shorter_and_more() -> None:
    """Services stay; figure 6.5."""
    plain, fast = GoogleLike(machines=500, seconds=3600), GoogleLike(machines=500, seconds=3600, speedup=300)
    assert fast.tasks_per_s == pytest.approx(300 * plain.tasks_per_s)
    assert np.median(GoogleLike(machines=500, seconds=600, speedup=300).arrivals(1).duration_s) == pytest.approx(
        1.4, rel=0.2
    )
    assert np.isinf(fast.running(1).left_s).sum() == np.isinf(plain.running(1).left_s).sum()


def test_as_jobs_with_all_tasks_at_once() -> None:
    workload = GoogleLike(machines=500, seconds=600)
    jobs = list(workload.generate(1, 500, 12))
    assert sum(len(job.durations_s) for job in jobs) == len(workload.arrivals(1).job)
    assert [job.arrival_s for job in jobs] == sorted(job.arrival_s for job in jobs)


@pytest.mark.parametrize(
    "field, value",
    [("machines", 0), ("speedup", 0.0), ("seconds", -1.0), ("batch_share", 1.5), ("jobs_running", 0)],
)
def test_bad_values_are_named(field: str, value: float) -> None:
    with pytest.raises(InvalidOption, match=f"^{field}: "):
        GoogleLike(**{field: value})  # type: ignore[arg-type]


def test_too_many_tasks_are_refused() -> None:
    with pytest.raises(InvalidOption, match=r"^seconds: "):
        GoogleLike(seconds=1e6, speedup=300)
    with pytest.raises(InvalidOption, match="at least one window of 20 s"):
        events_in_windows(np.zeros(1), 20, 1.0)
