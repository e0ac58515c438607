"""Drivers of the pure cores under virtual time whose processes may die, stall, and have clocks of their own.

They do what the drivers do (`scheduler/daemon.py`, `node_monitor/daemon.py`, `sparrow_py/session/session.py`): a
message that a core rejects ends its link, a peer that dials again replaces its old link, a client that is cut off is
not waited for. `simulator.hosts` has the lean ones, for clusters in which nothing fails.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from node_monitor.core import NodeMonitorCore
from node_monitor.task_relay import TaskRelay
from scheduler.core import SchedulerCore
from scheduler.task_clients import TaskClients
from simulator.soak import guarantees
from simulator.soak.blobs import FakeBlobs
from simulator.soak.broken import Broken
from simulator.soak.executors import FORKING_PLANS, PLANS, VirtualExecutor
from simulator.soak.host import Host
from simulator.soak.job_log import Start
from simulator.soak.links import Link, Side
from simulator.soak.surroundings import Surroundings
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.limits.shares import Shares
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.core import ClientCore
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.plane import Problem

SOLVE_S = 0.01
"""A scheduler has the answer to what it gave away to be solved after so long."""
TASK_CLIENTS_MAX = 400
"""Clients within tasks that a scheduler has seats for."""


class SchedulerHost(Host):
    """A scheduler process."""

    core: SchedulerCore

    def __init__(self, world: Surroundings, name: str) -> None:
        super().__init__(world, name)
        self._clients = 0
        self._cut_off: set[Link] = set()
        self.core = SchedulerCore(
            world.scheduler_options, random.Random(world.rng.random()), self, now_s=self.now_s, name=self.name
        )
        self.core.lead_told = lambda leads: self.to_clients(m.Leads(leads))
        self.task_links: dict[str, Any] = {}
        """To clients within tasks, by what the core calls them."""
        seats = Shares("task_clients_max", TASK_CLIENTS_MAX, "clients within tasks are connected", lends=True)
        self.task_clients = TaskClients(
            self.core, self.task_links, itertools.count(1), self._welcome, self._task_client_said,
            self._hear_task_clients_later, seats,
        )  # fmt: skip
        self._wrong: Exception | None = None
        """What was wrong with what a client within a task said."""

    # ---- the core's outbox

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self.links.get(node_id)
        if link is not None:
            self.world.sent.append((self.name, link.peer.name, message))
            link.to_peer.send(message)

    def to_client(self, client: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self.task_links.get(client)
        if link is None:
            self.to_node(client, message)
        else:
            link.send(message)

    def solve(self, number: int, problem: Problem) -> None:
        """Effect of the core: the answer is there after `SOLVE_S`."""

        def solved() -> None:
            self.core.solved(number, problem(), self.now_s)

        self.world.at(self.world.now + SOLVE_S, partial(self.event, solved))

    def act(self, action: Callable[[], None]) -> None:
        action()
        if self.alive:
            self.core.pump(self.now_s)

    def tell(self, words: list[tuple[str, m.Message]]) -> None:
        """To each client its own."""
        for client, message in words:
            self.core.tell_client(client, message)

    def to_clients(self, message: m.Message) -> None:
        """To all of them."""
        for name, link in self.links.items():
            if not isinstance(link.peer, NodeHost):
                self.core.tell_client(name, message)
        for name in list(self.task_links):
            self.core.tell_client(name, message)

    def links_to_nodes(self) -> list[Link]:
        """Those that stand, as far as it knows."""
        return [link for link in self.links.values() if isinstance(link.peer, NodeHost)]

    # ---- links

    def up(self, link: Link) -> None:
        """A peer has dialled."""
        if self not in link.open or link.peer not in link.open:
            return  # It is gone again.
        link.to_peer.send(self._welcome())
        if not isinstance(link.peer, NodeHost):
            self._clients += 1
            link.known_as = f"{link.peer.name}#{self._clients}"
            self.links[link.known_as] = link
            if self.world.receipts and isinstance(link.peer, ClientHost):
                self.core.client_up(link.known_as, link.peer.user)
            if self.core.draining:
                self.core.tell_client(link.known_as, m.Draining())
            return
        before = self.links.get(link.known_as)
        if before is not None:  # The node dialled again before its old link was seen to be dead.
            before.end(self)
        self.links[link.known_as] = link
        self.core.node_up(link.known_as, link.peer.info(), self.now_s)

    def _welcome(self) -> m.Welcome:
        frame_bytes_max, core = self.world.frame_bytes_max, self.core
        return m.Welcome(
            m.PROTOCOL_VERSION, self.name, frame_bytes_max, plane=core.plane.name, leads=core.leads
        )  # fmt: skip

    def down(self, link: Link) -> None:
        if self.links.get(link.known_as) is not link:
            return
        del self.links[link.known_as]
        if isinstance(link.peer, NodeHost):
            self.core.node_down(link.known_as, self.now_s)
            self.task_clients.node_gone(link.known_as, self.now_s)
        else:
            self.core.client_down(link.known_as, self.now_s, said_goodbye=link in self._cut_off)

    def _reject(self, link: Link) -> None:
        self._cut_off.add(link)  # It is not to be waited for.

    def _receive(self, link: Link, message: Any) -> None:
        if isinstance(message, m.TaskSays):
            self.task_clients.said(link.known_as, _ToNode(self, link), message, self.now_s)
            self._check_task_clients()
        elif isinstance(message, m.TaskGone):
            self.task_clients.gone(link.known_as, message, self.now_s)
        elif isinstance(link.peer, NodeHost):
            self.core.receive_from_node(link.known_as, message, self.now_s)
        elif isinstance(link.peer, ClientHost):
            self.core.receive_from_client(link.known_as, link.peer.user, message, self.now_s)

    # ---- clients within tasks

    def _task_client_said(self, client: str, user: str, message: Any, now_s: float) -> None:
        try:
            self.core.receive_from_client(client, user, message, now_s)
        except Exception as error:  # `TaskClients` ends the client for it; but these are honest.
            self._wrong = error
            raise

    def _hear_task_clients_later(self) -> None:
        self.world.at(self.world.now, partial(self.event, self._hear_task_clients))

    def _hear_task_clients(self) -> None:
        self.task_clients.turn(self.now_s)
        self._check_task_clients()

    def _check_task_clients(self) -> None:
        if self._wrong is not None:
            raise Broken(
                f"{self.name} rejects what an honest client within a task sent: {self._wrong}"
            ) from self._wrong


class _ToNode:
    """A node's link, for what is relayed over it (`task_clients.NodeLink`)."""

    def __init__(self, scheduler: SchedulerHost, link: Link) -> None:
        self.peer = link.peer.name
        self._scheduler = scheduler
        self._link = link

    def send(self, message: m.Message) -> None:
        """Queue a message, if the link still stands."""
        if self._scheduler.links.get(self._link.known_as) is self._link:
            self._scheduler.to_node(self._link.known_as, message)


class _ToScheduler:
    """A scheduler's link, for what is relayed over it."""

    version = m.PROTOCOL_VERSION

    def __init__(self, node: NodeHost, scheduler: str) -> None:
        self._node = node
        self._scheduler = scheduler

    def send(self, message: m.Message) -> None:
        """Queue a message."""
        self._node.to_scheduler(self._scheduler, message)


class Dialler(Host):
    """A process that dials schedulers, and does so again whenever a link is gone."""

    def __init__(self, world: Surroundings, name: str) -> None:
        super().__init__(world, name)
        self.dialled: dict[Side, Link] = {}
        """Its links, those that were not welcomed yet included."""

    def received(self, link: Link, frame: list[Any]) -> None:
        if isinstance(frame[0], m.Welcome):
            self.links[frame[0].name] = link
            self._welcomed(frame[0])
            frame = frame[1:]
        super().received(link, frame)

    def _welcomed(self, welcome: m.Welcome) -> None:
        raise NotImplementedError

    def down(self, link: Link) -> None:
        if self.dialled.get(link.scheduler) is link:
            del self.dialled[link.scheduler]
            if link.redial_after_s is not None:
                self.world.dial_later(link.scheduler, self, link.redial_after_s)
        if self.links.get(link.scheduler.name) is link:
            del self.links[link.scheduler.name]
            self._scheduler_down(link.scheduler.name)

    def _scheduler_down(self, scheduler: str) -> None:
        raise NotImplementedError

    def unreachable(self, scheduler: str) -> None:
        """It has dialled the scheduler, whose process is gone."""


class NodeHost(Dialler):
    """A node monitor process and its executors. slowness: tasks that start take so many times longer."""

    core: NodeMonitorCore

    def __init__(self, world: Surroundings, name: str, slots: int) -> None:
        super().__init__(world, name)
        self.slots = slots
        self.memory = f"{name} since {world.now}"
        self.leaving = False
        """Whether its process is about to end."""
        self.slowness = 1.0
        self.executors: dict[str, VirtualExecutor] = {}
        self.blobs = FakeBlobs(name)
        plans = list(FORKING_PLANS if int(name.lstrip("n")) % 2 else PLANS)
        self.core = NodeMonitorCore(world.node_options, slots, plans, self, self.blobs, world.resources, self.info())
        self._relayed_to: dict[str, Any] = {}
        """Links to schedulers, for what clients within tasks say."""
        store: Any = self.blobs
        self.relay = TaskRelay(
            self.core.attempt_of, self.core.attempts, lambda: self._relayed_to, store, self.core.told.bytes_max
        )  # fmt: skip

    def info(self) -> m.NodeInfo:
        """What it says of itself."""
        attributes, runtimes = node_attributes(self.name, self.world.racks), {p.app: p.runtime for p in PLANS}
        return m.NodeInfo(self.slots, self.world.resources, attributes, runtimes, self.name, self.memory)

    @property
    def running(self) -> int:
        """Tasks that run here, and do not wait."""
        return sum(len(executor.running) - len(executor.paused) for executor in self.executors.values())

    def given(self) -> list[Start]:
        """What its executors have been given and have not ended."""
        return [start for executor in self.executors.values() for start in executor.held()]

    # ---- the core's outbox

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self.links.get(scheduler)
        if link is not None:
            self.world.sent.append((self.name, scheduler, message))
            link.to_scheduler.send(message)
        if isinstance(message, m.Preempted):
            self._preempted((message.job, message.attempt))

    def _preempted(self, name: tuple[str, int]) -> None:
        """The core says that it has stopped this attempt to make room."""
        for log in self.world.logs.values():
            for start in log.starts:
                if start.name == name and start.node is self:
                    start.preempted = True

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        """Effect of the core."""
        if executor in self.executors:
            self.executors[executor].received(message)
        elif isinstance(message, x.Run):
            raise Broken("a task is given to an executor that is gone")

    def kill_executor(self, executor: str) -> None:
        """Effect of the core."""
        if executor in self.executors:
            self.executors[executor].leaving = True

        def kill() -> None:
            if executor in self.executors:
                for start in self.executors[executor].held():
                    start.killed = True
                self.executors[executor].be_killed()

        self.world.at(self.world.now, kill)

    def fetch(self, ref: BlobRef, user: str) -> None:
        """Effect of the core."""

        def arrive() -> None:
            sources = self.world.sources_of(ref, self.name)
            if sources:
                self.blobs.add(ref)
            self.core.fetched(user, ref.hash, "" if sources else f"{', '.join(ref.at)}: 404", self.now_s)

        self.world.at(self.world.now + 2 * self.world.latency_s(), partial(self.event, arrive))

    def give_up(self, hash_: str, size: int, user: str) -> None:
        """Effect of the core: here what is on its way comes all the same."""

    def offer_changed(self, app: str, reason: str) -> None:
        """Effect of the core: for people to read."""

    def start_executor(self, app: str, places: int) -> None:
        """Effect of the core."""
        delay_s = self.world.executor_start_s * self.world.rng.uniform(0.5, 1.0)
        fails = self.world.rng.random() < self.world.executor_start_fails
        self.world.at(
            self.world.now + delay_s, partial(self.event, partial(self._executor_started, app, places, fails))
        )

    def _executor_started(self, app: str, places: int, fails: bool) -> None:
        if fails:
            self.core.executor_failed(app, "no luck", self.now_s)
            return
        executor = VirtualExecutor(self, f"{app}-{self.world.number()}", app, places)
        self.executors[executor.id] = executor
        self.core.executor_up(executor.id, app, places, self.now_s)

    # ---- links

    def _welcomed(self, welcome: m.Welcome) -> None:
        self._relayed_to[welcome.name] = _ToScheduler(self, welcome.name)
        self.core.scheduler_up(welcome.name, welcome.frame_bytes_max, plane=welcome.plane)

    def _receive(self, link: Link, message: Any) -> None:
        core, scheduler = self.core, link.scheduler.name
        if isinstance(message, m.TaskHears):
            self.relay.hears(scheduler, message)
            return
        if isinstance(message, m.TaskHeard):
            self.relay.heard(scheduler, message)
            return
        idle = core.free_slots > 0 and not core.queue.size
        before = len(core.attempts.by_key) if type(message) is m.LaunchNow else None
        core.receive(scheduler, message, self.now_s)
        if before is not None:
            problem = guarantees.untimely_push(idle, len(core.attempts.by_key) - before, core.queue.size)
            if problem:
                raise Broken(f"{self.name}: {problem}", message.job)

    def _scheduler_down(self, scheduler: str) -> None:
        del self._relayed_to[scheduler]
        self.relay.scheduler_down(scheduler)
        self.core.scheduler_down(scheduler, self.now_s)


class ClientHost(Dialler):
    """A client process."""

    core: ClientCore

    def __init__(self, world: Surroundings, name: str, user: str) -> None:
        super().__init__(world, name)
        self.user = user
        self.core = ClientCore(random.Random(world.rng.random()), self, submit_timeout_s=world.submit_timeout_s)

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self.links.get(scheduler)
        if isinstance(message, m.SubmitJob):
            log = self.world.logs[message.job.partition(".")[0]]  # Its own, or of the job of which it is a part.
            log.sent_to(scheduler, message.epoch)
        if link is not None:
            link.to_scheduler.send(message)

    def upload_again(self, job: ClientJob, hash_: str) -> None:
        """No input of these jobs is the client's."""
        self.core.uploaded(job.id, BlobRef(hash_, 0, ()))

    def stream(self, scheduler: str, job: ClientJob) -> None:
        """As `Session._stream`: one message a turn, until the job is no longer that scheduler's."""
        link, chunks = self.links.get(scheduler), job.chunks

        def step() -> None:
            if link is None or self not in link.open or job.scheduler != scheduler:
                return
            if (job.cancelled and not job.submission.epoch) or job.chunks is not chunks:
                return
            chunk = next(chunks, None)
            if chunk is None:
                self.core.streamed(job)
                return
            link.to_scheduler.send(chunk)
            self.world.at(self.world.now + self.world.latency_s(), partial(self.event, step))

        self.world.at(self.world.now, partial(self.event, step))

    # ---- links

    def _welcomed(self, welcome: m.Welcome) -> None:
        self.core.scheduler_up(
            welcome.name, welcome.frame_bytes_max, self.now_s, welcome.version, welcome.plane, welcome.leads
        )

    def _receive(self, link: Link, message: Any) -> None:
        self.core.receive(link.scheduler.name, message, self.now_s)

    def received(self, link: Link, frame: list[Any]) -> None:
        super().received(link, frame)
        if not self.world.receipts or frame is link.last_counted:  # It came twice, as no frame of TCP does.
            return
        link.last_counted = frame
        link.received += sum(type(message) is not m.Welcome for message in frame)
        if link.received and self.links.get(link.scheduler.name) is link:
            link.to_scheduler.send(m.Received(link.received))

    def _scheduler_down(self, scheduler: str) -> None:
        self.core.scheduler_down(scheduler, "the link broke", self.now_s, redialled=True)

    def unreachable(self, scheduler: str) -> None:
        self.core.scheduler_unreachable(scheduler, self.now_s)


def node_attributes(name: str, racks: Sequence[str]) -> dict[str, str]:
    """A node's attributes: its number, whether that is even, and its rack, if it has one."""
    number = int(name.lstrip("n"))
    rack = racks[number % len(racks)] if racks else ""
    return {"number": str(number), "parity": "odd" if number % 2 else "even", **({"rack": rack} if rack else {})}
