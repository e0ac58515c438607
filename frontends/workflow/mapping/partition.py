"""How a workflow is divided into jobs, and which engine runs each: the cheapest plan (§3.5.2).

Exact: a shortest path over all downsets of the DAG, each step of which is a job (`job_graph.py`). Chains have few
downsets, so this takes milliseconds where the thesis's search over all subsets (`partition_exhaustive.py`) takes
minutes; wide DAGs have many. Beyond `DOWNSETS_MAX` of them, or `PAIRS_MAX` of two of which one is within the other, the
thesis's dynamic programming (§3.5.2.2): the best division of a linear order into runs of neighbours. It is the shortest
path over the beginnings of that order; here over those of several orders at once, so that a plan may change from one
to another where they meet.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from frontends.workflow.errors import InvalidWorkflow, NoEngine
from frontends.workflow.ir.dag import Dag
from frontends.workflow.jobs.graph import ORDERS_MAX, JobGraph
from frontends.workflow.jobs.map_joins import NONE_SMALL
from frontends.workflow.mapping.costs import EngineModel, JobCost, JobCosts, Runs
from frontends.workflow.mapping.downset_search import Label, shortest
from frontends.workflow.mapping.sizes import Size, TableSize, relation_sizes

DOWNSETS_MAX = 2_000
"""Downsets of a DAG that is partitioned exactly."""
PAIRS_MAX = 50_000
"""Pairs of downsets, one within the other, whose difference is looked at as a job: about a second."""


class Search(enum.Enum):
    """How a plan is looked for."""

    AUTOMATIC = "automatic"
    EXACT = "exact"
    LINEAR = "linear orders"


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a plan. operators: what it makes; alternatives: its cost on other engines that can, cheapest first."""

    operators: frozenset[str]
    cost: JobCost
    alternatives: tuple[JobCost, ...]

    @property
    def engine(self) -> str:
        return self.cost.engine


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs in an order in which each finds what it reads. cost: in seconds, or CPU seconds as far as these count.

    dag: what is needed of the workflow. search: how the plan was found; an exact one is a cheapest. small: relations
    that are surely small, on which it counts that jobs can be made of these operators (`Engine.generate`).
    """

    dag: Dag
    jobs: tuple[Job, ...]
    cost: float
    search: Search
    small: frozenset[str] = NONE_SMALL

    def job_dag(self, job: Job) -> Dag:
        """The job as a DAG by itself."""
        return self.dag.subset(job.operators)


def partitioned(costs: JobCosts, search: Search = Search.AUTOMATIC, orders: int = ORDERS_MAX) -> Plan:
    """The cheapest plan that the search finds. `NoEngine` if there is none.

    orders: how many linear orders are tried, if any are; the first is the thesis's.
    """
    graph = costs.graph
    downsets = None if search is Search.LINEAR else graph.downsets(DOWNSETS_MAX)
    found = Search.EXACT
    if search is Search.EXACT and downsets is None:
        raise InvalidWorkflow(f"an exact search looks at most at {DOWNSETS_MAX:,} sets of operators; here are more")
    if downsets is None or (search is Search.AUTOMATIC and _pairs(downsets) > PAIRS_MAX):
        found, label = Search.LINEAR, _along_orders(costs, graph, orders)
    else:
        label = shortest(costs, downsets)
    if label is None:
        raise _no_engine(costs)
    return _plan(costs, label, found)


def _pairs(downsets: Sequence[int]) -> int:
    """How many pairs there are, one within the other; more than are allowed if there are."""
    count = 0
    for place, downset in enumerate(downsets):
        count += sum(1 for other in downsets[:place] if not other & ~downset)
        if count > PAIRS_MAX:
            break
    return count


def _along_orders(costs: JobCosts, graph: JobGraph, orders: int) -> Label | None:
    """Over the beginnings of as many linear orders as `PAIRS_MAX` has room for.

    If it has none even for one, a job has all operators, or no more than so many that there is room.
    """
    room = int((2 * PAIRS_MAX) ** 0.5 / max(1, len(graph)))
    downsets = {0: None}
    for order in graph.orders(max(1, min(orders, room))):
        done = 0
        for unit in order:
            done |= 1 << unit
            downsets[done] = None
    ordered = sorted(downsets, key=int.bit_count)
    return shortest(costs, ordered, None if room else PAIRS_MAX // len(ordered))


def _plan(costs: JobCosts, label: Label, search: Search) -> Plan:
    jobs: list[Job] = []
    started: set[int] = set()
    for units, engine in label.jobs():
        others = sorted((cost, place) for place, cost in costs.all_options(units) if place != engine)
        jobs.append(
            Job(
                costs.graph.names(units),
                costs.explained(units, engine, engine not in started),
                tuple(costs.explained(units, place, place not in started) for _, place in others),
            )
        )
        started.add(engine)
    return Plan(costs.graph.dag, tuple(jobs), label.cost, search)


def _no_engine(costs: JobCosts) -> NoEngine:
    """Names an operator that no engine can run by itself; each that can be would be a job of its own."""
    dag = costs.graph.dag
    for unit, names in enumerate(costs.graph.units):
        if not any(costs.can(engine, 1 << unit) for engine in range(len(costs.engines))):
            job = dag.subset(names)
            reasons = {one.name: one.inexpressible(job) or "it can" for one in costs.engines}
            return NoEngine(dag.operator(names[0]).keyword, names[0], reasons)
    raise AssertionError("each operator can be a job, and no plan was found")


# ---- several DAGs, several engines, and what is left -----------------------------------------


def cheapest(dags: Iterable[Dag], plan: Callable[[Dag], Plan]) -> Plan:
    """The plan of that of the DAGs which costs least; of equals the first one's (§3.6). At least one DAG."""
    return min(map(plan, dags), key=lambda found: found.cost)


def single_engine_plans(
    graph: JobGraph, engines: Iterable[EngineModel], sizes: Mapping[str, Size], cpu_bias: float = 0.0
) -> dict[str, Plan]:
    """For each engine that can run the whole workflow the cheapest plan on it alone, the cheapest first."""
    plans: dict[str, Plan] = {}
    for engine in engines:
        try:
            plans[engine.name] = partitioned(JobCosts(graph, (engine,), sizes, cpu_bias=cpu_bias))
        except NoEngine:
            continue
    return dict(sorted(plans.items(), key=lambda pair: pair[1].cost))


def remaining(dag: Dag, done: Iterable[str]) -> Dag | None:
    """What is left of a workflow when these operators are done, whose relations are its inputs; None if nothing is."""
    finished = set(done)
    graph = JobGraph(dag)
    left = [name for unit in graph.units for name in unit if name not in finished]
    return graph.dag.subset(left) if left else None


def replanned(
    dag: Dag,
    done: Iterable[str],
    engines: Sequence[EngineModel],
    tables: Mapping[str, TableSize],
    known: Mapping[str, TableSize],
    *,
    cpu_bias: float = 0.0,
    runs: Runs | None = None,
) -> Plan | None:
    """The cheapest plan for what is left of a workflow after some jobs (§3.5, listing 3.7); None if nothing is left.

    known: the true sizes of the relations that those jobs made, and of others that earlier runs have shown. engines:
    with those warm that the jobs have started.
    """
    rest = remaining(dag, done)
    if rest is None:
        return None
    graph = JobGraph(rest)
    sizes = relation_sizes(graph.dag, tables, known)
    left = {names: found for names, found in (runs or {}).items() if names <= frozenset(graph.dag.names)}
    return partitioned(JobCosts(graph, engines, sizes, cpu_bias=cpu_bias, runs=left))
