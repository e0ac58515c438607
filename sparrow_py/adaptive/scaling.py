"""`Adaptive`: asks the schedulers what their jobs could use, and has the cluster start node monitors, or lets nodes
leave."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from sparrow_py.adaptive.deciding import Adaptation, Bounds, Seen, SeenNode
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.counted import counted
from sparrow_py.errors import ClusterError, SparrowError
from sparrow_py.job import check_number
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.wire.http_get import http_answer, http_get_json

if TYPE_CHECKING:
    from sparrow_py.access.credentials import Access

log = logging.getLogger("sparrow.cluster")
DEMAND_PATH = "/v1/demand"
LEAVE_PATH = "/v1/nodes/leave"
QUIET_S = 60.0
"""How long a node has nothing to do before it leaves, unless somebody says otherwise."""
INTERVAL_S = 1.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.05, 3600.0
RETRY_S = 30.0
"""After a start that went wrong nothing is started for so long."""
ARRIVAL_TIMEOUT_S = 120.0
"""A node that no scheduler lists so long after its start is given up."""
STOP_TIMEOUT_S = 10.0
"""How long `stop` waits for a look that is under way."""


class Listed(Protocol):
    """A cluster whose schedulers can be asked. `ClusterError` if one does not answer."""

    access: Access
    addresses: list[str]

    def nodes(self) -> list[NodeStatus]:
        """All nodes, by id."""

    def tell_if_broken(self, listener: Callable[[ClusterError], None]) -> Callable[[], None]:
        """Have `listener` called, from any thread, once the cluster can do no more; returns what takes that back.
        `ClusterError` if it is so already."""


class Scalable(Protocol):
    """The node monitors of a cluster, which can be started and left to go one by one. Its methods may be called from
    any thread."""

    def own_nodes(self) -> set[str]:
        """Ids of the nodes that can be told to leave, those that start and those that leave among them."""

    def room(self) -> int:
        """How many further node monitors can be started now."""

    def start_nodes(self, count: int) -> None:
        """Start so many, or as many as there is room for; it need not wait for them. `ClusterError` if that fails."""

    def expect_end(self, node_id: str, *, expected: bool) -> None:
        """The node will be told to leave: that its process ends is no loss; or, it stays after all."""

    def give_up(self, node_id: str) -> None:
        """End a node monitor that was started, and whose node has not come."""


class Adaptive:
    """Keeps a cluster between bounds, in a thread, until `stop`, or the cluster is stopped or broken. Made by
    `cluster.adapt`. `ClusterError` for a cluster that is broken.

    minimum, maximum: of node monitors that the cluster has started. quiet_s: after so long without anything to do a
    node drains and leaves, if the slots that stay are as many as were wanted in that time. interval_s: from one look to
    the next. before: the one whose place it takes, which is stopped as soon as nothing stands against this one.
    """

    def __init__(
        self,
        cluster: Listed,
        node_monitors: Scalable,
        minimum: int,
        maximum: int,
        *,
        quiet_s: float = QUIET_S,
        interval_s: float = INTERVAL_S,
        before: Adaptive | None = None,
    ) -> None:
        check_number("interval_s", interval_s, INTERVAL_S_MIN, INTERVAL_S_MAX)
        self._cluster = cluster
        self._node_monitors = node_monitors
        self._core = Adaptation(Bounds(minimum, maximum, quiet_s))
        self._interval_s = interval_s
        self._leaving: set[str] = set()
        self._awaited_s: dict[str, float] = {}
        """Since when nodes that were started are waited for."""
        self._start_from_s = 0.0
        self._problems = SparingLog(log)
        self._over = threading.Event()
        self._forget_break = cluster.tell_if_broken(lambda _: self._over.set())
        if before is not None:
            before.stop()
        self._thread = threading.Thread(target=self._run, name="sparrow-adaptive", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        bounds, state = self._core.bounds, ", stopped" if self.is_stopped else ""
        return f"<Adaptive {bounds.minimum} to {counted(bounds.maximum, 'node monitor')}{state}>"

    def __enter__(self) -> Adaptive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether the cluster is left as it is."""
        return self._over.is_set()

    def stop(self) -> None:
        """Leave the cluster as it is from now on."""
        self._over.set()
        self._forget_break()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._look()
            except SparrowError as error:  # A scheduler that is away: what is decided takes all of them.
                self._problems.warning("the cluster is not adapted now: %s", error)
            self._over.wait(self._interval_s)

    def _look(self) -> None:
        cluster, now_s = self._cluster, time.monotonic()
        wanted = sum(self._wanted_at(address) for address in list(cluster.addresses))
        nodes = cluster.nodes()
        own = self._node_monitors.own_nodes()
        listed = {node.id for node in nodes}
        self._leaving &= own
        awaited = own - listed - self._leaving
        seen = Seen(
            wanted,
            [
                SeenNode(
                    node.id,
                    node.slots,
                    not (node.busy or node.reservations),
                    node.is_ready,
                    node.id in own,
                    node.launched,
                )
                for node in nodes
            ],
            starting=len(awaited),
            leaving=frozenset(self._leaving),
            room=self._node_monitors.room() if now_s >= self._start_from_s else 0,
        )
        decision = self._core.look(seen, now_s)
        if decision.start and not self._over.is_set():
            self._start(decision.start, wanted)
        self._give_up_late(awaited, now_s)
        by_id = {node.id: node for node in nodes}
        for node_id in decision.leave:
            self._leave(by_id[node_id])

    def _wanted_at(self, address: str) -> int:
        return int(http_get_json(address, DEMAND_PATH, access=self._cluster.access)["slots_wanted"])

    def _give_up_late(self, awaited: set[str], now_s: float) -> None:
        self._awaited_s = {name: self._awaited_s.get(name, now_s) for name in awaited}
        for name in [name for name, since_s in self._awaited_s.items() if now_s - since_s > ARRIVAL_TIMEOUT_S]:
            self._problems.warning("node %s has not reached the schedulers in %g s: given up", name, ARRIVAL_TIMEOUT_S)
            self._node_monitors.give_up(name)

    def _start(self, count: int, wanted: int) -> None:
        log.info("%s wanted: starting %s", counted(wanted, "slot"), counted(count, "node monitor"))
        try:
            self._node_monitors.start_nodes(count)
        except SparrowError as error:
            self._start_from_s = time.monotonic() + RETRY_S
            self._problems.warning("a node monitor does not start, tried again in %g s: %s", RETRY_S, error)

    def _leave(self, node: NodeStatus) -> None:
        """Have the node drain and go, unless it knows better than the schedulers that it is needed."""
        if self._over.is_set():
            return
        self._node_monitors.expect_end(node.id, expected=True)
        try:
            body = json.dumps({"node": node.id}).encode()
            status, answer = http_answer(node.address, LEAVE_PATH, access=self._cluster.access, body=body)
            why_not = "" if status == HTTPStatus.ACCEPTED else f"{status} {answer[:200].decode('utf-8', 'replace')}"
        except SparrowError as error:
            why_not = str(error)
        if not why_not:
            self._leaving.add(node.id)
            log.info("node %s has had nothing to do for %g s and leaves", node.id, self._core.bounds.quiet_s)
            return
        self._node_monitors.expect_end(node.id, expected=False)
        self._core.stays(node.id)
        if not why_not.startswith(str(int(HTTPStatus.CONFLICT))):
            self._problems.warning("node %s does not leave: %s", node.id, why_not)
