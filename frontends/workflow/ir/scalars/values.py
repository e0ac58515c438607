"""What scalar expressions are worth: the definition, over Python values, a row at a time.

A value is an int, float, str, bool, `Date`, or None for null. docs/workflow-semantics.md says the same in words.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from frontends.workflow.ir.scalars.dates import Date, later, parsed_date
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import INTEGER_MAX, INTEGER_MIN, operands
from frontends.workflow.ir.types import Schema

Value = int | float | str | bool | Date | None
Row = tuple[Value, ...]
Compute = Callable[[Row], Value]

_INTEGER_TEXT = re.compile(r"-?[0-9]+")
_DOUBLE_TEXT = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def computation(scalar: Scalar, schema: Schema) -> Compute:
    """The function from a row of this schema to the scalar's value.

    `OverflowError` from it where the value is undefined: an INTEGER of more than 64 bits, a day outside the calendar.
    """
    return _compute(scalar.typed_tree(schema), schema)


def rank(value: Value) -> tuple[int, Value]:
    """What values of one type are ordered by: NaN above all numbers, null above all. Equal values have equal ranks."""
    if value is None:
        return 2, 0
    if isinstance(value, float) and math.isnan(value):
        return 1, 0
    return 0, value


def in_range(number: int) -> int:
    """The number, if it is an INTEGER; else its meaning is undefined."""
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise OverflowError(f"{number} has more than 64 bits; what that means is undefined")
    return number


def _compute(node: exp.Expr, schema: Schema) -> Compute:
    """A DOUBLE is a float, also where it is made of INTEGERs."""
    compute = _RULES[type(node)](node, lambda child: _compute(child, schema), schema)
    if node.is_type(exp.DType.DOUBLE):
        return lambda row: _as_double(compute(row))
    return compute


def _as_double(value: Value) -> Value:
    return float(value) if isinstance(value, int) else value


Down = Callable[[exp.Expr], Compute]
"""The computation of a child."""


def _column(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    return operator.itemgetter(schema.index(node.name))


def _literal(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    if node.args["is_string"]:
        return _always(str(node.this))
    return _always(int(node.name) if node.name.isdigit() else float(node.name))


def _always(value: Value) -> Compute:
    return lambda row: value


def _of_operands(function: Callable[..., Value]) -> Callable[[exp.Expr, Down, Schema], Compute]:
    """A rule for nodes whose value is null if an operand's is, else this function of theirs."""

    def rule(node: exp.Expr, down: Down, schema: Schema) -> Compute:
        parts = [down(part) for part in (node.this, node.args.get("expression")) if part is not None]

        def compute(row: Row) -> Value:
            values = [part(row) for part in parts]
            return None if None in values else function(*values)

        return compute

    return rule


# ---- numbers ---------------------------------------------------------------------------------


def _checked(function: Callable[..., int | float]) -> Callable[..., Value]:
    def compute(*values: int | float) -> Value:
        result = function(*values)
        return in_range(result) if isinstance(result, int) else result

    return compute


def _quotient(left: float, right: float) -> float:
    left, right = float(left), float(right)
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _remainder(left: float, right: float) -> Value:
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return int(math.copysign(1, left)) * (abs(left) % abs(right))
    return math.nan if math.isinf(left) else math.fmod(left, right)


# ---- days ------------------------------------------------------------------------------------


def _sum_or_later(sign: int, function: Callable[..., Value]) -> Callable[[exp.Expr, Down, Schema], Compute]:
    def rule(node: exp.Expr, down: Down, schema: Schema) -> Compute:
        interval = node.args["expression"]
        if not isinstance(interval, exp.Interval):
            return _of_operands(function)(node, down, schema)
        day, count, unit = down(node.this), sign * int(interval.this.name), interval.args["unit"].name
        return lambda row: _moved(day(row), count, unit)

    return rule


def _moved(day: Value, count: int, unit: str) -> Value:
    if not isinstance(day, Date):
        return None
    moved = later(day, count, unit)
    if moved is None:
        raise OverflowError(
            f"{count} {unit} after {day} is no day of the years 1 to 9999; what that means is undefined"
        )
    return moved


def _extract(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    part, day = node.this.name.lower(), down(node.args["expression"])

    def compute(row: Row) -> Value:
        value = day(row)
        return getattr(value, part) if isinstance(value, Date) else None

    return compute


# ---- comparison and logic --------------------------------------------------------------------


def _compared(function: Callable[..., bool]) -> Callable[[exp.Expr, Down, Schema], Compute]:
    """Comparison of ranks."""
    return _of_operands(lambda left, right: function(*_ranks(left, right)))


def _ranks(left: Value, right: Value) -> tuple[tuple[int, Value], tuple[int, Value]]:
    """An INTEGER beside a DOUBLE is compared as the nearest DOUBLE."""
    if isinstance(left, float) or isinstance(right, float):
        left, right = _as_double(left), _as_double(right)
    return rank(left), rank(right)


def _same(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    left, right = down(node.this), down(node.args["expression"])
    return lambda row: operator.eq(*_ranks(left(row), right(row)))


def _between(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    value, low, high = down(node.this), down(node.args["low"]), down(node.args["high"])

    def at_most(left: Value, right: Value) -> bool | None:
        return None if left is None or right is None else operator.le(*_ranks(left, right))

    return lambda row: _both([at_most(low(row), value(row)), at_most(value(row), high(row))])


def _in(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    value, listed = down(node.this), [down(one)(()) for one in node.expressions]

    def compute(row: Row) -> Value:
        found = value(row)
        return None if found is None else any(operator.eq(*_ranks(found, one)) for one in listed)

    return compute


def _both(values: Sequence[Value]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _either(values: Sequence[Value]) -> bool | None:
    if True in values:
        return True
    return None if None in values else False


def _connected(function: Callable[[Sequence[Value]], Value]) -> Callable[[exp.Expr, Down, Schema], Compute]:
    def rule(node: exp.Expr, down: Down, schema: Schema) -> Compute:
        assert isinstance(node, exp.Connector)
        parts = [down(part) for part in operands(node)]
        return lambda row: function([part(row) for part in parts])

    return rule


def _is_null(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    value = down(node.this)
    return lambda row: value(row) is None


def _like(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    parts = {"%": ".*", "_": "."}
    pattern = re.compile("".join(parts.get(one, re.escape(one)) for one in node.args["expression"].name), re.DOTALL)
    return _of_operands(lambda value, _: pattern.fullmatch(value) is not None)(node, down, schema)


# ---- choices ---------------------------------------------------------------------------------


def _case(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    branches = [(down(branch.this), down(branch.args["true"])) for branch in node.args["ifs"]]
    default = node.args.get("default")
    otherwise = _always(None) if default is None else down(default)

    def compute(row: Row) -> Value:
        for test, value in branches:
            if test(row) is True:
                return value(row)
        return otherwise(row)

    return compute


def _coalesce(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    parts = [down(node.this), *map(down, node.expressions)]
    return lambda row: next((value for part in parts if (value := part(row)) is not None), None)


# ---- casts and texts -------------------------------------------------------------------------


def _cast(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    convert, value = _CASTS[node.args["to"].this], down(node.this)

    def compute(row: Row) -> Value:
        found = value(row)
        return None if found is None else convert(found)

    return compute


def _to_integer(value: Value) -> Value:
    if isinstance(value, float):
        whole = math.trunc(value) if math.isfinite(value) else None
    elif isinstance(value, str):
        whole = int(value) if _INTEGER_TEXT.fullmatch(value) and len(value) <= 100 else None
    else:
        assert isinstance(value, int)
        whole = int(value)
    return whole if whole is not None and INTEGER_MIN <= whole <= INTEGER_MAX else None


def _to_double(value: Value) -> Value:
    if isinstance(value, str):
        return float(value) if _DOUBLE_TEXT.fullmatch(value) else None
    assert isinstance(value, int | float)
    return float(value)


def _to_string(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, Date) else str(value)


def _to_date(value: Value) -> Value:
    return parsed_date(value) if isinstance(value, str) else value


_CASTS: dict[exp.DType, Callable[[Value], Value]] = {
    exp.DType.BIGINT: _to_integer,
    exp.DType.DOUBLE: _to_double,
    exp.DType.TEXT: _to_string,
    exp.DType.BOOLEAN: bool,
    exp.DType.DATE: _to_date,
}


def _substring(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    value, start = down(node.this), int(node.args["start"].name) - 1
    end = None if node.args.get("length") is None else start + int(node.args["length"].name)

    def compute(row: Row) -> Value:
        text = value(row)
        return text[start:end] if isinstance(text, str) else None

    return compute


def _paren(node: exp.Expr, down: Down, schema: Schema) -> Compute:
    return down(node.this)


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Down, Schema], Compute]] = {
    exp.Paren: _paren,
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: lambda node, down, schema: _always(bool(node.this)),
    exp.Null: lambda node, down, schema: _always(None),
    exp.Add: _sum_or_later(1, _checked(operator.add)),
    exp.Sub: _sum_or_later(-1, _checked(operator.sub)),
    exp.Mul: _of_operands(_checked(operator.mul)),
    exp.Div: _of_operands(_quotient),
    exp.Mod: _of_operands(_remainder),
    exp.Neg: _of_operands(_checked(operator.neg)),
    exp.Abs: _of_operands(_checked(abs)),
    exp.EQ: _compared(operator.eq),
    exp.NEQ: _compared(operator.ne),
    exp.LT: _compared(operator.lt),
    exp.LTE: _compared(operator.le),
    exp.GT: _compared(operator.gt),
    exp.GTE: _compared(operator.ge),
    exp.NullSafeEQ: _same,
    exp.Between: _between,
    exp.In: _in,
    exp.And: _connected(_both),
    exp.Or: _connected(_either),
    exp.Not: _of_operands(operator.not_),
    exp.Is: _is_null,
    exp.Like: _like,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Cast: _cast,
    exp.Extract: _extract,
    exp.Substring: _substring,
    exp.DPipe: _of_operands(operator.add),
}
