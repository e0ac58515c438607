"""Figure 4.12: what it takes to divide a workflow into jobs, by its number of operators.

The workflows are the first operators of the extended Netflix workflow, then ones that are wide: branches of one table,
which have most downsets. For each, the CPU time of a process from the DAG to the plan, sizes and costs included, with
nothing kept from before: of the thesis's search over all subsets, of the exact search, of the thesis's heuristic
(dynamic programming along one depth-first order) and of that over several orders; on ten engines with default rates,
and on MapReduce alone. Beside it, how much more than the best plan costs what the heuristics find. The search over all
subsets takes about three times as long for each operator more, so it is left out where it would exceed `seconds`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.flow.outcome import Row, Target, at_most
from benchmarks.report import median_rows, progress
from frontends.workflow.ir.dag import Dag, Distinct, Scan
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.jobs.graph import JobGraph
from frontends.workflow.jobs.merging import unmergeable
from frontends.workflow.mapping.costs import EngineModel, JobCosts
from frontends.workflow.mapping.exhaustive_search import UNITS_MAX, exhaustive
from frontends.workflow.mapping.partition import DOWNSETS_MAX, Search, partitioned
from frontends.workflow.mapping.rates import DEFAULT_RATES, default_rates
from frontends.workflow.mapping.sizes import TableSize, relation_sizes
from tests.support.workflow_samples import netflix

TABLES = {"movies": TableSize(17_000, 500_000), "ratings": TableSize(2_000_000, 50_000_000)}
NETFLIX, NETFLIX_OPERATORS = "Netflix", 18
BRANCHES = (2, 4, 6, 8, 9, 10, 12, 20, 50, 100)
EXACT_AIM_S, HEURISTIC_AIM_S = 0.1, 0.01
GROWTH = 3.0
"""How much longer the search over all subsets takes for one operator more."""
NOT_RUN = "-"


def engines(names: Sequence[str]) -> tuple[EngineModel, ...]:
    """Engines with their default rates, of which MapReduce has one shuffle a job."""
    return tuple(
        EngineModel(name, default_rates(name), lambda job: None, unmergeable if name == "mapreduce" else None)
        for name in names
    )


SETS = {"all engines": engines(tuple(DEFAULT_RATES)), "MapReduce": engines(("mapreduce",))}


def wide(branches: int) -> Dag:
    """So many operators that read one table."""
    scan = Scan(name="ratings", table="ratings", columns=Schema.of(viewer=Type.INTEGER, movie=Type.INTEGER))
    return Dag.of_unread((scan, *(Distinct(name=f"d{number}", source=scan.relation) for number in range(branches))))


def costs_of(dag: Dag, of: Sequence[EngineModel]) -> JobCosts:
    graph = JobGraph(dag)
    return JobCosts(graph, of, relation_sizes(graph.dag, TABLES))


def timed(search: Callable[[], float]) -> tuple[float, float]:
    """CPU seconds, and the cost of the plan."""
    began_s = time.process_time()
    cost = search()
    return time.process_time() - began_s, cost


def _exhaustive(dag: Dag, of: Sequence[EngineModel]) -> float:
    label = exhaustive(costs_of(dag, of))
    if label is None:
        raise AssertionError("each operator has an engine")
    return label.cost


class Subsets:
    """The search over all subsets, as long as it is expected to end in time."""

    def __init__(self, seconds: float) -> None:
        self._most_s, self._expected_s = seconds, 0.0

    def milliseconds(self, dag: Dag, of: Sequence[EngineModel], units: int, best: float) -> float | str:
        if units > UNITS_MAX or self._expected_s > self._most_s:
            return NOT_RUN
        took_s, cost = timed(lambda: _exhaustive(dag, of))
        self._expected_s = GROWTH * took_s
        if abs(cost - best) > 1e-9 * best:
            raise AssertionError(f"the search over all subsets found {cost}, the exact one {best}")
        return 1e3 * took_s


def row(title: str, dag: Dag, of: Sequence[EngineModel], subsets: Subsets) -> Row:
    """The times for one workflow, in ms."""
    graph = JobGraph(dag)
    downsets = graph.downsets(DOWNSETS_MAX)
    automatic_s, best = timed(lambda: partitioned(costs_of(dag, of)).cost)
    exact = partitioned(costs_of(dag, of)).search is Search.EXACT
    one_s, one = timed(lambda: partitioned(costs_of(dag, of), Search.LINEAR, 1).cost)
    several_s, several = timed(lambda: partitioned(costs_of(dag, of), Search.LINEAR).cost)
    return {
        "operators": title,
        "downsets": NOT_RUN if downsets is None else len(downsets),
        "all subsets, ms": subsets.milliseconds(dag, of, len(graph), best) if exact else NOT_RUN,
        "exact, ms": 1e3 * automatic_s if exact else NOT_RUN,
        "one order, ms": 1e3 * one_s,
        "several orders, ms": 1e3 * several_s,
        "one order, % above best": 100 * (one / best - 1),
        "several orders, % above best": 100 * (several / best - 1),
    }


def measured(of: Sequence[EngineModel], seconds: float) -> dict[str, list[Row]]:
    """The rows for one set of engines."""
    subsets = Subsets(seconds)
    chain = [row(str(count), netflix(count), of, subsets) for count in range(1, NETFLIX_OPERATORS + 1)]
    progress("Netflix is done")
    subsets = Subsets(seconds)
    return {NETFLIX: chain, "wide": [row(str(count), wide(count), of, subsets) for count in BRANCHES]}


def rows(repeat: int = 3, seconds: float = 10.0) -> list[Row]:
    """Medians of `repeat` rounds; the search over all subsets runs in the first alone, where it takes no longer."""
    partitioned(costs_of(netflix(), SETS["all engines"]))
    rounds: dict[tuple[str, str], list[list[Row]]] = {}
    for number in range(repeat):
        for name, of in SETS.items():
            for kind, found in measured(of, seconds if number == 0 else 0.0).items():
                rounds.setdefault((kind, name), []).append(found)
    made = []
    for (kind, name), several in rounds.items():
        for found in several[1:]:
            for one, first in zip(found, several[0], strict=True):
                one["all subsets, ms"] = first["all subsets, ms"]
        made += [{"workflow": kind, "engines": name, **one} for one in median_rows(several)]
    return made


def targets(rows: Sequence[Row]) -> list[Target]:
    """At 18 operators of Netflix."""
    last = [row for row in rows if row["workflow"] == NETFLIX and row["operators"] == str(NETFLIX_OPERATORS)]
    made = []
    for row in last:
        what = f"{NETFLIX_OPERATORS} operators of Netflix, {row['engines']}"
        made += [
            at_most(f"{what}: exact, 100 ms", row["exact, ms"], 1e3 * EXACT_AIM_S, " ms"),
            at_most(
                f"{what}: along one order, as in the thesis, 10 ms", row["one order, ms"], 1e3 * HEURISTIC_AIM_S, " ms"
            ),
        ]
    return made
