"""What nodes are asked and clients are told when tasks that run are cancelled, however often they are."""

from __future__ import annotations

import pytest

from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig

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
