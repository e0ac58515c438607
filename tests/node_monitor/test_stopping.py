"""Attempts that are to end before their time: cancelled, asked back, or stopped as their time is up."""

from __future__ import annotations

from node_monitor.stopping import KILL_GRACE_S
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import OneJob, far

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


def test_a_task_that_runs_too_long_is_stopped_with_its_executor_and_has_failed() -> None:
    rig = OneJob()
    rig.start(1, timeout_s=2.0)
    rig.tick(1.9)
    assert not rig.outbox.killed
    rig.tick(2.0)
    assert rig.outbox.killed == ["p0"] and not rig.reports()
    rig.died("p0")
    assert rig.reports() == [(1, FAILED, "it ran for longer than task_timeout_s = 2 s")]
    assert rig.core.free_slots == 1


def test_in_an_executor_of_many_places_only_the_run_is_stopped() -> None:
    rig = OneJob(2, "many")
    rig.start(1, 2, timeout_s=2.0)
    rig.tick(2.0)
    assert rig.take(x.Kill) == [x.Kill([1]), x.Kill([2])] and not rig.outbox.killed
    rig.done("p0", 1, FAILED)
    assert rig.reports() == [(1, FAILED, "it ran for longer than task_timeout_s = 2 s")]
    rig.done("p0", 2)  # It ended by itself before it was told.
    assert [status for _, status, _ in rig.reports()] == [FINISHED]
    rig.tick(2.0 + KILL_GRACE_S)
    assert not rig.outbox.killed


def test_an_executor_that_does_not_end_the_run_is_ended_itself() -> None:
    rig = OneJob(2, "many")
    rig.start(1, timeout_s=2.0)
    rig.start(2)
    rig.tick(2.0)
    rig.tick(2.0 + KILL_GRACE_S)
    assert rig.outbox.killed == ["p0"]
    rig.died("p0")
    assert [(attempt, status) for attempt, status, _ in rig.reports()] == [(1, FAILED), (2, LOST)]


def test_a_task_that_ended_in_time_is_not_stopped() -> None:
    rig = OneJob()
    rig.start(1, timeout_s=2.0)
    rig.done("p0", 1)
    rig.start(2)
    rig.tick(2.0)
    assert not rig.outbox.killed


def test_the_time_begins_when_the_inputs_are_there() -> None:
    rig = OneJob()
    rig.receive(m.Common("j", 0, b"", 2.0))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, far("f"))
    rig.tick(50.0)
    rig.blobs.add(far("f"))
    rig.core.fetched("anna", "f" * 64, "", 50.0)
    rig.tick(51.9)
    assert not rig.outbox.killed
    rig.tick(52.0)
    assert rig.outbox.killed == ["p0"]


def test_a_running_task_is_cancelled_only_if_that_is_said() -> None:
    rig = OneJob()
    rig.start(1)
    rig.receive(m.CancelAttempt("j", 1))
    assert rig.take(m.AttemptRuns) == [m.AttemptRuns("j", 1)] and not rig.outbox.killed
    rig.receive(m.CancelAttempt("j", 1, True))
    assert rig.outbox.killed == ["p0"]
    rig.receive(m.CancelAttempt("j", 1, True))
    assert rig.outbox.killed == ["p0"]
    rig.died("p0")
    assert rig.reports() == [(1, CANCELLED, "it was cancelled while it ran")]


def test_in_an_executor_of_many_places_by_a_message() -> None:
    rig = OneJob(2, "many")
    rig.start(1)
    rig.receive(m.CancelAttempt("j", 1, True))
    assert rig.take(x.Kill) == [x.Kill([1])]
    rig.done("p0", 1, FAILED)
    assert rig.reports() == [(1, CANCELLED, "it was cancelled while it ran")]


def test_a_run_that_was_given_ahead_of_time_is_revoked_and_stopped_if_it_runs_by_then() -> None:
    rig = OneJob()
    rig.reserve(1, 9, prefetch=8)
    rig.launch(1, 1)
    rig.launch(2, 2)
    rig.launch(3, 2)
    rig.done("p0", 1, service_s=0.0001)  # Both others are given.
    rig.receive(m.CancelAttempt("j", 3), m.CancelAttempt("j", 3, True))
    assert rig.take(x.Revoke) == [x.Revoke([3])]
    rig.done("p0", 2, service_s=0.0001)
    rig.core.returned("p0", x.Returned([]), 0.0)
    rig.settle()
    assert rig.outbox.killed == ["p0"] and not rig.take(m.AttemptRuns)
    rig.take(m.Report)
    rig.died("p0")
    assert rig.reports() == [(3, CANCELLED, "it was cancelled while it ran")]


def test_what_is_not_here_is_not_cancelled_and_nobody_is_told() -> None:
    rig = OneJob()
    rig.start(1)
    rig.outbox.sent.clear()
    rig.receive(m.CancelAttempt("j", 7), m.CancelAttempt("other", 1, True))
    assert not rig.outbox.sent and not rig.outbox.killed


def test_another_schedulers_attempt_of_the_same_number_is_not_cancelled() -> None:
    rig = OneJob()
    rig.core.scheduler_up("t")
    rig.start(1)
    rig.receive(m.CancelAttempt("j", 1, True), scheduler="t")
    assert not rig.outbox.killed and not rig.reports()


def test_the_first_reason_to_stop_a_task_is_the_one_that_is_reported() -> None:
    rig = OneJob()
    rig.start(1, timeout_s=2.0)
    rig.receive(m.CancelAttempt("j", 1, True))
    rig.tick(3.0)
    rig.died("p0")
    assert rig.reports() == [(1, CANCELLED, "it was cancelled while it ran")]


def test_a_task_that_finishes_while_it_is_stopped_has_finished() -> None:
    rig = OneJob(2, "many")
    rig.start(1)
    rig.receive(m.CancelAttempt("j", 1, True))
    rig.done("p0", 1)
    assert [status for _, status, _ in rig.reports()] == [FINISHED]
