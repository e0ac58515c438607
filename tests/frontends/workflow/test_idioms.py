"""Which loops are graph computations, and which only look like one."""

import pytest

from frontends.workflow.ir.dag import Dag, Function, While
from frontends.workflow.ir.printing import printed
from frontends.workflow.ir.reading import read
from frontends.workflow.jobs.idioms import NoGraphLoop, Rows, graph_loop, graph_loops
from tests.support.workflow_graphs import shortest_paths
from tests.support.workflow_samples import page_rank

PAGE_RANK = printed(page_rank())


def loop_of(dag: Dag) -> While:
    return dag.of_type(While)[0]


def changed(*edits: tuple[str, str]) -> While:
    """The loop of PageRank, in whose text something is replaced."""
    text = PAGE_RANK
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return loop_of(read(text))


def test_page_rank_is_a_graph_computation() -> None:
    found = graph_loops(page_rank())["loop"]
    assert (found.vertices, found.key) == ("page_rank", "id")
    assert (found.edges, found.source, found.target, found.gathered_key) == ("edges_cnt", "src", "dst", "id")
    assert [(one.function, str(one.message)) for one in found.gathered] == [
        (Function.SUM, '"vertex.rank" / "edge.degree"')
    ]
    assert found.following.rows is Rows.GATHERED
    assert {name: str(value) for name, value in found.following.columns.items()} == {
        "id": '"gathered.id"',
        "rank": '0.15 + 0.85 * "gathered.rank"',
    }
    assert found.own_where is None
    assert list(found.others) == ["iter"]
    assert found.tested_carried


def test_shortest_paths_are_a_graph_computation() -> None:
    found = graph_loop(loop_of(shortest_paths(5)))
    assert found.following.rows is Rows.GATHERED
    assert [(one.function, str(one.message), str(one.own)) for one in found.gathered] == [
        (Function.MIN, '"vertex.distance" + "edge.cost"', '"vertex.distance"')
    ]
    assert found.own_where == ()


def test_a_filter_and_a_sort_on_the_way_are_part_of_it() -> None:
    loop = changed(
        ("rank_cnt = ARITHMETIC edges_pr", 'kept = SELECT edges_pr WHERE {"rank" > 0.5}\n  rank_cnt = ARITHMETIC kept'),
        ("page_rank1 = AGGREGATE links", "sorted = SORT links BY (rank)\n  page_rank1 = AGGREGATE sorted"),
    )
    assert [str(one) for one in graph_loop(loop).sent_where] == ['"vertex.rank" > 0.5']


def test_where_vertices_are_joined_with_what_they_gather() -> None:
    for kind, rows in (("INNER", Rows.BOTH), ("LEFT", Rows.ALL)):
        join = (
            f"both = JOIN {kind} page_rank, page_rank1 ON (id = id) "
            "TO (id = LEFT id, old = LEFT rank, rank = RIGHT rank)\n"
            '  page_rank2 = PROJECT both TO (id = {id}, "rank" = {COALESCE("rank", old)})'
        )
        found = graph_loop(changed((f"page_rank2 = {_line('page_rank2')}", join)))
        assert found.following.rows is rows


def _line(name: str) -> str:
    """What the text says the relation is."""
    return next(line.split(" = ", 1)[1] for line in PAGE_RANK.split("\n") if line.strip().startswith(f"{name} = "))


SUM = "page_rank1 = AGGREGATE links BY (id) TO (rank = SUM rank)"
NEAR_MISSES: dict[str, tuple[str, str, str]] = {
    "edges without a vertex": ("edges_pr = JOIN INNER", "edges_pr = JOIN LEFT", "of kind LEFT"),
    "by a computed key": ("(id = {dst}", "(id = {dst + 1}", "not by an end of the edges"),
    "over all vertices": (
        SUM,
        "all = AGGREGATE links TO (rank = SUM rank, id = MIN id)\n"
        "  page_rank1 = PROJECT all TO (id = {id}, rank = {rank})",
        "has 0 keys",
    ),
    "a distinct count": (
        SUM,
        "some = AGGREGATE links BY (id) TO (n = COUNT DISTINCT rank, rank = SUM rank)\n"
        "  page_rank1 = PROJECT some TO (id = {id}, rank = {rank})",
        "COUNT DISTINCT",
    ),
    "by two keys": (
        "page_rank1 = AGGREGATE links",
        "first = AGGREGATE links BY (id, rank) TO (n = COUNT)\n  page_rank1 = AGGREGATE first",
        "has 2 keys",
    ),
    "an aggregate of an aggregate": (
        SUM,
        "first = AGGREGATE links BY (id) TO (rank = SUM rank)\n"
        "  page_rank1 = AGGREGATE first BY (id) TO (rank = SUM rank)",
        "a row for each vertex",
    ),
    "rows compared before": (
        "page_rank1 = AGGREGATE links",
        "unique = DISTINCT links\n  page_rank1 = AGGREGATE unique",
        "DISTINCT unique is no operator",
    ),
    "only the greatest go on": (
        "page_rank2 = ARITHMETIC page_rank1",
        "few = TOP 3 page_rank1 BY (rank)\n  page_rank2 = ARITHMETIC few",
        "TOP few is no operator",
    ),
    "edges of edges": (
        "rank_cnt = ARITHMETIC edges_pr",
        "second = JOIN INNER edges_pr, edges_cnt ON (dst = src) TO (src = LEFT src, dst = RIGHT dst, "
        "degree = LEFT degree, rank = LEFT rank)\n  rank_cnt = ARITHMETIC second",
        "brings",
    ),
    "another key follows": (
        "page_rank2 = ARITHMETIC page_rank1 SET rank",
        "moved = ARITHMETIC page_rank1 SET id = {id + 1}\n  page_rank2 = ARITHMETIC moved SET rank",
        "is not that of the vertices",
    ),
    "constants that might fold": (
        "links = PROJECT rank_cnt",
        'tenth = ARITHMETIC rank_cnt SET rank = {0.1}\n  sum = ARITHMETIC tenth SET rank = {"rank" + 0.2}\n'
        "  links = PROJECT sum",
        "a constant of an operator before",
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    old, new, reason = NEAR_MISSES[name]
    loop = changed((old, new))
    with pytest.raises(NoGraphLoop, match=reason):
        graph_loop(loop)


def test_a_union_that_drops_equal_rows_is_one_for_least_values_alone() -> None:
    text = printed(shortest_paths(3))
    assert "UNION ALL" in text
    as_sets = text.replace("UNION ALL", "UNION")
    assert graph_loop(loop_of(read(as_sets))).own_where == ()
    with pytest.raises(NoGraphLoop, match="drops equal rows"):
        graph_loop(loop_of(read(as_sets.replace("MIN distance", "SUM distance"))))


def test_a_loop_without_a_graph_is_none() -> None:
    counting = read(
        "start = VALUES (n INTEGER) ROWS (({0}))\n"
        "loop = WHILE (start) CARRY (n = more) TEST FIRST n {n < 3} AT MOST 9 DO\n"
        "  n = INPUT (n INTEGER)\n  more = ARITHMETIC n SET n = {n + 1}\n  RESULTS more\nEND\n"
        "left = LOOP RESULT loop OF n (n INTEGER)\nRESULTS left\n"
    )
    assert graph_loops(counting) == {}
