"""The node monitor's driver: links, executors and timers around `core.NodeMonitorCore`. It decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import os
import socket
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from typing import Any

import aiohttp
from prometheus_client.core import Metric

from node_monitor.blobs.blob_store import BlobStore
from node_monitor.blobs.blobs import BlobTable
from node_monitor.blobs.lack_of_room import LackOfRoom
from node_monitor.blobs.result_files import ResultDirectory
from node_monitor.core import NodeMonitorCore
from node_monitor.executors.apps import App, by_account, offered_apps
from node_monitor.executors.builtin import BUILTIN_APPS, Builtin
from node_monitor.executors.confinement import Confinement, ptrace_warning
from node_monitor.executors.environment import one_thread_per_slot, passed_on
from node_monitor.executors.executors import ExecutorPool
from node_monitor.host.load import LoadMeter
from node_monitor.host.measured import Measured
from node_monitor.host.resources import cores, resource_vector
from node_monitor.http.blob_routes import add_blob_routes
from node_monitor.http.metrics import collect
from node_monitor.http.routes import add_routes
from node_monitor.idleness import Idleness
from node_monitor.options import NodeMonitorOptions, with_port
from node_monitor.task_relay import Connection, TaskClient, TaskRelay
from sparrow_py.access.credentials import Access, Credentials
from sparrow_py.daemon.http_app import make_app
from sparrow_py.daemon.listener import Listener
from sparrow_py.daemon.process import until
from sparrow_py.embedded.output_channel import OutputChannel
from sparrow_py.errors import InvalidOption, InvalidRequest, LinkError, NoScheduler
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.processes.orphans import Orphans
from sparrow_py.timing.clock import Clock, DeadlineTimer
from sparrow_py.timing.standstill import PATIENCE, Standstill
from sparrow_py.wire import messages as m
from sparrow_py.wire.attaching import AttachableScheduler, Attaching
from sparrow_py.wire.connector import Connector
from sparrow_py.wire.dialling import Dialling
from sparrow_py.wire.links import Link
from sparrow_py.wire.local_pair import LocalEnd
from sparrow_py.wire.outgoing import Outgoing
from sparrow_py.wire.resolution import resolve

log = logging.getLogger("sparrow.node_monitor")
offers_log = SparingLog(log)
"""Of all node monitors here: one library that is broken may concern all of them."""
not_linked_log = SparingLog(log)
"""Of all node monitors here: what keeps one from a scheduler keeps the others, too."""
REPORTS_PER_SLOT = 2
"""A scheduler that reads may be sent so many results for each slot at once, however little may wait for a peer."""
MEASURE_S = 1.0
"""The machine's load is measured so often, while a scheduler wants to know it."""
LOOK_AT_IDLENESS_S = 0.5
"""How often a node monitor that is to leave when it idles looks whether it does."""
LEASES_SHARE_OF_DRAIN = 0.5
"""Of `drain_timeout_s`: when leases are over at the latest on a node that ends. What is left is for tasks to yield."""
LINGER_S = 5.0
"""A node that has drained waits so long for results to be fetched; nobody may want them any more."""


class NodeBlobs:
    """The process's blob store as one node's core sees it."""

    def __init__(self, node_id: str, store: BlobStore) -> None:
        self._node_id = node_id
        self._store = store

    def file(self, hash_: str) -> x.File | None:
        """The file with these bytes, or None."""
        return self._store.file(hash_) if self._store.has(hash_) else None

    def file_for(self, hash_: str, account: str) -> x.File | None:
        """The same, which executors of this account may read from now on."""
        return self._store.file_for(hash_, account) if self._store.has(hash_) else None

    def adopt(self, file: x.File, owner: int) -> BlobRef:
        """Keep an executor's result, which was taken over already, as long as the owner is there."""
        self._store.pin(file.hash, (self._node_id, owner))
        return BlobRef(file.hash, file.size, (self._store.address,))

    def lack_of_room(self, size: int, in_all: int, user: str) -> LackOfRoom | None:
        """Why the user's further inputs, so many bytes of `in_all` bytes of a task, cannot be kept; None if they
        can."""
        return self._store.lack_of_room(size, in_all, user)

    def pin(self, hash_: str, owner: Hashable, user: str) -> LackOfRoom | None:
        """Keep it for the user as long as the owner is there; if that cannot be, why not."""
        if self._store.pin(hash_, (self._node_id, owner), user):
            return None
        return LackOfRoom(self._store.why_not_kept(hash_, user))

    def touch(self, hash_: str, user: str) -> bool:
        """See `Blobs`."""
        return self._store.touch(hash_, user)

    def unpin(self, owner: Hashable) -> None:
        """The owner is gone."""
        self._store.unpin((self._node_id, owner))


class NodeMonitor:
    """One node: its core, its executors, its links to schedulers."""

    def __init__(
        self,
        node_id: str,
        options: NodeMonitorOptions,
        apps: dict[str, App],
        session: aiohttp.ClientSession,
        store: BlobStore,
        access: Callable[[], Access],
        confinement: Confinement,
        orphans: Orphans | None,
        outgoing: Outgoing,
        look: Callable[[], None] = lambda: None,
        channel: OutputChannel | None = None,
        scheduler: AttachableScheduler | None = None,
    ) -> None:
        """`outgoing` is shared by all that the process hosts. `look` is called before anything happens: it may notice
        that the process stood still (`stood_still`). `scheduler`: that of this process, in place of those that are
        dialled."""
        self.id = node_id
        self.options = options
        self.slots = options.slots or cores()
        self._clock = Clock()
        self._look = look
        self._outgoing = outgoing
        self._store = store
        resources = {**resource_vector(), **options.resources}
        plans = [app.plan for app in apps.values()]
        blobs = NodeBlobs(node_id, store)
        info = m.NodeInfo(self.slots, resources, options.attributes, {}, store.address, uuid.uuid4().hex)
        self.core = NodeMonitorCore(options, self.slots, plans, self, blobs, resources, info, confinement.users)
        environment = one_thread_per_slot(passed_on(os.environ, options.executor_env_patterns))
        self.pool = ExecutorPool(
            apps, self, store, options.socket_dir, confinement, orphans, environment, channel, node_id
        )
        self._dialling: Dialling | Attaching
        self._deliver: Callable[[], None] | None = None
        """At the end of an event: have what it has sent to the scheduler of this process answered."""
        if scheduler is None:
            self._dialling = self._dialling_of(session, access)
        else:
            self._dialling = Attaching(scheduler, node_id, self.core.node, self)
            self._deliver = self._dialling.deliver
        self._links: Mapping[str, Link | LocalEnd] = self._dialling.links
        self.relay = TaskRelay(
            self.core.attempt_of, self.core.attempts, lambda: self._links, store, self.core.told.bytes_max
        )
        self._ended: deque[tuple[str, x.Done]] = deque()
        self._builtin = Builtin(self._clock, self._builtin_ended_now, self._builtin_ended_later)
        self._timer = DeadlineTimer(self._clock, self.core.next_deadline_s, outgoing.event(self._tick))
        self._after_due: asyncio.Handle | None = None
        """`_after` is due at the end of this turn of the loop, as other executors have yet to be heard."""

    def _dialling_of(self, session: aiohttp.ClientSession, access: Callable[[], Access]) -> Dialling:
        options = self.options
        return Dialling(
            options.scheduler,
            m.Hello(m.PROTOCOL_VERSION_OLDEST, "node", self.id, "", "", self.core.node, newest=m.PROTOCOL_VERSION),
            m.FrameDecoder(m.ToNode),
            self,
            session,
            heartbeat_s=options.heartbeat_s,
            backlog_bytes_max=options.link_backlog_bytes_max,
            access=access,
            outgoing=self._outgoing,
            look=self._look,
            not_linked=self._not_linked,
        )

    @property
    def scheduler_addresses(self) -> list[str]:
        """Where it has dialled the schedulers that it is linked to; not those of this process."""
        return sorted(link.peer for link in self._links.values() if isinstance(link, Link))

    # ---- the core's outbox -------------------------------------------------------------------

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self._links.get(scheduler)
        if link is not None:
            link.send(message)

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        """Effect of the core."""
        if executor in BUILTIN_APPS:
            self._builtin.run(executor, message)
        else:
            self.pool.send(executor, message)

    def start_executor(self, app: str, places: int) -> None:
        """Effect of the core."""
        self.pool.start_executor(app, places)

    def kill_executor(self, executor: str) -> None:
        """Effect of the core."""
        self.pool.kill(executor)

    def fetch(self, ref: BlobRef, user: str) -> None:
        """Effect of the core."""
        self._store.fetch(ref, functools.partial(self._fetched, user), user, self.id)

    def give_up(self, hash_: str, size: int, user: str) -> None:
        """Effect of the core."""
        self._store.give_up(hash_, size, user, self.id)

    def offer_changed(self, app: str, reason: str) -> None:
        """Effect of the core."""
        if reason:
            offers_log.warning("%s offers app %s no more, as its executors do not start: %s", self.id, app, reason)
        else:
            offers_log.warning("%s offers app %s again: an executor has started", self.id, app)

    def _fetched(self, user: str, hash_: str, reason: str) -> None:
        self._look()
        self.core.fetched(user, hash_, reason, self._clock())
        self._after(self._clock())

    # ---- life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start executors and dial schedulers."""
        await self.pool.start()
        for app in BUILTIN_APPS:
            self.core.executor_up(app, app, self.slots, self._clock())
        # Hundreds of node monitors in one process are for the built-in apps: no workers until a task comes.
        self.core.start(list(self.options.warm_apps) if self.options.count == 1 else [])
        self._dialling.start()

    async def drain(self) -> None:
        """Hand back what has not started, and wait for what runs; there is no way back."""
        self.core.leaving = True
        self.change_state(m.DRAINING)
        self.core.end_leases_by(self._clock() + LEASES_SHARE_OF_DRAIN * self.options.drain_timeout_s)
        self._after(self._clock())
        await until(lambda: self.core.drained)

    def change_state(self, state: str) -> None:
        """The operator's command: ready, cordoned or draining."""
        change = {m.READY: self.core.uncordon, m.CORDONED: self.core.cordon, m.DRAINING: self.core.drain}[state]
        change(self._clock())
        self._after(self._clock())

    def renew(self) -> None:
        """Show schedulers the token of the day."""
        self._dialling.renew()

    async def stop(self) -> None:
        """End at once."""
        self._builtin.stop()
        if self._after_due is not None:
            self._after_due.cancel()
            self._after_due = None
            self._outgoing.end()
        await self.pool.stop()  # First, so that no task runs on while links are closed.
        await self._dialling.stop("the node monitor is shutting down")
        self._timer.cancel()

    @property
    def connected(self) -> int:
        """Links to schedulers that stand."""
        return len(self._links)

    def stood_still(self, seconds: float) -> None:
        """All schedulers have given this node up, however its links look: what they had sent before is not started, as
        they have counted it as lost, and may have started it elsewhere. What runs goes on, for whoever claims it."""
        log.warning("%s stood still for %.1f s: schedulers elsewhere are dialled again", self.id, seconds)
        self._dialling.give_up("the node monitor stood still for longer than its peers wait")

    # ---- after events ------------------------------------------------------------------------

    def _after(self, now_s: float) -> None:
        """Events were fed in: let the core act on all of them together, and send what it wants sent."""
        held, self._after_due = self._after_due, None
        try:
            self.core.pump(now_s)
            while self._ended:
                while self._ended:
                    self.core.done(*self._ended.popleft(), now_s)
                self.core.pump(now_s)
            self.pool.flush()
            self._timer.update()
            if self._deliver is not None:
                self._deliver()
        finally:
            if held is not None:
                held.cancel()
                self._outgoing.end()

    def _after_all_are_heard(self, now_s: float) -> None:
        """An executor's events were fed in: as `_after`, but together with those of others that have said something.

        They are heard in this turn of the loop, or in the next.
        """
        if not self.pool.more_to_hear():
            self._after(now_s)
        elif self._after_due is None:
            self._outgoing.begin()  # It ends in `_after`: what is to be said of all of them leaves together.
            self._after_due = asyncio.get_running_loop().call_soon(self._after_turn)

    def _after_turn(self) -> None:
        self._after(self._clock())

    def _tick(self) -> None:
        self._look()
        now_s = self._clock()
        self.core.tick(now_s)
        self._after(now_s)

    def _builtin_ended_now(self, executor: str, done: x.Done) -> None:
        self._ended.append((executor, done))  # The core is in the middle of an event: `_after` feeds it in.

    def _builtin_ended_later(self, executor: str, done: x.Done) -> None:
        self._look()
        self._ended.append((executor, done))
        self._after(self._clock())

    def measured(self, measured: Measured) -> None:
        """Event of the daemon: so much of the machine is in use."""
        now_s = self._clock()
        self.core.measured(measured, now_s)
        self._after(now_s)

    # ---- executors' events -------------------------------------------------------------------

    def executor_up(self, executor: str, app: str, places: int, version: int) -> None:
        """Event of the pool."""
        self._look()
        self.core.executor_up(executor, app, places, self._clock(), version)
        self._after(self._clock())

    def executor_failed(self, app: str, reason: str) -> None:
        """Event of the pool."""
        self.core.executor_failed(app, reason, self._clock())
        self._after(self._clock())

    def executor_leaving(self, executor: str) -> None:
        """Event of the pool."""
        self.core.executor_leaving(executor, self._clock())

    def executor_down(self, executor: str, reason: str, failure: str = "") -> None:
        """Event of the pool."""
        self._look()
        self.core.executor_down(executor, reason, self._clock(), failure)
        self._after(self._clock())

    def user_of(self, executor: str, run: int) -> str | None:
        """See `executors.Events`."""
        return self.core.user_of(executor, run)

    def task_client_came(self, executor: str, hello: x.TaskClientHello, connection: Connection) -> TaskClient | None:
        """Event of the pool."""
        return self.relay.come(executor, hello, connection)

    def task_client_said(
        self, client: TaskClient, messages: list[Any], directory: ResultDirectory
    ) -> Coroutine[Any, Any, None] | None:
        """Event of the pool."""
        self._look()
        return self.relay.said(client, messages, directory)

    def task_client_gone(self, client: TaskClient) -> None:
        """Event of the pool."""
        self.relay.closed(client)

    def executor_said(self, executor: str, messages: list[Any]) -> None:
        """Event of the pool."""
        self._outgoing.begin()
        try:
            self._hear(executor, messages)
        finally:
            self._outgoing.end()

    def _hear(self, executor: str, messages: list[Any]) -> None:
        self._look()
        now_s = self._clock()
        done = [message for message in messages if type(message) is x.Done]
        try:
            if done:
                self.core.done_together(executor, done, now_s)
            for message in messages if len(done) < len(messages) else ():
                if type(message) is x.Done:
                    continue
                if type(message) is x.Returned:
                    self.core.returned(executor, message, now_s)
                elif type(message) is x.Waits:
                    self.core.waits(executor, message, now_s)
                elif type(message) is x.WantsSlot:
                    self.core.wants_slot(executor, message, now_s)
                elif type(message) is x.Attributes:
                    self.core.executor_says(executor, message, now_s)
                elif type(message) is x.ExecutorHello:
                    raise LinkError("a second hello")
                else:
                    raise LinkError(f"an executor sent a {type(message).__name__}")
        finally:
            self._after_all_are_heard(now_s)

    # ---- schedulers' events ------------------------------------------------------------------

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        """Event of the dialling."""
        link = self._links[scheduler]
        if isinstance(link, Link):
            link.backlog_at_least(REPORTS_PER_SLOT * self.slots * welcome.frame_bytes_max)
        self.core.scheduler_up(scheduler, welcome.frame_bytes_max, address=link.peer, plane=welcome.plane)
        log.info("%s: linked to %s at %s", self.id, scheduler, link.peer)

    def _not_linked(self, reason: str) -> None:
        """Event of the dialling."""
        not_linked_log.warning("%s: not linked, and dialling goes on: %s", self.id, reason)

    def scheduler_said(self, scheduler: str, batch: list[Any]) -> None:
        """Event of the dialling."""
        now_s, receive = self._clock(), self.core.receive
        try:
            for message in batch:
                if type(message) is m.TaskHears:
                    self.relay.hears(scheduler, message)
                elif type(message) is m.TaskHeard:
                    self.relay.heard(scheduler, message)
                else:
                    receive(scheduler, message, now_s)
        finally:
            self._after(now_s)

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        """Event of the dialling."""
        log.info("%s: %s gone: %s", self.id, scheduler, reason)
        self.relay.scheduler_down(scheduler)
        self.core.scheduler_down(scheduler, self._clock())
        self._after(self._clock())


class NodeMonitorDaemon:
    """A process that hosts `count` node monitors."""

    kind = "node_monitor"

    def __init__(
        self,
        options: NodeMonitorOptions,
        *,
        attached: tuple[str, ...] = (),
        orphans: Orphans | None = None,
        scheduler: AttachableScheduler | None = None,
    ) -> None:
        """`orphans`: this process's, if all its children are executors; then what those leave running is killed.
        `scheduler`: one that runs on the same loop, in place of those that the options name."""
        self.options = options
        self._orphans = orphans
        self._scheduler = scheduler
        self._channel = None if options.output_fd is None else _channel(options.output_fd)
        self._confinement = Confinement.of(options)
        self.credentials = Credentials(options, dials=True)
        self.address = ""
        self.nodes: list[NodeMonitor] = []
        self._apps = by_account(offered_apps(options, attached=attached), self._confinement.users)
        self._standstill = Standstill(PATIENCE * options.heartbeat_s, self._stood_still)
        self._outgoing = Outgoing()
        self._meter: LoadMeter | None = None
        """There while somebody wants to know the machine's load."""
        self._measuring: asyncio.TimerHandle | None = None
        self.leaving = asyncio.Event()
        """Set once it has had nothing to do for `idle_exit_s`, or was told to leave."""
        self._told_to_leave = False
        self._clock = Clock()
        self._idleness = Idleness(options.idle_exit_s)
        self._looking: asyncio.TimerHandle | None = None
        self._session: aiohttp.ClientSession | None = None
        self._store: BlobStore | None = None
        self._listener: Listener | None = None

    async def start(self) -> dict[str, Any]:
        """Listen for HTTP and start all node monitors; returns what to announce."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> dict[str, Any]:
        options, credentials = self.options, self.credentials
        app = make_app(self, credentials, self._metrics)
        self._session = aiohttp.ClientSession(connector=Connector())
        only = self._confinement.only_account
        readers_gid = None if only is None else only.gid
        table = BlobTable(options.blob_bytes_max, options.blob_retention_s, options.blob_lease_s)
        store = self._store = BlobStore(
            table,
            self._session,
            lambda: credentials.access,
            Clock(),
            options.blob_dir,
            readers_gid,
            self._confinement.readers,
        )
        store.start()
        add_routes(app, self.nodes, self._leave)
        add_blob_routes(app, store)
        self._listener = Listener(app, options, credentials)
        await self._listener.start()
        self.address = self._listener.address
        store.address = advertised(self.address, options.advertise, await _first_of(options, self.address))
        base = self.options.node_id or f"{socket.gethostname()}:{self.address.rpartition(':')[2]}"
        ids = [base] if self.options.count == 1 else [f"{base}/{number}" for number in range(self.options.count)]
        for node_id in ids:
            node = NodeMonitor(
                node_id,
                options,
                self._apps,
                self._session,
                store,
                lambda: credentials.access,
                self._confinement,
                self._orphans,
                self._outgoing,
                self._standstill.check,
                self._channel,
                self._scheduler,
            )
            self.nodes.append(node)
            await node.start()
        self._standstill.start()
        self._measure()
        if options.idle_exit_s:
            self._look_at_idleness()
        shares = self._confinement.users.shared
        # One that ends with its program, and whose secret came from that alone, has that program's user.
        own = options.exit_on_stdin_eof and not (options.token_file or options.tls_cert)
        told_apart = options.run_as or (options.guarded and not own)
        if shares and told_apart and (warning := ptrace_warning()):
            log.warning(warning)
        return {"address": self.address, "nodes": ids, "sockets": [node.pool.socket_path for node in self.nodes]}

    def _metrics(self, exemplars: bool) -> Iterator[Metric]:
        assert self._store is not None  # Nobody asks before it is there.
        return collect([node.core for node in self.nodes], self._store, self.options, exemplars=exemplars)

    def why_not_ready(self) -> str:
        """Why no task can run here; empty if one can."""
        if any(node.core.draining for node in self.nodes):
            return "draining"
        if not all(node.connected for node in self.nodes):
            return "not linked to a scheduler"
        apps = sorted({app for node in self.nodes for app in node.core.useless_for})
        return f"executors do not start, see /v1/nodes: {', '.join(apps)}" if apps else ""

    async def drain(self) -> None:
        """Drain all node monitors, and leave no result behind that a client may be about to fetch."""
        await asyncio.gather(*(node.drain() for node in self.nodes))
        store = self._store
        if store is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await until(lambda: not store.unfetched)

    def _stood_still(self, seconds: float) -> None:
        for node in self.nodes:
            node.stood_still(seconds)

    def why_leaving(self) -> str:
        """Why the process ends by itself, once `leaving` is set."""
        if self._told_to_leave:
            return "it was told to leave"
        return f"nothing was to be done for {self.options.idle_exit_s:g} s (idle_exit_s)"

    def _leave(self) -> str:
        if self._scheduler is not None:
            return "a scheduler has the same process"
        if self._is_busy():
            return "it has something to do, or jobs need data that lies there"
        self._told_to_leave = True
        self.leaving.set()
        return ""

    def _is_busy(self) -> bool:
        """Whether there is something to do, or a job needs what lies here."""
        busy = not all(node.core.idle and node.core.free_slots == node.slots for node in self.nodes)
        return busy or (self._store is not None and self._store.is_needed)

    def _look_at_idleness(self) -> None:
        busy = self._is_busy()
        started = sum(node.core.counters.started for node in self.nodes)
        if self._idleness.is_over(busy, started, self._clock()):
            self.leaving.set()
            return
        self._looking = asyncio.get_running_loop().call_later(LOOK_AT_IDLENESS_S, self._look_at_idleness)

    def _measure(self) -> None:
        """Tell the nodes what of the machine is in use, their equal parts, if somebody wants to know it."""
        watched = [node for node in self.nodes if node.core.is_watched]
        if not watched:
            self._meter = None
        elif self._meter is None:
            self._meter = LoadMeter(Clock())
        else:
            measured = self._meter.measure().divided(len(self.nodes))
            self._outgoing.begin()
            try:
                for node in watched:
                    node.measured(measured)
            finally:
                self._outgoing.end()
        self._measuring = asyncio.get_running_loop().call_later(MEASURE_S, self._measure)

    async def stop(self) -> None:
        """End at once."""
        self._standstill.stop()
        for timer in (self._measuring, self._looking):
            if timer is not None:
                timer.cancel()
        await asyncio.gather(*(node.stop() for node in self.nodes))
        if self._store is not None:
            await self._store.stop()
        if self._session is not None:
            await self._session.close()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                await self._listener.close()

    async def renew(self) -> None:
        """The credentials are other ones: show them to schedulers, and take connections by the new rules."""
        for node in self.nodes:
            node.renew()
        if self._listener is not None:
            await self._listener.renew()


def _channel(descriptor: int) -> OutputChannel:
    try:
        return OutputChannel(descriptor)
    except OSError as error:
        raise InvalidOption("output_fd", descriptor, f"an inherited socket ({error.strerror})") from None


def advertised(bound: str, option: str, schedulers: Sequence[str]) -> str:
    """The address (host:port) that others are told: the option's, or that which the daemon is bound to.

    One that is bound to all addresses is reached at the one that this machine has towards its first scheduler.
    """
    port = bound.rpartition(":")[2]
    if option:
        return with_port(option, port)
    if not _is_bound_to_all(bound):
        return bound
    return f"{_host_towards(schedulers[0]) if schedulers else socket.gethostname()}:{port}"


def _is_bound_to_all(bound: str) -> bool:
    return ipaddress.ip_address(bound.rpartition(":")[0].strip("[]")).is_unspecified


async def _first_of(options: NodeMonitorOptions, bound: str) -> list[str]:
    """The addresses of the first source of schedulers that names any now; of none if nobody needs to know."""
    for source in options.scheduler if _is_bound_to_all(bound) and not options.advertise else ():
        with contextlib.suppress(NoScheduler, InvalidRequest):
            return await resolve([source])
    return []


def _host_towards(scheduler: str) -> str:
    """This machine's address on the way to a scheduler; its name if that cannot be told. Nothing is sent."""
    host, _, port = scheduler.rpartition(":")
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])
    return socket.gethostname()
