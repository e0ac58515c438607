"""Errors of types point at the operand that does not fit."""

import pytest

from frontends.workflow.errors import TypeMismatch
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.sources import Source

TABLES = {
    "t": Schema.of(a=Type.INTEGER, s=Type.STRING),
    "u": Schema.of(k=Type.STRING, v=Type.DOUBLE),
    "edges": Schema.of(src=Type.INTEGER, dst=Type.INTEGER),
    "vertices": Schema.of(id=Type.INTEGER, value=Type.STRING),
}
BEER = "CREATE RELATION t WITH COLUMNS (INTEGER, STRING), CREATE RELATION u WITH COLUMNS (STRING, DOUBLE),\n"
LINDI = "def workflow(lindi):\n    t = lindi.table('t')\n    return t."
GAS = """GATHER = {{
  {gather}
}}
APPLY = {{
  MUL [vertex_value, 2]
}}
{scatter}
ITERATION_STOP = (iteration < 2)
ITERATION = {{
  SUM [iteration, 1]
}}
"""


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("hive", "SELECT a,\n  a + ‸s AS x\nFROM t AS r;"),
        ("hive", "SELECT a FROM t WHERE a > 1 AND\n s > ‸2 AS r;"),
        ("hive", "SELECT a FROM t WHERE s > ‸1 + 1 AS r;"),
        ("hive", "SELECT SUM(‸s) AS x, a FROM t GROUP BY a AS r;"),
        ("hive", "SELECT a, AVG(‸s + 1) AS m FROM t GROUP BY a AS r;"),
        ("hive", "SELECT a FROM t GROUP BY a HAVING SUM(‸s) > 3 AS r;"),
        ("hive", "SELECT a FROM t WHERE ‸s AS r;"),
        ("hive", "SELECT CASE WHEN a > 1 THEN s ELSE ‸a END AS x FROM t AS r;"),
        ("hive", "SELECT a FROM t WHERE a IN (1, ‸'x') AS r;"),
        ("hive", "SELECT a FROM t WHERE s BETWEEN 'a' AND ‸3 AS r;"),
        ("hive", "SELECT a * 2 + -‸s AS x FROM t AS r;"),
        ("hive", "SELECT COALESCE(s, 'x', ‸1.5) AS x FROM t AS r;"),
        ("beer", "MUL [‸t_1, 2] FROM (t) AS r"),
        ("beer", "SELECT [t_0] FROM (t)\n WHERE [t_0 > 1 AND t_1 > ‸5] AS r"),
        ("beer", "AGG [‸t_1, +] FROM (t) GROUP BY [t_0] AS r"),
        ("beer", "(t) JOIN (u) ON t_0 AND ‸u_0 AS r"),
        ("lindi", "where('a > 1 AND s > ‸2')"),
        ("lindi", "select(\n        {'x': 'a + ‸s'},\n    )"),
        (
            "gas",
            GAS.format(gather="SUM (vertex_value)", scatter="SCATTER = {\n  DIV [‸vertex_value, vertex_degree]\n}"),
        ),
        ("gas", GAS.format(gather="SUM (‸vertex_value)", scatter="")),
    ],
)
def test_the_caret_is_at_the_operand(language: str, text: str) -> None:
    whole = {"beer": BEER, "lindi": LINDI}.get(language, "") + text
    before, _, after = whole.partition("‸")
    with pytest.raises(TypeMismatch) as error:
        Source(language, before + after, "w").dag(TABLES)
    line = before.rpartition("\n")[2]
    assert error.value.at is not None
    assert (error.value.at.line, error.value.at.column) == (before.count("\n") + 1, len(line) + 1)
    assert error.value.lines[-1] == " " * len(line) + "^"


def test_an_expression_that_does_not_stand_in_the_call_is_pointed_at_as_a_whole() -> None:
    text = LINDI.replace("return t.", "c = 'a + s'\n    return t.select({'x': c})")
    with pytest.raises(TypeMismatch) as error:
        Source("lindi", text, "w").dag(TABLES)
    assert error.value.at is not None
    assert (error.value.at.line, error.value.at.column) == (4, 12)


def test_in_the_intermediate_representation_too() -> None:
    with pytest.raises(TypeMismatch) as error:
        read("t = SCAN 't' (a INTEGER, s STRING)\nr = SELECT t WHERE {a > 1 AND a = s}\nRESULTS r", "w")
    assert error.value.at is not None
    assert (error.value.at.line, error.value.at.column) == (2, 35)
