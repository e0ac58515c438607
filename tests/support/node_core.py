"""A node monitor's core with an outbox that only remembers: for tests of single exchanges, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from node_monitor.core import NodeMonitorCore
from node_monitor.executors.executor_state import AppPlan
from node_monitor.host.accounts import ALL_AS_OURSELVES, UserAccounts
from node_monitor.options import NodeMonitorOptions
from simulator.blobs import FakeBlobs
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from tests.support.recorder import Recorder

POOL = AppPlan("pool")
"""One place for each executor."""
MANY = AppPlan("many", one_process=True)
"""One executor with a place for each slot."""


class NodeCore:
    """A node with its first app's executors p0, p1, …, as many as places are needed, and its schedulers."""

    def __init__(
        self,
        slots: int = 1,
        plans: Iterable[AppPlan] = (POOL,),
        *,
        executors: int | None = None,
        schedulers: Iterable[str] = ("s",),
        resources: Mapping[str, float] | None = None,
        users: UserAccounts = ALL_AS_OURSELVES,
        **options: Any,
    ) -> None:
        self.outbox, self.blobs, self.now_s = Recorder(), FakeBlobs(), 0.0
        plans = list(plans)
        self.core = NodeMonitorCore(
            NodeMonitorOptions(**options), slots, plans, self.outbox, self.blobs, resources, users=users
        )
        for scheduler in schedulers:
            self.core.scheduler_up(scheduler)
        places = slots if plans[0].one_process else 1
        for number in range(slots // places if executors is None else executors):
            self.core.executor_up(f"p{number}", plans[0].name, places, 0.0)

    def settle(self, now_s: float | None = None) -> None:
        """The events so far came together."""
        self.core.pump(self.now_s if now_s is None else now_s)
        self.core.check_invariants()

    def receive(self, *messages: Any, scheduler: str = "s", now_s: float | None = None) -> None:
        """These messages came in one frame."""
        for message in messages:
            self.core.receive(scheduler, message, self.now_s if now_s is None else now_s)
        self.settle(now_s)

    def done(
        self,
        executor: str,
        run: int,
        status: TaskStatus = TaskStatus.FINISHED,
        *,
        error: str = "",
        service_s: float = 0.0001,
        now_s: float | None = None,
    ) -> None:
        """The executor ended the run."""
        at_s = self.now_s if now_s is None else now_s
        self.core.done(executor, x.Done(run, status, b"r", error, 0.0, service_s), at_s)
        self.settle(at_s)

    def returned(self, executor: str, *runs: int) -> None:
        """The executor returned these runs."""
        self.core.returned(executor, x.Returned(list(runs)), self.now_s)
        self.settle()

    def died(self, executor: str, reason: str = "") -> None:
        """The executor is gone."""
        self.core.executor_down(executor, reason or f"{executor} was killed", self.now_s)
        self.settle()

    def tick(self, now_s: float) -> None:
        """Time has come."""
        self.now_s = now_s
        self.core.tick(now_s)
        self.settle()

    def take(self, kind: type[Any]) -> list[Any]:
        """What was sent of this kind, which is forgotten."""
        return [message for _, message in self.outbox.take(kind)]
