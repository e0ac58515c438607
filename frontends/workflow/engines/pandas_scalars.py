"""Scalar expressions as expressions over pandas's columns with nulls; `pandas_functions` says what is compensated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from frontends.workflow.engines.frames import AND, ATOM, COMPARISON, OR, PRODUCT, SUM, UNARY, Text, constant_text
from frontends.workflow.engines.pandas_functions import FUNCTIONS, NEEDED
from frontends.workflow.engines.scripts import string_text
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import OTHER_NAMES, operands, without_parentheses
from frontends.workflow.ir.scalars.values import Value, computation
from frontends.workflow.ir.types import Schema, Type

DTYPES = {
    Type.INTEGER: "Int64",
    Type.DOUBLE: "Float64",
    Type.STRING: "string",
    Type.BOOLEAN: "boolean",
    Type.DATE: "Int64",
}
NO_COLUMNS = Schema.of(none=Type.INTEGER)
_EPOCH = 719163
_INTEGER_TEXT = "-?[0-9]+"
_DOUBLE_TEXT = r"-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?"
_DATE_TEXT = "[0-9]{4}-[0-9]{2}-[0-9]{2}"


def constant_value(scalar: Scalar, type_: Type) -> Value:
    """The value as scripts for pandas have it."""
    return as_stored(computation(scalar, NO_COLUMNS)(()), type_)


def as_stored(value: Value, type_: Type) -> Value:
    """A day as the days since 1970-01-01, an INTEGER that is to be a DOUBLE as one."""
    if type_ is Type.DATE and value is not None:
        assert not isinstance(value, int | float | str)
        return value.toordinal() - _EPOCH
    return float(value) if type_ is Type.DOUBLE and isinstance(value, int) else value


def type_of_node(node: exp.Expr) -> Type | None:
    """The type of a node of a typed tree; None for NULL."""
    return OTHER_NAMES.get(node.type.this) if node.type is not None else None


class PandasScalars:
    """Writes the scalars of one script. define: called with the name and text of a function that they need."""

    def __init__(self, define: Callable[[str, str], str]) -> None:
        self._define = define

    def use(self, name: str) -> str:
        """The name of a function of `FUNCTIONS`, which the script defines from now on."""
        for needed in (*NEEDED.get(name, ()), name):
            self._define(needed, FUNCTIONS[needed])
        return name

    def text(self, scalar: Scalar, schema: Schema, columns: Mapping[str, Text], frame: str) -> Text:
        return _Texts(self.use, columns, frame).of(scalar.typed_tree(schema))

    def constant(self, one: Text, type_: Type, frame: str) -> str:
        """The column of a plain value."""
        return f"{self.use('constant')}({frame}, {one.text}, {string_text(DTYPES[type_])})"


class _Texts:
    """The texts of one tree."""

    def __init__(self, use: Callable[[str], str], columns: Mapping[str, Text], frame: str) -> None:
        self._use, self._columns, self._frame = use, columns, frame

    def of(self, node: exp.Expr) -> Text:
        inner = without_parentheses(node)
        return _RULES[type(inner)](self, inner)

    def whole(self, node: exp.Expr, type_: Type | None = None) -> Text:
        """A column, never a plain value; of the type, which NULLs and INTEGERs that are to be DOUBLEs get."""
        found = type_of_node(node)
        wanted = type_ or found or Type.INTEGER
        one = Text("None", ATOM, literal=True) if found is None else self.of(node)
        if one.literal:
            dtype = string_text(DTYPES[wanted])
            return Text(f"{self._use('constant')}({self._frame}, {self._literal(one, wanted, found)}, {dtype})", ATOM)
        if wanted is Type.DOUBLE and found is Type.INTEGER:
            return Text(f'{one.within(ATOM)}.astype("Float64")', ATOM)
        return one

    def _literal(self, one: Text, wanted: Type, found: Type | None) -> str:
        return f"float({one.text})" if wanted is Type.DOUBLE and found is Type.INTEGER else one.text

    def text(self, node: exp.Expr, type_: Type | None = None) -> str:
        return self.whole(node, type_).text

    def atom(self, node: exp.Expr, type_: Type | None = None) -> str:
        return self.whole(node, type_).within(ATOM)

    def operand(self, node: exp.Expr, type_: Type) -> Text:
        """A column, or a plain value."""
        if type_of_node(node) is None:
            return self.whole(node, type_)
        one = self.of(node)
        return one if one.literal else self.whole(node, type_)

    def pair(self, node: exp.Expr, sign: str, level: int) -> Text:
        common = _common(node.this, node.args["expression"])
        return self.signed(node.this, node.args["expression"], sign, level, common)

    def signed(self, left: exp.Expr, right: exp.Expr, sign: str, level: int, common: Type) -> Text:
        """Two operands, at most one of which is a plain value."""
        first, second = self.operand(left, common), self.operand(right, common)
        if first.literal and second.literal:
            first = self.whole(left, common)
        return Text(
            f"{first.within(level + 1 if level == COMPARISON else level)} {sign} {second.within(level + 1)}", level
        )

    # ---- rules -------------------------------------------------------------------------------

    def column(self, node: exp.Expr) -> Text:
        return self._columns[node.name]

    def constant(self, node: exp.Expr) -> Text:
        type_ = type_of_node(node) or Type.INTEGER
        value = constant_value(Scalar(node), type_)
        if type_ is Type.DATE:
            text = f"{self._use('days_of')}({string_text(str(computation(Scalar(node), NO_COLUMNS)(())))})"
            return Text(text, ATOM, literal=True)
        text = constant_text(value)
        return Text(text, UNARY if text.startswith("-") else ATOM, literal=True)

    def null(self, node: exp.Expr) -> Text:
        return self.whole(node)

    def opposite(self, node: exp.Expr) -> Text:
        if isinstance(without_parentheses(node.this), exp.Literal):
            return self.constant(node)
        return Text(f"-{self.atom(node.this)}", UNARY)

    def remainder(self, node: exp.Expr) -> Text:
        type_ = type_of_node(node) or Type.INTEGER
        left, right = self.text(node.this, type_), self.text(node.args["expression"], type_)
        return Text(f"{self._use('remainder')}({left}, {right})", ATOM)

    def quotient(self, node: exp.Expr) -> Text:
        left, right = node.this, node.args["expression"]
        return self.signed(left, right, "/", PRODUCT, Type.DOUBLE)

    def sum(self, node: exp.Expr) -> Text:
        interval = node.args["expression"]
        if not isinstance(interval, exp.Interval):
            return self.pair(node, "+" if isinstance(node, exp.Add) else "-", SUM)
        count = int(interval.this.name) * (1 if isinstance(node, exp.Add) else -1)
        if interval.args["unit"].name == "DAY":
            return Text(f"{self.whole(node.this, Type.DATE).within(SUM)} + {count}", SUM)
        return Text(f"{self._use('months_later')}({self.text(node.this, Type.DATE)}, {count})", ATOM)

    def comparison(self, node: exp.Expr) -> Text:
        return self._compared(node.this, node.args["expression"], type(node))

    def _compared(self, left: exp.Expr, right: exp.Expr, kind: type[exp.Expr]) -> Text:
        """Doubles are compared by functions that know NaN, unless one side is a number that decides."""
        common = _common(left, right)
        sign = _SIGNS[kind]
        plain = common is not Type.DOUBLE
        plain |= _finite(right) and kind in (exp.EQ, exp.NEQ, exp.LT, exp.LTE)
        plain |= _finite(left) and kind in (exp.EQ, exp.NEQ, exp.GT, exp.GTE)
        if plain:
            compared = self.signed(left, right, sign, COMPARISON, common)
            return _boolean(compared) if common is Type.STRING else compared
        first, second = self.operand(left, common), self.operand(right, common)
        one = self.text(left, common) if first.literal and second.literal else first.text
        other = second.text
        if kind in (exp.EQ, exp.NEQ):
            return _negated(f"{self._use('equal')}({one}, {other})", kind is exp.NEQ)
        if kind in (exp.GT, exp.LTE):
            one, other = other, one
        return _negated(f"{self._use('less')}({one}, {other})", kind in (exp.LTE, exp.GTE))

    def same(self, node: exp.Expr) -> Text:
        left, right = node.this, node.args["expression"]
        common = _common(left, right)
        equal = self._compared(left, right, exp.EQ).text
        return Text(f"{self._use('same')}({equal}, {self.text(left, common)}, {self.text(right, common)})", ATOM)

    def between(self, node: exp.Expr) -> Text:
        low = self._compared(node.args["low"], node.this, exp.LTE)
        high = self._compared(node.this, node.args["high"], exp.LTE)
        return Text(f"{low.within(AND + 1)} & {high.within(AND + 1)}", AND)

    def membership(self, node: exp.Expr) -> Text:
        common = _common(node.this, *node.expressions)
        values = [constant_value(Scalar(one), common) for one in node.expressions]
        if any(isinstance(value, float) and math.isnan(value) for value in values):
            parts = [self._compared(node.this, one, exp.EQ).within(OR + 1) for one in node.expressions]
            return Text(" | ".join(parts), OR)
        texts = ", ".join(map(constant_text, values))
        return Text(f"{self._use('among')}({self.text(node.this, common)}, [{texts}])", ATOM)

    def connected(self, node: exp.Expr) -> Text:
        assert isinstance(node, exp.Connector)
        sign, level = ("&", AND) if isinstance(node, exp.And) else ("|", OR)
        parts = [self.whole(part, Type.BOOLEAN).within(level + 1) for part in operands(node)]
        return Text(f" {sign} ".join(parts), level)

    def negated(self, node: exp.Expr) -> Text:
        return Text(f"~{self.atom(node.this, Type.BOOLEAN)}", UNARY)

    def is_null(self, node: exp.Expr) -> Text:
        return Text(f'{self.atom(node.this)}.isna().astype("boolean")', ATOM)

    def like(self, node: exp.Expr) -> Text:
        pattern, text = node.args["expression"].name, self.atom(node.this, Type.STRING)
        plain = pattern.strip("%")
        shape = (pattern.startswith("%"), pattern.endswith("%"))
        if plain and "%" not in plain and "_" not in plain:
            if shape == (False, False):
                return _boolean(Text(f"{text} == {string_text(plain)}", COMPARISON))
            method = {(False, True): "startswith", (True, False): "endswith"}.get(shape, "contains")
            regex = ", regex=False" if method == "contains" else ""
            return Text(f"{text}.str.{method}({string_text(plain)}{regex})", ATOM)
        meant = "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in pattern)
        return Text(f"{text}.str.fullmatch({string_text(f'(?s:{meant})')})", ATOM)

    def case(self, node: exp.Expr) -> Text:
        type_ = type_of_node(node)
        default = node.args.get("default")
        null = exp.Null()
        null.type = exp.DataType(this=exp.DType.NULL)
        parts = [self.text(null if default is None else default, type_)]
        for branch in node.args["ifs"]:
            parts.append(f"({self.text(branch.this, Type.BOOLEAN)}, {self.text(branch.args['true'], type_)})")
        return Text(f"{self._use('case')}({', '.join(parts)})", ATOM)

    def coalesce(self, node: exp.Expr) -> Text:
        parts = [self.text(one, type_of_node(node)) for one in (node.this, *node.expressions)]
        return Text(f"{self._use('coalesce')}({', '.join(parts)})", ATOM)

    def cast(self, node: exp.Expr) -> Text:
        to, found = OTHER_NAMES[node.args["to"].this], type_of_node(node.this)
        if found is None:
            return self.whole(node.this, to)
        if isinstance(without_parentheses(node.this), exp.Literal):
            return self.constant(node)
        if found is to:
            return self.of(node.this)
        value = self.text(node.this)
        if found is Type.STRING:
            return Text(self._parsed(value, to), ATOM)
        if to is Type.BOOLEAN:
            return Text(f"{self.whole(node.this).within(COMPARISON + 1)} != 0", COMPARISON)
        if found is Type.DATE:
            return Text(f"{self._use('date_text')}({value})", ATOM)
        if found is Type.DOUBLE:
            return Text(f"{self._use('whole')}({value})", ATOM)
        lower = ".str.lower()" if found is Type.BOOLEAN and to is Type.STRING else ""
        return Text(f"{self.atom(node.this)}.astype({string_text(DTYPES[to])}){lower}", ATOM)

    def _parsed(self, text: str, to: Type) -> str:
        patterns = {
            Type.INTEGER: (_INTEGER_TEXT, "int"),
            Type.DOUBLE: (_DOUBLE_TEXT, "float"),
            Type.DATE: (_DATE_TEXT, "days_of"),
        }
        pattern, convert = patterns[to]
        if to is Type.DATE:
            self._use(convert)
        return f'{self._use("parsed")}({text}, "{pattern}", {convert}, "{DTYPES[to]}")'

    def extract(self, node: exp.Expr) -> Text:
        return Text(f"{self._use(node.this.name.lower())}({self.text(node.args['expression'], Type.DATE)})", ATOM)

    def substring(self, node: exp.Expr) -> Text:
        start, length = int(node.args["start"].name) - 1, node.args.get("length")
        stop = "" if length is None else f", {start + int(length.name)}"
        return Text(f"{self.atom(node.this, Type.STRING)}.str.slice({start}{stop})", ATOM)

    def absolute(self, node: exp.Expr) -> Text:
        return Text(f"{self.atom(node.this)}.abs()", ATOM)


def _negated(text: str, negated: bool) -> Text:
    return Text(f"~{text}", UNARY) if negated else Text(text, ATOM)


def _boolean(one: Text) -> Text:
    """Texts are compared by Arrow, whose BOOLEANs are none of pandas's."""
    return Text(f'{one.within(ATOM)}.astype("boolean")', ATOM)


def _finite(node: exp.Expr) -> bool:
    """Whether the node is a number as written."""
    inner = without_parentheses(node)
    inner = without_parentheses(inner.this) if isinstance(inner, exp.Neg) else inner
    return isinstance(inner, exp.Literal) and not inner.args["is_string"]


def _common(*nodes: exp.Expr) -> Type:
    """The type that the nodes are brought to."""
    types = {type_of_node(node) for node in nodes} - {None}
    return Type.DOUBLE if len(types) > 1 else next(iter(types), None) or Type.INTEGER


_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "==", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip

_RULES: dict[type[exp.Expr], Callable[[_Texts, exp.Expr], Text]] = {
    exp.Column: _Texts.column,
    exp.Literal: _Texts.constant,
    exp.Boolean: _Texts.constant,
    exp.Null: _Texts.null,
    exp.Add: _Texts.sum,
    exp.Sub: _Texts.sum,
    exp.Mul: lambda texts, node: texts.pair(node, "*", PRODUCT),
    exp.Div: _Texts.quotient,
    exp.Mod: _Texts.remainder,
    exp.Neg: _Texts.opposite,
    exp.Abs: _Texts.absolute,
    **dict.fromkeys(_SIGNS, _Texts.comparison),
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
    exp.DPipe: lambda texts, node: texts.pair(node, "+", SUM),
}
