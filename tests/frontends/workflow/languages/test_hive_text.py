"""What a HiveQL text is: statements, names, errors with their places."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.workflow.errors import (
    InvalidSyntax,
    InvalidWorkflow,
    NameTaken,
    NotSupported,
    TooLarge,
    TypeMismatch,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.ir.dag import Aggregate, Column, Join, Scan
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages import hive_statements
from frontends.workflow.languages.hive import parse
from tests.support import tiny_tpch

SCHEMAS = {
    "t": Schema.of(a=Type.INTEGER, b=Type.INTEGER, s=Type.STRING, x=Type.DOUBLE),
    "u": Schema.of(a=Type.INTEGER, c=Type.INTEGER, s=Type.STRING),
}

# ---- statements and names --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("SELECT a FROM t", ["result"]),
        ("SELECT a FROM t; SELECT b FROM t;", ["result", "result_2"]),
        ("SELECT a FROM t AS x", ["x"]),
        ("SELECT a FROM t WHERE a > 1 AS x; SELECT b FROM t AS y", ["x", "y"]),
        ("SELECT a FROM t AS x; SELECT a FROM x AS y", ["y"]),
        ("SELECT x.a FROM t AS x", ["result"]),  # It is the table's: a qualifier.
        ("SELECT `x`.a FROM t AS X", ["result"]),
        ("SELECT a FROM (SELECT a FROM t) AS x", ["x"]),
        ("SELECT a FROM t AS `two words`", ["two words"]),
        ("SELECT 'AS x; --' AS y FROM t -- ; AS z\n AS x", ["x"]),
        ("SELECT a /* ; */ FROM t", ["result"]),
        ("CREATE TABLE x AS SELECT a FROM t", ["x"]),
        ("CREATE TEMPORARY TABLE x STORED AS ORC AS SELECT a FROM t AS y", ["x"]),
        ("CREATE VIEW x AS SELECT a FROM t", ["x"]),
        ("INSERT OVERWRITE TABLE x SELECT a FROM t", ["x"]),
        ("WITH x AS (SELECT a FROM t) SELECT a FROM x", ["result"]),
        ("SELECT a FROM t AS result; SELECT b FROM t", ["result", "result_2"]),
        ("t JOIN u ON t.a = u.a", ["result"]),
    ],
)
def test_names_of_results(text: str, results: list[str]) -> None:
    assert list(parse(text, SCHEMAS).results) == results


def test_a_name_is_bound_anew_and_its_last_value_has_the_name_itself() -> None:
    dag = parse("SELECT a, b FROM t AS x; SELECT b FROM X AS x; SELECT b FROM x AS y", SCHEMAS)
    assert dag.names == ("t", "x_2", "x", "y")
    assert dag.operator("y").inputs == ("x",)
    assert dag.operator("x").inputs == ("x_2",)


def test_a_value_that_was_bound_anew_before_anybody_read_it_is_no_result() -> None:
    dag = parse("SELECT b FROM u JOIN t ON t.a = u.a AS x; SELECT a FROM t AS x", SCHEMAS)
    assert dag.results == ("x",)
    assert dag.names == ("t", "x")


def test_a_result_may_have_the_name_of_a_table() -> None:
    dag = parse("SELECT a FROM t AS t", SCHEMAS)
    assert dag.results == ("t",)
    (scan,) = dag.of_type(Scan)
    assert (scan.name, scan.table) == ("t_2", "t")


def test_names_do_not_depend_on_case() -> None:
    dag = parse("select T.A, B as Bee from T where S = 'x'", SCHEMAS)
    assert dag.operator("result").schema.names == ("a", "Bee")


def test_keywords_and_spaces_in_names() -> None:
    schemas = {"order": Schema((Column("select", Type.INTEGER), Column("two words", Type.INTEGER)))}
    dag = parse("SELECT `select`, `two words` AS `from` FROM `order` WHERE `two words` > 1", schemas)
    assert dag.operator("result").schema.names == ("select", "from")


def test_a_table_is_scanned_once_and_one_that_nobody_reads_not_at_all() -> None:
    dag = parse("SELECT a FROM t AS x; SELECT b FROM t AS y", SCHEMAS)
    assert [scan.table for scan in dag.of_type(Scan)] == ["t"]


def test_a_relation_of_with_that_is_read_twice_is_made_once() -> None:
    dag = parse("WITH r AS (SELECT sum(b) AS n FROM t GROUP BY a) SELECT * FROM r x JOIN r y USING (n)", SCHEMAS)
    assert len(dag.of_type(Aggregate)) == 1
    (join,) = dag.of_type(Join)
    assert join.inputs == ("r", "r")


def test_a_bare_join_has_one_of_two_equal_columns_and_names_others_apart() -> None:
    dag = parse("t JOIN u ON t.a = u.a AS x", SCHEMAS)
    assert dag.operator("x").schema.names == ("a", "b", "s", "x", "c", "u_s")


@pytest.mark.rest
def test_a_thousand_columns() -> None:
    wide = Schema(tuple(Column(f"c{number}", Type.INTEGER) for number in range(1000)))
    dag = parse("SELECT * FROM w JOIN t ON w.c7 = t.a", {"w": wide, "t": SCHEMAS["t"]})
    assert len(dag.operator("result").schema) == 1004


# ---- strict ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("t JOIN u ON t.a = u.a", InvalidSyntax),
        ("SELECT a FROM t WHERE a > 1 AS x", InvalidSyntax),
        ("SELECT a, s, count(*) FROM t GROUP BY a AND s", InvalidWorkflow),
        ("SELECT a FROM t AS x; SELECT a FROM x", UnknownRelation),
    ],
)
def test_strict_refuses_what_the_thesis_writes(text: str, error: type[InvalidWorkflow]) -> None:
    parse(text, SCHEMAS)
    with pytest.raises(error):
        parse(text, SCHEMAS, strict=True)


# ---- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "place", "part"),
    [
        ("", InvalidSyntax, "1:1", "no statement"),
        (" ; -- nothing", InvalidSyntax, "1:14", "no statement"),
        ("SELECT a FROM t WHERE 'x", InvalidSyntax, "1:23", "a string does not end"),
        ("SELECT a FROM t /* x", InvalidSyntax, "1:17", "a comment does not end"),
        ("SELECT a FROM t)", InvalidSyntax, "1:16", ") without ("),
        ("SELECT a\nFROM t\nWHERE a b", InvalidSyntax, "3:9", "Unexpected token"),
        ("SELECT a FROM t;\n  t JOIN u ON ON", InvalidSyntax, "2:15", ""),
        ("SELECT", InvalidSyntax, "1:1", "a SELECT without columns"),
        ("SELECT a FROM t WHERE", InvalidSyntax, "1:17", "something is missing"),
        ("SELECT year() FROM t", InvalidSyntax, "1:1", "lacks an argument"),
        ("SELECT a FROM tt", UnknownRelation, "1:15", "there is no relation tt; is t meant?"),
        ("SELECT t.a FROM t JOIN u ON v.a = u.a", UnknownRelation, "1:29", "there is no relation v"),
        ("SELECT t.a, u.s FROM t LEFT SEMI JOIN u ON t.a = u.a", UnknownRelation, "1:13", "there is no relation u"),
        ("SELECT a,\n  bb FROM t", UnknownColumn, "2:3", "there is no column bb; is b meant?"),
        ("SELECT a\nFROM t\nWHERE b >\n  bb", UnknownColumn, "4:3", "there is no column bb"),
        ("SELECT a +\n  sum(bb) FROM t GROUP BY a", UnknownColumn, "2:7", "there is no column bb"),
        ("SELECT max(a) FROM t HAVING max(b) > 1 AND min(\nt.bb) > 1", UnknownColumn, "2:1", "there is no column bb"),
        ("SELECT t.a FROM t JOIN u ON t.a =\n u.bb", UnknownColumn, "2:2", "there is no column bb"),
        ("SELECT a +\n frobnicate(b) FROM t", NotSupported, "2:2", "the function frobnicate"),
        ("SELECT t.zz FROM t", UnknownColumn, "1:8", "there is no column zz; columns: a, b, s, x"),
        ("SELECT * FROM t JOIN u USING (b)", UnknownColumn, "1:31", "there is no column b"),
        ("SELECT a FROM t, u", InvalidWorkflow, "1:8", "several columns a: write t.a or u.a"),
        ("SELECT 1 AS one, a FROM t, t", NameTaken, "1:28", "there is a relation t already"),
        ("SELECT * FROM t JOIN u ON t.a = u.a", NameTaken, "1:8", "there is a column a already"),
        ("SELECT a FROM t WHERE a = s", TypeMismatch, "1:27", "a = s has to do with INTEGER and STRING"),
        ("SELECT b FROM t JOIN u ON t.a = u.s", TypeMismatch, "1:27", "a, INTEGER, is compared with"),
        ("SELECT a FROM t WHERE b", TypeMismatch, "1:23", "is INTEGER, not BOOLEAN"),
        ("SELECT sum(s) FROM t", TypeMismatch, "1:12", "SUM needs numbers"),
        ("SELECT a FROM t UNION SELECT s FROM t", TypeMismatch, "1:30", "columns differ"),
        ("SELECT a FROM t GROUP BY b", InvalidWorkflow, "1:8", "a is neither grouped by nor aggregated"),
        ("SELECT a FROM t GROUP BY sum(b)", InvalidWorkflow, "1:26", "GROUP BY an aggregate"),
        ("SELECT a FROM t ORDER BY 3", InvalidWorkflow, "1:26", "the SELECT has the columns 1 to 1"),
        ("SELECT a FROM t WHERE a IN (SELECT a, c FROM u)", InvalidWorkflow, "1:36", "one column"),
    ],
)
def test_errors_say_where(text: str, error: type[InvalidWorkflow], place: str, part: str) -> None:
    with pytest.raises(error) as raised:
        parse(text, SCHEMAS, "shop.hql")
    assert str(raised.value).startswith(f"shop.hql:{place}: ")
    assert part in raised.value.reason


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("DROP TABLE t", "a statement that begins with DROP"),
        ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT sum(b) OVER (PARTITION BY a) FROM t", "a window function (OVER)"),
        ("SELECT a FROM t LATERAL VIEW explode(s) e AS y", "LATERALS in a SELECT"),
        ("SELECT a, count(*) FROM t GROUP BY a WITH ROLLUP", "GROUP BY ROLLUP"),
        ("SELECT a FROM t SORT BY a", "SORT in a SELECT"),
        ("SELECT a FROM t ORDER BY a NULLS FIRST", "NULLS FIRST"),
        ("SELECT a FROM t ORDER BY b", "ORDER BY b, which is no column of the SELECT,"),
        ("SELECT a FROM t LIMIT 3 OFFSET 2", "OFFSET"),
        ("SELECT a FROM t LIMIT 1 + 1", "LIMIT 1 + 1: anything but a whole number"),
        ("SELECT t.a FROM t FULL OUTER JOIN u ON t.a = u.a", "FULL OUTER JOIN"),
        ("SELECT t.a FROM t NATURAL JOIN u", "NATURAL JOIN"),
        ("SELECT t.a FROM t LEFT JOIN u ON t.a < u.a", "a condition of an outer join"),
        ("SELECT t.a FROM t LEFT JOIN u ON u.c = 1", "an outer join without an equality of its sides"),
        ("SELECT 1 AS x", "a SELECT without FROM"),
        ("SELECT a FROM shop.t", "a table of a database"),
        ("SELECT median(a) FROM t", "the aggregate median"),
        ("SELECT sum(DISTINCT a) FROM t", "sum(DISTINCT …)"),
        ("SELECT count(a, b) FROM t", "EXPRESSIONS in COUNT"),
        ("SELECT count(DISTINCT a, b) FROM t", "count(DISTINCT …) of several columns"),
        ("SELECT CAST(s AS DATE FORMAT 'YYYY') FROM t", "in an expression"),
        ("SELECT 1 FROM t HAVING 1 = 1", "HAVING without GROUP BY or aggregates"),
        ("SELECT frobnicate(a) FROM t", "the function frobnicate"),
        ("SELECT a DIV 2 FROM t", "DIV, the division of whole numbers,"),
        ("SELECT a FROM t WHERE s RLIKE 'x'", "REGEXPLIKE in an expression"),
        ("SELECT a FROM t WHERE a > ALL (SELECT c FROM u)", "ALL of a subquery"),
        ("SELECT a FROM t WHERE b = 1 OR a IN (SELECT a FROM u)", "IN of a subquery that is not a condition by itself"),
        ("SELECT a FROM t WHERE b = (SELECT c FROM u)", "a subquery as a value that is not one aggregate"),
        ("SELECT a FROM t WHERE b = (SELECT sum(c) FROM u WHERE u.a < t.a)", "another correlated condition"),
        ("SELECT a FROM t WHERE a IN (SELECT t.b FROM u)", "correlated elsewhere than in its WHERE"),
        ("SELECT a FROM t WHERE a IN (SELECT max(c) FROM u WHERE u.s = t.s GROUP BY a)", "reads columns of the block"),
        ("SELECT a FROM t WHERE EXISTS (SELECT * FROM u WHERE u.c = 1 OR t.a = 2)", "that is no comparison"),
        (
            "SELECT a FROM t WHERE EXISTS (SELECT * FROM u WHERE EXISTS (SELECT * FROM u v WHERE v.c = t.b))",
            "t.b of a block further out",
        ),
        ("SELECT a FROM t INTERSECT ALL SELECT a FROM u", "INTERSECT ALL"),
        ("INSERT INTO TABLE x SELECT a FROM t", "INSERT INTO"),
        ("CREATE TABLE x (a INT)", "CREATE TABLE without a query"),
        ("WITH RECURSIVE r AS (SELECT a FROM t) SELECT a FROM r", "WITH RECURSIVE"),
        ("FROM t INSERT OVERWRITE TABLE x SELECT a", "the statement MULTITABLEINSERTS"),
    ],
)
def test_what_is_not_supported_is_named(text: str, construct: str) -> None:
    with pytest.raises(NotSupported, match=re.escape(construct)) as raised:
        parse(text, SCHEMAS)
    assert raised.value.at is not None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT " + "(" * 70 + "a" + ")" * 70 + " FROM t", "parentheses within each other"),
        ("SELECT a FROM t;" * (hive_statements.STATEMENTS_MAX + 1), "statements"),
        (" " * (hive_statements.TEXT_CHARS_MAX + 1), "characters of a HiveQL text"),
    ],
)
def test_limits(text: str, what: str) -> None:
    with pytest.raises(TooLarge, match=what):
        parse(text, SCHEMAS)


def test_a_condition_of_many_parts() -> None:
    many = " OR ".join(f"a = {number}" for number in range(200))
    assert parse(f"SELECT a FROM t WHERE {many}", SCHEMAS).results == ("result",)
    with pytest.raises(InvalidWorkflow, match=r"levels|nested"):
        parse(f"SELECT {' + '.join(['a'] * 200)} FROM t", SCHEMAS)


# ---- any text --------------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[4] / "examples" / "workflow"
TEXTS = [
    *(path.read_text("utf-8") for path in sorted(EXAMPLES.rglob("*.hql"))),
    "SELECT t.a, c FROM t LEFT JOIN u ON t.a = u.a AND c > 2 WHERE b NOT IN (SELECT c FROM u) AS r; SELECT * FROM r",
    "t LEFT SEMI JOIN u ON t.a = u.a AS v; SELECT s, avg(x) FROM v GROUP BY s AND a HAVING max(x) > 2 ORDER BY 1",
    "SELECT DISTINCT year(to_date(s)), (SELECT count(*) FROM u WHERE u.a = t.a) FROM t UNION ALL SELECT a, c FROM u",
    "CREATE TABLE z AS SELECT CASE WHEN a = 1 THEN date_add('2020-01-01', 3) END AS d FROM t; SELECT nvl(d, d) FROM z",
]
CHARS_MAX = 700
"""Of the texts that are changed: longer ones take long, and have nothing else."""
TOKENS = [re.findall(r"\s+|\w+|'[^']*'|.", text, re.DOTALL) for text in TEXTS if len(text) <= CHARS_MAX]
STRAY = "OVER LATERAL VIEW USING FULL ANTI EXCEPT INTERSECT ROLLUP 1e400 `x` ' \" ` /* -- { } [ ] @ $ ? : & | ^ ~ ü \0"
WORDS = sorted({token for text in TOKENS for token in text if not token.isspace()}) + STRAY.split(" ")


@given(st.sampled_from(TOKENS), st.integers(0, 2**32), st.integers(1, 6))
def test_any_text_is_a_workflow_or_refused_in_words(tokens: list[str], seed: int, edits: int) -> None:
    chance = random.Random(seed)
    changed = list(tokens)
    for _ in range(edits):
        place = chance.randrange(len(changed))
        end = place + chance.choice((0, 1, 1, 5))
        changed[place:end] = [" ", chance.choice(WORDS), " "] if chance.random() < 0.6 else []
        changed = changed or [" "]
    text = "".join(changed)
    try:
        parse(text, SCHEMAS | tiny_tpch.schemas(), strict=chance.random() < 0.2)
    except InvalidWorkflow as error:
        assert error.at is not None
        assert error.reason in str(error)
