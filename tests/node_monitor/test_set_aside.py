"""A task whose demand does not fit is passed over for a while; then what is free of that is set aside for it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_monitor.set_aside import PASSED_OVER_S
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore
from tests.support.recorder import reserve
from tests.support.timed_node import TimedNode

NODES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def asked(node: NodeCore) -> list[int]:
    """Tickets of the asks since the last call."""
    return [ask.ticket for ask in node.take(m.GetTasks) for _ in range(ask.count)]


class OneLarge(NodeCore):
    """A node of 4 cpu where task 1 runs and has one of them, and ticket 2 demands all."""

    def __init__(self, **options: object) -> None:
        super().__init__(8, [MANY], resources={"cpu": 4.0}, **options)  # type: ignore[arg-type]
        self.reserve(1, 1.0)
        self.launches(1, ask=1)
        self.reserve(2, 4.0, user="bert")

    def reserve(self, ticket: int, cpu: float | None, user: str = "anna", **fields: int) -> None:
        demand = None if cpu is None else {"cpu": cpu}
        self.receive(reserve(ticket, 1, user=user, demand=demand, **fields))

    def first_ends(self) -> None:
        self.done("p0", 1, now_s=self.now_s)


def test_it_is_passed_over_for_a_while_and_then_others_wait() -> None:
    node = OneLarge()
    node.tick(PASSED_OVER_S - 0.01)
    node.reserve(3, 1.0)
    assert asked(node) == [1, 3]
    node.tick(PASSED_OVER_S)
    node.reserve(4, 1.0)
    assert not asked(node)
    node.first_ends()
    assert not asked(node)
    node.receive(m.NoTask(2, 1))
    assert asked(node) == [2]
    node.receive(m.NoTask(3, 1))
    assert asked(node) == [4]


def test_who_demands_nothing_of_that_does_not_wait() -> None:
    node = OneLarge()
    node.tick(PASSED_OVER_S)
    node.reserve(3, None)
    assert asked(node) == [1, 3]


def test_when_it_is_cancelled_others_have_what_was_set_aside() -> None:
    node = OneLarge()
    node.tick(PASSED_OVER_S)
    node.reserve(3, 1.0)
    node.receive(m.CancelReservations(2))
    assert asked(node) == [1, 3]


def test_nothing_is_set_aside_for_what_the_node_does_not_have() -> None:
    """Nor does such a task keep another from being set aside for."""
    node = NodeCore(8, [MANY], resources={"cpu": 4.0})
    node.receive(reserve(9, 1, user="carl", demand={"cpu": 5.0}))
    node.receive(reserve(1, 1, demand={"cpu": 1.0}))
    node.launches(1, ask=1)
    node.receive(reserve(2, 1, user="bert", demand={"cpu": 4.0}))
    node.tick(PASSED_OVER_S)
    node.receive(reserve(3, 1, demand={"cpu": 1.0}))
    assert asked(node) == [1]
    node.done("p0", 1, now_s=PASSED_OVER_S)
    assert asked(node) == [2]


def test_a_higher_priority_does_not_wait_for_a_lower_one() -> None:
    node = OneLarge(queue="priority")
    node.tick(PASSED_OVER_S)
    node.reserve(3, 1.0)
    node.reserve(4, 1.0, priority=1)
    assert asked(node) == [1, 4]


def test_a_stream_of_short_small_tasks_does_not_keep_a_large_one_waiting() -> None:
    node = TimedNode(4, resources={"cpu": 2.0})
    for number in range(30):
        node.run(2.0 * number)
        node.reserve("anna", number + 1, 40, 0.5, demand={"cpu": 0.01})
        if number == 1:
            node.reserve("bert", 1000, 1, 1.0, demand={"cpu": 2.0})
    (start_s,) = node.started("bert")
    assert start_s <= 2.0 + PASSED_OVER_S + 3 * 0.5 + 0.01


STREAMS = st.lists(
    st.tuples(
        st.sampled_from(("anna", "carl", "dora")),
        st.sampled_from((0.05, 0.2, 0.5)),
        st.sampled_from((None, {"cpu": 0.01}, {"cpu": 0.5}, {"cpu": 1.0, "gpu": 0.1}, {"gpu": 0.1})),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=5,
)
LARGE = st.sampled_from(({"cpu": 2.0}, {"cpu": 1.5}, {"cpu": 2.0, "gpu": 1.0}, {"gpu": 1.0}))


@pytest.mark.parametrize("policy", ["fair", "fifo"])
@settings(NODES, max_examples=40)
@given(st.integers(1, 5), STREAMS, st.lists(LARGE, min_size=1, max_size=3))
def test_large_tasks_that_fit_the_empty_node_start_within_a_bound(
    policy: str,
    slots: int,
    streams: list[tuple[str, float, dict[str, float] | None, int]],
    large: list[dict[str, float]],
) -> None:
    """Each stream goes on for as long as any of the large tasks waits; these are of different users."""
    node = TimedNode(slots, resources={"cpu": 2.0, "gpu": 1.0}, queue=policy)
    longest_s = max(task_s for _, task_s, _, _ in streams)
    backlog_s = sum(count * task_s for _, task_s, _, count in streams) if policy == "fifo" else 0.0
    users = len(streams) + len(large)
    bound_s = 0.5 + backlog_s + len(large) * (PASSED_OVER_S + 0.1 + (4 + users) * longest_s)
    ticket = step = 0
    while node.now_s < 0.5 + bound_s and not all(node.started(f"large {n}") for n in range(len(large))):
        for user, task_s, demand, count in streams:
            ticket += 1
            node.reserve(user, ticket, count, task_s, demand=demand)
        if step == 0:
            node.run(0.5)
            for number, demand in enumerate(large):
                node.reserve(f"large {number}", 10_000 + number, 1, 0.1, demand=demand)
        step += 1
        node.run(node.now_s + 0.5)
    assert all(len(node.started(f"large {n}")) == 1 for n in range(len(large)))
    assert max(at_s for n in range(len(large)) for at_s in node.started(f"large {n}")) <= bound_s
