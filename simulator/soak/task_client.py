"""A client within a task under virtual time: the client's core, and its way to a scheduler through its node monitor.

It does what `sparrow_py.session.relayed` does on a real machine: it connects to its node, names its run, and connects
again whenever that connection is closed, until its node says that there is no client for this task any more. What it
says goes through the node's own relay (`node_monitor.task_relay`) to the scheduler's end (`scheduler.task_clients`), in
the frames that real ones send.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from simulator.soak.broken import Broken
from simulator.soak.clocks import HostClock
from simulator.soak.host import Host
from simulator.soak.surroundings import Surroundings
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.core import ClientCore
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from node_monitor.task_relay import TaskClient, TaskRelay

LOCAL_LATENCY_S = (0.0, 0.0005)
"""What a message takes between processes of a node: they overtake what goes between nodes, not each other."""
RECONNECT_S = (0.05, 1.0)
"""The first pause and the longest before such a client connects again."""
ANSWER_TIMEOUT_S = 10.0
"""A connection on which no scheduler has answered by then is given up."""
HELLO = m.Hello(m.PROTOCOL_VERSION_OLDEST, "client", "", "task", "", newest=m.PROTOCOL_VERSION, user_stated=False)
_decode_first = m.FrameDecoder(m.Welcome | m.Goodbye)
_decode = m.FrameDecoder(m.ToClient)


class NodeMonitor(Protocol):
    """The node monitor process that a task's client connects to."""

    name: str
    clock: HostClock
    world: Surroundings
    relay: TaskRelay

    def event(self, action: Callable[[], None]) -> None:
        """Something happens to the process."""


class InOrder:
    """One direction of a connection within a node."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._last_at_s = 0.0

    def send(self, arrive: Callable[[], None]) -> None:
        """It arrives after what was sent before."""
        at_s = self._world.now + self._world.nested_rng.uniform(*LOCAL_LATENCY_S)
        self._last_at_s = max(self._last_at_s, at_s)
        self._world.at(self._last_at_s, arrive)


class NodeEnd:
    """The node monitor's end of a connection (`task_relay.Connection`). A connection that was closed is not used
    again."""

    def __init__(self, client: TaskClientHost) -> None:
        self._client = client
        self.relayed: TaskClient | None = None
        """What the relay knows the client by, if it has let it in."""
        self.scheduler = ""
        """Which has answered."""

    def say(self, message: x.ExecutorMessage) -> None:
        """Effect of the relay."""
        self._client.later(partial(self._client.heard, self, message))

    def take_frames(self, bytes_max: int) -> None:
        """Effect of the relay: these clients send no large ones."""

    def unread_bytes(self) -> int:
        """These clients read at once."""
        return 0

    def end(self) -> None:
        """Effect of the relay."""
        self._client.later(partial(self._client.cut_off, self))


class TaskClientHost(Host):
    """A client within a run of an executor.

    denied: is called when the node has said that there is no client for this task any more, nor will be.
    """

    core: ClientCore

    def __init__(
        self, node: NodeMonitor, executor_id: str, run: int, user: str, submit_timeout_s: float,
        denied: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(node.world, f"a client in run {run} of {executor_id} at {node.name}")
        self.clock = node.clock
        self.user = user
        self.core = ClientCore(
            random.Random(node.world.nested_rng.random()), self, submit_timeout_s=submit_timeout_s
        )  # fmt: skip
        self.core.dialling()
        self._node = node
        self._executor_id = executor_id
        self._run = run
        self._denied = denied
        self._connection: NodeEnd | None = None
        self._scheduler = ""
        """Which has the task, or had it when it was last heard of."""
        self._received = 0
        """Messages over this connection that were handled."""
        self._pause_s = RECONNECT_S[0]
        self._to_node, self._from_node = InOrder(node.world), InOrder(node.world)

    def later(self, action: Callable[[], None]) -> None:
        """What the node sends arrives."""
        self._from_node.send(partial(self.event, action))

    # ---- the connection ----------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to the node."""
        connection = self._connection = NodeEnd(self)
        self._at_node(partial(self._come, connection))
        no_answer = partial(self.event, partial(self._no_answer, connection))
        self.world.at(self.world.now + ANSWER_TIMEOUT_S, no_answer)

    def _at_node(self, action: Callable[[], None]) -> None:
        self._to_node.send(partial(self._node.event, action))

    def _come(self, connection: NodeEnd) -> None:
        hello = x.TaskClientHello(x.EXECUTOR_PROTOCOL_VERSION, self._run)
        connection.relayed = self._node.relay.come(self._executor_id, hello, connection)
        self._say(connection, m.one_message_frame(HELLO))

    def _say(self, connection: NodeEnd, frame: bytes) -> None:
        """The node reads a frame, unless it has closed the connection."""
        relayed = connection.relayed
        if relayed is None or not relayed.open:
            return
        directory: Any = None  # For large data, which these clients have none of.
        if self._node.relay.said(relayed, [x.ClientFrame(frame)], directory) is not None:
            raise Broken(f"{self.name} has to wait before it says more, which is not played")

    def _no_answer(self, connection: NodeEnd) -> None:
        if connection is self._connection and not connection.scheduler:
            self._hang_up()
            self._connect_again()

    def cut_off(self, connection: NodeEnd) -> None:
        """The node has closed the connection."""
        if connection is self._connection:
            self._lost("the connection was closed")

    def _lost(self, reason: str) -> None:
        connection = self._connection
        assert connection is not None
        self._hang_up()
        if connection.scheduler:
            self.core.scheduler_down(connection.scheduler, reason, self.now_s, redialled=True)
        self._connect_again()

    def _hang_up(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._at_node(partial(self._closed, connection))

    def _closed(self, connection: NodeEnd) -> None:
        if connection.relayed is not None:
            self._node.relay.closed(connection.relayed)

    def _connect_again(self) -> None:
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, RECONNECT_S[1])
        self.world.at(self.world.now + pause_s, partial(self.event, self.connect))

    # ---- how it ends -------------------------------------------------------------------------

    def close(self) -> None:
        """Say goodbye, as the client of a task that ends."""
        connection = self._connection
        if connection is not None and connection.scheduler:
            self.to_scheduler(connection.scheduler, m.Goodbye("the task has ended"))
        self.die()

    def die(self) -> None:
        """Its process is gone, or has closed it."""
        self._hang_up()
        self.core.abandon()
        self.alive = False

    # ---- what it hears -----------------------------------------------------------------------

    def heard(self, connection: NodeEnd, message: x.ExecutorMessage) -> None:
        """The node has sent this."""
        if connection is not self._connection:
            return
        if not isinstance(message, x.ClientFrame):
            raise Broken(f"{self.name} was sent a {type(message).__name__}")
        if not connection.scheduler:
            (first,) = _decode_first(message.data)
            self._first(connection, first)
            return
        for one in _decode(message.data):
            if isinstance(one, m.Goodbye):
                self.world.counts["nested: cut off"] += 1
                self._lost(one.reason)
                return
            self._received += 1
            self.core.receive(connection.scheduler, one, self.now_s)
        self.to_scheduler(connection.scheduler, m.Received(self._received))

    def _first(self, connection: NodeEnd, first: m.Welcome | m.Goodbye) -> None:
        if isinstance(first, m.Goodbye):
            if not first.is_denied:
                self.world.counts["nested: told to come again"] += 1
                self._lost(first.reason)
                return
            self.die()
            self._denied()
            return
        if first.user != self.user:
            raise Broken(f"{self.name} of {self.user} was welcomed as {first.user}")
        connection.scheduler, self._received, self._pause_s = first.name, 0, RECONNECT_S[0]
        before, self._scheduler = self._scheduler, first.name
        self.core.scheduler_up(
            first.name, first.frame_bytes_max, self.now_s, first.version, first.plane, first.leads
        )  # fmt: skip
        if not before:
            self.core.all_dialled(self.now_s)
        elif before != first.name:
            self.world.counts["nested: moved"] += 1
            self.core.scheduler_unreachable(before, self.now_s)

    # ---- the core's outbox -------------------------------------------------------------------

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Effect of the core."""
        if isinstance(message, m.SubmitJob):
            self.world.logs[message.job.partition(".")[0]].sent_to(scheduler, message.epoch)
        connection = self._connection
        if connection is not None and connection.scheduler == scheduler:
            self._at_node(partial(self._say, connection, m.one_message_frame(message)))

    def stream(self, scheduler: str, job: ClientJob) -> None:
        """As `Session._stream`: one message a turn, until the job is no longer that scheduler's."""
        connection, chunks = self._connection, job.chunks

        def step() -> None:
            if connection is not self._connection or job.scheduler != scheduler:
                return
            if (job.cancelled and not job.submission.epoch) or job.chunks is not chunks:
                return
            chunk = next(chunks, None)
            if chunk is None:
                self.core.streamed(job)
                return
            self.to_scheduler(scheduler, chunk)
            self.later(step)

        self.later(step)

    def upload_again(self, job: ClientJob, hash_: str) -> None:
        """No input of these jobs is the client's."""
        self.core.uploaded(job.id, BlobRef(hash_, 0, ()))
