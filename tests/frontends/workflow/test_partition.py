"""Plans: which operators are one job, and on which engine."""

import pickle
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.workflow.engines import engines
from frontends.workflow.engines.base import ALL_RULES
from frontends.workflow.errors import InvalidWorkflow, NoEngine, TooLarge
from frontends.workflow.ir.dag import Dag, Distinct, Scan, While
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.jobs.graph import JobGraph
from frontends.workflow.jobs.merging import unmergeable
from frontends.workflow.mapping.costs import EngineModel
from frontends.workflow.mapping.exhaustive_search import exhaustive
from frontends.workflow.mapping.partition import (
    DOWNSETS_MAX,
    Search,
    cheapest,
    partitioned,
    remaining,
    replanned,
    single_engine_plans,
)
from frontends.workflow.mapping.sizes import TableSize, relation_sizes
from tests.support.workflow_dags import Case, assert_same_results, cases
from tests.support.workflow_plans import (
    COLUMNS,
    InventedCosts,
    assert_runs,
    cheapest_by_brute_force,
    costs_of,
    engine,
    evaluated_job_by_job,
    one_shuffle,
    rates,
    shapes,
)
from tests.support.workflow_samples import netflix, page_rank

SEEDS = st.integers(0, 10**6)
MIB = 2**20


@settings(max_examples=80)
@given(dag=shapes(), seed=SEEDS)
def test_the_exact_plan_is_a_cheapest(dag: Dag, seed: int) -> None:
    costs = InventedCosts(dag, seed)
    plan = partitioned(costs, Search.EXACT)
    assert_runs(plan)
    assert plan.cost == cheapest_by_brute_force(costs)


@settings(max_examples=50)
@given(dag=shapes(5), seed=SEEDS)
def test_the_search_over_all_subsets_finds_the_same_cost(dag: Dag, seed: int) -> None:
    found = exhaustive(InventedCosts(dag, seed))
    assert found is not None
    assert found.cost == partitioned(InventedCosts(dag, seed), Search.EXACT).cost


@settings(max_examples=60)
@given(dag=shapes(8), seed=SEEDS)
def test_linear_orders_never_beat_the_exact_plan_and_more_of_them_are_no_worse(dag: Dag, seed: int) -> None:
    costs = InventedCosts(dag, seed)
    plans = [partitioned(costs, Search.EXACT), *(partitioned(costs, Search.LINEAR, orders) for orders in (8, 2, 1))]
    for plan in plans:
        assert_runs(plan)
    assert [plan.cost for plan in plans] == sorted(plan.cost for plan in plans)


@settings(max_examples=60)
@given(dag=shapes(9))
def test_linear_orders_have_sources_first_and_differ(dag: Dag) -> None:
    graph = JobGraph(dag)
    orders = graph.orders()
    assert len(set(orders)) == len(orders) >= 1
    for order in orders:
        assert sorted(order) == list(range(len(graph)))
        assert all(graph.is_downset(sum(1 << unit for unit in order[:place])) for place in range(len(order)))


@settings(max_examples=50)
@given(case=cases(steps_max=6), seed=SEEDS)
def test_the_jobs_of_any_plan_make_what_the_workflow_makes(case: Case, seed: int) -> None:
    plan = partitioned(InventedCosts(case.dag, seed))
    assert_runs(plan)
    results = evaluated_job_by_job(plan, case.tables)
    assert_same_results(case.dag, results, evaluate(case.dag, case.tables))


def test_downsets_of_netflix() -> None:
    """Few enough for an exact search, as the DAG is a chain for the most part."""
    for operators, downsets in ((13, 19), (18, 60)):
        graph = JobGraph(netflix(operators))
        assert len(graph) == operators
        found = graph.downsets(DOWNSETS_MAX)
        assert found is not None
        assert len(found) == downsets
        assert all(map(graph.is_downset, found))


def wide(branches: int) -> Dag:
    scan = Scan(name="table", table="t", columns=COLUMNS)
    return Dag.of_unread((scan, *(Distinct(name=f"d{number}", source=scan.relation) for number in range(branches))))


def test_a_wide_dag_is_partitioned_along_linear_orders() -> None:
    plan = partitioned(costs_of(wide(20), (engine(),)))
    assert plan.search is Search.LINEAR
    assert len(plan.jobs) == 1
    assert_runs(plan)
    with pytest.raises(InvalidWorkflow, match="at most at 2,000 sets"):
        partitioned(costs_of(wide(12), (engine(),)), Search.EXACT)


def test_a_dag_of_many_pairs_of_downsets_is_partitioned_along_linear_orders() -> None:
    """Ten branches have 1,024 downsets, and 59,049 pairs of them."""
    assert partitioned(costs_of(wide(5), (engine(),))).search is Search.EXACT
    assert partitioned(costs_of(wide(10), (engine(),))).search is Search.LINEAR


@pytest.mark.rest
def test_long_chains_have_a_plan() -> None:
    lines = [f"o{number} = DISTINCT o{number - 1}" for number in range(1, 500)]
    chain = read("\n".join(["o0 = SCAN 't' (a INTEGER)", *lines, "RESULTS o499"]))
    plan = partitioned(costs_of(chain, (engine(), one_shuffle(mib_per_s=0.1))))
    assert [len(job.operators) for job in plan.jobs] == [499]


def test_what_is_too_large_to_be_searched_exhaustively_is_refused() -> None:
    with pytest.raises(TooLarge, match="at most 20"):
        exhaustive(costs_of(wide(21), (engine(),)))


def test_a_loop_and_its_results_are_one_unit() -> None:
    graph = JobGraph(page_rank())
    assert ("loop", "ranks") in graph.units
    assert {name for names in graph.units for name in names} == {"node_cnt", "edges_cnt", "loop", "ranks"}


def test_what_makes_nothing_for_a_result_is_not_run() -> None:
    dag = read("t = SCAN 't' (a INTEGER)\nunread = DISTINCT t\nr = SORT t BY (a)\nRESULTS r, t")
    assert JobGraph(dag).units == (("t",), ("r",))


# ---- engines ---------------------------------------------------------------------------------


def test_a_workflow_is_one_job_if_an_engine_can() -> None:
    plan = partitioned(costs_of(netflix(), (engine(), one_shuffle())))
    (job,) = plan.jobs
    assert job.engine == "any"
    assert job.alternatives == ()


def test_alternatives_come_with_their_costs_the_cheapest_first() -> None:
    engines = (engine("slow", mib_per_s=0.1), engine("fast"), engine("slowest", mib_per_s=0.01))
    (job,) = partitioned(costs_of(netflix(), engines)).jobs
    assert job.engine == "fast"
    assert [one.engine for one in job.alternatives] == ["slow", "slowest"]
    assert job.cost.seconds < job.alternatives[0].seconds < job.alternatives[1].seconds


def test_an_engine_starts_cold_once() -> None:
    """Two jobs are cheaper where the second finds the engine warm, though each would be cheaper elsewhere alone."""
    dag = netflix()
    plan = partitioned(
        costs_of(dag, (one_shuffle(cold_s=50.0, warm_s=0.5), one_shuffle("other", cold_s=20, warm_s=20)))
    )
    assert len(plan.jobs) > 2
    assert {job.engine for job in plan.jobs} == {"mapreduce"}
    assert [job.cost.start_s for job in plan.jobs] == [50.0, *[0.5] * (len(plan.jobs) - 1)]
    assert plan.cost == pytest.approx(sum(job.cost.seconds for job in plan.jobs))


def test_a_mix_wins_where_each_engine_is_fast_at_something() -> None:
    loops = EngineModel("graphs", rates(mib_per_s=100), lambda job: None if job.of_type(While) else "no WHILE")
    batch = EngineModel(
        "batch", rates(), lambda job: f"WHILE {job.of_type(While)[0].name}" if job.of_type(While) else None
    )
    plan = partitioned(costs_of(page_rank(), (loops, batch)))
    assert [job.engine for job in plan.jobs] == ["batch", "graphs"]
    with pytest.raises(NoEngine, match=r"no engine can run WHILE loop \(batch: WHILE loop\)") as error:
        partitioned(costs_of(page_rank(), (batch,)))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    with pytest.raises(NoEngine, match="there are no engines"):
        partitioned(costs_of(page_rank(), ()))


def test_an_engine_may_be_asked_about_whole_jobs() -> None:
    dag = netflix(8)
    asked = EngineModel.asking("mapreduce", rates(), unmergeable)
    assert partitioned(costs_of(dag, (asked,))) == partitioned(costs_of(dag, (one_shuffle(),)))


@settings(max_examples=30)
@given(cases(steps_max=3), SEEDS, st.data())
def test_engines_say_of_merged_operators_what_they_say_of_the_job(case: Case, seed: int, data: st.DataObject) -> None:
    """Plans ask engines about operators of a DAG, as making a DAG of each job takes long."""
    graph = JobGraph(case.dag)
    job = seed % graph.all + 1
    names = graph.in_order(job)
    jobs = [graph.dag.subset(unit) for place, unit in enumerate(graph.units) if job >> place & 1]
    small = data.draw(st.sets(st.sampled_from(graph.dag.names)))
    for one in engines().values():
        if all(one.inexpressible(unit) is None for unit in jobs):
            refused = one.refused(graph.dag.subset(names), ALL_RULES, small)
            assert (one.unmergeable(graph.dag, names, small=small) is None) is (refused is None), one.name
            assert refused is None or not one.merges_all


class Asked(JobGraph):
    """Counts how often it is asked what is ready."""

    times = 0

    def ready(self, done: int) -> Iterator[int]:
        self.times += 1
        return super().ready(done)


def test_of_a_wide_dag_few_downsets_are_made_before_they_are_too_many() -> None:
    """500 branches have 124,750 pairs of them."""
    table = Scan(name="t", table="t", columns=COLUMNS)
    branches = [Distinct(name=f"b{number}", source=table.relation) for number in range(500)]
    graph = Asked(Dag.of_unread((table, *branches)))
    assert graph.downsets(2_000) is None
    assert graph.times < 10


def test_plans_on_each_engine_alone() -> None:
    graph = JobGraph(netflix())
    never = EngineModel("never", rates(), lambda job: "it runs nothing")
    engines = (one_shuffle(), never, engine("any"))
    plans = single_engine_plans(graph, engines, relation_sizes(graph.dag, {}))
    assert list(plans) == ["any", "mapreduce"]


def test_of_several_dags_the_cheapest_plan_wins() -> None:
    dags = (netflix(13), netflix(2), netflix(18))
    assert cheapest(dags, lambda dag: partitioned(costs_of(dag, (engine(),)))).dag == netflix(2)


# ---- what is left ----------------------------------------------------------------------------


def test_what_is_left_reads_what_is_done() -> None:
    rest = remaining(netflix(), ["chosen", "ids", "rated", "kept"])
    assert rest is not None
    assert rest.input_names == ("rated", "kept")
    assert rest.results == ("recommended",)
    assert remaining(netflix(), netflix().names) is None


def test_true_sizes_change_the_plan_of_what_is_left() -> None:
    """The first job's result is small, so that the rest is run where starting is cheap."""
    dag = netflix()
    engines = (engine("large", cold_s=30, warm_s=30, mib_per_s=100), engine("small", cold_s=1, warm_s=1))
    tables = {"ratings": TableSize(10**6, 300 * MIB), "movies": TableSize(100, 10**4)}
    assert {job.engine for job in partitioned(costs_of(dag, engines, tables)).jobs} == {"large"}
    done = ("chosen", "ids", "rated", "kept", "others", "pairs")
    plan = replanned(dag, done, engines, tables, {"pairs": TableSize(10, 300), "rated": TableSize(10, 300)})
    assert plan is not None
    assert {job.engine for job in plan.jobs} == {"small"}
    assert replanned(dag, dag.names, engines, tables, {}) is None
