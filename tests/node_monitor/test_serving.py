"""Free slots serve the queue: ready tasks start, for other reservations slots ask, and what cannot run waits."""

from __future__ import annotations

import pytest

from node_monitor.executors.executor_state import AppPlan
from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore
from tests.support.recorder import reserve

OTHER = AppPlan("other", one_process=True)


def asked(node: NodeCore) -> list[tuple[int, int]]:
    """(ticket, count) of the asks since the last call."""
    return [(ask.ticket, ask.count) for ask in node.take(m.GetTasks)]


@pytest.mark.parametrize(("slots", "expected"), [(1, [(1, 1)]), (3, [(1, 2), (2, 1)]), (9, [(1, 2), (2, 2)])])
def test_slots_ask_as_far_as_they_go_once_for_each_ticket(slots: int, expected: list[tuple[int, int]]) -> None:
    node = NodeCore(slots, [MANY])
    node.receive(reserve(1, 2), reserve(2, 2, user="anna"))
    assert asked(node) == expected
    assert node.core.free_slots == max(0, slots - 4) and node.core.queue.size == max(0, 4 - slots)


def test_a_reservation_whose_app_has_no_free_place_lets_another_pass() -> None:
    node = NodeCore(2, [MANY, OTHER], executors=0)
    node.core.executor_up("o", "other", 2, 0.0)
    node.receive(reserve(1), reserve(2, app="other"))
    assert asked(node) == [(2, 1)] and node.core.free_slots == 1
    node.core.executor_up("p0", "many", 2, 0.0)
    node.settle()
    assert asked(node) == [(1, 1)]


def test_a_reservation_whose_demand_does_not_fit_lets_another_pass() -> None:
    node = NodeCore(3, [MANY], resources={"gpu": 1.0})
    node.receive(reserve(1, 2, demand={"gpu": 1.0}), reserve(2))
    assert asked(node) == [(1, 1), (2, 1)] and node.core.free == {"gpu": 0.0}
    node.receive(m.NoTask(1, 1))
    assert asked(node) == [(1, 1)], "what was set aside for the first is free for the second"


def test_no_executor_is_no_reason_to_take_anything_off_the_queue() -> None:
    node = NodeCore(2, [MANY], executors=0)
    node.receive(reserve(1, 2))
    assert asked(node) == [] and node.core.free_slots == 2 and node.core.queue.size == 2


def test_a_ready_task_starts_without_an_ask_when_its_turn_comes() -> None:
    node = NodeCore(1, [POOL])
    node.receive(reserve(1, 2, app="pool", prefetch=1))
    slot, ahead = node.take(m.GetTasks)
    node.launches(1, ask=slot.ask)
    node.launches(2, ask=ahead.ask)
    node.take(x.Run)
    node.done("p0", 1, service_s=1.0, now_s=1.0)
    assert [run.task for run in node.take(x.Run)] == [2] and asked(node) == []
    assert not node.core.backlog.ready and node.core.queue.size == 0


@pytest.mark.parametrize("slots", [1, 4])
def test_idle_slots_are_told_once_nothing_is_queued(slots: int) -> None:
    node = NodeCore(slots, [MANY])
    node.settle()
    assert [told.free for told in node.take(m.Idle)] == [slots]
    node.receive(reserve(1, 2 * slots))
    node.launches(*range(1, slots + 1), ask=1)
    for run in range(1, slots + 1):
        node.done("p0", run)
    assert not node.take(m.Idle), "each slot has asked for another task"
    for ask in range(2, slots + 2):
        node.receive(m.NoTask(ask, 1))
    assert [told.free for told in node.take(m.Idle)] == list(range(1, slots + 1))


def test_users_with_equal_weights_get_equally_many_slots() -> None:
    node = NodeCore(6, [MANY])
    for ticket in range(1, 7):  # They come in one frame, all of ann's before any of ben's.
        node.core.receive("s", reserve(ticket, 6, user="ann" if ticket < 4 else "ben", job=f"j{ticket}"), 0.0)
    node.settle()
    counts = {"ann": 0, "ben": 0}
    for ticket, count in asked(node):
        counts["ann" if ticket < 4 else "ben"] += count
    assert counts == {"ann": 3, "ben": 3}


@pytest.mark.parametrize("state", ["busy", "queued", "no executor"])
def test_a_task_that_comes_unasked_starts_only_where_a_slot_is_free_and_nobody_waits(state: str) -> None:
    node = NodeCore(1, [MANY, OTHER], executors=0 if state == "no executor" else 1)
    if state == "busy":
        node.receive(reserve(1))
        node.launches(1, ask=1)
    elif state == "queued":
        node.receive(reserve(1, app="other"))
    node.take(x.Run)
    node.receive(m.LaunchNow("k", 0, 0, 9, b"", "ben", 1.0, 0, "many", None))
    assert [back.attempt for back in node.take(m.HandBack)] == [9] and not node.take(x.Run)
    assert node.core.counters.pushes == 0


def test_a_task_that_comes_unasked_to_a_free_slot_is_charged_and_starts() -> None:
    node = NodeCore(1, [MANY])
    node.receive(m.LaunchNow("k", 0, 0, 9, b"", "ben", 1.0, 0, "many", None))
    assert len(node.take(x.Run)) == 1 and node.core.free_slots == 0 and node.core.counters.pushes == 1
    node.done("p0", 1)
    assert node.core.free_slots == 1 and node.core.idle
