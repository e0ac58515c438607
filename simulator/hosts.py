"""Drivers of the pure cores under virtual time: what the daemons' drivers are on a real machine.

A host owns one core, delivers what arrives over its links, and calls `tick` when the core's deadline comes. Executors
are simulated: a task's payload says how long it runs. Nothing here decides anything.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Hashable
from math import inf
from typing import Any

from node_monitor.core import NodeMonitorCore
from node_monitor.executors.executor_state import AppPlan
from node_monitor.options import NodeMonitorOptions
from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from scheduler.plane import Problem
from simulator.engine import Action, Engine
from simulator.network import Network, Pipe
from simulator.records import JobRecord
from sparrow_py.errors import SparrowError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef, JobSpec, StageSpec, TaskSpec, TaskStatus
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.core import ClientCore
from sparrow_py.wire import messages as m

APP = "sim"
EXECUTOR = "executor"
SOLVE_S = 0.01
"""A scheduler has the answer to what it gave away to be solved after so long."""
SUBMIT_TIMEOUT_S = 1e6
"""Clients wait for ever: a refusal is what the simulation is to show."""

_SECONDS = struct.Struct("d")
_unpack_seconds = _SECONDS.unpack


class SimulationError(SparrowError):
    """A simulation came to a point from which it cannot go on: its settings are such that jobs are refused or lost."""


class NoBlobs:
    """The blob store of nodes whose tasks have no large data."""

    def file(self, hash_: str) -> x.File | None:
        return None

    def file_for(self, hash_: str, account: str) -> x.File | None:
        return None

    def adopt(self, file: x.File, owner: int) -> BlobRef:
        raise NotImplementedError("tasks of a simulation return nothing")

    def lack_of_room(self, size: int, in_all: int, user: str) -> None:
        raise NotImplementedError("tasks of a simulation need nothing")

    def pin(self, hash_: str, owner: Hashable, user: str) -> None:
        raise NotImplementedError("tasks of a simulation need nothing")

    def touch(self, hash_: str, user: str) -> bool:
        return False

    def unpin(self, owner: Hashable) -> None:
        """Nothing is kept."""


class _Host:
    """A process that sends what its core says, and calls it when its deadline comes."""

    __slots__ = ("_engine", "_unsent", "_wake_at_s", "core", "name", "peers", "received")

    core: SchedulerCore | NodeMonitorCore

    def __init__(self, name: str, engine: Engine, network: Network) -> None:
        self.name = name
        self.peers: dict[str, Pipe] = {}
        self.received = 0
        """Messages that came."""
        self._engine = engine
        self._unsent = network.unsent
        self._wake_at_s = inf

    def _send(self, peer: str, message: m.Message) -> None:
        """As `Network.send`, without a call: most of a simulation is this."""
        pipe = self.peers[peer]
        frame = pipe.frame
        if frame is None:
            pipe.frame = [message]
            self._unsent.append(pipe)
        else:
            frame.append(message)

    def _arm(self) -> None:
        deadline_s = self.core.next_deadline_s()
        if deadline_s is not None and deadline_s < self._wake_at_s:
            self._wake_at_s = deadline_s
            self._engine.at(deadline_s, self._wake)

    def _wake(self, _: None) -> None:
        self._wake_at_s = inf
        deadline_s = self.core.next_deadline_s()
        if deadline_s is not None and deadline_s <= self._engine.now_s:
            self._tick(self._engine.now_s)
        self._arm()

    def _tick(self, now_s: float) -> None:
        self.core.tick(now_s)


class SchedulerHost(_Host):
    """A scheduler."""

    core: SchedulerCore

    def __init__(self, name: str, options: SchedulerOptions, engine: Engine, network: Network, seed: str) -> None:
        super().__init__(name, engine, network)
        self.core = SchedulerCore(options, random.Random(seed), self, now_s=engine.now_s)

    to_node = to_client = _Host._send

    def solve(self, number: int, problem: Problem) -> None:
        """Effect of the core: the answer is there after `SOLVE_S`."""
        self._engine.at(self._engine.now_s + SOLVE_S, self._solved, (number, problem()))

    def _solved(self, solution: tuple[int, Any]) -> None:
        now_s = self._engine.now_s
        self.core.solved(*solution, now_s)
        self.core.pump(now_s)
        self._arm()

    def from_node(self, node_id: str, frame: list[Any]) -> None:
        """A frame of a node monitor has come."""
        core, now_s = self.core, self._engine.now_s
        self.received += len(frame)
        for message in frame:
            core.receive_from_node(node_id, message, now_s)
        core.pump(now_s)
        self._arm()

    def from_client(self, sender: tuple[str, str], frame: list[Any]) -> None:
        """A frame of a client has come; the sender is (client, its user)."""
        client, user = sender
        core, now_s = self.core, self._engine.now_s
        self.received += len(frame)
        for message in frame:
            core.receive_from_client(client, user, message, now_s)
        core.pump(now_s)
        self._arm()

    def _tick(self, now_s: float) -> None:
        self.core.tick(now_s)
        self.core.pump(now_s)


class NodeHost(_Host):
    """A node monitor and its one executor, which has a place for each slot."""

    core: NodeMonitorCore

    __slots__ = ("_asks", "_yielded", "ended", "run_ends", "slots")

    def __init__(
        self, name: str, slots: int, options: NodeMonitorOptions, engine: Engine, network: Network, blobs: NoBlobs
    ) -> None:
        super().__init__(name, engine, network)
        self.slots = slots
        self.ended = 0
        """Tasks that ended here."""
        plan = AppPlan(APP, one_process=True, supervised=False)
        self.core = NodeMonitorCore(options, slots, [plan], self, blobs)
        self.core.executor_up(EXECUTOR, APP, slots, engine.now_s)
        self._asks = 0
        self._yielded: set[int] = set()
        """Runs that have yielded, and whose time is yet to come."""
        self.run_ends: Action = self.done
        """Is told of each run that the executor has ended."""

    def info(self, attributes: dict[str, str]) -> m.NodeInfo:
        """What the node says of itself."""
        return m.NodeInfo(self.slots, {}, attributes, {APP: ""}, self.name)

    # ---- the core's outbox

    to_scheduler = _Host._send

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        if type(message) is x.Run:
            engine = self._engine
            (seconds,) = _unpack_seconds(message.payload)  # type: ignore[arg-type]  # None is a file here.
            engine.at(engine.now_s + seconds, self.run_ends, (message.run, engine.now_s, seconds))
        elif type(message) is x.Yield:
            self._engine.at(self._engine.now_s, self._end_early, message.run)

    def _end_early(self, run: int) -> None:
        """The task of this run was asked to yield, and does so at once."""
        attempt = self.core.executors[EXECUTOR].running.get(run)
        if attempt is not None and attempt.began_at_s is not None:
            self.run_ends((run, attempt.began_at_s, self._engine.now_s - attempt.began_at_s))
            self._yielded.add(run)

    def start_executor(self, app: str, places: int) -> None:
        raise NotImplementedError("the executor is there from the start")

    def kill_executor(self, executor: str) -> None:
        raise NotImplementedError("nothing that runs is stopped")

    def fetch(self, ref: BlobRef, user: str) -> None:
        raise NotImplementedError("tasks of a simulation need nothing")

    def give_up(self, hash_: str, size: int, user: str) -> None:
        raise NotImplementedError("tasks of a simulation need nothing")

    def offer_changed(self, app: str, reason: str) -> None:
        raise NotImplementedError("the executor is there from the start")

    # ---- events

    def from_scheduler(self, scheduler: str, frame: list[Any]) -> None:
        """A frame of a scheduler has come."""
        core = self.core
        self.received += len(frame)
        core.receive_frame(scheduler, frame, self._engine.now_s)
        if core.timers:
            self._arm()
        elif core.counters.asks != self._asks:
            self._asked()

    def done(self, run: tuple[int, float, float]) -> None:
        """The executor has ended a run: (its number, when it started, how long it took)."""
        if self._yielded and run[0] in self._yielded:
            self._yielded.remove(run[0])
            return
        core, now_s = self.core, self._engine.now_s
        self.ended += 1
        core.done(EXECUTOR, x.Done(run[0], TaskStatus.FINISHED, b"", "", run[1], run[2]), now_s)
        core.pump(now_s)
        if core.timers:
            self._arm()
        elif core.counters.asks != self._asks:
            self._asked()

    def _asked(self) -> None:
        """The core has asked: of what sampled tasks do, only that makes it set a timer."""
        self._asks = self.core.counters.asks
        if self._wake_at_s == inf:  # Else it is to wake before this ask is due.
            self._arm()

    def _tick(self, now_s: float) -> None:
        self.core.tick(now_s)
        self.core.pump(now_s)


class _Sink:
    """Tells a job's record what its client is told."""

    __slots__ = ("record",)

    def __init__(self, record: JobRecord) -> None:
        self.record = record

    def accepted(self) -> None:
        """It will run."""

    def refused(self, error: SparrowError) -> None:
        raise SimulationError(f"job {self.record.job.number} was refused: {error}")

    def placed(self, task: int) -> None:
        """A task has left the queue."""

    def outcome(self, outcome: m.Outcome) -> None:
        started_s = outcome.started_at_s
        if outcome.status is not TaskStatus.FINISHED or started_s is None:
            raise SimulationError(f"task {outcome.task} of {outcome.job} is {outcome.status.value}: {outcome.error}")
        self.record.ran(outcome.task, started_s, int(outcome.node[1:]))

    def not_cancelled(self, task: int) -> None:
        """Nothing is cancelled."""

    def ended(self) -> None:
        """All outcomes are there."""


class ClientHost:
    """A client: the jobs of one user."""

    def __init__(self, name: str, user: str, engine: Engine, network: Network, seed: str) -> None:
        self.name = name
        self.user = user
        self.peers: dict[str, Pipe] = {}
        self.received = 0
        self._engine = engine
        self._network = network
        self.core = ClientCore(random.Random(seed), self, submit_timeout_s=SUBMIT_TIMEOUT_S)

    def submit(self, record: JobRecord, **fields: Any) -> None:
        """Submit the record's job; `fields` are those of `JobSpec`, or of each of its stages."""
        job = record.job
        preferred = tuple(tuple(f"n{node}" for node in nodes) for nodes in job.preferred)
        tasks: Any = payloads(job.durations_s)
        if preferred:
            tasks = [TaskSpec(payload, preferred=nodes) for payload, nodes in zip(tasks, preferred, strict=True)]
        job_id = f"j{job.number}"
        fields |= {"app": APP, "where": job.where, "expected_duration_s": job.mean_s}
        if job.stages:
            stages = [
                StageSpec(tasks[own.start : own.stop], name=stage.name, after=stage.after, **fields)
                for stage, own in job.ranges()
            ]
            spec = JobSpec(stages=stages, job_id=job_id, priority=job.priority)
        else:
            spec = JobSpec(tasks, job_id=job_id, priority=job.priority, **fields)
        self.core.submit(spec, _Sink(record), self._engine.now_s)

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        self._network.send(self.peers[scheduler], message)

    def upload_again(self, job: ClientJob, hash_: str) -> None:
        raise NotImplementedError("tasks of a simulation need nothing")

    def stream(self, scheduler: str, job: ClientJob) -> None:
        for chunk in job.chunks:
            self.to_scheduler(scheduler, chunk)
        self.core.streamed(job)

    def from_scheduler(self, scheduler: str, frame: list[Any]) -> None:
        """A frame of a scheduler has come."""
        core, now_s = self.core, self._engine.now_s
        self.received += len(frame)
        for message in frame:
            core.receive(scheduler, message, now_s)


def payloads(durations_s: array[float]) -> list[bytes]:
    """The payload of each task: how long it runs."""
    packed = array("d", durations_s).tobytes()
    return [packed[at : at + _SECONDS.size] for at in range(0, len(packed), _SECONDS.size)]
