"""Spark without SQL: RDDs of Python's tuples, as the thesis's listings 3.5 and 3.6 have them.

Rows pass through Python, so it is slower than `pyspark` on nearly everything; it takes the same jobs. What it shows is
what makes generated code fast (§3.4.3, §3.4.4):

- with `share_scans`, operators that work on a row at a time are part of the pass that their reader needs in any case:
  a projection and the keys for the join that follows are one `mapPartitions`. Without it each is a pass by itself;
- with `infer_types`, the next operator takes elements as Spark's joins and reductions make them, and keys them anew in
  one pass. Without it they are made rows first, in a pass by itself;
- without `merge`, each relation is made rows, and kept, before the next operator begins.

Tests count the passes: four maps against two (listings 3.5 and 3.6).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from textwrap import indent

from frontends.workflow.engines.base import Rules, beyond, shared_relations
from frontends.workflow.engines.pyspark_rdd_aggregates import Reduction, reduction
from frontends.workflow.engines.pyspark_rdd_elements import LINE_CHARS_MAX, Elements, Shape, bare, shape_text
from frontends.workflow.engines.pyspark_rdd_joins import PARTNER, Pairing, crossed, joined, key_of, key_part
from frontends.workflow.engines.scripts import (
    INDENT,
    ITERATIONS_EXCEEDED,
    THREADS,
    comment,
    python_names,
    script,
    string_text,
)
from frontends.workflow.engines.serial import FUNCTIONS as SERIAL_FUNCTIONS
from frontends.workflow.engines.serial_scalars import PythonScalar
from frontends.workflow.engines.spark import SESSION, SETTINGS, SparkEngine
from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Input,
    Intersect,
    Join,
    LoopCondition,
    LoopResult,
    Operator,
    Project,
    Scan,
    Select,
    Sort,
    Top,
    Udf,
    Union,
    Values,
    While,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema

FUNCTIONS = (
    "as_key", "average_of", "first_rows", "greater", "kept", "lesser", "plus", "read_rows", "value_set",
)  # fmt: skip
"""What scripts may use of `pyspark_rdd_functions`."""
TAKEN = (*SERIAL_FUNCTIONS, *FUNCTIONS, "IterationsExceeded", "SETTINGS", "SparkSession", "THREADS", "context", "date",
         "frozenset", "goes_on", "left", "math", "operator", PARTNER, "right", "rows", "session", "_")  # fmt: skip

CONSTANTS_CHARS_MAX = 80
"""Constants and schemas of more characters have a line for each row or column."""
STEPS_MAX = 40
"""Conditions and computed columns of one pass; then a pass by itself, since Python compiles no more than so much."""


class PySparkRdd(SparkEngine):
    """Spark's RDDs."""

    name = "pyspark_rdd"

    merges_all = True

    def inexpressible(self, job: Dag) -> str | None:
        return beyond(self.name, job, without=(Udf, BlackBox))

    def script(self, job: Dag, rules: Rules) -> str:
        body = _Writer(job, rules).written()
        used = {node.id for node in ast.walk(ast.parse("\n".join(body))) if isinstance(node, ast.Name)}
        loops = (ITERATIONS_EXCEEDED,) if "IterationsExceeded" in used else ()
        return script(
            self.name,
            job,
            body,
            standard=["os", *(module for module in ("math", "operator") if module in used)],
            imports=_imports(used),
            definitions=(THREADS, SETTINGS, SESSION, *loops),
        )


def _imports(used: set[str]) -> list[str]:
    lines = ["from datetime import date"] if "date" in used else []
    lines += ["from pyspark.sql import SparkSession", ""]
    for module, functions in (("pyspark_rdd_functions", FUNCTIONS), ("serial_functions", SERIAL_FUNCTIONS)):
        listed = ", ".join(one for one in functions if one in used)
        if listed:
            lines.append(f"from frontends.workflow.engines.{module} import {listed}")
    return lines


@dataclass(slots=True)
class _Scope:
    """A job, or the body of a loop. names: variables of relations; kept: relations that are evaluated where they stand;
    waiting: operators that have no statement yet, since they are part of the pass of what reads them."""

    dag: Dag
    names: dict[str, str]
    kept: frozenset[str]
    relations: dict[str, Elements] = field(default_factory=dict)
    waiting: dict[str, list[Operator]] = field(default_factory=dict)


class _Writer:
    """Writes the body of `run` for one job."""

    def __init__(self, job: Dag, rules: Rules) -> None:
        self._job, self._rules = job, rules
        self._taken = set(TAKEN)
        self._lines: list[str] = []
        self._depth = 0
        self._left: dict[tuple[str, str], Elements] = {}
        self._scope = _Scope(job, self._variables(job.names), self._kept(job, ()))

    def written(self) -> list[str]:
        self._emit("context = session().sparkContext")
        self._operators()
        self._emit("")
        for name in self._job.results:
            self._result(self._job.operator(name))
        return self._lines

    def _emit(self, *lines: str) -> None:
        self._lines += [indent(line, INDENT * self._depth) for line in lines]

    def _variables(self, names: Iterable[str]) -> dict[str, str]:
        made = dict(python_names(names, taken=self._taken))
        self._taken.update(made.values())
        return made

    def _row(self, schema: Schema) -> dict[str, str]:
        """A variable for each column."""
        return dict(python_names(schema.names, taken=self._taken))

    def _kept(self, dag: Dag, more: Iterable[str]) -> frozenset[str]:
        """Relations that are evaluated where they stand, and once. more: what is, too."""
        if not self._rules.merge:
            return frozenset(dag.names)
        read_by_loops = {name for loop in dag.of_type(While) for name in loop.inputs}
        shared = shared_relations(dag)
        if not self._rules.share_scans:
            shared -= {scan.name for scan in dag.of_type(Scan)}
        return shared | read_by_loops | frozenset(more)

    # ---- relations ---------------------------------------------------------------------------

    def _operators(self) -> None:
        for operator in self._scope.dag.operators:
            if operator.name not in self._scope.relations:
                _RULES[type(operator)](self, operator)

    def _read(self, operator: Operator) -> list[Elements]:
        return [self._scope.relations[name] for name in operator.inputs]

    def _as(self, name: str, elements: Elements, made: Shape) -> str:
        """An RDD of what is `made` of the relation's elements. What waits for a pass gets its statement now."""
        waiting = self._scope.waiting.pop(name, [])
        expression = elements.passed(made)
        if not waiting:
            return expression
        self._emit("", *map(comment, waiting), f"{self._scope.names[name]} = {expression}")
        return self._scope.names[name]

    def _rows(self, name: str) -> str:
        """An RDD of the relation's rows."""
        elements = self._scope.relations[name]
        return self._as(name, elements, elements.row)

    def _store(self, operator: Operator, elements: Elements, before: Iterable[Operator] = ()) -> None:
        """The statement that makes the relation, by an expression whose elements are these. before: what is done in the
        same pass."""
        name, keep = operator.name, operator.name in self._scope.kept
        expression = elements.rdd
        flattened = not self._rules.infer_types and bool(self._scope.dag.consumers(name))
        if flattened or not self._rules.merge or (keep and elements.steps):
            expression, elements = elements.passed(elements.row), self._of_rows(operator.schema)
        if keep:
            expression = f"kept({expression})"
        variable = self._scope.names[name]
        self._emit("", *map(comment, (*before, operator)), f"{variable} = {expression}")
        self._scope.relations[name] = replace(elements, rdd=variable)

    def _of_rows(self, schema: Schema, rdd: str = "") -> Elements:
        columns = self._row(schema)
        return Elements(rdd, tuple(columns.values()), columns)

    def _result(self, operator: Operator) -> None:
        elements = self._scope.relations[operator.name]
        if not elements.at_hand:
            elements = self._of_rows(operator.schema, self._rows(operator.name))
        elif waiting := self._scope.waiting.pop(operator.name, []):
            self._emit("", *map(comment, waiting))
        rows = f"{elements.rdd}.collect()"
        if elements.needs_pass(elements.row):
            rows = f"[{shape_text(elements.row)} for {elements.unpacked([elements.row])} in {rows}]"
        if isinstance(operator, Sort):
            rows = f"in_order({', '.join([rows, *_places(operator)])})"
        arguments = [rows, _columns_text(operator.schema), f"outputs[{string_text(operator.name)}]"]
        line = f"write({', '.join(arguments)})"
        broken = "".join(indent(f"{one},\n", INDENT) for one in arguments)
        self._emit(line if len(line) <= LINE_CHARS_MAX else f"write(\n{broken})")

    # ---- leaves ------------------------------------------------------------------------------

    def leaf(self, one: Scan | Input) -> None:
        read = f"read_rows(context, inputs[{string_text(one.name)}], {_columns_text(one.schema)})"
        self._store(one, self._of_rows(one.schema, read))

    def values(self, one: Values) -> None:
        rows = [shape_text(tuple(PythonScalar(value, one.schema, {}).text for value in row)) for row in one.rows]
        listed = f"[{', '.join(rows)}]"
        if len(listed) > CONSTANTS_CHARS_MAX or "\n" in listed:
            listed = "[\n" + "".join(indent(f"{row},\n", INDENT) for row in rows) + "]"
        self._store(one, self._of_rows(one.schema, f"context.parallelize({listed}, 1)"))

    # ---- a row at a time ---------------------------------------------------------------------

    def _waits(self, operator: Operator, elements: Elements) -> None:
        """The operator is done in the pass of its reader, unless it is to have one by itself."""
        scope, source = self._scope, operator.inputs[0]
        if self._rules.share_scans and operator.name not in scope.kept and len(elements.steps) < STEPS_MAX:
            scope.waiting[operator.name] = [*scope.waiting.pop(source, []), operator]
            scope.relations[operator.name] = elements
        else:
            alone = not (self._rules.share_scans and self._rules.merge) and not isinstance(operator, Sort)
            made = elements.passed(elements.row, always=alone)
            self._store(operator, self._of_rows(operator.schema, made), scope.waiting.pop(source, []))

    def select(self, one: Select) -> None:
        (elements,) = self._read(one)
        elements = self._bound(elements, one.condition.columns)
        self._waits(one, elements.where(self._text(one.condition, one.schema, elements)))

    def project(self, one: Project | Arithmetic) -> None:
        project = one.as_project() if isinstance(one, Arithmetic) else one
        (elements,) = self._read(one)
        computed = [output.value for output in project.columns if output.value.as_column is None]
        elements = self._bound(elements, {name for value in computed for name in value.columns})
        columns = {
            output.name: self._text(output.value, project.source.schema, elements)
            if output.value.as_column is None
            else elements.columns[output.value.as_column]
            for output in project.columns
        }
        self._waits(one, replace(elements, columns=columns))

    def _bound(self, elements: Elements, columns: Iterable[str]) -> Elements:
        """With each of these columns in a variable."""
        for column in sorted(columns):
            if not elements.columns[column].isidentifier():
                (variable,) = python_names([column], taken={*self._taken, *elements.taken}).values()
                elements = elements.bound(column, variable)
        return elements

    def _text(self, scalar: Scalar, schema: Schema, elements: Elements) -> str:
        return PythonScalar(scalar, schema, elements.columns).text

    def sort(self, one: Sort) -> None:
        """The order of a result is that in which it is written."""
        (elements,) = self._read(one)
        self._waits(one, elements)

    # ---- two relations -----------------------------------------------------------------------

    def join(self, one: Join) -> None:
        left, right = self._read(one)
        left, right = self._bound(left, one.left_keys), self._bound(right, one.right_keys)
        self._pair(one, joined(one, left, right, self._row(one.schema)))

    def cross_join(self, one: CrossJoin) -> None:
        left, right = self._read(one)
        self._pair(one, crossed(one, left, right, self._row(one.schema)))

    def _pair(self, one: Join | CrossJoin, pairing: Pairing) -> None:
        left = self._as(one.left.name, pairing.left, pairing.left_made)
        right = self._as(one.right.name, pairing.right, pairing.right_made)
        self._store(one, pairing.of(left, right))

    def union(self, one: Union) -> None:
        if one.all_rows:
            made = f"{self._rows(one.left.name)}.union({self._rows(one.right.name)})"
        else:
            made = f"{self._key_rows(one.left.name)}.union({self._key_rows(one.right.name)}).distinct()"
        self._store(one, self._of_rows(one.schema, made))

    def intersect(self, one: Intersect) -> None:
        made = f"{self._key_rows(one.left.name)}.intersection({self._key_rows(one.right.name)})"
        self._store(one, self._of_rows(one.schema, made))

    def difference(self, one: Difference) -> None:
        made = f"{self._key_rows(one.left.name)}.subtract({self._key_rows(one.right.name)}).distinct()"
        self._store(one, self._of_rows(one.schema, made))

    # ---- all rows ----------------------------------------------------------------------------

    def _key_rows(self, name: str) -> str:
        """An RDD of rows that are the same in every process."""
        elements, schema = self._scope.relations[name], self._scope.dag.operator(name).schema
        made = tuple(key_part(text, schema.column(column).type) for column, text in elements.columns.items())
        return self._as(name, elements, made)

    def distinct(self, one: Distinct) -> None:
        self._store(one, self._of_rows(one.schema, f"{self._key_rows(one.source.name)}.distinct()"))

    def top(self, one: Top) -> None:
        first = f"first_rows({', '.join([self._rows(one.source.name), str(one.count), *_places(one)])})"
        self._store(one, self._of_rows(one.schema, f"context.parallelize({first}, 1)"))

    def aggregate(self, one: Aggregate) -> None:
        (elements,) = self._read(one)
        read = [column.column for column in one.aggregations if column.column is not None]
        elements = self._bound(elements, {name for name in read if read.count(name) > 1})
        found = reduction(one, elements.columns, self._row(one.schema), self._taken)
        if not one.keys:
            self._folded(one, elements, found)
            return
        key = key_of(elements, one.source.schema, one.keys)
        keyed = self._as(one.source.name, elements, (key, found.made))
        variables = self._row(one.schema)
        columns = {**{name: variables[name] for name in one.keys}, **found.columns}
        element = (bare([variables[name] for name in one.keys]), found.element)
        self._store(one, Elements(f"{keyed}.reduceByKey({found.merge})", element, columns))

    def _folded(self, one: Aggregate, elements: Elements, found: Reduction) -> None:
        """All rows as one, also if there are none."""
        values = self._as(one.source.name, elements, found.made)
        made = f"context.parallelize([{values}.fold({shape_text(found.nothing)}, {found.merge})], 1)"
        self._store(one, Elements(made, found.element, found.columns))

    # ---- loops -------------------------------------------------------------------------------

    def loop(self, one: While) -> None:
        outer = self._scope
        inner = self._body(one)
        (count,) = self._variables([f"{one.name}_iterations"]).values()
        self._emit("", comment(one))
        for carried in one.carried:
            first = self._rows(one.first_value(carried.input).name)
            self._emit(f"{inner.names[carried.input]} = kept({first})")
        self._scope = inner
        self._emit(f"{count} = 0")
        self._iterations(one, count)
        self._scope = outer
        self._left |= {(one.name, carried.input): inner.relations[carried.input] for carried in one.carried}
        (column,) = self._row(one.schema).values()
        variable = outer.names[one.name]
        outer.relations[one.name] = Elements(variable, (column,), {one.schema.names[0]: column})
        self._emit(f"{variable} = context.parallelize([({count},)], 1)")

    def _body(self, one: While) -> _Scope:
        inside = [name for name in one.body.names if name not in one.body.input_names or one.carries(name)]
        used = [carried.following for carried in one.carried]
        if one.condition is not None:
            used.append(one.condition.relation)
        twice = {name for name in used if used.count(name) > 1}
        scope = _Scope(one.body, self._variables(inside), self._kept(one.body, twice))
        for leaf in one.body.of_type(Input):
            if one.carries(leaf.name):
                scope.relations[leaf.name] = self._of_rows(leaf.schema, scope.names[leaf.name])
            else:
                scope.relations[leaf.name] = self._scope.relations[one.first_value(leaf.name).name]
        return scope

    def _iterations(self, one: While, count: str) -> None:
        condition = one.condition
        if condition is None:
            self._emit(f"for {count} in range(1, {one.iterations_max} + 1):")
            self._depth += 1
            self._change(one, self._following(one))
            self._depth -= 1
            return
        first = self._holds(condition, self._scope.relations[condition.relation]) if condition.tested_first else "True"
        self._emit(f"goes_on = {first}", "while goes_on:")
        self._depth += 1
        self._emit(
            f"if {count} == {one.iterations_max}:",
            f"{INDENT}raise IterationsExceeded({string_text(one.name)}, {count})",
        )
        following = self._following(one)
        tested = self._scope.relations[condition.relation]
        if condition.relation in following:
            tested = replace(tested, rdd=following[condition.relation])
        elif waiting := self._scope.waiting.pop(condition.relation, []):
            self._emit("", *map(comment, waiting))
        self._emit(f"goes_on = {self._holds(condition, tested)}")
        self._change(one, following)
        self._emit(f"{count} += 1")
        self._depth -= 1

    def _following(self, one: While) -> dict[str, str]:
        """The body; {carried input: variable of its next value}."""
        self._operators()
        made = {}
        for carried in one.carried:
            (variable,) = self._variables([f"next_{self._scope.names[carried.input]}"]).values()
            rows = self._rows(carried.following)
            self._emit(f"{variable} = kept({rows})")
            made[carried.input] = variable
        return made

    def _change(self, one: While, following: dict[str, str]) -> None:
        """All at once."""
        present = ", ".join(self._scope.names[carried.input] for carried in one.carried)
        self._emit(f"{present} = {', '.join(following[carried.input] for carried in one.carried)}")

    def _holds(self, condition: LoopCondition, elements: Elements) -> str:
        schema = self._scope.dag.operator(condition.relation).schema
        elements = self._bound(elements, condition.test.columns)
        met = elements.where(self._text(condition.test, schema, elements))
        return f"not {met.passed('True')}.isEmpty()"

    def loop_result(self, one: LoopResult) -> None:
        left = self._left[one.source.name, one.carried]
        self._emit("", comment(one), f"{self._scope.names[one.name]} = {left.rdd}")
        self._scope.relations[one.name] = replace(
            left,
            rdd=self._scope.names[one.name],
            columns=dict(zip(one.schema.names, left.columns.values(), strict=True)),
        )


def _places(one: Sort | Top) -> list[str]:
    keys = one.keys if isinstance(one, Sort) else one.all_keys()
    return [f"({one.schema.index(key.column)}, {key.descending})" for key in keys]


def _columns_text(schema: Schema) -> str:
    items = [f"{string_text(column.name)}: {string_text(column.type.value)}" for column in schema]
    line = f"{{{', '.join(items)}}}"
    return line if len(line) <= CONSTANTS_CHARS_MAX else "{\n" + "".join(f"{INDENT}{one},\n" for one in items) + "}"


_RULES: dict[type[Operator], Callable[..., None]] = {
    Scan: _Writer.leaf,
    Input: _Writer.leaf,
    Values: _Writer.values,
    Select: _Writer.select,
    Project: _Writer.project,
    Arithmetic: _Writer.project,
    Sort: _Writer.sort,
    Join: _Writer.join,
    CrossJoin: _Writer.cross_join,
    Union: _Writer.union,
    Intersect: _Writer.intersect,
    Difference: _Writer.difference,
    Distinct: _Writer.distinct,
    Top: _Writer.top,
    Aggregate: _Writer.aggregate,
    While: _Writer.loop,
    LoopResult: _Writer.loop_result,
}

ENGINE = PySparkRdd()
