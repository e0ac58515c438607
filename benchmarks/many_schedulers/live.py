"""The live table: real schedulers and node monitors on this machine."""

from __future__ import annotations

import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.many_schedulers.costs import COSTS
from benchmarks.report import Report, Row, cpu_s, median_rows, progress
from frontends.synthetic.tasks import sleep_job
from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.policies import Settings
from simulator.simulate import simulate
from sparrow_py import Client, LocalCluster

TASK_MS = 20.0
NODES_TIMEOUT_S = 60.0
WARM_UP_S, STRACE_S = 1.0, 1.5
SENDS = ("sendto", "sendmsg", "write")
MODEL_JOBS = 400


@dataclass(frozen=True)
class Live:
    """A cluster and its jobs. tasks: of each job. tasks_per_s: of all jobs together."""

    schedulers: int
    profile: str
    nodes: int
    slots: int
    tasks: int
    tasks_per_s: float

    @property
    def load(self) -> float:
        """Of the slots."""
        return self.tasks_per_s * TASK_MS / 1000 / (self.nodes * self.slots)


def measure(lives: Sequence[Live], span_s: float, repeat: int) -> Report:
    """All rows, `repeat` times in turn."""
    repetitions = []
    for _ in range(repeat):
        rows = []
        for live in lives:
            progress(f"{live.profile}, {live.schedulers} schedulers, jobs of {live.tasks} tasks")
            rows.append(measured_row(live, span_s))
        repetitions.append(rows)
    rows = median_rows(repetitions)
    return Report(
        "many_schedulers",
        1e6 / rows[-1]["schedulers' µs per task"],
        "tasks per second that one scheduler can place, by its CPU time",
        {f"real daemons, one process for all node monitors, tasks that sleep {TASK_MS:g} ms": rows},
        repetitions,
    )


def measured_row(live: Live, span_s: float) -> Row:
    """One cluster's life."""
    options = ["--count", str(live.nodes), "--warm", "sleep"]
    cluster = LocalCluster(
        live.schedulers, 1, slots=live.slots, node_options=options, processes="separate", unix_sockets=False,
        profile=live.profile,
    )  # fmt: skip
    with cluster, Client(cluster) as client:
        cluster.wait_for_nodes(live.nodes, NODES_TIMEOUT_S)
        schedulers = [process.pid for process in cluster.scheduler_processes]
        node_monitors = [process.pid for process in cluster.node_processes]
        over_ideal_ms(live, client, WARM_UP_S)
        before = cpu_s(schedulers), cpu_s(node_monitors)
        over_ms = over_ideal_ms(live, client, span_s)
        spent_s = cpu_s(schedulers) - before[0], cpu_s(node_monitors) - before[1]
        sends = sends_per_task(live, client, schedulers)
    tasks = len(over_ms) * live.tasks
    model = model_us(live)
    return {
        "profile": live.profile,
        "schedulers": live.schedulers,
        "nodes × slots": f"{live.nodes}×{live.slots}",
        "tasks per job": live.tasks,
        "tasks/s": round(live.tasks_per_s),
        "schedulers' µs per task": 1e6 * spent_s[0] / tasks,
        "model": model[0],
        "node monitors' µs per task": 1e6 * spent_s[1] / tasks,
        "model ": model[1],
        "sends per task": sends,
        "over ideal ms p50": statistics.median(over_ms) if live.tasks <= live.nodes * live.slots else "",
    }


def over_ideal_ms(live: Live, client: Client, span_s: float) -> list[float]:
    """Submit jobs for so long, at random (at equal distances one would come just as another ends, and share its
    frames); how much longer than a task each took."""
    jobs, due_s, rng = [], time.monotonic(), random.Random(1)
    for _ in range(max(1, round(span_s * live.tasks_per_s / live.tasks))):
        due_s += rng.expovariate(live.tasks_per_s / live.tasks)
        time.sleep(max(0.0, due_s - time.monotonic()))
        jobs.append(client.submit_job(sleep_job([TASK_MS / 1000] * live.tasks)))
    responses_s = [job.report().response_s for job in jobs]
    assert None not in responses_s, "a job ran nothing"
    return [1000 * (response_s or 0.0) - TASK_MS for response_s in responses_s]


def sends_per_task(live: Live, client: Client, pids: Sequence[int]) -> float | str:
    """How often schedulers write to a link, for each task; empty if that cannot be counted here."""
    if shutil.which("strace") is None:
        return ""
    with tempfile.NamedTemporaryFile("r") as table:
        attached = [f"--attach={pid}" for pid in pids]
        command = ["strace", "-f", "-c", "-e", f"trace={','.join(SENDS)}", "-o", table.name, *attached]
        strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert strace.stderr is not None
        try:
            if not all("attached" in strace.stderr.readline() for _ in pids):
                return ""
            jobs = len(over_ideal_ms(live, client, STRACE_S))
        finally:
            strace.send_signal(signal.SIGINT)
            strace.communicate()
        lines = [line.split() for line in table.read().splitlines()]
        return sum(int(words[3]) for words in lines if words and words[-1] in SENDS) / (jobs * live.tasks)


def model_us(live: Live) -> tuple[float, float]:
    """What schedulers and node monitors would spend on a task of such jobs, by the costs."""
    result = simulate(
        Cluster(nodes=live.nodes, slots=live.slots, schedulers=live.schedulers, costs=COSTS),
        Synthetic(
            load=live.load, tasks=live.tasks, jobs=MODEL_JOBS, durations=Durations(kind="constant", mean_ms=TASK_MS)
        ),
        settings=Settings.of(live.profile),
    )
    tasks, counts = MODEL_JOBS * live.tasks, result.counts
    return counts["scheduler_busy_us"] / tasks, counts["node_monitor_busy_us"] / tasks
