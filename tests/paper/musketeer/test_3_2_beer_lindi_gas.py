"""Paper 004 (Musketeer) §3.2: listings 3.2 (BEER), 3.3 (Lindi) and 3.4 (GAS), and figure 3.5."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frontends.workflow import example_data
from frontends.workflow.errors import InvalidSyntax
from frontends.workflow.ir.dag import Dag, LoopResult, While
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.tables import schema_of
from frontends.workflow.languages import beer, gas
from frontends.workflow.languages.lindi import Query

LISTING_3_2 = """\
CREATE RELATION edges WITH COLUMNS (INTEGER, INTEGER),
// Relation storing (page_id, rank) pairs.
CREATE RELATION page_rank WITH COLUMNS (INTEGER, DOUBLE),
// Relation storing current iteration number.
CREATE RELATION iter WITH COLUMNS (INTEGER),
// Computes number of outgoing edges for each graph node.
COUNT [edges_1] FROM (edges) GROUP BY [edges_0] AS node_cnt,
// Pre-computes 3-tuples of (src_node, dst_node, src_outgoing_degree).
(edges) JOIN (node_cnt) ON edges_0 AND node_cnt_0 AS edges_cnt,
WHILE [(iter_0 < 20)] (
// Joins the pre-computed 3-tuples with the current page ranks.
(edges_cnt) JOIN (page_rank) ON edges_cnt_0 AND page_rank_0 AS edges_pr,
DIV [edges_pr_3, edges_pr_2] FROM (edges_pr) AS rank_cnt,
PROJECT [rank_cnt_1, rank_cnt_3] FROM (rank_cnt) AS links,
AGG [links_1, +] FROM (links) GROUP BY [links_0] AS page_rank1,
MUL [0.85, page_rank1_1] FROM (page_rank1) AS page_rank2,
// Updates each node’s page rank value.
SUM [0.15, page_rank2_1] FROM (page_rank2) AS page_rank,
// Increases iteration counter.
SUM [iter_0,1] FROM (iter) AS iter)
"""
LISTING_3_3 = "Select Where SelectMany Concat GroupBy Join Distinct Union Intersect Except Count Min Max Iterate"
LISTING_3_4 = """\
GATHER = {
  SUM (vertex_value)
}
APPLY = {
  MUL [vertex_value, 0.85]
  SUM [vertex_value, 0.15]
}
SCATTER = {
  DIV [vertex_value, vertex_degree]
}
ITERATION_STOP = (iteration < 20)
ITERATION = {
  SUM [iteration, 1])
}
"""
CORRECTED_3_4 = LISTING_3_4.replace("1])", "1]")


def ranks_by_hand(edges: list[tuple[int, int]], ranks: dict[int, float]) -> dict[int, float]:
    for _ in range(20):
        sums: dict[int, float] = {}
        for source, destination in edges:
            if source in ranks:
                share = ranks[source] / sum(1 for one, _ in edges if one == source)
                sums[destination] = sums.get(destination, 0.0) + share
        ranks = {vertex: 0.85 * total + 0.15 for vertex, total in sums.items()}
    return ranks


def test_listings_3_2_and_3_4_and_a_loop_by_hand_give_the_same_ranks() -> None:
    tables = example_data.page_rank(50)
    schemas = {name: schema_of(table.schema, name) for name, table in tables.items()}
    edges, start = (
        list(zip(*(one.to_pylist() for one in tables[name].columns), strict=True)) for name in ("edges", "vertices")
    )
    expected = ranks_by_hand(edges, dict(start))
    assert len(expected) > 5
    for dag in (beer.parse(LISTING_3_2, schemas), gas.parse(CORRECTED_3_4, schemas)):
        (got,) = evaluate(dag, tables).values()
        assert dict(zip(*(one.to_pylist() for one in got.columns), strict=True)) == pytest.approx(expected, rel=1e-12)


def test_listing_3_4_as_printed_has_a_stray_parenthesis() -> None:
    with pytest.raises(InvalidSyntax) as refused:
        gas.parse(LISTING_3_4, file="listing.gas")
    place, line, caret = str(refused.value).split("\n")
    assert place.startswith("listing.gas:13:21: ) stands where ")
    assert line[caret.index("^")] == ")"
    assert line == "  SUM [iteration, 1])"


def test_lindi_has_the_methods_of_listing_3_3() -> None:
    for name in LISTING_3_3.split():
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
        assert callable(getattr(Query, {"except": "except_"}.get(snake, snake)))


@pytest.mark.parametrize(
    "dag", [lambda: beer.parse(LISTING_3_2), lambda: gas.parse(CORRECTED_3_4)], ids=["beer", "gas"]
)
def test_page_rank_has_the_operators_of_figure_3_5(dag: Callable[[], Dag]) -> None:
    """COUNT and JOIN, then in the loop JOIN, DIVIDE, PROJECT, AGGREGATE, MULTIPLY, SUM, and the count of iterations."""
    made = dag()
    (loop,) = made.of_type(While)
    outside = [one.keyword for one in made if one.inputs and not isinstance(one, While | LoopResult)]
    assert outside == ["AGGREGATE", "JOIN"]
    inside = [one.keyword for one in loop.body if one.inputs]
    assert inside == ["JOIN", "ARITHMETIC", "PROJECT", "AGGREGATE", "ARITHMETIC", "ARITHMETIC", "ARITHMETIC"]
