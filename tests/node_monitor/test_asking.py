"""getTask at the node: who is asked for how much, which answers count, and when an ask is over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore
from tests.support.recorder import reserve

TIMED_OUT, DRAINING = "the ask had timed out", "the node is draining"


def node_of(slots: int, schedulers: tuple[str, ...] = ("s",), timeout_s: float = 1.0) -> NodeCore:
    return NodeCore(slots, [MANY], schedulers=schedulers, get_task_timeout_s=timeout_s)


def asks_of(node: NodeCore) -> list[m.GetTasks]:
    return node.take(m.GetTasks)


def handed_back(node: NodeCore) -> list[tuple[int, str]]:
    return [(back.attempt, back.reason) for back in node.take(m.HandBack)]


def test_asks_are_numbered_and_each_names_its_schedulers_ticket() -> None:
    node = node_of(3, ("s", "t"))
    node.receive(reserve(5, 2))
    node.receive(reserve(5, 2), scheduler="t")
    assert node.outbox.take(m.GetTasks) == [("s", m.GetTasks(1, 5, 2)), ("t", m.GetTasks(2, 5, 1))]
    assert node.core.asking == 3 and node.core.free_slots == 0


@pytest.mark.parametrize("answered", [0, 1, 2, 3])
def test_tasks_and_no_ops_together_answer_an_ask(answered: int) -> None:
    node = node_of(3)
    node.receive(reserve(1, 3))
    node.launches(*range(1, answered + 1), ask=1)
    assert len(node.take(x.Run)) == answered
    if answered < 3:
        assert node.core.asks.open[1].left == 3 - answered
        node.receive(m.NoTask(1, 3 - answered))
    assert not node.core.asks.open and node.core.asking == 0
    assert node.core.free_slots == 3 - answered and node.core.counters.noops == 3 - answered


@pytest.mark.parametrize("count", [-1, 0, 3])
def test_no_ops_for_more_than_was_asked_break_the_link(count: int) -> None:
    node = node_of(2)
    node.receive(reserve(1, 2))
    with pytest.raises(LinkError, match=f"{count} no-ops for an ask of 2"):
        node.receive(m.NoTask(1, count))
    assert node.core.asking == 2


def test_an_answer_from_a_scheduler_that_was_not_asked_frees_no_slot() -> None:
    node = node_of(1, ("s", "t"))
    node.receive(reserve(1))
    node.receive(m.NoTask(1, 1), scheduler="t")
    assert node.core.asking == 1
    node.launches(1, ask=1, scheduler="t")
    assert handed_back(node) == [(1, TIMED_OUT)] and node.core.asking == 1
    node.launches(1, ask=1)
    assert len(node.take(x.Run)) == 1


def test_a_task_for_an_ask_that_is_answered_already_is_handed_back() -> None:
    node = node_of(1)
    node.receive(reserve(1))
    node.launches(1, ask=1)
    node.launches(2, ask=1)
    assert handed_back(node) == [(2, TIMED_OUT)] and len(node.take(x.Run)) == 1


def test_asks_time_out_in_their_order_and_each_frees_what_has_not_come() -> None:
    node = node_of(4)
    node.receive(reserve(1, 3), now_s=0.0)
    node.receive(reserve(2, 1), now_s=0.5)
    node.launches(1, ask=1)
    assert node.core.next_deadline_s() == 1.0
    node.tick(1.0)
    assert node.core.counters.ask_timeouts == 1 and set(node.core.asks.open) == {2}
    assert node.core.free_slots == 2 and node.core.next_deadline_s() == 1.5
    node.tick(1.5)
    assert not node.core.asks.open and node.core.next_deadline_s() is None
    node.launches(2, ask=1)
    assert handed_back(node) == [(2, TIMED_OUT)]


def test_an_ask_that_was_answered_never_times_out() -> None:
    node = node_of(1)
    node.receive(reserve(1))
    node.receive(m.NoTask(1, 1))
    assert node.core.next_deadline_s() is None
    node.tick(10.0)
    assert node.core.counters.ask_timeouts == 0 and node.core.free_slots == 1


def test_a_scheduler_that_is_gone_answers_nothing_and_its_slots_ask_others() -> None:
    node = node_of(1, ("s", "t"))
    node.receive(reserve(1))
    node.receive(reserve(1), scheduler="t")
    assert [ask.ask for ask in asks_of(node)] == [1]
    node.core.scheduler_down("s", 0.0)
    node.settle()
    assert node.outbox.take(m.GetTasks) == [("t", m.GetTasks(2, 1, 1))]


def test_a_drained_nodes_asks_are_over_and_their_tasks_are_handed_back() -> None:
    node = node_of(2)
    node.receive(reserve(1, 2))
    node.core.drain(0.0)
    assert not node.core.asks.open and node.core.free_slots == 2
    node.launches(1, ask=1)
    assert handed_back(node) == [(1, DRAINING)]


def test_tasks_that_are_asked_for_ahead_of_slots_wait_for_their_turn() -> None:
    node = NodeCore(1, [POOL])
    node.receive(reserve(1, 4, app="pool", prefetch=2))
    slot, ahead = asks_of(node)
    assert (slot.count, ahead.count) == (1, 2)
    node.launches(1, ask=slot.ask)
    node.launches(2, 3, ask=ahead.ask)
    assert len(node.take(x.Run)) == 1 and node.core.backlog.ready.count(("s", 1)) == 2
    node.done("p0", 1, service_s=1.0, now_s=1.0)
    assert [run.task for run in node.take(x.Run)] == [2]


def test_no_ops_for_what_was_asked_ahead_take_the_reservations_away() -> None:
    node = NodeCore(1, [POOL])
    node.receive(reserve(1, 4, app="pool", prefetch=3))
    slot, ahead = asks_of(node)
    node.launches(1, ask=slot.ask)
    node.receive(m.NoTask(ahead.ask, ahead.count))
    assert node.core.queue.size == 0 and not node.core.asks.open


def test_slots_say_how_much_of_a_resource_is_free_for_them() -> None:
    node = NodeCore(2, [MANY], resources={"gpu": 3.0})
    node.receive(reserve(1, 2, demand={"gpu": 1.0}))
    assert [(ask.count, ask.free) for ask in asks_of(node)] == [(2, {"gpu": 3.0})]


@settings(max_examples=50)
@given(
    slots=st.integers(1, 4),
    events=st.lists(
        st.tuples(st.sampled_from(["reserve", "launch", "no task", "end", "time", "down"]), st.integers(0, 5)),
        max_size=30,
    ),
)
def test_a_slot_asks_runs_or_is_free_whatever_comes(slots: int, events: list[tuple[str, int]]) -> None:
    """Nothing that is launched gets lost: each attempt runs, has ended or was handed back."""
    node, launched, told, runs = node_of(slots), 0, 0, []
    for number, (kind, pick) in enumerate(events, 1):
        asks = list(node.core.asks.open.values())
        if kind == "reserve":
            node.receive(reserve(number, 1 + pick % 3))
        elif kind == "launch":
            launched += 1
            ask = asks[pick % len(asks)].id if asks and pick < 5 else 1000 + pick
            node.launches(launched, ask=ask)
        elif kind == "no task" and asks:
            ask = asks[pick % len(asks)]
            node.receive(m.NoTask(ask.id, 1 + pick % ask.left))
        elif kind == "end" and runs:
            node.done("p0", runs.pop(pick % len(runs)))
        elif kind == "time":
            node.tick(node.now_s + pick / 4)
        elif kind == "down":
            node.core.scheduler_down("s", node.now_s)
            node.core.scheduler_up("s")
            node.settle()
        runs += [run.run for run in node.take(x.Run)]
        told += len(node.take(m.HandBack))
        assert node.core.free_slots + node.core.asking + len(runs) == slots
        assert len(runs) == node.core.executors["p0"].busy_places
        assert node.core.counters.started + told == launched
        assert node.core.asking == sum(ask.left for ask in node.core.asks.open.values())
    while (due_s := node.core.next_deadline_s()) is not None:
        node.tick(due_s)
    assert node.core.asking == 0


def round_trips(node: NodeCore) -> dict[str, float]:
    """App to the seconds that its asks took together."""
    return {app: histogram.sum_s for app, histogram in node.core.counters.get_task_s.apps.items()}


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_the_round_trip_of_an_ask_ends_with_its_last_answer(answered: int) -> None:
    node = node_of(3)
    node.receive(reserve(1, 3), now_s=10.0)
    for task in range(1, answered + 1):
        node.receive(m.Launch(1, "j1", 0, task, task, b""), now_s=10.25)
    if answered < 3:
        assert round_trips(node) == {}
        node.receive(m.NoTask(1, 3 - answered), now_s=10.5)
    assert round_trips(node) == pytest.approx({MANY.app: 0.25 if answered == 3 else 0.5})


def test_an_ask_that_times_out_has_no_round_trip() -> None:
    node = node_of(2)
    node.receive(reserve(1, 2))
    node.tick(5.0)
    assert node.core.counters.ask_timeouts == 1 and round_trips(node) == {}
