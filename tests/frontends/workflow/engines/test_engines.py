"""What every engine of this package keeps to, beside the meaning of random workflows."""

import ast
import dataclasses
import math
import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from frontends.workflow.engines import engine, engines, installed
from frontends.workflow.engines.base import ALL_RULES, Engine, Rules
from frontends.workflow.errors import EngineMissing, Inexpressible, IterationsExceeded, UnknownEngine
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    BlackBox,
    Dag,
    Function,
    Join,
    JoinKind,
    JoinOutput,
    Scan,
    Side,
    Sort,
    SortKey,
    Udf,
)
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Column, Schema, Type
from tests.support.suites import rest_after
from tests.support.workflow_dags import Case, assert_same_results
from tests.support.workflow_engines import assert_agrees, installed_engine, made_by
from tests.support.workflow_samples import page_rank

ENGINES = ("dask", "datafusion", "duckdb", "pandas", "polars", "serial")
NAN = math.nan
T = pa.table(
    {
        "n": pa.array([3, None, 1, 2], pa.int32()),
        "x": pa.array([NAN, -1.5, None, 2.0], pa.float64()),
        "s": pa.array(["a\\b", 'quo"te', "it's\n", None]).dictionary_encode(),
        "unread": pa.array([[1]] * 4),
    }
)
SCAN = "t = SCAN 't' (x DOUBLE, n INTEGER, s STRING)\n"

on_each_engine = pytest.mark.parametrize("name", ENGINES)


def agrees(name: str, text: str, **tables: pa.Table) -> None:
    assert_agrees(installed_engine(name), Case(read(text), {"t": T, **tables}))


@on_each_engine
@pytest.mark.parametrize(
    "text",
    [
        "r = SELECT t WHERE {x > 5}",  # NaN is no part of a file's statistics, and greatest.
        "r = SELECT t WHERE {x <> 2}",
        "r = AGGREGATE t TO (most = MAX x, least = MIN x, sum = SUM x)",
        "r = JOIN INNER t, t ON (x = x) TO (n = LEFT n, m = RIGHT n)",
        "r = SORT t BY (x DESC, n)",
        "r = SORT t BY (x)",
        "r = TOP 2 t BY (n DESC)",
        r"r = SELECT t WHERE {s LIKE 'a\b'}",
        "r = PROJECT t TO (r = {s || 'line\nbreak' || '\"\"\"' || '\\'})",
        "r = PROJECT t TO (r = {0.06 + 0.01}, q = {n / 0}, m = {n % 0}, f = {7 / 2}, b = {CASE WHEN n > 1 THEN 1 END})",
        "r = PROJECT t TO (big = {CASE WHEN n > 1 THEN 2000000000 ELSE 0 END * 3})",
        "r = VALUES (n INTEGER, s STRING) ROWS ()",
        "r = VALUES (n INTEGER, x DOUBLE) ROWS (({1}, {0.5}), ({CAST(NULL AS BIGINT)}, {-0.5}))",
        "r = UNION t, t",
    ],
)
def test_points_where_engines_differ(name: str, text: str) -> None:
    agrees(name, f"{SCAN}{text}\nRESULTS r\n")


INF = math.inf
GROUPS = (
    [NAN, 1.0, None, 2.0],
    [INF],
    [-INF],
    [INF, -INF],
    [NAN, -INF],
    [NAN, INF],
    [NAN, None, NAN],
    [None, None],
    [INF, 1.0],
    [-INF, -1.0],
    [0.0, -0.0, -0.0],
    [-0.0, 0.0, NAN],
)


@on_each_engine
@pytest.mark.parametrize("seed", rest_after(1, *range(3)))
def test_extremes_of_groups_with_nan_and_infinity(name: str, seed: int) -> None:
    """In several orders of rows."""
    rows = [(key, value) for key, group in enumerate(GROUPS) for value in group]
    random.Random(seed).shuffle(rows)
    t = pa.table({"k": [key for key, _ in rows], "x": pa.array([value for _, value in rows], pa.float64())})
    text = (
        "t = SCAN 't' (k INTEGER, x DOUBLE)\nr = AGGREGATE t BY (k) TO (least = MIN x, most = MAX x)\n"
        "s = AGGREGATE t TO (least = MIN x, most = MAX x)\n"
        "v = AGGREGATE t TO (least = MIN x, most = MAX x, keys = COUNT DISTINCT k)\nRESULTS r, s, v\n"
    )
    agrees(name, text, t=t)
    for key in range(len(GROUPS)):
        agrees(name, text, t=t.filter(pc.equal(t["k"], key)))


@on_each_engine
def test_the_zeros_are_one_value(name: str) -> None:
    t = pa.table({"k": [1, 2, 1, 2, 1, 1, 1, 1], "x": [0.0, -0.0, -0.0, 3.0, 0.5, NAN, INF, None]})
    text = (
        "t = SCAN 't' (k INTEGER, x DOUBLE)\nr = AGGREGATE t TO (n = COUNT DISTINCT x)\n"
        "s = AGGREGATE t TO (n = COUNT DISTINCT x, c = COUNT, k = COUNT DISTINCT k, least = MIN x)\n"
        "u = AGGREGATE t BY (k) TO (n = COUNT DISTINCT x, c = COUNT)\nRESULTS r, s, u\n"
    )
    agrees(name, text, t=t)


@on_each_engine
@pytest.mark.parametrize("listed", ["0.0", "-0.0", "0, 1, 2.0, 3.0, 4.0, 5.0", "-0.0, 1.0, 2.0, 3.0, 4.0, 5.0"])
def test_either_zero_is_in_a_list_with_a_zero(name: str, listed: str) -> None:
    t = pa.table({"x": [0.0, -0.0, -0.0, 3.0, 0.5, NAN, None]})
    agrees(name, f"t = SCAN 't' (x DOUBLE)\nr = SELECT t WHERE {{x IN ({listed})}}\nRESULTS r\n", t=t)


@on_each_engine
def test_results_that_are_read_too_and_a_table_that_is_a_result(name: str) -> None:
    agrees(name, f"{SCAN}s = SORT t BY (n DESC)\nu = SELECT s WHERE {{n > 1}}\nRESULTS t, s, u\n")


@on_each_engine
def test_tables_without_rows(name: str) -> None:
    text = (
        f"{SCAN}a = AGGREGATE t TO (n = SUM n, c = COUNT)\nb = AGGREGATE t BY (s) TO (n = AVG x)\n"
        "c = JOIN LEFT t, b ON (s = s) TO (n = LEFT n, m = RIGHT n)\nd = SORT c BY (n)\ne = DIFFERENCE t, t\n"
        "RESULTS a, d, e\n"
    )
    agrees(name, text, t=T.slice(0, 0))


@pytest.mark.rest
@on_each_engine
def test_a_thousand_columns(name: str) -> None:
    columns = [f"column {number}" for number in range(1_000)]
    listed = ", ".join(f'"{column}" INTEGER' for column in columns)
    text = (
        f"t = SCAN 't' ({listed})\nu = SELECT t WHERE {{\"column 3\" > 0}}\nv = DISTINCT u\nw = UNION ALL v, u\n"
        'x = SORT w BY ("column 999")\nRESULTS x\n'
    )
    table = pa.table({column: pa.array([number, number, -number]) for number, column in enumerate(columns)})
    agrees(name, text, t=table)


@on_each_engine
def test_keywords_and_odd_names(name: str) -> None:
    words = [
        "select",
        "rowid",
        "from",
        "class",
        "None",
        "list",
        "iter",
        "in",
        "current_date",
        "user",
        "end",
        "db",
        "inputs",
        "all",
        "row",
        "rows",
        "total",
        "groups",
    ]
    words += ["partners", "math", "tab`le", "a=b", "{x}", "naïve", 'q"', "it's", "a\\b"]
    table = pa.table({word: [number, 1] for number, word in enumerate(words)})
    listed = ", ".join(f"{_quoted(word)} INTEGER" for word in words)
    lines = [f"{_quoted(words[0])} = SCAN 'order by' ({listed})"]
    for before, word in pairwise(words):
        lines.append(f"{_quoted(word)} = SELECT {_quoted(before)} WHERE {{{_quoted(word)} >= 0}}")
    last = f"total_2 = AGGREGATE {_quoted(words[-1])} BY ({_quoted(words[1])}) TO (sum = SUM {_quoted(words[2])})"
    dag = read("\n".join([*lines, last, f"RESULTS total_2, {_quoted(words[5])}", ""]))
    assert_agrees(installed_engine(name), Case(dag, {"order by": table}))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


EDGES = pa.table({"src": [1, 1, 2, 3], "dst": [2, 3, 3, 1]})
RANKS = pa.table({"id": [1, 2, 3], "rank": [1.0, 1.0, 1.0]})


@on_each_engine
@pytest.mark.parametrize("rules", rest_after(3, ALL_RULES, *(ALL_RULES.off(rule) for rule in Rules.names())))
def test_page_rank(name: str, rules: Rules) -> None:
    tables = {"edges": EDGES, "page_rank": RANKS}
    got = made_by(installed_engine(name), page_rank(3), tables, rules)
    assert_same_results(page_rank(3), got, evaluate(page_rank(3), tables))


@on_each_engine
def test_a_loop_that_does_not_end_fails(name: str) -> None:
    text = (
        "n = VALUES (n INTEGER) ROWS (({0}))\n"
        "loop = WHILE (n) CARRY (m = more) TEST FIRST m {n >= 0} AT MOST 3 DO\n"
        "  m = INPUT (n INTEGER)\n  more = ARITHMETIC m SET n = {n + 1}\n  RESULTS more\nEND\n"
        "left = LOOP RESULT loop OF m (n INTEGER)\nRESULTS left\n"
    )
    with pytest.raises(IterationsExceeded, match="the WHILE loop still holds after 3 iterations"):
        made_by(installed_engine(name), read(text), {})


@on_each_engine
def test_loops_within_loops(name: str) -> None:
    text = (
        "n = VALUES (n INTEGER) ROWS (({0}), ({5}))\n"
        "outer = WHILE (n) CARRY (n = left) AT MOST 3 DO\n"
        "  n = INPUT (n INTEGER)\n"
        "  inner = WHILE (n) CARRY (n = more) TEST n {n < 4} AT MOST 9 DO\n"
        "    n = INPUT (n INTEGER)\n    more = ARITHMETIC n SET n = {n + 1}\n    RESULTS more\n  END\n"
        "  left = LOOP RESULT inner OF n (n INTEGER)\n  RESULTS left\nEND\n"
        "left = LOOP RESULT outer OF n (n INTEGER)\nRESULTS left, outer\n"
    )
    agrees(name, text)


CODE = ("{x}", "it's", '""" + x', "a\\", "%s", "/* -- ;", "`b`", "$1 :p ?", "#[/c]", "__import__('os')")
"""Names that would be code where a generator has not quoted them."""


@on_each_engine
def test_names_that_look_like_code_are_names(name: str) -> None:
    """Of relations and tables, too."""
    columns = Schema(tuple(Column(one, Type.INTEGER) for one in CODE))
    scan = Scan(name=CODE[0], table=CODE[1], columns=columns)
    grouped = Aggregate(
        name=CODE[2], source=scan.relation, keys=CODE[:9], aggregations=(Aggregation(CODE[9], Function.SUM, CODE[9]),)
    )
    left = tuple(JoinOutput(one, Side.LEFT, one) for one in CODE[:8])
    right = tuple(JoinOutput(one, Side.RIGHT, one) for one in CODE[8:])
    joined = Join(
        name=CODE[3], left=scan.relation, right=grouped.relation, kind=JoinKind.INNER,
        on=tuple((one, one) for one in CODE[:9]), columns=left + right,
    )  # fmt: skip
    ordered = Sort(name=CODE[4], source=joined.relation, keys=tuple(SortKey(one) for one in CODE))
    dag = Dag((scan, grouped, joined, ordered), (CODE[3], CODE[4]))
    table = pa.table({one: [place, place, 7] for place, one in enumerate(CODE)})
    assert_same_results(dag, made_by(installed_engine(name), dag, {CODE[1]: table}), evaluate(dag, {CODE[1]: table}))


@on_each_engine
def test_black_boxes_are_for_their_engine_alone(name: str) -> None:
    scan = read(f"{SCAN}RESULTS t\n").operators[0]
    columns = Schema.of(n=Type.INTEGER)
    box = BlackBox(name="b", read=(scan.relation,), columns=columns, engine="other", code="x")
    with pytest.raises(Inexpressible, match="BLACK BOX b"):
        engine(name).generate(Dag((scan, box), ("b",)))


@pytest.mark.parametrize("name", ["datafusion", "duckdb"])
def test_black_boxes_of_sql_are_queries_over_the_names_of_relations(name: str) -> None:
    scan = read(f"{SCAN}RESULTS t\n").operators[0]
    box = BlackBox(
        name="b", read=(scan.relation,), columns=Schema.of(n=Type.INTEGER), engine=name,
        code="SELECT SUM(n) AS n FROM t WHERE s <> 'a\n' OR s IS NULL",
    )  # fmt: skip
    made = made_by(installed_engine(name), Dag((scan, box), ("b",)), {"t": T})
    assert made["b"].to_pydict() == {"n": [6]}
    bad = BlackBox(name="b", read=(), columns=Schema.of(n=Type.INTEGER), engine=name, code="SELECT (")
    assert "does not parse" in (engine(name).inexpressible(Dag((bad,), ("b",))) or "")
    for code in ("COPY t TO '/tmp/x'", "a/query.sql", "SELECT 1; SELECT 2"):
        bad = dataclasses.replace(bad, code=code)
        assert "is not one query" in (engine(name).inexpressible(Dag((bad,), ("b",))) or "")


def doubled(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


def test_users_functions_run_in_serial_alone() -> None:
    scan = read(f"{SCAN}RESULTS t\n").operators[0]
    udf = Udf(name="u", read=(scan.relation,), columns=scan.schema, function=f"{__file__}:doubled")
    dag = Dag((scan, udf), ("u",))
    expected = evaluate(dag, {"t": T}, functions={udf.function: doubled})
    assert_same_results(dag, made_by(engine("serial"), dag, {"t": T}), expected)
    with pytest.raises(Inexpressible, match="duckdb cannot do UDF u"):
        engine("duckdb").generate(dag)


@pytest.mark.parametrize("name", list(engines()))
def test_an_engine_is_named_as_its_module_and_imports_nothing_heavy(name: str) -> None:
    one = engine(name)
    assert isinstance(one, Engine) and one.name == name
    assert one.packages and one.extra.startswith("workflow")
    assert (one in installed()) == (one.version() is not None)


def test_unknown_and_missing_engines_are_told() -> None:
    with pytest.raises(UnknownEngine, match="is duckdb meant"):
        engine("duckbd")

    class Missing(type(engine("duckdb"))):  # type: ignore[misc]
        packages = ("there-is-no-such-package",)

    with pytest.raises(EngineMissing, match="needs there-is-no-such-package"):
        Missing().check_installed()


@on_each_engine
def test_scripts_parse_and_name_each_operator(name: str) -> None:
    source = engine(name).generate(page_rank())
    ast.parse(source)
    for operator in page_rank().operators:
        assert f"# {operator.name} = {operator.keyword}" in source
    assert max(map(len, source.split("\n"))) <= 140


@on_each_engine
def test_names_that_an_engine_might_give_its_files(name: str) -> None:
    scans = "\"file 2\" = SCAN 't' (n INTEGER)\n\"file 1\" = SCAN 'u' (n INTEGER)\n"
    agrees(name, f'{scans}r = UNION ALL "file 2", "file 1"\nRESULTS r\n', u=T.slice(0, 1))
