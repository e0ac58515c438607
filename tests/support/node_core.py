"""A node monitor's core with an outbox that only remembers: for tests of single exchanges, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from node_monitor.core import NodeMonitorCore
from node_monitor.executors.executor_state import AppPlan
from node_monitor.host.accounts import ALL_AS_OURSELVES, UserAccounts
from node_monitor.options import NodeMonitorOptions
from simulator.soak.blobs import FakeBlobs
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder, reserve

POOL = AppPlan("pool")
"""One place for each executor."""
MANY = AppPlan("many", one_process=True)
"""One executor with a place for each slot."""


class NodeCore:
    """A node with its first app's executors p0, p1, …, as many as places are needed, and its schedulers.

    outbox: takes what is sent, instead of a `Recorder`. blobs: has its large data, else a store with room for all.
    """

    def __init__(
        self,
        slots: int = 1,
        plans: Iterable[AppPlan] = (POOL,),
        *,
        executors: int | None = None,
        schedulers: Iterable[str] = ("s",),
        resources: Mapping[str, float] | None = None,
        users: UserAccounts = ALL_AS_OURSELVES,
        outbox: Any = None,
        blobs: FakeBlobs | None = None,
        **options: Any,
    ) -> None:
        self.outbox: Any = Recorder() if outbox is None else outbox
        self.blobs, self.now_s = FakeBlobs() if blobs is None else blobs, 0.0
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

    def launches(self, *attempts: int, ask: int, job: str = "j1", scheduler: str = "s") -> None:
        """The scheduler answers the ask with these attempts of the tasks of the same numbers."""
        tasks = [m.Launch(ask, job, 0, attempt, attempt, b"payload %d" % attempt) for attempt in attempts]
        self.receive(*tasks, scheduler=scheduler)

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


class OneJob(NodeCore):
    """A node where all is of the job j: of the app "pool", or of "many", whose one executor p0 has all places."""

    def __init__(self, slots: int = 1, app: str = "pool", **resources: float) -> None:
        super().__init__(slots, [MANY if app == "many" else POOL], resources=resources)
        self.app = app

    def reserve(self, ticket: int, count: int = 1, **fields: Any) -> list[m.GetTasks]:
        """What is asked for once this is reserved."""
        self.receive(reserve(ticket, count, app=self.app, job="j", **fields))
        return self.take(m.GetTasks)

    def launch(self, attempt: int, ask: int, payload: m.Data = b"p", inputs: tuple[tuple[int, int], ...] = ()) -> None:
        """The scheduler answers the ask with this attempt."""
        self.receive(m.Launch(ask, "j", 0, attempt, attempt, payload, inputs))

    def start(self, *attempts: int, timeout_s: float | None = None, **fields: Any) -> None:
        """These attempts are at the node."""
        self.receive(m.Common("j", 0, b"", timeout_s))
        for attempt in attempts:
            (ask,) = self.reserve(attempt, **fields)
            self.launch(attempt, ask.ask)

    def fetched(self, name: str, reason: str = "", user: str = "anna") -> None:
        """These large data have come (`far`), or cannot be had."""
        if not reason:
            self.blobs.add(far(name))
        self.core.fetched(user, name * 64, reason, self.now_s)
        self.settle()

    def reports(self) -> list[tuple[int, TaskStatus, str]]:
        """(attempt, status, error) of each."""
        return [(report.attempt, report.status, report.error) for report in self.take(m.Report)]


def far(name: str, *at: str) -> BlobRef:
    """Large data that are at another node; `name` is one hexadecimal digit."""
    return BlobRef(name * 64, 1 << 20, at or ("far:1",))
