"""The operators of one workflow while its HiveQL is translated: their names, and where their text stands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from sqlglot import exp

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import Operator, Output, Project, Relation, Scan, free_name
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.places import set_place
from frontends.workflow.languages.hive_statements import Statement
from frontends.workflow.positions import Position


class Building:
    """Collects operators. statement: the one that is being translated; names that are reserved are given on request
    alone."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self.operators: list[Operator] = []
        self._taken = {name.casefold() for name in reserved}
        self._stem, self._begun = "", 0
        self.statement: Statement | None = None

    @contextlib.contextmanager
    def relation_named(self, stem: str) -> Iterator[None]:
        """For what is built in the `with` block: names of operators begin with this one."""
        before = self._stem, self._begun
        self._stem, self._begun = stem, len(self.operators)
        yield
        self._stem, self._begun = before

    def free_name(self, wanted: str) -> str:
        """The name, perhaps with a number, reserved from now on."""
        name = free_name(wanted, self._taken)
        self._taken.add(name.casefold())
        return name

    def add(self, operator: type[Operator], at: Position | None, /, **arguments: Any) -> Relation:
        """An operator with a name made up for it."""
        name = self.free_name(f"{self._stem}_{operator.keyword.lower().replace(' ', '_')}")
        return self.append(operator(name=name, at=at, **arguments))

    def append(self, operator: Operator) -> Relation:
        self.operators.append(operator)
        return operator.relation

    def finish(self, relation: Relation, name: str, at: Position | None) -> Relation:
        """The relation under this name, which was reserved: the last operator has it, or a copy of another."""
        last = self.operators[-1]
        if last.name == relation.name and len(self.operators) > self._begun and not isinstance(last, Scan):
            self.operators[-1] = last.named(name)
            return self.operators[-1].relation
        columns = tuple(map(Output.column, relation.schema.names))
        return self.append(Project(name=name, source=relation, columns=columns, at=at))

    # ---- places

    def at(self, *nodes: exp.Expr | None) -> Position | None:
        """Where the first of these trees that says so begins; else where the statement does."""
        if self.statement is None:
            return None
        for node in nodes:
            offset = _offset(node)
            if offset is not None:
                return self.statement.position(offset)
        return self.statement.position()

    @contextlib.contextmanager
    def located(self, *nodes: exp.Expr | None) -> Iterator[None]:
        """Errors of the `with` block stand at this tree, unless they say better."""
        try:
            yield
        except InvalidWorkflow as error:
            error.locate(self.at(*nodes))
            raise

    def scalar(self, tree: exp.Expr) -> Scalar:
        """The scalar of a tree whose columns are those of a relation."""
        placed = tree.copy()
        for node in placed.walk():
            if isinstance(node, exp.Column | exp.Literal) and _offset(node) is not None:
                set_place(node, self.at(node))
        return Scalar(placed, self.at(tree))


def _offset(node: exp.Expr | None) -> int | None:
    """Of the first character that belongs to a name or constant in the tree."""
    if node is None:
        return None
    starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
    return min(starts, default=None)
