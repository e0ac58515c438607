"""What each engine takes, as the engines say themselves: `python -m benchmarks.workflow.matrix` prints the tables of
docs/workflow-engines.md.

Each point is a small job, about which every engine is asked, installed or not. Engines for graphs take loops alone: for
them a scalar is asked about within one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import click

from frontends.workflow.engines import engines
from frontends.workflow.engines.base import Engine, Rules
from frontends.workflow.ir.dag import BlackBox, Dag, Udf
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.types import Schema, Type

YES, IN_LOOPS, NO = "yes", "in loops", "–"
SCAN = "t = SCAN 't' (n INTEGER, x DOUBLE, s STRING, b BOOLEAN, d DATE)\n"
GRAPH_LOOP = """\
edges = INPUT (src INTEGER, dst INTEGER)
vertices = INPUT (id INTEGER, x DOUBLE, n INTEGER)
loop = WHILE (edges, vertices) CARRY (vertices = r) AT MOST 3 DO
  edges = INPUT (src INTEGER, dst INTEGER)
  vertices = INPUT (id INTEGER, x DOUBLE, n INTEGER)
  sent = JOIN INNER edges, vertices ON (src = id) TO (dst = LEFT dst, x = RIGHT x, n = RIGHT n)
  gathered = AGGREGATE sent BY (dst) TO (x = SUM x, n = MAX n)
  r = PROJECT gathered TO (id = {{dst}}, x = {{{x}}}, n = {{{n}}})
  RESULTS r
END
left = LOOP RESULT loop OF vertices (id INTEGER, x DOUBLE, n INTEGER)
RESULTS left
"""
LOOP = """\
v = VALUES (n INTEGER) ROWS (({{0}}))
loop = WHILE (v) CARRY (v = more){test} AT MOST 3 DO
  v = INPUT (n INTEGER)
  {body}more = ARITHMETIC {last} SET n = {{n + 1}}
  RESULTS more
END
left = LOOP RESULT loop OF v (n INTEGER)
RESULTS left
"""
WITHIN = """\
inner = WHILE (v) CARRY (w = most) AT MOST 2 DO
    w = INPUT (n INTEGER)
    most = ARITHMETIC w SET n = {n * 2}
    RESULTS most
  END
  u = LOOP RESULT inner OF w (n INTEGER)
  """


def _over_a_table(made: str) -> Dag:
    return read(f"{SCAN}r = {made}\nRESULTS r\n")


@dataclass(frozen=True)
class Point:
    """What is asked about, and the job for an engine."""

    title: str
    job: Callable[[Engine], Dag]

    @classmethod
    def operator(cls, title: str, made: str) -> Point:
        """The operator that makes `r` of the table `t`."""
        return cls(title, lambda engine: _over_a_table(made))

    @classmethod
    def text(cls, title: str, text: str) -> Point:
        """A whole job."""
        return cls(title, lambda engine: read(text))

    def answer(self, engine: Engine) -> str:
        """Whether the engine takes it."""
        return YES if engine.inexpressible(self.job(engine)) is None else NO


def _udf(engine: Engine) -> Dag:
    table = read(f"{SCAN}RESULTS t\n").operators[0]
    udf = Udf(name="r", read=(table.relation,), columns=table.schema, function="users.py:function")
    return Dag((table, udf), ("r",))


def _black_box(engine: Engine) -> Dag:
    table = read(f"{SCAN}RESULTS t\n").operators[0]
    columns = Schema.of(n=Type.INTEGER)
    box = BlackBox(name="r", read=(table.relation,), columns=columns, engine=engine.name, code="SELECT n FROM t")
    return Dag((table, box), ("r",))


OPERATORS = (
    Point.text("SCAN", f"{SCAN}RESULTS t\n"),
    Point.operator("VALUES", "VALUES (n INTEGER) ROWS (({1}))"),
    Point.operator("SELECT", "SELECT t WHERE {n > 1}"),
    Point.operator("PROJECT", "PROJECT t TO (n = {n})"),
    Point.operator("ARITHMETIC", "ARITHMETIC t SET n = {n + 1}"),
    *(
        Point.operator(f"JOIN {kind}", f"JOIN {kind} t, t ON (n = n) TO (n = LEFT n)")
        for kind in ("INNER", "LEFT", "SEMI", "ANTI")
    ),
    Point.operator("CROSS JOIN", "CROSS JOIN t, t TO (n = LEFT n)"),
    Point.operator("UNION ALL", "UNION ALL t, t"),
    Point.operator("UNION", "UNION t, t"),
    Point.operator("INTERSECT", "INTERSECT t, t"),
    Point.operator("DIFFERENCE", "DIFFERENCE t, t"),
    Point.operator("DISTINCT", "DISTINCT t"),
    Point.operator(
        "AGGREGATE: SUM, COUNT, MIN, MAX, AVG",
        "AGGREGATE t BY (s) TO (a = SUM n, b = COUNT, c = MIN x, d = MAX x, e = AVG x)",
    ),
    Point.operator("AGGREGATE: COUNT DISTINCT", "AGGREGATE t BY (s) TO (a = COUNT DISTINCT n)"),
    Point.operator("AGGREGATE of all rows", "AGGREGATE t TO (a = SUM n)"),
    Point.operator("SORT", "SORT t BY (n DESC)"),
    Point.operator("TOP", "TOP 3 t BY (n)"),
    Point.text(
        "shuffles by several keys in a job",
        f"{SCAN}u = JOIN INNER t, t ON (n = n) TO (s = LEFT s, x = RIGHT x)\nr = AGGREGATE u BY (s) TO (x = MAX x)\n"
        "RESULTS r\n",
    ),
    Point.text("WHILE: a graph computation", GRAPH_LOOP.format(x="x", n="n")),
    Point.text("WHILE: any other, a number of times", LOOP.format(test="", body="", last="v")),
    Point.text(
        "WHILE: any other, until a condition fails", LOOP.format(test=" TEST FIRST v {n < 2}", body="", last="v")
    ),
    Point.text("WHILE within WHILE", LOOP.format(test="", body=WITHIN, last="u")),
    Point("UDF", _udf),
    Point("BLACK BOX of its own", _black_box),
)


@dataclass(frozen=True)
class ScalarPoint:
    """A scalar over `t`. in_loop: one of its kind over the numbers `x` and `n` of a loop; in_loop_type: its type."""

    title: str
    scalar: str
    in_loop: str | None = None
    in_loop_type: Type = Type.DOUBLE

    def answer(self, engine: Engine) -> str:
        """Whether the engine takes it, or at least in loops that are graph computations."""
        if engine.inexpressible(_over_a_table(f"PROJECT t TO (r = {{{self.scalar}}})")) is None:
            return YES
        if self.in_loop is None:
            return NO
        x, n = (self.in_loop, "n") if self.in_loop_type is Type.DOUBLE else ("x", self.in_loop)
        return IN_LOOPS if engine.inexpressible(read(GRAPH_LOOP.format(x=x, n=n))) is None else NO


def _chosen(condition: str) -> str:
    return f"CASE WHEN {condition} THEN x ELSE 0.5 END"


SCALARS = (
    ScalarPoint("`+ - *`, `-x`, `ABS`", "ABS(-n + x * 2 - 1)", "ABS(-n + x * 2 - 1)"),
    ScalarPoint("`/`", "n / x", "n / x"),
    ScalarPoint("`%`", "n % 3", "n % 3", Type.INTEGER),
    ScalarPoint("`= <> < <= > >=`, `BETWEEN`", "x > 1 OR n BETWEEN 1 AND 3", _chosen("x > 1 OR n BETWEEN 1 AND 3")),
    ScalarPoint("`IS NOT DISTINCT FROM`", "n IS NOT DISTINCT FROM 1", _chosen("n IS NOT DISTINCT FROM 1")),
    ScalarPoint("`AND OR NOT`, `IS NULL`", "NOT b AND n IS NULL", _chosen("NOT x > 1 AND n IS NULL")),
    ScalarPoint("`IN`", "n IN (1, 2)", _chosen("n IN (1, 2)")),
    ScalarPoint("`CASE`, `COALESCE`", "CASE WHEN n > 1 THEN COALESCE(x, 1) END", _chosen("COALESCE(x, 1) > 1")),
    ScalarPoint("`LIKE`", "s LIKE 'a%'"),
    ScalarPoint("`SUBSTRING`", "SUBSTRING(s, 1, 2)"),
    ScalarPoint(r"`\|\|`", "s || 'a'"),
    ScalarPoint("`EXTRACT`", "EXTRACT(YEAR FROM d)"),
    ScalarPoint("`+ INTERVAL`", "d + INTERVAL '1' MONTH"),
    ScalarPoint("CAST among numbers", "CAST(x AS BIGINT)", "CAST(x AS BIGINT)", Type.INTEGER),
    ScalarPoint("CAST of and to texts and days", "CAST(CAST(s AS DATE) AS VARCHAR)"),
)


def operators_table() -> str:
    """Operators, loops and users' code."""
    return _table("", ((point.title, point.answer) for point in OPERATORS))


def scalars_table() -> str:
    """Scalar expressions."""
    return _table("", ((point.title, point.answer) for point in SCALARS))


def rules_table() -> str:
    """What the switches of generated code change."""
    return _table("rule", ((f"`{rule.replace('_', '-')}`", _change(rule)) for rule in Rules.names()))


def _change(rule: str) -> Callable[[Engine], str]:
    return lambda engine: NO if rule in engine.unheeded else "needed" if rule in engine.needed else YES


def reasons() -> str:
    """Why rules change nothing, a line for each reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for engine in engines().values():
        for rule, why in engine.unheeded.items():
            found.setdefault((rule, why), []).append(engine.name)
    return "\n".join(
        f"- `{rule.replace('_', '-')}` on {', '.join(names)}: {why}." for (rule, why), names in sorted(found.items())
    )


def _table(title: str, rows: Iterable[tuple[str, Callable[[Engine], str]]]) -> str:
    known = engines()
    lines = [f"| {title} | {' | '.join(known)} |", "|---" * (len(known) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(answer(one) for one in known.values())} |" for name, answer in rows]
    return "\n".join(lines)


@click.command("matrix", help=__doc__)
def main() -> None:
    """Print the tables."""
    print("\n\n".join([operators_table(), scalars_table(), rules_table(), reasons()]))


if __name__ == "__main__":
    main()
