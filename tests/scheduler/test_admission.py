"""Admission per user, and the retry-after of a refusal (guarantee 6)."""

from __future__ import annotations

import random

import pytest

from scheduler.admission import RETRY_AFTER_MAX_S, RETRY_AFTER_MIN_S, RETRY_AFTER_UNKNOWN_S, Admission
from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from simulator.world import World
from sparrow_py import messages as m
from sparrow_py.job import TaskStatus
from tests.support.recorder import Recorder, submission


def test_a_user_may_hold_as_many_as_the_limit_and_no_more() -> None:
    admission = Admission(10)
    assert admission.admit("anna", 6, 0.0) is None
    assert admission.admit("anna", 4, 0.0) is None
    refusal = admission.admit("anna", 1, 0.0)
    assert refusal is not None and refusal.retry_after_s is not None
    assert "anna" in refusal.reason and "unplaced_tasks_max = 10" in refusal.reason
    assert admission.unplaced == {"anna": 10}  # What was refused is not counted.


def test_users_do_not_count_against_each_other() -> None:
    admission = Admission(10)
    assert admission.admit("anna", 10, 0.0) is None
    assert admission.admit("bert", 10, 0.0) is None


def test_a_job_that_can_never_fit_is_refused_for_good() -> None:
    refusal = Admission(10).admit("anna", 11, 0.0)
    assert refusal is not None and refusal.retry_after_s is None


def test_an_empty_job_is_always_admitted_and_leaves_nothing() -> None:
    admission = Admission(1)
    assert admission.admit("anna", 1, 0.0) is None
    assert admission.admit("anna", 0, 0.0) is None
    admission.withdrawn("anna", 1)
    assert admission.unplaced == {}


def test_a_returned_task_counts_and_is_never_refused() -> None:
    admission = Admission(1)
    admission.admit("anna", 1, 0.0)
    admission.placed("anna")
    admission.admit("anna", 1, 0.0)
    admission.returned("anna")
    assert admission.unplaced == {"anna": 2}


def test_retry_after_is_the_excess_over_the_placing_rate() -> None:
    admission = Admission(1000)
    start_s = 1e9  # The clock's zero means nothing.
    admission.admit("anna", 1000, start_s)
    for _ in range(200):
        admission.placed("anna")
    refusal = admission.admit("anna", 400, start_s + 2.0)  # 200 in 2 s; 200 too many.
    assert refusal is not None and refusal.retry_after_s == pytest.approx(2.0)


@pytest.mark.parametrize(("placed", "excess", "expected_s"), [(900, 1, RETRY_AFTER_MIN_S), (1, 900, RETRY_AFTER_MAX_S)])
def test_retry_after_is_bounded(placed: int, excess: int, expected_s: float) -> None:
    admission = Admission(1000)
    admission.admit("anna", 1000, 0.0)
    for _ in range(placed):
        admission.placed("anna")
    refusal = admission.admit("anna", placed + excess, 1.0) if placed + excess <= 1000 else None
    assert refusal is not None and refusal.retry_after_s == pytest.approx(expected_s)


def test_without_a_known_rate_retry_after_is_short() -> None:
    """At a start or after a long idle time no rate is known: that is no reason to wait for half a minute."""
    admission = Admission(10)
    admission.admit("anna", 10, 1e9)
    refusal = admission.admit("anna", 1, 1e9 + 0.001)
    assert refusal is not None and refusal.retry_after_s == RETRY_AFTER_UNKNOWN_S
    for _ in range(10):
        admission.placed("anna")
    admission.admit("anna", 10, 1e9 + 7200)
    refusal = admission.admit("anna", 10, 1e9 + 7200.001)
    assert refusal is not None and refusal.retry_after_s == RETRY_AFTER_UNKNOWN_S


def test_refused_jobs_get_in_later_and_the_limit_is_kept() -> None:
    """A client tries again as told; ten jobs of 10 tasks, a limit of 20."""
    world = World(nodes=[2], scheduler={"unplaced_tasks_max": 20}, submit_timeout_s=1000.0)
    logs = [world.submit([0.05] * 10) for _ in range(10)]
    world.run()
    world.check_end()
    assert all(log.error is None and log.ended_count for log in logs)
    assert world.schedulers[0].core.counters.jobs_refused > 0
    assert world.now - logs[0].submitted_at_s < 12.0  # The work is 2.5 s; waiting costs a few times that.


def test_a_users_payloads_are_limited_in_bytes() -> None:
    sent = Recorder()
    core = SchedulerCore(SchedulerOptions(port=0, held_bytes_max=100, history_len_max=100), random.Random(1), sent)
    for job, size in (("small", 60), ("large", 60)):
        core.receive_from_client("c", "anna", submission(job), 1.0)
        core.receive_from_client("c", "anna", m.AddTasks(job, 0, [bytes(size)]), 1.0)
        core.check_invariants()
    ((_, outcome),) = sent.take(m.Outcome)  # The job that went beyond the limit is cancelled, and says why.
    assert (outcome.job, outcome.status) == ("large", TaskStatus.CANCELLED)
    assert "anna are 120 bytes" in outcome.error and "held_bytes_max = 100" in outcome.error
    core.receive_from_client("c", "anna", submission("third", tasks=2), 1.0)
    assert not sent.take(m.JobRefused)  # 60 bytes are held now: the small job's.
    core.receive_from_client("c", "anna", m.AddTasks("third", 0, [bytes(40)]), 1.0)
    core.receive_from_client("c", "anna", submission("fourth"), 1.0)
    ((_, refusal),) = sent.take(m.JobRefused)
    assert refusal.job == "fourth" and refusal.retry_after_s is not None
    core.client_down("c", 2.0)
    core.check_invariants()
    assert core.admission.held_bytes == {}
