"""RDDs as code: how their elements are unpacked, and what the next pass over them is to do.

An element is a tuple, perhaps of tuples: a row, or `(key, value)`, or `(key, (left value, right value))` as a join of
Spark makes it. What reads a relation takes its elements as they are, and makes them what it needs in one pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import indent

from frontends.workflow.engines.scripts import INDENT

LINE_CHARS_MAX = 100
"""Characters of a text that stands on one line."""
PASS_CHARS_MAX = 65
"""Characters of what a pass does that stands on the line of its RDD."""
NOTHING = "_"
"""What unpacks a part that nobody reads."""

Shape = str | tuple["Shape", ...]
"""A tuple of tuples, of variables or of expressions."""


@dataclass(frozen=True, slots=True)
class Elements:
    """An RDD, and what is still to be done to its elements.

    rdd: a Python expression. element: what unpacks an element. columns: {column of the relation: expression}. steps:
    what a pass does to each element, `if …` or `for variable in […]`, before it makes something of it.
    """

    rdd: str
    element: Shape
    columns: Mapping[str, str]
    steps: tuple[str, ...] = ()
    variables: frozenset[str] = field(default=frozenset())
    """What the steps have bound."""

    @property
    def row(self) -> Shape:
        """An element that is a row."""
        return tuple(self.columns.values())

    @property
    def taken(self) -> frozenset[str]:
        """The variables of a pass."""
        return self.variables | frozenset(_variables(self.element))

    @property
    def at_hand(self) -> bool:
        """Whether each column is a variable as soon as an element is unpacked."""
        return not self.steps and all(text.isidentifier() for text in self.columns.values())

    def where(self, test: str) -> Elements:
        """Without the elements that do not meet the test."""
        return replace(self, steps=(*self.steps, f"if {test}"))

    def bound(self, column: str, variable: str) -> Elements:
        """With a variable that has the column's value."""
        step = f"for {variable} in [{self.columns[column]}]"
        return replace(
            self,
            columns={**self.columns, column: variable},
            steps=(*self.steps, step),
            variables=self.variables | {variable},
        )

    def needs_pass(self, made: Shape) -> bool:
        """Whether elements are not `made` as they are."""
        return bool(self.steps) or shape_text(made) != shape_text(self.element)

    def passed(self, made: Shape, *, always: bool = False) -> str:
        """The RDD whose elements are `made` of these: a pass over this one, or itself, if no pass is needed and none is
        wanted `always`."""
        if not always and not self.needs_pass(made):
            return self.rdd
        clauses = [shape_text(made), f"for {self.unpacked((made, *self.steps))} in rows", *self.steps]
        line = f"lambda rows: ({' '.join(clauses)})"
        if len(line) > PASS_CHARS_MAX or "\n" in line:
            line = f"\n{INDENT}lambda rows: (\n{indent(chr(10).join(clauses), INDENT * 2)}\n{INDENT})\n"
        return f"{self.rdd}.mapPartitions({line})"

    def unpacked(self, readers: Iterable[Shape]) -> str:
        """The target of a `for` over elements, of which the readers' variables are needed."""
        used = set(re.findall(r"\w+", " ".join(map(shape_text, readers))))
        target = shape_text(_only(self.element, used))
        several = isinstance(self.element, tuple) and len(self.element) > 1
        return target[1:-1] if several and "\n" not in target else target


def bare(items: Sequence[Shape]) -> Shape:
    """One item by itself, several as a tuple, and None of none."""
    return items[0] if len(items) == 1 else tuple(items) if items else "None"


def shape_text(shape: Shape) -> str:
    """The Python text, with a line for each item if it is long."""
    if isinstance(shape, str):
        return shape
    items = [shape_text(one) for one in shape]
    line = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if len(line) <= LINE_CHARS_MAX and "\n" not in line:
        return line
    return "(\n" + "".join(indent(f"{one},\n", INDENT) for one in items) + ")"


def _variables(shape: Shape) -> Iterable[str]:
    if isinstance(shape, str):
        yield shape
    else:
        for one in shape:
            yield from _variables(one)


def _only(shape: Shape, used: set[str]) -> Shape:
    """The shape, in which what is not used is `_`."""
    if isinstance(shape, str):
        return shape if shape in used else NOTHING
    return tuple(_only(one, used) for one in shape)
