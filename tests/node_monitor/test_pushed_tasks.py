"""Direct placement at a node: tasks that a scheduler pushes, each with the reservation that follows it."""

from __future__ import annotations

from typing import Any

import pytest

from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore
from tests.support.recorder import reserve


class Rig(NodeCore):
    """A node of one executor, of the app "many", with a place for each slot."""

    def __init__(self, slots: int = 1, **options: Any) -> None:
        super().__init__(slots, [MANY], schedulers="st", **options)

    def push(self, *attempts: int, ticket: int = 1, scheduler: str = "s", job: str = "j", **fields: Any) -> None:
        launches = [m.Launch(0, job, 0, attempt, attempt, b"%d" % attempt, ticket=ticket) for attempt in attempts]
        common = m.Common(job, 0, b"")
        self.receive(common, *launches, reserve(ticket, len(attempts), **fields), scheduler=scheduler)

    def started(self) -> list[bytes]:
        return [run.payload for run in self.take(x.Run)]


def test_a_pushed_task_starts_without_an_ask_as_soon_as_a_slot_is_free() -> None:
    rig = Rig(slots=2)
    rig.push(1, 2, 3)
    assert rig.started() == [b"1", b"2"]
    rig.done("p0", 1)
    assert rig.started() == [b"3"]
    assert not rig.take(m.GetTasks)


def test_pushed_tasks_share_the_node_by_user_with_reservations() -> None:
    """Two users, each with two: one's tasks are pushed, the other's are asked for."""
    rig = Rig()
    rig.push(1, 2, user="ann")
    rig.receive(reserve(2, 2, user="bob"), scheduler="t")
    assert rig.started() == [b"1"]
    rig.done("p0", 1)
    assert [ask.ticket for ask in rig.take(m.GetTasks)] == [2]


def test_a_task_whose_reservation_is_late_waits_for_it() -> None:
    rig = Rig()
    rig.receive(m.Common("j", 0, b""), m.Launch(0, "j", 0, 1, 1, b"1", ticket=1))
    assert not rig.started() and not rig.take(m.GetTasks)
    rig.receive(reserve(1, 1))
    assert rig.started() == [b"1"]


def test_what_a_full_queue_refuses_is_handed_back() -> None:
    rig = Rig(reservations_per_user_max=3)
    rig.push(1, 2, 3, 4, 5)
    assert rig.started() == [b"1"]
    assert [back.attempt for back in rig.take(m.HandBack)] == [4, 5]
    assert [refused.count for refused in rig.take(m.ReservationsRefused)] == [2]


def test_an_app_that_is_not_there_hands_back_all() -> None:
    rig = Rig()
    rig.push(1, 2, app="none")
    assert [back.attempt for back in rig.take(m.HandBack)] == [1, 2]


def test_a_pushed_task_that_waits_can_be_cancelled_and_its_reservation_goes_with_it() -> None:
    rig = Rig()
    rig.push(1, 2)
    rig.receive(m.CancelAttempt("j", 2))
    (report,) = rig.take(m.Report)
    assert (report.attempt, report.status, report.started_at_s) == (2, TaskStatus.CANCELLED, None)
    rig.started()
    rig.done("p0", 1)
    assert not rig.started() and not rig.take(m.GetTasks) and not len(rig.core.queue)


@pytest.mark.parametrize("draining", ["before", "after"])
def test_a_draining_node_hands_back_what_waits(draining: str) -> None:
    rig = Rig()
    if draining == "before":
        rig.core.drain(0.0)
        rig.push(1, 2)
    else:
        rig.push(1, 2)
        rig.core.drain(0.0)
    rig.core.check_invariants()
    assert [back.attempt for back in rig.take(m.HandBack)] == ([1, 2] if draining == "before" else [2])


def test_what_a_lost_scheduler_had_pushed_is_gone() -> None:
    rig = Rig()
    rig.push(1, 2)
    assert rig.started() == [b"1"]
    rig.core.scheduler_down("s", 0.0)
    rig.done("p0", 1)
    assert not rig.started()


def test_what_another_scheduler_claims_is_not_started_for_the_first() -> None:
    rig = Rig()
    rig.push(1, 2)
    rig.started()
    rig.receive(m.Claim("j", "anna", 1), scheduler="t")
    assert [(back.attempt, back.reason) for back in rig.take(m.HandBack)] == [(2, "another scheduler has the job")]
    assert [to for to, _ in rig.outbox.take(m.Fenced)] == ["s", "s"]
    rig.push(3)  # The first one has not read that yet.
    rig.done("p0", 1)
    rig.core.pump(0.0)
    assert b"3" not in rig.started()


def test_a_job_that_is_forgotten_leaves_nothing_to_start() -> None:
    rig = Rig()
    rig.push(1, 2)
    rig.receive(m.ForgetJob("j"))
    rig.done("p0", 1)
    assert rig.started() == [b"1"]


def test_the_length_of_a_queue_counts_what_runs_and_what_waits() -> None:
    rig = Rig(slots=2)
    rig.receive(m.AskLength(7))
    rig.push(1, 2, 3, 4, 5)
    rig.receive(m.AskLength(8))
    assert rig.take(m.QueueLength) == [m.QueueLength(7, 0), m.QueueLength(8, 5)]
