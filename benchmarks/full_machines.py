"""Why fewer 10-task jobs start at once on 4-core machines at 70 % load than the paper's closed form says (§4.2.1).

Simulates the paper's model without network delay on clusters of several sizes. Every so many arrivals it looks at
the share of machines that have no free core, which the closed form takes to be ρ^4 at all times.
"""

from __future__ import annotations

from statistics import fmean, pstdev

from benchmarks.report import Report, Row, command, median_rows, progress
from loadgen.synthetic import Synthetic
from scheduler.spreading import reservations_wanted
from simulator.cluster import Cluster
from simulator.figures import closed_forms
from simulator.figures.catalogue import paper
from simulator.figures.measures import zero_wait
from simulator.network import Delay
from simulator.policies import POLICIES, Sparrow
from simulator.records import JobRecord
from simulator.simulate import simulate

LOAD, TASKS, CORES, PROBE_RATIO = 0.7, 10, 4, 2.0
MACHINES = (250, 1000, 2500)
TASKS_PER_CORE = 10
LOOK_EVERY_JOBS = 20
SETTLED_AFTER = 0.1
"""Of the jobs: what comes before is not looked at."""

NAME = "sparrow-looked-at"
shares: list[float] = []
"""Of machines without a free core, as jobs met them in this run."""


class LookedAt(Sparrow):
    """Sparrow that notes how many machines are full."""

    def submit(self, record: JobRecord) -> None:
        if record.job.number % LOOK_EVERY_JOBS == 0:
            shares.append(fmean(node.core.free_slots == 0 for node in self.nodes))
        super().submit(record)


def measure(repetitions: int) -> Report:
    """A row for each size of cluster; each repetition has a seed of its own."""
    POLICIES[NAME] = LookedAt
    rows = [[_row(machines, seed) for machines in MACHINES] for seed in range(1, repetitions + 1)]
    table = median_rows(rows)
    closed = closed_forms.batch_sampling(LOAD, TASKS, PROBE_RATIO, CORES)
    erlang = closed_forms.batch_sampling_of_full_machines(LOAD, TASKS, PROBE_RATIO, CORES)
    notes = [
        f"The paper's closed form: {100 * closed:.1f} % of jobs, with {100 * LOAD**CORES:.0f} % of machines full.",
        f"With Erlang's loss system: {100 * erlang:.1f} %, {100 * closed_forms.full_machines(LOAD, CORES):.0f} % full.",
    ]
    title = f"{TASKS}-task jobs on {CORES}-core machines at load {LOAD}, no network delay"
    return Report("jobs that start at once", float(table[-1]["at once %"]), "%", {title: table}, rows, notes)


def _row(machines: int, seed: int) -> Row:
    jobs = machines * CORES * TASKS_PER_CORE // TASKS
    progress(f"{machines} machines, {jobs} jobs, seed {seed}")
    shares.clear()
    cluster = Cluster(nodes=machines, slots=CORES, delay=Delay(one_way_ms=0.0))
    workload = Synthetic(tasks=TASKS, load=LOAD, jobs=jobs)
    result = simulate(cluster, workload, NAME, paper(probe_ratio=PROBE_RATIO), seed=seed)
    met = shares[int(len(shares) * SETTLED_AFTER) :]
    probes = reservations_wanted(PROBE_RATIO, TASKS)
    return {
        "machines": machines,
        "jobs": jobs,
        "at once %": 100 * zero_wait(result),
        "full %": 100 * fmean(met),
        "its deviation %": 100 * pstdev(met),
        "closed form over what jobs met %": 100
        * fmean(closed_forms.at_least(TASKS, probes, 1 - share) for share in met),
    }


main = command("full_machines", measure, repeat=3, help=__doc__ or "")

if __name__ == "__main__":
    main()
