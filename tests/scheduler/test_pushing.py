"""A scheduler pushes tasks to slots of which nodes have said that they are free (`push_to_idle`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.sampling.pushing import PUSHED_BYTES_MAX
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info, ref

MANY = tuple(f"n{number}" for number in range(20))
"""More nodes than jobs of a few tasks have reservations."""
FINISHED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.CANCELLED, TaskStatus.LOST


class Rig(SchedulerRig):
    """A scheduler with nodes of four slots."""

    def __init__(self, *nodes: str, **options: Any) -> None:
        super().__init__(nodes or ("a", "b"), push_to_idle=True, **options)

    def submit(self, tasks: int = 1, job: str = "j", **fields: Any) -> None:
        self.submit_job(tasks, job=job, **{"max_attempts": 3, **fields})

    def unreserved(self, free: int = 1) -> str:
        """A node that has no reservation says that it is idle; its name."""
        node = next(one.id for one in self.core.nodes.all() if not self.core.plane.live_reservations(one.id))
        self.node(node, m.Idle(free))
        return node

    def pushed(self) -> list[tuple[str, m.LaunchNow]]:
        return self.outbox.take(m.LaunchNow)

    def reserved(self) -> int:
        return sum(reserve.count for reserve in self.take(m.Reserve))

    def report(self, node: str, launch: Any, status: TaskStatus = FINISHED) -> None:
        self.node(node, m.Report(launch.job, launch.task, launch.attempt, status, b"r", "", 0.0, 0.1))

    def hand_back(self, node: str, launch: Any) -> None:
        self.node(node, m.HandBack(launch.job, launch.attempt, "it is not idle"))


# ---- what is pushed ------------------------------------------------------------------------------


def test_a_task_goes_straight_to_a_slot_that_is_known_to_be_free() -> None:
    rig = Rig()
    rig.node("b", m.Idle(1))
    rig.submit()
    ((node, launch),) = rig.pushed()
    assert (node, launch.payload, launch.user, launch.app) == ("b", b"p", "anna", "many")
    assert not rig.reserved()
    rig.report("b", launch)
    assert rig.outcomes() == [(0, FINISHED, 1)]


def test_the_common_bytes_of_a_stage_come_before_its_first_task_and_once() -> None:
    rig = Rig()
    rig.node("a", m.Idle(2))
    rig.submit(2)
    sent = [type(message) for to, message in rig.outbox.sent if to == "a"]
    assert sent == [m.Common, m.LaunchNow, m.LaunchNow]


def test_no_more_is_pushed_than_slots_were_said_to_be_free_and_the_rest_is_probed_for() -> None:
    rig = Rig()
    rig.node("a", m.Idle(2))
    rig.node("b", m.Idle(1))
    rig.submit(5)
    assert sorted(node for node, _ in rig.pushed()) == ["a", "a", "b"]
    assert rig.reserved() == 4
    rig.submit(1, job="k")
    assert not rig.pushed()


def test_slots_that_are_left_over_are_for_the_next_job() -> None:
    rig = Rig()
    rig.node("a", m.Idle(3))
    rig.submit(1)
    rig.submit(2, job="k")
    assert [launch.job for _, launch in rig.pushed()] == ["j", "k", "k"]


def test_a_node_that_says_twice_that_it_is_idle_gets_no_more_for_it() -> None:
    rig = Rig()
    rig.node("a", m.Idle(2), m.Idle(2))
    rig.submit(4)
    assert len(rig.pushed()) == 2


def test_a_node_that_says_it_has_more_free_slots_than_slots_gets_no_more_than_those() -> None:
    rig = Rig()
    rig.node("a", m.Idle(100))
    rig.submit(10)
    assert len(rig.pushed()) == 4


def test_tasks_that_wait_go_to_a_node_that_says_it_is_idle() -> None:
    rig = Rig(*MANY)
    rig.submit(2)
    assert rig.reserved() == 4
    first = rig.unreserved()
    assert [(node, launch.task) for node, launch in rig.pushed()] == [(first, 0)]
    second = rig.unreserved(4)
    assert [(node, launch.task) for node, launch in rig.pushed()] == [(second, 1)]
    assert rig.take(m.CancelReservations)
    rig.submit(3, job="k")
    assert [node for node, _ in rig.pushed()] == [second] * 3


def test_of_the_jobs_that_wait_that_with_the_least_work_has_the_slot_unless_the_order_is_another() -> None:
    for order, first in (("shortest", "k"), ("oldest", "j"), ("reserved", "j")):
        rig = Rig(*MANY, order=order)
        rig.submit(5)
        rig.submit(2, job="k")
        rig.unreserved()
        assert [launch.job for _, launch in rig.pushed()] == [first], order


# ---- what is not pushed --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"max_attempts": 1},
        {"prefetch": 1},
        {"demand": {"cpu": 1.0}},
        {"common": b"c" * (PUSHED_BYTES_MAX + 1)},
        {"common": ref("c", "n:1")},
        {"payloads": [b"p" * (PUSHED_BYTES_MAX + 1)]},
        {"payloads": [ref("d", "n:1")]},
        {"local": True, "details": {0: m.TaskDetail(("a",))}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_late_binding_stays_for(fields: dict[str, Any]) -> None:
    rig = Rig()
    rig.node_up("c", node_info(resources={"cpu": 4.0}))
    for node in "abc":
        rig.node(node, m.Idle(1))
    rig.submit(1, **fields)
    assert rig.reserved() >= 1 and not rig.pushed()
    rig.node("a", m.Idle(1))
    assert not rig.pushed()


def test_jobs_that_avoid_each_other_are_not_pushed() -> None:
    rig = Rig()
    rig.submit(1)
    rig.submit(1, job="k", avoid=("j",))
    rig.node("a", m.Idle(2))
    assert not rig.pushed()


def test_a_task_that_is_too_large_to_be_pushed_is_probed_for_with_those_after_it() -> None:
    rig = Rig()
    rig.node("a", m.Idle(4))
    rig.submit(3, payloads=[b"p", b"p" * (PUSHED_BYTES_MAX + 1), b"p"])
    assert [launch.task for _, launch in rig.pushed()] == [0]
    assert rig.reserved() == 4


def test_nothing_is_pushed_unless_the_option_is_on() -> None:
    rig = SchedulerRig(["a"], push_to_idle=False)
    rig.node("a", m.Idle(4))
    rig.submit_job(1, max_attempts=3)
    assert not rig.take(m.LaunchNow) and rig.take(m.Reserve)


# ---- handed back ---------------------------------------------------------------------------------


def test_what_is_handed_back_is_probed_for_and_was_no_start() -> None:
    rig = Rig(*MANY)
    for back in range(5):  # More often than it may start.
        rig.unreserved()
        if not back:
            rig.submit(1, max_attempts=2)
        ((node, launch),) = rig.pushed()
        rig.hand_back(node, launch)
        assert rig.reserved() == 2
        rig.outbox.sent.clear()
    (ticket,) = rig.core.plane.probing.tickets
    node = next(iter(rig.core.plane.probing.tickets[ticket].live))
    rig.node(node, m.GetTasks(1, ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.report(node, launch)
    assert rig.outcomes() == [(0, FINISHED, 1)]
    assert (rig.core.counters.pushes, rig.core.counters.pushes_handed_back) == (5, 5)


def test_a_hand_back_that_has_another_reason_counts_for_asks_not_for_pushes() -> None:
    rig = Rig("a")
    rig.submit(1)
    (reserve,) = rig.take(m.Reserve)
    rig.node("a", m.GetTasks(1, reserve.ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.hand_back("a", launch)
    assert (rig.core.counters.handed_back, rig.core.counters.pushes_handed_back) == (1, 0)


def test_nothing_is_pushed_to_a_node_that_has_our_reservation_even_if_it_says_that_it_is_idle() -> None:
    """It had nothing queued when it said so; what is pushed would come after the reservation, and be handed back. Then
    the reservation is cancelled, the node is idle again, and so on for ever."""
    rig = Rig("a")
    rig.node("a", m.Idle(1))
    rig.submit()
    ((_, launch),) = rig.pushed()
    rig.hand_back("a", launch)
    (reserve,) = rig.take(m.Reserve)
    rig.node("a", m.Idle(1))
    assert not rig.pushed() and not rig.take(m.CancelReservations)
    rig.submit(job="k")
    assert not rig.pushed()
    rig.node("a", m.GetTasks(1, reserve.ticket, 1))
    assert rig.take(m.Launch)


def test_a_task_that_is_handed_back_goes_to_the_next_slot_that_is_known_to_be_free() -> None:
    rig = Rig()
    rig.node("a", m.Idle(1))
    rig.node("b", m.Idle(1))
    rig.submit(1)
    ((first, launch),) = rig.pushed()
    rig.hand_back(first, launch)
    ((second, _),) = rig.pushed()
    assert {first, second} == {"a", "b"}


# ---- what goes wrong meanwhile -------------------------------------------------------------------


def test_a_node_that_dies_with_a_push_in_flight_has_cost_a_start() -> None:
    rig = Rig(*MANY)
    first = rig.unreserved()
    rig.submit(1, max_attempts=2)
    rig.pushed()
    rig.node_down(first)
    second = rig.unreserved()
    ((_, launch),) = rig.pushed()
    rig.node_down(second)
    assert rig.outcomes() == [(0, LOST, 2)]
    assert launch.task == 0


@pytest.mark.parametrize(
    "launch",
    [m.Launch(1, "j", 0, 0, 7, b"p"), m.LaunchNow("j", 0, 0, 7, b"p", "anna", 1.0, 0, "many", None)],
    ids=lambda launch: type(launch).__name__,
)
def test_of_frames_that_were_not_sent_before_the_link_broke_the_driver_tells_that_nothing_started(launch: Any) -> None:
    events: list[Any] = []
    core = SimpleNamespace(
        receive_from_node=lambda node, message, now_s: events.append(message),
        node_down=lambda node, now_s: events.append("down"),
    )
    welcome = m.Welcome(m.PROTOCOL_VERSION, "s", 1 << 20)
    frames = [msgspec.msgpack.encode(batch) for batch in ([welcome], [m.Common("j", 0, b""), launch])]
    no_clients = SimpleNamespace(node_gone=lambda node, now_s: None)
    daemon: Any = SimpleNamespace(clock=lambda: 0.0, _events=core, _task_clients=no_clients)
    link: Any = SimpleNamespace(unsent=frames)
    SchedulerDaemon._node_gone(daemon, "n", link)
    assert events == [m.HandBack("j", 7, "the link broke before it was sent"), "down"]


def test_a_push_that_was_not_sent_before_the_link_broke_has_cost_none() -> None:
    """So does the driver tell the core of frames that it could not send."""
    rig = Rig(*MANY)
    first = rig.unreserved()
    rig.submit(1, max_attempts=2)
    ((_, launch),) = rig.pushed()
    rig.hand_back(first, launch)
    rig.node_down(first)
    second = rig.unreserved()
    ((_, launch),) = rig.pushed()
    rig.report(second, launch)
    assert rig.outcomes() == [(0, FINISHED, 1)]


def test_a_node_that_is_gone_or_drains_or_is_cordoned_is_pushed_nothing() -> None:
    for state in ("gone", m.CORDONED, m.DRAINING):
        rig = Rig()
        rig.node("a", m.Idle(4))
        if state == "gone":
            rig.node_down("a")
        else:
            rig.node("a", m.NodeState(state, ""))
        rig.submit(1)
        assert not rig.pushed() and rig.reserved(), state


def test_what_a_draining_node_hands_back_starts_elsewhere() -> None:
    rig = Rig()
    rig.node("a", m.Idle(1))
    rig.submit(1)
    ((_, launch),) = rig.pushed()
    rig.node("a", m.NodeState(m.DRAINING, ""), m.HandBack("j", launch.attempt, "the node is draining"))
    assert rig.take(m.DrainingKnown)
    assert [node for node, _ in rig.outbox.take(m.Reserve)] == ["b"]


@pytest.mark.parametrize("cancel", [m.CancelJob("j"), m.CancelTasks("j", [0])], ids=["job", "task"])
@pytest.mark.parametrize("answer", ["hand-back", "runs", "report"])
def test_a_task_that_is_cancelled_while_its_push_is_in_flight(cancel: Any, answer: str) -> None:
    rig = Rig()
    rig.node("a", m.Idle(1))
    rig.submit(1)
    ((_, launch),) = rig.pushed()
    rig.client(cancel)
    assert rig.outbox.take(m.CancelAttempt) == [("a", m.CancelAttempt("j", launch.attempt, False))]
    if answer == "hand-back":
        rig.hand_back("a", launch)
        assert rig.outcomes() == [(0, CANCELLED, 0)]
        assert not rig.pushed() and not rig.reserved()
        return
    if answer == "runs":
        rig.node("a", m.AttemptRuns("j", launch.attempt))
        assert bool(rig.take(m.NotCancelled))
    rig.report("a", launch)
    assert rig.outcomes() == [(0, FINISHED, 1)]


def test_a_task_whose_starts_its_client_does_not_know_is_not_pushed_before_it_does() -> None:
    rig = Rig()
    rig.node("a", m.Idle(1))
    rig.submit(1, acknowledges=True)
    ((_, launch),) = rig.pushed()
    rig.node("b", m.Idle(1))
    rig.report("a", launch, LOST)
    (counted,) = rig.take(m.Counted)
    assert not rig.pushed() and not rig.reserved()
    rig.client(m.CountKnown("j", counted.starts))
    assert [node for node, _ in rig.pushed()] == ["b"]


def test_a_job_that_is_claimed_is_not_pushed_before_the_nodes_have_answered() -> None:
    rig = Rig("a", settling_s=0.0)
    rig.node("a", m.Idle(4))
    rig.submit(1, epoch=1)
    assert not rig.pushed() and rig.take(m.Claim)
    rig.node("a", m.Claimed("j", 1, []))
    ((_, launch),) = rig.pushed()
    assert launch.attempt >> m.EPOCH_SHIFT == 1


def test_a_client_that_asks_hears_that_a_pushed_task_has_left_the_queue() -> None:
    rig = Rig()
    rig.node("a", m.Idle(1))
    rig.submit(1, report_placed=True)
    assert rig.take(m.Placed) == [m.Placed("j", 0)]
