"""Rounds of one cluster in whose graph all running tasks are: so many tasks arrive, as many end, all others age."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from benchmarks.flow.by_size import COLD_MAX_S, OR_TOOLS_RATIO_MAX, PAPERS_MACHINES
from benchmarks.flow.clusters import QuincyCluster, compile_all
from benchmarks.flow.outcome import Outcome, Plot, Row, Scale, Target, at_most
from benchmarks.flow.timed import timed
from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.extract import extract
from scheduler.flow.solvers import cost_scaling
from tests.support.flow_problems import oracle_cost

MACHINES = {Scale.TINY: 30, Scale.QUICK: PAPERS_MACHINES, Scale.FULL: PAPERS_MACHINES}
EVENTS = {Scale.TINY: 3, Scale.QUICK: 100, Scale.FULL: 100}
ROUNDS = {Scale.TINY: 2, Scale.QUICK: 12, Scale.FULL: 100}
FIRST_ROUNDS = 3
"""Not counted: in them tasks move whose place was not the best, and memory is touched for the first time."""
PARTS = ("ageing", "changes", "solve", "extraction")
ROUND_MAX_S = 0.06


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """events: tasks that arrive, and that end, in a round. skew: how unequally machines are liked. prioritised, drains:
    arc prioritisation and removal of tasks (§5.2.5), switched on."""

    machines: int = PAPERS_MACHINES
    events: int = 100
    rounds: int = 20
    skew: float = 0.0
    prioritised: bool = True
    drains: bool = True


def rounds(scale: Scale) -> Outcome:
    """CPU time of a cold solve and of the parts of rounds, and of OR-tools for the same graph."""
    return measure(Settings(machines=scale.of(MACHINES), events=scale.of(EVENTS), rounds=scale.of(ROUNDS)))


def measure(settings: Settings) -> Outcome:
    """With other settings than those of the targets, too."""
    compile_all()
    quincy = quincy_graph(settings.machines, skew=settings.skew)
    build_s, cluster = timed(lambda: QuincyCluster(quincy, prioritised=settings.prioritised, drains=settings.drains))
    cold_s, _ = timed(cluster.solver.solve)
    extract_s, _ = timed(lambda: extract(cluster.graph))
    scaling_s, solution = timed(lambda: cost_scaling.solve(quincy.problem))
    or_tools_s, cost = timed(lambda: oracle_cost(quincy.problem))
    cluster.place()
    rows: list[Row] = []
    for number in range(FIRST_ROUNDS + settings.rounds):
        ageing_s, _ = timed(cluster.age)
        changes_s, _ = timed(lambda: cluster.happen(settings.events))
        solve_s, done = timed(cluster.solver.solve)
        extraction_s, _ = timed(cluster.place)
        if number >= FIRST_ROUNDS:
            row: Row = dict(zip(PARTS, (ageing_s, changes_s, solve_s, extraction_s), strict=True))
            rows.append(row | {"all": sum(row.values()), "searches": done.searches, "steps": done.steps})
    tells = settings.machines == PAPERS_MACHINES and settings.events == 100
    return Outcome(
        [_row(part, [row[part] for row in rows]) for part in (*PARTS, "all")],
        [
            Target("cost scaling and OR-tools find the same cost", str(solution.cost == cost), solution.cost == cost),
            at_most(f"cold from a built graph ≤ {COLD_MAX_S} s", cold_s, COLD_MAX_S, " s", tells=tells),
            at_most(
                f"a round ≤ {1000 * ROUND_MAX_S:g} ms of CPU, changes and extraction included, median",
                statistics.median(row["all"] for row in rows), ROUND_MAX_S, " s", tells=tells,
            ),
            at_most(
                f"cost scaling cold ≤ {OR_TOOLS_RATIO_MAX} × OR-tools' CPU", scaling_s / or_tools_s,
                OR_TOOLS_RATIO_MAX, " ×", tells=tells,
            ),
        ],
        [
            f"{settings.machines:,} machines, {cluster.graph.nodes:,} nodes, "
            f"{int(np.count_nonzero(cluster.graph.capacity)):,} arcs, rounds of {settings.events} arrivals and as "
            "many completions.",
            f"build {build_s:.3f} s, cold {cold_s:.3f} s, extraction {extract_s:.3f} s; cost scaling cold "
            f"{scaling_s:.3f} s, OR-tools {or_tools_s:.3f} s.",
            f"relaxation's steps in a round: {statistics.median(row['steps'] for row in rows):,.0f} in the median.",
        ],
        Plot("part", ("median ms",), "part", "CPU [ms]"),
    )  # fmt: skip


def _row(part: str, seconds: list[float]) -> Row:
    return {
        "part": part,
        "median ms": 1000 * statistics.median(seconds),
        "p90 ms": 1000 * float(np.percentile(seconds, 90)),
        "largest ms": 1000 * max(seconds),
    }
