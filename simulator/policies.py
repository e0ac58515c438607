"""Scheduling policies side by side, each a small class.

All but `Central` are the daemons: their own cores, under virtual time, with one placement or another (§4.2, §5.2).
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from node_monitor.options import COUNT_MAX, NodeMonitorOptions
from scheduler.options import OVERTAKEN_MAX_DEFAULT, SchedulerOptions
from simulator.cluster import Cluster
from simulator.costs import CostlyNetwork, Processes
from simulator.engine import Engine
from simulator.hosts import ClientHost, NoBlobs, NodeHost, SchedulerHost
from simulator.network import Network, Pipe, Receive
from simulator.records import JobRecord
from sparrow_py import profiles
from sparrow_py.errors import InvalidOption
from sparrow_py.job import PROBE_RATIO_DEFAULT, check_number
from sparrow_py.profiles import DEFAULT, NODE_MONITOR, SCHEDULER


class Policy(Protocol):
    """Places the tasks of jobs that arrive."""

    def submit(self, record: JobRecord) -> None:
        """A job has arrived, now."""

    def counts(self) -> dict[str, int]:
        """What happened so far: `core_events`, and what else the policy counts."""


ROOMS = (SCHEDULER, NODE_MONITOR)
"""Whose options of the table of profiles a simulation sets."""
_DEFAULTS = profiles.settings(DEFAULT, *ROOMS)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set of policies; each looks at what concerns it.

    probe_ratio: d of the jobs (§3.1).
    cancellation, probe_sharing, order, overtaken_max, probe_ratio_max: as the scheduler's options of these names.
    report_idle, push_to_idle: as the daemons' options of these names.
    """

    probe_ratio: float = PROBE_RATIO_DEFAULT
    cancellation: bool = _DEFAULTS["cancellation"]
    probe_sharing: bool = _DEFAULTS["probe_sharing"]
    order: str = _DEFAULTS["order"]
    overtaken_max: int = OVERTAKEN_MAX_DEFAULT
    probe_ratio_max: float = _DEFAULTS["probe_ratio_max"]
    report_idle: bool = _DEFAULTS["report_idle"]
    push_to_idle: bool = _DEFAULTS["push_to_idle"]

    def __post_init__(self) -> None:
        check_number("probe_ratio", self.probe_ratio, 1, 1000)

    @classmethod
    def of(cls, profile: str, **changes: Any) -> Settings:
        """Those of a profile, with these changes, which need not keep to it."""
        return cls(**profiles.settings(profile, *ROOMS) | changes)

    @property
    def profile(self) -> str:
        """The profile that they keep to, whatever the probe ratio; "" if they keep to none."""
        return profiles.profile_of(asdict(self), *ROOMS)


# ---- the daemons' own cores --------------------------------------------------------------------


class Sparrow:
    """Batch sampling with late binding (§3), by the daemons' cores."""

    placement = "sparrow"
    """The scheduler's option."""
    node_host: type[NodeHost] = NodeHost
    """What drives a node monitor's core."""

    def __init__(self, cluster: Cluster, settings: Settings, engine: Engine, seed: int, users: tuple[str, ...]) -> None:
        self._settings = settings
        rng = random.Random(f"{seed} network")
        self._processes: Processes | None = None
        if cluster.costs is None:
            network = Network(engine, cluster.delay, rng)
        else:
            network = costly = CostlyNetwork(engine, cluster.delay, rng)
            self._processes = Processes(cluster.costs, engine, costly)
        scheduler_options = SchedulerOptions(
            placement=self.placement,
            **{name: getattr(settings, name) for name in profiles.settings(DEFAULT, SCHEDULER)},
            overtaken_max=settings.overtaken_max,
            unplaced_tasks_max=1 << 60,
            user_weight=tuple(f"{user}={weight}" for user, weight in cluster.weights.items()),
            user_priority=tuple(f"{user}={priority}" for user, priority in cluster.priorities.items()),
        )
        node_options = NodeMonitorOptions(
            count=min(cluster.nodes, COUNT_MAX),
            queue=cluster.queue,
            report_idle=settings.report_idle and self.placement == "sparrow",
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
        infos = [node.info(cluster.attributes(number)) for number, node in enumerate(self.nodes)]
        node_receives = [self._node_receives(node) for node in self.nodes]
        for scheduler in self.schedulers:
            from_node, from_client = self._scheduler_receives(scheduler)
            for node, info, from_scheduler in zip(self.nodes, infos, node_receives, strict=True):
                scheduler.peers[node.name] = Pipe(from_scheduler, scheduler.name)
                node.peers[scheduler.name] = Pipe(from_node, node.name)
                node.core.scheduler_up(scheduler.name)
                scheduler.core.node_up(node.name, info, engine.now_s)
            for user, client in self.clients.items():
                scheduler.peers[client.name] = Pipe(client.from_scheduler, scheduler.name)
                client.peers[scheduler.name] = Pipe(from_client, (client.name, user))
                client.core.scheduler_up(scheduler.name, 1 << 30, engine.now_s)

    def _scheduler_receives(self, host: SchedulerHost) -> tuple[Receive, Receive]:
        """What is told of the frames of nodes and of those of clients."""
        if self._processes is None:
            return host.from_node, host.from_client
        process = self._processes.scheduler()
        return process.reads(host.from_node), process.reads(host.from_client)

    def _node_receives(self, host: NodeHost) -> Receive:
        """What is told of the frames of schedulers."""
        if self._processes is None:
            return host.from_scheduler
        process = self._processes.node_monitor()
        host.run_ends = process.hears(host.run_ends)
        return process.reads(host.from_scheduler)

    def submit(self, record: JobRecord) -> None:
        self.clients[record.job.user].submit(record, probe_ratio=self._settings.probe_ratio)

    def counts(self) -> dict[str, int]:
        hosts: list[Any] = [*self.schedulers, *self.nodes, *self.clients.values()]
        names = ["asks", "noops", "probes", "reservations", "reservations_shared", "reservations_cancelled"]
        if self._settings.push_to_idle:
            names += ["pushes", "pushes_handed_back"]
        sums = {name: sum(getattr(host.core.counters, name) for host in self.schedulers) for name in names}
        events = sum(host.received for host in hosts) + sum(node.ended for node in self.nodes)
        spent = {} if self._processes is None else self._processes.counts()
        return {"core_events": events, **sums, **spent}


class BatchSampling(Sparrow):
    """The tasks of a job go to the shortest of d·m random queues, by their lengths (§5.2: no late binding)."""

    placement = "batch"


class PerTaskSampling(Sparrow):
    """Each task goes to the shorter of d random queues: the power of two choices (§4.2)."""

    placement = "per-task"


class Random(Sparrow):
    """Each task goes to a random node (§4.2)."""

    placement = "random"


class CentralDaemon(Sparrow):
    """Each task goes to the least loaded node, or waits at its scheduler (§7.4): the daemons' placement `central`, with
    the network's delay. There is one scheduler, however many the cluster has for other policies."""

    placement = "central"

    def __init__(self, cluster: Cluster, settings: Settings, engine: Engine, seed: int, users: tuple[str, ...]) -> None:
        super().__init__(replace(cluster, schedulers=1), settings, engine, seed, users)


# ---- what they are all compared with ---------------------------------------------------------


class Central:
    """An omniscient scheduler without cost or delay: a task starts as soon as any slot is free, in order of arrival."""

    def __init__(self, cluster: Cluster, settings: Settings, engine: Engine, seed: int, users: tuple[str, ...]) -> None:
        self._engine = engine
        self._free = cluster.nodes * cluster.slots
        self._queue: deque[tuple[JobRecord, int]] = deque()

    def counts(self) -> dict[str, int]:
        return {}

    def submit(self, record: JobRecord) -> None:
        if record.job.where or record.job.preferred or record.job.stages:
            raise InvalidOption("policy", "central", "any other, for jobs with constraints or several stages")
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
    "central-daemon": CentralDaemon,
    "central": Central,
}
