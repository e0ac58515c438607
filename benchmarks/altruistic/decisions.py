"""How much CPU time the allocator takes to decide: after a task's end, an arrival, and for everything at once."""

from __future__ import annotations

import random
import time

import numpy as np

from benchmarks.report import Report
from loadgen.dags.arriving import at_once
from loadgen.dags.generators import WORKLOADS
from loadgen.dags.resources import RESOURCES
from scheduler.altruistic.allocator import Allocator, Start
from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.kernels import IS_COMPILED
from scheduler.altruistic.settings import CARBYNE, Settings
from simulator.dags.arrivals import arrival_of

ENDS, ARRIVALS, ROUNDS = 2_000, 50, 20
AIMS_MS = {"a task's end, p99": 1.0, "an arrival, median": 10.0, "a whole round, median": 20.0}


class Cluster:
    """Machines that are full, and jobs of which so many tasks wait."""

    def __init__(self, pending: int, machines: int, jobs: int, settings: Settings = CARBYNE, seed: int = 1) -> None:
        self.machines, self.settings = machines, settings
        self._chance = random.Random(seed)
        self._made = iter(WORKLOADS["tpcds"].generate(seed, at_once(jobs + ARRIVALS + 1)))
        self.now_s = 0.0
        self._factor = 1.01
        self.running: list[Start] = []
        self.allocator = Allocator(len(RESOURCES), settings)
        self.allocator.machines_came([str(number) for number in range(machines)], np.ones((machines, len(RESOURCES))))
        per_job = (pending + 20 * machines) // jobs
        for _ in range(jobs):
            self.arrive(per_job)
        self.pump()

    def arrive(self, tasks: int) -> None:
        """A job of about so many tasks, by the shape of one of the workload's."""
        job = arrival_of(next(self._made))
        total = int(job.dag.tasks.sum())
        groups = [
            Group(max(1, round(group.tasks * tasks / total)), group.demand, group.duration_s, group.parents)
            for group in job.dag.groups
        ]
        self.allocator.job_came(job.name, Dag(groups))

    def pump(self) -> None:
        self.running += self.allocator.pump(self.now_s)

    def touch_all(self) -> None:
        """All jobs are to be planned anew, and all machines to be looked at: these have a hundredth more or less."""
        self._factor = 1 / self._factor
        cluster = self.allocator.machines
        self.allocator.machines_came(list(cluster.names), cluster.capacity * self._factor)

    def end_one(self) -> bool:
        """One of the tasks ends that run; False if its job is over."""
        number = self._chance.randrange(len(self.running))
        start = self.running[number]
        if start.tasks > 1:
            self.running[number] = start._replace(tasks=start.tasks - 1)
        else:
            self.running[number] = self.running[-1]
            self.running.pop()
        self.now_s += 0.01
        return not self.allocator.ended(start.job, start.group, start.machine, start.end_s)


def measure(pending: int, machines: int, jobs: int) -> Report:
    """By CPU time of this process."""
    Cluster(200, 5, 5).pump()  # Compiled, once.
    cluster = Cluster(pending, machines, jobs)
    waiting = sum(int(here.job.left.sum()) for here in cluster.allocator.jobs.values())
    ends = []
    for _ in range(ENDS):
        began_s = time.process_time()
        same = cluster.end_one()
        cluster.pump()
        if same:
            ends.append(time.process_time() - began_s)
    arrivals = []
    for _ in range(ARRIVALS):
        cluster.arrive(max(10, pending // jobs))
        began_s = time.process_time()
        cluster.pump()
        arrivals.append(time.process_time() - began_s)
    rounds = []
    for _ in range(ROUNDS):
        cluster.touch_all()
        began_s = time.process_time()
        cluster.pump()
        rounds.append(time.process_time() - began_s)
    found = {
        "a task's end, median": float(np.median(ends)),
        "a task's end, p99": float(np.percentile(ends, 99)),
        "an arrival, median": float(np.median(arrivals)),
        "a whole round, median": float(np.median(rounds)),
    }
    rows = [
        {"decision": name, "CPU ms": f"{1e3 * value:.3f}", "aim": f"{AIMS_MS[name]:g} ms" if name in AIMS_MS else ""}
        for name, value in found.items()
    ]
    title = f"{waiting:,} tasks wait, {machines:,} machines, {jobs} jobs, {len(RESOURCES)} resources"
    notes = ["with numba" if IS_COMPILED else "without numba"]
    return Report("altruistic decisions", 1e3 * found["a task's end, p99"], "ms", {title: rows}, [found], notes)
