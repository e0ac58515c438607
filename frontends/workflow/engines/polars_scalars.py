"""Scalar expressions as Polars expressions.

Polars differs from docs/workflow-semantics.md in these, which the texts compensate: `%` has the sign of the divisor,
and is inexact for doubles; a text that is no number or day is an error to a strict cast, and day 0 of a year 0 is none
to Polars. Its comparison of NaN, its logic of three values and its division are those of workflows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from frontends.workflow.engines.frames import AND, ATOM, COMPARISON, OR, PRODUCT, SUM, UNARY, Text, constant_text
from frontends.workflow.engines.scripts import string_text
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import OTHER_NAMES, operands, without_parentheses
from frontends.workflow.ir.scalars.values import computation
from frontends.workflow.ir.types import Schema, Type

POLARS_TYPES = {
    Type.INTEGER: "pl.Int64",
    Type.DOUBLE: "pl.Float64",
    Type.STRING: "pl.String",
    Type.BOOLEAN: "pl.Boolean",
    Type.DATE: "pl.Date",
}

REMAINDER = '''\
def remainder(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """With the sign of `a`, which `%` does not have; null where `b` is 0."""
    floored = a % b
    return pl.when((floored != 0) & ((floored < 0) != (a < 0))).then(floored - b).otherwise(floored)
'''
REMAINDER_OF_DOUBLES = '''\
def remainder_of_doubles(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Exact, with the sign of `a`; null where `b` is 0."""

    def fmod(pair: list[pl.Series]) -> pl.Series:
        with np.errstate(all="ignore"):
            return pl.Series(np.fmod(*(one.cast(pl.Float64).to_numpy() for one in pair)))

    exact = pl.map_batches([a, b], fmod, return_dtype=pl.Float64)
    return pl.when(a.is_not_null() & (b != 0)).then(exact)
'''
TO_INTEGER = '''\
def to_integer(text: pl.Expr) -> pl.Expr:
    """Null unless it is digits, perhaps with `-` before them, of at most 64 bits."""
    return pl.when(text.str.contains("^-?[0-9]+$")).then(text).cast(pl.Int64, strict=False)
'''
TO_DOUBLE = '''\
def to_double(text: pl.Expr) -> pl.Expr:
    """Null unless it is a number in digits."""
    number = "^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
    return pl.when(text.str.contains(number)).then(text).cast(pl.Float64, strict=False)
'''
TO_DATE = '''\
def to_date(text: pl.Expr) -> pl.Expr:
    """Null unless it is a day, `YYYY-MM-DD`, of the years 1 to 9999."""
    day = text.str.contains("^[0-9]{4}-[0-9]{2}-[0-9]{2}$") & ~text.str.starts_with("0000")
    return pl.when(day).then(text).str.to_date("%Y-%m-%d", strict=False)
'''


def column(name: str) -> Text:
    """The column; a name that Polars would take for a pattern is written as one that only the name meets."""
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        return Text(f"pl.col({string_text(f'^{re.escape(name)}$')})", ATOM)
    return Text(f"pl.col({string_text(name)})", ATOM)


def expression(one: Text, type_: Type) -> str:
    """The text of an expression also where a plain value would be something else: a name, or of fewer bits."""
    return f"pl.lit({one.text}, {POLARS_TYPES[type_]})" if one.literal else one.text


class PolarsScalars:
    """Writes the scalars of one script. define: called with the name and text of a function that they need."""

    def __init__(self, define: Callable[[str, str], str]) -> None:
        self._define = define

    def text(self, scalar: Scalar, schema: Schema, columns: Mapping[str, Text]) -> Text:
        return _Texts(self._define, columns).of(scalar.typed_tree(schema))


def _type(node: exp.Expr) -> Type | None:
    return OTHER_NAMES.get(node.type.this) if node.type is not None else None


class _Texts:
    """The texts of one tree."""

    def __init__(self, define: Callable[[str, str], str], columns: Mapping[str, Text]) -> None:
        self._define, self._columns = define, columns

    def of(self, node: exp.Expr) -> Text:
        inner = without_parentheses(node)
        return _RULES[type(inner)](self, inner)

    def whole(self, node: exp.Expr, type_: Type | None = None) -> str:
        """The text of an expression by itself, of the type: NULLs have it, and INTEGERs that are to be DOUBLEs."""
        found = _type(node)
        wanted = type_ or found or Type.INTEGER
        if found is None:
            return f"pl.lit(None, {POLARS_TYPES[wanted]})"
        one = self.of(node)
        if one.literal:
            return expression(one, wanted)
        if wanted is Type.DOUBLE and found is Type.INTEGER:
            return f"{one.within(ATOM)}.cast(pl.Float64)"
        return one.text

    def atom(self, node: exp.Expr, type_: Type | None = None) -> str:
        """Of what a method can be called."""
        text = self.whole(node, type_)
        one = self.of(node) if _type(node) is not None else None
        return f"({text})" if one is not None and text == one.text and one.level < ATOM else text

    def pair(self, node: exp.Expr, sign: str, level: int, type_: Type | None = None) -> Text:
        """Two operands; at most one of them is a plain value."""
        left, right = node.this, node.args["expression"]
        common = _common(left, right)
        if level == COMPARISON and None in (_type(left), _type(right)):
            return Text("pl.lit(None, pl.Boolean)", ATOM)
        first = self._operand(left, common, level)
        second = self._operand(right, common, level + 1)
        if first.literal and second.literal:
            first = Text(expression(first, common), ATOM)
        least = level + 1 if level == COMPARISON else level  # Python would chain two comparisons.
        return Text(f"{first.within(least)} {sign} {second.within(level + 1)}", level)

    def _operand(self, node: exp.Expr, common: Type, level: int) -> Text:
        if _type(node) is None:
            return Text(self.whole(node, common), ATOM)
        return self.of(node)

    # ---- rules -------------------------------------------------------------------------------

    def column(self, node: exp.Expr) -> Text:
        return self._columns[node.name]

    def constant(self, node: exp.Expr) -> Text:
        value = computation(Scalar(node), NO_COLUMNS)(())
        if value is None:
            return Text(f"pl.lit(None, {POLARS_TYPES[_type(node) or Type.INTEGER]})", ATOM)
        text = constant_text(float(value) if _type(node) is Type.DOUBLE and isinstance(value, int) else value)
        return Text(text, UNARY if text.startswith("-") else ATOM, literal=True)

    def null(self, node: exp.Expr) -> Text:
        return Text("pl.lit(None)", ATOM)

    def opposite(self, node: exp.Expr) -> Text:
        if isinstance(without_parentheses(node.this), exp.Literal):
            return self.constant(node)
        return Text(f"-{self.atom(node.this)}", UNARY)

    def remainder(self, node: exp.Expr) -> Text:
        left, right = node.this, node.args["expression"]
        type_ = _type(node) or Type.INTEGER
        parts = f"({self.whole(left, type_)}, {self.whole(right, type_)})"
        if type_ is Type.DOUBLE:
            return Text(self._define("remainder_of_doubles", REMAINDER_OF_DOUBLES) + parts, ATOM)
        return Text(self._define("remainder", REMAINDER) + parts, ATOM)

    def sum(self, node: exp.Expr) -> Text:
        interval = node.args["expression"]
        if not isinstance(interval, exp.Interval):
            return self.pair(node, "+" if isinstance(node, exp.Add) else "-", SUM)
        count = int(interval.this.name) * (1 if isinstance(node, exp.Add) else -1)
        unit = "d" if interval.args["unit"].name == "DAY" else "mo"
        return Text(f'{self.atom(node.this, Type.DATE)}.dt.offset_by("{count}{unit}")', ATOM)

    def same(self, node: exp.Expr) -> Text:
        left, right = node.this, node.args["expression"]
        common = _common(left, right)
        return Text(f"{self.atom(left, common)}.eq_missing({self.whole(right, common)})", ATOM)

    def between(self, node: exp.Expr) -> Text:
        low, high = node.args["low"], node.args["high"]
        common = _common(node.this, low, high)
        bounds = f"{self.whole(low, common)}, {self.whole(high, common)}"
        return Text(f"{self.atom(node.this, common)}.is_between({bounds})", ATOM)

    def membership(self, node: exp.Expr) -> Text:
        common = _common(node.this, *node.expressions)
        values = [computation(Scalar(one), NO_COLUMNS)(()) for one in node.expressions]
        if common is Type.DOUBLE:
            values = [float(one) for one in values if isinstance(one, int | float)]
        texts = ", ".join(map(constant_text, values))
        return Text(f"{self.atom(node.this, common)}.is_in([{texts}])", ATOM)

    def connected(self, node: exp.Expr) -> Text:
        assert isinstance(node, exp.Connector)
        sign, level = ("&", AND) if isinstance(node, exp.And) else ("|", OR)
        parts = []
        for part in operands(node):
            one = self.of(part)
            bare = _type(part) is None or one.literal
            parts.append(self.whole(part, Type.BOOLEAN) if bare else one.within(level + 1))
        return Text(f" {sign} ".join(parts), level)

    def negated(self, node: exp.Expr) -> Text:
        return Text(f"~{self.atom(node.this, Type.BOOLEAN)}", UNARY)

    def is_null(self, node: exp.Expr) -> Text:
        return Text(f"{self.atom(node.this)}.is_null()", ATOM)

    def like(self, node: exp.Expr) -> Text:
        pattern, text = node.args["expression"].name, self.atom(node.this, Type.STRING)
        plain = pattern.strip("%")
        if "%" not in plain and "_" not in plain and plain:
            methods = {(False, True): "starts_with", (True, False): "ends_with"}
            shape = (pattern.startswith("%"), pattern.endswith("%"))
            if shape == (True, True):
                return Text(f"{text}.str.contains({string_text(plain)}, literal=True)", ATOM)
            if shape in methods:
                return Text(f"{text}.str.{methods[shape]}({string_text(plain)})", ATOM)
            return Text(f"{text} == {string_text(plain)}", COMPARISON)
        meant = "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in pattern)
        return Text(f"{text}.str.contains({string_text(f'(?s)^{meant}$')})", ATOM)

    def case(self, node: exp.Expr) -> Text:
        type_ = _type(node)
        text = "pl"
        for branch in node.args["ifs"]:
            test = self.whole(branch.this, Type.BOOLEAN)
            text += f".when({test}).then({self.whole(branch.args['true'], type_)})"
        default = node.args.get("default")
        otherwise = "" if default is None else f".otherwise({self.whole(default, type_)})"
        return Text(text + otherwise, ATOM)

    def coalesce(self, node: exp.Expr) -> Text:
        parts = [self.whole(one, _type(node)) for one in (node.this, *node.expressions)]
        return Text(f"pl.coalesce({', '.join(parts)})", ATOM)

    def cast(self, node: exp.Expr) -> Text:
        to, found = OTHER_NAMES[node.args["to"].this], _type(node.this)
        if found is None:
            return Text(f"pl.lit(None, {POLARS_TYPES[to]})", ATOM)
        if isinstance(without_parentheses(node.this), exp.Literal):
            return self.constant(node)
        if found is to:
            return self.of(node.this)
        functions = {
            Type.INTEGER: ("to_integer", TO_INTEGER),
            Type.DOUBLE: ("to_double", TO_DOUBLE),
            Type.DATE: ("to_date", TO_DATE),
        }
        if found is Type.STRING:
            return Text(f"{self._define(*functions[to])}({self.whole(node.this)})", ATOM)
        if to is Type.BOOLEAN:
            return Text(f"{self.atom(node.this)} != 0", COMPARISON)
        if found is Type.DATE:
            return Text(f'{self.atom(node.this)}.dt.to_string("%Y-%m-%d")', ATOM)
        strict = ", strict=False" if found is Type.DOUBLE else ""
        return Text(f"{self.atom(node.this)}.cast({POLARS_TYPES[to]}{strict})", ATOM)

    def extract(self, node: exp.Expr) -> Text:
        day = self.atom(node.args["expression"], Type.DATE)
        return Text(f"{day}.dt.{node.this.name.lower()}().cast(pl.Int64)", ATOM)

    def substring(self, node: exp.Expr) -> Text:
        length = node.args.get("length")
        until = "" if length is None else f", {length.name}"
        return Text(f"{self.atom(node.this, Type.STRING)}.str.slice({int(node.args['start'].name) - 1}{until})", ATOM)

    def absolute(self, node: exp.Expr) -> Text:
        return Text(f"{self.atom(node.this)}.abs()", ATOM)


NO_COLUMNS = Schema.of(none=Type.INTEGER)


def _common(*nodes: exp.Expr) -> Type:
    """The type that the nodes are brought to."""
    types = {_type(node) for node in nodes} - {None}
    return Type.DOUBLE if len(types) > 1 else next(iter(types), None) or Type.INTEGER


def _pair(sign: str, level: int) -> Callable[[_Texts, exp.Expr], Text]:
    return lambda texts, node: texts.pair(node, sign, level)


_RULES: dict[type[exp.Expr], Callable[[_Texts, exp.Expr], Text]] = {
    exp.Column: _Texts.column,
    exp.Literal: _Texts.constant,
    exp.Boolean: _Texts.constant,
    exp.Null: _Texts.null,
    exp.Add: _Texts.sum,
    exp.Sub: _Texts.sum,
    exp.Mul: _pair("*", PRODUCT),
    exp.Div: _pair("/", PRODUCT),
    exp.Mod: _Texts.remainder,
    exp.Neg: _Texts.opposite,
    exp.Abs: _Texts.absolute,
    exp.EQ: _pair("==", COMPARISON),
    exp.NEQ: _pair("!=", COMPARISON),
    exp.LT: _pair("<", COMPARISON),
    exp.LTE: _pair("<=", COMPARISON),
    exp.GT: _pair(">", COMPARISON),
    exp.GTE: _pair(">=", COMPARISON),
    exp.NullSafeEQ: _Texts.same,
    exp.Between: _Texts.between,
    exp.In: _Texts.membership,
    exp.And: _Texts.connected,
    exp.Or: _Texts.connected,
    exp.Not: _Texts.negated,
    exp.Is: _Texts.is_null,
    exp.Like: _Texts.like,
    exp.Case: _Texts.case,
    exp.Coalesce: _Texts.coalesce,
    exp.Cast: _Texts.cast,
    exp.Extract: _Texts.extract,
    exp.Substring: _Texts.substring,
    exp.DPipe: _pair("+", SUM),
}
