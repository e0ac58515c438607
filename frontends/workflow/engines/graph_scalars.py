"""Scalar expressions over arrays of numbers, each beside an array of where a value is there (no null).

Two forms of one text: of NumPy arrays, and of single values in compiled loops. Of the types INTEGER, DOUBLE and
BOOLEAN, and without `%` and texts: other scalars are inexpressible (`refused`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import OTHER_NAMES, operands, without_parentheses
from frontends.workflow.ir.scalars.values import computation
from frontends.workflow.ir.types import Schema, Type

NUMPY_TYPES = {Type.INTEGER: "np.int64", Type.DOUBLE: "np.float64", Type.BOOLEAN: "np.bool_"}
"""The types that graph engines compute with."""
ALWAYS = "True"
"""The text of a value that is never null."""
_NO_COLUMNS = Schema.of(none=Type.INTEGER)


@dataclass(frozen=True, slots=True)
class Masked:
    """The texts of a value, and of whether it is there."""

    value: str
    there: str


def refused(scalar: Scalar, schema: Schema) -> str | None:
    """Why the scalar cannot be written; None if it can."""
    for node in scalar.typed_tree(schema).walk():
        if isinstance(node, exp.Identifier | exp.DataType | exp.If):
            continue
        if type(node) not in _RULES and not isinstance(node, exp.Paren):
            return f"{node.key.upper()} in {scalar}"
        type_ = _type(node)
        if type_ is not None and type_ not in NUMPY_TYPES:
            return f"the {type_.value} {node.sql()} in {scalar}"
    return None


def masked(scalar: Scalar, schema: Schema, columns: Mapping[str, Masked], *, compiled: bool) -> Masked:
    """The texts of the scalar. columns: {name: texts}; compiled: of single values, in a compiled loop."""
    return _Texts(columns, compiled).of(scalar.typed_tree(schema))


def holds(scalars: tuple[Scalar, ...], schema: Schema, columns: Mapping[str, Masked], *, compiled: bool) -> list[str]:
    """The texts of whether each condition is true, neither false nor null."""
    texts = _Texts(columns, compiled)
    return [texts.true(texts.of(scalar.typed_tree(schema))) for scalar in scalars]


def _type(node: exp.Expr) -> Type | None:
    return OTHER_NAMES.get(node.type.this) if node.type is not None else None


class _Texts:
    """The texts of one tree. All values are in parentheses, unless they are names or calls."""

    def __init__(self, columns: Mapping[str, Masked], compiled: bool) -> None:
        self._columns, self._compiled = columns, compiled

    def of(self, node: exp.Expr) -> Masked:
        inner = without_parentheses(node)
        if inner.find(exp.Column) is None and _type(inner) is not None:
            return self.constant(inner)
        return _RULES[type(inner)](self, inner)

    # ---- forms -------------------------------------------------------------------------------

    def no(self, text: str) -> str:
        if text == ALWAYS:
            return "False"
        if text == "False":
            return ALWAYS
        return f"(not {text})" if self._compiled else f"~{text}"

    def both(self, *texts: str) -> str:
        parts = list(dict.fromkeys(text for text in texts if text != ALWAYS))
        if "False" in parts:
            return "False"
        return _chain("&", parts) if parts else ALWAYS

    def either(self, *texts: str) -> str:
        parts = list(dict.fromkeys(text for text in texts if text != "False"))
        if ALWAYS in parts:
            return ALWAYS
        return _chain("|", parts) if parts else "False"

    def chosen(self, test: str, value: str, otherwise: str) -> str:
        if test == ALWAYS or value == otherwise:
            return value
        if test == "False":
            return otherwise
        return f"({value} if {test} else {otherwise})" if self._compiled else f"np.where({test}, {value}, {otherwise})"

    def true(self, one: Masked) -> str:
        return self.both(one.value, one.there)

    def double(self, node: exp.Expr, type_: Type | None) -> Masked:
        """The value, as a DOUBLE if that is the type."""
        one = self.of(node)
        if type_ is not Type.DOUBLE or _type(node) is not Type.INTEGER:
            return one
        digits = one.value.strip("(-)")
        if digits.isdigit():
            return Masked(one.value.replace(digits, f"{digits}.0"), one.there)
        return Masked(f"np.float64({one.value})", one.there)

    # ---- rules -------------------------------------------------------------------------------

    def column(self, node: exp.Expr) -> Masked:
        return self._columns[node.name]

    def constant(self, node: exp.Expr) -> Masked:
        value = computation(Scalar(node), _NO_COLUMNS)(())
        if value is None:
            return Masked("0", "False")
        text = repr(value)
        text = f"np.{text.lstrip('-')}" if text.lstrip("-") in ("inf", "nan") else text
        return Masked(f"(-{text.lstrip('-')})" if repr(value).startswith("-") else text, ALWAYS)

    def null(self, node: exp.Expr) -> Masked:
        return Masked("0", "False")

    def binary(self, node: exp.Expr) -> Masked:
        type_ = Type.DOUBLE if isinstance(node, exp.Div) else _type(node)
        left, right = self.double(node.this, type_), self.double(node.args["expression"], type_)
        return Masked(f"({left.value} {_SIGNS[type(node)]} {right.value})", self.both(left.there, right.there))

    def opposite(self, node: exp.Expr) -> Masked:
        one = self.of(node.this)
        return Masked(f"(-{one.value})", one.there)

    def absolute(self, node: exp.Expr) -> Masked:
        one = self.of(node.this)
        return Masked(f"abs({one.value})", one.there)

    def comparison(self, node: exp.Expr) -> Masked:
        return self._compared(node.this, node.args["expression"], type(node))

    def _compared(self, left: exp.Expr, right: exp.Expr, kind: type[exp.Expr]) -> Masked:
        types = {_type(left), _type(right)} - {None}
        common = Type.DOUBLE if Type.DOUBLE in types else None
        one, other = self.double(left, common), self.double(right, common)
        there = self.both(one.there, other.there)
        plain = common is None or (_number(right) and kind in (exp.EQ, exp.NEQ, exp.LT, exp.LTE))
        if plain or (_number(left) and kind in (exp.EQ, exp.NEQ, exp.GT, exp.GTE)):
            return Masked(f"({one.value} {_COMPARISONS[kind]} {other.value})", there)
        if kind in (exp.GT, exp.LTE):
            one, other = other, one
        if kind in (exp.EQ, exp.NEQ):
            value = f"(({one.value} == {other.value}) | ({_nan(one.value)} & {_nan(other.value)}))"
        else:
            value = f"(({one.value} < {other.value}) | ({_nan(other.value)} & ({one.value} == {one.value})))"
        return Masked(self.no(value) if kind in (exp.NEQ, exp.LTE, exp.GTE) else value, there)

    def same(self, node: exp.Expr) -> Masked:
        left, right = self.of(node.this), self.of(node.args["expression"])
        equal = self._compared(node.this, node.args["expression"], exp.EQ)
        nulls = self.both(self.no(left.there), self.no(right.there))
        return Masked(self.either(self.both(equal.value, equal.there), nulls), ALWAYS)

    def between(self, node: exp.Expr) -> Masked:
        low = self._compared(node.args["low"], node.this, exp.LTE)
        high = self._compared(node.this, node.args["high"], exp.LTE)
        return self._all([low, high])

    def membership(self, node: exp.Expr) -> Masked:
        parts = [self._compared(node.this, one, exp.EQ) for one in node.expressions]
        return Masked(self.either(*(part.value for part in parts)), parts[0].there)

    def connected(self, node: exp.Expr) -> Masked:
        assert isinstance(node, exp.Connector)
        parts = [self.of(part) for part in operands(node)]
        if isinstance(node, exp.And):
            return self._all(parts)
        decides = [self.both(part.value, part.there) for part in parts]
        return Masked(self.either(*decides), self.either(*decides, self.both(*(part.there for part in parts))))

    def _all(self, parts: list[Masked]) -> Masked:
        false = [self.both(self.no(part.value), part.there) for part in parts]
        value = self.no(self.either(*false))
        return Masked(value, self.either(*false, self.both(*(part.there for part in parts))))

    def negated(self, node: exp.Expr) -> Masked:
        one = self.of(node.this)
        return Masked(self.no(one.value), one.there)

    def is_null(self, node: exp.Expr) -> Masked:
        return Masked(self.no(self.of(node.this).there), ALWAYS)

    def case(self, node: exp.Expr) -> Masked:
        type_, default = _type(node), node.args.get("default")
        found = Masked("0", "False") if default is None else self.double(default, type_)
        for branch in reversed(node.args["ifs"]):
            test, value = self.true(self.of(branch.this)), self.double(branch.args["true"], type_)
            found = Masked(
                self.chosen(test, value.value, found.value),
                self.either(self.both(test, value.there), self.both(self.no(test), found.there)),
            )
        return found

    def coalesce(self, node: exp.Expr) -> Masked:
        parts = [self.double(one, _type(node)) for one in (node.this, *node.expressions)]
        found = parts[-1]
        for part in reversed(parts[:-1]):
            found = Masked(self.chosen(part.there, part.value, found.value), self.either(part.there, found.there))
        return found

    def cast(self, node: exp.Expr) -> Masked:
        to, found = OTHER_NAMES[node.args["to"].this], _type(node.this)
        one = self.of(node.this)
        if found is to or found is None:
            return one
        if to is Type.BOOLEAN:
            return Masked(f"({one.value} != 0)", one.there)
        if to is Type.DOUBLE:
            return self.double(node.this, to)
        if found is Type.BOOLEAN:
            return Masked(f"np.int64({one.value})", one.there)
        whole = f"({one.value} >= -9223372036854775808.0) & ({one.value} < 9223372036854775808.0)"
        value = self.chosen(f"({whole})", one.value, "0.0")
        return Masked(f"np.int64({value})", self.both(f"({whole})", one.there))


def _number(node: exp.Expr) -> bool:
    """Whether the node is a number as written, which is not NaN."""
    inner = without_parentheses(node)
    inner = without_parentheses(inner.this) if isinstance(inner, exp.Neg) else inner
    return isinstance(inner, exp.Literal) and not inner.args["is_string"]


def _nan(text: str) -> str:
    return f"({text} != {text})"


def _chain(sign: str, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({f' {sign} '.join(parts)})"


_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "==", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_RULES: dict[type[exp.Expr], Callable[[_Texts, exp.Expr], Masked]] = {
    exp.Column: _Texts.column,
    exp.Literal: _Texts.constant,
    exp.Boolean: _Texts.constant,
    exp.Null: _Texts.null,
    **dict.fromkeys(_SIGNS, _Texts.binary),
    exp.Neg: _Texts.opposite,
    exp.Abs: _Texts.absolute,
    **dict.fromkeys(_COMPARISONS, _Texts.comparison),
    exp.NullSafeEQ: _Texts.same,
    exp.Between: _Texts.between,
    exp.In: _Texts.membership,
    exp.And: _Texts.connected,
    exp.Or: _Texts.connected,
    exp.Not: _Texts.negated,
    exp.Is: _Texts.is_null,
    exp.Case: _Texts.case,
    exp.Coalesce: _Texts.coalesce,
    exp.Cast: _Texts.cast,
}
