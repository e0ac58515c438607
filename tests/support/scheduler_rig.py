"""A scheduler's core whose nodes and clients are the test: it says what they send, and looks at what they are sent.

The invariants are checked after each event.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder, submission

CLIENT, USER = "c", "anna"


def node_info(slots: int = 4, **fields: Any) -> m.NodeInfo:
    """A node with the app "many"; `fields` are those of `NodeInfo`."""
    return m.NodeInfo(slots, **{"resources": {}, "attributes": {}, "apps": {"many": ""}, **fields})


class SchedulerRig:
    """nodes: those that are connected; by their names alone if they are as `node_info` says. outbox: takes what is
    sent, instead of a `Recorder`. options: of the scheduler."""

    def __init__(
        self,
        nodes: Iterable[str] | Mapping[str, m.NodeInfo] = (),
        *,
        seed: int = 1,
        outbox: Any = None,
        **options: Any,
    ) -> None:
        self.outbox: Any = Recorder() if outbox is None else outbox
        self.core = SchedulerCore(SchedulerOptions(**options), random.Random(seed), self.outbox)
        infos = nodes if isinstance(nodes, Mapping) else {node: node_info() for node in nodes}
        for node, info in infos.items():
            self.node_up(node, info)

    # ---- what happens ------------------------------------------------------------------------

    def node_up(self, node: str, info: m.NodeInfo | None = None, now_s: float = 0.0) -> None:
        self.core.node_up(node, info or node_info(), now_s)
        self.core.pump(now_s)
        self.core.check_invariants()

    def node_down(self, node: str, now_s: float = 0.0) -> None:
        self.core.node_down(node, now_s)
        self.core.pump(now_s)
        self.core.check_invariants()

    def node(self, node: str, *messages: Any, now_s: float = 0.0) -> None:
        """The node says that."""
        for message in messages:
            self.core.receive_from_node(node, message, now_s)
            self.core.pump(now_s)
            self.core.check_invariants()

    def client(self, *messages: Any, now_s: float = 0.0, client: str = CLIENT, user: str = USER) -> None:
        """The client says that; jobs that state no policy are for the scheduler's own."""
        for message in messages:
            self.core.receive_from_client(client, user, self._stated(message), now_s)
            self.core.pump(now_s)
            self.core.check_invariants()

    def _stated(self, message: Any) -> Any:
        plane = self.core.plane.name
        if type(message) is m.SubmitJob and not message.policy and plane != m.SPARROW:
            return msgspec.structs.replace(message, policy=plane)
        return message

    def submit_job(
        self,
        tasks: int = 1,
        *between: Any,
        job: str = "j",
        payloads: list[m.Data] | None = None,
        details: dict[int, m.TaskDetail] | None = None,
        now_s: float = 0.0,
        client: str = CLIENT,
        user: str = USER,
        **fields: Any,
    ) -> None:
        """A job with all its tasks, and other messages between. `fields` are those of `submission`."""
        added = m.AddTasks(job, 0, [b"p"] * tasks if payloads is None else payloads, details or None)
        self.client(submission(job, tasks, **fields), *between, added, now_s=now_s, client=client, user=user)

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`."""
        self.core.tick(now_s)
        self.core.pump(now_s)
        self.core.check_invariants()

    # ---- what was sent since it was asked for last -------------------------------------------

    def take(self, kind: type[Any]) -> list[Any]:
        return [message for _, message in self.outbox.take(kind)]

    def reserves(self) -> dict[str, m.Reserve]:
        """By node; the last one of each."""
        return dict(self.outbox.take(m.Reserve))

    def outcomes(self) -> list[tuple[int, TaskStatus, int]]:
        """(task, status, attempts) of each."""
        return [(outcome.task, outcome.status, outcome.attempts) for outcome in self.take(m.Outcome)]


class StagedRig(SchedulerRig):
    """A scheduler with the node n, which may be asked to run what is due, and a client c."""

    def __init__(self, **options: Any) -> None:
        # What is written down here names tasks by the order in which stages were submitted.
        super().__init__("n", **{"order": "oldest"} | options)
        self.asks = 0

    def submit(self, *stages: tuple[Any, ...], **fields: Any) -> None:
        """The job j of stages (name, after, tasks, asks for all results of these stages). As if "given" were a stage,
        tasks may ask for what the job is given."""
        specs, details, number = [], {}, 0
        firsts = {"given": (sum(stage[2] for stage in stages), len(fields.get("given", ())))}
        for name, after, count, *rest in stages:
            firsts[name] = (number, count)
            specs.append(m.Stage("many", count, b"", "", 1.0, 0, None, name=name, after=tuple(after)))
            inputs = tuple(firsts[other] for other in (rest[0] if rest else ()))
            details.update({number + task: m.TaskDetail((), inputs) for task in range(count) if inputs})
            number += count
        fields = {"max_attempts": 3, "retry_failed": False, "queue_timeout_s": None, **fields}
        payloads = fields.pop("payloads", [b"p"] * number)
        given = fields.pop("given", ())
        job = m.SubmitJob("j", 0, "", specs, report_placed=False, **fields)
        self.client(job, m.AddTasks("j", 0, payloads, details or None, given))

    def run(self, node: str = "n") -> list[m.Launch]:
        """What is launched when the node asks for all that is reserved there."""
        for to, reserve in self.outbox.take(m.Reserve):
            if to == node:
                self.asks += 1
                self.node(node, m.GetTasks(self.asks, reserve.ticket, reserve.count))
        return [launch for to, launch in self.outbox.take(m.Launch) if to == node]

    def report(
        self, launch: m.Launch, status: TaskStatus = TaskStatus.FINISHED, result: m.Data = b"r", *, node: str = "n"
    ) -> None:
        self.node(node, m.Report("j", launch.task, launch.attempt, status, result, "oh", 0.0, 0.1))

    def missing(self, launch: m.Launch, *hashes: str, node: str = "n") -> None:
        self.node(node, m.HandBack("j", launch.attempt, "n:1: 404", hashes))

    def settled(self) -> list[tuple[int, TaskStatus]]:
        return [(task, status) for task, status, _ in self.outcomes()]


def ref(name: str, *at: str) -> BlobRef:
    """Large data; `name` is one hexadecimal digit."""
    return BlobRef(name * 64, 1 << 20, at or ("n:1",))
