"""Musketeer, §3.5.1: the cost function, the bounds of outputs, history, and the bias towards efficient engines."""

import math
from dataclasses import replace

import pytest

from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.jobs.graph import JobGraph
from frontends.workflow.mapping.costs import ITERATIONS_LIKELY, EngineModel, JobCost, JobCosts, JobRun
from frontends.workflow.mapping.partition import partitioned
from frontends.workflow.mapping.rates import MIB, Rates
from frontends.workflow.mapping.sizes import Bounds, TableSize, relation_sizes
from sparrow_py.errors import InvalidRequest
from tests.support.workflow_plans import anything, costs_of, engine, rates
from tests.support.workflow_samples import page_rank

TABLES = {"a": TableSize(1000, 8 * 1000 * 2), "b": TableSize(500, 8 * 500 * 2)}
SCANS = "a = SCAN 'a' (k INTEGER, x DOUBLE)\nb = SCAN 'b' (k INTEGER, x DOUBLE)\n"


def dag(*lines: str, results: str = "r") -> Dag:
    return read("\n".join([SCANS, *lines, f"RESULTS {results}"]))


def cost(of: Dag, rates: Rates, *, share_scans: bool = True) -> JobCost:
    """Of the whole DAG as one job on a cold engine."""
    graph = JobGraph(of)
    sizes = relation_sizes(graph.dag, TABLES)
    costs = JobCosts(graph, (EngineModel("e", rates, anything),), sizes, share_scans=share_scans)
    return costs.explained(graph.all, 0, True)


UNEQUAL = Rates(
    start_cold_s=5.0,
    start_warm_s=0.5,
    pull_bytes_per_s=1000.0,
    load_bytes_per_s=2000.0,
    push_bytes_per_s=500.0,
    process_bytes_per_s={"JOIN": 100.0},
    process_other_bytes_per_s=10_000.0,
    cpus=1.5,
)


def test_the_cost_of_a_job_has_five_parts() -> None:
    """Of a filter and a join: 16,000 and 8,000 bytes are read, the join makes 1,000 rows of 8."""
    found = cost(dag("f = SELECT a WHERE {x > 1}", "r = JOIN INNER f, b ON (k = k) TO (k = LEFT k)"), UNEQUAL)
    assert (found.start_s, found.pull_s, found.load_s, found.push_s) == (5.0, 24.0, 12.0, 16.0)
    assert found.process_s == pytest.approx(16_000 / 10_000 + 24_000 / 100)
    assert found.seconds == pytest.approx(5 + 24 + 12 + 1.6 + 240 + 16)
    assert found.cpu_s == pytest.approx(1.5 * found.seconds)


def test_a_relation_that_several_operators_of_a_job_read_is_pulled_once() -> None:
    """§3.4.3; the two scans are of the same table."""
    twice = dag("again = SCAN 'a' (k INTEGER, x DOUBLE)", "f = SELECT a WHERE {x > 1}", "g = SELECT a WHERE {x < 1}",
                "h = DISTINCT again", results="f, g, h")  # fmt: skip
    assert cost(twice, UNEQUAL).pull_s == 16.0
    assert cost(twice, UNEQUAL, share_scans=False).pull_s == 48.0
    one = dag("f = SELECT a WHERE {x > 1}", results="f")
    assert cost(one, UNEQUAL, share_scans=False) == cost(one, UNEQUAL)


def test_what_stays_within_a_job_is_neither_written_nor_read() -> None:
    chain = dag("f = SELECT a WHERE {x > 1}", "r = DISTINCT f")
    graph = JobGraph(chain)
    costs = JobCosts(graph, (engine(),), relation_sizes(graph.dag, TABLES))
    first, second, whole = (costs.explained(units, 0, False) for units in (0b01, 0b10, 0b11))
    assert first.pull_s + second.pull_s == 2 * whole.pull_s
    assert first.push_s + second.push_s == 2 * whole.push_s
    assert first.process_s + second.process_s == whole.process_s


def test_constants_are_not_read() -> None:
    values = dag("v = VALUES (n INTEGER) ROWS (({1}), ({2}))", "r = DISTINCT v")
    assert cost(values, UNEQUAL).pull_s == 0.0


def test_a_loop_costs_what_its_iterations_do() -> None:
    many, few = (cost(page_rank(times), UNEQUAL).process_s for times in (20, 3))
    before = cost(page_rank(1), UNEQUAL).process_s
    assert (many - before) / (few - before) == pytest.approx(19 / 2)  # A counter says how many there are.
    text = "r0 = PROJECT a TO (k = {k})\nl = WHILE (r0) CARRY (i = n) AT MOST %d DO\n  i = INPUT (k INTEGER)\n" \
        "  n = ARITHMETIC i SET k = {k + 1}\n  RESULTS n\nEND\nr = LOOP RESULT l OF i (k INTEGER)"  # fmt: skip
    three, six = (cost(dag(text % times), UNEQUAL).process_s for times in (3, 6))
    once = 8000 / 10_000
    assert six - three == pytest.approx(3 * once)
    tested = text.replace(" AT MOST", " TEST i {k < 5} AT MOST")
    assert cost(dag(tested % 1000), UNEQUAL).process_s - three == pytest.approx((ITERATIONS_LIKELY - 3) * once)


def test_the_bias_prefers_engines_that_use_less_cpu_time() -> None:
    """§3.5.1, component 4: the parallel engine is faster, the other takes fewer CPU seconds."""
    engines = (engine("parallel", mib_per_s=2.0, cpus=8.0), engine("frugal", mib_per_s=1.0))
    job = dag("r = SELECT a WHERE {x > 1}")
    assert partitioned(costs_of(job, engines, TABLES)).jobs[0].engine == "parallel"
    assert partitioned(costs_of(job, engines, TABLES, cpu_bias=1.0)).jobs[0].engine == "frugal"
    with pytest.raises(InvalidRequest, match="cpu_bias"):
        costs_of(job, engines, TABLES, cpu_bias=1.5)


def test_an_earlier_run_of_the_job_counts_more_than_the_rates() -> None:
    job = dag("f = SELECT a WHERE {x > 1}", "r = DISTINCT f")
    graph = JobGraph(job)
    sizes = relation_sizes(graph.dag, TABLES)
    fast, slow = (engine(name, mib_per_s=rate) for name, rate in (("fast", 2.0), ("slow", 1.0)))
    engines = (replace(fast, warm=True), replace(slow, warm=True))  # A start takes a second, cold or warm.
    runs = {frozenset({"f", "r"}): {"slow": JobRun(1.001, 1.001, 8000.0)}}
    plan = partitioned(JobCosts(graph, engines, sizes, runs=runs))
    assert plan.jobs[0].engine == "slow"
    assert plan.jobs[0].cost.from_run
    assert plan.jobs[0].cost.seconds == plan.cost == pytest.approx(1.002)  # It read half as much beside starting.


def test_a_cold_start_adds_to_an_earlier_run_what_it_takes_longer() -> None:
    job = dag("r = SELECT a WHERE {x > 1}")
    graph = JobGraph(job)
    runs = {frozenset({"r"}): {"it": JobRun(0.25, 0.25, 16000.0)}}
    engines = (engine("it", cold_s=3.0, warm_s=0.5),)
    plan = partitioned(JobCosts(graph, engines, relation_sizes(graph.dag, TABLES), runs=runs))
    assert plan.jobs[0].cost.seconds == plan.cost == 2.75


def test_other_jobs_are_as_much_slower_as_those_that_have_run() -> None:
    job = dag("f = SELECT a WHERE {x > 1}", "r = DISTINCT f")
    graph = JobGraph(job)
    sizes = relation_sizes(graph.dag, TABLES)
    engines = tuple(replace(engine(name, cold_s=0.5, warm_s=0.5), warm=True) for name in ("ran", "never ran"))
    guessed = JobCosts(graph, engines, sizes)
    first = guessed.explained(0b01, 0, False).seconds
    runs = {frozenset({"f"}): {"ran": JobRun(3 * first, 1.0, 16000.0)}}
    costs = JobCosts(graph, engines, sizes, runs=runs)
    assert costs.explained(0b01, 0, False).seconds == pytest.approx(3 * first)
    for place, slower in ((0, 3), (1, 3**0.5)):  # Half of that, in logarithms, is the workflow's.
        cost_s = costs.explained(0b10, place, False).seconds
        assert cost_s == pytest.approx(slower * guessed.explained(0b10, place, False).seconds)
        assert dict(costs.all_options(0b10))[place] + costs.warm_starts[place] == pytest.approx(cost_s)


def test_impossible_rates_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="pull_bytes_per_s"):
        rates(mib_per_s=0.0)
    with pytest.raises(InvalidRequest, match="start_warm_s"):
        rates(cold_s=1.0, warm_s=2.0)


# ---- bounds ----------------------------------------------------------------------------------

A, B = 1000.0, 500.0


@pytest.mark.parametrize(
    ("line", "bounds"),
    [
        ("r = SELECT a WHERE {x > 1}", Bounds(0, A, A)),
        ("r = PROJECT a TO (k = {k})", Bounds.exactly(A)),
        ("r = ARITHMETIC a SET x = {x + 1}", Bounds.exactly(A)),
        ("r = SORT a BY (k)", Bounds.exactly(A)),
        ("r = JOIN INNER a, b ON (k = k) TO (k = LEFT k)", Bounds(0, A, A * B)),
        ("r = JOIN LEFT a, b ON (k = k) TO (k = LEFT k)", Bounds(A, A, A * B)),
        ("r = JOIN SEMI b, a ON (k = k) TO (k = LEFT k)", Bounds(0, B, B)),
        ("r = JOIN ANTI b, a ON (k = k) TO (k = LEFT k)", Bounds(0, B, B)),
        ("r = CROSS JOIN a, b TO (k = LEFT k)", Bounds.exactly(A * B)),
        ("r = UNION ALL a, b", Bounds.exactly(A + B)),
        ("r = UNION a, b", Bounds(1, A + B, A + B)),
        ("r = INTERSECT a, b", Bounds(0, B, B)),
        ("r = DIFFERENCE a, b", Bounds(0, A, A)),
        ("r = DISTINCT a", Bounds(1, A, A)),
        ("r = AGGREGATE a BY (k) TO (n = COUNT)", Bounds(1, A, A)),
        ("r = AGGREGATE a TO (n = COUNT)", Bounds.exactly(1)),
        ("r = TOP 10 a BY (k)", Bounds.exactly(10)),
        ("r = TOP 5000 a BY (k)", Bounds.exactly(A)),
        ("r = VALUES (n INTEGER) ROWS (({1}), ({2}))", Bounds.exactly(2)),
        ("r = UDF 'm:f' (a, b) TO (k INTEGER)", Bounds(0, A + B, math.inf)),
    ],
)
def test_bounds_of_outputs(line: str, bounds: Bounds) -> None:
    assert relation_sizes(dag(line), TABLES)["r"].rows == bounds


def test_history_tightens_bounds_from_there_on() -> None:
    text = dag("f = SELECT a WHERE {x > 1}", "r = DISTINCT f")
    sizes = relation_sizes(text, TABLES, {"f": TableSize(10, 400)})
    assert sizes["f"].rows == Bounds.exactly(10)
    assert sizes["f"].bytes == Bounds.exactly(400)
    assert sizes["r"].rows == Bounds(1, 10, 10)
    assert sizes["r"].bytes.most == pytest.approx(400)


def test_bytes_follow_columns() -> None:
    """Of a table with sizes of columns, one with its size alone, one that nobody knows, and an empty one."""
    tables = {"a": TableSize(10, column_bytes={"k": 10, "x": 990}), "b": TableSize(10, 320)}
    made = dag("p = PROJECT a TO (y = {x}, z = {x * 2})", "q = PROJECT b TO (k = {k})", results="p, q")
    sizes = relation_sizes(made, tables)
    assert sizes["p"].bytes.likely == pytest.approx(990 + 80)
    assert sizes["q"].bytes.likely == pytest.approx(160)
    unknown = relation_sizes(made, {})["p"]
    assert (unknown.rows.least, unknown.rows.most, unknown.bytes.most) == (0, math.inf, math.inf)
    assert relation_sizes(made, {"a": TableSize(0, 0)})["p"].bytes == Bounds.exactly(0)


def test_a_size_that_is_known_makes_an_engine_that_starts_quickly_the_best() -> None:
    engines = (engine("large", cold_s=10, warm_s=10, mib_per_s=100), engine("small"))
    job = dag("r = SELECT a WHERE {x > 1}")
    for size, best in ((TableSize(10**6, int(16 * MIB)), "large"), (TableSize(10**3, 16_000), "small")):
        assert partitioned(costs_of(job, engines, {"a": size})).jobs[0].engine == best
