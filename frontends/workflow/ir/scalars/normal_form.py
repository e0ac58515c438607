"""The normal form of scalar expressions: the listed subset, other spellings turned into it, parentheses where needed.

The trees that are made here are new throughout: no node of the input is changed or kept.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokens import Tokenizer

from frontends.workflow.errors import InvalidSyntax, InvalidWorkflow, NotSupported, TooLarge
from frontends.workflow.ir.scalars.places import keep_place
from frontends.workflow.ir.types import Type, check_name

DEPTH_MAX = 100
"""Levels of a scalar expression; a chain of AND or of OR is one."""
NODES_MAX = 20_000
"""Nodes of a scalar expression."""
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

DATA_TYPES: dict[Type, exp.DType] = {
    Type.INTEGER: exp.DType.BIGINT,
    Type.DOUBLE: exp.DType.DOUBLE,
    Type.STRING: exp.DType.TEXT,
    Type.BOOLEAN: exp.DType.BOOLEAN,
    Type.DATE: exp.DType.DATE,
}
"""How the trees name the five types."""
OTHER_NAMES: dict[exp.DType, Type] = {
    **{name: type_ for type_, name in DATA_TYPES.items()},
    exp.DType.TINYINT: Type.INTEGER,
    exp.DType.SMALLINT: Type.INTEGER,
    exp.DType.INT: Type.INTEGER,
    exp.DType.FLOAT: Type.DOUBLE,
    exp.DType.DECIMAL: Type.DOUBLE,
    exp.DType.VARCHAR: Type.STRING,
    exp.DType.CHAR: Type.STRING,
}
"""Types that workflows may write, and which of the five they mean."""
PARTS = ("YEAR", "MONTH", "DAY")
"""Parts of a date that can be extracted."""
UNITS = {"DAY": (1, "DAY"), "WEEK": (7, "DAY"), "MONTH": (1, "MONTH"), "QUARTER": (3, "MONTH"), "YEAR": (12, "MONTH")}
"""Units of intervals: how many of which unit of the normal form."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = frozenset(word for keyword in Tokenizer.KEYWORDS for word in keyword.split()) | frozenset(
    ("ANY", "ALL", "BETWEEN", "CASE", "ELSE", "END", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "THEN", "TRUE", "WHEN")
)

_BINARY: tuple[type[exp.Binary], ...] = (
    exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
)  # fmt: skip


def column(name: str) -> exp.Column:
    """The tree of a column."""
    check_name("column", name)
    return exp.Column(this=exp.Identifier(this=name, quoted=not _plain(name)))


@functools.cache
def data_type(type_: Type) -> exp.DataType:
    """The tree of a type; to be copied into trees."""
    return exp.DataType(this=DATA_TYPES[type_], nested=False)


def cast(value: exp.Expr, type_: Type) -> exp.Cast:
    """The tree of a cast; `value` becomes part of it."""
    return exp.Cast(this=value, to=data_type(type_).copy())


def integer(value: int) -> exp.Expr:
    """The tree of an INTEGER constant."""
    return _number(str(abs(value)), value < 0)


def double(value: float) -> exp.Expr:
    """The tree of a DOUBLE constant, which must be finite."""
    return _number(repr(abs(value)), value < 0)


def _number(text: str, negative: bool) -> exp.Expr:
    literal = exp.Literal(this=text, is_string=False)
    return exp.Neg(this=literal) if negative else literal


def _plain(name: str) -> bool:
    """Whether the name needs no quotes in an expression."""
    upper = name.upper()
    return bool(_PLAIN_NAME.fullmatch(name)) and upper not in _WORDS and upper not in exp.FUNCTION_BY_NAME


def without_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def operands(node: exp.Connector) -> list[exp.Expr]:
    """What a chain of AND, or of OR, combines."""
    found: list[exp.Expr] = []
    waiting: list[exp.Expr] = [node]
    while waiting:
        one = without_parentheses(waiting.pop())
        if type(one) is type(node):
            waiting += [one.args["expression"], one.this]
        else:
            found.append(one)
    return found


def chained(kind: type[exp.Expr], parts: list[exp.Expr]) -> exp.Expr:
    """The parts combined by AND or OR, to the left."""
    return functools.reduce(lambda left, right: kind(this=left, expression=right), parts)


# ---- the subset ------------------------------------------------------------------------------


def in_normal_form(tree: exp.Expr) -> exp.Expr:
    """The tree in the listed subset, without parentheses; `NotSupported` names what has no such form."""
    if sum(1 for _ in tree.walk()) > NODES_MAX:
        raise TooLarge("nodes of an expression", sum(1 for _ in tree.walk()), NODES_MAX)
    return _normal(tree, 0)


def _normal(node: exp.Expr, depth: int) -> exp.Expr:
    node = without_parentheses(node)
    if depth > DEPTH_MAX:
        raise InvalidWorkflow(f"an expression has more than {DEPTH_MAX} levels")
    rule = _RULES.get(type(node))
    if rule is None:
        raise NotSupported(_construct(node))
    return keep_place(rule(node, lambda child: _normal(child, depth + 1)), node)


Down = Callable[[exp.Expr], exp.Expr]
"""Brings a child into the normal form."""


def _construct(node: exp.Expr) -> str:
    text = node.sql()
    return f"{node.key.upper()} in an expression ({text if len(text) <= 60 else text[:59] + '…'})"


def _only(node: exp.Expr, *names: str) -> None:
    """`NotSupported` if the node has more than these arguments."""
    if any(value for name, value in node.args.items() if name not in names):
        raise NotSupported(_construct(node))


def _column(node: exp.Expr, down: Down) -> exp.Expr:
    if node.args.get("table") is not None or not isinstance(node.this, exp.Identifier):
        raise NotSupported(_construct(node))
    return column(node.name)


def _literal(node: exp.Expr, down: Down) -> exp.Expr:
    text = str(node.this)
    if node.args.get("is_string"):
        return exp.Literal(this=text, is_string=True)
    try:
        if re.fullmatch(r"\d+", text):
            if int(text) > INTEGER_MAX + 1:  # One more: the least INTEGER is written as its negation.
                raise InvalidWorkflow(f"{text} is no INTEGER: it has more than 64 bits")
            return exp.Literal(this=str(int(text)), is_string=False)
        value = float(text)
    except ValueError:
        raise InvalidSyntax(f"{text} is not a number") from None
    if value in (float("inf"), float("-inf")):
        raise InvalidWorkflow(f"{text} is too large for a DOUBLE")
    return exp.Literal(this=repr(value), is_string=False)


def _boolean(node: exp.Expr, down: Down) -> exp.Expr:
    return exp.Boolean(this=bool(node.this))


def _null(node: exp.Expr, down: Down) -> exp.Expr:
    return exp.Null()


def _binary(node: exp.Expr, down: Down) -> exp.Expr:
    left, right = down(node.this), down(node.args["expression"])
    if isinstance(node, exp.Add) and isinstance(left, exp.Interval):
        left, right = right, left
    return type(node)(this=left, expression=right)


def _div(node: exp.Expr, down: Down) -> exp.Expr:
    if node.args.get("typed"):
        raise NotSupported(f"division of whole numbers ({node.sql()})")
    return exp.Div(this=down(node.this), expression=down(node.args["expression"]), typed=False, safe=False)


def _unary(node: exp.Expr, down: Down) -> exp.Expr:
    return type(node)(this=down(node.this))


def _connector(node: exp.Expr, down: Down) -> exp.Expr:
    assert isinstance(node, exp.Connector)
    return chained(type(node), [down(part) for part in operands(node)])


def _null_safe_neq(node: exp.Expr, down: Down) -> exp.Expr:
    return exp.Not(this=exp.NullSafeEQ(this=down(node.this), expression=down(node.args["expression"])))


def _is(node: exp.Expr, down: Down) -> exp.Expr:
    if not isinstance(without_parentheses(node.args["expression"]), exp.Null):
        raise NotSupported(_construct(node))
    return _perhaps_negated(node, exp.Is(this=down(node.this), expression=exp.Null()))


def _between(node: exp.Expr, down: Down) -> exp.Expr:
    _only(node, "this", "low", "high")
    return exp.Between(this=down(node.this), low=down(node.args["low"]), high=down(node.args["high"]))


def _in(node: exp.Expr, down: Down) -> exp.Expr:
    _only(node, "this", "expressions")
    if not node.expressions:
        raise InvalidSyntax(f"IN with an empty list ({node.sql()})")
    return exp.In(this=down(node.this), expressions=[down(one) for one in node.expressions])


def _like(node: exp.Expr, down: Down) -> exp.Expr:
    _only(node, "this", "expression", "negate")
    pattern = down(node.args["expression"])
    if not (isinstance(pattern, exp.Literal) and pattern.args["is_string"]):
        raise NotSupported(f"LIKE with a pattern that is no string literal ({node.sql()})")
    return _perhaps_negated(node, exp.Like(this=down(node.this), expression=pattern))


def _perhaps_negated(node: exp.Expr, made: exp.Expr) -> exp.Expr:
    """sqlglot reads `x NOT LIKE y` as a Like that is negated, and not as a Not."""
    return exp.Not(this=made) if node.args.get("negate") else made


def _case(node: exp.Expr, down: Down) -> exp.Expr:
    operand = node.args.get("this")
    ifs = []
    for branch in node.args["ifs"]:
        test = down(branch.this)
        if operand is not None:
            test = exp.EQ(this=down(operand), expression=test)
        ifs.append(exp.If(this=test, true=down(branch.args["true"])))
    return _whole_case(ifs, node.args.get("default"), down)


def _if(node: exp.Expr, down: Down) -> exp.Expr:
    return _whole_case([exp.If(this=down(node.this), true=down(node.args["true"]))], node.args.get("false"), down)


def _whole_case(ifs: list[exp.If], default: exp.Expr | None, down: Down) -> exp.Expr:
    """An ELSE that is NULL is left out."""
    otherwise = None if default is None else down(default)
    return exp.Case(ifs=ifs, default=None if isinstance(otherwise, exp.Null) else otherwise)


def _nullif(node: exp.Expr, down: Down) -> exp.Expr:
    same = exp.EQ(this=down(node.this), expression=down(node.args["expression"]))
    return exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=down(node.this))


def _coalesce(node: exp.Expr, down: Down) -> exp.Expr:
    if not node.expressions:
        return down(node.this)
    return exp.Coalesce(this=down(node.this), expressions=[down(one) for one in node.expressions])


def _cast(node: exp.Expr, down: Down) -> exp.Expr:
    to = node.args["to"]
    if not isinstance(to, exp.DataType) or to.this not in OTHER_NAMES:
        raise NotSupported(f"CAST to {to.sql()}")
    if to.expressions and OTHER_NAMES[to.this] is Type.STRING:
        raise NotSupported(f"CAST to {to.sql()}, which would cut strings,")
    return cast(down(node.this), OTHER_NAMES[to.this])


def _extract(node: exp.Expr, down: Down) -> exp.Expr:
    part = node.this.name.upper()
    if part not in PARTS:
        raise NotSupported(f"EXTRACT of {part}")
    return exp.Extract(this=exp.Var(this=part), expression=down(node.args["expression"]))


def _part(node: exp.Expr, down: Down) -> exp.Expr:
    return exp.Extract(this=exp.Var(this=node.key.upper()), expression=down(node.this))


def _interval(node: exp.Expr, down: Down) -> exp.Expr:
    number, unit = without_parentheses(node.this), node.args.get("unit")
    negative = isinstance(number, exp.Neg)
    text = str((without_parentheses(number.this) if negative else number).name)
    if unit is None or unit.name.upper().removesuffix("S") not in UNITS or not re.fullmatch(r"-?\d{1,9}", text):
        raise NotSupported(f"{node.sql()}: an interval other than a whole number of days, weeks, months or years")
    factor, name = UNITS[unit.name.upper().removesuffix("S")]
    count = int(text) * factor * (-1 if negative else 1)
    return exp.Interval(this=exp.Literal(this=str(count), is_string=True), unit=exp.Var(this=name))


def _substring(node: exp.Expr, down: Down) -> exp.Expr:
    start, length = node.args.get("start"), node.args.get("length")
    numbers = [without_parentheses(one) for one in (start, length) if one is not None]
    if start is None or not all(isinstance(one, exp.Literal) and re.fullmatch(r"\d+", one.name) for one in numbers):
        raise NotSupported(f"SUBSTRING with anything but literal numbers ({node.sql()})")
    if int(start.name) < 1:
        raise NotSupported(f"SUBSTRING from {start.name}: the first character is 1; a start before that")
    return exp.Substring(
        this=down(node.this),
        start=exp.Literal(this=str(int(start.name)), is_string=False),
        length=None if length is None else exp.Literal(this=str(int(length.name)), is_string=False),
    )


def _pipe(node: exp.Expr, down: Down) -> exp.Expr:
    return _joined([down(node.this), down(node.args["expression"])])


def _concat(node: exp.Expr, down: Down) -> exp.Expr:
    if node.args.get("coalesce"):
        raise NotSupported(f"CONCAT that leaves nulls out ({node.sql()})")
    return _joined([down(one) for one in node.expressions])


def _joined(parts: list[exp.Expr]) -> exp.Expr:
    return functools.reduce(lambda left, right: exp.DPipe(this=left, expression=right, safe=True), parts)


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Down], exp.Expr]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    **dict.fromkeys(_BINARY, _binary),
    exp.Div: _div,
    exp.Neg: _unary,
    exp.Not: _unary,
    exp.Abs: _unary,
    exp.And: _connector,
    exp.Or: _connector,
    exp.NullSafeNEQ: _null_safe_neq,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Nullif: _nullif,
    exp.Coalesce: _coalesce,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Extract: _extract,
    exp.Year: _part,
    exp.Month: _part,
    exp.Day: _part,
    exp.Interval: _interval,
    exp.Substring: _substring,
    exp.DPipe: _pipe,
    exp.Concat: _concat,
}

# ---- parentheses -----------------------------------------------------------------------------

_OR, _AND, _NOT, _COMPARISON, _PIPE, _TERM, _FACTOR, _NEG, _PRIMARY = range(9)
_LEVELS: dict[type[exp.Expr], int] = {
    exp.Or: _OR,
    exp.And: _AND,
    exp.Not: _NOT,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), _COMPARISON),
    **dict.fromkeys((exp.Is, exp.Between, exp.In, exp.Like), _COMPARISON),
    exp.DPipe: _PIPE,
    exp.Add: _TERM,
    exp.Sub: _TERM,
    exp.Mul: _FACTOR,
    exp.Div: _FACTOR,
    exp.Mod: _FACTOR,
    exp.Neg: _NEG,
}
_LEFT_ASSOCIATIVE = (_PIPE, _TERM, _FACTOR)


def with_parentheses(node: exp.Expr) -> exp.Expr:
    """Set parentheses in this tree, which has none, where its text needs them; changes the tree."""
    if isinstance(node, exp.Connector):
        level = _LEVELS[type(node)]
        return chained(type(node), [_within(part, level + 1) for part in operands(node)])
    level = _LEVELS.get(type(node), _PRIMARY)
    for name, value in list(node.args.items()):
        if isinstance(value, list):
            node.set(name, [_within(one, _least(level, name)) for one in value if isinstance(one, exp.Expr)])
        elif isinstance(value, exp.Expr) and not isinstance(value, exp.Identifier | exp.DataType | exp.Var):
            node.set(name, _within(value, _least(level, name)))
    return node


def _least(level: int, name: str) -> int:
    """The least level that an operand has without parentheses."""
    if level == _PRIMARY:
        return _OR
    if level in _LEFT_ASSOCIATIVE and name == "this":
        return level
    return _COMPARISON if level == _NOT else level + 1


def _within(node: exp.Expr, least: int) -> exp.Expr:
    inner = with_parentheses(node)
    return inner if _LEVELS.get(type(node), _PRIMARY) >= least else exp.Paren(this=inner)
