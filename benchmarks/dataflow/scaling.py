"""Table 1, figures 7, 8 and 9 of the execution templates' paper, in virtual time.

Cores of a controller and of up to 800 workers, each with the CPU time that it took here, links of 100 µs, and tasks of
the paper's lengths: the work of an iteration is fixed, ten tasks a worker. The machine has two cores, so throughput of
real processes would say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from statistics import median

from benchmarks.dataflow.pump import Cluster, without_collector
from benchmarks.dataflow.regression import Timed, regression
from benchmarks.flow.outcome import Row
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Event, Switches

PLANES = {"central": CENTRAL, "templates": ALL_ON}
CORES_A_NODE = 8
TASKS_A_WORKER = 10
TASK_S_AT_100_NODES = 0.004
K_MEANS_TIMES = 36 / 13
"""How much longer its tasks are: the ratio of both applications' tasks a second in Canary's paper. In this one it is
in a drawing alone."""
SHAPES = {"logistic regression": (1,), "k-means": (10, 21)}
"""Of what is summed."""
NODES = (20, 50, 100)
PAPER_TASKS_A_S = {("central", 100): 8_000, ("templates", 100): 200_000}
"""Spark's and Nimbus's."""
PAPER_TABLE_1 = {("Scala", 100): (0.206, 2.86), ("C++", 100): (0.004, 1.00), ("C++", 20): (0.020, 0.53)}


@cache
def iteration(
    nodes: int, task_s: float, switches: Switches, application: str = "logistic regression", iterations: int = 4
) -> dict[str, float]:
    """A warm iteration: how long it takes, what it would if nothing but tasks took time, its tasks, CPU time.

    Figures 7 and 8 show the same runs, so they are kept.
    """
    workers = nodes * CORES_A_NODE
    timed = Timed(task_s)
    df, program = regression(workers * TASKS_A_WORKER, iterations, timed, SHAPES[application])
    cluster = Cluster(df, workers, switches)
    timed.spend = cluster.spend
    with without_collector():
        cluster.run(program)
    a_time = len(cluster.block_s) // iterations  # Long iterations are cut into blocks.
    lasted = [sum(cluster.block_s[at : at + a_time]) for at in range(0, a_time * iterations, a_time)]
    spent = [block["controller"] for block in cluster.by_block]
    controller = [sum(spent[at : at + a_time]) for at in range(0, a_time * iterations, a_time)]
    tasks = workers * TASKS_A_WORKER * 2 + 3
    return {
        "first_s": lasted[0],
        "iteration_s": median(lasted[2:]),
        "ideal_s": task_s * TASKS_A_WORKER,
        "tasks": tasks,
        "controller_cpu_s": median(controller[2:]) / 1e9,
    }


def table_1(scale: int = 1) -> list[Row]:
    """Tasks of three lengths: the shorter they are, the more the controller is felt. `scale` divides nodes."""
    made: list[Row] = []
    for (code, of_paper), (task_s, paper_s) in PAPER_TABLE_1.items():
        nodes = max(of_paper // scale, 1)
        for plane, switches in PLANES.items():
            run = iteration(nodes, task_s, switches)
            made.append(
                {
                    "code": code,
                    "nodes": nodes,
                    "task_ms": round(task_s * 1e3),
                    "plane": plane,
                    "iteration_s": round(run["iteration_s"], 3),
                    "ideal_s": round(run["ideal_s"], 3),
                    "over_ideal_%": round(100 * (run["iteration_s"] / run["ideal_s"] - 1), 1),
                    "controller_cpu_ms": round(run["controller_cpu_s"] * 1e3, 1),
                    "spark_s": paper_s if scale == 1 else None,
                }
            )
    return made


def _by_nodes(nodes: Sequence[int]) -> Iterator[tuple[Row, dict[str, float]]]:
    for application in SHAPES:
        task_s = TASK_S_AT_100_NODES * (K_MEANS_TIMES if application == "k-means" else 1)
        for count in nodes:
            for plane, switches in PLANES.items():
                run = iteration(count, task_s * 100 / count, switches, application)
                head: Row = {
                    "application": application, "nodes": count, "workers": count * CORES_A_NODE, "plane": plane
                }  # fmt: skip
                yield head, run


def fig_7(nodes: Sequence[int] = NODES) -> list[Row]:
    """Iterations of two applications of fixed size by nodes."""
    return [
        head
        | {
            "first_s": round(run["first_s"], 3),
            "iteration_s": round(run["iteration_s"], 3),
            "ideal_s": round(run["ideal_s"], 3),
            "over_ideal_%": round(100 * (run["iteration_s"] / run["ideal_s"] - 1), 1),
            "controller_cpu_ms": round(run["controller_cpu_s"] * 1e3, 2),
        }
        for head, run in _by_nodes(nodes)
    ]


def fig_8(nodes: Sequence[int] = NODES) -> list[Row]:
    """Tasks a second of the same, and how many the controller's CPU time would allow."""
    return [
        head
        | {
            "tasks": run["tasks"],
            "tasks_a_s": round(run["tasks"] / run["iteration_s"]),
            "tasks_a_cpu_s_of_the_controller": round(run["tasks"] / run["controller_cpu_s"]),
            "paper_tasks_a_s": PAPER_TASKS_A_S.get((head["plane"], count)),
        }
        for head, run in _by_nodes(nodes)
        for count in [head["nodes"]]
        if head["application"] == "logistic regression"
    ]


OFF = "no templates"
PHASES = ((OFF, 1.0), ("all nodes", 1.0), ("half of them", 0.5), ("all again", 1.0), ("half again", 0.5))


def fig_9(nodes: int = 100) -> list[Row]:
    """Iterations while templates are switched on, half of the nodes stop, and come back."""
    workers = nodes * CORES_A_NODE
    timed = Timed(TASK_S_AT_100_NODES)
    rounds = 3
    df, program = regression(workers * TASKS_A_WORKER, rounds, timed)
    made: list[Row] = []
    with without_collector():
        cluster = Cluster(df, workers)
        timed.spend = cluster.spend
        for phase, share in PHASES:
            controller = cluster.controller
            controller.switches = CENTRAL if phase == OFF else ALL_ON
            cluster.submissions._is_templated = phase != OFF
            for slot, _ in list(controller.placed.items()):
                count = df._definition.group_partitions()[slot[0]]
                controller.move(slot, int(slot[1] * workers * share / count) if count > 1 else 0)
            installed, blocks = controller.counts[Event.INSTALLED], len(cluster.block_s)
            cluster.run(program)
            a_time = (len(cluster.block_s) - blocks) // rounds
            for at in range(rounds):
                part = slice(blocks + at * a_time, blocks + (at + 1) * a_time)
                made.append(
                    {
                        "phase": phase,
                        "iteration": at + 1,
                        "seconds": round(sum(cluster.block_s[part]), 3),
                        "controller_cpu_ms": round(sum(b["controller"] for b in cluster.by_block[part]) / 1e6, 1),
                        "halves_installed_in_phase": controller.counts[Event.INSTALLED] - installed,
                    }
                )
    return made
