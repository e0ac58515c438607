"""Figures 5.11, 5.12 and 5.14: what heuristics bring, each switched on and off."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.flow.clusters import QuincyCluster, SpreadCluster, compile_all
from benchmarks.flow.outcome import SOLVE_MAX_S, Outcome, Plot, Row, Scale, Target, at_most
from benchmarks.flow.timed import timed, within
from benchmarks.quincy_graphs import quincy_graph
from benchmarks.report import progress
from scheduler.flow.graph import FlowGraph
from scheduler.flow.problem import Problem, Solution
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.refine import refine
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.solvers.stopping import StopFlag

MACHINES = {Scale.TINY: 30, Scale.QUICK: 2_500, Scale.FULL: 12_500}
EVENTS = {Scale.TINY: 3, Scale.QUICK: 20, Scale.FULL: 100}
"""Tasks that arrive, and that end, in a round: as many for each machine at all scales."""
SPREAD_MACHINES = {Scale.TINY: 30, Scale.QUICK: 12_500, Scale.FULL: 12_500}
SPREAD_EVENTS = {Scale.TINY: 3, Scale.QUICK: 100, Scale.FULL: 100}
"""A solve of load spreading takes milliseconds: on smaller clusters most of it is what comes before the first step."""
ROUNDS = {Scale.TINY: 2, Scale.QUICK: 8, Scale.FULL: 20}
FIRST_ROUNDS = 2
"""Not counted."""
WARM_GAIN = {"Quincy": 0.25, "load spreading": 0.5}
PRIORITY_GAIN = 0.45
REMOVAL_GAIN = 0.1
REFINE_FACTOR = 4.0


@dataclass
class Chain:
    """A cluster that goes from round to round, solved by relaxation, and the problem before each solve."""

    cluster: QuincyCluster
    events: int

    def next(self) -> tuple[Problem, Solution]:
        """The next round's problem, and the flow and prices to start from, after which the cluster is at it, too."""
        self.cluster.age()
        self.cluster.happen(self.events)
        return self.cluster.graph.problem(), self.cluster.graph.solution()


def quincy_chain(scale: Scale, *, full: float = 0.9, drains: bool = True) -> Chain:
    """In its optimum."""
    cluster = QuincyCluster(quincy_graph(scale.of(MACHINES), running=full), drains=drains)
    cluster.solver.solve()
    cluster.place()
    return Chain(cluster, scale.of(EVENTS))


def gain(without_s: Sequence[float], with_s: Sequence[float]) -> float:
    """By how much medians fall."""
    return 1 - statistics.median(with_s) / statistics.median(without_s)


def gain_target(text: str, found: float, aim: float, scale: Scale) -> Target:
    """At least the paper's."""
    return Target(f"{text} (paper: −{aim:.0%})", f"{-100 * found:+.0f} %",
                  None if scale is Scale.TINY else found >= aim)  # fmt: skip


# ---- 5.11: warm starts -----------------------------------------------------------------------------------------------


def incremental(scale: Scale) -> Outcome:
    """Figure 5.11: from the last solution on, against from nothing."""
    compile_all()
    rows = [*_incremental_quincy(scale), *_incremental_spreading(scale)]
    targets = []
    for policy, aim in WARM_GAIN.items():
        own = [row for row in rows if row["policy"] == policy]
        found = gain([row["cost scaling cold"] for row in own], [row["cost scaling warm"] for row in own])
        targets.append(gain_target(f"cost scaling warm against cold, {policy}", found, aim, scale))
        relaxed = gain([row["relaxation cold"] for row in own], [row["relaxation warm"] for row in own])
        targets.append(
            Target(f"relaxation warm against cold, {policy} (paper: may lose)", f"{-100 * relaxed:+.0f} %", None)
        )
    notes = [_note(scale), f"Load spreading: {scale.of(SPREAD_MACHINES):,} machines, {scale.of(SPREAD_EVENTS)} tasks."]
    return Outcome(_medians(rows, "policy"), targets, notes)


def _incremental_quincy(scale: Scale) -> list[Row]:
    progress("Quincy")
    limit_s = scale.of(SOLVE_MAX_S)
    chain, rows = quincy_chain(scale), []
    for number in range(FIRST_ROUNDS + scale.of(ROUNDS)):
        problem, start = chain.next()
        row: Row = {"policy": "Quincy"} | _cold_and_warm(problem, start, limit_s)
        row["relaxation warm"] = within(limit_s, chain.cluster.solver.solve).cpu_s
        chain.cluster.place()
        if number >= FIRST_ROUNDS:
            rows.append(row)
    return rows


def _incremental_spreading(scale: Scale) -> list[Row]:
    progress("load spreading")
    limit_s, events = scale.of(SOLVE_MAX_S), scale.of(SPREAD_EVENTS)
    cluster = SpreadCluster(scale.of(SPREAD_MACHINES), events)
    start = _prices_alone(cost_scaling.solve(cluster.problem(0)))
    rows = []
    for number in range(FIRST_ROUNDS + scale.of(ROUNDS)):
        problem = cluster.problem(events)
        row: Row = {"policy": "load spreading"} | _cold_and_warm(problem, start, limit_s)
        graph = FlowGraph.of(problem)
        graph.adopt(start)
        row["relaxation warm"] = within(limit_s, Relaxation(graph).solve).cpu_s
        cluster.place(graph.solution())
        start = _prices_alone(graph.solution())
        cluster.end(events)
        if number >= FIRST_ROUNDS:
            rows.append(row)
    return rows


def _prices_alone(solution: Solution) -> Solution:
    """Tasks that were placed are no part of the next problem, so no flow is left."""
    return Solution(np.zeros_like(solution.flow), solution.potential, 0)


def _cold_and_warm(problem: Problem, start: Solution, limit_s: float) -> Row:
    def scaled(stop: StopFlag) -> Solution:
        return cost_scaling.solve(problem, None, stop)

    graph = FlowGraph.of(problem)
    return {
        "cost scaling cold": within(limit_s, scaled).cpu_s,
        "cost scaling warm": within(limit_s, lambda stop: cost_scaling.solve(problem, start, stop)).cpu_s,
        "relaxation cold": within(limit_s, Relaxation(graph).solve).cpu_s,
    }


# ---- 5.12: arc prioritisation, removal of tasks ----------------------------------------------------------------------


CONTENDED_FULL = 0.98
CONTENDED_SKEW = 0.8
"""A cluster in which tasks contend: nearly full, and some machines are liked by far more tasks than others."""


def heuristics(scale: Scale) -> Outcome:
    """Figure 5.12: (a) arcs that lead to machines first, in relaxation; (b) removal of tasks down to the sink, in
    incremental cost scaling at 95 %."""
    compile_all()
    rows = [*_prioritised(scale), *_prioritised_spreading(scale), *_drained(scale)]
    targets = []
    for figure, text, aim in (
        (CONTENDED_ROW, "relaxation with arc prioritisation where tasks contend (Quincy at 99 %)", PRIORITY_GAIN),
        (SPREAD_ROW, "the same, load spreading at 90 %", None),
        (REMOVAL_ROW, "incremental cost scaling with task removal, Quincy at 95 %", REMOVAL_GAIN),
    ):
        found = {on: [row["CPU s"] for row in rows if (row["figure"], row["switched on"]) == (figure, on)]
                 for on in ("False", "True")}  # fmt: skip
        saved = gain(found["False"], found["True"])
        targets.append(Target(f"{text} (our arcs do not contend there)", f"{-100 * saved:+.0f} %", None)
                       if aim is None else gain_target(text, saved, aim, scale))  # fmt: skip
    return Outcome(_medians(rows, "figure", "switched on"), targets, [
        _note(scale),
        f"{CONTENDED_ROW}: cold, {CONTENDED_FULL:.0%} running and 1 % more, skewed preferences; a graph a round.",
        f"{SPREAD_ROW}: a job of {_job_of(scale):,} tasks each time. Each slot has an arc of its own: the first free "
        "one that is found leads to the sink, with prioritisation or without.",
        "steps: arcs looked at, for cost scaling nodes; counted, so without noise.",
    ])  # fmt: skip


CONTENDED_ROW, SPREAD_ROW, REMOVAL_ROW = "5.12a", "5.12a, load spreading", "5.12b"


def _job_of(scale: Scale) -> int:
    return min(100 * scale.of(EVENTS), scale.of(MACHINES))


def _prioritised(scale: Scale) -> list[Row]:
    progress("arc prioritisation")
    rows = []
    for number in range(scale.of(ROUNDS)):
        quincy = quincy_graph(scale.of(MACHINES), number + 1, running=CONTENDED_FULL, skew=CONTENDED_SKEW)
        for prioritised in (False, True):
            graph = FlowGraph.of(quincy.problem)
            rows.append(_relaxed(CONTENDED_ROW, graph, prioritised, scale))
    return rows


def _prioritised_spreading(scale: Scale) -> list[Row]:
    progress("arc prioritisation, load spreading")
    rows = []
    tasks = 100 * scale.of(EVENTS)
    for prioritised in (False, True):
        cluster = SpreadCluster(scale.of(MACHINES), tasks)
        for _ in range(scale.of(ROUNDS)):
            graph = FlowGraph.of(cluster.problem(_job_of(scale)))
            rows.append(_relaxed(SPREAD_ROW, graph, prioritised, scale))
            cluster.place(graph.solution())
            cluster.end(_job_of(scale))
    return rows


def _relaxed(figure: str, graph: FlowGraph, prioritised: bool, scale: Scale) -> Row:
    done = within(scale.of(SOLVE_MAX_S), Relaxation(graph, prioritised=prioritised).solve)
    steps = done.result.steps if done.result else 0
    return {"figure": figure, "switched on": str(prioritised), "CPU s": done.cpu_s, "steps": steps}


def _drained(scale: Scale) -> list[Row]:
    progress("removal of tasks")
    rows: list[Row] = []
    for drains in (False, True):
        chain = quincy_chain(scale, full=0.95, drains=drains)
        for number in range(FIRST_ROUNDS + scale.of(ROUNDS)):
            problem, start = chain.next()
            took_s, scaling = timed(partial(_scaled, problem, start, drains))
            chain.cluster.graph.adopt(scaling.solution())
            chain.cluster.place()
            if number >= FIRST_ROUNDS:
                rows.append({"figure": REMOVAL_ROW, "switched on": str(drains), "CPU s": took_s, "steps": scaling.work})
    return rows


def _scaled(problem: Problem, start: Solution, drains: bool) -> cost_scaling.Scaling:
    return cost_scaling.start_scaling(problem, start, drains=drains).go()


# ---- 5.14: price refine ----------------------------------------------------------------------------------------------


def price_refine(scale: Scale) -> Outcome:
    """Figure 5.14: cost scaling goes on from relaxation's flow, with prices that were refined before the changes.

    Without refine the thesis starts it with relaxation's own prices, which fit that flow badly. Ours fit as they are
    ("kept"): what refine is worth shows against a flow whose prices are lost.
    """
    compile_all()
    chain = quincy_chain(scale)
    rows: list[Row] = []
    limit_s = scale.of(SOLVE_MAX_S)
    for number in range(FIRST_ROUNDS + scale.of(ROUNDS)):
        before = chain.cluster.graph.problem()
        flow = chain.cluster.graph.flow.copy()
        refine_s, refined = timed(partial(refine, before, flow))
        problem, start = chain.next()
        prices = np.zeros(len(start.potential), np.int64)
        prices[: len(refined.potential)] = refined.potential
        starts = {"kept": start.potential, "refined": prices, "lost": np.zeros_like(prices)}
        row: Row = {"round": number - FIRST_ROUNDS + 1, "refine itself": refine_s}
        for name in np.roll(list(starts), number):  # Who comes first touches memory for the first time.
            row |= _from(problem, Solution(start.flow, starts[name], 0), limit_s, f"prices {name}")
        chain.cluster.solver.solve()
        chain.cluster.place()
        if number >= FIRST_ROUNDS:
            rows.append({name: row[name] for name in sorted(row, key=COLUMNS.index)})
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    steps = {name: medians[f"prices {name}, steps"] for name in ("kept", "refined", "lost")}
    return Outcome(
        rows,
        [
            Target(
                "incremental cost scaling is 4 × as fast with price refine (paper)",
                f"{medians['prices lost'] / medians['prices refined']:.1f} × without refine itself, "
                f"{medians['prices lost'] / (medians['prices refined'] + medians['refine itself']):.1f} × with",
                None if scale is Scale.TINY else medians["prices lost"] >= REFINE_FACTOR * medians["prices refined"],
            ),
            Target(
                "the same by counted work",
                f"{steps['lost'] / max(steps['refined'], 1):.1f} ×",
                None if scale is Scale.TINY else steps["lost"] >= REFINE_FACTOR * steps["refined"],
            ),
            at_most(
                "relaxation's prices as they are need no refine: work of cost scaling with them over that with "
                "refined ones", steps["kept"] / max(steps["refined"], 1), 1.1, " ×", tells=scale is not Scale.TINY,
            ),
        ],
        [_note(scale), "steps: nodes looked at, in the same solves."],
        Plot("round", ("prices lost", "prices refined", "prices kept"), "round", "CPU [s]", log_y=True),
    )  # fmt: skip


COLUMNS = (
    "round",
    *(f"prices {name}{what}" for what in ("", ", steps") for name in ("lost", "refined", "kept")),
    "refine itself",
)


def _from(problem: Problem, start: Solution, limit_s: float, name: str) -> Row:
    done = within(limit_s, lambda stop: cost_scaling.start_scaling(problem, start, stop).go())
    return {name: done.cpu_s, f"{name}, steps": done.result.work if done.result else 0}


def _note(scale: Scale) -> str:
    return (
        f"CPU seconds, medians of {scale.of(ROUNDS)} rounds of {scale.of(EVENTS)} arrivals and {scale.of(EVENTS)} "
        f"completions, {scale.of(MACHINES):,} machines; the solve alone, from the problem's arrays on."
    )


def _medians(rows: Sequence[Row], *keys: str) -> list[Row]:
    """A row for each combination of these columns."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        {name: own[0][name] if name in keys else statistics.median(row[name] for row in own) for name in own[0]}
        for own in found.values()
    ]
