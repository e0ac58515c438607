"""Synthetic workloads: their jobs and their load, which depend on the seed and the workload alone."""

import itertools
import math
import statistics
from typing import Any

import pytest

from loadgen.durations import Durations
from loadgen.jobs import WorkloadJob
from loadgen.synthetic import Synthetic
from sparrow_py.errors import InvalidOption
from tests.support.hash_seeds import outputs

Z = 3.9
"""Normal quantile of a two-sided confidence of 99.99 %."""
EVERYTHING = Synthetic(
    tasks=3, jobs=50, load=0.5, users=("ann", "bob", "cy"), constrained=0.5, zones=4, large=0.2, large_tasks=9
)
PRINT_EVERYTHING = """
from tests.loadgen.test_synthetic import EVERYTHING
for job in EVERYTHING.generate(7, 20, 2): print(job)
"""


def jobs_of(workload: Synthetic, seed: int = 1, nodes: int = 100, slots: int = 1) -> list[WorkloadJob]:
    return list(workload.generate(seed, nodes, slots))


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    (output,) = outputs(PRINT_EVERYTHING)
    assert output.count(b"WorkloadJob") == EVERYTHING.jobs


def test_another_seed_is_another_workload() -> None:
    assert jobs_of(EVERYTHING, seed=1) != jobs_of(EVERYTHING, seed=2)


def test_arrivals_are_poisson() -> None:
    """Gaps have the rate that makes the load, their mean equals their deviation, and they are independent."""
    jobs = jobs_of(Synthetic(tasks=5, load=0.6, jobs=10_000), nodes=50, slots=4)
    times = [0.0, *(job.arrival_s for job in jobs)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    expected = 5 * 0.1 / (0.6 * 200)
    error = expected / math.sqrt(len(gaps))
    assert abs(statistics.fmean(gaps) - expected) < Z * error
    # The deviation of an exponential sample's deviation is about √2 that of its mean.
    assert abs(statistics.stdev(gaps) - expected) < Z * math.sqrt(2) * error
    assert abs(statistics.correlation(gaps[:-1], gaps[1:])) < Z / math.sqrt(len(gaps))


@pytest.mark.parametrize("large", [0.0, 0.1])
def test_the_work_that_arrives_makes_the_load(large: float) -> None:
    workload = Synthetic(
        tasks=10, large=large, large_tasks=100, load=0.8, jobs=10_000, durations=Durations("constant", mean_ms=20.0)
    )
    jobs = jobs_of(workload)
    load = sum(sum(job.durations_s) for job in jobs) / (jobs[-1].arrival_s * 100)
    assert load == pytest.approx(0.8, rel=0.07)


def test_two_sizes_of_jobs_in_the_share_that_was_asked_for() -> None:
    jobs = jobs_of(Synthetic(tasks=2, large=0.1, large_tasks=20, jobs=10_000))
    sizes = [len(job.durations_s) for job in jobs]
    assert set(sizes) == {2, 20}
    assert abs(sizes.count(20) / 10_000 - 0.1) < Z * math.sqrt(0.1 * 0.9 / 10_000)


def test_users_and_zones_are_all_alike() -> None:
    jobs = jobs_of(Synthetic(tasks=1, jobs=6000, users=("ann", "bob", "cy"), zones=4))
    for of, count in (([job.user for job in jobs], 3), ([job.where[0] for job in jobs], 4)):
        assert len(set(of)) == count
        for one in set(of):
            share = of.count(one) / len(jobs)
            assert abs(share - 1 / count) < Z * math.sqrt(1 / count / len(jobs))


def test_constrained_jobs_name_distinct_nodes_for_each_task() -> None:
    jobs = jobs_of(Synthetic(tasks=3, jobs=1000, constrained=0.5, replicas=3), nodes=10)
    constrained = [job for job in jobs if job.preferred]
    assert 400 < len(constrained) < 600
    for job in constrained:
        assert len(job.preferred) == 3
        assert all(len(set(nodes)) == 3 and set(nodes) <= set(range(10)) for nodes in job.preferred)


def test_replicas_are_no_more_than_nodes() -> None:
    (job,) = jobs_of(Synthetic(tasks=1, jobs=1, constrained=1.0, replicas=5), nodes=2)
    assert sorted(job.preferred[0]) == [0, 1]


def test_arrivals_do_not_depend_on_durations_users_or_places() -> None:
    """Each of these has a generator of its own, so that workloads that differ in one setting have the same arrivals."""
    plain = [job.arrival_s for job in jobs_of(Synthetic(tasks=3, jobs=50))]
    others: list[dict[str, Any]] = [
        {"durations": Durations("pareto")}, {"constrained": 0.5}, {"zones": 3}, {"state_duration": True}
    ]  # fmt: skip
    for change in others:
        assert [job.arrival_s for job in jobs_of(Synthetic(tasks=3, jobs=50, **change))] == plain


def test_a_stated_duration_is_the_mean_of_the_job_s_tasks() -> None:
    for job in jobs_of(Synthetic(tasks=4, jobs=10, state_duration=True)):
        assert job.mean_s == pytest.approx(statistics.fmean(job.durations_s))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tasks", 0), ("large_tasks", 0), ("jobs", 0), ("load", 0), ("load", 1), ("load", math.nan), ("users", ()),
        ("constrained", 1.1), ("constrained", math.nan), ("large", -0.1), ("replicas", 0), ("zones", -1),
    ],
)  # fmt: skip
def test_invalid_fields_are_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=name):
        Synthetic(**{name: value})
