"""Reservations of a stage whose last task is placed: the user's oldest stage of the kind takes them, or they go."""

from __future__ import annotations

import pytest

from scheduler.sampling.surplus import SHARED_PER_TASK_MAX
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig


def rig_of(nodes: int = 4, **options: object) -> SchedulerRig:
    return SchedulerRig([f"n{number}" for number in range(nodes)], **options)


def place_one(rig: SchedulerRig, reserves: dict[str, m.Reserve]) -> str:
    """The first of the nodes asks for a task; returns its name."""
    node, reserve = next(iter(reserves.items()))
    rig.node(node, m.GetTasks(1, reserve.ticket, 1))
    assert len(rig.take(m.Launch)) == 1
    return node


def submit(rig: SchedulerRig, job: str, **fields: object) -> dict[str, m.Reserve]:
    rig.submit_job(1, job=job, **{"probe_ratio": 4.0, **fields})
    return rig.reserves()


@pytest.mark.parametrize("cancellation", [True, False])
def test_what_nobody_takes_over_is_cancelled_if_the_operator_wants_that(cancellation: bool) -> None:
    """Else the nodes ask for them one day, and there is no such ticket."""
    rig = rig_of(cancellation=cancellation)
    reserves = submit(rig, "j")
    node = place_one(rig, reserves)
    others = set(reserves) - {node}
    assert {to for to, _ in rig.outbox.take(m.CancelReservations)} == (others if cancellation else set())
    assert rig.core.counters.reservations_cancelled == (3 if cancellation else 0)
    late = others.pop()
    rig.node(late, m.GetTasks(2, reserves[late].ticket, 1))
    assert rig.take(m.NoTask) == [m.NoTask(2, 1)]


def test_the_users_oldest_stage_of_the_kind_takes_them_over() -> None:
    rig = rig_of()
    first = submit(rig, "first")
    submit(rig, "second")
    submit(rig, "third")
    node = place_one(rig, first)
    assert not rig.take(m.CancelReservations) and rig.core.counters.reservations_shared == 3
    live = {job: rig.core.jobs[job].stages[0].plan.live for job in ("first", "second", "third")}
    assert live == {"first": 0, "second": 7, "third": 4}
    heir = next(one for one in first if one != node)
    rig.node(heir, m.GetTasks(2, first[heir].ticket, 1))
    assert [launch.job for launch in rig.take(m.Launch)] == ["second"]


@pytest.mark.parametrize("other", [{"user": "bert"}, {"app": "other"}, {"prefetch": 1}])
def test_another_user_or_kind_takes_nothing_over(other: dict[str, object]) -> None:
    rig = rig_of(0)
    for number in range(4):
        rig.node_up(f"n{number}", m.NodeInfo(4, {}, {}, {"many": "", "other": ""}))
    first = submit(rig, "first")
    submit(rig, "second", **other)
    place_one(rig, first)
    assert rig.core.counters.reservations_shared == 0 and len(rig.take(m.CancelReservations)) == 3


def test_without_probe_sharing_nobody_takes_them_over() -> None:
    rig = rig_of(probe_sharing=False)
    first = submit(rig, "first")
    submit(rig, "second")
    place_one(rig, first)
    assert rig.core.counters.reservations_shared == 0 and len(rig.take(m.CancelReservations)) == 3


def test_one_stage_takes_no_more_over_than_its_tasks_can_use() -> None:
    rig = rig_of(20)
    first = submit(rig, "first", probe_ratio=20.0)
    submit(rig, "second", probe_ratio=2.0)
    place_one(rig, first)
    assert rig.core.jobs["second"].stages[0].plan.live == SHARED_PER_TASK_MAX
    assert len(rig.take(m.CancelReservations)) == 20 - 1 - (SHARED_PER_TASK_MAX - 2)


def test_a_job_that_leaves_gives_its_reservations_up_as_if_all_were_placed() -> None:
    rig = rig_of()
    submit(rig, "first")
    submit(rig, "second")
    rig.client(m.CancelJob("first"))
    assert rig.core.jobs["second"].stages[0].plan.live == 8
    rig.client(m.CancelJob("second"))
    assert len(rig.take(m.CancelReservations)) == 8 and rig.core.plane.left_over() == ""


def test_reservations_stay_while_tasks_are_on_their_way() -> None:
    rig = rig_of()
    rig.client(m.SubmitJob("j", 0, "", [m.Stage("many", 2, b"", "", 4.0, 0, None)], 3, False, None, False))
    rig.client(m.AddTasks("j", 0, [b"p"]))
    place_one(rig, rig.reserves())
    assert not rig.take(m.CancelReservations)
    assert sum(rig.core.live_reservations(f"n{number}") for number in range(4)) == 3
    rig.client(m.AddTasks("j", 1, [b"p"]))
    assert rig.core.jobs["j"].stages[0].plan.live == 4
