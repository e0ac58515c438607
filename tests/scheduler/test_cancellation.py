"""What nodes are asked and clients are told when tasks that run are cancelled, however often they are."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book import outcomes
from scheduler.book.outcomes import SETTLED_AT_ONCE_MAX, SETTLING_PAUSE_S
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, StagedRig

JOB = m.CancelJob("j")
JOB_RUNNING = m.CancelJob("j", running=True)
TASKS = m.CancelTasks("j", [0, 1, 0] + [1] * 9_000)
TASKS_RUNNING = m.CancelTasks("j", [0, 1, 0] + [1] * 9_000, running=True)


class Rig(SchedulerRig):
    """A scheduler with a job j of client c, whose two tasks run at the node n as attempts 1 and 2."""

    def __init__(self) -> None:
        super().__init__("n")
        self.submit_job(2, probe_ratio=1.0)
        for count, reserve in enumerate(self.take(m.Reserve)):
            self.node("n", m.GetTasks(count, reserve.ticket, reserve.count))
        assert [launch.attempt for launch in self.take(m.Launch)] == [1, 2]

    def asked(self) -> list[tuple[int, bool]]:
        """(attempt, running) of what the node was asked to cancel."""
        return [(message.attempt, message.running) for message in self.take(m.CancelAttempt)]

    def not_cancelled(self) -> list[int]:
        return [message.task for message in self.take(m.NotCancelled)]


@pytest.mark.parametrize("cancel", [JOB, TASKS])
@pytest.mark.parametrize("cancel_running", [JOB_RUNNING, TASKS_RUNNING])
def test_a_node_is_asked_once_without_and_once_with_running(cancel: m.Message, cancel_running: m.Message) -> None:
    rig = Rig()
    rig.client(cancel, cancel, cancel)
    assert rig.asked() == [(1, False), (2, False)]
    rig.client(cancel_running, cancel_running, cancel, cancel_running)
    assert rig.asked() == [(1, True), (2, True)]


def test_a_job_and_its_tasks_cancelled_in_turns_are_asked_for_once() -> None:
    rig = Rig()
    rig.client(*[JOB, TASKS] * 3, *[JOB_RUNNING, TASKS_RUNNING] * 3)
    assert rig.asked() == [(1, False), (2, False), (1, True), (2, True)]


def test_who_asks_again_after_the_answer_is_answered_again_and_the_node_is_not_asked() -> None:
    rig = Rig()
    rig.client(m.CancelTasks("j", [1]))
    rig.node("n", m.AttemptRuns("j", 2))
    assert (rig.asked(), rig.not_cancelled()) == ([(2, False)], [1])
    rig.client(TASKS)
    assert (rig.asked(), rig.not_cancelled()) == ([(1, False)], [1])
    rig.node("n", m.AttemptRuns("j", 1))
    rig.client(JOB)
    assert (rig.asked(), rig.not_cancelled()) == ([], [0, 0, 1])


def test_that_an_attempt_ran_before_it_was_to_be_stopped_does_not_start_its_task_again() -> None:
    """The answer to the first question crosses the second: the client is told how the task ended."""
    rig = Rig()
    rig.client(m.CancelTasks("j", [0]), m.CancelTasks("j", [0], running=True))
    rig.node("n", m.AttemptRuns("j", 1), m.Report("j", 0, 1, TaskStatus.LOST, b"", "its executor died", 0.0, None))
    outcomes = [(outcome.task, outcome.status) for _, outcome in rig.outbox.take(m.Outcome)]
    assert (rig.not_cancelled(), outcomes) == ([], [(0, TaskStatus.CANCELLED)])


def test_an_answer_that_nobody_asked_for_is_ignored() -> None:
    rig = Rig()
    rig.node("n", m.AttemptRuns("j", 1))
    rig.client(m.CancelTasks("j", [0]))
    assert (rig.asked(), rig.not_cancelled()) == ([(1, False)], [])


# ---- many tasks ------------------------------------------------------------------------------

MANY = 3 * SETTLED_AT_ONCE_MAX


class ManyTasks(SchedulerRig):
    """Jobs of many tasks, of which none has been placed, are cancelled."""

    def cancelled(self, job: str = "j", **fields: Any) -> None:
        self.client(submission(job, MANY, **fields), m.CancelJob(job), now_s=1.0)

    def settled(self) -> list[tuple[str, int]]:
        """(job, task) of what has been told since it was asked for last."""
        found = self.take(m.Outcome)
        assert all(one.status is TaskStatus.CANCELLED and one.error == "it was cancelled" for one in found)
        return [(one.job, one.task) for one in found]

    def next_slice(self) -> list[tuple[str, int]]:
        deadline_s = self.core.next_deadline_s()
        assert deadline_s is not None
        self.tick(deadline_s)
        return self.settled()


def test_many_tasks_are_settled_in_slices_and_others_have_their_turn_between() -> None:
    rig = ManyTasks("n")
    rig.cancelled()
    assert rig.settled() == [("j", task) for task in range(SETTLED_AT_ONCE_MAX)]
    assert rig.core.next_deadline_s() == 1.0 + SETTLING_PAUSE_S
    assert rig.core.admission.unplaced == {}, "there is room for others at once"
    assert not any(rig.take(m.Reserve)) or rig.take(m.CancelReservations)
    rig.submit_job(1, job="k", now_s=1.0)
    assert rig.take(m.Reserve)
    rest = rig.next_slice() + rig.next_slice()
    assert rest == [("j", task) for task in range(SETTLED_AT_ONCE_MAX, MANY)]
    assert list(rig.core.jobs) == ["k"] and rig.take(m.JobEnded) == [m.JobEnded("j")]


def test_of_many_jobs_one_slice_is_settled_at_a_time_by_turns() -> None:
    """So a job of few tasks does not wait for one of a million."""
    rig = ManyTasks("n")
    for job in ("j", "k"):
        rig.cancelled(job)
        rig.client(m.CancelJob(job, running=True), now_s=1.0)
    told = rig.settled()
    assert len(told) == SETTLED_AT_ONCE_MAX
    while rig.core.jobs:
        more = rig.next_slice()
        assert len(more) == SETTLED_AT_ONCE_MAX
        told += more
    slices = [told[at][0] for at in range(0, len(told), SETTLED_AT_ONCE_MAX)]
    assert slices == ["j", *["j", "k"] * (len(slices) // 2 - 1), "k"]
    assert sorted(told) == [(job, task) for job in ("j", "k") for task in range(MANY)]


@pytest.mark.parametrize("how", ["taken over", "client gone", "handed over", "late report"])
def test_what_leaves_may_be_overtaken(how: str) -> None:
    rig = ManyTasks("n")
    rig.cancelled()
    rig.cancelled("k")
    rig.settled()
    if how == "taken over":
        rig.node("n", m.Fenced("j", 1), now_s=1.0)
        assert [job for job, _ in rig.next_slice()] == ["k"] * SETTLED_AT_ONCE_MAX
    elif how == "client gone":
        rig.core.client_down("c", 1.0, said_goodbye=True)
    elif how == "handed over":
        words = dict(enumerate(message for _, message in rig.core.hand_over(1.0)))
        assert words[0] == m.HandedOver("j", ((SETTLED_AT_ONCE_MAX, MANY - SETTLED_AT_ONCE_MAX),), cancelled=True)
    else:
        rig.client(m.CancelTasks("j", [MANY - 1]), m.AskPlaced("j", 1, [MANY - 1]), now_s=1.0)
        assert rig.take(m.PlacedNow) == [m.PlacedNow("j", 1, [])]
    while rig.core.next_deadline_s() is not None:
        rig.next_slice()
    assert not rig.core.jobs and rig.core.admission.held_bytes == {}


def test_stages_after_one_that_is_cancelled_are_settled_in_slices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "SETTLED_AT_ONCE_MAX", 3)
    rig = StagedRig()
    rig.submit(("one", (), 1), ("two", ("one",), 7), ("three", ("two",), 2))
    (launch,) = rig.run()
    rig.report(launch, TaskStatus.FAILED)
    settled = rig.settled()
    assert len(settled) == 1 + 3 + 2
    while rig.core.jobs:
        deadline_s = rig.core.next_deadline_s()
        assert deadline_s is not None
        rig.tick(deadline_s)
    settled += rig.settled()
    assert sorted(settled[1:]) == [(task, TaskStatus.CANCELLED) for task in range(1, 10)]
