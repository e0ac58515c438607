"""Reservations: where they are made, how many are live, and what nodes make of them."""

from __future__ import annotations

import pytest

from scheduler.book.waiting import BACKOFF_MAX_S, BACKOFF_S
from sparrow_py.errors import InvariantViolated, LinkError
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig


def rig_of(nodes: int, **options: object) -> SchedulerRig:
    return SchedulerRig([f"n{number}" for number in range(nodes)], **options)


def live(rig: SchedulerRig) -> int:
    return sum(rig.core.live_reservations(node.id) for node in rig.core.nodes.all())


def test_a_stage_has_d_reservations_for_each_unplaced_task() -> None:
    rig = rig_of(20)
    rig.submit_job(3, probe_ratio=2.0)
    assert sum(reserve.count for reserve in rig.take(m.Reserve)) == live(rig) == 6


def test_a_refused_reservation_is_made_at_another_node() -> None:
    rig = rig_of(3)
    rig.submit_job(1, probe_ratio=1.0)
    ((node, reserve),) = rig.reserves().items()
    rig.node(node, m.ReservationsRefused(reserve.ticket, 1, "full"))
    ((other, _),) = rig.reserves().items()
    assert other != node and live(rig) == 1


def test_when_all_nodes_refuse_they_are_tried_again_after_ever_longer() -> None:
    rig = rig_of(1)
    rig.submit_job(1, probe_ratio=1.0)
    waits, now_s = [], 0.0
    for _ in range(9):
        (reserve,) = rig.take(m.Reserve)
        rig.node("n0", m.ReservationsRefused(reserve.ticket, 1, "full"), now_s=now_s)
        at_s = rig.core.jobs["j"].stages[0].search.retry_at_s
        assert at_s is not None
        waits.append(at_s - now_s)
        now_s = at_s
        rig.tick(now_s)
    assert BACKOFF_S / 2 <= waits[0] <= BACKOFF_S
    assert all(BACKOFF_MAX_S / 2 <= wait_s <= BACKOFF_MAX_S for wait_s in waits[-2:])


def test_a_node_that_refused_gets_its_share_again_after_a_while_though_others_have_all_reservations() -> None:
    """They may be queued behind tasks that run for hours, while this node has nothing to do."""
    rig = rig_of(2)
    rig.submit_job(1, probe_ratio=2.0)
    first = rig.reserves()
    assert set(first) == {"n0", "n1"}
    now_s = 0.0
    for _ in range(3):
        rig.node("n0", m.ReservationsRefused(first["n0"].ticket, 1, "executors die here"), now_s=now_s)
        assert "n0" not in rig.reserves()
        rig.tick(now_s + BACKOFF_MAX_S * 0.99)
        assert not rig.take(m.Reserve)
        now_s += BACKOFF_MAX_S
        rig.tick(now_s)
        again = rig.reserves()
        assert {node: reserve.count for node, reserve in again.items()} == {"n0": 1}
    rig.node("n0", m.GetTasks(1, again["n0"].ticket, 1), now_s=now_s)
    assert rig.core.jobs["j"].stages[0].unplaced == 0


def test_a_stage_that_has_no_task_left_does_not_turn_to_a_node_that_refused() -> None:
    rig = rig_of(2)
    rig.submit_job(1, probe_ratio=2.0)
    reserves = rig.reserves()
    rig.node("n0", m.ReservationsRefused(reserves["n0"].ticket, 1, "executors die here"))
    rig.node("n1", m.GetTasks(1, reserves["n1"].ticket, 1))
    rig.take(m.Reserve)
    rig.tick(BACKOFF_MAX_S)
    assert not rig.take(m.Reserve)


def test_more_refused_than_was_reserved_is_no_more_than_was_reserved() -> None:
    rig = rig_of(2)
    rig.submit_job(1, probe_ratio=1.0)
    ((node, reserve),) = rig.reserves().items()
    rig.node(node, m.ReservationsRefused(reserve.ticket, 5, "full"))
    assert live(rig) == 1
    with pytest.raises(LinkError, match="takes 0 reservations"):
        rig.node(node, m.ReservationsRefused(reserve.ticket, 0, "full"))


def test_what_was_reserved_at_a_node_that_goes_is_reserved_elsewhere() -> None:
    rig = rig_of(4)
    rig.submit_job(2, probe_ratio=2.0)
    rig.take(m.Reserve)
    rig.node_down("n2")
    assert live(rig) == 4 and "n2" not in rig.reserves()


@pytest.mark.parametrize("stays", [False, True])
def test_a_node_that_drains_again_and_again_leaves_no_tickets_behind(stays: bool) -> None:
    """A stage waits meanwhile. Tickets that have reservations elsewhere stay, as those are yet to be spent."""
    rig = SchedulerRig(["a", "b"] if stays else ["a"])
    rig.submit_job(10, probe_ratio=2.0, wait_for_nodes_s=1e6)
    probing = rig.core.plane.probing  # type: ignore[attr-defined]
    for _ in range(50):
        rig.node("a", m.NodeState(m.DRAINING, ""), m.NodeState(m.READY, ""))
        assert len(probing.tickets) <= live(rig) and len(probing.dropped) <= live(rig)
        assert set(probing.tickets) == set(rig.core.jobs["j"].stages[0].plan.tickets)
    for node, reserve in rig.outbox.take(m.Reserve)[-2:]:
        rig.node(node, m.GetTasks(1, reserve.ticket, 10))
    rig.client(m.CancelJob("j"))
    assert not probing.tickets and rig.core.plane.left_over() == ""


def test_an_ask_that_crossed_the_news_of_a_drain_gets_no_task_once_its_ticket_is_forgotten() -> None:
    rig = SchedulerRig(["a"])
    rig.submit_job(2, probe_ratio=2.0, wait_for_nodes_s=10.0)
    (before,) = rig.take(m.Reserve)
    rig.node("a", m.NodeState(m.DRAINING, ""), m.NodeState(m.READY, ""))
    (after,) = rig.take(m.Reserve)
    rig.node("a", m.ReservationsRefused(before.ticket, 1, "full"), m.GetTasks(1, before.ticket, 1))
    assert rig.take(m.NoTask) == [m.NoTask(1, 1)] and live(rig) == after.count
    rig.node("a", m.GetTasks(2, after.ticket, 2))
    assert len(rig.take(m.Launch)) == 2


def test_a_node_that_comes_gets_its_share_of_what_waits_once() -> None:
    rig = rig_of(1)
    rig.submit_job(40, probe_ratio=2.0)
    rig.take(m.Reserve)
    rig.node_up("late")
    assert 40 <= sum(reserve.count for reserve in rig.take(m.Reserve)) <= 41
    rig.node("late", m.NodeState(m.READY, ""))
    assert not rig.take(m.Reserve)


def test_reservations_of_another_ticket_are_found_to_be_wrong() -> None:
    rig = rig_of(2)
    rig.submit_job(1, probe_ratio=2.0)
    rig.core.plane.probing.tickets_at["n0"].clear()  # type: ignore[attr-defined]
    with pytest.raises(InvariantViolated, match="reservations at node n0, which does not"):
        rig.core.check_invariants()


def test_a_stage_without_reservations_that_does_not_wait_is_found() -> None:
    rig = rig_of(2)
    rig.submit_job(1, probe_ratio=1.0)
    plan = rig.core.jobs["j"].stages[0].plan
    for ticket in plan.tickets.values():
        for node in ticket.live:
            rig.core.plane.probing.tickets_at[node].clear()  # type: ignore[attr-defined]
        ticket.live.clear()
    plan.live = 0
    with pytest.raises(InvariantViolated, match="does not wait for nodes"):
        rig.core.check_invariants()
