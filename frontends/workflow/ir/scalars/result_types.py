"""Types of scalar expressions over a schema.

INTEGER becomes DOUBLE beside a DOUBLE; no other type becomes another without a CAST. A NULL has the type that what
stands beside it gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from frontends.workflow.errors import InvalidWorkflow, TypeMismatch, UndecidableType
from frontends.workflow.ir.scalars.normal_form import OTHER_NAMES, data_type, operands, without_parentheses
from frontends.workflow.ir.scalars.places import place_of
from frontends.workflow.ir.types import Schema, Type

CASTS = frozenset(
    {
        (Type.INTEGER, Type.DOUBLE),
        (Type.INTEGER, Type.STRING),
        (Type.INTEGER, Type.BOOLEAN),
        (Type.DOUBLE, Type.INTEGER),
        (Type.STRING, Type.INTEGER),
        (Type.STRING, Type.DOUBLE),
        (Type.STRING, Type.DATE),
        (Type.BOOLEAN, Type.INTEGER),
        (Type.BOOLEAN, Type.STRING),
        (Type.DATE, Type.STRING),
        *((type_, type_) for type_ in Type),
    }
)
"""(from, to) of the casts there are. DOUBLE to STRING is none: each engine writes doubles in its own way."""

Found = Type | None
"""None: the type of NULL."""


def type_of(tree: exp.Expr, schema: Schema) -> Type:
    """The type of a tree in normal form; `UnknownColumn`, `TypeMismatch` or `UndecidableType` if there is none."""
    found = _Typing(schema).of(tree)
    if found is None:
        raise UndecidableType(tree.sql())
    return found


def annotate(tree: exp.Expr, schema: Schema) -> None:
    """Set `type` of each node of the tree, which is in normal form: BIGINT, DOUBLE, TEXT, BOOLEAN, DATE, or NULL."""
    typing = _Typing(schema)
    typing.of(tree)
    null = exp.DataType(this=exp.DType.NULL)
    for node in tree.walk():
        if id(node) in typing.found:
            found = typing.found[id(node)]
            node.type = null.copy() if found is None else data_type(found).copy()


class _Typing:
    """The types of one tree's nodes: found, by the id of the node."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.found: dict[int, Found] = {}

    def of(self, node: exp.Expr) -> Found:
        inner = without_parentheses(node)
        rule = _RULES.get(type(inner))
        if rule is None:
            raise TypeMismatch(f"{inner.sql()} cannot stand alone")
        found = rule(self, inner)
        while node is not inner:
            self.found[id(node)] = found
            node = node.this
        self.found[id(inner)] = found
        return found

    def column(self, node: exp.Expr) -> Found:
        return self._schema.column(node.name).type

    def arithmetic(self, node: exp.Expr) -> Found:
        left, right = self.of(node.this), self.of(node.args["expression"])
        for side, operand in ((left, node.this), (right, node.args["expression"])):
            if side is not None and not side.numeric:
                raise _mismatch(node, f"needs numbers, and {operand.sql()} is {side.value}", operand)
        return Type.DOUBLE if isinstance(node, exp.Div) else self.common(node, [node.this, node.args["expression"]])

    def add(self, node: exp.Expr) -> Found:
        if not isinstance(node.args["expression"], exp.Interval):
            return self.arithmetic(node)
        left = self.of(node.this)
        if left not in (Type.DATE, None):
            raise _mismatch(node, f"needs a DATE, and {node.this.sql()} is {left.value}", node.this)
        return Type.DATE

    def number(self, node: exp.Expr) -> Found:
        found = self.of(node.this)
        if found is not None and not found.numeric:
            raise _mismatch(node, f"needs a number, and {node.this.sql()} is {found.value}", node.this)
        return found

    def comparison(self, node: exp.Expr) -> Found:
        self.common(node, [one for one in node.args.values() if isinstance(one, exp.Expr)], decided=True)
        return Type.BOOLEAN

    def membership(self, node: exp.Expr) -> Found:
        for one in node.expressions:
            if one.find(exp.Column, exp.Null) is not None:
                raise _mismatch(node, f"needs constants other than NULL in its list, and {one.sql()} is none", one)
        self.common(node, [node.this, *node.expressions])
        return Type.BOOLEAN

    def logic(self, node: exp.Expr) -> Found:
        for part in operands(node) if isinstance(node, exp.Connector) else [node.this]:
            self.expect(node, part, Type.BOOLEAN)
        if isinstance(node, exp.Connector):
            self.chain(node)
        return Type.BOOLEAN

    def chain(self, node: exp.Expr) -> None:
        """The connectors within a chain, which `operands` passes over."""
        inner = without_parentheses(node.this)
        while type(inner) is type(node):
            self.found[id(inner)] = Type.BOOLEAN
            inner = without_parentheses(inner.this)

    def is_null(self, node: exp.Expr) -> Found:
        if self.of(node.this) is None:
            raise UndecidableType(node.this.sql(), place_of(node))
        return Type.BOOLEAN

    def like(self, node: exp.Expr) -> Found:
        self.expect(node, node.this, Type.STRING)
        self.of(node.args["expression"])
        return Type.BOOLEAN

    def case(self, node: exp.Expr) -> Found:
        values = []
        for branch in node.args["ifs"]:
            self.expect(node, branch.this, Type.BOOLEAN)
            values.append(branch.args["true"])
        default = node.args.get("default")
        found = self.common(node, values if default is None else [*values, default])
        for branch in node.args["ifs"]:
            self.found[id(branch)] = found
        return found

    def coalesce(self, node: exp.Expr) -> Found:
        return self.common(node, [node.this, *node.expressions])

    def cast(self, node: exp.Expr) -> Found:
        to = OTHER_NAMES[node.args["to"].this]
        found = self.of(node.this)
        if found is not None and (found, to) not in CASTS:
            raise _mismatch(node, f"is no cast there is: from {found.value} to {to.value}", node.this)
        return to

    def extract(self, node: exp.Expr) -> Found:
        self.expect(node, node.args["expression"], Type.DATE)
        return Type.INTEGER

    def text(self, node: exp.Expr) -> Found:
        self.expect(node, node.this, Type.STRING)
        if isinstance(node, exp.DPipe):
            self.expect(node, node.args["expression"], Type.STRING)
        return Type.STRING

    def expect(self, node: exp.Expr, part: exp.Expr, type_: Type) -> None:
        found = self.of(part)
        if found not in (type_, None):
            raise _mismatch(node, f"needs {type_.value}, and {part.sql()} is {found.value}", part)

    def common(self, node: exp.Expr, parts: Sequence[exp.Expr], decided: bool = False) -> Found:
        """The type that parts of the node have together, which all of them become."""
        types = [(part, found) for part in parts if (found := self.of(part)) is not None]
        if not types:
            if decided:
                raise UndecidableType(node.sql(), place_of(node))
            return None
        known = {found for _, found in types}
        if len(known) == 1:
            return known.pop()
        if known == {Type.INTEGER, Type.DOUBLE}:
            return Type.DOUBLE
        first = types[0][1]
        other = next(part for part, found in types if found is not first and not (found.numeric and first.numeric))
        reason = f"has to do with {' and '.join(sorted(one.value for one in known))}, which do not fit"
        raise _mismatch(node, reason, other)


def _mismatch(node: exp.Expr, reason: str, operand: exp.Expr) -> InvalidWorkflow:
    """operand: the part of the node that does not fit."""
    return TypeMismatch(f"{node.sql()} {reason}", place_of(operand, node))


def _literal(typing: _Typing, node: exp.Expr) -> Found:
    if node.args["is_string"]:
        return Type.STRING
    return Type.INTEGER if node.name.isdigit() else Type.DOUBLE


_RULES: dict[type[exp.Expr], Callable[[_Typing, exp.Expr], Found]] = {
    exp.Column: _Typing.column,
    exp.Literal: _literal,
    exp.Boolean: lambda typing, node: Type.BOOLEAN,
    exp.Null: lambda typing, node: None,
    exp.Add: _Typing.add,
    exp.Sub: _Typing.add,
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod), _Typing.arithmetic),
    exp.Neg: _Typing.number,
    exp.Abs: _Typing.number,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), _Typing.comparison),
    exp.Between: _Typing.comparison,
    exp.In: _Typing.membership,
    **dict.fromkeys((exp.And, exp.Or, exp.Not), _Typing.logic),
    exp.Is: _Typing.is_null,
    exp.Like: _Typing.like,
    exp.Case: _Typing.case,
    exp.Coalesce: _Typing.coalesce,
    exp.Cast: _Typing.cast,
    exp.Extract: _Typing.extract,
    exp.Substring: _Typing.text,
    exp.DPipe: _Typing.text,
}
