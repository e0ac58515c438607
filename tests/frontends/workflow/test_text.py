"""Intermediate representation as text, there and back, and as a graph."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import BlackBox, Dag, Scan, Udf
from frontends.workflow.ir.dot import dot
from frontends.workflow.ir.printing import printed
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.positions import Position
from tests.support.workflow_dags import Case, cases
from tests.support.workflow_samples import page_rank

PAGE_RANK = """\
edges = SCAN 'edges' (src INTEGER, dst INTEGER)
page_rank = SCAN 'page_rank' (id INTEGER, rank DOUBLE)
iter = VALUES (iter INTEGER) ROWS (({0}))
node_cnt = AGGREGATE edges BY (src) TO (degree = COUNT dst)
edges_cnt = JOIN INNER edges, node_cnt ON (src = src) TO (src = LEFT src, dst = LEFT dst, degree = RIGHT degree)
loop = WHILE (edges_cnt, page_rank, iter) CARRY (page_rank = page_rank2, iter = iter2) TEST FIRST iter {iter < 20} \
AT MOST 1000000 DO
  edges_cnt = INPUT (src INTEGER, dst INTEGER, degree INTEGER)
  page_rank = INPUT (id INTEGER, rank DOUBLE)
  iter = INPUT (iter INTEGER)
  edges_pr = JOIN INNER edges_cnt, page_rank ON (src = id) TO (src = LEFT src, dst = LEFT dst, \
degree = LEFT degree, rank = RIGHT rank)
  rank_cnt = ARITHMETIC edges_pr SET rank = {"rank" / degree}
  links = PROJECT rank_cnt TO (id = {dst}, rank = {"rank"})
  page_rank1 = AGGREGATE links BY (id) TO (rank = SUM rank)
  page_rank2 = ARITHMETIC page_rank1 SET rank = {0.15 + 0.85 * "rank"}
  iter2 = ARITHMETIC iter SET iter = {iter + 1}
  RESULTS page_rank2, iter2
END
ranks = LOOP RESULT loop OF page_rank (id INTEGER, rank DOUBLE)
RESULTS ranks
"""


def test_page_rank_as_text() -> None:
    assert printed(page_rank()) == PAGE_RANK
    assert read(PAGE_RANK) == page_rank()


@settings(max_examples=50)
@given(cases())
def test_texts_are_read_back_to_equal_dags(case: Case) -> None:
    text = printed(case.dag)
    assert read(text) == case.dag
    assert printed(read(text)) == text


def test_texts_with_quotes_braces_and_line_breaks() -> None:
    rows = Scan(name='a "b"', table="it's", columns=Schema.of(x=Type.STRING))
    code = "SELECT '}' AS x\n  FROM {a}\n-- it's\n"
    box = BlackBox(name="RESULTS", engine="duckdb", code=code, read=(rows.relation,), columns=rows.schema)
    call = Udf(name="end", function="dir with ' quote/f.py:g", read=(), columns=rows.schema)
    dag = Dag.of_unread((rows, box, call))
    assert read(printed(dag)) == dag


def test_positions_are_those_in_the_text() -> None:
    dag = read(PAGE_RANK, "p.ir")
    assert dag.operator("node_cnt").at == Position(4, 1, "p.ir")


@pytest.mark.parametrize(
    ("old", "new", "place", "part"),
    [
        ("rank DOUBLE", "rank DUBLE", "2:48", "one of INTEGER, DOUBLE, STRING, BOOLEAN, DATE is expected"),
        ("JOIN INNER edges,", "JION INNER edges,", "5:13", "JION is no operator"),
        ("AGGREGATE edges", "AGGREGATE edgs", "4:22", "is edges meant?"),
        ("COUNT dst", "COUNT ds", "4:1", "is dst meant?"),
        ("COUNT dst", "COUNTS dst", "4:50", "one of SUM, COUNT"),
        ("{0}", "{}", "3:37", "does not parse"),
        ("{0}", "{0", "3:37", "begins nothing"),
        ("'page_rank'", "'page_rank", "2:18", "begins nothing"),
        ("RESULTS ranks", "RESULTS rank", "19:9", "is ranks meant?"),
        ("RESULTS ranks", "", "20:1", "a name is expected"),
        ("END\n", "", "17:1", "END is expected"),
        ("= SUM rank", "= SUM", "13:3", "SUM of no column"),
    ],
)
def test_texts_that_are_wrong_say_where(old: str, new: str, place: str, part: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read(PAGE_RANK.replace(old, new), "p.ir")
    message = str(caught.value).split("\n")
    assert message[0].startswith(f"p.ir:{place}: ")
    assert part in message[0]
    if message[1:]:
        assert message[2] == " " * (int(place.partition(":")[2]) - 1) + "^"


@given(st.integers(0, len(PAGE_RANK)), st.integers(0, 30), st.text(alphabet="ab(){}'\"=,ROWS 1\n", max_size=5))
def test_broken_texts_are_refused_in_words(start: int, length: int, instead: str) -> None:
    text = PAGE_RANK[:start] + instead + PAGE_RANK[start + length :]
    try:
        dag = read(text)
    except InvalidWorkflow:
        return
    assert read(printed(dag)) == dag


def test_a_graph_has_loops_as_boxes() -> None:
    text = dot(page_rank(), {"edges_cnt": "job 1", "node_cnt": "job 1"})
    for line in (
        '"edges" -> "node_cnt";',
        'label="job 1";',
        'subgraph "cluster_loop/" {',
        '"edges_cnt" -> "loop/edges_cnt" [style=dashed];',
        '"loop/page_rank2" -> "loop/page_rank" [constraint=false];',
        '"loop" -> "ranks";',
    ):
        assert line in text
    assert text.count("{") == text.count("}")


def test_names_in_a_graph_are_quoted() -> None:
    rows = Scan(name='a "b\\', table="t", columns=Schema.of(x=Type.STRING))
    assert '"a \\"b\\\\" [label="a \\"b\\\\\\nSCAN' in dot(Dag.of_unread((rows,)))
