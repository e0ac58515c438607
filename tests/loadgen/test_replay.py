"""Open-loop replay under a clock of the test's own: the times of submission, and the record of every outcome."""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadgen.jobs import WorkloadJob, WorkloadStage
from loadgen.lateness import LATE_MAX_S, LATE_MAX_SHARE, WAITED_MAX_SHARE, lateness, why_starved, why_too_late
from loadgen.replay import Plan, Replay
from loadgen.traces import parse_lines
from sparrow_py.errors import InvalidRequest, Refused
from sparrow_py.job import JobSpec, TaskSpec, TaskStatus
from sparrow_py.wire import messages as m

PLAN = Plan("run", "sleep", 2.0, ("node-a", "node-b", "node-c"), wait_max_s=0.0)
START_S = 1000.0


class Time:
    """A clock that advances only when the replay sleeps, and by `slow_s` at each submission."""

    def __init__(self, slow_s: float = 0.0, oversleep_s: float = 0.0) -> None:
        self.now_s = START_S
        self.slow_s = slow_s
        self.oversleep_s = oversleep_s

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds + (self.oversleep_s if seconds else 0.0)


class Cluster:
    """A submitter that calls `ends` with each job at once, which finishes the job, refuses it, or does nothing."""

    def __init__(self, time: Time, ends: Callable[[JobSpec, Any], None]) -> None:
        self.time = time
        self.ends = ends
        self.submitted: list[tuple[float, JobSpec]] = []
        self.cancelled: list[str] = []
        self.sinks: dict[str, Any] = {}

    def submit(self, spec: JobSpec, sink: Any) -> None:
        self.submitted.append((self.time.now_s, spec))
        self.time.now_s += self.time.slow_s
        self.sinks[spec.job_id] = sink
        sink.begin(spec, fetch=None)
        self.ends(spec, sink)

    def cancel_job(self, job_id: str, *, running: bool = False) -> None:
        assert running
        self.cancelled.append(job_id)
        self.sinks[job_id].outcome(outcome(0, TaskStatus.CANCELLED))
        self.sinks[job_id].ended()


def outcome(
    task: int, status: TaskStatus = TaskStatus.FINISHED, at_s: float = START_S, took_s: float = 0.5
) -> m.Outcome:
    ran = status in (TaskStatus.FINISHED, TaskStatus.FAILED)
    started_at_s, service_s = (at_s, took_s) if ran else (None, None)
    return m.Outcome(
        "job", task, status, b"", "" if ran else "why", 1, "node-a", at_s, started_at_s, service_s
    )  # fmt: skip


def finished(spec: JobSpec, sink: Any) -> None:
    for task in range(sum(len(stage.tasks) for stage in spec.as_stages())):
        sink.outcome(outcome(task))
    sink.ended()


def nothing(spec: JobSpec, sink: Any) -> None:
    """Do nothing: the job runs for ever."""


def jobs(*arrivals_s: float) -> list[WorkloadJob]:
    return [WorkloadJob(number, at_s, "ann", array("d", [0.5])) for number, at_s in enumerate(arrivals_s)]


async def replayed(cluster: Cluster, workload: Sequence[WorkloadJob], time: Time, plan: Plan = PLAN) -> Replay:
    replay = Replay(workload, dict.fromkeys({job.user for job in workload}, cluster), plan, time, time.sleep)
    await replay.run(START_S)
    assert [record.number for record in replay.records] == [job.number for job in workload], "nothing is lost"
    assert all(record.over or record.status == "lost" for record in replay.records)
    return replay


async def test_jobs_are_submitted_when_they_are_due() -> None:
    time = Time()
    cluster = Cluster(time, finished)
    replay = await replayed(cluster, jobs(0.0, 0.25, 2.0), time)
    assert [at_s for at_s, _ in cluster.submitted] == [START_S, START_S + 0.25, START_S + 2.0]
    assert [record.submitted_s - record.due_s for record in replay.records] == [0.0, 0.0, 0.0]


async def test_jobs_do_not_wait_for_earlier_ones_to_end() -> None:
    time = Time()
    cluster = Cluster(time, nothing)
    await replayed(cluster, jobs(*(0.1 * number for number in range(20))), time)
    assert len(cluster.submitted) == 20


async def test_a_late_generator_records_its_lateness_and_catches_up() -> None:
    """Each submission takes 0.3 s; jobs come each 0.1 s, then there is a pause."""
    time = Time(slow_s=0.3)
    replay = await replayed(Cluster(time, finished), jobs(0.0, 0.1, 0.2, 5.0), time)
    late_s = [record.submitted_s - record.due_s for record in replay.records]
    assert late_s == pytest.approx([0.0, 0.2, 0.4, 0.0])
    assert replay.progress().late_max_s == pytest.approx(0.4)


async def test_a_response_counts_from_when_the_job_was_due() -> None:
    time = Time(oversleep_s=0.2)
    replay = await replayed(Cluster(time, lambda spec, sink: _end_at(sink, time.now_s)), jobs(1.0), time)
    (record,) = replay.records
    assert record.ended_s - record.due_s == pytest.approx(0.2 + 0.5)


def _end_at(sink: Any, at_s: float) -> None:
    sink.outcome(outcome(0, at_s=at_s))
    sink.ended()


async def test_refused_jobs_are_recorded() -> None:
    time = Time()
    replay = await replayed(Cluster(time, lambda _, sink: sink.refused(Refused("full"))), jobs(0.0, 1.0), time)
    assert [(record.status, record.error) for record in replay.records] == [("refused", "full")] * 2
    assert (replay.progress().refused, replay.progress().tasks_under_way) == (2, 0)


async def test_a_job_that_cannot_be_submitted_is_recorded_as_refused() -> None:
    def refuse(spec: JobSpec, sink: Any) -> None:
        raise InvalidRequest("where", "gpu", "a constraint")

    time = Time()
    replay = await replayed(Cluster(time, refuse), jobs(0.0), time)
    assert replay.records[0].status == "refused"
    assert "gpu" in replay.records[0].error


@pytest.mark.parametrize("status", list(TaskStatus))
async def test_the_worst_outcome_of_a_task_is_the_job_s(status: TaskStatus) -> None:
    def end(spec: JobSpec, sink: Any) -> None:
        sink.outcome(outcome(1, status))
        sink.outcome(outcome(0))
        sink.ended()

    time = Time()
    job = WorkloadJob(0, 0.0, "ann", array("d", [0.5, 0.5]))
    replay = await replayed(Cluster(time, end), [job], time)
    assert replay.records[0].status == status.value
    assert replay.progress().tasks_under_way == 0


async def test_jobs_that_do_not_end_in_time_are_cancelled_and_recorded() -> None:
    time = Time()
    cluster = Cluster(time, nothing)
    replay = await replayed(cluster, jobs(0.0, 0.5), time)
    assert cluster.cancelled == ["run-0", "run-1"]
    assert [record.status for record in replay.records] == ["cancelled", "cancelled"]
    assert all(math.isnan(record.ended_s) for record in replay.records)


async def test_jobs_without_an_outcome_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.replay.CANCELLED_OUTCOMES_TIMEOUT_S", 0.0)
    monkeypatch.setattr(Cluster, "cancel_job", lambda self, job_id, *, running: None)
    time = Time()
    replay = await replayed(Cluster(time, nothing), jobs(0.0), time)
    assert [record.status for record in replay.records] == ["lost"]


# ---- what is submitted -----------------------------------------------------------------------


def spec_of(job: WorkloadJob) -> JobSpec:
    time = Time()
    return Replay([job], {}, PLAN, time, time.sleep).spec(job)


@pytest.mark.parametrize("stages", [(), (WorkloadStage("a", (), 1), WorkloadStage("b", ("a",), 1))], ids=["one", "two"])
def test_jobs_state_the_policy_of_the_plan(stages: tuple[WorkloadStage, ...]) -> None:
    job = WorkloadJob(7, 0.0, "ann", array("d", [0.1, 0.2]), stages=stages)
    time = Time()
    spec = Replay([job], {}, replace(PLAN, policy="auto"), time, time.sleep).spec(job)
    spec.validate()
    assert (spec.policy, spec_of(job).policy) == ("auto", "")


def test_a_job_of_one_stage() -> None:
    job = WorkloadJob(7, 0.0, "ann", array("d", [0.1, 0.2]), ("zone == a",), ((0, 2), ()), 0.15, label="q6")
    spec = spec_of(job)
    spec.validate()
    first, second = spec.tasks
    assert isinstance(first, TaskSpec)
    assert list(first.preferred) == ["node-a", "node-c"]
    assert isinstance(second, bytes)
    assert (spec.job_id, spec.app, spec.probe_ratio, spec.name) == ("run-7", "sleep", 2.0, "q6")
    assert (spec.where, spec.expected_duration_s) == (("zone == a",), 0.15)


def test_a_job_of_several_stages() -> None:
    stages = (WorkloadStage("scan", (), 2), WorkloadStage("sum", ("scan",), 1))
    spec = spec_of(WorkloadJob(7, 0.0, "ann", array("d", [0.1, 0.2, 0.3]), (), ((0,), (1,), ()), stages=stages))
    spec.validate()
    assert [(stage.name, list(stage.after), len(stage.tasks)) for stage in spec.stages] == [
        ("scan", [], 2), ("sum", ["scan"], 1),
    ]  # fmt: skip
    assert [task.preferred for task in spec.stages[0].tasks if isinstance(task, TaskSpec)] == [["node-a"], ["node-b"]]


def test_a_stage_states_how_long_its_own_tasks_take_if_that_is_known() -> None:
    stages = (WorkloadStage("scan", (), 1, 0.1), WorkloadStage("sum", ("scan",), 1))
    spec = spec_of(WorkloadJob(7, 0.0, "ann", array("d", [0.1, 0.2]), mean_s=0.15, stages=stages))
    assert [stage.expected_duration_s for stage in spec.stages] == [0.1, 0.15]


# ---- when lateness matters -------------------------------------------------------------------


def test_lateness_is_judged_by_the_ideal() -> None:
    ideal_s = np.full(100, 1.0)
    allowed_s = LATE_MAX_SHARE * 1.0
    assert why_too_late(np.full(100, allowed_s), ideal_s) == ""
    assert "late" in why_too_late(np.full(100, allowed_s * 1.01), ideal_s)
    assert why_too_late(np.array([*np.zeros(999), 10.0]), ideal_s) == "", "one of a thousand is within the percentile"


def test_lateness_below_the_precision_of_timers_is_allowed() -> None:
    ideal_s = np.full(100, 0.001)
    assert why_too_late(np.full(100, LATE_MAX_S), ideal_s) == ""
    assert "late" in why_too_late(np.full(100, LATE_MAX_S * 1.01), ideal_s)


def test_the_figures_of_lateness() -> None:
    assert lateness(np.array([0.0, 0.001, 0.002])) == {"p50_ms": 1.0, "p99_ms": 1.98, "max_ms": 2.0}
    assert lateness(np.array([])) == {"p50_ms": None, "p99_ms": None, "max_ms": None}


def test_a_trace_replays_as_it_is_written() -> None:
    (job,) = parse_lines("t", ["0 2 0.3 0.2 0.4"])
    assert spec_of(job).expected_duration_s == 0.3


def test_a_plane_whose_scheduler_waited_for_a_cpu_was_not_measured() -> None:
    assert why_starved(None, 60.0) == "" and why_starved(WAITED_MAX_SHARE * 60.0, 60.0) == ""
    assert "waited for a CPU for 6.6 s of 60.0 s, at most 10% is allowed" in why_starved(6.6, 60.0)
