"""Made-up workloads: the figures of the paper's tables, and jobs that can be."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.dags.arriving import as_poisson, at_once
from loadgen.dags.dag_figures import WITHIN, DagFigures, beside_paper, figures
from loadgen.dags.dag_files import as_line
from loadgen.dags.generators import DURATION_S_MAX, TASKS_MAX, WORKLOADS
from loadgen.dags.map_reduce import PAPER_JOBS, PAPER_TASKS, MapReduceMix
from loadgen.dags.resources import TASK_SHARE_MAX, shares
from sparrow_py.errors import InvalidOption
from tests.support.suites import rest_after

MAP_REDUCE = MapReduceMix()
ALL = {**WORKLOADS, "map-reduce": MAP_REDUCE}


@cache
def found_in(name: str) -> DagFigures:
    return figures(list(WORKLOADS[name].generate(1, as_poisson(1, 2000))))


@pytest.mark.parametrize("name", rest_after(len(WORKLOADS) - 1, *sorted(WORKLOADS, key="production".__eq__)))
def test_figures_are_within_15_percent_of_the_papers(name: str) -> None:
    found = found_in(name)
    for what, ours, theirs in beside_paper(found, name):
        assert theirs is not None
        assert ours == pytest.approx(theirs, rel=WITHIN), what


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.rest
def test_a_job_each_20_seconds_keeps_100_machines_busy(name: str) -> None:
    """And no resource is demanded in vain by all: each is what some tasks demand most of."""
    found = found_in(name)
    assert found.load is not None
    assert 0.6 < max(found.load.values()) < 1.0
    assert min(found.dominant.values()) > 0.01


def test_map_reduce_jobs_are_as_many_tasks_as_in_the_papers_trace() -> None:
    jobs = list(MAP_REDUCE.generate(1, at_once(2000)))
    assert sum(job.tasks for job in jobs) / len(jobs) == pytest.approx(PAPER_TASKS / PAPER_JOBS, rel=0.15)
    assert {len(job.stages) for job in jobs} == {1, 2}
    maps = sum(len(job.stages) == 1 for job in jobs if job.tasks > 1) / sum(job.tasks > 1 for job in jobs)
    assert maps == pytest.approx(MAP_REDUCE.map_only, abs=0.05)


@settings(max_examples=40)
@given(st.sampled_from(sorted(ALL)), st.integers(0, 2**32), st.integers(1, 12))
def test_jobs_can_be_and_are_bounded(name: str, seed: int, count: int) -> None:
    """`DagJob` itself refuses circles, and amounts that cannot be."""
    times = as_poisson(seed, count)
    jobs = list(ALL[name].generate(seed, times))
    assert [job.arrival_s for job in jobs] == times
    for job in jobs:
        assert job.tasks <= TASKS_MAX + len(job.stages)
        for stage in job.stages:
            assert max(shares(stage.demand)) <= TASK_SHARE_MAX
            assert stage.demand["cpu"] > 0


@pytest.mark.parametrize("name", ALL)
def test_equal_seeds_give_equal_bytes(name: str) -> None:
    def lines(seed: int) -> list[bytes]:
        return [as_line(job) for job in ALL[name].generate(seed, as_poisson(seed, 20))]

    assert lines(3) == lines(3)
    assert lines(3) != lines(4)


def test_tasks_last_some_seconds_a_few_much_longer() -> None:
    found = found_in("tpcds")
    assert 3 < found.duration_s.p50 < 20
    assert 2 < found.duration_s.p95 / found.duration_s.p50 < 10
    assert found.duration_s.p95 <= DURATION_S_MAX
    assert 60 < found.critical_path_s.p50 < 300


@pytest.mark.parametrize("count", [0, 1_000_001])
def test_numbers_of_jobs_that_cannot_be_are_refused(count: int) -> None:
    with pytest.raises(InvalidOption, match="jobs"):
        list(WORKLOADS["tpcds"].generate(1, range(count)))
    with pytest.raises(InvalidOption, match="jobs"):
        list(MAP_REDUCE.generate(1, range(count)))


def test_a_mix_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidOption, match="map_only"):
        MapReduceMix(map_only=1.5)
