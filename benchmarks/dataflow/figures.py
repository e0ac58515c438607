"""All figures, by command and name."""

from __future__ import annotations

from benchmarks.dataflow import (
    balance,
    canary_fig9,
    canary_scaling,
    canary_table1,
    compiled,
    fig4,
    fig10,
    fig12,
    links,
    live,
    live_scaling,
    messages,
    moves,
    peers,
    scaling,
    shares,
    table3,
    table4,
    targets,
    validation,
)
from benchmarks.dataflow.catalogue import Figure
from benchmarks.dataflow.peers_others import Dask, Joblib, Mpi, Pool, Ray
from benchmarks.dataflow.peers_ours import Ours
from benchmarks.flow.outcome import Row

VIRTUAL = "Virtual time: CPU time of scheduling is this machine's, tasks are as long as the paper's, links take 100 µs."
AT_ONE_A_CORE = (
    "Of `central` at one partition a core: the worker that has the weights runs its own gradient before it sends them "
    "to the others, so an iteration takes two tasks' time."
)
CANARY: dict[str, Figure] = {
    "table1": Figure(
        canary_table1.measure, "an iteration of logistic regression by style, core time a row",
        "Spark functional 42.36 s, imperative 6.52 s, low level 2.59 s, Canary 0.47 s, 18 cores, 20 GB",
        {"repeat": 3, "rows": 100_000}, targets.canary_table_1,
        ("Spark itself needs a Java machine and is not run; the same styles in Python stand in its place.",
         "Tasks a CPU second are those of an iteration over the paper's 125 million rows."),
    ),
    "fig4": Figure(
        fig4.rows, "scheduling a task, CPU time", "0.7 µs; 136,000 tasks of 6.6 µs a second at 10 % overhead",
        {"repeat": 5, "tasks": 4_000}, targets.canary_fig_4,
        ("The share of a 1 ms task is the no-op's time over a millisecond: a difference of two sums of milliseconds "
         "does not tell a microsecond.",
         "Tasks of 6.6 µs, by difference from the function alone: where other programs run, a time slice begins with "
         "cold caches, which the scheduler feels and the function alone does not."),
        is_timed=True,
    ),
    "fig5": Figure(
        canary_scaling.fig_5, "CPU time of a task by workers", "linear to 1,152 cores, 127 M tasks a second",
        {"repeat": 3, "iterations": 4}, targets.canary_fig_5,
        ("Of all workers' tasks a block has at most 10,000, so from 16 workers on blocks are shorter than a signal's "
         "tasks, and each costs a worker about 6 µs. The teller sends each worker a frame of its own.",
         "127 million tasks a second are those of 1,152 cores: this machine has two."),
    ),
    "fig5-live": Figure(
        live_scaling.measure, "CPU time of a task by processes", "linear to 1,152 cores",
        {"repeat": 2, "signals": 10, "workers": (1, 2, 4)}, targets.canary_fig_5_live,
        ("More processes than cores: each signal wakes all, and looking for messages costs the more the longer they "
         "come.",),
        is_timed=True,
    ),
    "fig6": Figure(
        canary_scaling.fig_6, "an iteration of fixed work by cores, virtual time",
        "logistic regression 36,000 and k-means 13,000 tasks a second at 1,152 cores; Spark 9 and 4.8 times slower",
        {"cores": (144, 288)}, targets.canary_fig_6,
        (VIRTUAL, AT_ONE_A_CORE,
         "PageRank and GraphX are left out: their time at this size is the network's, which one machine has not. "
         "Messages and bytes of PageRank are in figure 9."),
        is_timed=True,
    ),
    "fig9": Figure(
        canary_fig9.measure, "PageRank by partitions of a core", "33 % less time with 4 partitions a core, more from 6",
        {"repeat": 1, "vertices": 100_000, "edges": 500_000, "sides": (1, 2, 4, 8)}, targets.canary_fig_9,
        ("The paper's machines have a hash table of mirrors, which small partitions keep in caches; here mirrors are "
         "arrays, which at the size of `--quick` fit anyway: more partitions then only exchange more.",
         "Not run: GraphX, and 32 machines of 18 cores."),
    ),
}  # fmt: skip
TEMPLATES: dict[str, Figure] = {
    "table1": Figure(
        scaling.table_1, "tasks of the paper's lengths under this controller, virtual time",
        "Spark: 2.86 s, 1.00 s, 0.53 s", {"scale": 10}, targets.templates_table_1, (VIRTUAL,), is_timed=True,
    ),
    "table3": Figure(
        table3.rows, "what installing templates costs, CPU time", "25 + 15 + 9 µs a task, 39 %",
        {"repeat": 2, "tasks": 2_000}, targets.templates_table_3,
    ),
    "table4": Figure(
        table4.rows, "an iteration of no-ops on two workers, CPU time of all parts", "1.07 s, 0.49 s, 0.07 s",
        {"repeat": 2, "tasks": 2_000}, targets.templates_table_4,
        ("The ratio has the tasks themselves in it: binding and running a no-op at a worker costs half a microsecond "
         "with templates. Central dispatch costs a tenth of the 40 µs that it might, so it loses by less.",),
    ),
    "fig7": Figure(
        scaling.fig_7, "two applications of fixed size by nodes, virtual time",
        "Nimbus 4 to 8 times as fast as Spark with tasks as short; within 0.07 s at 100 nodes",
        {"nodes": (2, 5)}, targets.templates_fig_7,
        (VIRTUAL, "k-means' tasks are 36 / 13 as long (Canary's rates): the paper has theirs in a drawing alone. Naiad "
         "and Spark are not run."),
        is_timed=True,
    ),
    "fig8": Figure(
        scaling.fig_8, "tasks a second of the same, virtual time", "Spark and Naiad 8,000, Nimbus almost 200,000",
        {"nodes": (2, 5)}, targets.templates_fig_8, (VIRTUAL,), is_timed=True,
    ),
    "fig9": Figure(
        scaling.fig_9, "templates are switched on, half of the nodes stop and come back, virtual time",
        "1.07 s without, 1.2 s when they are made, 0.07 s with, 0.14 s on half of the nodes",
        {"nodes": 5}, targets.templates_fig_9, (VIRTUAL,), is_timed=True,
    ),
    "fig10": Figure(
        fig10.measure, "how long tasks of a water simulation take, CPU time",
        "median 13 ms, 10th percentile 3 ms, some 0.1 ms", {"size": 300}, targets.templates_fig_10,
        ("PhysBAM and its 1024³ cells are not to be had; this is `examples/dataflow/water.py`, 1800² cells in four "
         "blocks. Most of its tasks are exchanges, sums and numbers of a solver's iterations.",),
    ),
    "messages": Figure(
        messages.rows, "messages of the controller in an iteration, and its CPU time", "O(T), O(W)",
        {"repeat": 1, "workers": (1, 10, 100)}, targets.messages,
    ),
    "validation": Figure(
        validation.rows, "preconditions of a million objects, CPU time", "almost one million objects",
        {"repeat": 5}, targets.validation,
    ),
}  # fmt: skip
PEERS = (Ours("local"), Ours("templates"), Ours("central"), Pool(), Joblib(), Dask(), Ray(), Mpi())


def peers_rows(repeat: int = 10, iterations: int = 200, only: tuple[str, ...] = ()) -> list[Row]:
    """All systems, or those named."""
    return peers.rows(repeat, iterations, only, PEERS)


OTHERS: dict[str, Figure] = {
    "compiled": Figure(
        compiled.rows, "CPU time of a task of compiled stages, all included", "",
        {"repeat": 3, "tasks": 20_000}, targets.compiled,
        ("The aim is met at 40 partitions with long chains (53 M on cores that were less busy, "
         "[dataflow.md](dataflow.md#compiled-stages)); short runs have the first calls' cold caches in them.",),
        is_timed=True,
    ),
    "links": Figure(
        links.rows, "round trips between two processes; CPU time of both", "", {"repeat": 1}, is_timed=True
    ),
    "fig12": Figure(
        fig12.rows, "a water simulation; CPU time beside that of one rank of MPI", "within 15 % of MPI by hand",
        {"repeat": 1, "size": 600}, targets.fig_12,
        ("`inline` has one process; ranks and `inline` run one after the other, and differ by what else runs. Planes "
         "`templates` and `central` have no live workers yet.",),
        is_timed=True,
    ),
    "live": Figure(
        live.rows, "loops on workers of a cluster, by plane: many tasks a round, and a wait each round", "15 : 7 : 1",
        {"repeat": 1, "share": 0.2}, targets.live,
        ("CPU time of all processes of a program. An epoch captures its templates anew.",),
        is_timed=True,
    ),
    "balance": Figure(
        balance.rows, "an iteration before and after partitions moved, virtual time",
        "4 or 8 partitions a core take 20 to 30 % less time beside a slow worker or a skew", {"repeat": 1},
        targets.balance,
    ),
    "moves": Figure(
        moves.rows, "an iteration while 128 MB move over TCP, beside one without", "", {"repeat": 1}, targets.moves,
        is_timed=True,
    ),
    "shares": Figure(
        shares.rows, "a program's share of slots beside another user's backlog, windows of 10 s", "", {"repeat": 1},
        targets.shares, is_timed=True,
    ),
    "peers": Figure(
        peers_rows, "a loop over partitions on two workers, here and elsewhere", "",
        {"repeat": 1, "iterations": 50}, targets.of_peers,
        ("Where others compute, spinning for messages costs time slices, and CPU time with it: MPI, Ray and this "
         "project's workers all spin, so wall times are of quiet cores alone.",
         "A signal between busy workers is no time that one waits for the other: nobody waits for the one that hears, "
         "and that one still works when the message comes. It is CPU time, that a block costs the worker that decides.",
         "Idle: CPU time of a system's processes in a second, by their own clocks; looking at them does not count."),
        is_timed=True,
    ),
}  # fmt: skip
FIGURES = {
    **{f"canary {name}": figure for name, figure in CANARY.items()},
    **{f"templates {name}": figure for name, figure in TEMPLATES.items()},
    **OTHERS,
}
