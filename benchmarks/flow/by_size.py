"""Figures 2.19 and 5.5: solvers from nothing, by the size of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.flow.clusters import compile_all
from benchmarks.flow.outcome import (
    BEYOND,
    NOT_TRIED,
    SOLVE_MAX_S,
    Outcome,
    Plot,
    Row,
    Scale,
    Target,
    at_most,
)
from benchmarks.flow.timed import timed, within
from benchmarks.quincy_graphs import quincy_graph
from benchmarks.report import progress
from scheduler.flow.graph import FlowGraph
from scheduler.flow.problem import Problem, Solution
from scheduler.flow.solvers import cost_scaling, cycle_cancelling, successive_paths
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.solvers.stopping import StopFlag
from tests.support.flow_problems import oracle_cost

PAPERS_MACHINES = 12_500
SIZES = {
    Scale.TINY: (10, 30),
    Scale.QUICK: (50, 150, 450, 850, 1_250, 2_500, 5_000),
    Scale.FULL: (50, 450, 850, 1_250, 2_500, 5_000, 7_500, 10_000, PAPERS_MACHINES),
}
SAMPLES = {Scale.TINY: 2, Scale.QUICK: 3, Scale.FULL: 10}
BOXES = (1, 25, 50, 75, 99, 100)
COLD_MAX_S = 0.6
OR_TOOLS_RATIO_MAX = 1.2

ColdSolve = Callable[[Problem, StopFlag], int]
"""Solves a problem from nothing; the cost."""


COLD: dict[str, ColdSolve] = {
    "cost scaling": lambda problem, stop: cost_scaling.solve(problem, stop=stop).cost,
    "cost scaling, alpha 2": lambda problem, stop: cost_scaling.solve(problem, stop=stop, alpha=2).cost,
    "successive paths": lambda problem, stop: successive_paths.solve(problem, stop=stop).cost,
    "cycle cancelling": lambda problem, stop: cycle_cancelling.solve(problem, stop=stop).cost,
}
OR_TOOLS = "OR-tools"
"""It cannot be stopped, holds the GIL, and is for comparison."""


def all_solvers(scale: Scale) -> Outcome:
    """Figure 5.5."""
    compile_all()
    limit_s = scale.of(SOLVE_MAX_S)
    rows: list[Row] = []
    beyond: set[str] = set()
    agree = True
    for machines in scale.of(SIZES):
        progress(f"{machines:,} machines")
        problem = quincy_graph(machines).problem
        row: Row = {"machines": machines, "nodes": len(problem.supply), "arcs": len(problem.tail)}
        rows.append(row)
        build_s, graph = timed(partial(FlowGraph.of, problem))
        row["build s"] = build_s
        solver = Relaxation(graph)
        row["relaxation"] = within(limit_s, solver.solve).cell
        costs = {graph.solution().cost}
        for name, solve in COLD.items():
            if name in beyond:
                row[name] = NOT_TRIED
                continue
            done = within(limit_s, partial(solve, problem))
            row[name] = done.cell
            if done.result is None:
                beyond.add(name)
            else:
                costs.add(done.result)
        row[OR_TOOLS], cost = timed(partial(oracle_cost, problem))
        agree &= costs == {cost}
    last = rows[-1]
    at_full_size = last["machines"] == PAPERS_MACHINES
    ours, theirs = last["cost scaling"], last[OR_TOOLS]
    ratio = ours / theirs if isinstance(ours, float) and theirs > 0 else None
    return Outcome(
        rows,
        [
            Target("all solvers find the same cost", "yes" if agree else "no", agree),
            at_most(
                f"relaxation, cold from a built graph, {PAPERS_MACHINES:,} machines: ≤ {COLD_MAX_S} s of CPU",
                _number(last["relaxation"]), COLD_MAX_S, " s", tells=at_full_size,
            ),
            at_most(
                f"cost scaling cold ≤ {OR_TOOLS_RATIO_MAX} × OR-tools' CPU, {last['machines']:,} machines",
                ratio, OR_TOOLS_RATIO_MAX, " ×", tells=last["machines"] >= 1_250,
            ),
        ],
        [f"CPU seconds of cold solves; limit {limit_s:g} s. OR-tools cannot be stopped."],
        Plot("machines", ("relaxation", *COLD, OR_TOOLS), "machines", "CPU [s]", log_x=True, log_y=True),
    )  # fmt: skip


def _number(cell: Any) -> float | None:
    return None if cell in (BEYOND, NOT_TRIED) else float(cell)


def cost_scaling_alone(scale: Scale) -> Outcome:
    """Figure 2.19."""
    compile_all()
    limit_s = scale.of(SOLVE_MAX_S)
    rows: list[Row] = []
    for machines in scale.of(SIZES):
        progress(f"{machines:,} machines")
        took_s, relaxed_s = [], []
        for seed in range(1, scale.of(SAMPLES) + 1):
            problem = quincy_graph(machines, seed).problem
            took_s.append(within(limit_s, _cold(problem)).cpu_s)
            graph = FlowGraph.of(problem)
            relaxed_s.append(within(limit_s, Relaxation(graph).solve).cpu_s)
        row: Row = {"machines": machines}
        row |= {f"p{box}" if box < 100 else "max": float(np.percentile(took_s, box)) for box in BOXES}
        rows.append(row | {"relaxation p50": float(np.median(relaxed_s))})
    last = rows[-1]
    full = last["machines"] == PAPERS_MACHINES
    return Outcome(
        rows,
        [
            at_most(
                "cost scaling cold at 12,500 machines, median (paper: 64 s, p99 83 s)", last["p50"], 64.0, " s",
                tells=full,
            ),
            at_most(
                f"relaxation there, median ≤ {COLD_MAX_S} s", last["relaxation p50"], COLD_MAX_S, " s", tells=full
            ),
        ],
        ["CPU seconds of cold solves of snapshots at 90 %, each of another seed."],
        Plot("machines", ("p1", "p50", "p99", "relaxation p50"), "machines", "CPU [s]", log_y=True),
    )  # fmt: skip


def _cold(problem: Problem) -> Callable[[StopFlag], Solution]:
    return lambda stop: cost_scaling.solve(problem, stop=stop)
