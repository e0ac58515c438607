"""Figure 5.10: what is misplaced if a solver is stopped early."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from benchmarks.flow.clusters import before_arrival, compile_all
from benchmarks.flow.outcome import SOLVE_MAX_S, Outcome, Plot, Row, Scale, at_least
from benchmarks.flow.timed import within
from benchmarks.quincy_graphs import QuincyGraph, quincy_graph
from benchmarks.report import progress
from scheduler.flow.graph import FlowGraph
from scheduler.flow.problem import Integers, Problem, Solution, StoppedError
from scheduler.flow.solvers.cost_scaling import start_scaling
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.solvers.stopping import stop_flag

MACHINES = {Scale.TINY: 100, Scale.QUICK: 1_250, Scale.FULL: 12_500}
FULLNESS = 0.96
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97)
"""Of the work of the whole solve."""
LATE = 0.9
MISPLACED_MIN = 0.05
"""Of the arriving tasks, still misplaced so late: what the thesis calls a poor solution."""


def stopped_early(scale: Scale) -> Outcome:
    """The job that makes the cluster 96 % full has arrived; each solver is stopped after a share of its work.

    A task is misplaced if it takes another arc than in the solver's own optimum, or its unit has not come to the sink.
    Tasks that take the arc to the same aggregator are alike: to which machine each of them goes is chance.
    """
    compile_all()
    quincy = quincy_graph(scale.of(MACHINES), arriving=FULLNESS / 0.9 - 1)
    arriving = int((quincy.running_on < 0).sum())
    before = FlowGraph.of(before_arrival(quincy))
    Relaxation(before).solve()
    start = before.solution()
    relaxed = _after(quincy.problem, start, None)
    assert relaxed is not None
    whole_steps, best = relaxed
    limit_s = scale.of(SOLVE_MAX_S)
    scaling = within(limit_s, lambda stop: start_scaling(quincy.problem, stop=stop).go())
    rows: list[Row] = []
    for share in SHARES:
        progress(f"{share:.0%} of the work")
        row: Row = {"share of work": share}
        _, flow = _after(quincy.problem, start, int(share * whole_steps))
        row["relaxation"] = misplaced(quincy, flow, best)
        if scaling.result is not None:
            part = start_scaling(quincy.problem, stop=stop_flag(int(share * scaling.result.work)))
            with suppress(StoppedError):
                part.go()
            row["cost scaling"] = misplaced(quincy, part.ordered.flow(), scaling.result.ordered.flow())
        rows.append(row)
    late = max(max(row.get(name, 0) for name in ("relaxation", "cost scaling")) for row in rows if
               row["share of work"] >= LATE)  # fmt: skip
    return Outcome(
        rows,
        [
            at_least(
                f"misplaced tasks at {LATE:.0%} of the work, by one of both more than {MISPLACED_MIN:.0%} of the "
                f"{arriving:,} new ones (paper: thousands, shortly before the end)",
                late, MISPLACED_MIN * arriving, tells=scale is not Scale.TINY,
            )
        ],
        [
            f"{scale.of(MACHINES):,} machines, {FULLNESS:.0%} full with {arriving:,} new tasks. Counted work; no clock "
            "plays a part. Relaxation goes on from the flow before the job, cost scaling begins with nothing."
        ],
        Plot("share of work", ("relaxation", "cost scaling"), "share of the work done", "misplaced tasks"),
    )  # fmt: skip


def _after(problem: Problem, start: Solution, steps_max: int | None) -> tuple[int, Integers]:
    """Relaxation from a start, after so many steps: how many it took, and the flow."""
    graph = FlowGraph.of(problem)
    graph.adopt(start)
    steps = 0
    with suppress(StoppedError):
        steps = Relaxation(graph).solve(None if steps_max is None else stop_flag(steps_max)).steps
    return steps, graph.flow.copy()


def misplaced(quincy: QuincyGraph, flow: Integers, best: Integers) -> int:
    """How many tasks, as the figure counts them."""
    ways, best_ways = _ways(quincy, flow), _ways(quincy, best)
    problem = quincy.problem
    excess = problem.supply.copy()
    np.subtract.at(excess, problem.tail, flow)
    np.add.at(excess, problem.head, flow)
    excess[quincy.tasks[0] :] = 0
    excess[quincy.sink] = 0
    return int((ways != best_ways).sum() + np.maximum(excess, 0).sum())


def _ways(quincy: QuincyGraph, flow: Integers) -> Integers:
    """By task: the arc that its unit takes, -1 if none."""
    ways = np.full(len(quincy.tasks), -1, np.int64)
    arcs = np.flatnonzero(flow[: quincy.first_arc[-1]])
    ways[quincy.problem.tail[arcs] - quincy.tasks[0]] = arcs
    return ways
