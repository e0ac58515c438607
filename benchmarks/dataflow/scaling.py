"""Table 1, figures 7, 8 and 9 of the execution templates' paper, in virtual time.

Cores of a controller and of up to 800 workers, each with the CPU time that it took here, links of 100 µs, and tasks of
the paper's lengths: the work of an iteration is fixed, ten tasks a worker. The machine has two cores, so throughput of
real processes would say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.dataflow.pump import Cluster, without_collector
from benchmarks.dataflow.regression import Timed, regression
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Event, Switches

PLANES = {"central": CENTRAL, "templates": ALL_ON}
CORES_A_NODE = 8
TASKS_A_WORKER = 10
TASK_S_AT_100_NODES = 0.004
SCALA_TASK_S = 0.206
NODES = (20, 50, 100)
PAPER_TABLE_1 = {("Scala", 100): (0.206, 2.86), ("C++", 100): (0.004, 1.00), ("C++", 20): (0.020, 0.53)}


def iteration(nodes: int, task_s: float, switches: Switches, iterations: int = 4) -> dict[str, float]:
    """A warm iteration: how long it takes, what it would if nothing but tasks took time, its tasks, CPU time."""
    workers = nodes * CORES_A_NODE
    timed = Timed(task_s)
    df, program = regression(workers * TASKS_A_WORKER, iterations, timed)
    cluster = Cluster(df, workers, switches)
    timed.spend = cluster.spend
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


def table_1(repeat: int = 1, tasks: int = 0) -> list[dict[str, object]]:
    """Tasks of three lengths: the shorter they are, the more the controller is felt."""
    made: list[dict[str, object]] = []
    with without_collector():
        for (code, nodes), (task_s, paper_s) in PAPER_TABLE_1.items():
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
                        "controller_cpu_ms": round(run["controller_cpu_s"] * 1e3, 1),
                        "spark_s": paper_s,
                    }
                )
    return made


def fig_7(repeat: int = 1, tasks: int = 0, nodes: Sequence[int] = NODES) -> list[dict[str, object]]:
    """Iterations of a regression of fixed size by nodes; figure 8's tasks a second beside them."""
    made: list[dict[str, object]] = []
    with without_collector():
        for count in nodes:
            for plane, switches in PLANES.items():
                run = iteration(count, TASK_S_AT_100_NODES * 100 / count, switches)
                made.append(
                    {
                        "nodes": count,
                        "workers": count * CORES_A_NODE,
                        "plane": plane,
                        "first_s": round(run["first_s"], 3),
                        "iteration_s": round(run["iteration_s"], 3),
                        "ideal_s": round(run["ideal_s"], 3),
                        "over_ideal_%": round(100 * (run["iteration_s"] / run["ideal_s"] - 1), 1),
                        "controller_cpu_ms": round(run["controller_cpu_s"] * 1e3, 2),
                        "tasks_a_s": round(run["tasks"] / run["iteration_s"]),
                    }
                )
    return made


def fig_9(repeat: int = 1, tasks: int = 0, nodes: int = 100) -> list[dict[str, object]]:
    """Iterations while templates are switched on, half of the nodes stop, and come back."""
    workers = nodes * CORES_A_NODE
    timed = Timed(TASK_S_AT_100_NODES)
    rounds = 3
    df, program = regression(workers * TASKS_A_WORKER, rounds, timed)
    made: list[dict[str, object]] = []
    with without_collector():
        cluster = Cluster(df, workers)
        timed.spend = cluster.spend
        for phase, share in (("all nodes", 1.0), ("half of them", 0.5), ("all again", 1.0), ("half again", 0.5)):
            controller = cluster.controller
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
