"""Which relations the scripts of SQL engines keep as tables, and which are parts of the statement that reads them."""

import re

import pyarrow as pa
import pytest

from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES
from frontends.workflow.engines.sql import QUERIES_MAX
from frontends.workflow.ir.reading import read
from tests.support.workflow_dags import Case
from tests.support.workflow_engines import assert_agrees, installed_engine

SCAN = "t = SCAN 't' (a INTEGER, b INTEGER)\n"
TWICE = f"{SCAN}u = AGGREGATE t BY (a) TO (b = SUM b)\nv = SELECT u WHERE {{a > 1}}\nw = UNION ALL u, v\n"
LOOP = (
    f"{SCAN}u = AGGREGATE t BY (a) TO (b = SUM b)\n"
    "l = WHILE (u) CARRY (n = more) AT MOST 3 DO\n  n = INPUT (a INTEGER, b INTEGER)\n"
    "  more = ARITHMETIC n SET b = {b + 1}\n  RESULTS more\nEND\nr = LOOP RESULT l OF n (a INTEGER, b INTEGER)\n"
    "w = UNION ALL r, u\nRESULTS w\n"
)


def kept(text: str, name: str = "duckdb", *, merge: bool = True) -> tuple[set[str], set[str]]:
    """The tables of the script, and what its statements evaluate once."""
    script = engine(name).generate(read(text), ALL_RULES if merge else ALL_RULES.off("merge"))
    return set(re.findall(r'db\.table\("(\w+)"', script)), set(re.findall(r"(\w+) AS MATERIALIZED", script))


@pytest.mark.parametrize(
    ("text", "tables", "once"),
    [
        (f"{TWICE}RESULTS w\n", set(), {"u"}),
        (f"{TWICE}RESULTS u, w\n", {"u"}, set()),  # A result is a statement.
        (f"{TWICE}x = SELECT u WHERE {{a > 2}}\nRESULTS w, x\n", {"u"}, set()),  # Two results read it.
        (f"{TWICE}x = UNION ALL w, w\nRESULTS x\n", set(), {"u", "w"}),
        (f"{TWICE}x = UNION ALL w, w\ny = SELECT w WHERE {{a > 2}}\nRESULTS x, y\n", {"w"}, {"u"}),
        (f"{SCAN}u = UNION ALL t, t\nRESULTS u\n", set(), set()),  # Files are views.
    ],
)
def test_what_one_statement_reads_more_than_once_is_evaluated_in_it(
    text: str, tables: set[str], once: set[str]
) -> None:
    assert kept(text) == (tables, once)


def test_what_a_loop_reads_is_a_table() -> None:
    tables, once = kept(LOOP)
    assert "u" in tables and not once


@pytest.mark.parametrize("name", ["datafusion", "pyspark"])
def test_engines_that_cannot_be_told_keep_tables(name: str) -> None:
    assert kept(f"{TWICE}RESULTS w\n", name) == ({"u"}, set())


def test_without_merging_all_are_tables() -> None:
    assert kept(f"{TWICE}RESULTS w\n", merge=False) == ({"t", "u", "v", "w"}, set())


def test_statements_do_not_grow_beyond_what_an_engine_is_given_at_once() -> None:
    chain = "".join(f"s{n + 1} = UNION ALL s{n}, s{n}\n" for n in range(QUERIES_MAX))
    tables, once = kept(f"{SCAN}s0 = SELECT t WHERE {{a > 1}}\n{chain}RESULTS s{QUERIES_MAX}\n")
    assert len(tables) == QUERIES_MAX and not once


@pytest.mark.parametrize("text", [f"{TWICE}x = UNION ALL w, w\ny = SELECT w WHERE {{a > 2}}\nRESULTS x, y\n", LOOP])
def test_the_answers_are_the_same(text: str) -> None:
    table = pa.table({"a": [1, 2, 2, 3, None], "b": [5, 6, 7, None, 9]})
    assert_agrees(installed_engine("duckdb"), Case(read(text), {"t": table}))
