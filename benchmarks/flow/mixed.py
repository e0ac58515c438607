"""Whether long tasks that policy flow has placed are in the way of short ones that are sampled.

Nodes of ten slots, eight of which long tasks hold, and the same nodes with two slots and nothing else: the same short
jobs on both, whose 95th percentile of response times is compared. Simulated, by the daemons' own cores in virtual time,
where nothing but the slots matters; and live, on two embedded clusters that take turns, where sleeps stand for work.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from benchmarks.flow.outcome import Figure, Outcome, Row, Scale, at_most
from benchmarks.report import progress
from frontends.synthetic.tasks import sleep_job
from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.engine import Engine
from simulator.hosts import APP, payloads
from simulator.network import Pipe
from simulator.policies import Settings, Sparrow
from simulator.records import JobRecord
from sparrow_py import Client, LocalCluster
from sparrow_py.client import Job
from sparrow_py.errors import ClusterError
from sparrow_py.wire import messages as m
from sparrow_py.wire.http_get import http_get_json

SLOTS, LONG, SHORT = 10, 8, 2
"""Of a node: all, those that long tasks hold, and the others."""
TASKS, TASK_MS = 10, 100.0
LONG_S = 1e6
RATIO_MAX = 1.1
SEED = 1
WARM_UP = 0.1
"""Of the jobs: those that are not counted."""

# ---- simulated -------------------------------------------------------------------------------------------------------

NODES = {Scale.TINY: 10, Scale.QUICK: 100, Scale.FULL: 1_000}
JOBS = {Scale.TINY: 40, Scale.QUICK: 1_500, Scale.FULL: 10_000}
LOADS = {Scale.TINY: (0.5,), Scale.QUICK: (0.3, 0.5, 0.8), Scale.FULL: (0.3, 0.5, 0.8)}
SCHEDULERS = 10
ENDS_S = 60.0
"""After the last job has come, all have ended by then."""
LEADER = "leader"


class WithLongTasks(Sparrow):
    """Batch sampling on nodes at which a leader of policy flow has placed tasks that do not end."""

    def __init__(self, cluster: Cluster, engine: Engine, seed: int, long: int) -> None:
        super().__init__(cluster, Settings(), engine, seed, ("user0",))
        self.told: list[m.Message] = []
        """The leader."""
        for node in self.nodes:
            node.peers[LEADER] = Pipe(self._tell, node.name)
            node.core.scheduler_up(LEADER, plane=m.FLOW)
            payload = payloads(array("d", [LONG_S]) * long)
            placed = [
                m.LaunchPlaced("long", 0, task, task + 1, payload[task], 1, "long", 1.0, 0, APP, LONG_S)
                for task in range(long)
            ]
            frame = [m.Lead(m.FLOW, 1), m.Common("long", 0, b""), *placed]
            engine.at(0.0, partial(node.from_scheduler, LEADER), frame)

    def _tell(self, _: str, frame: list[m.Message]) -> None:
        self.told += frame

    def running(self) -> int:
        """Long tasks that nodes have started."""
        return sum(node.core.counters.placed for node in self.nodes)


def simulated(nodes: int, slots: int, long: int, load: float, jobs: int) -> list[float]:
    """Response times in milliseconds of short jobs that bring `load` of the slots that are not held."""
    engine = Engine()
    cluster = Cluster(nodes=nodes, slots=slots, schedulers=SCHEDULERS)
    policy = WithLongTasks(cluster, engine, SEED, long)
    engine.run(until_s=1.0)
    if policy.running() != nodes * long:
        raise ClusterError(f"{policy.running()} of {nodes * long} long tasks run")
    workload = Synthetic(tasks=TASKS, load=load, jobs=jobs, durations=Durations("constant", TASK_MS))
    records = []
    for job in workload.generate(SEED, nodes, slots - long):
        record = JobRecord(job)
        records.append(record)
        engine.at(1.0 + job.arrival_s, policy.submit, record)
    engine.run(until_s=1.0 + records[-1].job.arrival_s + ENDS_S)
    counted = records[int(WARM_UP * jobs) :]
    if any(record.unended for record in counted):
        raise ClusterError("jobs have not ended")
    return [1000 * (max(record.started_s) - 1.0 - record.job.arrival_s) + TASK_MS for record in counted]


# ---- live ------------------------------------------------------------------------------------------------------------

LIVE_NODES = {Scale.TINY: 1, Scale.QUICK: 8, Scale.FULL: 10}
TURNS = {Scale.TINY: 1, Scale.QUICK: 3, Scale.FULL: 12}
TURN_S = {Scale.TINY: 1.0, Scale.QUICK: 5.0, Scale.FULL: 10.0}
LIVE_LOAD = 0.5
PLACED_TIMEOUT_S = 120.0
_OPTIONS = ("--warm", "sleep")


def live(nodes: int, turns: int, turn_s: float) -> tuple[list[float], list[float]]:
    """Response times in milliseconds: beside long tasks, and with two slots a node."""
    found: tuple[list[float], list[float]] = ([], [])
    chance = random.Random(SEED)
    with (
        _beside_long_tasks(nodes) as beside,
        LocalCluster(2, nodes, SHORT, node_options=_OPTIONS) as alone,
        Client(beside) as first,
        Client(alone) as second,
    ):
        for turn in range(-1, turns):
            for client, responses_ms in zip((first, second), found, strict=True):
                new = _responses_ms(client, nodes, 1.0 if turn < 0 else turn_s, chance)
                responses_ms.extend(new if turn >= 0 else ())
    return found


@contextmanager
def _beside_long_tasks(nodes: int) -> Iterator[LocalCluster]:
    """A cluster of both policies, on which long tasks run."""
    policies = (m.SPARROW, m.FLOW)
    with LocalCluster(2, nodes, SLOTS, policies=policies, node_options=_OPTIONS) as cluster, Client(cluster) as client:
        long = client.submit_job(sleep_job([LONG_S] * (LONG * nodes), policy=m.FLOW))
        _wait_until_placed(cluster, long)
        yield cluster


def _wait_until_placed(cluster: LocalCluster, long: Job) -> None:
    until_s = time.monotonic() + PLACED_TIMEOUT_S
    while True:
        jobs = [job for address in cluster.addresses for job in http_get_json(address, "/v1/jobs")["jobs"]]
        if any(job["id"] == long.job_id and job["unplaced"] == 0 for job in jobs):
            return
        if time.monotonic() > until_s:
            raise ClusterError(f"long tasks are not placed after {PLACED_TIMEOUT_S:g} s")
        time.sleep(0.1)


def _responses_ms(client: Client, nodes: int, span_s: float, chance: random.Random) -> list[float]:
    """Of jobs that come for so long, as a Poisson process."""
    per_s = LIVE_LOAD * nodes * SHORT / (TASKS * TASK_MS / 1000)
    jobs: list[tuple[float, Job]] = []
    ended_s: dict[str, float] = {}
    at_s = time.monotonic()
    until_s = at_s + span_s
    while not jobs or at_s < until_s:
        time.sleep(max(0.0, at_s - time.monotonic()))
        job = client.submit_job(sleep_job([TASK_MS / 1000] * TASKS, policy=m.SPARROW))
        jobs.append((time.monotonic(), job))
        for future in job:
            future.add_done_callback(partial(_note_end, ended_s, job.job_id))
        at_s += chance.expovariate(per_s)
    for _, job in jobs:
        job.results()
    return [1000 * (ended_s[job.job_id] - came_s) for came_s, job in jobs]


def _note_end(ended_s: dict[str, float], name: str, _: object) -> None:
    ended_s[name] = time.monotonic()


# ---- both ------------------------------------------------------------------------------------------------------------


def mixed(scale: Scale) -> Outcome:
    """Rows of both, and how they compare."""
    rows: list[Row] = []
    for load in scale.of(LOADS):
        nodes, jobs = scale.of(NODES), scale.of(JOBS)
        progress(f"simulated, {nodes:,} nodes, load {load:g}")
        beside, alone = (simulated(nodes, slots, slots - SHORT, load, jobs) for slots in (SLOTS, SHORT))
        rows.append(_row("simulated", nodes, load, beside, alone))
    nodes = scale.of(LIVE_NODES)
    progress(f"live, {nodes} nodes")
    rows.append(_row("live", nodes, LIVE_LOAD, *live(nodes, scale.of(TURNS), scale.of(TURN_S))))
    tells = scale is not Scale.TINY
    worst = max(row["p95 over alone"] for row in rows[:-1])
    return Outcome(
        rows,
        [
            at_most(f"simulated: p95 beside long tasks at most {RATIO_MAX} × that without", worst, RATIO_MAX, " ×",
                    tells=tells),
            at_most(f"live: the same, load {LIVE_LOAD:g}", rows[-1]["p95 over alone"], RATIO_MAX, " ×", tells=tells),
        ],
        [
            f"Jobs of {TASKS} tasks of {TASK_MS:g} ms, load of the {SHORT} slots a node that long tasks do not hold; "
            f"beside: nodes of {SLOTS} slots, {LONG} of which hold long tasks; alone: nodes of {SHORT} slots.",
        ],
    )  # fmt: skip


def _row(how: str, nodes: int, load: float, beside: list[float], alone: list[float]) -> Row:
    row: Row = {"how": how, "nodes": nodes, "load": load, "jobs": len(beside)}
    for share in (50, 95):
        first, second = (float(np.percentile(times, share)) for times in (beside, alone))
        row |= {f"p{share} beside ms": first, f"p{share} alone ms": second, f"p{share} over alone": first / second}
    return row


FIGURE = Figure("mixed", "Sampled jobs beside long tasks that hold 80 % of the slots", "none", mixed, wall=True,
                live=True)  # fmt: skip
