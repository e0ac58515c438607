"""A whole cluster under virtual time: the real cores of schedulers, node monitors and clients, and nothing else real.

Links are queues of frames, first in first out in each direction; frames of different links overtake each other, as
latencies are drawn at random from the world's seed. Executors run a task for as long as its payload says, and may
return a result that is too large for a message. Faults are methods: `drop_link`, `crash_node`, `kill_executor`,
`kill_client`, `crash_scheduler`, `stall`.

A run is a function of the arguments and the seed. After each event `check` asks every core for its invariants and
compares what a scheduler believes of a node with what the node has; `check_end` holds a finished run against the
guarantees of DESIGN.md §5.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from node_monitor.core import NodeMonitorCore
from node_monitor.executor_state import AppPlan
from node_monitor.options import NodeMonitorOptions
from node_monitor.queues import FairQueue
from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from sparrow_py import constraints
from sparrow_py import executor_protocol as x
from sparrow_py import messages as m
from sparrow_py.client_core import ClientCore, ClientJob
from sparrow_py.errors import SparrowError
from sparrow_py.job import BlobRef, JobSpec, StageSpec, TaskSpec, TaskStatus
from tests.support.recorder import FakeBlobs

PLANS = (AppPlan("many", one_process=True), AppPlan("pool"))
"""An app of one process with a place per slot, and one of a process with one place per slot."""
EVENTS_MAX = 200_000
"""More events than any test has: a world that goes on and on is stuck in a loop."""


class JobLog:
    """The `Sink` of a job: all that its client was told, with the times."""

    def __init__(self, world: World, spec: JobSpec, client: ClientHost) -> None:
        self.world = world
        self.spec = spec
        self.client = client
        self.submitted_at_s = world.now
        self.accepted_count = 0
        self.error: SparrowError | None = None
        self.outcomes: list[m.Outcome] = []
        self.placed_tasks: list[int] = []
        self.not_cancelled_tasks: list[int] = []
        self.asked_to_cancel: list[int] = []
        self.cancelled_at_s: float | None = None
        self.ended_count = 0
        self.ended_at_s = 0.0
        self.starts: list[Start] = []
        self.moved_at_s: list[float] = []
        """When the client took the job to another scheduler."""
        self.running_too = False
        """Whether cancellation was to stop what runs."""
        self.submitted_to: list[str] = []
        """The schedulers that were sent the job, refusals included."""
        self.submitted_last_s: dict[int, float] = {}
        """When it was last sent with each epoch."""
        self.avoids: list[JobLog] = []
        """Jobs that were at the scheduler when this one came, and that it avoids."""
        self.payloads: list[Any] = []
        self.stage_of: list[int] = []
        for index, stage in enumerate(spec.as_stages()):
            self.payloads += [task.payload if isinstance(task, TaskSpec) else task for task in stage.tasks]
            self.stage_of += [index] * len(stage.tasks)
        self.details = {
            number: task
            for number, task in enumerate(task for stage in spec.as_stages() for task in stage.tasks)
            if isinstance(task, TaskSpec)
        }

    def accepted(self) -> None:
        self.accepted_count += 1

    def refused(self, error: SparrowError) -> None:
        assert self.error is None
        self.error = error

    def placed(self, task: int) -> None:
        self.placed_tasks.append(task)

    def outcome(self, outcome: m.Outcome) -> None:
        assert not self.ended_count, "an outcome after the end"
        self.outcomes.append(outcome)

    def not_cancelled(self, task: int) -> None:
        self.not_cancelled_tasks.append(task)

    def ended(self) -> None:
        self.ended_count += 1
        self.ended_at_s = self.world.now

    @property
    def response_s(self) -> float:
        return self.ended_at_s - self.submitted_at_s

    def statuses(self) -> list[TaskStatus]:
        """Of each task, in order; all must have ended."""
        by_task = {outcome.task: outcome.status for outcome in self.outcomes}
        return [by_task[task] for task in range(len(self.payloads))]

    def stage(self, task: int) -> StageSpec:
        """The stage that the task is of."""
        return self.spec.as_stages()[self.stage_of[task]]

    def inputs(self, wanted: Sequence[Any]) -> list[bytes]:
        """The results that a task with these `inputs` is to be given."""
        names = [stage.name for stage in self.spec.as_stages()]
        return [
            payload
            for name in wanted
            for payload, of in zip(self.payloads, self.stage_of, strict=True)
            if names[of] == name
        ]

    def finished(self, stage: str) -> bool:
        """Whether every task of the stage has a run that ended well."""
        names = [other.name for other in self.spec.as_stages()]
        index = names.index(stage)
        ended = {start.task for start in self.starts if start.ended_at_s is not None and not start.failed}
        return all(task in ended for task, of in enumerate(self.stage_of) if of == index)


class Start:
    """One run of a task that was given to an executor."""

    def __init__(self, log: JobLog, task: int, attempt: int, node: NodeHost, scheduler: str) -> None:
        self.log = log
        self.task = task
        self.attempt = attempt
        self.node = node
        self.scheduler = scheduler
        self.link = node.links.get(scheduler)
        self.given_at_s = log.world.now
        self.started_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.returned = False
        self.failed = False
        self.executor_died = False
        self.killed = False

    @property
    def demand(self) -> dict[str, float]:
        return dict(self.log.stage(self.task).demand or {})

    @property
    def runs(self) -> bool:
        """Whether it has begun, and neither it nor its executor has ended."""
        return self.started_at_s is not None and not self.over

    @property
    def over(self) -> bool:
        return self.ended_at_s is not None or self.killed or self.executor_died or self.returned

    @property
    def may_be_repeated(self) -> bool:
        """Whether guarantee 3 allows another start after this one."""
        moved = any(at_s >= self.given_at_s for at_s in self.log.moved_at_s)
        failed = self.failed or self.killed  # The latter for its task_timeout_s.
        return self.lost or moved or self.produced or (failed and self.log.spec.retry_failed)

    @property
    def produced(self) -> bool:
        """Whether its result was too large for a message, and so may have died with its node."""
        return self.log.payloads[self.task].endswith(b"large")

    @property
    def lost(self) -> bool:
        """Whether its executor, its node or its scheduler was lost, or the link between the latter two."""
        return self.executor_died or self.link is None or not self.link.alive


class Pipe:
    """One direction of a link."""

    def __init__(self, world: World, link: Link, receive: Callable[[list[Any]], None]) -> None:
        self.world = world
        self.link = link
        self.receive = receive
        self.queued: list[Any] = []
        self.in_flight = 0
        self.free_at_s = 0.0

    def send(self, message: Any) -> None:
        if self.link.alive:
            if not self.queued:
                self.world.unsent.append(self)
            self.queued.append(message)

    def flush(self) -> None:
        """What was queued in this turn goes out in one frame, or cut into several."""
        frames = [[message] for message in self.queued] if self.world.split else [self.queued]
        self.queued = []
        for frame in frames:
            self.in_flight += 1
            at_s = max(self.free_at_s, self.world.now + self.world.latency_s())
            self.free_at_s = at_s
            self.world.at(at_s, lambda frame=frame: self._arrive(frame))  # type: ignore[misc]

    def stall(self, until_s: float) -> None:
        """Frames sent from now on do not arrive before `until_s`."""
        self.free_at_s = max(self.free_at_s, until_s)

    def _arrive(self, frame: list[Any]) -> None:
        if not self.link.alive:
            return
        self.in_flight -= 1
        self.receive(frame)

    @property
    def empty(self) -> bool:
        return not self.queued and not self.in_flight


class Link:
    """Between a scheduler and a node monitor or a client, which dialled it. A link that broke is never used again."""

    def __init__(self, world: World, scheduler: SchedulerHost, peer: NodeHost | ClientHost) -> None:
        self.alive = True
        self.since_s = world.now
        self.until_s = float("inf")
        self.scheduler = scheduler
        self.peer = peer
        world.all_links.append(self)
        self.to_scheduler = Pipe(world, self, lambda frame: scheduler.received(self, frame))
        self.to_peer = Pipe(world, self, lambda frame: peer.received(self, frame))

    @property
    def empty(self) -> bool:
        return self.to_scheduler.empty and self.to_peer.empty


class SchedulerHost:
    """A scheduler process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.links: dict[str, Link] = {}
        self.core = SchedulerCore(world.scheduler_options, random.Random(world.rng.random()), self, now_s=world.now)

    def to_node(self, node_id: str, message: m.Message) -> None:
        self._send(node_id, message)

    def to_client(self, client: str, message: m.Message) -> None:
        self._send(client, message)

    def _send(self, peer: str, message: m.Message) -> None:
        link = self.links.get(peer)
        if link is not None:
            self.world.sent.append((self.name, peer, message))
            link.to_peer.send(message)

    def up(self, link: Link) -> None:
        self.links[link.peer.name] = link
        link.to_peer.send(m.Welcome(m.PROTOCOL_VERSION, self.name, self.world.frame_bytes_max))
        if isinstance(link.peer, NodeHost):
            self.core.node_up(link.peer.name, link.peer.info(), self.world.now)

    def down(self, link: Link) -> None:
        if not self.alive or self.links.get(link.peer.name) is not link:
            return
        del self.links[link.peer.name]
        if isinstance(link.peer, NodeHost):
            self.core.node_down(link.peer.name, self.world.now)
        else:
            self.core.client_down(link.peer.name, self.world.now, said_goodbye=False)

    def received(self, link: Link, frame: list[Any]) -> None:
        for message in frame:
            if isinstance(link.peer, NodeHost):
                self.core.receive_from_node(link.peer.name, message, self.world.now)
            else:
                self.core.receive_from_client(link.peer.name, link.peer.user, message, self.world.now)


class VirtualExecutor:
    """An executor process: runs what it is given, each task for the time that its payload states."""

    def __init__(self, node: NodeHost, executor_id: str, app: str, places: int) -> None:
        self.node = node
        self.id = executor_id
        self.app = app
        self.places = places
        self.alive = True
        self.commons: dict[int, bytes] = {}
        self.waiting: list[tuple[x.Run, Start]] = []
        self.running: dict[int, Start] = {}

    def received(self, message: x.ExecutorMessage) -> None:
        if isinstance(message, x.Run):
            self._given(message)
        elif isinstance(message, x.Common):
            self.commons[message.common] = message.data
        elif isinstance(message, x.ForgetCommon):
            del self.commons[message.common]
        elif isinstance(message, x.Revoke):
            returned = [(run, start) for run, start in self.waiting if run.run in message.runs]
            self.waiting = [pair for pair in self.waiting if pair not in returned]
            for _, start in returned:
                start.returned = True
            runs = [run.run for run, _ in returned]
            self._later(0.0, lambda: self.node.core.returned(self.id, x.Returned(runs), self.node.world.now))
        elif isinstance(message, x.Kill):
            for run in message.runs:
                self._later(0.0, lambda run=run: self._killed(run))  # type: ignore[misc]

    def _given(self, run: x.Run) -> None:
        world = self.node.world
        assert isinstance(run.payload, bytes)
        job_id, task = run.payload.decode().split()[:2]
        log = world.logs[job_id]
        stage = log.stage(int(task))
        assert (self.commons[run.common] if run.common else b"") == stage.common, "not the stage's common bytes"
        assert all(log.finished(name) for name in stage.after), "a stage began before those that it comes after"
        wanted = log.details[int(task)].inputs if int(task) in log.details else ()
        assert [_content(data) for data in run.inputs] == log.inputs(wanted), "not the inputs that the task asked for"
        held = self.node.core._executors[self.id].running[run.run]
        start = Start(log, int(task), held.attempt, self.node, held.job.scheduler)
        log.starts.append(start)
        world.starts.append(start)
        _check_place(start)
        self.waiting.append((run, start))
        for name, amount in world.resources.items():
            taken = sum(other.demand.get(name, 0.0) for other in self.node.given())
            assert taken <= amount + 1e-6, f"{taken} {name} of {amount} are taken"
        if self.places > 1:
            assert len(self.running) + len(self.waiting) <= self.places, "a slot is to run two tasks"
        self._start_next()

    def _start_next(self) -> None:
        world = self.node.world
        while self.waiting and len(self.running) < self.places:
            run, start = self.waiting.pop(0)
            self.running[run.run] = start
            start.started_at_s = world.now
            assert self.node.running <= self.node.slots, "a slot runs two tasks"
            _check_neighbours(start)
            assert isinstance(run.payload, bytes)
            duration_s, failures = run.payload.decode().split()[2:4]
            earlier = sum(1 for other in start.log.starts if other.task == start.task) - 1
            fails = earlier < int(failures)
            self._later(float(duration_s), lambda run=run, fails=fails: self._ended(run, fails))  # type: ignore[misc]

    def _ended(self, run: x.Run, fails: bool) -> None:
        if run.run not in self.running:
            return  # It was killed.
        start = self.running.pop(run.run)
        world = self.node.world
        assert start.started_at_s is not None
        start.ended_at_s, start.failed = world.now, fails
        status = TaskStatus.FAILED if fails else TaskStatus.FINISHED
        service_s = world.now - start.started_at_s
        world.service_s[(self.node.name, start.log.client.user)] = (
            world.service_s.get((self.node.name, start.log.client.user), 0.0) + service_s
        )
        payload = run.payload
        assert isinstance(payload, bytes)
        result: x.Data = payload
        if payload.endswith(b"large") and not fails:
            other = f"{world.number()}" if world.results_differ else ""
            hash_ = payload.hex() + other.rjust(64 - 2 * len(payload), "0")
            result = x.File(f"/results/{hash_}", len(payload), hash_)
        self.node.core.done(self.id, x.Done(run.run, status, result, "", start.started_at_s, service_s), world.now)
        self._start_next()

    def _killed(self, run: int) -> None:
        start = self.running.pop(run, None)
        if start is None:
            return
        world = self.node.world
        assert start.started_at_s is not None
        start.killed = True
        done = x.Done(run, TaskStatus.FAILED, b"", "it was killed", start.started_at_s, world.now - start.started_at_s)
        self.node.core.done(self.id, done, world.now)
        self._start_next()

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.alive:
                self.node.turn()
                action()

        self.node.world.at(self.node.world.now + delay_s, act)

    def held(self) -> list[Start]:
        """What it has been given and has not ended."""
        return [*self.running.values(), *(start for _, start in self.waiting)]

    def die(self) -> None:
        self.alive = False
        for start in self.held():
            start.executor_died = True


def _check_place(start: Start) -> None:
    """The task may run on this node: what its constraints say."""
    log, node, stage = start.log, start.node, start.log.stage(start.task)
    attributes = {**world_attributes(node.name), "node": node.name}
    for text in stage.where:
        assert constraints.holds(constraints.parse("where", text), attributes), f"{node.name} is not {text}"
    preferred = log.details[start.task].preferred if start.task in log.details else ()
    if preferred and node.name not in preferred:
        assert stage.delay_s is not None, f"task {start.task} runs on {node.name}, which is none of {preferred}"
        assert log.world.now >= log.submitted_at_s + stage.delay_s, "before its preferred nodes had their time"


def _check_neighbours(start: Start) -> None:
    """No job that its own avoids runs on the node, as far as one scheduler knew of both all the time (§8)."""
    log = start.log
    for other in start.node.given():
        related = other.log in log.avoids or log in other.log.avoids
        if not related or not other.runs or other.scheduler != start.scheduler:
            continue
        known = all(len(one.submitted_to) == 1 for one in (log, other.log)) and not start.lost and not other.lost
        assert not known, f"{log.spec.job_id} and {other.log.spec.job_id} avoid each other, and run on one node"


def _content(data: x.Data) -> bytes:
    """What an input holds: the payload of the task that produced it."""
    return data if isinstance(data, bytes) else bytes.fromhex(data.hash[: 2 * data.size])


class NodeHost:
    """A node monitor process and its executors."""

    def __init__(self, world: World, name: str, slots: int) -> None:
        self.world = world
        self.name = name
        self.slots = slots
        self.alive = True
        self.leaving = False
        """Whether its process is about to end."""
        self.links: dict[str, Link] = {}
        self.executors: dict[str, VirtualExecutor] = {}
        self.blobs = FakeBlobs(name)
        self.core = NodeMonitorCore(world.node_options, slots, list(PLANS), self, self.blobs, world.resources)

    def info(self) -> m.NodeInfo:
        attributes = world_attributes(self.name)
        return m.NodeInfo(self.slots, self.world.resources, attributes, {p.app: p.runtime for p in PLANS}, self.name)

    @property
    def running(self) -> int:
        return sum(len(executor.running) for executor in self.executors.values())

    def given(self) -> list[Start]:
        """What its executors have been given and have not ended."""
        return [start for executor in self.executors.values() for start in executor.held()]

    def turn(self) -> None:
        """The core is to be pumped at the end of this turn, as the daemon does."""
        self.world.to_pump[self.name] = self

    # ---- the core's outbox

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        link = self.links.get(scheduler)
        if link is not None:
            self.world.sent.append((self.name, scheduler, message))
            link.to_scheduler.send(message)

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        if executor in self.executors:
            self.executors[executor].received(message)
        else:
            assert not isinstance(message, x.Run), "a task is given to an executor that is gone"

    def kill_executor(self, executor: str) -> None:
        def kill() -> None:
            if self.alive and executor in self.executors:
                for start in self.executors[executor].held():
                    start.killed = True
                self.world.kill_executor(self.executors[executor])

        self.world.at(self.world.now, kill)

    def fetch(self, ref: BlobRef) -> None:
        def arrive() -> None:
            if not self.alive:
                return
            self.turn()
            sources = [node for node in self.world.nodes if node.name in ref.at and node.blobs.file(ref.hash)]
            if sources:
                self.blobs.add(ref)
            self.core.fetched(ref.hash, "" if sources else f"{', '.join(ref.at)}: 404", self.world.now)

        self.world.at(self.world.now + 2 * self.world.latency_s(), arrive)

    def start_executor(self, app: str, places: int) -> None:
        delay_s = self.world.executor_start_s * self.world.rng.uniform(0.5, 1.0)
        fails = self.world.rng.random() < self.world.executor_start_fails
        self.world.at(self.world.now + delay_s, lambda: self._executor_started(app, places, fails))

    def _executor_started(self, app: str, places: int, fails: bool) -> None:
        if not self.alive:
            return
        self.turn()
        if fails:
            self.core.executor_failed(app, "no luck", self.world.now)
            return
        executor = VirtualExecutor(self, f"{app}-{self.world.number()}", app, places)
        self.executors[executor.id] = executor
        self.core.executor_up(executor.id, app, places, self.world.now)

    # ---- links

    def received(self, link: Link, frame: list[Any]) -> None:
        self.turn()
        for message in frame:
            if isinstance(message, m.Welcome):
                self.links[message.name] = link
                self.core.scheduler_up(message.name, message.frame_bytes_max)
            else:
                self.core.receive(link.scheduler.name, message, self.world.now)

    def down(self, link: Link) -> None:
        if self.alive and self.links.get(link.scheduler.name) is link:
            self.turn()
            del self.links[link.scheduler.name]
            self.core.scheduler_down(link.scheduler.name, self.world.now)


class ClientHost:
    """A client process."""

    def __init__(self, world: World, name: str, user: str) -> None:
        self.world = world
        self.name = name
        self.user = user
        self.alive = True
        self.links: dict[str, Link] = {}
        self.core = ClientCore(random.Random(world.rng.random()), self, submit_timeout_s=world.submit_timeout_s)

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        link = self.links.get(scheduler)
        if isinstance(message, m.SubmitJob):
            log = self.world.logs[message.job]
            log.submitted_to.append(scheduler)
            log.submitted_last_s[message.epoch] = self.world.now
            if message.epoch:
                log.moved_at_s.append(self.world.now)
        if link is not None:
            link.to_scheduler.send(message)

    def upload_again(self, job: ClientJob, hash_: str) -> None:
        """No input of these jobs is the client's."""
        self.core.uploaded(job.id, BlobRef(hash_, 0, ()))

    def stream(self, scheduler: str, job: ClientJob) -> None:
        """As `Session._stream`: one message a turn, until the job is no longer that scheduler's."""
        link, chunks = self.links.get(scheduler), job.chunks

        def step() -> None:
            if not self.alive or link is None or not link.alive or job.scheduler != scheduler:
                return
            if (job.cancelled and not job.submission.epoch) or job.chunks is not chunks:
                return
            chunk = next(chunks, None)
            if chunk is None:
                self.core.streamed(job)
                return
            link.to_scheduler.send(chunk)
            self.world.at(self.world.now + self.world.latency_s(), step)

        self.world.at(self.world.now, step)

    def received(self, link: Link, frame: list[Any]) -> None:
        for message in frame:
            if isinstance(message, m.Welcome):
                self.links[message.name] = link
                self.core.scheduler_up(message.name, message.frame_bytes_max, self.world.now)
            else:
                self.core.receive(link.scheduler.name, message, self.world.now)

    def down(self, link: Link) -> None:
        if self.alive and self.links.get(link.scheduler.name) is link:
            del self.links[link.scheduler.name]
            self.core.scheduler_down(link.scheduler.name, "the link broke", self.world.now)


def world_attributes(name: str) -> dict[str, str]:
    """A node's attributes: its number, and whether that is even."""
    number = int(name.lstrip("n"))
    return {"number": str(number), "parity": "odd" if number % 2 else "even"}


def _tasks(
    job_id: str,
    first: int,
    durations_s: Sequence[float],
    failures: int,
    preferred: Sequence[Sequence[str]],
    inputs: Sequence[str],
    *,
    large: bool,
) -> list[bytes | TaskSpec]:
    tasks: list[bytes | TaskSpec] = []
    for position, seconds in enumerate(durations_s):
        payload = f"{job_id} {first + position} {seconds:.6f} {failures}{' large' if large else ''}".encode()
        wanted = preferred[position % len(preferred)]
        tasks.append(TaskSpec(payload, preferred=wanted, inputs=inputs) if wanted or inputs else payload)
    return tasks


class World:
    """See the module's docstring.

    nodes: slots of each node. users: of each client. latency: range of a frame's time on the way, in seconds.
    split: each message goes in a frame of its own. checks: whether `check` runs after each event.
    results_differ: a task that runs again returns another large result than before.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        nodes: Sequence[int] = (4,),
        schedulers: int = 1,
        users: Sequence[str] = ("anna",),
        latency: tuple[float, float] = (0.0005, 0.0005),
        split: bool = False,
        checks: bool = True,
        results_differ: bool = False,
        executor_start_s: float = 0.0,
        executor_start_fails: float = 0.0,
        warm: Iterable[str] = ("many", "pool"),
        submit_timeout_s: float = 60.0,
        frame_bytes_max: int = m.FRAME_BYTES_MAX,
        scheduler: dict[str, Any] | None = None,
        node: dict[str, Any] | None = None,
        resources: dict[str, float] | None = None,
    ) -> None:
        self.resources = resources or {"cpu": 4.0}
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.split = split
        self.checks = checks
        self.results_differ = results_differ
        self.executor_start_s = executor_start_s
        self.executor_start_fails = executor_start_fails
        self.warm = list(warm)
        self.submit_timeout_s = submit_timeout_s
        self.frame_bytes_max = frame_bytes_max
        self.scheduler_options = SchedulerOptions(**{"history_len_max": 400, **(scheduler or {})})
        self.node_options = NodeMonitorOptions(**{"history_len_max": 400, **(node or {})})
        self.sent: list[tuple[str, str, Any]] = []
        """All messages between schedulers and their peers, in the order of sending: (from, to, message)."""
        self.starts: list[Start] = []
        self.logs: dict[str, JobLog] = {}
        self.all_links: list[Link] = []
        """Those that broke included."""
        self.service_s: dict[tuple[str, str], float] = {}
        """Slot-seconds of ended runs by (node, user)."""
        self.unsent: list[Pipe] = []
        self.to_pump: dict[str, NodeHost] = {}
        self.events = 0
        self._latency = latency
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self.schedulers = [SchedulerHost(self, f"s{number}") for number in range(schedulers)]
        self.nodes = [self._node(f"n{number}", slots) for number, slots in enumerate(nodes)]
        self.clients = [ClientHost(self, f"c{number}", user) for number, user in enumerate(users)]
        for one in self.schedulers:
            for peer in [*self.nodes, *self.clients]:
                self.connect(one, peer)
        self.run_for(1.5 * (latency[1] + executor_start_s))

    def _node(self, name: str, slots: int) -> NodeHost:
        node = NodeHost(self, name, slots)
        node.core.start(self.warm)
        return node

    # ---- time --------------------------------------------------------------------------------

    def number(self) -> int:
        """The next of 1, 2, 3, …"""
        self._numbers += 1
        return self._numbers

    def latency_s(self) -> float:
        low, high = self._latency
        return low if low == high else self.rng.uniform(low, high)

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        heappush(self._heap, (max(at_s, self.now), self.number(), action))

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        self.run(self.now + seconds)

    def run(self, until_s: float = float("inf")) -> None:
        """Go on until then, or until nothing more will happen."""
        self._end_turn()  # What a test did from outside.
        while (at_s := self._next_s()) is not None and at_s <= until_s:
            self.now = max(self.now, at_s)
            self.events += 1
            assert self.events < EVENTS_MAX, "it goes on and on"
            if self._heap and self._heap[0][0] <= self.now:
                heappop(self._heap)[2]()
                while not self.split and self._heap and self._heap[0][0] <= self.now:
                    heappop(self._heap)[2]()
            else:
                self._tick()
            self._end_turn()
        if until_s != float("inf"):
            self.now = max(self.now, until_s)

    def _cores(self) -> list[Any]:
        return [host.core for host in [*self.schedulers, *self.nodes, *self.clients] if host.alive]

    def _next_s(self) -> float | None:
        times = [self._heap[0][0]] if self._heap else []
        times += [at_s for core in self._cores() if (at_s := core.next_deadline_s()) is not None]
        return min(times, default=None)

    def _tick(self) -> None:
        for host in [*self.schedulers, *self.nodes, *self.clients]:
            due_s = host.core.next_deadline_s() if host.alive else None
            if due_s is not None and due_s <= self.now:
                host.core.tick(self.now)
                if isinstance(host, NodeHost):
                    host.turn()

    def _end_turn(self) -> None:
        for node in self.to_pump.values():
            if node.alive:
                node.core.pump(self.now)
        self.to_pump.clear()
        for pipe in self.unsent:
            pipe.flush()
        self.unsent.clear()
        if self.checks:
            self.check()

    # ---- users -------------------------------------------------------------------------------

    def submit(
        self,
        durations_s: Sequence[float],
        *,
        client: int = 0,
        failures: int = 0,
        job_id: str = "",
        preferred: Sequence[Sequence[str]] = ((),),
        **fields: Any,
    ) -> JobLog:
        """Submit a job whose tasks last so long; each fails `failures` times before it finishes.

        preferred: of the tasks, in turn.
        """
        job_id = job_id or f"j{self.number()}"
        tasks = _tasks(job_id, 0, durations_s, failures, preferred, (), large=False)
        fields = {"app": "many", "common": job_id.encode(), **fields}
        return self._submit(JobSpec(tasks, job_id=job_id, **fields), client)

    def _submit(self, spec: JobSpec, client: int) -> JobLog:
        host = self.clients[client]
        log = self.logs[spec.job_id] = JobLog(self, spec, host)
        for other_id in spec.avoid:
            other = self.logs[other_id]
            if other.accepted_count and other.client is host:
                log.avoids.append(other)
        if host.alive:
            host.core.submit(spec, log, self.now)
        return log

    def submit_stages(
        self,
        *stages: tuple[Any, ...],
        large: bool = False,
        client: int = 0,
        ask: bool = True,
        job_id: str = "",
        **fields: Any,
    ) -> JobLog:
        """Submit a job of stages (name, after, durations, and perhaps fields of `StageSpec`); each task asks for the
        results of all before it if `ask`, and returns a large one if `large`. A stage's fields may say `large`, `ask`,
        `failures` and `preferred`, too."""
        job_id = job_id or f"j{self.number()}"
        specs: list[StageSpec] = []
        number = 0
        for name, after, durations_s, *rest in stages:
            own = {"app": "many", "common": f"{job_id} {name}".encode(), **(rest[0] if rest else {})}
            inputs = list(after) if own.pop("ask", ask) else []
            failures, preferred = own.pop("failures", 0), own.pop("preferred", ((),))
            tasks = _tasks(job_id, number, durations_s, failures, preferred, inputs, large=own.pop("large", large))
            number += len(tasks)
            specs.append(StageSpec(tasks, name=name, after=list(after), **own))
        return self._submit(JobSpec(stages=specs, job_id=job_id, **fields), client)

    def cancel(self, log: JobLog, *, running: bool = False) -> None:
        if log.client.alive:
            log.cancelled_at_s = self.now if log.cancelled_at_s is None else log.cancelled_at_s
            log.running_too = log.running_too or running
            log.client.core.cancel_job(log.spec.job_id, self.now, running=running)

    def cancel_tasks(self, log: JobLog, tasks: Sequence[int], *, running: bool = False) -> None:
        if log.client.alive and log.spec.job_id in log.client.core.jobs:
            log.asked_to_cancel += tasks
            log.running_too = log.running_too or running
            log.client.core.cancel_tasks(log.spec.job_id, list(tasks), self.now, running=running)

    # ---- faults ------------------------------------------------------------------------------

    def connect(self, scheduler: SchedulerHost, peer: NodeHost | ClientHost) -> None:
        """The peer dials, unless it has a link."""
        if scheduler.alive and peer.alive and peer.name not in scheduler.links and scheduler.name not in peer.links:
            scheduler.up(Link(self, scheduler, peer))

    def links(self, kind: type = object) -> list[Link]:
        """Links that stand, in a fixed order."""
        links = [link for scheduler in self.schedulers for link in scheduler.links.values()]
        return [link for link in links if link.alive and isinstance(link.peer, kind)]

    def drop_link(self, link: Link, back_after_s: float | None = 0.1) -> None:
        """The link breaks; each side sees it in its own time, then the peer dials again."""
        link.alive, link.until_s = False, self.now
        self.at(self.now + self.latency_s(), lambda: link.scheduler.down(link))
        self.at(self.now + self.latency_s(), lambda: link.peer.down(link))
        if back_after_s is not None:
            self.at(self.now + 2 * self._latency[1] + back_after_s, lambda: self.connect(link.scheduler, link.peer))

    def stall(self, link: Link, seconds: float) -> None:
        """What is sent from now on arrives late."""
        link.to_peer.stall(self.now + seconds)
        link.to_scheduler.stall(self.now + seconds)

    def crash_node(self, node: NodeHost, back_after_s: float | None = 0.5) -> None:
        """The node's machine is gone; later another process of its name comes, and remembers nothing."""
        node.alive = False
        for executor in node.executors.values():
            executor.die()
        self._drop_links(node)
        self.nodes.remove(node)
        if back_after_s is not None:
            self.at(self.now + 2 * self._latency[1] + back_after_s, lambda: self._come_back(node.name, node.slots))

    def _drop_links(self, peer: NodeHost | ClientHost) -> None:
        for link in self.links():
            if link.peer is peer:
                self.drop_link(link, None)

    def _come_back(self, name: str, slots: int) -> None:
        node = self._node(name, slots)
        self.nodes.append(node)
        for scheduler in self.schedulers:
            self.connect(scheduler, node)

    def set_state(self, node: NodeHost, state: str) -> None:
        """As `sparrow cordon`, `uncordon` and `drain`."""
        node.turn()
        {m.READY: node.core.uncordon, m.CORDONED: node.core.cordon, m.DRAINING: node.core.drain}[state](self.now)

    def drain_node(self, node: NodeHost, back_after_s: float = 0.5) -> None:
        """As SIGTERM: drain, end when idle, and come back as another process."""
        node.leaving = True
        self.set_state(node, m.DRAINING)

        def end_if_idle() -> None:
            if node.alive and node.core.idle:
                self.crash_node(node, back_after_s)
            elif node.alive:
                self.at(self.now + 0.05, end_if_idle)

        self.at(self.now + 0.05, end_if_idle)

    def kill_executor(self, executor: VirtualExecutor, reaped_after_s: float = 0.01) -> None:
        """An executor process dies: its connection closes, and in a while its exit code is there."""
        node = executor.node
        executor.die()
        del node.executors[executor.id]
        node.turn()
        node.core.executor_leaving(executor.id, self.now)

        def reaped() -> None:
            if node.alive:
                node.turn()
                node.core.executor_down(executor.id, f"executor {executor.id} died", self.now)

        self.at(self.now + reaped_after_s, reaped)

    def kill_client(self, client: ClientHost) -> None:
        """A client process dies."""
        client.alive = False
        self._drop_links(client)

    def crash_scheduler(self, scheduler: SchedulerHost, back_after_s: float = 0.5) -> None:
        """A scheduler process dies; later another takes its place."""
        scheduler.alive = False
        for link in list(scheduler.links.values()):
            self.drop_link(link, None)
        self.schedulers.remove(scheduler)

        def come_back() -> None:
            other = SchedulerHost(self, f"s{self.number()}")
            self.schedulers.append(other)
            for peer in [*self.nodes, *self.clients]:
                self.connect(other, peer)

        self.at(self.now + 2 * self._latency[1] + back_after_s, come_back)

    # ---- oracles -----------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold after every event."""
        for scheduler in self.schedulers:
            scheduler.core._touched.update(scheduler.core.jobs)  # All jobs, not only those that had an event.
            scheduler.core.check_invariants()
        for node in self.nodes:
            node.core.check_invariants()
        for client in self.clients:
            client.core.check_invariants()
        for link in self.links(NodeHost):
            node = link.peer
            if not link.empty or link.scheduler.name not in node.links:
                continue  # What one side knows, the other will learn.
            name, core = link.scheduler.name, link.scheduler.core
            queued = sum(ticket.count for ticket in node.core.queue.tickets() if ticket.key[0] == name)
            believed = core.live_reservations(node.name)
            assert queued == believed, f"{queued} reservations of {name} queued at {node.name}, it believes {believed}"
            held = {(job, attempt) for owner, job, attempt in node.core._held if owner == name}
            lacking = {attempt.order for attempt in core.nodes[node.name].attempts} - held
            assert not lacking, f"{name} believes that attempts {lacking} are at {node.name}"

    def check_end(self) -> None:
        """What must hold when nothing more happens: the guarantees of DESIGN.md §5, and nothing left anywhere."""
        for log in self.logs.values():
            self._check_job(log)
        for scheduler in self.schedulers:
            core = scheduler.core
            assert not core.jobs, f"{list(core.jobs)} are left"
            assert not core.probing.tickets and not core.probing.heirs and not core.probing.local
            assert not core.admission.held_bytes
            assert not core._jobs_of and not core.admission.unplaced and core.next_deadline_s() is None
            for node_ in core.nodes.all():
                assert not node_.tickets and not node_.attempts and not node_.sent, node_.id
        for node in self.nodes:
            core_ = node.core
            assert len(core_.queue) == 0, f"{list(core_.queue.tickets())} are left at {node.name}"
            assert not core_._asks and not core_._held and not core_._jobs, node.name
            assert core_.free_slots == core_.slots and not core_._fetching and not core_._tried and not node.blobs.pins
            assert all(abs(core_.free[name] - amount) < 1e-9 for name, amount in self.resources.items())
            assert all(not (app.asking or app.prefetched or app.ready) for app in core_.apps.values())
            assert not isinstance(core_.queue, FairQueue) or core_.queue.flow_count == 0
            assert all(not executor.commons for executor in core_._executors.values())
            assert all(not executor.commons for executor in node.executors.values())
        for client in self.clients:
            if client.alive:
                assert not client.core.jobs and not client.core._waiting

    def _accounted_for(self, start: Start, again: Start) -> bool:
        """Whether the scheduler that started the task again had brought a job with an outcome, or a run, of which the
        node of the earlier start told it: they were linked from before it got the job until then."""
        log = start.log
        moved_s = log.submitted_last_s.get(again.attempt >> m.EPOCH_SHIFT, 0.0)
        in_vain = start.executor_died or start.killed or start.produced
        if not again.attempt >> m.EPOCH_SHIFT or in_vain or (start.failed and log.spec.retry_failed):
            return False
        return start.given_at_s < moved_s and any(
            link.peer is start.node
            and link.scheduler.name == again.scheduler
            and link.since_s <= moved_s
            and link.until_s >= again.given_at_s
            for link in self.all_links
        )

    def _check_job(self, log: JobLog) -> None:
        spec, outcomes = log.spec, log.outcomes
        for task in range(len(log.payloads)):
            starts = [start for start in log.starts if start.task == task and not start.returned]
            starts.sort(key=lambda start: start.attempt)
            # Guarantee 3.
            # What a scheduler started while its client could not hear of it, only those nodes can tell.
            forgotten = log.moved_at_s and any(not start.node.alive for start in starts)
            assert len(starts) <= spec.max_attempts or forgotten, f"{spec.job_id}: {len(starts)} starts of task {task}"
            for start in starts:
                limit_s = log.stage(task).task_timeout_s
                if limit_s is not None and start.started_at_s is not None and start.ended_at_s is not None:
                    assert start.ended_at_s <= start.started_at_s + limit_s + 1e-6, "it ran for too long"
            for start, again in itertools.pairwise(starts):
                assert start.may_be_repeated, f"task {task} of {spec.job_id} was started again for no reason"
                known = self._accounted_for(start, again)
                assert not known, f"task {task} of {spec.job_id} was started again; {start.node.name} knew of it"
        if not log.client.alive:
            return  # Its outcomes are nobody's.
        if log.error is not None:
            assert not outcomes and not log.ended_count, "refused, and yet there are outcomes"
            return
        assert log.accepted_count <= 1
        assert log.ended_count == 1, f"{spec.job_id} ended {log.ended_count} times"
        assert sorted(outcome.task for outcome in outcomes) == list(range(len(log.payloads)))  # Guarantees 1 and 2.
        for outcome in outcomes:
            assert outcome.attempts <= spec.max_attempts
            if outcome.status in (TaskStatus.FINISHED, TaskStatus.FAILED):
                result, payload = outcome.result, log.payloads[outcome.task]
                if isinstance(result, BlobRef):
                    result = bytes.fromhex(result.hash[: 2 * result.size])
                stopped = outcome.status is TaskStatus.FAILED and not result
                assert result == payload or stopped, "the result of another task"
                assert outcome.attempts >= 1
            elif outcome.status is TaskStatus.LOST:
                assert outcome.error
            else:
                doomed = "before it was" in outcome.error or self.scheduler_options.held_bytes_max < 1000
                assert log.cancelled_at_s is not None or outcome.task in log.asked_to_cancel or doomed, outcome
                ran = [start for start in log.starts if start.task == outcome.task and not start.returned]
                stopped = log.running_too or log.moved_at_s or "before a scheduler took it" in outcome.error
                in_vain = all(start.lost or start.failed or start.killed for start in ran)
                assert stopped or in_vain, f"cancelled, and yet it ran: {outcome}"
        answered = {outcome.task for outcome in outcomes} | set(log.not_cancelled_tasks)
        assert set(log.asked_to_cancel) <= answered
