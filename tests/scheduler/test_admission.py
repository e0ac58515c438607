"""Admission per user, and the retry-after of a refusal (guarantee 6)."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from scheduler.book import footprint
from scheduler.book.admission import RETRY_AFTER_MAX_S, RETRY_AFTER_MIN_S, RETRY_AFTER_UNKNOWN_S, Admission
from simulator.soak.world import World
from sparrow_py.constraints import Constraint
from sparrow_py.errors import LinkError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig


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
    job_bytes = footprint.job_bytes(submission("small"))
    limit = 2 * job_bytes + 100
    rig = SchedulerRig(held_bytes_max=limit, history_len_max=100)
    for job, size in (("small", 60), ("large", 60)):
        rig.submit_job(1, job=job, payloads=[bytes(size)], now_s=1.0)
    (outcome,) = rig.take(m.Outcome)  # The job that went beyond the limit is cancelled, and says why.
    assert (outcome.job, outcome.status) == ("large", TaskStatus.CANCELLED)
    assert f"anna take {limit + 20} bytes" in outcome.error and f"held_bytes_max = {limit}" in outcome.error
    rig.client(submission("third"), now_s=1.0)
    assert not rig.take(m.JobRefused)  # The small job's 60 bytes are held now.
    rig.client(m.AddTasks("third", 0, [bytes(40)]), submission("fourth"), now_s=1.0)
    (refusal,) = rig.take(m.JobRefused)
    assert refusal.job == "fourth" and refusal.retry_after_s is not None
    rig.core.client_down("c", 2.0)
    rig.core.check_invariants()
    assert rig.core.admission.held_bytes == {}


# ---- what a job takes besides its payloads -----------------------------------------------------

EMPTY = {"app": "many", "task_count": 0, "common": b"", "runtime": "", "probe_ratio": 2.0, "prefetch": 0}
WAITS = m.Stage(**{**EMPTY, "task_count": 1}, expected_duration_s=None, name="waits")
TEXTS = tuple(f"{number} ".ljust(100, "x") for number in range(1000))
REF = BlobRef("0" * 64, 1 << 30, tuple("h:1".ljust(200, "0") for _ in range(60)))


def stage(**fields: Any) -> m.Stage:
    return m.Stage(**EMPTY, expected_duration_s=None, **fields)


def job_of(stages: list[m.Stage]) -> m.SubmitJob:
    return m.SubmitJob("j", 0, "", stages, 3, False, None, False)


BULK: dict[str, list[m.Message]] = {
    "empty stages": [job_of([WAITS, *(stage(name=f"s{n}", after=("waits",)) for n in range(999))])],
    "texts of constraints": [
        submission(where=(Constraint("a", "in", TEXTS),) * 64, wait_for_nodes_s=1e9),
    ],
    "names of preferred nodes": [
        submission(tasks=100, local=True, delay_s=1.0),
        m.AddTasks("j", 0, [b""] * 100, {task: m.TaskDetail(TEXTS) for task in range(100)}),
    ],
    "ranges of inputs": [
        job_of([WAITS, msgspec.structs.replace(stage(name="asks", after=("waits",)), task_count=100)]),
        m.AddTasks("j", 0, [b""] * 101, {task: m.TaskDetail((), ((0, 1),) * 100) for task in range(1, 101)}),
    ],
    "references to large data": [submission(tasks=100), m.AddTasks("j", 0, [REF] * 100)],
    "tasks that never come": [submission(tasks=900_000)],
    "results that are said to be known": [
        submission(tasks=100, epoch=1),
        m.Known("j", [m.KnownOutcome(task, TaskStatus.FINISHED, bytes(10_000)) for task in range(100)], {}),
    ],
}  # fmt: skip
"""What used to be memory that nobody counted; each is a megabyte and more, or has no end."""


@pytest.mark.parametrize("bulk", BULK)
def test_all_that_a_job_holds_counts_and_is_given_back_at_its_end(bulk: str) -> None:
    rig = SchedulerRig()
    rig.client(*copy.deepcopy(BULK[bulk]), now_s=1.0)
    assert rig.core.admission.held_bytes["anna"] > 1_000_000
    rig.core.register.abandon(rig.core.jobs["j"], 2.0)
    rig.core.check_invariants()
    assert rig.core.admission.held_bytes == {}


@pytest.mark.parametrize("bulk", BULK)
def test_beyond_the_users_bytes_it_is_refused_or_cancelled(bulk: str) -> None:
    rig = SchedulerRig(held_bytes_max=100_000)
    rig.client(*copy.deepcopy(BULK[bulk]), now_s=1.0)
    why = [refusal.reason for refusal in rig.take(m.JobRefused)]
    why += [job.cancel_reason for job in rig.core.jobs.values()]
    why += [outcome.error for outcome in rig.take(m.Outcome)]
    assert why and all("held_bytes_max = 100000" in reason for reason in why)
    rig.client(submission("k"), now_s=1.0, client="d", user="bert")
    assert [accepted.job for accepted in rig.take(m.JobAccepted)][-1] == "k"


def test_a_job_that_alone_is_too_many_bytes_is_refused_for_good() -> None:
    limit = 3 * footprint.job_bytes(submission()) // 2
    rig = SchedulerRig(held_bytes_max=limit)
    rig.client(submission("large", common=bytes(limit)), submission("fits"), submission("later"), now_s=1.0)
    assert [(refusal.job, refusal.retry_after_s is None) for refusal in rig.take(m.JobRefused)] == [
        ("large", True),
        ("later", False),
    ]


def test_an_outcome_is_known_once() -> None:
    rig = SchedulerRig()
    rig.client(submission(tasks=2, epoch=1), now_s=1.0)
    held_bytes = rig.core.admission.held_bytes
    known = m.KnownOutcome(1, TaskStatus.FINISHED, b"x" * 1000)
    for outcomes in ([known, known], [known], [known]):
        held = held_bytes["anna"]
        try:
            rig.client(m.Known("j", list(outcomes), {}), now_s=1.0)
        except LinkError as error:
            assert "given twice" in str(error) and held_bytes["anna"] == held
        else:
            assert outcomes == [known] and held_bytes["anna"] == held + 1000
    rig.client(m.AddTasks("j", 0, [b"", b""]), now_s=1.0)
