"""Whose turn it is at a node: one user beside another who prefetches, states nonsense, or whose executors lie."""

from __future__ import annotations

from typing import Any

import pytest

from node_monitor.pipelining import AHEAD_S
from node_monitor.queueing.tickets import TURN_S
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from tests.support.timed_node import LATENCY_S
from tests.support.timed_node import TimedNode as Node

# ---- a newcomer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream",
    [
        {},
        {"prefetch": 32},
        {"prefetch": 256},
        {"expected_duration_s": 1e5},
        {"expected_duration_s": 0.0},
        {"expected_duration_s": 0.0, "prefetch": 256},
    ],
    ids=str,
)
@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_newcomer_waits_for_one_task_whatever_the_other_user_states_or_prefetches(
    stream: dict[str, Any], prefetch: int
) -> None:
    """4 slots, tasks of 10 ms; the newcomer's wait includes the round trip to its scheduler."""
    node = Node()
    node.reserve("bert", 1, 100_000, 0.01, **stream)
    node.run(0.5)
    node.reserve("anna", 2, 1, 0.01, prefetch=prefetch)
    node.run(0.6)
    (start_s,) = node.started("anna")
    assert start_s <= 0.5 + (1 + bool(prefetch)) * 0.01 + 3 * LATENCY_S


def test_what_was_stated_for_earlier_tasks_costs_a_newcomer_nothing() -> None:
    node = Node()
    node.reserve("bert", 1, 16, 0.01, expected_duration_s=1e5)
    node.reserve("bert", 2, 100_000, 0.01)
    node.run(1.0)
    node.reserve("anna", 3, 1, 0.01)
    node.run(1.1)
    (start_s,) = node.started("anna")
    assert start_s <= 1.0 + 0.01 + 3 * LATENCY_S


def test_a_higher_priority_waits_for_one_task_beside_a_lower_one_that_prefetches() -> None:
    node = Node(queue="priority")
    node.reserve("bert", 1, 100_000, 0.1, prefetch=64)
    node.run(1.05)
    node.reserve("anna", 2, 8, 0.1, priority=10)
    node.run(2.0)
    assert len(node.started("anna")) == 8
    assert max(node.started("anna")) <= 1.05 + 2 * 0.1 + 5 * LATENCY_S  # Four at a time.


@pytest.mark.parametrize("prefetch", [(0, 256), (256, 0), (256, 8)], ids=str)
def test_shares_hold_under_prefetch(prefetch: tuple[int, int]) -> None:
    """Both backlogged, tasks of 20 and of 3 ms."""
    node = Node()
    node.reserve("bert", 1, 100_000, 0.02, prefetch=prefetch[0])
    node.reserve("anna", 2, 100_000, 0.003, prefetch=prefetch[1])
    node.run(1.5)
    assert abs(node.served["bert"] - node.served["anna"]) <= 4 * 2 * 0.02
    assert sum(node.served.values()) >= 0.9 * 4 * 1.5


# ---- what is given ahead of time -------------------------------------------------------------


def test_short_tasks_given_ahead_of_time_leave_the_other_user_its_turn() -> None:
    """Tasks of 0.1 ms, of which a worker is given many at a time, 2 ms of them."""
    node = Node()
    node.reserve("bert", 1, 100_000, 0.0001, prefetch=64)
    node.run(0.03)
    node.reserve("anna", 2, 1, 0.01)
    node.run(0.05)
    (start_s,) = node.started("anna")
    assert start_s <= 0.03 + TURN_S + 3 * LATENCY_S


def test_tasks_that_turn_out_long_behind_a_running_one_are_asked_back_for_another_user() -> None:
    """They were given ahead of time since those before them were short."""
    node = Node()
    node.reserve("bert", 1, 100_000, 0.0001, prefetch=64)
    node.run(0.03)
    node.seconds[1] = 1.0
    node.run(0.1)
    node.reserve("anna", 2, 4, 0.01)
    node.run(3.0)
    assert node.handed_back  # Not started, and not lost.
    assert max(node.started("anna")) <= 0.1 + 2 * AHEAD_S + 1.0


def test_what_waits_behind_a_running_task_stays_if_nobody_else_waits() -> None:
    node = Node()
    node.reserve("bert", 1, 500, 0.0001, prefetch=64)
    node.run(0.01)
    node.seconds[1] = 0.1
    node.run(5.0)
    assert not node.handed_back


# ---- whose clock counts ----------------------------------------------------------------------


@pytest.mark.parametrize("said_s", [0.0, 1e6])
def test_shares_are_by_the_node_monitors_clock_whatever_executors_say(said_s: float) -> None:
    node = Node()
    node.said_s = said_s
    node.reserve("bert", 1, 100_000, 0.05)
    node.reserve("anna", 2, 100_000, 0.01)
    node.run(4.0)
    assert abs(node.served["bert"] - node.served["anna"]) <= 4 * 4 * 0.05
    assert {report.service_s for report in node.reports} <= {0.0} or said_s
    assert all(report.service_s is not None and report.service_s <= 0.05 + 1e-9 for report in node.reports)


@pytest.mark.parametrize(
    ("said", "shares"), [((1.0, 3.0), (0.25, 0.75)), ((0.0, 0.0), (0.5, 0.5)), ((9.0, 0.0), (1.0, 0.0))]
)
def test_what_ended_in_one_frame_divides_the_node_monitors_time(
    said: tuple[float, float], shares: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the executor says, but in all no more and no less than it took."""
    node = Node(1)
    node.reserve("bert", 1, 100, 0.0001, prefetch=8)
    node.run(0.01)
    runs = node.given["p0"][:2]
    whole_s = node.core.executors["p0"].worked_s(1.0)
    settled: list[float] = []
    monkeypatch.setattr(node.core.queue, "settle", lambda charge, service_s: settled.append(service_s))
    node.core.done_together("p0", [_done(run, said_s) for run, said_s in zip(runs, said, strict=True)], 1.0)
    assert whole_s > 0.9
    assert settled == pytest.approx([whole_s * share for share in shares])


def _done(run: x.Run, service_s: float) -> x.Done:
    return x.Done(run.run, TaskStatus.FINISHED, b"", "", 0.0, service_s)
