"""Attempts end: reported, handed back, lost; what was started in vain starts again, as often as its job says."""

from __future__ import annotations

import pytest

from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


class Rig(SchedulerRig):
    """A scheduler with the node n, which asks for all that is reserved there."""

    def __init__(self, **fields: object) -> None:
        super().__init__("n")
        self.submit_job(1, **fields)

    def start(self) -> m.Launch:
        (reserve,) = self.take(m.Reserve)
        self.node("n", m.GetTasks(1, reserve.ticket, reserve.count))
        (launch,) = self.take(m.Launch)
        return launch

    def end(self, launch: m.Launch, status: TaskStatus, error: str = "") -> None:
        self.node("n", m.Report(launch.job, launch.task, launch.attempt, status, b"", error, None, None))


@pytest.mark.parametrize(("status", "starts"), [(FINISHED, 1), (FAILED, 1), (CANCELLED, 0)])
def test_a_report_is_the_outcome(status: TaskStatus, starts: int) -> None:
    rig = Rig()
    rig.end(rig.start(), status)
    assert rig.outcomes() == [(0, status, starts)] and not rig.core.jobs


def test_a_lost_attempt_starts_again_as_long_as_attempts_remain() -> None:
    rig = Rig(max_attempts=2)
    rig.end(rig.start(), LOST, "its executor died")
    assert rig.take(m.Retried) == [m.Retried("j", 0, 1)] and not rig.outcomes()
    rig.end(rig.start(), LOST, "its executor died")
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.status, outcome.attempts, outcome.error) == (LOST, 2, "started 2 times: its executor died")
    assert (rig.core.counters.retries, rig.core.counters.attempts_lost) == (1, 2)


@pytest.mark.parametrize("retry_failed", [False, True])
def test_a_failed_attempt_starts_again_if_its_job_says_so(retry_failed: bool) -> None:
    rig = Rig(max_attempts=2, retry_failed=retry_failed)
    rig.end(rig.start(), FAILED)
    assert rig.outcomes() == ([] if retry_failed else [(0, FAILED, 1)])
    if retry_failed:
        rig.end(rig.start(), FAILED)
        assert rig.outcomes() == [(0, FAILED, 2)]


def test_what_is_handed_back_was_no_start() -> None:
    rig = Rig(max_attempts=1)
    for _ in range(3):
        launch = rig.start()
        rig.node("n", m.HandBack("j", launch.attempt, "no room"))
    rig.end(rig.start(), FINISHED)
    assert rig.outcomes() == [(0, FINISHED, 1)] and rig.core.counters.handed_back == 3


def test_an_attempt_is_taken_once_and_from_its_own_node_alone() -> None:
    rig = Rig()
    launch = rig.start()
    rig.node_up("other")
    rig.node("other", m.Report("j", 0, launch.attempt, FINISHED, b"", "", None, None))
    assert not rig.outcomes() and rig.core.counters.stale_reports == 1
    rig.end(launch, FINISHED)
    rig.end(launch, FINISHED)
    assert rig.outcomes() == [(0, FINISHED, 1)] and rig.core.counters.stale_reports == 2


def test_what_is_handed_back_of_a_cancelled_job_is_cancelled() -> None:
    rig = Rig()
    launch = rig.start()
    rig.client(m.CancelJob("j"))
    rig.node("n", m.HandBack("j", launch.attempt, "it was asked for that"))
    assert rig.outcomes() == [(0, CANCELLED, 0)]


def test_what_ran_at_a_node_that_is_lost_starts_elsewhere() -> None:
    rig = Rig(max_attempts=2)
    rig.start()
    rig.node_up("other")
    rig.node_down("n")
    assert rig.take(m.Retried) and list(rig.reserves()) == ["other"]
