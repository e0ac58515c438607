"""GROUP BY: the columns that are computed before it, the aggregate, and what the block's expressions are after it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import Aggregate, Aggregation, Distinct, Function, Output, Project, Relation, free_name
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Column, Schema
from frontends.workflow.languages.hive_frame import Frame
from frontends.workflow.languages.hive_scope import block_column

_FUNCTIONS: dict[type[exp.AggFunc], Function] = {
    exp.Sum: Function.SUM,
    exp.Count: Function.COUNT,
    exp.Min: Function.MIN,
    exp.Max: Function.MAX,
    exp.Avg: Function.AVG,
}


class Grouping:
    """A block's groups. keys: resolved trees, each with the name that its column has if it is no column."""

    def __init__(self, frame: Frame, keys: Sequence[tuple[exp.Expr, str]], names: Sequence[str] = ()) -> None:
        """names: that columns of the result are to have, which others do not take."""
        self._frame, self._building = frame, frame.building
        self._wanted = {name.casefold() for name in names}
        self._keys: list[tuple[exp.Expr, str]] = []
        self._names: set[str] = set()
        for key, wanted in keys:
            tree = key.unnest()
            if all(tree != earlier for earlier, _ in self._keys):
                name = frame.tree(tree).name if isinstance(tree, exp.Column) else free_name(wanted, self._names)
                self._names.add(name)
                self._keys.append((tree, name))
        self._aggregates: list[tuple[exp.AggFunc, str]] = []
        self.counts: set[str] = set()
        """Columns of the result that count: 0, not null, of no rows."""

    @property
    def key_names(self) -> list[str]:
        """The columns of the result that are keys, in their order."""
        return [name for _, name in self._keys]

    @property
    def aggregates(self) -> bool:
        """Whether anything that was rewritten has an aggregate."""
        return bool(self._aggregates)

    def rewritten(self, resolved: exp.Expr, wanted: str = "") -> exp.Expr:
        """The tree over the result's columns. wanted: the name for the column if the tree is an aggregate."""
        if isinstance(resolved.unnest(), exp.AggFunc) and wanted and wanted.casefold() not in self._folded():
            self._aggregate(resolved.unnest(), wanted)
        with self._building.located(resolved):
            return self._rewritten(resolved.copy())

    def _folded(self) -> set[str]:
        return {name.casefold() for name in (*self._names, *(name for _, name in self._aggregates))}

    def _rewritten(self, node: exp.Expr) -> exp.Expr:
        for key, name in self._keys:
            if node == key:
                return self._column(name, node)
        if isinstance(node, exp.AggFunc):
            return self._column(self._aggregate(node), node)
        if isinstance(node, exp.Query):
            return node
        if isinstance(node, exp.Column):
            raise InvalidWorkflow(f"{node.name} is neither grouped by nor aggregated", self._building.at(node))
        for argument, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(argument, self._rewritten(value))
            elif isinstance(value, list):
                node.set(argument, [self._rewritten(one) if isinstance(one, exp.Expr) else one for one in value])
        return node

    @staticmethod
    def _column(name: str, node: exp.Expr) -> exp.Expr:
        """A column at the place of the first name in the node."""
        made = block_column(name)
        start = next((one.meta for one in node.walk() if "start" in one.meta), None)
        if start is not None:
            made.this.meta.update(start)
        return made

    def _aggregate(self, node: exp.Expr, wanted: str = "") -> str:
        """The column of the result that this aggregate is."""
        assert isinstance(node, exp.AggFunc)
        for other, name in self._aggregates:
            if node == other:
                return name
        name = wanted or free_name(node.key, self._folded() | self._wanted)
        self._aggregates.append((node.copy(), name))
        if isinstance(node, exp.Count):
            self.counts.add(name)
        return name

    # ---- operators

    def relation(self, *nodes: exp.Expr | None) -> Relation:
        """The groups; nodes: where the text has them."""
        at = self._building.at(*nodes)
        inner, aggregations = self._computed()
        if not aggregations:
            if inner.schema.names != tuple(self.key_names):
                columns = tuple(map(Output.column, self.key_names))
                inner = self._building.add(Project, at, source=inner, columns=columns)
            return self._building.add(Distinct, at, source=inner)
        return self._building.add(
            Aggregate, at, source=inner, keys=tuple(self.key_names), aggregations=tuple(aggregations)
        )

    def _computed(self) -> tuple[Relation, list[Aggregation]]:
        """The relation to group, with columns for keys and arguments that are computed, and the aggregations."""
        outputs = [Output(name, self._scalar(tree)) for tree, name in self._keys]
        aggregations = []
        for node, name in self._aggregates:
            function, argument = _function(node)
            column = None
            if argument is not None:
                scalar = self._scalar(argument)
                column = self._argument(scalar, outputs)
                with self._building.located(argument):
                    type_ = scalar.type_in(self._frame.relation.schema)
                    Aggregation(name, function, column).type_in(Schema((Column(column, type_),)))
            aggregations.append(Aggregation(name, function, column))
        plain = all(one.value.as_column == one.name for one in outputs)
        if plain:
            return self._frame.relation, aggregations
        at = self._building.at(*(tree for tree, _ in (*self._keys, *self._aggregates)))
        return self._building.add(Project, at, source=self._frame.relation, columns=tuple(outputs)), aggregations

    def _scalar(self, tree: exp.Expr) -> Scalar:
        scalar = self._building.scalar(self._frame.tree(tree))
        with self._building.located(tree):
            scalar.type_in(self._frame.relation.schema)
        return scalar

    @staticmethod
    def _argument(value: Scalar, outputs: list[Output]) -> str:
        """The column with this value, added to those that are computed if it is not among them."""
        for one in outputs:
            if one.value == value:
                return one.name
        name = free_name(value.as_column or "value", [one.name for one in outputs])
        outputs.append(Output(name, value))
        return name


def _function(node: exp.AggFunc) -> tuple[Function, exp.Expr | None]:
    """The function, and of what; None: of rows."""
    function, argument = _FUNCTIONS[type(node)], node.this
    if isinstance(node, exp.Count) and isinstance(argument, exp.Distinct):
        return Function.COUNT_DISTINCT, argument.expressions[0]
    if isinstance(argument, exp.Distinct):  # MIN and MAX of different values are those of all.
        argument = argument.expressions[0]
    counts_rows = isinstance(node, exp.Count) and isinstance(argument, exp.Star | exp.Literal)
    return function, None if counts_rows or argument is None else argument
