"""Scheduling policies side by side, each a small class.

All but `Central` are the daemons: their own cores, under virtual time, with one placement or another (§4.2, §5.2).
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Protocol

from node_monitor.options import COUNT_MAX, NodeMonitorOptions
from scheduler.options import OVERTAKEN_MAX_DEFAULT, SchedulerOptions
from simulator.cluster import Cluster
from simulator.engine import Engine
from simulator.hosts import ClientHost, NoBlobs, NodeHost, SchedulerHost
from simulator.network import Network, Pipe
from simulator.records import JobRecord
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
    push_to_idle: bool = True

    def __post_init__(self) -> None:
        check_number("probe_ratio", self.probe_ratio, 1, 1000)


# ---- the daemons' own cores --------------------------------------------------------------------


class Sparrow:
    """Batch sampling with late binding (§3), by the daemons' cores."""

    placement = "sparrow"
    """The scheduler's option."""
    node_host: type[NodeHost] = NodeHost
    """What drives a node monitor's core."""

    def __init__(self, cluster: Cluster, settings: Settings, engine: Engine, seed: int, users: tuple[str, ...]) -> None:
        self._settings = settings
        network = Network(engine, cluster.delay, random.Random(f"{seed} network"))
        scheduler_options = SchedulerOptions(
            placement=self.placement,
            probe_sharing=settings.probe_sharing,
            cancellation=settings.cancellation,
            order=settings.order,
            overtaken_max=settings.overtaken_max,
            probe_ratio_max=settings.probe_ratio_max,
            push_to_idle=settings.push_to_idle,
            unplaced_tasks_max=1 << 60,
            user_weight=tuple(f"{user}={weight}" for user, weight in cluster.weights.items()),
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
        names = ["asks", "noops", "probes", "reservations", "reservations_shared", "reservations_cancelled"]
        if self._settings.push_to_idle:
            names += ["pushes", "pushes_handed_back"]
        sums = {name: sum(getattr(host.core.counters, name) for host in self.schedulers) for name in names}
        events = sum(host.received for host in hosts) + sum(node.ended for node in self.nodes)
        return {"core_events": events, **sums}


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
