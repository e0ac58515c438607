"""The scheduler's driver: sockets and timers around `core.SchedulerCore`. It decides nothing."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client.core import Metric

from scheduler import planes
from scheduler.audit.audited_core import AuditedCore
from scheduler.book.validation import check_node
from scheduler.core import SchedulerCore
from scheduler.http.jobs import HttpJobs
from scheduler.http.metrics import collect
from scheduler.http.pages import DashboardPages
from scheduler.http.readers import Readers
from scheduler.http.routes import add_routes
from scheduler.http.view_routes import ViewRoutes
from scheduler.job_log import JobLog
from scheduler.options import SchedulerOptions
from scheduler.plane import Problem
from scheduler.recent.recent import Recent
from scheduler.solving import Solving
from scheduler.task_clients import SEATS_PER_CLIENT, TaskClients, TaskLink
from scheduler.twins import Twins
from scheduler.warming_up import WarmingUp
from sparrow_py.access.credentials import Credentials
from sparrow_py.access.principals import CLUSTER, Principal, check_link
from sparrow_py.counted import counted
from sparrow_py.daemon.http_app import make_app, peer_certificate
from sparrow_py.daemon.listener import Listener
from sparrow_py.daemon.process import until
from sparrow_py.errors import AccessDenied, InvalidRequest, LinkError
from sparrow_py.job import check_name
from sparrow_py.limits import open_files
from sparrow_py.limits.shares import Shares
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.timing.clock import Clock, DeadlineTimer
from sparrow_py.timing.standstill import PATIENCE, Standstill
from sparrow_py.wire import messages as m
from sparrow_py.wire.accepting import accept
from sparrow_py.wire.links import LINK_PATH, Link
from sparrow_py.wire.local_link import LocalLink
from sparrow_py.wire.local_pair import LocalEnd, LocalPair
from sparrow_py.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState
    from scheduler.stage_history.keeping import KeptStageHistory

log = logging.getLogger("sparrow.scheduler")
NOT_WORK = frozenset({m.Goodbye, m.Renew})
"""Messages about the link itself, which the core does not see."""
NOT_OF_NODE = NOT_WORK | {m.TaskSays, m.TaskGone}
"""And those of clients within tasks, which nodes relay."""
LAUNCHES = frozenset({m.Launch, m.LaunchNow, m.LaunchPlaced})
LAUNCHES_PER_SLOT = 2
"""A node that reads may be sent so many tasks for each of its slots at once, however little may wait for a peer."""
SETTLED_PER_TURN = 10_000
"""Once a client's messages have settled more tasks than this, others have their turn before its next message."""
TURN_S_MAX = 0.01
"""And once they have taken longer: jobs of a thousand stages come and go without that any task is settled."""
WITHDRAWN = "its token was withdrawn"
_decode_sent = m.FrameDecoder(m.ToNode | m.Welcome)
"""Of what a node's link is sent: a link that breaks at once may still have its Welcome."""


class SchedulerDaemon:
    """A scheduler. `start` it, then `stop` it; `address` is where it listens."""

    kind = "scheduler"

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.credentials = Credentials(options, dials=False)
        self.name = f"scheduler-{uuid.uuid4().hex[:12]}"
        self.address = ""
        self.clock = Clock()
        self._audited = AuditedCore(self, self.clock) if options.audit_log else None
        self._stage_history = _stage_history(options)
        """What runs of stages have shown, if that is kept in a file."""
        self.core = SchedulerCore(
            options, random.Random(), self._audited or self, now_s=self.clock(), name=self.name,
            history=None if self._stage_history is None else self._stage_history.history,
        )  # fmt: skip
        self.recent = Recent(self.core, self.clock())
        """For those who look at it."""
        self._task_log = self.recent.tasks
        self._job_log = JobLog(log)
        self.core.register.job_gone = self._job_gone
        self.core.register.job_refused = self._job_log.refused
        self.core.warned = partial(SparingLog(log).warning, "%s")
        if self._audited is not None:
            self._audited.of(self.core)
        self._events: SchedulerCore | AuditedCore = self._audited or self.core
        """What peers' messages are fed to."""
        self._nodes: dict[str, Link | LocalEnd] = {}
        self.twins = Twins()
        self._twins_log = SparingLog(log)
        self._attached: list[LocalEnd] = []
        """Those to node monitors of this process."""
        self._clients: dict[str, Link | LocalLink | TaskLink] = {}
        self._files = open_files.budget()
        self._client_seats = _client_seats(options.clients_max, self._files)
        """Taken by links; a client in this process opens no file."""
        self._client_numbers = itertools.count(1)
        self._task_clients = TaskClients(
            self.core, self._clients, self._client_numbers, self.welcome, self._events.receive_from_client,
            self._task_clients_later,
            _task_client_seats(options.clients_max),
        )  # fmt: skip
        self._outgoing = Outgoing()
        self._task_clients_turn = self._outgoing.event(self._hear_task_clients)
        self._timer = DeadlineTimer(self.clock, self.core.next_deadline_s, self._outgoing.event(self._tick))
        self.http_jobs = HttpJobs(self.core, self._events, options, self.clock, self._client_numbers)
        self.readers = Readers(self._files.readers)
        self._views = ViewRoutes(self, self._files.readers)
        self._http_timer = DeadlineTimer(
            self.clock, self.http_jobs.next_deadline_s, self._outgoing.event(self._http_tick)
        )
        self._look_timer = DeadlineTimer(self.clock, self.recent.next_deadline_s, self._look)
        self.solving = Solving(self._solved)
        self._warming_up: WarmingUp | None = None
        """How what the plane needs is made ready; None if that is nothing."""
        self._listener: Listener | None = None
        self._standstill = Standstill(PATIENCE * options.heartbeat_s, self._stood_still)
        self.refused = asyncio.Event()
        """Set when it must not go on, as another scheduler leads its plane: `why_refused` says which."""
        self.core.lead_told = self._lead_changed
        if self.core.leading is not None:
            self.core.leading.refused = self._is_refused
        self._decoders = {"client": m.FrameDecoder(m.FromClient), "node": m.FrameDecoder(m.FromNode)}

    # ---- the core's outbox -------------------------------------------------------------------

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self._nodes.get(node_id)
        if link is not None:
            self._send(link, message)

    def to_client(self, client: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self._clients.get(client)
        if link is not None:
            self._send(link, message)
        else:
            self.http_jobs.told(client, message)
            self._http_timer.update()

    def solve(self, number: int, problem: Problem) -> None:
        """Effect of the core: compute it on a thread; the answer is an event like others."""
        self.solving.solve(number, problem)

    def _solved(self, number: int, answer: Any) -> None:
        self.core.solved(number, answer, self.clock())
        self._after_events()

    def _job_gone(self, job: JobState, how: str, now_s: float) -> None:
        self._job_log.ended(job, how, now_s)
        self.recent.job_gone(job, how, now_s)

    def _look(self) -> None:
        self.recent.tick(self.clock())

    def _send(self, link: Link | LocalLink | LocalEnd | TaskLink, message: m.Message) -> None:
        """What a peer cannot be sent ends its link, not that of the peer whose message is being looked at."""
        try:
            link.send(message)
        except LinkError as error:
            log.warning("%s is cut off: %s", link.peer, error)
            link.close(str(error))

    # ---- life --------------------------------------------------------------------------------

    async def start(self) -> dict[str, Any]:
        """Listen; returns what to announce."""
        options = self.options
        pages = DashboardPages(self.credentials, self.clock, encrypted=options.tls is not None)
        app = make_app(self, self.credentials, self._metrics, pages)
        app.router.add_get(LINK_PATH, self._link)
        add_routes(app, self)
        pages.add_routes(app)
        self._views.add_to(app)
        self._listener = Listener(app, options, self.credentials)
        await self._listener.start()
        self.address = self._listener.address
        if self._audited is not None:
            try:
                self._audited.open(
                    options.audit_log, options.audit_log_bytes_max, self.name, self.address, options.profile
                )
            except BaseException:
                await self._listener.close()
                raise
        self._standstill.start()
        self._look_timer.update()
        self._warm_up()
        return {"address": self.address, "name": self.name}

    def _metrics(self, exemplars: bool) -> Iterator[Metric]:
        times = self.solving.times
        lines_lost = 0 if self._audited is None else self._audited.lines_lost
        return collect(
            self.core, len(self._clients), self.options, times, self.clock(), lines_lost, exemplars=exemplars
        )

    def _warm_up(self) -> None:
        """Have the plane's solvers compiled, which takes a while where it was not done before. Rounds come after it."""
        warm_up = planes.warm_up_of(self.options)
        if warm_up is not None:
            self._warming_up = WarmingUp(warm_up, self.solving)
            self._warming_up.start()

    def why_not_ready(self) -> str:
        """Why jobs should not be sent here; empty if they may."""
        if self.core.draining:
            return "draining"
        if self._warming_up is not None and not self._warming_up.is_over:
            return "the solvers are being compiled"
        if not len(self.core.nodes):
            return "no node monitor is connected"
        return "" if self.core.leading is None else self.core.leading.why_not()

    def why_refused(self) -> str:
        """The line with which the process ends once it is `refused`."""
        assert self.core.leading is not None
        return self.core.leading.why_refused()

    def lead(self) -> bool:
        """The operator's command, where the plane has a leader; False if this scheduler leads it already."""
        changes = self.core.lead(self.clock())
        if changes:
            log.warning("by order: %s", self.why_not_ready())
        self._after_events()
        return changes

    def _lead_changed(self, leads: bool) -> None:
        leading = self.core.leading
        assert leading is not None
        if leads:
            log.info("leads plane %s with epoch %d", leading.plane, leading.epoch)
        else:
            log.warning("leads no more: %s", leading.why_not())
        for client in self._clients:
            self.core.tell_client(client, m.Leads(leads))

    def _is_refused(self) -> None:
        log.error("%s", self.why_refused())
        self.refused.set()

    async def drain(self) -> None:
        """Refuse new jobs and wait for those accepted."""
        self.core.drain(self.clock())
        for client in self._clients:
            self.core.tell_client(client, m.Draining())
        await until(lambda: self.core.is_done and not self.readers.seats.total)

    async def stop(self) -> None:
        """Hand over what is left, close all links and listen no more."""
        self._standstill.stop()
        if self._listener is not None:
            await self._listener.refuse_connections()  # Else those whose links are closed dial again at once.
        jobs = len(self.core.jobs)
        last_words = self.core.hand_over(self.clock())
        if jobs:
            log.warning(
                "%s not ended: clients are to take theirs to other schedulers; those posted over HTTP are lost",
                counted(jobs, "job", "have"),
            )
        self._timer.cancel()
        self._http_timer.cancel()
        self._look_timer.cancel()
        self.solving.stop()
        if self._warming_up is not None:
            await self._warming_up.stop()
        self.http_jobs.close()
        self._views.viewers.close()
        await self._close(self._nodes.values())
        for client, message in last_words:
            self.core.tell_client(client, message)
        for client in self._clients:
            self.core.tell_client(client, m.AllHandedOver())
        await self._close(self._clients.values())
        if self._listener is not None:
            await self._listener.close()
        if self._audited is not None:
            await self._audited.close()
        if self._stage_history is not None:
            await self._stage_history.close()

    async def _close(self, closing: Iterable[Link | LocalLink | LocalEnd | TaskLink]) -> None:
        await asyncio.gather(*(link.aclose("the scheduler is shutting down") for link in closing))

    async def renew(self) -> None:
        """The credentials are other ones: close links whose token was withdrawn, and take new ones by the new rules.

        To the core such a peer has vanished: a node's tasks go elsewhere, a client has `client_grace_s` to come back.
        """
        for link in [*self._clients.values(), *self._nodes.values()]:
            if isinstance(link, Link) and not self.credentials.tokens.stands(link.principal):
                log.warning("%s (%s) is cut off: %s", link.peer, link.principal, WITHDRAWN)
                link.close(WITHDRAWN)
        self.http_jobs.kept.wake_readers()
        if self._listener is not None:
            await self._listener.renew()

    def cancel_job(self, job_id: str, *, running: bool = False) -> bool:
        """The operator's command."""
        known = self._events.cancel_job(job_id, self.clock(), running=running)
        self.update_timers()
        return known

    def update_timers(self) -> None:
        """After events that did not come over a link."""
        self._after_events()
        self._http_timer.update()

    def _after_events(self) -> None:
        """Events that came together have been fed to the core."""
        self.core.pump(self.clock())
        self._timer.update()
        for end in self._attached:
            end.deliver()

    def _tick(self) -> None:
        now_s = self.clock()
        self.core.tick(now_s)
        self.core.pump(now_s)

    def _http_tick(self) -> None:
        self.http_jobs.tick(self.clock())
        self._after_events()

    def _task_clients_later(self) -> None:
        asyncio.get_running_loop().call_soon(self._task_clients_turn)

    def _hear_task_clients(self) -> None:
        waited = self._task_clients.waiting
        self._task_clients.turn(self.clock())
        if waited:
            self._after_events()

    # ---- links -------------------------------------------------------------------------------

    async def _link(self, request: web.Request) -> web.StreamResponse:
        accepted = await accept(
            request,
            name=self.name,
            principal_of=self._principal_of,
            decoders=self._decoders,
            heartbeat_s=self.options.heartbeat_s,
            frame_bytes_max=self.options.frame_bytes_max,
            backlog_bytes_max=self.options.link_backlog_bytes_max,
            admit=self._admit,
            outgoing=self._outgoing,
            plane=self.core.plane.name,
            leads=self.leads,
        )
        if isinstance(accepted, web.StreamResponse):
            return accepted
        link, hello, response = accepted
        if hello.role == "node":
            await self._serve_node(link, hello, request.remote or "this machine")
        else:
            await self._serve_client(link, hello)
        return response

    def _principal_of(self, request: web.Request, token: str) -> Principal:
        return self.credentials.principal(token, peer_certificate(request))

    def _admit(self, hello: m.Hello, principal: Principal) -> None:
        check_name("name", hello.name)
        hello.user = check_link(principal, hello.role, hello.user, stated=hello.user_stated)
        if hello.role == "client":
            check_name("user", hello.user, empty=False)
            if why_not := self._client_seats.why_not(hello.user):
                raise LinkError(why_not)
            return
        check_name("node id", hello.name, empty=False)
        if hello.node is None:
            raise InvalidRequest("node", None, "the node's slots, resources, attributes and apps")
        check_node(hello.node)
        if hello.name not in self._nodes:
            self._check_room_for_node()

    def _check_room_for_node(self) -> None:
        by_files = self._files.links - self._client_seats.total
        if len(self._nodes) < min(self.options.nodes_max, by_files):
            return
        why_not = f"nodes_max = {self.options.nodes_max}: as many node monitors are connected"
        if by_files < self.options.nodes_max:
            connected = counted(len(self._nodes), "node monitor", "are")
            why_not = f"{connected} connected, and {self._files.files} files may be open"
        raise LinkError(why_not)

    async def _serve_node(self, link: Link, hello: m.Hello, remote: str) -> None:
        node_id = hello.name
        assert hello.node is not None
        link.backlog_at_least(LAUNCHES_PER_SLOT * hello.node.slots * self.options.frame_bytes_max)
        self._node_came(node_id, hello.node, link, remote)
        try:
            link.listen(partial(self._node_said, node_id, link), self._standstill.check)
            await link.ended()
        except (LinkError, InvalidRequest):
            pass  # It has been told.
        finally:
            self._node_left(node_id, link)
            await link.aclose()

    def _node_came(self, node_id: str, node: m.NodeInfo, link: Link | LocalEnd, remote: str = "this process") -> None:
        before = self._nodes.pop(node_id, None)
        if before is not None:
            # The node dialled again before its old link was seen to be dead, or another one has its name. Neither is
            # refused: the one that was linked may be dead.
            self._node_gone(node_id, before)
            before.close("a node monitor of this name has dialled")
        place = f"{node.address or 'no address'} (dialled from {remote})"
        if other := self.twins.came(node_id, node.memory or place, place, self.clock()):
            self._twins_log.warning(
                "two node monitors have the name %s, one at %s, one at %s: they end each other's links, and tasks are "
                "lost; give one another --node-id", node_id, place, other,
            )  # fmt: skip
        self._nodes[node_id] = link
        self._events.node_up(node_id, node, self.clock(), link.version)
        self._after_events()
        log.info("node monitor %s connected, %s", node_id, counted(node.slots, "slot"))

    def _node_left(self, node_id: str, link: Link | LocalEnd) -> None:
        """Its link is gone: so is the node, unless it has another by now."""
        if self._nodes.get(node_id) is link:
            del self._nodes[node_id]
            self.twins.gone(node_id)
            self._node_gone(node_id, link)
            self._after_events()
        log.info("node monitor %s gone: %s", node_id, link.closed_because or "connection closed")

    def _node_said(self, node_id: str, link: Link | LocalEnd, batch: list[Any]) -> None:
        receive, now_s, tasks = self._events.receive_from_node, self.clock(), self._task_log
        for message in batch:
            kind = type(message)
            if kind is m.Report and tasks.left > 0 and tasks.add(node_id, message):
                self.recent.look_closely(message)
            if kind in NOT_OF_NODE:
                if kind is m.TaskSays:
                    self._task_clients.said(node_id, link, message, now_s)
                elif kind is m.TaskGone:
                    self._task_clients.gone(node_id, message, now_s)
                elif isinstance(link, Link) and self._said_goodbye(link, message):
                    return
            else:
                receive(node_id, message, now_s)
                if link.closing:  # By what was answered: no launch would reach it any more.
                    break
        self._after_events()
        if self.core.register.news:
            self._say_taken_over()

    def _stood_still(self, seconds: float) -> None:
        """All nodes have given this scheduler up, however their links look.

        What they asked for before must not be answered: tasks would use up their attempts on one dead link after the
        other. Those of this process stood still with it, and have not.
        """
        nodes = {node_id: link for node_id, link in self._nodes.items() if isinstance(link, Link)}
        self._nodes = {node_id: link for node_id, link in self._nodes.items() if node_id not in nodes}
        log.warning(
            "stood still for %.1f s: %s to dial again",
            seconds,
            counted(len(nodes), "node monitor", "have"),
        )
        for node_id, link in nodes.items():
            self.twins.gone(node_id)
            self._node_gone(node_id, link)
            link.close("the scheduler stood still for longer than its peers wait")
        self._after_events()

    def _node_gone(self, node_id: str, link: Link | LocalEnd) -> None:
        """Its link is gone. Of what was still to be sent the core is told that it did not start."""
        now_s = self.clock()
        for frame in link.unsent:
            for message in _decode_sent(frame):
                if type(message) in LAUNCHES:
                    hand_back = m.HandBack(message.job, message.attempt, "the link broke before it was sent")
                    self._events.receive_from_node(node_id, hand_back, now_s)
        self._events.node_down(node_id, now_s)
        self._task_clients.node_gone(node_id, now_s)

    def _say_taken_over(self) -> None:
        """Nodes have said that jobs are another scheduler's: this one was cut off from their client, and is back."""
        register = self.core.register
        for job_id in register.news:
            taken_over = register.taken_over.get(job_id)
            epoch = "unknown" if taken_over is None else taken_over.epoch
            log.warning(
                "job %s is another scheduler's now (epoch %s): nothing more of it is started here", job_id, epoch
            )
        register.news.clear()

    async def _serve_client(self, link: Link, hello: m.Hello) -> None:
        client, user = f"{hello.name or hello.user}#{next(self._client_numbers)}", hello.user
        self._clients[client] = link
        self._client_seats.take(user)
        core, clock = self.core, self.clock
        core.client_up(client, user)
        if core.draining:
            core.tell_client(client, m.Draining())
        link.first = True
        said_goodbye = False

        settled = core.counters.settled.values()

        def client_said(batch: list[Any]) -> list[Any] | None:
            nonlocal said_goodbye
            receive, now_s = self._events.receive_from_client, clock()
            settled_most = sum(settled) + SETTLED_PER_TURN
            for number, message in enumerate(batch, 1):
                if type(message) in NOT_WORK:
                    said_goodbye = self._said_goodbye(link, message)
                    if said_goodbye:
                        return None
                else:
                    receive(client, user, message, now_s)
                    if link.closing:  # By what was answered: larger than a frame may be.
                        break
                    if sum(settled) > settled_most or clock() > now_s + TURN_S_MAX:
                        self._after_events()
                        return batch[number:]
            self._after_events()
            return None

        try:
            link.listen(client_said)
            await link.ended()
        except (LinkError, InvalidRequest) as error:
            log.warning("client %s cut off: %s", client, error)
            said_goodbye = True  # It is not to be waited for.
        finally:
            del self._clients[client]
            self._client_seats.give_back(user)
            core.client_down(client, clock(), said_goodbye=said_goodbye)
            self._after_events()
            await link.aclose()

    def _said_goodbye(self, link: Link, message: m.Goodbye | m.Renew) -> bool:
        """What is said about the link itself; whether it is the end of it. `LinkError` if it may not be said."""
        if isinstance(message, m.Goodbye):
            link.close(message.reason)
            return True
        principal, before = self.credentials.tokens.find(message.token), link.principal
        if principal is None:  # It proves nothing, and costs nothing: perhaps it was told before we were.
            level = logging.WARNING if before.role == CLUSTER else logging.DEBUG  # A client may say so all day.
            log.log(level, "%s (%s) shows a token that is not known here; the one before stands", link.peer, before)
        elif (principal.role, principal.user) != (before.role, before.user):
            raise AccessDenied(f"the renewed token is of {principal}, not of {before}")
        else:
            link.principal = principal
        return False

    def leads(self) -> bool:
        """Whether it takes jobs for its plane."""
        return self.core.leads

    def welcome(self) -> m.Welcome:
        """What is said to who attaches itself within this process."""
        options = self.options
        return m.Welcome(m.PROTOCOL_VERSION, self.name, options.frame_bytes_max, "", self.core.plane.name, self.leads())

    def attach(self, user: str, deliver: Callable[[list[Any]], None]) -> LocalLink:
        """A client in this process: returns the link that it sends on; what is for it goes to `deliver` (§6.1)."""
        client = f"{user}#{next(self._client_numbers)}"
        self._clients[client] = LocalLink(user, deliver)

        scheduled = False
        loop, said, settled = asyncio.get_running_loop(), deque[Any](), self.core.counters.settled.values()

        def received(batch: list[Any]) -> None:
            said.extend(batch)
            if not scheduled:
                handle()

        def handle() -> None:
            nonlocal scheduled
            scheduled = False
            now_s, settled_most = self.clock(), sum(settled) + SETTLED_PER_TURN
            try:
                while said and client in self._clients and sum(settled) <= settled_most:
                    if self.clock() > now_s + TURN_S_MAX:
                        break
                    message = said.popleft()
                    if type(message) is m.Goodbye:
                        raise LinkError(message.reason)
                    self._events.receive_from_client(client, user, message, now_s)
            except (LinkError, InvalidRequest) as error:
                log.warning("client %s is gone: %s", client, error)
                self._clients.pop(client).close(str(error))
                self.core.client_down(client, now_s)
            self._after_events()
            if client not in self._clients:
                said.clear()
            elif said:  # Others have their turn.
                scheduled = True
                loop.call_soon(handle)

        return LocalLink(self.address, received)

    def attach_node(self, node_id: str, node: m.NodeInfo, pair: LocalPair) -> m.Welcome:
        """A node monitor in this process: the scheduler's end of the pair is served from now on."""
        pair.dialled.owner = _AttachedNode(self, node_id, pair.dialled)
        self._attached.append(pair.dialled)
        self._node_came(node_id, node, pair.dialled)
        return self.welcome()

    def attached_node_said(self, node_id: str, end: LocalEnd, batch: list[Any]) -> None:
        """What came over a pair."""
        if self._nodes.get(node_id) is not end:
            return
        self._outgoing.begin()
        try:
            self._node_said(node_id, end, batch)
        finally:
            self._outgoing.end()

    def attached_node_gone(self, node_id: str, end: LocalEnd) -> None:
        """A pair has closed."""
        self._attached.remove(end)
        self._node_left(node_id, end)


class _AttachedNode:
    """The scheduler as the owner of its end of a pair."""

    def __init__(self, daemon: SchedulerDaemon, node_id: str, end: LocalEnd) -> None:
        self._daemon = daemon
        self._node_id = node_id
        self._end = end

    def said(self, batch: list[Any]) -> None:
        """See `local_pair.Owner`."""
        self._daemon.attached_node_said(self._node_id, self._end, batch)

    def gone(self, reason: str) -> None:
        """See `local_pair.Owner`."""
        self._daemon.attached_node_gone(self._node_id, self._end)


def _stage_history(options: SchedulerOptions) -> KeptStageHistory | None:
    """The one that the operator has named; `InvalidOption` if the file cannot be used."""
    if not options.stage_history:
        return None
    from scheduler.stage_history.keeping import KeptStageHistory

    return KeptStageHistory(options.stage_history)


def _client_seats(clients_max: int, files: open_files.Budget) -> Shares:
    """For the links of clients: as many as the option says, or as there are files for."""
    if files.clients >= clients_max:
        return Shares("clients_max", clients_max, "clients are connected")
    log.warning(
        "%d files may be open: %d clients may be connected, not clients_max = %d, and %d HTTP connections",
        files.files, files.clients, clients_max, files.connections,
    )  # fmt: skip
    return Shares(f"clients_max for {files.files} open files", files.clients, "clients are connected")


def _task_client_seats(clients_max: int) -> Shares:
    """For clients within tasks, which have no links of their own."""
    limit = SEATS_PER_CLIENT * clients_max
    return Shares(f"{SEATS_PER_CLIENT} * clients_max", limit, "clients within tasks are connected", lends=True)
