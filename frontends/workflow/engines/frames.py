"""What generators for libraries of data frames have alike: names, comments, passes of several operators, loops.

`FrameProgram` walks a job and writes a statement for each operator, or for a chain of operators that work on a row at a
time, which become one pass. A subclass says how its library writes each.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent as indented
from typing import Any, ClassVar

from frontends.workflow.engines.base import Rules, shared_relations
from frontends.workflow.engines.scripts import comment, python_names, string_text
from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Input,
    Intersect,
    Join,
    LoopResult,
    Operator,
    Project,
    Scan,
    Select,
    Sort,
    Top,
    Union,
    Values,
    While,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema

LINE_CHARS_MAX = 112
"""Characters of a line of a script, where a line can be broken; `run` is indented by four more."""
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a method: its name, and the texts of its arguments. Without a name, columns that are picked."""

    method: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(self.arguments)
        return f".{self.method}({inner})" if self.method else f"[[{inner}]]"

    def broken(self) -> str:
        """With a line for each argument."""
        inner = "".join(indented(f"{one},\n", INDENT) for one in self.arguments)
        return f".{self.method}(\n{inner})" if self.method else f"[[\n{inner}]]"


def statement(target: str, base: str, calls: Sequence[Call]) -> str:
    """`target = base.method(…).method(…)`, on several lines if it is long."""
    one_line = f"{target} = {base}{''.join(map(str, calls))}"
    if _fits(one_line) or not calls:
        return one_line
    if len(calls) == 1:
        return f"{target} = {base}{calls[0].broken()}"
    shown = [str(call) if _fits(INDENT + str(call)) or not call.arguments else call.broken() for call in calls]
    first = base if "\n" in shown[0] or len(base + shown[0]) > LINE_CHARS_MAX else base + shown.pop(0)
    return f"{target} = (\n" + indented("\n".join([first, *shown]), INDENT) + "\n)"


def _fits(text: str) -> bool:
    return len(text) <= LINE_CHARS_MAX and "\n" not in text


def listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def names_text(names: Iterable[str]) -> str:
    """The Python text of a list of texts."""
    return listed(map(string_text, names))


@dataclass(frozen=True, slots=True)
class Text:
    """The Python text of an expression, and how tightly its outermost operator binds."""

    text: str
    level: int
    literal: bool = False
    """A plain Python value, which the library turns into a column beside one."""

    def within(self, least: int) -> str:
        return self.text if self.level >= least else f"({self.text})"


COMPARISON, OR, AND, SUM, PRODUCT, UNARY, ATOM = range(7)
"""How tightly Python's operators bind."""


@dataclass(slots=True)
class Pass:
    """Operators that work on a row at a time, as one pass over a relation.

    where: conditions; columns: {name: text over columns of the source}, in order.
    """

    schema: Schema
    where: list[Text]
    columns: dict[str, Text]


class FrameProgram(abc.ABC):
    """The lines of `run` for one job."""

    reserved: ClassVar[tuple[str, ...]] = ()
    """Names that the script uses otherwise."""

    def __init__(self, job: Dag, rules: Rules) -> None:
        self.job, self.rules = job, rules
        self.lines: list[str] = []
        self.definitions: dict[str, str] = {}
        self.raises = False
        self._depth = 0
        self._loops = 0
        self._left: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set(self.reserved)

    def written(self) -> list[str]:
        """The body of `run`."""
        names = self._named(self.job.names)
        self._operators(self.job, names, frozenset())
        self.emit("")
        for result in self.job.results:
            self.emit(*self.result(names[result], self.job.operator(result)))
        return self.lines[1:]

    def emit(self, *lines: str) -> None:
        for line in lines:
            self.lines.append(indented(line, INDENT * self._depth))

    def define(self, name: str, text: str) -> str:
        """Use a function that the script defines."""
        self.definitions[name] = text
        return name

    def _named(self, names: Iterable[str]) -> dict[str, str]:
        found = dict(python_names(names, self._taken))
        self._taken |= set(found.values())
        return found

    # ---- what a library writes ---------------------------------------------------------------

    @abc.abstractmethod
    def scanned(self, scan: Scan) -> tuple[str, list[Call]]:
        """The relation of a file's columns."""

    @abc.abstractmethod
    def handed_in(self, one: Input) -> tuple[str, list[Call]]:
        """The relation of a file that has exactly the columns."""

    @abc.abstractmethod
    def values(self, one: Values) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def column(self, name: str, schema: Schema) -> Text: ...

    @abc.abstractmethod
    def scalar(self, scalar: Scalar, schema: Schema, columns: Mapping[str, Text]) -> Text: ...

    @abc.abstractmethod
    def passed(self, source: str, one: Pass) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def joined(self, one: Join | CrossJoin, left: str, right: str) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def united(self, one: Union, left: str, right: str) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def compared(self, one: Intersect | Difference, left: str, right: str) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def distinct(self, one: Distinct, source: str) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def aggregated(self, one: Aggregate, source: str) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def ordered(self, one: Sort, source: str) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def first(self, one: Top, source: str) -> tuple[str, list[Call]]: ...

    @abc.abstractmethod
    def any_row(self, relation: str, test: Scalar, schema: Schema) -> str:
        """Whether any row meets the test, as a Python condition."""

    @abc.abstractmethod
    def counted(self, variable: str) -> str:
        """The relation of one row, `iterations`."""

    @abc.abstractmethod
    def result(self, variable: str, operator: Operator) -> list[str]:
        """Lines that write a result."""

    def made_once(self) -> list[Call]:
        """What is called so that a relation is computed here, and once; nothing if each is."""
        return []

    # ---- the walk ----------------------------------------------------------------------------

    def _operators(self, dag: Dag, names: Mapping[str, str], given: frozenset[str]) -> None:
        """Statements for the operators. given: `Input`s that have a value already."""
        once = self._made_once(dag, given)
        passes = self._passes(dag, once)
        skipped = {name for chain in passes.values() for name in chain[:-1]}
        for operator in dag.operators:
            if operator.name in given or operator.name in skipped:
                continue
            if isinstance(operator, While):
                count = self._loop(operator, names)
                if operator.name in dag.results or any(
                    not isinstance(one, LoopResult) for one in dag.consumers(operator.name)
                ):
                    self.emit(f"{names[operator.name]} = {self.counted(count)}")
                continue
            chain = [dag.operator(name) for name in passes.get(operator.name, [operator.name])]
            self.emit("", *(comment(one) for one in chain))
            base, calls = self._expression(chain, names)
            calls += self.made_once() if operator.name in once else []
            self.emit(statement(names[operator.name], base, calls))

    def _made_once(self, dag: Dag, inside: frozenset[str]) -> frozenset[str]:
        """Relations that are computed where they stand: what several read, what a loop reads, what a loop makes."""
        if not self.rules.merge:
            return frozenset(dag.names)
        shared = set(shared_relations(dag))
        for loop in dag.of_type(While):
            shared |= set(loop.inputs)
        if not self.rules.share_scans:
            read_by_loops = {name for loop in dag.of_type(While) for name in loop.inputs}
            shared -= {scan.name for scan in dag.of_type(Scan)} - read_by_loops
        if inside:
            shared |= set(dag.results)
        return frozenset(shared)

    def _passes(self, dag: Dag, once: frozenset[str]) -> dict[str, list[str]]:
        """Chains of operators that are one pass: {last: all in order}."""
        chains: dict[str, list[str]] = {}
        if not (self.rules.merge and self.rules.share_scans):
            return chains
        for operator in dag.operators:
            if isinstance(operator, _ROW_AT_A_TIME):
                before = operator.source.name
                if before in chains and before not in once and before not in dag.results:
                    if self._repeats(chains[before], operator, dag):
                        chains[operator.name] = [operator.name]
                    else:
                        chains[operator.name] = [*chains.pop(before), operator.name]
                else:
                    chains[operator.name] = [operator.name]
        return chains

    def _repeats(self, chain: Sequence[str], operator: Operator, dag: Dag) -> bool:
        """Whether the operator would compute a column of the chain several times over."""
        computed: set[str] = set()
        for name in chain:
            before = dag.operator(name)
            if isinstance(before, Arithmetic):
                computed.add(before.column)
            elif isinstance(before, Project):
                kept = {one.name for one in before.columns if one.value.as_column in computed}
                computed = kept | {one.name for one in before.columns if one.value.as_column is None}
        uses: dict[str, int] = {}
        for scalar in _scalars(operator):
            for node in scalar.walk():
                if node.key == "column":
                    uses[node.name] = uses.get(node.name, 0) + 1
        if isinstance(operator, Select):  # The columns are there after it, too.
            return bool(computed & set(uses))
        return any(uses.get(name, 0) > 1 for name in computed)

    def _expression(self, chain: Sequence[Operator], names: Mapping[str, str]) -> tuple[str, list[Call]]:
        operator = chain[0]
        sources = [names[name] for name in operator.inputs]
        if isinstance(operator, _ROW_AT_A_TIME):
            return self.passed(sources[0], self._fused(chain))
        if isinstance(operator, LoopResult):
            return self._left[operator.source.name, operator.carried], []
        rule = _RULES[type(operator)]
        return rule(self, operator, *sources)

    def _fused(self, chain: Sequence[Operator]) -> Pass:
        schema = chain[0].sources[0].schema
        made = Pass(schema, [], {name: self.column(name, schema) for name in schema.names})
        for operator in chain:
            before = operator.sources[0].schema
            if isinstance(operator, Select):
                made.where += [self.scalar(one, before, made.columns) for one in operator.condition.conjuncts()]
                continue
            project = operator.as_project() if isinstance(operator, Arithmetic) else operator
            assert isinstance(project, Project)
            made.columns = {one.name: self.scalar(one.value, before, made.columns) for one in project.columns}
        return made

    # ---- loops -------------------------------------------------------------------------------

    def _loop(self, loop: While, outer: Mapping[str, str]) -> str:
        """The loop; returns the variable that counts its iterations."""
        body = loop.body
        inside = self._named(name for name in body.names if name not in body.input_names or loop.carries(name))
        for given, name in zip(loop.inputs, body.input_names, strict=True):
            if not loop.carries(name):
                inside[name] = outer[given]
        self.emit("", comment(loop))
        for given, name in zip(loop.inputs, body.input_names, strict=True):
            if loop.carries(name):
                self.emit(f"{inside[name]} = {outer[given]}")
        count = self._named([f"{outer[loop.name]}_count"])[f"{outer[loop.name]}_count"]
        self._iterations(loop, inside, count)
        self._left |= {(loop.name, one.input): inside[one.input] for one in loop.carried}
        return count

    def _iterations(self, loop: While, inside: Mapping[str, str], count: str) -> None:
        condition = loop.condition
        holds = ""
        if condition is not None:
            schema = loop.body.operator(condition.relation).schema
            holds = self.any_row(inside[condition.relation], condition.test, schema)
        first = condition is not None and condition.tested_first
        self.emit(
            f"{count} = 0", f"while {holds if first else f'{count} < {loop.iterations_max}' if not holds else True}:"
        )
        self._depth += 1
        self._loops += 1
        if condition is not None:
            self.raises = True
            self.emit(
                f"if {count} == {loop.iterations_max}:",
                f"{INDENT}raise IterationsExceeded({string_text(loop.name)}, {count})",
            )
        self._operators(loop.body, inside, frozenset(loop.body.input_names))
        self.emit("")
        self.emit(
            f"{', '.join(inside[one.input] for one in loop.carried)} = "
            f"{', '.join(inside[one.following] for one in loop.carried)}",
            f"{count} += 1",
        )
        if condition is not None and not first:
            self.emit(f"if not {holds}:", f"{INDENT}break")
        self._depth -= 1
        self._loops -= 1

    def is_result(self, operator: Operator) -> bool:
        """Whether the operator is a result of the job, so that the order of its rows counts."""
        return not self._loops and operator.name in self.job.results


_ROW_AT_A_TIME = (Select, Project, Arithmetic)

_RULES: dict[type[Operator], Callable[..., tuple[str, list[Call]]]] = {
    Scan: lambda program, one: program.scanned(one),
    Input: lambda program, one: program.handed_in(one),
    Values: lambda program, one: program.values(one),
    Join: lambda program, one, left, right: program.joined(one, left, right),
    CrossJoin: lambda program, one, left, right: program.joined(one, left, right),
    Union: lambda program, one, left, right: program.united(one, left, right),
    Intersect: lambda program, one, left, right: program.compared(one, left, right),
    Difference: lambda program, one, left, right: program.compared(one, left, right),
    Distinct: lambda program, one, source: program.distinct(one, source),
    Aggregate: lambda program, one, source: program.aggregated(one, source),
    Sort: lambda program, one, source: program.ordered(one, source),
    Top: lambda program, one, source: program.first(one, source),
}


def _scalars(operator: Operator) -> Iterable[Scalar]:
    if isinstance(operator, Select):
        yield operator.condition
    elif isinstance(operator, Project):
        yield from (one.value for one in operator.columns)
    elif isinstance(operator, Arithmetic):
        yield operator.value


def constant_text(value: Any) -> str:
    """The Python text of a value of a column; a script that has days imports `datetime`."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, str):
        return string_text(value)
    return f"datetime.date({value.year}, {value.month}, {value.day})"
