"""What a workflow is given: texts in languages, tables in files and in memory, names of rules."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frontends.workflow.api import Workflow
from frontends.workflow.errors import InvalidWorkflow, OtherType, TableMismatch
from frontends.workflow.ir.dag import Udf, While
from frontends.workflow.ir.printing import printed
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.rewrites.rules import Rewrite
from frontends.workflow.sources import SUFFIXES, Source, source_of_file
from frontends.workflow.switches import NAMES, Switches
from frontends.workflow.table_files import Unopened, check_scans, given_table, given_tables, size_of
from sparrow_py.errors import InvalidRequest

TABLE = pa.table({"k": [1, 2], "x": [0.5, 1.5]})
SCHEMA = Schema.of(k=Type.INTEGER, x=Type.DOUBLE)
DAG = read("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nRESULTS a\n")


# ---- texts


@pytest.mark.parametrize(("suffix", "language"), SUFFIXES.items())
def test_the_suffix_says_the_language(tmp_path: Path, suffix: str, language: str) -> None:
    path = tmp_path / f"w{suffix.upper()}"
    path.write_text("x")
    assert source_of_file(path) == Source(language, "x", str(path))


def test_a_language_that_is_stated_goes_before_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("SELECT 1")
    assert source_of_file(tmp_path / "w.txt", "hive", strict=True).strict


@pytest.mark.parametrize(
    ("content", "language", "strict", "message"),
    [
        (b"x", None, False, "a suffix that says the language"),
        (b"\xff", "beer", False, "UTF-8"),
        (b"x" * (1 << 20) + b"x", "beer", False, "at most 1,048,576 bytes"),
        (b"x", "beer", True, "strict_hive"),
    ],
    ids=["suffix", "encoding", "size", "strict"],
)
def test_files_that_cannot_be_workflows(
    tmp_path: Path, content: bytes, language: str | None, strict: bool, message: str
) -> None:
    (tmp_path / "w.txt").write_bytes(content)
    with pytest.raises(InvalidRequest, match=message):
        source_of_file(tmp_path / "w.txt", language, strict=strict)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.beer.*No such file"):
        source_of_file(tmp_path / "none.beer")


IN_A_LOOP = """t = SCAN 't' (k INTEGER)
u = UDF 'code/mine.py:twice' (t) TO (k INTEGER)
v = UDF 'some.module:twice' (u) TO (k INTEGER)
loop = WHILE (v) CARRY (i = j) AT MOST 2 DO
  i = INPUT (k INTEGER)
  j = UDF 'code/mine.py:twice' (i) TO (k INTEGER)
  RESULTS j
END
last = LOOP RESULT loop OF i (k INTEGER)
RESULTS last
"""


def test_the_text_of_a_dag_is_a_workflow_in_the_intermediate_representation() -> None:
    """As docs/workflow.md says."""
    tables = {"t": TABLE}
    dag = Workflow.from_hive("SELECT k FROM t WHERE x > 1 AS kept").dag(tables)
    assert Workflow.from_ir(printed(dag)).dag(tables) == dag


def test_files_of_udfs_are_from_the_directory_of_the_workflow(tmp_path: Path) -> None:
    """Executors have directories of their own."""
    (tmp_path / "w.ir").write_text(IN_A_LOOP)
    with pytest.raises(InvalidWorkflow, match=rf"w\.ir:2:1: UDF code/mine\.py:twice: there is no file {tmp_path}/code"):
        source_of_file(tmp_path / "w.ir").dag({})
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").touch()
    dag = source_of_file(tmp_path / "w.ir").dag({})
    (loop,) = dag.of_type(While)
    called = [one.function for one in (*dag.of_type(Udf), *loop.body.of_type(Udf))]
    assert called == [f"{tmp_path}/code/mine.py:twice", "some.module:twice", f"{tmp_path}/code/mine.py:twice"]


# ---- tables


def test_a_parquet_file_stays_where_it_is(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "t.parquet")
    one = given_table("t", tmp_path / "t.parquet")
    assert (one.schema, one.size.rows) == (SCHEMA, 2)
    assert one.file_in(tmp_path / "elsewhere") == tmp_path / "t.parquet"


def test_tables_in_memory_and_csv_become_parquet(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,x\n1,0.5\n2,1.5\n")
    (tmp_path / "t.tbl").write_text("k|x\n1|0.5\n2|1.5\n")
    frame = pytest.importorskip("pandas").DataFrame({"k": [1, 2], "x": [0.5, 1.5]})
    for what in (TABLE, tmp_path / "t.csv", str(tmp_path / "t.tbl"), frame):
        one = given_table("t", what)
        assert (one.schema, one.size.rows) == (SCHEMA, 2)
        assert pq.read_table(one.file_in(tmp_path)).equals(TABLE)
    assert not list(tmp_path.glob("*.partial"))


def test_columns_of_other_types_are_left_out() -> None:
    assert given_table("t", TABLE.append_column("b", [[b"x", b"y"]])).schema == SCHEMA


def test_the_mark_of_a_table_changes_with_it(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "t.parquet")
    given = [given_table("t", what) for what in (TABLE, TABLE.slice(1), tmp_path / "t.parquet")]
    assert len({one.mark for one in given}) == 3
    assert given_table("t", TABLE).mark == given[0].mark


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (7, "int; a path, an Arrow table or a pandas data frame"),
        ("/nowhere/t.parquet", "cannot be read as Parquet"),
        ("/nowhere/t.csv", "cannot be read as CSV"),
        (pa.table({"b": [b"x"]}), "no column is INTEGER"),
    ],
)
def test_what_is_no_table_is_told(what: object, message: str) -> None:
    with pytest.raises(TableMismatch, match=message):
        given_table("t", what)


def test_files_that_are_no_parquet_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(TableMismatch, match=r"t\.parquet cannot be read as Parquet"):
        given_table("t", tmp_path / "t.parquet")


def test_the_tables_must_be_there_with_the_columns_that_the_workflow_declares() -> None:
    check_scans(DAG, given_tables({"t": TABLE}))
    with pytest.raises(TableMismatch, match=r"no data is given for it \(given: u\)"):
        check_scans(DAG, given_tables({"u": TABLE}))
    with pytest.raises(TableMismatch, match="column k is string, and the workflow declares INTEGER"):
        check_scans(DAG, given_tables({"t": pa.table({"k": ["x"]})}))


def test_columns_that_differ_only_in_case_are_refused_as_engines_may_take_the_other() -> None:
    lists = TABLE.append_column("K", pa.array([[1], [2]]))
    with pytest.raises(TableMismatch, match="columns k and K differ only in case"):
        check_scans(DAG, given_tables({"t": lists}))


def test_a_table_that_was_looked_at_is_not_read_again() -> None:
    given = given_tables({"t": TABLE})
    assert given_tables(given)["t"] is given["t"]


def test_an_unopened_file_is_opened_once_and_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,x\n1,0.5\n")
    given = given_tables({name: Unopened(tmp_path / f"{name}.csv") for name in ("t", "none")})
    assert (list(given), "none" in given, "x" in given.schemas, len(given.schemas)) == (["t", "none"], True, False, 2)
    assert given.opened_paths == {}
    assert given.schemas["t"] == SCHEMA
    assert given.opened_paths == {"t": tmp_path / "t.csv"}
    assert given.scanned_by(DAG) == {"t": given["t"]}
    assert given["t"] is given["t"]
    with pytest.raises(TableMismatch, match="No such file"):
        given.schemas["none"]


# ---- rules


def test_rules_are_switched_off_by_name() -> None:
    found = Switches.all_but(["share-scans", "prune-columns"])
    assert not found.rules.share_scans
    assert found.rules.merge
    assert set(Rewrite) - found.rewrites == {Rewrite.COLUMNS_PRUNED}
    assert Switches.all_but(["rewrites"]).rewrites == frozenset()
    for name in NAMES:
        assert Switches.all_but([name]) != Switches()


def test_a_rule_that_there_is_not_is_told_with_all_names() -> None:
    with pytest.raises(InvalidRequest, match=r"off: 'speed' .*merge, share-scans"):
        Switches.all_but(["speed"])


@pytest.mark.parametrize("name", ["engines", "off", "where"])
def test_a_text_in_the_place_of_a_list_is_not_taken_for_its_letters(name: str) -> None:
    options: dict[str, Any] = {name: "duckdb"}
    with pytest.raises(InvalidRequest, match=rf"{name}: 'duckdb' is not valid; allowed: a list, such as \['duckdb'\]"):
        Workflow.from_hive("SELECT k FROM t").explain(tables={"t": TABLE}, **options)


# ---- columns of types that workflows do not have

STAMPED = pa.table({"id": [1], "at": pa.array([0], pa.timestamp("s")), "value": [0.5]})
IDS = pa.table({"id": [1], "value": [0.5]})
"""Tables of a graph, too."""


@pytest.mark.parametrize(
    ("language", "text", "taker"),
    [
        ("hive", "SELECT * FROM ev AS x", "* takes"),
        ("hive", "SELECT e.*, id + 1 AS b FROM ev e", "e.* takes"),
        ("hive", "SELECT id FROM (SELECT * FROM ev) s", "* takes"),
        ("hive", "SELECT * FROM ev JOIN ids ON ev.id = ids.id", "* takes"),
        ("hive", "ev JOIN ids ON ev.id = ids.id AS x", "* takes"),
        ("hive", "SELECT id FROM ids UNION ALL SELECT * FROM ev", "* takes"),
        ("hive", "INSERT OVERWRITE TABLE x SELECT * FROM ev", "* takes"),
        ("hive", "WITH w AS (SELECT * FROM ev) SELECT id FROM w", "* takes"),
        ("hive", "SELECT id, at FROM ev", ""),
        ("hive", "SELECT id FROM ev WHERE at IS NULL", ""),
        ("hive", "SELECT id FROM ev WHERE EXISTS (SELECT id FROM ids WHERE ids.id = ev.at)", ""),
        ("hive", "SELECT COUNT(AT) AS n FROM ev", ""),
        ("hive", "SELECT id FROM ev ORDER BY at", ""),
        ("hive", "SELECT ev.id FROM ids JOIN ev USING (at)", ""),
        ("beer", "CREATE RELATION ev WITH COLUMNS (INTEGER), DISTINCT FROM (ev) AS x", "names of columns takes"),
        ("beer", "CREATE RELATION ev WITH COLUMNS (id INTEGER, at INTEGER), DISTINCT FROM (ev) AS x", ""),
        ("lindi", "def workflow(lindi):\n    lindi.table('ev').distinct()\n", "table() without columns takes"),
        ("lindi", "def workflow(lindi):\n    lindi.table('ev').select(['id'])\n", "table() without columns takes"),
    ],
)  # fmt: skip
def test_columns_of_other_types_are_told_wherever_they_are_taken(language: str, text: str, taker: str) -> None:
    given = given_tables({"ev": STAMPED, "ids": IDS})
    told = re.escape(f"{taker} all columns; name those that are wanted") if taker else "the column at"
    with pytest.raises(OtherType, match=told) as caught:
        Source(language, text, "<w>").dag({name: one.schema for name, one in given.items()})
    assert "the column at is timestamp[s]; INTEGER, DOUBLE, STRING, BOOLEAN, DATE are allowed" in str(caught.value)
    assert caught.value.at is not None


@pytest.mark.parametrize(
    ("language", "text", "columns"),
    [
        ("hive", "SELECT id, value FROM ev", ("id", "value")),
        ("hive", "SELECT COUNT(*) AS n FROM ev WHERE value > 0", ("n",)),
        ("hive", "SELECT i.* FROM ev JOIN ids i ON ev.id = i.id WHERE EXISTS (SELECT * FROM ev)", ("id", "value")),
        ("beer", "CREATE RELATION ev WITH COLUMNS (id INTEGER), DISTINCT FROM (ev) AS x", ("id",)),
        ("lindi", "def workflow(lindi):\n    lindi.table('ev', id=Type.INTEGER).distinct()\n", ("id",)),
    ],
)
def test_a_table_with_other_columns_is_read_by_who_names_what_is_wanted(
    language: str, text: str, columns: tuple[str, ...]
) -> None:
    given = given_tables({"ev": STAMPED, "ids": IDS})
    if language == "lindi":
        text = f"from frontends.workflow.ir.types import Type\n{text}"
    dag = Source(language, text, "<w>").dag({name: one.schema for name, one in given.items()})
    check_scans(dag, given)
    assert dag.operator(dag.results[0]).schema.names == columns
    (made,) = evaluate(dag, {"ev": STAMPED, "ids": IDS}).values()
    assert made.num_rows == 1


def test_graphs_take_the_first_columns_and_these_alone() -> None:
    gas = """\
GATHER = { SUM (vertex_value) }
APPLY = { MUL [vertex_value, 0.5] }
SCATTER = { }
ITERATION_STOP = (iteration < 1)
ITERATION = { SUM [iteration, 1] }
"""
    edges = pa.table({"src": [1], "dst": [2], "at": STAMPED["at"]})
    given = given_tables({"edges": edges, "vertices": STAMPED})
    schemas = {name: one.schema for name, one in given.items()}
    with pytest.raises(OtherType, match=r"the column at is timestamp\[s\]"):
        Source("gas", gas, "<w>").dag(schemas)
    Source("gas", gas, "<w>").dag({**schemas, "vertices": given_table("ids", IDS).schema})


def test_a_table_of_other_types_alone_says_which() -> None:
    with pytest.raises(TableMismatch, match=r"it has at timestamp\[s\]"):
        given_table("ev", STAMPED.select(["at"]))


@pytest.mark.parametrize("do", [Workflow.explain, Workflow.run], ids=["explain", "run"])
def test_a_text_that_cannot_be_is_an_error_with_its_place_before_anything_starts(do: Callable[..., object]) -> None:
    made = Workflow.from_hive("SELECT", "w.hql")  # What a text means follows from its tables.
    with pytest.raises(InvalidWorkflow, match=r"^w\.hql:1:1: a SELECT without columns"):
        do(made, ["127.0.0.1:1"], tables={})


def test_what_is_empty_in_csv_is_null_but_in_texts(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n,x,d,b,s\n1,0.5,2024-01-31,true,a\n,,,,\nNULL,NaN,NA,NULL,NULL\n")
    content = given_table("t", tmp_path / "t.csv").content
    assert content is not None
    assert [content.column(name).null_count for name in "nxdb"] == [2, 2, 2, 2]
    assert content.column("s").to_pylist() == ["a", "", "NULL"]


def test_sizes_are_those_in_memory_whatever_a_file_makes_of_them(tmp_path: Path) -> None:
    """A column of one value takes next to nothing in a file, and as much as any other once an engine has read it."""
    rows = 4000
    table = pa.table(
        {
            "one": pa.array([1.0] * rows),
            "day": pa.array([1] * rows, pa.date32()),
            "text": ["a"] * rows,
            "long": ["x" * 50 + str(n) for n in range(rows)],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    for size in (size_of(tmp_path / "t.parquet"), given_table("t", table).size):
        found = dict(size.column_bytes)
        assert found.pop("long") >= 54 * rows
        assert found == {"one": 8 * rows, "day": 4 * rows, "text": 24 * rows}
