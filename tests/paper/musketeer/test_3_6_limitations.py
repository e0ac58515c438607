"""Musketeer, §3.6: two examples on which the thesis's Musketeer misses a good plan, and this one does not."""

from collections.abc import Sequence

from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.jobs.graph import JobGraph
from frontends.workflow.jobs.merging import unmergeable
from frontends.workflow.mapping.costs import EngineModel
from frontends.workflow.mapping.partition import Search, cheapest, partitioned
from frontends.workflow.rewrites.rules import Rewrite, optimised, variants
from tests.support.workflow_plans import anything, costs_of, one_shuffle, rates

FIGURE_3_9 = read("""
a = SCAN 'a' (k INTEGER, x DOUBLE)
b = SCAN 'b' (k INTEGER, n INTEGER)
counted = AGGREGATE a BY (k) TO (n = COUNT)
sorted = SORT counted BY (k)
r = INTERSECT sorted, b
RESULTS r
""")

FIGURE_3_10 = read("""
a = SCAN 'a' (k INTEGER, g INTEGER)
b = SCAN 'b' (k INTEGER, g INTEGER)
top = JOIN INNER a, b ON (k = k) TO (k = LEFT k, g = RIGHT g)
both = UNION ALL top, a
joined = JOIN INNER both, b ON (g = g) TO (k = LEFT k)
projected = PROJECT top TO (k = {k})
RESULTS joined, projected
""")


def test_figure_3_9_a_rewrite_that_costs_a_job() -> None:
    """COUNT and SORT by the same key are one job; with the INTERSECT between them there are three."""
    rewritten = optimised(FIGURE_3_9, {Rewrite.INTERSECTIONS_TOWARDS_SOURCES})
    assert [type(one).__name__ for one in rewritten.operators[2:]] == ["Aggregate", "Intersect", "Sort"]
    plans = [partitioned(costs_of(dag, (one_shuffle(),))) for dag in (FIGURE_3_9, rewritten)]
    assert [len(plan.jobs) for plan in plans] == [2, 3]
    assert plans[0].jobs[0].operators == {"counted", "sorted"}


def test_of_the_rewritten_dags_of_figure_3_9_the_cheapest_wins() -> None:
    dags = variants(FIGURE_3_9, {Rewrite.INTERSECTIONS_TOWARDS_SOURCES})
    assert len(dags) == 2
    plan = cheapest(dags, lambda dag: partitioned(costs_of(dag, (one_shuffle(),))))
    assert plan.dag == FIGURE_3_9
    best = cheapest(variants(FIGURE_3_9), lambda dag: partitioned(costs_of(dag, (one_shuffle(),))))
    assert best.cost <= plan.cost


def merged_with_what_reads_it(dag: Dag, names: Sequence[str]) -> str | None:
    """As the thesis merges (§3.5.2): one shuffle, and an operator is merged with those that ingest its output."""
    reached, waiting = {names[0]}, [names[0]]
    while waiting:
        at = waiting.pop()
        neighbours = {*dag.operator(at).inputs, *(reader.name for reader in dag.consumers(at))} & set(names)
        waiting += neighbours - reached
        reached |= neighbours
    return unmergeable(dag, names) if reached == set(names) else "an operator reads nothing of the others"


def test_figure_3_10_the_thesis_s_order_parts_a_join_from_its_projection() -> None:
    """Depth-first, the projection comes after the second join, so a job of neighbours cannot have the projection and
    the join that it reads. Several orders find the plan that the exact search finds."""
    graph = JobGraph(FIGURE_3_10)
    first = [graph.units[unit][0] for unit in graph.orders()[0]]
    assert first == ["top", "both", "joined", "projected"]
    costs = costs_of(FIGURE_3_10, (EngineModel("hadoop", rates(), anything, merged_with_what_reads_it),))
    exact, linear, thesis = (
        partitioned(costs, Search.EXACT),
        partitioned(costs, Search.LINEAR),
        partitioned(costs, Search.LINEAR, 1),
    )
    assert [job.operators for job in exact.jobs] == [{"top", "projected"}, {"both", "joined"}]
    assert len(thesis.jobs) == 3
    assert thesis.jobs[-1].operators == {"projected"}
    assert exact.cost == linear.cost < thesis.cost
