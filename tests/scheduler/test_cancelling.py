"""What nodes are asked and clients are told when tasks that run are cancelled, however often they are."""

from __future__ import annotations

import random

import pytest

from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder

JOB = m.CancelJob("j")
JOB_RUNNING = m.CancelJob("j", running=True)
TASKS = m.CancelTasks("j", [0, 1, 0] + [1] * 9_000)
TASKS_RUNNING = m.CancelTasks("j", [0, 1, 0] + [1] * 9_000, running=True)


class Rig:
    """A scheduler with a job j of client c, whose two tasks run at the node n as attempts 1 and 2."""

    def __init__(self) -> None:
        self.outbox = Recorder()
        self.core = SchedulerCore(SchedulerOptions(), random.Random(1), self.outbox)
        self.core.node_up("n", m.NodeInfo(4, {}, {}, {"many": ""}), 0.0)
        stages = [m.Stage("many", 2, b"", "", 1.0, 0, None)]
        self.client(m.SubmitJob("j", 0, "", stages, 3, False, None, False), m.AddTasks("j", 0, [b"p"] * 2))
        for count, (_, reserve) in enumerate(self.outbox.take(m.Reserve)):
            self.node(m.GetTasks(count, reserve.ticket, reserve.count))
        assert [launch.attempt for _, launch in self.outbox.take(m.Launch)] == [1, 2]

    def client(self, *messages: m.Message) -> None:
        for message in messages:
            self.core.receive_from_client("c", "anna", message, 0.0)
            self.core.check_invariants()

    def node(self, *messages: m.Message) -> None:
        for message in messages:
            self.core.receive_from_node("n", message, 0.0)
            self.core.check_invariants()

    def asked(self) -> list[tuple[int, bool]]:
        """(attempt, running) of what the node was asked to cancel."""
        return [(message.attempt, message.running) for _, message in self.outbox.take(m.CancelAttempt)]

    def not_cancelled(self) -> list[int]:
        return [message.task for _, message in self.outbox.take(m.NotCancelled)]


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
    rig.node(m.AttemptRuns("j", 2))
    assert (rig.asked(), rig.not_cancelled()) == ([(2, False)], [1])
    rig.client(TASKS)
    assert (rig.asked(), rig.not_cancelled()) == ([(1, False)], [1])
    rig.node(m.AttemptRuns("j", 1))
    rig.client(JOB)
    assert (rig.asked(), rig.not_cancelled()) == ([], [0, 0, 1])


def test_that_an_attempt_ran_before_it_was_to_be_stopped_does_not_start_its_task_again() -> None:
    """The answer to the first question crosses the second: the client is told how the task ended."""
    rig = Rig()
    rig.client(m.CancelTasks("j", [0]), m.CancelTasks("j", [0], running=True))
    rig.node(m.AttemptRuns("j", 1), m.Report("j", 0, 1, TaskStatus.LOST, b"", "its executor died", 0.0, None))
    outcomes = [(outcome.task, outcome.status) for _, outcome in rig.outbox.take(m.Outcome)]
    assert (rig.not_cancelled(), outcomes) == ([], [(0, TaskStatus.CANCELLED)])


def test_an_answer_that_nobody_asked_for_is_ignored() -> None:
    rig = Rig()
    rig.node(m.AttemptRuns("j", 1))
    rig.client(m.CancelTasks("j", [0]))
    assert (rig.asked(), rig.not_cancelled()) == ([(1, False)], [])
