"""Exact arithmetic of constants: 0.06 + 0.01 is 0.07, which the sum of the two nearest doubles is not.

Numbers are fractions until a whole subtree of constants is computed; then the result becomes the nearest double, or an
INTEGER. Days are moved by intervals. What is not finite (1 / 0), null (1 % 0) or outside the calendar stays as written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.scalars.dates import Date, later, parsed_date
from frontends.workflow.ir.scalars.normal_form import INTEGER_MAX, INTEGER_MIN, cast, chained, double, integer, operands
from frontends.workflow.ir.scalars.places import place_of, set_place
from frontends.workflow.ir.types import Type


@dataclass(frozen=True, slots=True)
class _Number:
    value: Fraction
    type: Type


def fold(node: exp.Expr) -> exp.Expr:
    """The tree, which is in normal form without parentheses, with its constant arithmetic computed; changes it."""
    constant = _constant(node)
    if constant is not None:
        set_place(constant, place_of(node))
        return constant
    if isinstance(node, exp.Connector):
        return chained(type(node), [fold(part) for part in operands(node)])
    for name, value in list(node.args.items()):
        if isinstance(value, list):
            node.set(name, [fold(one) for one in value])
        elif isinstance(value, exp.Expr):
            node.set(name, fold(value))
    return node


def _constant(node: exp.Expr) -> exp.Expr | None:
    """The constant that the node computes, None if it is none or stays as it is."""
    day = _day(node)
    if day is not None:
        return cast(exp.Literal(this=day.isoformat(), is_string=True), Type.DATE)
    number = _number(node)
    if number is None:
        return None
    if number.type is Type.INTEGER:
        if not INTEGER_MIN <= number.value <= INTEGER_MAX:
            raise InvalidWorkflow(f"{node.sql()} is {int(number.value)}, which is no INTEGER: it has more than 64 bits")
        return integer(int(number.value))
    try:
        return double(float(number.value))
    except OverflowError:
        return None


def _number(node: exp.Expr) -> _Number | None:
    if isinstance(node, exp.Literal) and not node.args["is_string"]:
        text = node.name
        return _Number(Fraction(text), Type.INTEGER if text.isdigit() else Type.DOUBLE)
    if isinstance(node, exp.Neg | exp.Abs):
        inner = _number(node.this)
        if inner is None:
            return None
        return _Number(abs(inner.value) if isinstance(node, exp.Abs) else -inner.value, inner.type)
    if isinstance(node, exp.Cast):
        return _cast_number(node)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        left, right = _number(node.this), _number(node.args["expression"])
        return None if left is None or right is None else _computed(node, left, right)
    return None


def _cast_number(node: exp.Cast) -> _Number | None:
    inner = _number(node.this)
    if inner is not None and node.to.this is exp.DType.DOUBLE:
        return _Number(inner.value, Type.DOUBLE)
    if inner is not None and node.to.this is exp.DType.BIGINT:
        return _Number(Fraction(math.trunc(inner.value)), Type.INTEGER)
    return None


def _computed(node: exp.Expr, left: _Number, right: _Number) -> _Number | None:
    type_ = Type.INTEGER if left.type is right.type is Type.INTEGER else Type.DOUBLE
    if isinstance(node, exp.Add):
        return _Number(left.value + right.value, type_)
    if isinstance(node, exp.Sub):
        return _Number(left.value - right.value, type_)
    if isinstance(node, exp.Mul):
        return _Number(left.value * right.value, type_)
    if right.value == 0:
        return None
    if isinstance(node, exp.Div):
        return _Number(left.value / right.value, Type.DOUBLE)
    return _Number(left.value - right.value * math.trunc(left.value / right.value), type_)


def _day(node: exp.Expr) -> Date | None:
    """The day, if the node is a constant of type DATE."""
    if isinstance(node, exp.Cast):
        text = node.this
        if node.to.this is exp.DType.DATE and isinstance(text, exp.Literal) and text.args["is_string"]:
            day = parsed_date(text.name)
            if day is None:
                raise InvalidWorkflow(f"'{text.name}' is no day: write YYYY-MM-DD")
            return day
    elif isinstance(node, exp.Add | exp.Sub) and isinstance(node.args["expression"], exp.Interval):
        interval = node.args["expression"]
        day = _day(node.this)
        count = int(interval.this.name) * (1 if isinstance(node, exp.Add) else -1)
        return None if day is None else later(day, count, interval.args["unit"].name)
    return None
