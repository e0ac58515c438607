"""Idle nodes say so to a scheduler: what it makes of it, and what nodes say when."""

from __future__ import annotations

import math
from typing import Any

import pytest

from scheduler.book.waiting import BACKOFF_MAX_S
from scheduler.sampling.idle import ASK_S
from scheduler.sampling.idle_offers import RESERVATIONS_PER_TASK_MAX
from sparrow_py import constraints
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore
from tests.support.recorder import reserve
from tests.support.scheduler_rig import SchedulerRig, node_info


class Scheduler(SchedulerRig):
    """A scheduler with nodes n0, n1, … of two slots, every other one of them in zone eu."""

    def __init__(self, nodes: int) -> None:
        zones = {f"n{node}": {"zone": "us" if node % 2 else "eu"} for node in range(nodes)}
        infos = {node: node_info(2, attributes=attributes) for node, attributes in zones.items()}
        super().__init__(infos, push_to_idle=False)  # Which is what `test_pushing` is about.

    def submit(self, job: str, tasks: int, user: str = "anna", **fields: Any) -> None:
        self.submit_job(tasks, job=job, user=user, **fields)

    def reserved(self) -> dict[str, int]:
        """Reservations by node since the last call."""
        found: dict[str, int] = {}
        for node, message in self.outbox.take(m.Reserve):
            found[node] = found.get(node, 0) + message.count
        return found


def test_a_job_probes_the_nodes_that_said_they_are_idle_and_no_more_of_them_than_it_has_tasks() -> None:
    scheduler = Scheduler(500)
    for node in ("n1", "n3", "n5", "n7"):
        scheduler.node(node, m.Idle(1))
    scheduler.submit("j", 3)
    reserved = scheduler.reserved()
    assert {"n3", "n5", "n7"} <= set(reserved) and sum(reserved.values()) == 6
    scheduler.submit("k", 3)
    assert "n1" in scheduler.reserved()
    assert not scheduler.core.plane.idle.free


def test_the_two_probes_of_a_task_go_to_two_nodes_even_if_one_of_them_said_it_is_idle() -> None:
    scheduler = Scheduler(2)
    for number in range(40):  # By chance alone half of them would do.
        scheduler.node("n0", m.Idle(2))
        scheduler.submit(f"j{number}", 1, f"user{number}")
        assert scheduler.reserved() == {"n0": 1, "n1": 1}


def test_free_slots_of_one_node_count_each() -> None:
    scheduler = Scheduler(500)
    scheduler.node("n1", m.Idle(2))
    scheduler.submit("j", 2)
    reserved = scheduler.reserved()
    assert reserved["n1"] == 2 and sum(reserved.values()) == 4


def test_an_idle_node_gets_a_reservation_of_what_waits_at_once() -> None:
    scheduler = Scheduler(500)
    scheduler.submit("j", 3)
    others = scheduler.reserved()
    node = next(f"n{number}" for number in range(500) if f"n{number}" not in others)
    scheduler.node(node, m.Idle(2))
    assert scheduler.reserved() == {node: 2}
    assert scheduler.core.counters.reservations_idle == 2


def test_users_get_idle_nodes_in_turn() -> None:
    scheduler = Scheduler(50)
    scheduler.submit("a0", 3, "anna")
    scheduler.submit("a1", 3, "anna")
    scheduler.submit("b", 3, "ben")
    scheduler.outbox.take(m.Reserve)
    for number in range(4):
        scheduler.node(f"n{number}", m.Idle(1))
    assert [reserve.job for _, reserve in scheduler.outbox.take(m.Reserve)] == ["a0", "b", "a0", "b"]


def test_an_idle_node_is_used_only_by_what_may_run_there() -> None:
    scheduler = Scheduler(4)
    scheduler.submit("j", 1, where=(constraints.parse("where", "zone == eu"),))
    scheduler.reserved()
    scheduler.node("n1", m.Idle(2))
    assert not scheduler.reserved() and "n1" in scheduler.core.plane.idle.free
    scheduler.node("n2", m.Idle(2))
    assert scheduler.reserved() == {"n2": 1}


def test_a_stage_that_fits_few_nodes_finds_them_among_many_idle_ones() -> None:
    scheduler = Scheduler(9)
    for number in range(1, 9, 2):
        scheduler.node(f"n{number}", m.Idle(1))
    scheduler.node("n4", m.Idle(2))
    scheduler.submit("j", 2, where=(constraints.parse("where", "node in n2, n4"),))
    assert scheduler.reserved()["n4"] >= 2 and "n4" not in scheduler.core.plane.idle.free


def test_a_job_gets_no_more_reservations_on_idle_nodes_than_make_sense() -> None:
    scheduler = Scheduler(50)
    scheduler.submit("j", 1)
    scheduler.reserved()
    for number in range(50):
        scheduler.node(f"n{number}", m.Idle(1), now_s=number)  # None of them asks.
    assert sum(scheduler.reserved().values()) == RESERVATIONS_PER_TASK_MAX


@pytest.mark.parametrize("what_goes", ["an ask", "a node"])
def test_idle_nodes_get_more_reservations_of_a_job_once_one_of_them_asks_or_goes(what_goes: str) -> None:
    scheduler = Scheduler(50)
    scheduler.submit("j", 2)
    (ticket,) = {message.ticket for _, message in scheduler.outbox.take(m.Reserve)}
    for number in range(50):
        scheduler.node(f"n{number}", m.Idle(1), now_s=number)
    told = scheduler.reserved()
    assert sum(told.values()) == 2 * RESERVATIONS_PER_TASK_MAX
    node = next(iter(told))
    if what_goes == "an ask":
        scheduler.node(node, m.GetTasks(1, ticket, 1), now_s=60)
        assert scheduler.core.jobs["j"].stages[0].plan.unasked == 2 * RESERVATIONS_PER_TASK_MAX - 1
        return
    scheduler.node_down(node, 60)
    scheduler.reserved()
    scheduler.node("n49", m.Idle(1), now_s=70)
    assert scheduler.reserved() == {"n49": 1}


def test_an_idle_node_is_used_however_many_reservations_wait_at_busy_ones() -> None:
    """Else a node would idle as long as the tasks of another last."""
    scheduler = Scheduler(2)
    scheduler.submit("j", 1, probe_ratio=2.0 * RESERVATIONS_PER_TASK_MAX)
    reserves = scheduler.reserves()
    refused = m.ReservationsRefused(reserves["n1"].ticket, reserves["n1"].count, "no room")
    scheduler.node("n1", refused)
    assert scheduler.core.live_reservations("n0") == 2 * RESERVATIONS_PER_TASK_MAX
    scheduler.tick(BACKOFF_MAX_S)
    scheduler.reserved()
    scheduler.node("n1", m.Idle(1), now_s=BACKOFF_MAX_S)
    assert scheduler.reserved() == {"n1": 1}


def test_while_idle_nodes_are_about_to_ask_no_others_get_a_reservation_for_the_same_tasks() -> None:
    scheduler = Scheduler(50)
    for number in range(10):
        scheduler.node(f"n{number}", m.Idle(1))
    scheduler.submit("j", 2)
    ticket = {node: message.ticket for node, message in scheduler.outbox.take(m.Reserve)}
    assert {"n8", "n9"} <= set(ticket)
    scheduler.node("n20", m.Idle(1), now_s=ASK_S)
    assert not scheduler.reserved()
    scheduler.node("n9", m.GetTasks(1, ticket["n9"], 1), now_s=ASK_S)  # One asks, the other does not.
    scheduler.node("n21", m.Idle(1), now_s=ASK_S)
    assert not scheduler.reserved()
    scheduler.node("n22", m.Idle(1), now_s=2.5 * ASK_S)
    assert scheduler.reserved() == {"n22": 1}


def chosen_idle_node(scheduler: Scheduler) -> str:
    """Job j, of one task, gets a reservation on a node that has said that it is idle; returns the node."""
    scheduler.node("n1", m.Idle(1))
    scheduler.submit("j", 1)
    assert "n1" in scheduler.reserved()
    return "n1"


def after(wait_s: float) -> float:
    """A moment later than that: a promise has lapsed only when its time is over."""
    return math.nextafter(wait_s, math.inf)


def test_a_node_that_idles_while_another_is_about_to_ask_is_used_if_that_one_does_not() -> None:
    scheduler = Scheduler(50)
    chosen_idle_node(scheduler)
    scheduler.node("n20", m.Idle(1), now_s=ASK_S / 2)
    scheduler.tick(ASK_S)
    assert not scheduler.reserved()
    scheduler.tick(after(ASK_S))  # No message comes in the meantime.
    assert scheduler.reserved() == {"n20": 1}
    assert not scheduler.core.plane.idle.free


def test_of_nodes_that_idled_before_the_job_came_the_next_is_used_if_the_first_does_not_ask() -> None:
    scheduler = Scheduler(500)
    for node in ("n1", "n3", "n5"):
        scheduler.node(node, m.Idle(1))
    scheduler.submit("j", 1)
    assert "n5" in scheduler.reserved()
    now_s = 0.0
    for node in ("n3", "n1"):
        now_s = after(now_s + ASK_S)
        scheduler.tick(now_s)
        assert scheduler.reserved() == {node: 1}
    scheduler.tick(1.0)
    assert not scheduler.reserved()


def test_a_task_is_pushed_to_a_remembered_node_if_the_one_that_was_promised_does_not_ask() -> None:
    rig = SchedulerRig(f"n{number}" for number in range(50))
    rig.submit_job()
    probed = list(rig.reserves())
    remembered = next(node for node in map("n{}".format, range(50)) if node not in probed)
    rig.node(probed[0], m.Idle(1))  # It has a reservation of the job already, so that nothing is pushed to it.
    rig.node(remembered, m.Idle(1), now_s=ASK_S / 2)
    assert not rig.outbox.take(m.LaunchNow)
    rig.tick(after(ASK_S))
    assert [node for node, _ in rig.outbox.take(m.LaunchNow)] == [remembered]


def test_a_promise_that_was_kept_leaves_the_remembered_node_to_the_next_job() -> None:
    scheduler = Scheduler(50)
    node = chosen_idle_node(scheduler)
    (ticket,) = scheduler.core.jobs["j"].stages[0].plan.tickets
    scheduler.node("n20", m.Idle(1), now_s=ASK_S / 2)
    scheduler.node(node, m.GetTasks(1, ticket, 1), now_s=ASK_S / 2)
    scheduler.tick(1.0)
    assert not scheduler.reserved() and list(scheduler.core.plane.idle.free) == ["n20"]


def test_a_later_promise_gives_the_earlier_one_its_time_too() -> None:
    scheduler = Scheduler(50)
    scheduler.submit("j", 2)
    scheduler.reserved()
    scheduler.node("n1", m.Idle(1))
    scheduler.node("n2", m.Idle(1), now_s=ASK_S / 2)
    scheduler.node("n3", m.Idle(1), now_s=ASK_S / 2)
    assert scheduler.reserved() == {"n1": 1, "n2": 1}
    scheduler.tick(after(ASK_S))
    assert not scheduler.reserved()
    scheduler.tick(after(1.5 * ASK_S))
    assert scheduler.reserved() == {"n3": 1}


def test_a_stage_has_one_timer_at_most_for_its_promises_and_none_if_no_node_idles() -> None:
    scheduler = Scheduler(50)
    scheduler.submit("j", 20)
    timers = scheduler.core.book.ledger.timers
    for number in range(20):
        scheduler.node(f"n{number}", m.Idle(1), now_s=number * ASK_S / 100)
    assert not timers
    for number in range(20, 30):
        scheduler.node(f"n{number}", m.Idle(1), now_s=ASK_S / 2)
    assert len(timers) == 1


@pytest.mark.parametrize("how", ["the job ends", "the remembered node goes"])
def test_a_promise_that_lapses_when_nothing_is_left_to_do_does_nothing(how: str) -> None:
    scheduler = Scheduler(50)
    chosen_idle_node(scheduler)
    scheduler.node("n20", m.Idle(1), now_s=ASK_S / 2)
    if how == "the job ends":
        scheduler.client(m.CancelTasks("j", [0], False), now_s=ASK_S / 2)
    else:
        scheduler.node_down("n20", ASK_S / 2)
    scheduler.reserved()
    scheduler.tick(1.0)
    assert not scheduler.reserved()


@pytest.mark.parametrize("how", ["gone", "cordoned"])
def test_a_node_that_goes_is_idle_no_more(how: str) -> None:
    scheduler = Scheduler(2)
    scheduler.node("n0", m.Idle(2))
    if how == "gone":
        scheduler.core.node_down("n0", 0.0)
    else:
        scheduler.node("n0", m.NodeState(m.CORDONED, ""))
    assert not scheduler.core.plane.idle.free
    scheduler.submit("j", 1)
    assert set(scheduler.reserved()) == {"n1"}


def test_a_node_that_says_it_has_more_free_slots_than_slots_gets_no_more_for_it() -> None:
    scheduler = Scheduler(500)
    scheduler.node("n1", m.Idle(1_000_000))
    scheduler.submit("j", 100)
    assert 2 <= scheduler.reserved()["n1"] <= 3  # Its slots, and perhaps one by chance.
    scheduler.node("n3", m.Idle(1_000_000), now_s=1.0)
    assert scheduler.reserved() == {"n3": 2}


def test_an_idle_node_has_a_free_slot() -> None:
    with pytest.raises(LinkError, match="0 free slots"):
        Scheduler(1).node("n0", m.Idle(0))


class Node(NodeCore):
    """A node monitor of schedulers s0, s1, … with one executor of as many places as it has slots."""

    def __init__(self, slots: int = 1, schedulers: int = 1, **options: Any) -> None:
        super().__init__(slots, [MANY], schedulers=[f"s{number}" for number in range(schedulers)], **options)
        self.settle()

    def run_task(self, scheduler: str, ask: int, run: int) -> None:
        """A task of the scheduler comes and ends."""
        self.receive(reserve(run), scheduler=scheduler)
        self.receive(m.Launch(ask, f"j{run}", 0, 0, run, b""), scheduler=scheduler)
        self.done("p0", run)

    def said(self) -> list[tuple[str, int]]:
        """To whom it said that it is idle since the last call, with how many free slots."""
        return [(to, message.free) for to, message in self.outbox.take(m.Idle)]


def test_a_node_says_once_that_it_is_idle() -> None:
    node = Node(2)
    assert node.said() == [("s0", 2)]
    node.settle()
    assert not node.said()


def test_it_says_so_again_after_a_task_to_the_scheduler_whose_task_has_ended() -> None:
    node = Node(schedulers=3)
    node.said()
    for run, scheduler in enumerate(("s2", "s2", "s0", "s1"), 1):
        node.run_task(scheduler, run, run)
        assert node.said() == [(scheduler, 1)]


def test_after_an_ask_in_vain_it_tells_another() -> None:
    node = Node(schedulers=2)
    node.run_task("s0", 1, 1)
    node.said()
    told = set()
    for number in range(2, 4):
        node.receive(reserve(number), scheduler="s0")
        node.receive(m.NoTask(number, 1), scheduler="s0")
        told |= set(node.said())
    assert told == {("s0", 1), ("s1", 1)}


def test_it_is_not_idle_while_something_is_queued() -> None:
    node = Node(2)
    node.said()
    node.receive(reserve(1, 3), scheduler="s0")
    assert not node.said()


def test_each_slot_that_comes_free_is_told() -> None:
    node = Node(2)
    node.receive(reserve(1, 2), scheduler="s0")
    node.launches(1, 2, ask=1, scheduler="s0")
    node.said()
    for run, free in ((1, 1), (2, 2)):
        node.done("p0", run)
        assert node.said() == [("s0", free)]


def test_a_cordoned_node_says_nothing_until_it_takes_part_again() -> None:
    node = Node()
    node.said()
    node.core.cordon(0.0)
    node.run_task("s0", 1, 1)
    assert not node.said()
    node.core.uncordon(0.0)
    node.settle()
    assert node.said() == [("s0", 1)]


def test_when_a_scheduler_goes_another_is_told() -> None:
    node = Node(schedulers=2)
    (told,) = node.said()
    node.core.scheduler_down(told[0], 0.0)
    node.settle()
    assert [to for to, _ in node.said()] == [name for name in ("s0", "s1") if name != told[0]]


def test_it_can_be_turned_off() -> None:
    node = Node(report_idle=False)
    node.run_task("s0", 1, 1)
    assert not node.said()
