"""A node monitor's core under virtual time, with executors of one place that take as long as a task's payload says."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from node_monitor.executors.executor_state import AppPlan
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

LATENCY_S = 0.0002
"""To a scheduler and back; executors are asked and answer at once."""
CHECKED_EVERY = 16
"""Steps after which invariants are checked, which takes longer than a step where hundreds of tasks are ready."""


class TimedNode(NodeCore):
    """A node, its executors and its scheduler, where each user has one job of any number of tasks."""

    may_kill = False
    """Whether a task may be killed."""

    def __init__(self, slots: int = 4, **options: Any) -> None:
        self.events: list[tuple[float, int, Any]] = []
        self.order = count()
        self.attempts, self.steps = count(1), count()
        self.users: dict[int, str] = {}
        self.seconds: dict[int, float] = {}
        self.starts: list[tuple[str, float]] = []
        self.served: dict[str, float] = {}
        """Slot time of tasks that have ended."""
        self.running: dict[str, tuple[str, float]] = {}
        """Executor to the user of its task, and since when that runs."""
        self.after_step: Callable[[], None] = lambda: None
        self.handed_back: list[m.HandBack] = []
        self.reports: list[m.Report] = []
        self.leases: dict[int, float] = {}
        """By ticket, of those whose tasks have leases."""
        self.yield_after_s: dict[int, float | None] = {}
        """How long their tasks take to end once they are asked to, by ticket; None: they go on."""
        self.yields: list[tuple[float, str, int]] = []
        """(when, executor, run) of each Yield."""
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
            self.after_step()
            if next(self.steps) % CHECKED_EVERY == 0:
                self.core.check_invariants()
        self.now_s = until_s
        self.core.check_invariants()

    def reserve(self, user: str, ticket: int, tasks: int, task_s: float, **fields: Any) -> None:
        self.users[ticket], self.seconds[ticket] = user, task_s
        message = reserve(ticket, tasks, user=user, app="pool", job=f"j{ticket}", **fields)
        self.receive(m.Common(f"j{ticket}", 0, b"", lease_s=self.leases.get(ticket)), message)

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
        elif isinstance(message, x.Yield):
            self.yields.append((self.now_s, executor, message.run))
            ticket = int(bytes(runs[0].payload).split()[0])  # type: ignore[arg-type]
            after_s = self.yield_after_s.get(ticket)
            if after_s is not None:
                self.at(self.now_s + after_s, lambda: self._end(executor, message.run))

    def _begin(self, executor: str) -> None:
        run = self.given[executor][0]
        ticket, seconds = bytes(run.payload).split()  # type: ignore[arg-type]
        user = self.users[int(ticket)]
        self.starts.append((user, self.now_s))
        self.running[executor] = (user, self.now_s)
        if float(seconds) < float("inf"):
            self.at(self.now_s + float(seconds), lambda: self._end(executor, run.run))

    def _end(self, executor: str, number: int) -> None:
        """The executor's run is over, unless it was killed or has yielded."""
        runs = self.given.get(executor)
        if not runs or runs[0].run != number:
            return
        seconds = self._no_longer_runs(executor)
        del runs[0]
        if runs:
            self._begin(executor)
        said_s = seconds if self.said_s is None else self.said_s
        self.core.done(executor, x.Done(number, TaskStatus.FINISHED, b"", "", 0.0, said_s), self.now_s)

    def _no_longer_runs(self, executor: str) -> float:
        user, since_s = self.running.pop(executor)
        seconds = self.now_s - since_s
        self.served[user] = self.served.get(user, 0.0) + seconds
        return seconds

    def service_s(self, user: str) -> float:
        """Slot time that the user's tasks have had by now."""
        runs = sum(self.now_s - since_s for who, since_s in self.running.values() if who == user)
        return self.served.get(user, 0.0) + runs

    def start_executor(self, app: str, places: int) -> None:
        executor = f"p{next(self.executors)}"
        self.given[executor] = []
        self.at(self.now_s, lambda: self.core.executor_up(executor, app, places, self.now_s))

    def kill_executor(self, executor: str) -> None:
        if self.given.pop(executor):
            assert self.may_kill, "it has a task"
            self._no_longer_runs(executor)
        self.at(self.now_s, lambda: self.core.executor_down(executor, "it was ended", self.now_s))

    def fetch(self, ref: Any) -> None:
        raise NotImplementedError

    def give_up(self, hash_: str, size: int, user: str) -> None:
        raise NotImplementedError

    def offer_changed(self, app: str, reason: str) -> None:
        raise NotImplementedError
