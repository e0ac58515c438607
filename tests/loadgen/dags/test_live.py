"""TPC-H's queries as jobs for a live cluster: how many tasks, how long these sleep, how many jobs arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.dags.live import LiveDags
from loadgen.dags.tpch_jobs import TpchJobs
from loadgen.jobs import WorkloadJob
from sparrow_py.errors import InvalidOption

QUERIES = TpchJobs(scales=(30.0, 300.0))
KINDS = len(QUERIES.profile.queries) * len(QUERIES.scales)


def jobs_of(nodes: int, slots: int, **fields: float) -> list[WorkloadJob]:
    """Each query at each scale once."""
    workload = LiveDags(**{"load": 0.5, "jobs": KINDS, "queries": QUERIES, **fields})  # type: ignore[arg-type]
    return list(workload.generate(1, nodes, slots))


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.01, 10.0))
def test_no_stage_is_wider_than_the_cluster_and_no_task_shorter_than_was_asked_for(
    nodes: int, slots: int, task_min_s: float
) -> None:
    jobs = jobs_of(nodes, slots, task_min_s=task_min_s)
    assert all(1 <= stage.tasks <= nodes * slots for job in jobs for stage in job.stages)
    assert min(min(job.durations_s) for job in jobs) >= task_min_s * (1 - 1e-3)
    assert min(min(job.durations_s) for job in jobs) <= task_min_s * 1.01, "as short as may be"


def test_a_cluster_that_is_wide_enough_gets_queries_as_they_are() -> None:
    jobs = jobs_of(1000, 100, task_min_s=1.0)
    for job, dag in zip(jobs, QUERIES.generate(1, [0.0] * KINDS), strict=True):
        assert [stage.tasks for stage in job.stages] == [stage.tasks for stage in dag.stages]
        assert [stage.expected_s for stage in job.stages] == [stage.duration_s for stage in dag.stages]
        after = [tuple(job.stages[parent].name for parent in stage.parents) for stage in dag.stages]
        assert [stage.after for stage in job.stages] == after
        assert job.label == dag.label.split()[0]


def test_tasks_sleep_for_what_their_stage_is_said_to_take() -> None:
    for job in jobs_of(20, 5):
        for stage, own in job.ranges():
            assert set(job.durations_s[own.start : own.stop]) == {stage.expected_s}


def test_queries_bring_the_load_that_is_said() -> None:
    work_s = [sum(job.durations_s) for job in jobs_of(20, 5)]
    workload = LiveDags(load=0.7, jobs=1, queries=QUERIES)
    assert workload.jobs_per_s(100) * sum(work_s) / len(work_s) == pytest.approx(0.7 * 100)


def test_what_cannot_be_is_refused_by_its_name() -> None:
    for fields in ({"load": 0.0}, {"load": 1e9}, {"task_min_s": 0.0}, {"task_min_s": float("nan")}):
        with pytest.raises(InvalidOption, match=f"^{next(iter(fields))}: "):
            jobs_of(2, 2, **fields)
