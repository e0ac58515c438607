"""Random loops that are graph computations, and random graphs for them: with duplicates, nulls and NaN everywhere.

Factors are powers of two, so that doubles are exact, whatever the order of sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    Carried,
    Dag,
    Function,
    Input,
    Join,
    JoinKind,
    LoopCondition,
    Operator,
    Output,
    Project,
    Scan,
    Select,
    Union,
    Values,
    While,
    joined_columns,
    loop_result,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.tables import arrow_schema
from frontends.workflow.ir.types import Column, Schema, Type
from tests.support.workflow_dags import Case

ANY_DOUBLE = (
    "v * w", "w * v", "v / w", "v", "w", "2 * v", "v + w", "k / c", "c * v", "COALESCE(v, w)",
    "CASE WHEN v > w THEN v WHEN v IS NULL THEN 1 END", "CASE WHEN v = w OR k < c THEN w ELSE v END",
    "ABS(v) - 0.5", "1 / 0.0",
)  # fmt: skip
ANY_INTEGER = (
    "k", "c", "k * c", "k + 1", "-c", "CAST(v AS BIGINT)", "CASE WHEN NOT (v BETWEEN w AND 2) THEN k ELSE c END", "1",
)  # fmt: skip
SUM_DOUBLE = ("v * w", "w * v", "v / w", "v", "w", "2 * v", "k / c", "c * v", "1 / 0.0", "(v + 0.5) * w")
SUM_INTEGER = ("k", "c", "k * c", "(k + 1) * c", "-c", "1")
SENT_WHERE = ("w > 0", "v < 1.0", "k <> 0 AND c > 0", "v IS NOT NULL", "w IS NULL OR c = 1")
APART_WHERE = ("w > 0", "v < 1.0", "c > 0", "v IS NOT NULL", "k IN (1, 2)")
OF_GATHERED_DOUBLE = (
    "d",
    "0.5 + 0.5 * d",
    "d / 2",
    "CAST(i AS DOUBLE)",
    "CASE WHEN d > 1 THEN d END",
    "COALESCE(d, 0.25)",
)
OF_GATHERED_INTEGER = ("i", "1", "i + 1", "CASE WHEN d IS NOT DISTINCT FROM 1.0 THEN 2 ELSE i END")
OF_BOTH_DOUBLE = (*OF_GATHERED_DOUBLE, "v", "CASE WHEN d < v THEN d ELSE v END", "COALESCE(d, v)")
OF_BOTH_INTEGER = (*OF_GATHERED_INTEGER, "k", "k + i")
KEYS = {Type.INTEGER: (1, 2, 3, None), Type.STRING: ("a", "", "it's", None)}


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Which messages and functions are drawn."""

    doubles: tuple[str, ...]
    integers: tuple[str, ...]
    where: tuple[str, ...]
    functions: tuple[Function, ...]
    own: bool


ANY = _Kinds(ANY_DOUBLE, ANY_INTEGER, SENT_WHERE, (Function.SUM, Function.MIN, Function.MAX, Function.AVG), own=True)
SUMS = _Kinds(SUM_DOUBLE, SUM_INTEGER, APART_WHERE, (Function.SUM, Function.AVG), own=False)


@st.composite
def graph_cases(draw: st.DrawFn, kinds: _Kinds = ANY) -> Case:
    """A loop, and vertices and edges as its tables."""
    key = draw(st.sampled_from(list(KEYS)))
    vertices = Scan(
        name="vertices",
        table="vertices",
        columns=Schema((Column("id", key), Column("v", Type.DOUBLE), Column("k", Type.INTEGER))),
    )
    edges = Scan(
        name="edges",
        table="edges",
        columns=Schema((Column("src", key), Column("dst", key), Column("w", Type.DOUBLE), Column("c", Type.INTEGER))),
    )
    start = Values(name="start", columns=Schema.of(n=Type.INTEGER), rows=((Scalar("0"),),))
    most = draw(st.integers(1, 3))
    body = _body(draw, vertices.schema, edges.schema, kinds, averages=most == 1)
    loop = While(
        name="loop",
        read=(edges.relation, vertices.relation, start.relation),
        body=body,
        carried=(Carried("vertices", "following"), Carried("count", "next count")),
        condition=draw(st.sampled_from(_conditions(most))),
        iterations_max=most,
    )
    results = [loop_result("left", loop, "vertices"), loop_result("counted", loop, "count")]
    dag = Dag((vertices, edges, start, loop, *results), ("loop", "left", "counted"))
    return Case(dag, {"vertices": draw(_table(vertices.schema)), "edges": draw(_table(edges.schema))})


def _conditions(most: int) -> tuple[LoopCondition | None, ...]:
    return (
        None,
        LoopCondition("count", Scalar(f"n < {most}")),
        LoopCondition("count", Scalar(f"n < {most} AND n >= 0"), tested_first=False),
        LoopCondition("vertices", Scalar("v > 1")),
        LoopCondition("changed", Scalar("v > 1 OR k = 1"), tested_first=False),
    )


def _body(draw: st.DrawFn, vertices: Schema, edges: Schema, kinds: _Kinds, averages: bool) -> Dag:
    before, links = Input(name="vertices", columns=vertices), Input(name="edges", columns=edges)
    count = Input(name="count", columns=Schema.of(n=Type.INTEGER))
    more = Arithmetic(name="next count", source=count.relation, column="n", value=Scalar("n + 1"))
    operators: list[Operator] = [links, before, count, more]
    sides = [links.relation, before.relation]
    on = ("src", "id")
    if draw(st.booleans()):
        sides, on = sides[::-1], ("id", "src")
    sent = Join(name="sent", left=sides[0], right=sides[1], on=(on,), columns=joined_columns(*sides))
    operators.append(sent)
    last: Operator = sent
    if draw(st.booleans()):
        last = Select(name="kept", source=last.relation, condition=Scalar(draw(st.sampled_from(kinds.where))))
        operators.append(last)
    messages = (
        Output.column("dst", "id"),
        Output("x", Scalar(draw(st.sampled_from(kinds.doubles)))),
        Output("y", Scalar(draw(st.sampled_from(kinds.integers)))),
    )
    last = Project(name="messages", source=last.relation, columns=messages)
    operators.append(last)
    if kinds.own and draw(st.booleans()):
        own = Project(
            name="own",
            source=before.relation,
            columns=(Output.column("id"), Output("x", Scalar("v")), Output("y", Scalar("k + 1"))),
        )
        last = Union(name="all sent", left=last.relation, right=own.relation, all_rows=True)
        operators += [own, last]
    of_doubles = [one for one in kinds.functions if averages or one is not Function.AVG]
    of_integers = [one for one in of_doubles if one is not Function.AVG]
    gathered = Aggregate(
        name="gathered",
        source=last.relation,
        keys=("id",),
        aggregations=(
            Aggregation("d", draw(st.sampled_from(of_doubles)), "x"),
            draw(
                st.sampled_from(
                    [Aggregation("i", one, "y") for one in of_integers]
                    + [Aggregation("i", Function.COUNT, "x"), Aggregation("i", Function.COUNT)]
                )
            ),
        ),
    )
    operators.append(gathered)
    return Dag((*operators, *_applied(draw, before, gathered)), ("following", "next count", "changed"))


def _applied(draw: st.DrawFn, before: Input, gathered: Aggregate) -> list[Operator]:
    """The next vertices: of those that are sent something, or of all."""
    kind = draw(st.sampled_from((None, JoinKind.INNER, JoinKind.LEFT)))
    source: Operator = gathered
    operators: list[Operator] = []
    doubles: tuple[str, ...] = OF_GATHERED_DOUBLE
    integers: tuple[str, ...] = OF_GATHERED_INTEGER
    if kind is not None:
        columns = joined_columns(before.relation, gathered.relation, without=["id"])
        source = Join(
            name="both",
            left=before.relation,
            right=gathered.relation,
            on=(("id", "id"),),
            kind=kind,
            columns=columns,
        )
        operators.append(source)
        doubles, integers = OF_BOTH_DOUBLE, OF_BOTH_INTEGER
    if draw(st.booleans()):
        source = Select(name="some", source=source.relation, condition=Scalar("i > 0 OR d IS NULL"))
        operators.append(source)
    columns_made = (
        Output.column("id"),
        Output("v", Scalar(draw(st.sampled_from(doubles)))),
        Output("k", Scalar(draw(st.sampled_from(integers)))),
    )
    following = Project(name="following", source=source.relation, columns=columns_made)
    changed = Select(name="changed", source=following.relation, condition=Scalar("k >= 0"))
    return [*operators, following, changed]


def _table(schema: Schema) -> st.SearchStrategy[pa.Table]:
    pools = {
        "v": st.integers(-16, 16).map(lambda eighths: eighths / 8) | st.sampled_from((math.nan, math.inf)),
        "w": st.sampled_from((0.5, 1.0, 2.0, -1.0, 0.0, math.nan, math.inf)),
        "k": st.integers(-2, 2),
        "c": st.sampled_from((1, 2, 0, -1)),
    }
    values = [
        st.none() | pools[column.name] if column.name in pools else st.sampled_from(KEYS[column.type])
        for column in schema
    ]
    arrow = arrow_schema(schema)

    def table(rows: list[tuple[object, ...]]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        return pa.table(
            [pa.array(list(one), type=field.type) for one, field in zip(columns, arrow, strict=True)], arrow
        )

    return st.lists(st.tuples(*values), max_size=7).map(table)


def r_mat(scale: int, degree: int, seed: int) -> pa.Table:
    """A graph of 2^scale vertices and `degree` times as many edges (src, dst), of Graph500's probabilities."""
    generator = np.random.default_rng(seed)
    source = np.zeros(degree << scale, np.int64)
    target = source.copy()
    for _ in range(scale):
        quadrant = generator.choice(4, len(source), p=(0.57, 0.19, 0.19, 0.05))
        source, target = source * 2 + quadrant // 2, target * 2 + quadrant % 2
    return pa.table({"src": source, "dst": target})


def shortest_paths(iterations: int) -> Dag:
    """Distances along `edges` (src, dst, cost), from those in `distances` (id, distance), over so many edges."""
    edges = Scan(
        name="edges",
        table="edges",
        columns=Schema.of(src=Type.INTEGER, dst=Type.INTEGER, cost=Type.DOUBLE),
    )
    distances = Scan(name="distances", table="distances", columns=Schema.of(id=Type.INTEGER, distance=Type.DOUBLE))
    links, before = Input(name="edges", columns=edges.schema), Input(name="distances", columns=distances.schema)
    sent = Join(
        name="sent",
        left=links.relation,
        right=before.relation,
        on=(("src", "id"),),
        columns=joined_columns(links.relation, before.relation),
    )
    columns = (Output.column("dst", "id"), Output("distance", Scalar("distance + cost")))
    messages = Project(name="messages", source=sent.relation, columns=columns)
    every = Union(name="every", left=messages.relation, right=before.relation, all_rows=True)
    least = Aggregate(
        name="least",
        source=every.relation,
        keys=("id",),
        aggregations=(Aggregation("distance", Function.MIN, "distance"),),
    )
    loop = While(
        name="loop",
        read=(edges.relation, distances.relation),
        body=Dag((links, before, sent, messages, every, least), ("least",)),
        carried=(Carried("distances", "least"),),
        condition=None,
        iterations_max=iterations,
    )
    return Dag.of_unread((edges, distances, loop, loop_result("paths", loop, "distances")))
