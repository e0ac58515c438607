"""Scalar expressions as Python text, over variables that have the columns' values; None is null.

Where an expression is null exactly if a column is, the text tests the columns and computes as Python does. Elsewhere
functions of `serial_functions` hand nulls on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from frontends.workflow.engines.scripts import string_text
from frontends.workflow.ir.scalars.dates import parsed_date
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import operands, without_parentheses
from frontends.workflow.ir.types import Schema, Type

_TYPES = {
    Type.INTEGER: exp.DType.BIGINT,
    Type.DOUBLE: exp.DType.DOUBLE,
    Type.STRING: exp.DType.TEXT,
    Type.BOOLEAN: exp.DType.BOOLEAN,
    Type.DATE: exp.DType.DATE,
}
_SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.EQ: "==", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">",
    exp.GTE: ">=",
}  # fmt: skip
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_CASTS: dict[tuple[exp.DType, exp.DType], str] = {
    (exp.DType.BIGINT, exp.DType.DOUBLE): "float",
    (exp.DType.BIGINT, exp.DType.TEXT): "str",
    (exp.DType.BIGINT, exp.DType.BOOLEAN): "bool",
    (exp.DType.DOUBLE, exp.DType.BIGINT): "double_to_integer",
    (exp.DType.TEXT, exp.DType.BIGINT): "text_to_integer",
    (exp.DType.TEXT, exp.DType.DOUBLE): "text_to_double",
    (exp.DType.TEXT, exp.DType.DATE): "text_to_date",
    (exp.DType.BOOLEAN, exp.DType.BIGINT): "int",
    (exp.DType.BOOLEAN, exp.DType.TEXT): "boolean_to_text",
    (exp.DType.DATE, exp.DType.TEXT): "str",
}
_MAY_BE_NULL = ("double_to_integer", "text_to_integer", "text_to_double", "text_to_date")


class PythonScalar:
    """One scalar over variables. names: {column: variable}. `text`: the expression."""

    def __init__(self, scalar: Scalar, schema: Schema, names: Mapping[str, str]) -> None:
        self._names = names
        self.text = self._of(scalar.typed_tree(schema), _TYPES[scalar.type_in(schema)])

    # ---- null or not -------------------------------------------------------------------------

    def _of(self, node: exp.Expr, wanted: exp.DType | None = None) -> str:
        """The expression, which is None where the node is null."""
        node = without_parentheses(node)
        if isinstance(node, exp.Null):
            return "None"
        as_double = wanted is exp.DType.DOUBLE and _type(node) is exp.DType.BIGINT
        raw = self._raw(node)
        if raw is None:
            return f"of(float, {self._nullable(node)})" if as_double else self._nullable(node)
        if as_double:
            raw = f"{raw}.0" if raw.isdigit() else f"float({raw})"
        variables = dict.fromkeys(self._names[column.name] for column in node.find_all(exp.Column))
        if not variables or raw in variables:
            return raw
        return f"(None if {' or '.join(f'{one} is None' for one in variables)} else {raw})"

    def _raw(self, node: exp.Expr) -> str | None:
        """The expression where no column is null, if it is null exactly where one is; else None."""
        node = without_parentheses(node)
        rule = _RAW.get(type(node))
        return None if rule is None else rule(self, node)

    def _side(self, node: exp.Expr, type_: exp.DType | None) -> str | None:
        """An operand, as a value of this type."""
        raw = self._raw(node)
        if raw is not None and type_ is exp.DType.DOUBLE and _type(node) is exp.DType.BIGINT:
            return f"{raw}.0" if raw.isdigit() else f"float({raw})"
        return raw

    def _nullable(self, node: exp.Expr) -> str:
        return _NULLABLE[type(node)](self, node)

    # ---- raw ---------------------------------------------------------------------------------

    def raw_column(self, node: exp.Expr) -> str:
        return self._names[node.name]

    def raw_literal(self, node: exp.Expr) -> str:
        if node.args["is_string"]:
            return string_text(node.name)
        return str(int(node.name)) if node.name.isdigit() else repr(float(node.name)).replace("inf", "math.inf")

    def raw_arithmetic(self, node: exp.Expr) -> str | None:
        right_node = node.args["expression"]
        left = self._raw(node.this)
        if isinstance(right_node, exp.Interval):
            return None if left is None else f"moved({left}, {_interval(node)})"
        right = self._raw(right_node)
        return None if left is None or right is None else f"({left} {_SIGNS[type(node)]} {right})"

    def raw_comparison(self, node: exp.Expr) -> str | None:
        type_ = _common(node.this, node.args["expression"])
        left, right = self._side(node.this, type_), self._side(node.args["expression"], type_)
        if left is None or right is None:
            return None
        if type_ is exp.DType.DOUBLE:
            left, right = f"rank({left})", f"rank({right})"
        return f"({left} {_SIGNS[type(node)]} {right})"

    def raw_quotient(self, node: exp.Expr) -> str | None:
        return self._raw_call("quotient", node.this, node.args["expression"])

    def raw_negative(self, node: exp.Expr) -> str | None:
        inner = self._raw(node.this)
        return None if inner is None else f"(-{inner})"

    def raw_absolute(self, node: exp.Expr) -> str | None:
        return self._raw_call("abs", node.this)

    def raw_joined(self, node: exp.Expr) -> str | None:
        left, right = self._raw(node.this), self._raw(node.args["expression"])
        return None if left is None or right is None else f"({left} + {right})"

    def raw_substring(self, node: exp.Expr) -> str | None:
        inner = self._raw(node.this)
        return None if inner is None else f"{inner}[{_slice(node)}]"

    def raw_extract(self, node: exp.Expr) -> str | None:
        inner = self._raw(node.args["expression"])
        return None if inner is None else f"{inner}.{node.this.name.lower()}"

    def raw_like(self, node: exp.Expr) -> str | None:
        inner = self._raw(node.this)
        return None if inner is None else f"like({string_text(node.args['expression'].name)})({inner})"

    def raw_in(self, node: exp.Expr) -> str | None:
        type_ = _common(node.this, *node.expressions)
        inner, listed = self._side(node.this, type_), [self._side(one, type_) for one in node.expressions]
        if inner is None or None in listed:
            return None
        return f"({inner} in ({', '.join(map(str, listed))},))"

    def raw_cast(self, node: exp.Expr) -> str | None:
        to, from_ = node.args["to"].this, _type(node.this)
        inner = without_parentheses(node.this)
        if to is exp.DType.DATE and isinstance(inner, exp.Literal):
            day = parsed_date(inner.name)
            return None if day is None else f"date({day.year}, {day.month}, {day.day})"
        if from_ is to:
            return self._raw(node.this)
        function = None if from_ is None else _CASTS[from_, to]
        return None if function is None or function in _MAY_BE_NULL else self._raw_call(function, node.this)

    def _raw_call(self, function: str, *nodes: exp.Expr) -> str | None:
        parts = [self._raw(node) for node in nodes]
        return None if None in parts else f"{function}({', '.join(map(str, parts))})"

    # ---- nulls within ------------------------------------------------------------------------

    def arithmetic(self, node: exp.Expr) -> str:
        left = self._of(node.this)
        if isinstance(node.args["expression"], exp.Interval):
            return f"of(moved, {left}, {_interval(node)})"
        return f"of(operator.{_OPERATORS[type(node)]}, {left}, {self._of(node.args['expression'])})"

    def call(self, function: str) -> Callable[[exp.Expr], str]:
        def text(node: exp.Expr) -> str:
            parts = [self._of(one) for one in (node.this, node.args.get("expression")) if one is not None]
            return f"of({function}, {', '.join(parts)})"

        return text

    def comparison(self, node: exp.Expr) -> str:
        type_ = _common(node.this, node.args["expression"])
        left, right = self._of(node.this, type_), self._of(node.args["expression"], type_)
        if type_ is exp.DType.DOUBLE:
            left, right = f"of(rank, {left})", f"of(rank, {right})"
        return f"of(operator.{_OPERATORS[type(node)]}, {left}, {right})"

    def same(self, node: exp.Expr) -> str:
        type_ = _common(node.this, node.args["expression"])
        return f"same({self._of(node.this, type_)}, {self._of(node.args['expression'], type_)})"

    def between(self, node: exp.Expr) -> str:
        type_ = _common(node.this, node.args["low"], node.args["high"])
        value, low, high = (self._of(node.args[name], type_) for name in ("this", "low", "high"))
        if type_ is exp.DType.DOUBLE:
            value, low, high = (f"of(rank, {one})" for one in (value, low, high))
        return f"both(of(operator.le, {low}, {value}), of(operator.le, {value}, {high}))"

    def membership(self, node: exp.Expr) -> str:
        type_ = _common(node.this, *node.expressions)
        listed = ", ".join(self._of(one, type_) for one in node.expressions)
        return f"of(({listed},).__contains__, {self._of(node.this, type_)})"

    def connected(self, node: exp.Expr) -> str:
        assert isinstance(node, exp.Connector)
        function = "both" if isinstance(node, exp.And) else "either"
        return f"{function}({', '.join(map(self._of, operands(node)))})"

    def is_null(self, node: exp.Expr) -> str:
        if self._raw(node.this) is not None and node.find(exp.Column) is None:
            return "False"
        return f"({self._of(node.this)} is None)"

    def like(self, node: exp.Expr) -> str:
        return f"of(like({string_text(node.args['expression'].name)}), {self._of(node.this)})"

    def case(self, node: exp.Expr) -> str:
        type_ = _type(node)
        default = node.args.get("default")
        text = "None" if default is None else self._of(default, type_)
        for branch in reversed(node.args["ifs"]):
            text = f"{self._of(branch.args['true'], type_)} if {self._of(branch.this)} else {text}"
        return f"({text})"

    def coalesce(self, node: exp.Expr) -> str:
        type_ = _type(node)
        return f"coalesce({', '.join(self._of(one, type_) for one in (node.this, *node.expressions))})"

    def cast(self, node: exp.Expr) -> str:
        to, from_ = node.args["to"].this, _type(node.this)
        if from_ is None or from_ is to:
            return self._of(node.this)
        return f"of({_CASTS[from_, to]}, {self._of(node.this)})"

    def substring(self, node: exp.Expr) -> str:
        return f"of(operator.itemgetter(slice({_slice(node).replace(':', ', ') or 'None'})), {self._of(node.this)})"

    def extract(self, node: exp.Expr) -> str:
        return f'of(operator.attrgetter("{node.this.name.lower()}"), {self._of(node.args["expression"])})'


def _type(node: exp.Expr) -> exp.DType | None:
    found = node.type.this if node.type is not None else None
    return None if found is exp.DType.NULL else found


def _common(*nodes: exp.Expr) -> exp.DType | None:
    types = {_type(node) for node in nodes} - {None}
    return exp.DType.DOUBLE if exp.DType.DOUBLE in types else next(iter(types), None)


def _interval(node: exp.Expr) -> str:
    interval = node.args["expression"]
    sign = "-" if isinstance(node, exp.Sub) else ""
    return f'{sign}{int(interval.this.name)}, "{interval.args["unit"].name.upper()}"'


def _slice(node: exp.Expr) -> str:
    start = int(node.args["start"].name) - 1
    length = node.args.get("length")
    return f"{start}:{'None' if length is None else start + int(length.name)}"


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul", exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le",
    exp.GT: "gt", exp.GTE: "ge",
}  # fmt: skip
_RAW: dict[type[exp.Expr], Callable[[PythonScalar, exp.Expr], str | None]] = {
    exp.Column: PythonScalar.raw_column,
    exp.Literal: PythonScalar.raw_literal,
    exp.Boolean: lambda one, node: str(bool(node.this)),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), PythonScalar.raw_arithmetic),
    **dict.fromkeys(_COMPARISONS, PythonScalar.raw_comparison),
    exp.Div: PythonScalar.raw_quotient,
    exp.Neg: PythonScalar.raw_negative,
    exp.Abs: PythonScalar.raw_absolute,
    exp.DPipe: PythonScalar.raw_joined,
    exp.Substring: PythonScalar.raw_substring,
    exp.Extract: PythonScalar.raw_extract,
    exp.Like: PythonScalar.raw_like,
    exp.In: PythonScalar.raw_in,
    exp.Cast: PythonScalar.raw_cast,
}
_NULLABLE: dict[type[exp.Expr], Callable[[PythonScalar, exp.Expr], str]] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), PythonScalar.arithmetic),
    exp.DPipe: lambda one, node: one.call("operator.add")(node),
    exp.Div: lambda one, node: one.call("quotient")(node),
    exp.Mod: lambda one, node: one.call("remainder")(node),
    exp.Neg: lambda one, node: one.call("operator.neg")(node),
    exp.Abs: lambda one, node: one.call("abs")(node),
    exp.Not: lambda one, node: one.call("operator.not_")(node),
    **dict.fromkeys(_COMPARISONS, PythonScalar.comparison),
    exp.NullSafeEQ: PythonScalar.same,
    exp.Between: PythonScalar.between,
    exp.In: PythonScalar.membership,
    exp.And: PythonScalar.connected,
    exp.Or: PythonScalar.connected,
    exp.Is: PythonScalar.is_null,
    exp.Like: PythonScalar.like,
    exp.Case: PythonScalar.case,
    exp.Coalesce: PythonScalar.coalesce,
    exp.Cast: PythonScalar.cast,
    exp.Substring: PythonScalar.substring,
    exp.Extract: PythonScalar.extract,
}
