"""Serial: plain Python over lists of tuples, in one thread. It takes every job but black boxes, users' functions
included, so it is the engine of last resort.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import indent
from typing import ClassVar

from frontends.workflow.engines.base import Engine, Rules, beyond, shared_relations
from frontends.workflow.engines.scripts import INDENT, ITERATIONS_EXCEEDED, comment, python_names, script, string_text
from frontends.workflow.engines.serial_scalars import PythonScalar
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    JoinKind,
    LoopResult,
    Operator,
    Project,
    Scan,
    Select,
    Side,
    Sort,
    Top,
    Udf,
    Union,
    Values,
    While,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type
from sparrow_py.distribution import DISTRIBUTION

FUNCTIONS = (
    "average", "boolean_to_text", "both", "called", "coalesce", "comparable", "count", "count_distinct",
    "distinct", "double_to_integer", "either", "greatest", "in_order", "least", "like", "moved", "of",
    "one_nan", "quotient", "rank", "read", "remainder", "same", "table_of", "text_to_date", "text_to_double",
    "text_to_integer", "total", "write",
)  # fmt: skip
"""What scripts may use of `serial_functions`."""
TAKEN = (*FUNCTIONS, "IterationsExceeded", "date", "defaultdict", "goes_on", "groups", "math", "operator", "partners",
         "row", "rows", "there", "_")  # fmt: skip
LINE_CHARS = 100
"""A list of more characters has a line for each item."""
AGGREGATES = {
    Function.SUM: "total",
    Function.AVG: "average",
    Function.MIN: "least",
    Function.MAX: "greatest",
    Function.COUNT: "count",
    Function.COUNT_DISTINCT: "count_distinct",
}
ONE_PASS = (Select, Project, Arithmetic)
"""Operators that need no list of their own."""


class Serial(Engine):
    """Plain Python."""

    name = "serial"
    packages = (DISTRIBUTION,)
    modules = ("frontends.workflow.engines.serial_functions",)
    unheeded: ClassVar[Mapping[str, str]] = {**Engine.unheeded, "infer_types": "all its operators take rows as tuples"}

    merges_all = True

    def inexpressible(self, job: Dag) -> str | None:
        return beyond(self.name, job, without=(BlackBox,))

    def script(self, job: Dag, rules: Rules) -> str:
        body = _Writer(job, rules).job()
        used = {node.id for node in ast.walk(ast.parse("\n".join(body))) if isinstance(node, ast.Name)}
        loops = (ITERATIONS_EXCEEDED,) if "IterationsExceeded" in used else ()
        return script(self.name, job, body, standard=_modules(used), imports=_imports(used), definitions=loops)


def _modules(used: set[str]) -> list[str]:
    return [module for module in ("math", "operator") if module in used]


def _imports(used: set[str]) -> list[str]:
    lines = []
    if "defaultdict" in used:
        lines.append("from collections import defaultdict")
    if "date" in used:
        lines.append("from datetime import date")
    listed = "".join(f"    {one},\n" for one in FUNCTIONS if one in used)
    return [*lines, *([""] if lines else []), f"from frontends.workflow.engines.serial_functions import (\n{listed})"]


class _Writer:
    """Writes one script."""

    def __init__(self, job: Dag, rules: Rules) -> None:
        self._job, self._rules = job, rules
        self._taken = set(TAKEN)
        self._carried: dict[tuple[str, str], str] = {}

    def job(self) -> list[str]:
        names = self._variables(self._job.names)
        lines = self._statements(self._job, names, frozenset())
        for name in self._job.results:
            columns = _columns_text(self._job.operator(name).schema)
            lines += ["", f"write({names[name]}, {columns}, outputs[{string_text(name)}])"]
        return lines

    def _variables(self, names: Iterable[str]) -> dict[str, str]:
        made = dict(python_names(names, taken=self._taken))
        self._taken.update(made.values())
        return made

    def _statements(self, dag: Dag, names: Mapping[str, str], lists: frozenset[str]) -> list[str]:
        """lists: relations that are to be lists, whoever reads them."""
        shared = shared_relations(dag) | lists | {name for loop in dag.of_type(While) for name in loop.inputs}
        lines: list[str] = []
        for operator in dag.operators:
            if dag is not self._job and isinstance(operator, Input):
                continue
            lazily = (
                self._rules.merge
                and self._rules.share_scans
                and isinstance(operator, ONE_PASS)
                and operator.name not in shared
            )
            lines += ["", comment(operator), *self._made(operator, names, lazily)]
        return lines[1:]

    def _made(self, operator: Operator, names: Mapping[str, str], lazily: bool) -> list[str]:
        target, read = names[operator.name], [names[name] for name in operator.inputs]
        if isinstance(operator, Scan | Input):
            return [f"{target} = read(inputs[{string_text(operator.name)}], {_columns_text(operator.schema)})"]
        if isinstance(operator, While):
            return self._loop(operator, names)
        if isinstance(operator, LoopResult):
            return [f"{target} = {self._carried[operator.source.name, operator.carried]}"]
        if isinstance(operator, Select):
            return self._select(operator, target, read[0], lazily)
        if isinstance(operator, Arithmetic):
            operator = operator.as_project()
        if isinstance(operator, Project):
            return self._project(operator, target, read[0], lazily)
        if isinstance(operator, Join):
            return self._join(operator, target, *read)
        if isinstance(operator, Aggregate):
            return self._aggregate(operator, target, *read)
        return [f"{target} = {_EXPRESSIONS[type(operator)](self, operator, *read)}"]

    def _row(self, schema: Schema, taken: Iterable[str] = ()) -> dict[str, str]:
        """A variable for each column."""
        return dict(python_names(schema.names, taken={*self._taken, *taken}))

    # ---- a row at a time ---------------------------------------------------------------------

    def _select(self, one: Select, target: str, read: str, lazily: bool) -> list[str]:
        row = self._row(one.schema)
        test = PythonScalar(one.condition, one.schema, row).text
        loop = f"for {_unpacked(row.values())} in {read} if {test}"
        return [_comprehension(target, _tuple(row.values()), loop, lazily)]

    def _project(self, one: Project, target: str, read: str, lazily: bool) -> list[str]:
        schema = one.source.schema
        row = self._row(schema)
        values = [_plain(PythonScalar(output.value, schema, row).text) for output in one.columns]
        used = {name for output in one.columns for name in output.value.columns}
        loop = f"for {_unpacked(row[name] if name in used else '_' for name in schema.names)} in {read}"
        return [_comprehension(target, _tuple(values), loop, lazily)]

    def values(self, one: Values) -> str:
        rows = [_tuple(PythonScalar(value, one.schema, {}).text for value in row) for row in one.rows]
        return _listed(rows)

    # ---- two relations -----------------------------------------------------------------------

    def _join(self, one: Join, target: str, left: str, right: str) -> list[str]:
        rows, others = self._sides(one)
        key = self._key(one.left.schema, one.left_keys, rows)
        other_key = self._key(one.right.schema, one.right_keys, others)
        there = " and ".join(f"{others[name]} is not None" for name in dict.fromkeys(one.right_keys))
        head = f"for {_unpacked(rows.values())} in {left}"
        made = _tuple((rows if output.side is Side.LEFT else others)[output.column] for output in one.columns)
        unpacked = _unpacked(others.values())
        if not one.kind.pairs:
            sign = "in" if one.kind is JoinKind.SEMI else "not in"
            return [
                f"there = {{{other_key} for {unpacked} in {right} if {there}}}",
                _comprehension(target, made, f"{head} if {key} {sign} there", False),
            ]
        missing = f"[({'None, ' * len(others)})]" if one.kind is JoinKind.LEFT else "()"
        return [
            "partners = defaultdict(list)",
            f"for {unpacked} in {right}:",
            f"{INDENT}if {there}:",
            f"{INDENT * 2}partners[{other_key}].append({_tuple(others.values())})",
            _comprehension(target, made, f"{head} for {unpacked} in partners.get({key}, {missing})", False),
        ]

    def _sides(self, one: Join | CrossJoin) -> tuple[dict[str, str], dict[str, str]]:
        rows = self._row(one.left.schema)
        return rows, self._row(one.right.schema, rows.values())

    def _key(self, schema: Schema, keys: Sequence[str], row: Mapping[str, str]) -> str:
        """The text of a key of these columns: a value, or a tuple of several."""
        parts = [f"one_nan({row[key]})" if schema.column(key).type is Type.DOUBLE else row[key] for key in keys]
        return parts[0] if len(parts) == 1 else _tuple(parts)

    def cross_join(self, one: CrossJoin, left: str, right: str) -> str:
        rows, others = self._sides(one)
        made = _tuple((rows if output.side is Side.LEFT else others)[output.column] for output in one.columns)
        again = f"for {_unpacked(others.values())} in rows"
        loop = f"for rows in [list({right})] for {_unpacked(rows.values())} in {left} {again}"
        return _bracketed(made, loop, False)

    def union(self, one: Union, left: str, right: str) -> str:
        return f"[*{left}, *{right}]" if one.all_rows else f"distinct([*{left}, *{right}])"

    def intersect(self, one: Intersect, left: str, right: str) -> str:
        return f"[row for there in [set(map(comparable, {right}))] for row in distinct({left}) if row in there]"

    def difference(self, one: Difference, left: str, right: str) -> str:
        return f"[row for there in [set(map(comparable, {right}))] for row in distinct({left}) if row not in there]"

    # ---- all rows ----------------------------------------------------------------------------

    def distinct(self, one: Distinct, read: str) -> str:
        return f"distinct({read})"

    def sort(self, one: Sort, read: str) -> str:
        return self._ordered(one, read)

    def _ordered(self, one: Sort | Top, read: str) -> str:
        keys = one.keys if isinstance(one, Sort) else one.all_keys()
        return f"in_order({', '.join([read, *(f'({one.schema.index(k.column)}, {k.descending})' for k in keys)])})"

    def top(self, one: Top, read: str) -> str:
        return f"{self._ordered(one, read)}[:{one.count}]"

    def _aggregate(self, one: Aggregate, target: str, read: str) -> list[str]:
        schema = one.source.schema
        row = self._row(schema)
        columns = list(dict.fromkeys(column.column for column in one.aggregations if column.column is not None))
        used = {*one.keys, *columns}
        head = f"for {_unpacked(row[name] if name in used else '_' for name in schema.names)} in {read}:"
        values = _tuple(row[name] for name in columns)
        made = [self._aggregation(column, columns) for column in one.aggregations]
        if not one.keys:
            gathered = f"rows = [{values} {head[:-1]}]"
            return [gathered, f"{target} = [{_tuple(made)}]"]
        key = self._key(schema, one.keys, row)
        keys = _unpacked((row[name] for name in one.keys), single=False)
        return [
            "groups = defaultdict(list)",
            head,
            f"{INDENT}groups[{key}].append({values})",
            _comprehension(
                target, _tuple([*(row[name] for name in one.keys), *made]), f"for {keys}, rows in groups.items()", False
            ),
        ]

    def _aggregation(self, column: Aggregation, columns: Sequence[str]) -> str:
        if column.column is None:
            return "len(rows)"
        return f"{AGGREGATES[column.function]}(row[{columns.index(column.column)}] for row in rows)"

    def udf(self, one: Udf, *read: str) -> str:
        tables = [
            f"table_of({rows}, {_columns_text(source.schema)})" for rows, source in zip(read, one.read, strict=True)
        ]
        return f"called({string_text(one.function)}, {_listed(tables)}, {_columns_text(one.schema)})"

    # ---- loops -------------------------------------------------------------------------------

    def _loop(self, loop: While, outer: Mapping[str, str]) -> list[str]:
        names, count = self._body_variables(loop, outer)
        starts = [f"{names[one.input]} = {outer[loop.first_value(one.input).name]}" for one in loop.carried]
        condition = loop.condition
        tested = {one.following for one in loop.carried} | ({condition.relation} if condition else set())
        body = self._statements(loop.body, names, frozenset(tested))
        present = ", ".join(names[one.input] for one in loop.carried)
        change = f"{present} = {', '.join(names[one.following] for one in loop.carried)}"
        after = [f"{outer[loop.name]} = [({count},)]"]
        if condition is None:
            head = f"for {count} in range(1, {loop.iterations_max} + 1):"
            return [*starts, f"{count} = 0", head, *_in_block([*body, change]), *after]
        row = self._row(loop.body.operator(condition.relation).schema)
        test = self._any(condition.test, loop.body.operator(condition.relation).schema, row, names[condition.relation])
        following = next((one.following for one in loop.carried if one.input == condition.relation), None)
        again = (
            test
            if following is None
            else self._any(condition.test, loop.body.operator(condition.relation).schema, row, names[following])
        )
        exceeded = [
            f"if {count} == {loop.iterations_max}:",
            f"{INDENT}raise IterationsExceeded({string_text(loop.name)}, {count})",
        ]
        block = _in_block([*exceeded, *body, f"goes_on = {again}", change, f"{count} += 1"])
        first = f"goes_on = {test if condition.tested_first else 'True'}"
        return [*starts, f"{count} = 0", first, "while goes_on:", *block, *after]

    def _body_variables(self, loop: While, outer: Mapping[str, str]) -> tuple[dict[str, str], str]:
        names = {}
        for operator in loop.body.operators:
            if isinstance(operator, Input) and not loop.carries(operator.name):
                names[operator.name] = outer[loop.first_value(operator.name).name]
            else:
                names[operator.name] = next(iter(self._variables([operator.name]).values()))
        self._carried.update({(loop.name, one.input): names[one.input] for one in loop.carried})
        (count,) = self._variables([f"{loop.name}_iterations"]).values()
        return names, count

    def _any(self, test: Scalar, schema: Schema, row: Mapping[str, str], relation: str) -> str:
        text = PythonScalar(test, schema, row).text
        return f"any({_plain(text)} for {_unpacked(row[name] for name in schema.names)} in {relation})"


def _columns_text(schema: Schema) -> str:
    items = [f"{string_text(column.name)}: {string_text(column.type.value)}" for column in schema]
    one_line = f"{{{', '.join(items)}}}"
    return one_line if len(one_line) <= LINE_CHARS else "{\n" + "".join(f"{INDENT}{one},\n" for one in items) + "}"


def _tuple(items: Iterable[str]) -> str:
    listed = list(items)
    one_line = f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
    return one_line if len(one_line) <= LINE_CHARS else "(\n" + "".join(f"{INDENT}{one},\n" for one in listed) + ")"


def _listed(items: Iterable[str]) -> str:
    listed = list(items)
    one_line = f"[{', '.join(listed)}]"
    return one_line if len(one_line) <= LINE_CHARS else "[\n" + "".join(f"{INDENT}{one},\n" for one in listed) + "]"


def _unpacked(names: Iterable[str], single: bool = True) -> str:
    """The target of a `for` over tuples; without `single` one name stands for itself."""
    listed = list(names)
    if len(listed) == 1 and not single:
        return listed[0]
    return _tuple(listed)


def _plain(text: str) -> str:
    """Without parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth, quote = 0, ""
    for place, character in enumerate(text):
        if quote or character in "\"'":
            return text  # Brackets in texts are not told apart here.
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def _comprehension(target: str, made: str, loop: str, lazily: bool) -> str:
    return f"{target} = {_bracketed(made, loop, lazily)}"


def _bracketed(made: str, loop: str, lazily: bool) -> str:
    """A list, or, lazily, what makes its rows when they are read, once."""
    opening, closing = "()" if lazily else "[]"
    line = f"{opening}{made} {loop}{closing}"
    if len(line) <= LINE_CHARS and "\n" not in line:
        return line
    return f"{opening}\n{indent(made, INDENT)}\n{indent(loop, INDENT)}\n{closing}"


def _in_block(lines: Iterable[str]) -> list[str]:
    return [indent(line, INDENT) for line in lines]


_EXPRESSIONS: dict[type[Operator], Callable[..., str]] = {
    Values: _Writer.values,
    CrossJoin: _Writer.cross_join,
    Union: _Writer.union,
    Intersect: _Writer.intersect,
    Difference: _Writer.difference,
    Distinct: _Writer.distinct,
    Sort: _Writer.sort,
    Top: _Writer.top,
    Udf: _Writer.udf,
}

ENGINE = Serial()
