"""Sinks of jobs: large results are fetched before their outcomes are settled, and the end comes after them all."""

from __future__ import annotations

from typing import Any

from sparrow_py.errors import ResultLost, SparrowError
from sparrow_py.job import FAILED, FINISHED, BlobRef, JobSpec, StageSpec, TaskStatus
from sparrow_py.session.job_sink import JobSink
from sparrow_py.wire import messages as m

LARGE = BlobRef("a" * 64, 1 << 20, ("127.0.0.1:1",))


class Told(JobSink):
    """Remembers what is settled, and what is to be fetched."""

    def __init__(self, spec: JobSpec) -> None:
        self.settled: list[tuple[int, Any]] = []
        self.finished = 0
        self.refusals: list[SparrowError] = []
        self.asked: list[m.Outcome] = []
        self.begin(spec, lambda _, outcome, __: self.asked.append(outcome))

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        self.settled.append((outcome.task, lost or outcome.result))

    def refuse(self, error: SparrowError) -> None:
        self.refusals.append(error)

    def finish(self) -> None:
        self.finished += 1


def outcome(task: int, result: Any, status: TaskStatus = FINISHED) -> m.Outcome:
    return m.Outcome("j", task, status, result, "", 1, "n", 0.0, 0.0, 0.1)


def test_a_small_result_is_settled_at_once() -> None:
    told = Told(JobSpec([b"", b""]))
    told.outcome(outcome(1, b"small"))
    assert told.settled == [(1, b"small")] and not told.asked and not told.finished
    told.ended()
    assert told.finished == 1


def test_the_end_comes_after_results_that_are_fetched() -> None:
    told = Told(JobSpec([b"", b"", b""]))
    for task in range(3):
        told.outcome(outcome(task, LARGE if task else b"small"))
    told.ended()
    assert told.settled == [(0, b"small")] and [one.task for one in told.asked] == [1, 2]
    told.fetched(outcome(2, bytearray(b"large")), None)
    assert not told.finished
    lost = ResultLost("gone")
    told.fetched(told.asked[0], lost)
    assert told.settled[1:] == [(2, bytearray(b"large")), (1, lost)] and told.finished == 1


def test_a_result_for_stages_that_come_after_is_not_fetched() -> None:
    told = Told(JobSpec(stages=[StageSpec([b""], name="a"), StageSpec([b""], name="b", after=["a"])]))
    told.outcome(outcome(0, LARGE))
    told.outcome(outcome(1, LARGE))
    assert told.settled == [(0, LARGE)] and [one.task for one in told.asked] == [1]


def test_a_result_that_comes_after_the_job_was_refused_is_not_settled() -> None:
    """The user has been told the error: an outcome besides would say that the task finished."""
    told = Told(JobSpec([b"", b""]))
    told.outcome(outcome(0, LARGE))
    told.outcome(outcome(1, LARGE))
    error = SparrowError("the cluster is gone")
    told.refused(error)
    told.fetched(outcome(0, bytearray(b"large")), None)
    told.fetched(outcome(1, LARGE), ResultLost("gone"))
    assert told.refusals == [error] and told.settled == [] and not told.finished


def test_a_large_exception_is_fetched_whatever_comes_after_its_stage() -> None:
    """No task that comes after needs it: they are cancelled."""
    told = Told(JobSpec(stages=[StageSpec([b""], name="a"), StageSpec([b""], name="b", after=["a"])]))
    told.outcome(outcome(0, LARGE, FAILED))
    assert [one.task for one in told.asked] == [0] and not told.settled
    told.fetched(outcome(0, b"raised", FAILED), None)
    assert told.settled == [(0, b"raised")]
