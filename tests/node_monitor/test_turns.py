"""Whose turn it is at a node: one user beside another who prefetches, states nonsense, or whose executors lie.

The node monitor's core under virtual time, with executors of one place that take as long as a task's payload says.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

import pytest

from node_monitor.executors.executor_state import AppPlan
from node_monitor.pipelining import AHEAD_S
from node_monitor.queueing.tickets import TURN_S
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

LATENCY_S = 0.0002
"""To a scheduler and back; executors are asked and answer at once."""
CHECKED_EVERY = 16
"""Steps after which invariants are checked, which takes longer than a step where hundreds of tasks are ready."""


class Node(NodeCore):
    """A node, its executors and its scheduler, where each user has one job of any number of tasks."""

    def __init__(self, slots: int = 4, **options: Any) -> None:
        self.events: list[tuple[float, int, Any]] = []
        self.order = count()
        self.attempts, self.steps = count(1), count()
        self.users: dict[int, str] = {}
        self.seconds: dict[int, float] = {}
        self.starts: list[tuple[str, float]] = []
        self.served: dict[str, float] = {}
        self.handed_back: list[m.HandBack] = []
        self.reports: list[m.Report] = []
        self.said_s: float | None = None
        """What executors say that a task took; None for the truth."""
        self.given: dict[str, list[x.Run]] = {f"p{number}": [] for number in range(slots)}
        self.executors = count(slots)
        super().__init__(slots, [AppPlan("pool", forks=True)], outbox=self, **options)

    def at(self, time_s: float, action: Any) -> None:
        heapq.heappush(self.events, (time_s, next(self.order), action))

    def run(self, until_s: float) -> None:
        while True:
            due_s = self.core.next_deadline_s()
            event_s = self.events[0][0] if self.events else float("inf")
            if due_s is not None and due_s <= min(event_s, until_s):
                self.now_s = max(self.now_s, due_s)
                self.core.tick(self.now_s)
            elif event_s <= until_s:
                self.now_s, _, action = heapq.heappop(self.events)
                action()
            else:
                break
            self.core.pump(self.now_s)
            if next(self.steps) % CHECKED_EVERY == 0:
                self.core.check_invariants()
        self.now_s = until_s
        self.core.check_invariants()

    def reserve(self, user: str, ticket: int, tasks: int, task_s: float, **fields: Any) -> None:
        self.users[ticket], self.seconds[ticket] = user, task_s
        message = reserve(ticket, tasks, user=user, app="pool", job=f"j{ticket}", **fields)
        self.receive(m.Common(f"j{ticket}", 0, b""), message)

    def started(self, user: str) -> list[float]:
        """When tasks of the user began to run."""
        return [at_s for who, at_s in self.starts if who == user]

    # ---- the core's outbox

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        if isinstance(message, m.GetTasks):
            self.at(self.now_s + LATENCY_S, lambda: self._answer(message))
        elif isinstance(message, m.HandBack):
            self.handed_back.append(message)
        elif isinstance(message, m.Report):
            self.reports.append(message)

    def _answer(self, ask: m.GetTasks) -> None:
        for _ in range(ask.count):
            attempt = next(self.attempts)
            payload = f"{ask.ticket} {self.seconds[ask.ticket]}".encode()
            launch = m.Launch(ask.ask, f"j{ask.ticket}", 0, attempt, attempt, payload)
            self.core.receive("s", launch, self.now_s)

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        runs = self.given[executor]
        if isinstance(message, x.Run):
            runs.append(message)
            if len(runs) == 1:
                self._begin(executor)
        elif isinstance(message, x.Revoke):
            returned = [run.run for run in runs[1:] if run.run in message.runs]
            runs[1:] = [run for run in runs[1:] if run.run not in returned]
            self.at(self.now_s, lambda: self.core.returned(executor, x.Returned(returned), self.now_s))

    def _begin(self, executor: str) -> None:
        run = self.given[executor][0]
        ticket, seconds = bytes(run.payload).split()  # type: ignore[arg-type]
        user = self.users[int(ticket)]
        self.starts.append((user, self.now_s))
        self.at(self.now_s + float(seconds), lambda: self._end(executor, run, user, float(seconds)))

    def _end(self, executor: str, run: x.Run, user: str, seconds: float) -> None:
        self.served[user] = self.served.get(user, 0.0) + seconds
        self.given[executor].remove(run)
        if self.given[executor]:
            self._begin(executor)
        said_s = seconds if self.said_s is None else self.said_s
        self.core.done(executor, x.Done(run.run, TaskStatus.FINISHED, b"", "", 0.0, said_s), self.now_s)

    def start_executor(self, app: str, places: int) -> None:
        executor = f"p{next(self.executors)}"
        self.given[executor] = []
        self.at(self.now_s, lambda: self.core.executor_up(executor, app, places, self.now_s))

    def kill_executor(self, executor: str) -> None:
        assert not self.given.pop(executor), "it has a task"
        self.at(self.now_s, lambda: self.core.executor_down(executor, "it was ended", self.now_s))

    def fetch(self, ref: Any) -> None:
        raise NotImplementedError

    def offer_changed(self, app: str, reason: str) -> None:
        raise NotImplementedError


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
