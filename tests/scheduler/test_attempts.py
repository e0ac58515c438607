"""Attempts begin and end: what a node is sent to start a task, what it is asked, and who hears where tasks are."""

from __future__ import annotations

import pytest

from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, StagedRig

FINISHED, CANCELLED = TaskStatus.FINISHED, TaskStatus.CANCELLED


def launched(rig: StagedRig, tasks: int = 1, **fields: object) -> list[m.Launch]:
    rig.submit(("a", (), tasks), **fields)
    return rig.run()


# ---- they begin ------------------------------------------------------------------------------


def test_attempts_are_numbered_over_all_jobs_and_carry_their_jobs_epoch() -> None:
    rig = SchedulerRig("n", settling_s=0.0)
    rig.submit_job(2, job="a")
    rig.submit_job(1, job="b", epoch=5)
    rig.node("n", m.Claimed("b", 5, []))
    for number, (_, reserve) in enumerate(rig.outbox.take(m.Reserve), 1):
        rig.node("n", m.GetTasks(number, reserve.ticket, 2))
    started = rig.take(m.Launch)
    assert sorted((launch.job, launch.attempt >> m.EPOCH_SHIFT) for launch in started) == [("a", 0), ("a", 0), ("b", 5)]
    assert sorted(launch.attempt & ((1 << m.EPOCH_SHIFT) - 1) for launch in started) == [1, 2, 3]


def test_common_bytes_come_before_the_first_task_of_each_stage_and_once_to_each_node() -> None:
    rig = SchedulerRig("ab", push_to_idle=False)
    rig.submit_job(4, common=b"common")
    for ask, (node, reserve) in enumerate([*rig.reserves().items()] * 2):
        rig.node(node, m.GetTasks(ask, reserve.ticket, 1))
    rig.take(m.CancelReservations)
    for node in "ab":
        assert [type(message) for to, message in rig.outbox.sent if to == node] == [m.Common, m.Launch, m.Launch]


def test_an_input_goes_to_a_node_once() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 2), ("b", ("a",), 2, ("a",)))
    for number, launch in enumerate(rig.run()):
        rig.report(launch, result=b"%d" % number)
    assert [launch.inputs for launch in rig.run()] == [((0, 2),), ((0, 2),)]
    assert rig.take(m.Input) == [m.Input("j", 0, b"0"), m.Input("j", 1, b"1")]


@pytest.mark.parametrize("asked", [True, False])
def test_a_client_hears_of_placing_if_its_job_asks_for_that(asked: bool) -> None:
    rig = SchedulerRig("n")
    rig.submit_job(2, report_placed=asked)
    (reserve,) = rig.take(m.Reserve)
    rig.node("n", m.GetTasks(1, reserve.ticket, 2))
    assert rig.take(m.Placed) == ([m.Placed("j", 0), m.Placed("j", 1)] if asked else [])


# ---- they end --------------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["m", "n"])
def test_only_its_own_node_ends_an_attempt_and_only_once(node: str) -> None:
    rig = StagedRig()
    rig.node_up("m")
    (launch,) = launched(rig)
    rig.report(launch, node=node)
    assert rig.settled() == ([(0, FINISHED)] if node == "n" else [])
    rig.report(launch, node=node)
    assert rig.settled() == [] and bool(rig.core.jobs) == (node == "m")


def test_an_attempt_that_was_never_made_ends_nothing() -> None:
    rig = StagedRig()
    (launch,) = launched(rig)
    rig.node("n", m.Report("j", 0, launch.attempt + 1, FINISHED, b"", "", None, None))
    rig.node("n", m.HandBack("gone", launch.attempt, "no room"))
    assert rig.settled() == [] and not rig.take(m.Reserve)


# ---- they are to be cancelled ------------------------------------------------------------------


def test_a_node_is_asked_to_cancel_at_most_once_and_to_stop_at_most_once() -> None:
    rig = StagedRig()
    (launch,) = launched(rig)
    for _ in range(3):
        rig.client(m.CancelTasks("j", [0], False))
    assert rig.take(m.CancelAttempt) == [m.CancelAttempt("j", launch.attempt, False)]
    for running in (True, True, False):
        rig.client(m.CancelTasks("j", [0], running))
    assert rig.take(m.CancelAttempt) == [m.CancelAttempt("j", launch.attempt, True)]


def test_a_task_that_runs_is_not_cancelled_and_every_further_request_is_answered_so() -> None:
    rig = StagedRig()
    (launch,) = launched(rig)
    rig.client(m.CancelTasks("j", [0], False))
    rig.node("n", m.AttemptRuns("j", launch.attempt))
    assert rig.take(m.NotCancelled) == [m.NotCancelled("j", 0)]
    rig.client(m.CancelTasks("j", [0], False))
    assert rig.take(m.NotCancelled) == [m.NotCancelled("j", 0)] and len(rig.take(m.CancelAttempt)) == 1
    rig.report(launch)
    assert rig.settled() == [(0, FINISHED)]


@pytest.mark.parametrize("when", ["nobody asked", "it is being stopped", "it has ended", "from another node"])
def test_that_an_attempt_runs_is_told_only_to_who_asked_for_its_cancellation(when: str) -> None:
    rig = StagedRig()
    rig.node_up("m")
    (launch,) = launched(rig)
    if when != "nobody asked":
        rig.client(m.CancelTasks("j", [0], when == "it is being stopped"))
    if when == "it has ended":
        rig.report(launch, CANCELLED)
    rig.node("m" if when == "from another node" else "n", m.AttemptRuns("j", launch.attempt))
    assert not rig.take(m.NotCancelled)


# ---- clients ask where tasks are ---------------------------------------------------------------


def test_of_the_tasks_that_a_client_names_those_that_are_placed_are_told() -> None:
    rig = StagedRig()
    rig.client(m.SubmitJob("j", 0, "", [m.Stage("many", 4, b"", "", 1.0, 0, None)], 3, False, None, False))
    rig.client(m.AddTasks("j", 0, [b""] * 3))
    (to, reserve), *_ = rig.outbox.take(m.Reserve)
    rig.node(to, m.GetTasks(1, reserve.ticket, 2))
    rig.report(rig.take(m.Launch)[0])
    rig.client(m.AskPlaced("j", 7, [3, 2, 1, 0]))
    assert rig.take(m.PlacedNow) == [m.PlacedNow("j", 7, [1])], "0 has ended, 2 waits, 3 has not come"


@pytest.mark.parametrize(
    ("tasks", "told"),
    [([4], "there is no task 4; it has 4"), ([-1], "there is no task -1"), ([0] * 100_001, "at most")],
    ids=["too high", "negative", "too many"],
)
def test_a_client_that_asks_for_tasks_that_cannot_be_is_cut_off(tasks: list[int], told: str) -> None:
    rig = StagedRig()
    launched(rig, 4)
    with pytest.raises(LinkError, match=told):
        rig.client(m.AskPlaced("j", 1, tasks))
