"""What a scheduler of policy flow takes for many node monitors: CPU time and memory, idle and while things happen.

One scheduler and one node monitor at first, which says what a cluster takes at least; then all others, hosted by
`HOSTS` processes. An event is a task that is submitted, started or ended; tasks sleep for `TASK_S`, ten a job. All of
it goes over loopback, beside whatever else the machine does: CPU times do not mind that, but that a busy machine makes
them some tens of per cent longer.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from subprocess import DEVNULL

from benchmarks.flow.outcome import Figure, Outcome, Row, Scale, at_most
from benchmarks.report import cpu_s, progress, rss_mb
from frontends.synthetic.tasks import sleep_job
from sparrow_py import Client, LocalCluster
from sparrow_py.client import Job
from sparrow_py.embedded.daemon_process import NODE_MONITOR, DaemonProcess
from sparrow_py.job import JobSpec
from sparrow_py.wire.http_get import http_get_text
from sparrow_py.wire.messages import FLOW

NODES = {Scale.TINY: 8, Scale.QUICK: 200, Scale.FULL: 2_000}
SPANS_S = {Scale.TINY: 0.5, Scale.QUICK: 6.0, Scale.FULL: 30.0}
"""How long each rate is measured; at full scale that is how often a node tells its load if nothing changes."""
EVENTS_PER_S = (0, 100, 1_000)
EVENTS_PER_TASK = 3
"""It is submitted, starts and ends."""
TASKS = 10
TASK_S = 0.5
HOSTS = 2
IDLE_CPU_MAX_PERCENT = 5.0
NODE_KB_MAX = 25.0
NODES_TIMEOUT_S = 120.0
METRICS_TIMEOUT_S = 60.0
SETTLES_S = 3.0
"""After the nodes have come: for rounds that take note of them."""
_OPTIONS = ("--warm", "sleep")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is measured; `busy`: the part of all slots that tasks hold which do not end meanwhile."""

    nodes: int
    slots: int = 2
    span_s: float
    busy: float = 0.0


def nodes(scale: Scale) -> Outcome:
    """As large as the scale says."""
    return measure(settings(scale), tells=scale is Scale.FULL)


def settings(scale: Scale) -> Settings:
    """What the scale says."""
    return Settings(nodes=scale.of(NODES), span_s=scale.of(SPANS_S))


def measure(wanted: Settings, *, tells: bool = True) -> Outcome:
    """Memory before and after the nodes, and CPU time at each rate of events. tells: whether the aims are of this."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(1, 1, wanted.slots, policies=(FLOW,), node_options=_OPTIONS))
        client = stack.enter_context(Client(cluster))
        scheduler = cluster.scheduler_processes[0].pid
        client.submit_job(_job()).results()
        before_mb = rss_mb([scheduler])
        progress(f"{wanted.nodes:,} node monitors come")
        stack.enter_context(_hosted(cluster, wanted))
        time.sleep(SETTLES_S)
        after_mb = rss_mb([scheduler])
        if wanted.busy:
            client.submit_job(sleep_job([1e6] * int(wanted.busy * wanted.nodes * wanted.slots), policy=FLOW))
        rows = [_row(client, cluster, rate, wanted.span_s) for rate in EVENTS_PER_S]
        for process in cluster.scheduler_processes:
            process.kill()  # Nothing is to be ended in order: that would be measured nowhere.
    kb_per_node = 1000 * (after_mb - before_mb) / wanted.nodes
    return Outcome(
        rows,
        [
            at_most(
                f"idle: at most {IDLE_CPU_MAX_PERCENT:g} % of a core, {wanted.nodes:,} nodes",
                rows[0]["CPU %"], IDLE_CPU_MAX_PERCENT, " %", tells=tells,
            ),
            at_most(f"{NODE_KB_MAX:g} kB for each node", kb_per_node, NODE_KB_MAX, " kB", tells=tells),
        ],
        [
            f"{wanted.nodes:,} node monitors of {wanted.slots} slots, {wanted.busy:.0%} of which are held by tasks "
            f"that do not end; jobs of {TASKS} sleeps of {TASK_S:g} s; {wanted.span_s:g} s each. CPU of the "
            "scheduler's process, all threads; an event is a task that is submitted, starts or ends.",
            f"Resident set: {before_mb:.0f} MB with one node monitor, {after_mb:.0f} MB with all, most of it numba.",
        ],
    )  # fmt: skip


@contextmanager
def _hosted(cluster: LocalCluster, wanted: Settings) -> Iterator[None]:
    """So many more node monitors, hosted by few processes, for as long as this lasts."""
    each = math.ceil(wanted.nodes / HOSTS)
    hosts: list[DaemonProcess] = []
    try:
        for number in range(HOSTS):
            flags = ["--scheduler", cluster.addresses[0], "--slots", str(wanted.slots), *_OPTIONS]
            flags += ["--count", str(min(each, wanted.nodes - number * each)), "--node-id", f"host{number}"]
            hosts.append(DaemonProcess(NODE_MONITOR, flags, dict(os.environ), log=DEVNULL))
        for host in hosts:
            host.wait_until_ready()
        cluster.wait_for_nodes(wanted.nodes + 1, NODES_TIMEOUT_S)
        yield
    finally:
        for host in hosts:
            host.kill()


def _job() -> JobSpec:
    return sleep_job([TASK_S] * TASKS, policy=FLOW)


def _row(client: Client, cluster: LocalCluster, events_per_s: int, span_s: float) -> Row:
    """So many events a second, from when the first of the jobs would have ended on."""
    if events_per_s:
        _run_jobs(client, events_per_s, 2 * TASK_S)
    scheduler = cluster.scheduler_processes[0].pid
    before, before_s, started_s = _Counts.of(cluster), cpu_s([scheduler]), time.monotonic()
    if events_per_s:
        _run_jobs(client, events_per_s, span_s)
    else:
        time.sleep(span_s)
    after, took_cpu_s, took_s = _Counts.of(cluster), cpu_s([scheduler]) - before_s, time.monotonic() - started_s
    events, rounds = EVENTS_PER_TASK * (after.ended - before.ended), after.rounds - before.rounds
    return {
        "events/s wanted": events_per_s,
        "events/s": events / took_s,
        "CPU %": 100 * took_cpu_s / took_s,
        "CPU us an event": 1e6 * took_cpu_s / events if events else 0.0,
        "rounds/s": rounds / took_s,
        "round ms": 1000 * (after.rounds_s - before.rounds_s) / rounds if rounds else 0.0,
        "RSS MB": rss_mb([scheduler]),
    }


@dataclass(frozen=True)
class _Counts:
    """What the scheduler has counted so far."""

    ended: int
    rounds: int
    rounds_s: float

    @classmethod
    def of(cls, cluster: LocalCluster) -> _Counts:
        """As its metrics say."""
        name = "sparrow_scheduler_"
        lines = http_get_text(cluster.addresses[0], "/metrics", METRICS_TIMEOUT_S).splitlines()
        found = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        ended = sum(float(value) for key, value in found.items() if key.startswith(f"{name}outcomes_total"))
        rounds = f"{name}flow_round_seconds"
        return cls(int(ended), int(float(found[f"{rounds}_count"])), float(found[f"{rounds}_sum"]))


def _run_jobs(client: Client, events_per_s: int, span_s: float) -> None:
    """Submit jobs at equal distances; those that are late because the machine is busy come as soon as they can."""
    every_s = EVENTS_PER_TASK * TASKS / events_per_s
    jobs: deque[Job] = deque()
    started_s = time.monotonic()
    for number in range(max(1, round(span_s / every_s))):
        time.sleep(max(0.0, started_s + number * every_s - time.monotonic()))
        jobs.append(client.submit_job(_job()))
        while jobs and jobs[0].wait(0):
            jobs.popleft().results()
    for job in jobs:
        job.results()


FIGURE = Figure("nodes", "A scheduler of policy flow with many node monitors", "none", nodes, live=True)
