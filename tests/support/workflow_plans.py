"""Random DAGs with invented costs, and engines, for tests of plans."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import pyarrow as pa
from hypothesis import strategies as st

from frontends.workflow.ir.dag import Dag, Distinct, Operator, Scan, Sort, SortKey, Union
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.jobs.graph import JobGraph, bits
from frontends.workflow.jobs.merging import unmergeable
from frontends.workflow.mapping.costs import EngineModel, JobCosts
from frontends.workflow.mapping.partition import Plan
from frontends.workflow.mapping.rates import MIB, Rates
from frontends.workflow.mapping.sizes import Size, TableSize, relation_sizes

COLUMNS = Schema.of(a=Type.INTEGER, b=Type.STRING)


def anything(job: Dag) -> str | None:
    """An engine that runs all there is."""
    return None


def rates(cold_s: float = 1.0, warm_s: float = 1.0, mib_per_s: float = 1.0, cpus: float = 1.0) -> Rates:
    """All rates alike."""
    rate = mib_per_s * MIB
    return Rates(
        start_cold_s=cold_s,
        start_warm_s=warm_s,
        pull_bytes_per_s=rate,
        push_bytes_per_s=rate,
        process_other_bytes_per_s=rate,
        cpus=cpus,
    )


def engine(name: str = "any", **about: float) -> EngineModel:
    """An engine that merges all there is."""
    return EngineModel(name, rates(**about), anything)


def one_shuffle(
    name: str = "mapreduce", *, part_keys: bool = True, small: Collection[str] = (), **about: float
) -> EngineModel:
    """An engine whose jobs have one shuffle; part_keys: by a part of an operator's key, too. small: relations that each
    mapper may read whole."""
    return EngineModel(name, rates(**about), anything, partial(unmergeable, part_keys=part_keys, small=small))


def costs_of(
    dag: Dag, engines: Sequence[EngineModel], tables: Mapping[str, TableSize] | None = None, **settings: float
) -> JobCosts:
    """The costs of a DAG's jobs."""
    graph = JobGraph(dag)
    return JobCosts(graph, engines, relation_sizes(graph.dag, tables or {}), **settings)


@st.composite
def shapes(draw: st.DrawFn, units_max: int = 6) -> Dag:
    """DAGs of random shape: operators of one table, of one or two sources each."""
    operators: list[Operator] = [Scan(name="table", table="t", columns=COLUMNS)]
    for number in range(draw(st.integers(1, units_max))):
        sources = draw(st.lists(st.sampled_from(operators), min_size=1, max_size=2))
        if len(sources) == 2:
            left, right = (source.relation for source in sources)
            made: Operator = Union(name=f"o{number}", left=left, right=right, all_rows=True)
        elif draw(st.booleans()):
            made = Distinct(name=f"o{number}", source=sources[0].relation)
        else:
            made = Sort(name=f"o{number}", source=sources[0].relation, keys=(SortKey("a"),))
        operators.append(made)
    return Dag.of_unread(operators)


class InventedCosts(JobCosts):
    """Costs that follow from nothing but a seed: any set of units may be a job on some engines, at any cost."""

    def __init__(self, dag: Dag, seed: int, engines: int = 3) -> None:
        chance = random.Random(seed)
        starts = [sorted((chance.randint(0, 8), chance.randint(0, 8))) for _ in range(engines)]
        made = [engine(f"e{number}", warm_s=one[0], cold_s=one[1]) for number, one in enumerate(starts)]
        graph = JobGraph(dag)
        sizes: dict[str, Size] = relation_sizes(graph.dag, {})
        super().__init__(graph, made, sizes)
        self._seed = seed

    def _costs(self, job: int) -> list[tuple[int, float]]:
        chance = random.Random(f"{self._seed} {job}")
        single = not job & job - 1
        return [
            (place, float(chance.randint(0, 9) + chance.randint(0, 6) * len(list(bits(job)))))
            for place in range(len(self.engines))
            if chance.random() < 0.6 or (single and place == 0)
        ]


def cheapest_by_brute_force(costs: JobCosts) -> float:
    """The cost of the cheapest plan: by all orders of all jobs on all engines."""
    graph = costs.graph
    known: dict[tuple[int, int], float] = {}

    def rest(done: int, started: int) -> float:
        if done == graph.all:
            return 0.0
        if (done, started) not in known:
            known[done, started] = min(
                run + (costs.warm_starts if started >> place & 1 else costs.cold_starts)[place]
                + rest(done | job, started | 1 << place)
                for job in range(1, graph.all + 1)
                if not job & done and graph.is_downset(done | job)
                for place, run in costs.all_options(job)
            )  # fmt: skip
        return known[done, started]

    return rest(0, 0)


def assert_runs(plan: Plan) -> None:
    """Each operator is in one job, and each job finds what it reads: of tables, or of jobs before it."""
    graph = JobGraph(plan.dag)
    done = 0
    for job in plan.jobs:
        units = graph.of_names(job.operators)
        assert units
        assert not units & done
        assert_convex(graph, units)
        done |= units
        assert graph.is_downset(done)
        plan.job_dag(job)
    assert done == graph.all


def assert_convex(graph: JobGraph, units: int) -> None:
    """Nothing outside is made from one of the units and needed by another."""
    names = graph.names(units)
    within = graph.dag.ancestors(names)
    assert not any(graph.dag.ancestors((name,)) & names for name in within - names)


def evaluated_job_by_job(
    plan: Plan, tables: Mapping[str, pa.Table], evaluate_job: Callable[..., dict[str, pa.Table]] = evaluate
) -> dict[str, pa.Table]:
    """The workflow's results, each job by itself with what the earlier ones have handed on."""
    made: dict[str, pa.Table] = {}
    for job in plan.jobs:
        dag = plan.job_dag(job)
        made |= evaluate_job(dag, tables, {name: made[name] for name in dag.input_names})
    return {name: made[name] for name in plan.dag.results}
