"""A scheduler's core whose nodes and clients are the test: it says what they send, and looks at what they are sent.

The invariants are checked after each event.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder, submission

CLIENT, USER = "c", "anna"


def node_info(slots: int = 4, **fields: Any) -> m.NodeInfo:
    """A node with the app "many"; `fields` are those of `NodeInfo`."""
    return m.NodeInfo(slots, **{"resources": {}, "attributes": {}, "apps": {"many": ""}, **fields})


class SchedulerRig:
    """nodes: those that are connected; by their names alone if they are as `node_info` says. options: of it."""

    def __init__(self, nodes: Iterable[str] | Mapping[str, m.NodeInfo] = (), *, seed: int = 1, **options: Any) -> None:
        self.outbox = Recorder()
        self.core = SchedulerCore(SchedulerOptions(**options), random.Random(seed), self.outbox)
        infos = nodes if isinstance(nodes, Mapping) else {node: node_info() for node in nodes}
        for node, info in infos.items():
            self.node_up(node, info)

    # ---- what happens ------------------------------------------------------------------------

    def node_up(self, node: str, info: m.NodeInfo | None = None, now_s: float = 0.0) -> None:
        self.core.node_up(node, info or node_info(), now_s)
        self.core.check_invariants()

    def node_down(self, node: str, now_s: float = 0.0) -> None:
        self.core.node_down(node, now_s)
        self.core.check_invariants()

    def node(self, node: str, *messages: Any, now_s: float = 0.0) -> None:
        """The node says that."""
        for message in messages:
            self.core.receive_from_node(node, message, now_s)
            self.core.pump(now_s)
            self.core.check_invariants()

    def client(self, *messages: Any, now_s: float = 0.0, client: str = CLIENT, user: str = USER) -> None:
        """The client says that."""
        for message in messages:
            self.core.receive_from_client(client, user, message, now_s)
            self.core.pump(now_s)
            self.core.check_invariants()

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
