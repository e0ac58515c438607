"""Aggregations as reductions of Spark: what each row is made into, and how two of these become one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from frontends.workflow.engines.pyspark_rdd_elements import NOTHING, Shape, bare
from frontends.workflow.engines.scripts import python_names
from frontends.workflow.ir.dag import Aggregate, Aggregation, Function


@dataclass(frozen=True, slots=True)
class _Part:
    """made: of a column's value; nothing: of no row; merge: a function of two."""

    made: str
    nothing: str
    merge: str


_COUNT = _Part("int({} is not None)", "0", "operator.add")
_COUNT_ROWS = _Part("1", "0", "operator.add")
_SUM = _Part("{}", "None", "plus")
_PARTS: dict[Function, tuple[_Part, ...]] = {
    Function.SUM: (_SUM,),
    Function.COUNT: (_COUNT,),
    Function.AVG: (_SUM, _COUNT),
    Function.MIN: (_Part("{}", "None", "lesser"),),
    Function.MAX: (_Part("{}", "None", "greater"),),
    Function.COUNT_DISTINCT: (_Part("value_set({})", "frozenset()", "operator.or_"),),
}
_RESULTS = {Function.AVG: "average_of({}, {})", Function.COUNT_DISTINCT: "len({})"}
"""What a column is made of its parts, if it is not its part."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """made: the value of a row; nothing: that of no row; merge: the text of a function of two values; element: what
    unpacks a value; columns: {column: expression}."""

    made: Shape
    nothing: Shape
    merge: str
    element: Shape
    columns: dict[str, str]


def reduction(
    one: Aggregate, source: Mapping[str, str], variables: Mapping[str, str], taken: Collection[str]
) -> Reduction:
    """How the aggregations are computed. source: expressions of the columns that are read; variables: of the columns
    that are made; taken: what other variables may not be called."""
    made: list[Shape] = []
    nothing: list[Shape] = []
    unpacking: list[Shape] = []
    merges: list[str] = []
    columns: dict[str, str] = {}
    used = {*taken, *variables.values()}
    for column in one.aggregations:
        parts = _parts(column)
        names = [variables[column.name]]
        if len(parts) > 1:
            names = list(python_names([f"{column.name}_total", f"{column.name}_count"], taken=used).values())
            used |= set(names)
        text = source[column.column] if column.column is not None else ""
        made += [part.made.format(text) for part in parts]
        nothing += [part.nothing for part in parts]
        merges += [part.merge for part in parts]
        unpacking += names
        columns[column.name] = _RESULTS.get(column.function, "{}").format(*names)
    element = bare(unpacking) if unpacking else NOTHING
    return Reduction(bare(made), bare(nothing), _merged(merges), element, columns)


def _parts(column: Aggregation) -> tuple[_Part, ...]:
    return (_COUNT_ROWS,) if column.column is None else _PARTS[column.function]


def _merged(merges: list[str]) -> str:
    if len(merges) == 1:
        return merges[0]
    if not merges:
        return "lambda left, right: left"
    both = ", ".join(f"{merge}(left[{place}], right[{place}])" for place, merge in enumerate(merges))
    return f"lambda left, right: ({both})"
