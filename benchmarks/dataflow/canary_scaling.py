"""Figures 5 and 6 of Canary: what a worker's tasks cost by the number of workers; an iteration of fixed work by cores.

The paper has 64 servers of 18 cores. Figure 5 here tells CPU time per task, never tasks per second beyond this
machine's: of two workers' cores of up to a thousand, the one that runs the signal (the teller) and one of the others,
as these all do the same; more of them in one process would measure its caches. `live_scaling` has real processes.
Figure 6 is in virtual time, with the CPU time that scheduling took here and tasks as long as the paper's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import median

from benchmarks.dataflow.local_pump import LocalInTime, LocalPump, blocks_of
from benchmarks.dataflow.pump import Cluster, without_collector
from benchmarks.dataflow.regression import Timed, no_ops, regression
from benchmarks.flow.outcome import Row
from frontends.dataflow.calls import Block
from frontends.dataflow.commanding_core import CENTRAL
from frontends.dataflow.placement import initial

WORKERS = (1, 4, 16, 64, 256, 1_000)
PARTITIONS_A_WORKER = 10
"""As the paper has for each core."""
STAGES = 4
ROUNDS = 15
TASKS_A_WORKER = STAGES * PARTITIONS_A_WORKER * ROUNDS
"""Between two signals: with the 6.6 µs that tasks of the paper's figure take, a signal every 4 ms."""
UNCOUNTED = 2
"""Iterations before those that are measured."""
CORES = (144, 288, 576, 1_152)
CORE_S = {"logistic regression": 0.47 * 18 * 8, "k-means": 0.47 * 18 * 8 * 36 / 13}
"""An iteration's work. Of logistic regression that of the paper's table 1, for eight times as many data; of k-means
that times the ratio of the rates of tasks that the paper has for both at 1,152 cores (36,000 and 13,000 a second)."""
SHAPES = {"logistic regression": (20,), "k-means": (10, 21)}
"""Of what is summed: a gradient; ten clusters' sums and counts."""
PAPER_S = {
    ("logistic regression", 1_152): 3_460 / 36_000,
    ("k-means", 1_152): 3_460 / 13_000,
}
"""Tasks of an iteration (three a core and four) by tasks a second; the rest stands in a drawing alone."""


def two_of(workers: int, iterations: int) -> Row:
    """What no-ops cost the worker that runs the signal, and another one of so many."""
    partitions = workers * PARTITIONS_A_WORKER
    df, program = no_ops(partitions, UNCOUNTED + iterations, ROUNDS)

    def says(block: Block) -> bool:
        """As the program's signal, from its parameter; blocks that were cut have none."""
        return bool(block.parameters) and block.parameters[0][1]["number"] < UNCOUNTED + iterations

    blocks, _ = blocks_of(df, program, says)
    placed = initial(df._definition.group_partitions(), range(workers))
    signal = df._definition.stages[-1]
    teller = placed[df._definition.groups[signal.group_dataset], 0]
    other = 0 if teller else workers - 1
    pump = LocalPump(df, workers, played={teller, other})
    pump.run(program, UNCOUNTED * len(blocks) // (UNCOUNTED + iterations), says)
    tasks = TASKS_A_WORKER * iterations
    return {
        "teller_ns": float(pump.cpu_ns[teller]) / tasks,
        "other_ns": float(pump.cpu_ns[other]) / tasks,
        "blocks": len(blocks) / (UNCOUNTED + iterations),
        "messages": pump.frames.total() / iterations,
        "reports": pump.reports.total() / iterations,
    }


def fig_5(repeat: int = 10, iterations: int = 8, workers: Sequence[int] = WORKERS) -> list[Row]:
    """A row for each number of workers; medians of interleaved runs."""
    runs: dict[int, list[Row]] = {count: [] for count in workers}
    with without_collector():
        for _ in range(repeat):
            for count, each in runs.items():
                each.append(two_of(count, iterations))
    made: list[Row] = []
    for count, each in runs.items():
        teller, other = (median(float(row[name]) for row in each) for name in ("teller_ns", "other_ns"))
        made.append(
            {
                "workers": count,
                "tasks_a_signal": TASKS_A_WORKER * count,
                "tasks_a_block": round(TASKS_A_WORKER / float(each[0]["blocks"])),
                "ns_a_task": round((teller + (count - 1) * other) / count),
                "teller_ns_a_task": round(teller),
                "messages_a_signal": round(float(each[0]["messages"])),
                "reports_a_signal": round(float(each[0]["reports"])),
            }
        )
    return made


def iteration(cores: int, application: str, plane: str, iterations: int = 4) -> Row:
    """A warm iteration in virtual time, one partition a core."""
    task_s = CORE_S[application] / cores
    timed = Timed(task_s)
    df, program = regression(cores, iterations, timed, shape=SHAPES[application])
    if plane == "local":
        workers = LocalInTime(df, cores)
        timed.spend = workers.spend
        workers.run(program)
        ends = [0.0, *workers.over_s]
        lasted = [after - before for before, after in itertools.pairwise(ends)]
        busiest_ms = workers.cpu_ns.max() / iterations / 1e6
    else:
        cluster = Cluster(df, cores, CENTRAL)
        timed.spend = cluster.spend
        cluster.run(program)
        lasted = cluster.block_s
        busiest_ms = median(block["controller"] for block in cluster.by_block[1:]) / 1e6
    return {"iteration_s": median(lasted[1:]), "ideal_s": task_s, "busiest_ms": busiest_ms}


def fig_6(repeat: int = 1, cores: Sequence[int] = CORES) -> list[Row]:
    """A row for each application, number of cores and plane."""
    made: list[Row] = []
    with without_collector():
        for application in CORE_S:
            for count in cores:
                for plane in ("local", "central"):
                    runs = [iteration(count, application, plane) for _ in range(repeat)]
                    lasted, ideal_s = median(float(run["iteration_s"]) for run in runs), float(runs[0]["ideal_s"])
                    paper_s = PAPER_S.get((application, count)) if plane == "local" else None
                    made.append(
                        {
                            "application": application,
                            "cores": count,
                            "plane": plane,
                            "iteration_s": round(lasted, 4),
                            "ideal_s": round(ideal_s, 4),
                            "over_ideal_%": round(100 * (lasted / ideal_s - 1), 1),
                            "busiest_process_ms": round(median(float(run["busiest_ms"]) for run in runs), 2),
                            "paper_s": None if paper_s is None else round(paper_s, 3),
                        }
                    )
    return made
