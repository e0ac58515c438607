"""Scheduling policies side by side, each a small class.

`Sparrow` is the daemons: their own cores, under virtual time. The others are what the paper compares it with (§4.2,
§5.2), which the daemons do not have; they run on nodes that do nothing but run tasks in order of arrival.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from loadgen.jobs import WorkloadJob
from node_monitor.options import COUNT_MAX, NodeMonitorOptions
from scheduler.options import SchedulerOptions
from scheduler.order import OVERTAKEN_MAX_DEFAULT
from scheduler.sampling import reservations_wanted, spread
from simulator.cluster import Cluster
from simulator.engine import Engine
from simulator.hosts import ClientHost, NoBlobs, NodeHost, SchedulerHost
from simulator.network import Delay, Network, Pipe
from simulator.records import JobRecord
from sparrow_py import constraints
from sparrow_py.errors import InvalidOption
from sparrow_py.job import PROBE_RATIO_DEFAULT, check_number


class Policy(Protocol):
    """Places the tasks of jobs that arrive."""

    def submit(self, record: JobRecord) -> None:
        """A job has arrived, now."""

    def counts(self) -> dict[str, int]:
        """What happened so far: `core_events`, and what else the policy counts."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set of policies; each looks at what concerns it.

    probe_ratio: d of the jobs. The others are the options of that name of the daemons.
    """

    probe_ratio: float = PROBE_RATIO_DEFAULT
    cancellation: bool = True
    probe_sharing: bool = True
    order: str = "shortest"
    overtaken_max: int = OVERTAKEN_MAX_DEFAULT
    probe_ratio_max: float = 0.0
    report_idle: bool = True

    def __post_init__(self) -> None:
        check_number("probe_ratio", self.probe_ratio, 1, 1000)


# ---- Sparrow: the daemons' own cores ---------------------------------------------------------


class Sparrow:
    """Batch sampling with late binding (§3), by the daemons' cores."""

    node_host: type[NodeHost] = NodeHost
    """What drives a node monitor's core."""

    def __init__(self, cluster: Cluster, settings: Settings, engine: Engine, seed: int, users: tuple[str, ...]) -> None:
        self._settings = settings
        network = Network(engine, cluster.delay, random.Random(f"{seed} network"))
        scheduler_options = SchedulerOptions(
            probe_sharing=settings.probe_sharing,
            cancellation=settings.cancellation,
            order=settings.order,
            overtaken_max=settings.overtaken_max,
            probe_ratio_max=settings.probe_ratio_max,
            unplaced_tasks_max=1 << 60,
            user_weight=tuple(f"{user}={weight}" for user, weight in cluster.weights.items()),
        )
        node_options = NodeMonitorOptions(
            count=min(cluster.nodes, COUNT_MAX),
            queue=cluster.queue,
            report_idle=settings.report_idle,
            get_task_timeout_s=1.0 + cluster.delay.one_way_ms / 50,
        )
        blobs = NoBlobs()
        self.schedulers = [
            SchedulerHost(f"s{number}", scheduler_options, engine, network, f"{seed} scheduler {number}")
            for number in range(cluster.schedulers)
        ]
        self.nodes = [
            self.node_host(f"n{number}", cluster.slots, node_options, engine, network, blobs)
            for number in range(cluster.nodes)
        ]
        self.clients = {
            user: ClientHost(f"c{number}", user, engine, network, f"{seed} client {number}")
            for number, user in enumerate(users)
        }
        for scheduler in self.schedulers:
            for number, node in enumerate(self.nodes):
                scheduler.peers[node.name] = Pipe(node.from_scheduler, scheduler.name)
                node.peers[scheduler.name] = Pipe(scheduler.from_node, node.name)
                node.core.scheduler_up(scheduler.name)
                scheduler.core.node_up(node.name, node.info(cluster.attributes(number)), engine.now_s)
            for user, client in self.clients.items():
                scheduler.peers[client.name] = Pipe(client.from_scheduler, scheduler.name)
                client.peers[scheduler.name] = Pipe(scheduler.from_client, (client.name, user))
                client.core.scheduler_up(scheduler.name, 1 << 30, engine.now_s)

    def submit(self, record: JobRecord) -> None:
        self.clients[record.job.user].submit(record, probe_ratio=self._settings.probe_ratio)

    def counts(self) -> dict[str, int]:
        hosts: list[Any] = [*self.schedulers, *self.nodes, *self.clients.values()]
        names = ("asks", "noops", "reservations", "reservations_shared", "reservations_cancelled")
        sums = {name: sum(getattr(host.core.counters, name) for host in self.schedulers) for name in names}
        events = sum(host.received for host in hosts) + sum(node.ended for node in self.nodes)
        return {"core_events": events, **sums}


# ---- what it is compared with ----------------------------------------------------------------


class PlainNode:
    """A node that runs the tasks it is given in order of arrival."""

    __slots__ = ("_engine", "free", "number", "queue")

    def __init__(self, number: int, slots: int, engine: Engine) -> None:
        self.number = number
        self.free = slots
        self.queue: deque[tuple[JobRecord, int]] = deque()
        self._engine = engine

    def take(self, task: tuple[JobRecord, int]) -> None:
        """A task has come."""
        if self.free:
            self.free -= 1
            self._start(task)
        else:
            self.queue.append(task)

    def length(self, slots: int) -> int:
        """What a probe is told: tasks that run and wait here."""
        return slots - self.free + len(self.queue)

    def _start(self, task: tuple[JobRecord, int]) -> None:
        record, number = task
        engine = self._engine
        record.ran(number, engine.now_s, self.number)
        engine.at(engine.now_s + record.job.durations_s[number], self._ended)

    def _ended(self, _: None) -> None:
        if self.queue:
            self._start(self.queue.popleft())
        else:
            self.free += 1


class _OnPlainNodes:
    """What policies without late binding share."""

    def __init__(self, cluster: Cluster, settings: Settings, engine: Engine, seed: int, users: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._engine = engine
        self._rng = random.Random(f"{seed} policy")
        self._delays = random.Random(f"{seed} network")
        self.nodes = [PlainNode(number, cluster.slots, engine) for number in range(cluster.nodes)]
        self._eligible: dict[tuple[str, ...], list[int]] = {(): list(range(cluster.nodes))}
        self.probes = 0

    def counts(self) -> dict[str, int]:
        return {"probes": self.probes}

    def candidates(self, job: WorkloadJob, task: int | None = None) -> list[int]:
        """Numbers of the nodes on which the job may run, or one of its tasks."""
        found = self._eligible.get(job.where)
        if found is None:
            wanted = [constraints.parse("where", text) for text in job.where]
            found = self._eligible[job.where] = [
                number
                for number in range(self._cluster.nodes)
                if all(constraints.holds(one, self._cluster.attributes(number)) for one in wanted)
            ]
            if not found:
                raise InvalidOption("where", ", ".join(job.where), "constraints that some node satisfies")
        if task is not None and job.preferred and job.preferred[task]:
            allowed = set(found)
            return [node for node in job.preferred[task] if node in allowed]
        return found

    def later(self, action: Callable[[Any], None], argument: Any) -> None:
        """One way over the network."""
        delay: Delay = self._cluster.delay
        self._engine.at(self._engine.now_s + delay.draw_s(self._delays), action, argument)

    def place(self, node: int, record: JobRecord, task: int) -> None:
        """Send the task to the node."""
        self.later(self.nodes[node].take, (record, task))

    def probe(self, nodes: list[int], answered: Callable[[dict[int, int]], None]) -> None:
        """Ask nodes for the lengths of their queues; `answered` gets them by node, once all have come."""
        self.probes += len(nodes)
        lengths: dict[int, int] = {}

        def here(node: int) -> None:
            length = self.nodes[node].length(self._cluster.slots)
            self.later(back, (node, length))

        def back(answer: tuple[int, int]) -> None:
            lengths[answer[0]] = answer[1]
            if len(lengths) == len(nodes):
                answered(lengths)

        for node in nodes:
            self.later(here, node)


class Random(_OnPlainNodes):
    """Each task goes to a random node (§4.2)."""

    def submit(self, record: JobRecord) -> None:
        for task in range(len(record.job.durations_s)):
            self.place(self._rng.choice(self.candidates(record.job, task)), record, task)


class PerTaskSampling(_OnPlainNodes):
    """Each task goes to the shorter of d random queues: the power of two choices (§4.2)."""

    def submit(self, record: JobRecord) -> None:
        for task in range(len(record.job.durations_s)):
            nodes = self.candidates(record.job, task)
            count = min(reservations_wanted(self._settings.probe_ratio, 1), len(nodes))
            self.probe(self._rng.sample(nodes, count), partial(self._answered, record, task))

    def _answered(self, record: JobRecord, task: int, lengths: dict[int, int]) -> None:
        shortest = min(lengths.values())
        ties = sorted(node for node, length in lengths.items() if length == shortest)
        self.place(self._rng.choice(ties), record, task)


class BatchSampling(_OnPlainNodes):
    """The m tasks of a job go to the m shortest of d·m random queues, by their lengths (§5.2: no late binding)."""

    def submit(self, record: JobRecord) -> None:
        if record.job.preferred:
            raise InvalidOption("policy", "batch", "sparrow, per-task or random, for jobs with task-level constraints")
        tasks = len(record.job.durations_s)
        nodes = self.candidates(record.job)
        names = [str(node) for node in nodes]
        wanted = spread(names, reservations_wanted(self._settings.probe_ratio, tasks), self._rng)
        probed = {int(node): count for node, count in wanted}
        self.probe(list(probed), partial(self._answered, record, probed))

    def _answered(self, record: JobRecord, probed: dict[int, int], lengths: dict[int, int]) -> None:
        # A node that was probed several times may get as many tasks, each after those before it.
        places = [
            (lengths[node] + extra, self._rng.random(), node)
            for node in sorted(probed)
            for extra in range(probed[node])
        ]
        places.sort()
        for task in range(len(record.job.durations_s)):
            self.place(places[task][2], record, task)


class Central:
    """An omniscient scheduler without cost or delay: a task starts as soon as any slot is free, in order of arrival."""

    def __init__(self, cluster: Cluster, settings: Settings, engine: Engine, seed: int, users: tuple[str, ...]) -> None:
        self._engine = engine
        self._free = cluster.nodes * cluster.slots
        self._queue: deque[tuple[JobRecord, int]] = deque()

    def counts(self) -> dict[str, int]:
        return {}

    def submit(self, record: JobRecord) -> None:
        if record.job.where or record.job.preferred:
            raise InvalidOption("policy", "central", "sparrow, per-task or random, for jobs with constraints")
        for task in range(len(record.job.durations_s)):
            if self._free:
                self._free -= 1
                self._start((record, task))
            else:
                self._queue.append((record, task))

    def _start(self, task: tuple[JobRecord, int]) -> None:
        record, number = task
        record.ran(number, self._engine.now_s, -1)
        self._engine.at(self._engine.now_s + record.job.durations_s[number], self._ended)

    def _ended(self, _: None) -> None:
        if self._queue:
            self._start(self._queue.popleft())
        else:
            self._free += 1


POLICIES: dict[str, type[Any]] = {
    "sparrow": Sparrow,
    "batch": BatchSampling,
    "per-task": PerTaskSampling,
    "random": Random,
    "central": Central,
}
