"""Scalar expressions as SQL trees of an engine that mean there what docs/workflow-semantics.md says.

`SqlScalars` writes out what every SQL has; an engine's subclass overrides what differs. Where engines convert by
themselves, and in different ways, the trees convert explicitly.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp
from sqlglot.tokens import Tokenizer

from frontends.workflow.ir.scalars.dates import parsed_date
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import operands, without_parentheses
from frontends.workflow.ir.types import Schema, Type

INTEGER, DOUBLE, TEXT, BOOLEAN, DATE = (
    exp.DType.BIGINT,
    exp.DType.DOUBLE,
    exp.DType.TEXT,
    exp.DType.BOOLEAN,
    exp.DType.DATE,
)
DATA_TYPES = {
    Type.INTEGER: INTEGER,
    Type.DOUBLE: DOUBLE,
    Type.STRING: TEXT,
    Type.BOOLEAN: BOOLEAN,
    Type.DATE: DATE,
}
INTEGER_PATTERN = "^-?[0-9]+$"
DOUBLE_PATTERN = "^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
DATE_PATTERN = "^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]$"
FIRST_DAY = "0001-01-01"
HIDDEN = 0xF0000
"""Characters of texts that must not stand in a script as they are (line breaks) are moved here (private use) while SQL
is formatted."""

_BARE = re.compile(r"[a-z_][a-z0-9_]*")
_MORE_WORDS = """
ABORT ACTION ADD ADMIN AFTER ALL ANALYSE ANALYZE AND ANTI ANY ARE ARRAY AS ASC ASOF AT ATTACH AUTHORIZATION BEFORE
BEGIN BETWEEN BOTH BY CACHE CASCADE CASE CAST CHECK CLUSTER COALESCE COLLATE COLLATION COLUMN COLUMNS COMMENT COMMIT
CONSTRAINT COPY CREATE CROSS CUBE CURRENT CURSOR CYCLE DATA DATABASE DATE DAY DEC DEFAULT DEFERRABLE DELETE DESC
DESCRIBE DETACH DISTINCT DISTRIBUTE DIV DO DROP EACH ELSE END ESCAPE EXCEPT EXCLUDE EXECUTE EXISTS EXPLAIN EXPORT
EXTENSION EXTERNAL EXTRACT FALSE FETCH FILTER FIRST FOLLOWING FOR FOREIGN FORMAT FREEZE FROM FULL FUNCTION GENERATED
GLOB GLOBAL GRANT GROUP GROUPING HAVING HOUR IF ILIKE IMPORT IN INDEX INITIALLY INNER INSERT INSTALL INTERSECT
INTERVAL INTO IS ISNULL JOIN KEY LAMBDA LANGUAGE LAST LATERAL LEADING LEFT LEVEL LIKE LIMIT LIST LOAD LOCAL LOCALTIME
LOCALTIMESTAMP LOCATION MACRO MAP MATCHED MATERIALIZED MERGE METHOD MINUS MINUTE MODE MONTH NATURAL NEXT NO NONE NOT
NOTNULL NULL NULLS OBJECT OF OFF OFFSET ON ONLY OPTION OR ORDER OUTER OVER OVERLAPS OVERLAY PARTITION PIVOT POSITION
POSITIONAL PRAGMA PRECEDING PRIMARY QUALIFY RANGE RECURSIVE REFERENCES RENAME REPLACE RETURNING RIGHT ROLE ROLLUP ROW
ROWID ROWS SAMPLE SCHEMA SECOND SELECT SEMI SEQUENCE SESSION SESSION_USER SET SETS SHOW SIMILAR SOME SORT START STRUCT
SUMMARIZE SYMMETRIC SYSTEM TABLE TABLES TABLESAMPLE TEMP TEMPORARY THEN TIES TIME TIMESTAMP TO TOP TRAILING
TRANSACTION TREAT TRUE TRY TRY_CAST TYPE UNBOUNDED UNION UNIQUE UNKNOWN UNNEST UNPIVOT UPDATE USE USER USING VACUUM
VALUE VALUES VARIADIC VERBOSE VERSION VIEW WEEK WHEN WHERE WINDOW WITH WITHIN YEAR ZONE
"""
_WORDS = frozenset(word for keyword in Tokenizer.KEYWORDS for word in keyword.split()) | frozenset(_MORE_WORDS.split())
"""Words that some engine might not take for a name; quoting one too many does no harm."""


def identifier(name: str) -> exp.Identifier:
    """The name, in quotes unless it is of small letters, digits and `_`, and no word of SQL."""
    upper = name.upper()
    bare = bool(_BARE.fullmatch(name)) and upper not in _WORDS and upper not in exp.FUNCTION_BY_NAME
    return exp.Identifier(this=name, quoted=not bare)


def column(name: str, table: str | None = None) -> exp.Column:
    """A column, of the relation of this name in the query if given."""
    return exp.Column(this=identifier(name), table=None if table is None else identifier(table))


def string(value: str) -> exp.Expr:
    """A constant text."""
    return exp.Literal(this="".join(map(_hidden, value)), is_string=True)


def _hidden(character: str) -> str:
    return character if character.isprintable() or ord(character) >= HIDDEN else chr(HIDDEN + ord(character))


def call(function: str, *arguments: exp.Expr) -> exp.Expr:
    """A function that sqlglot is to leave as it is."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def cast(value: exp.Expr, to: exp.DType) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType(this=to, nested=False))


def try_cast(value: exp.Expr, to: exp.DType) -> exp.Expr:
    """Null where the value cannot be cast."""
    return exp.TryCast(this=value, to=exp.DataType(this=to, nested=False), safe=True)


def when(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """The value if the condition is true, else null."""
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


class SqlScalars:
    """Makes trees of an engine of scalars of normal form."""

    integers_are_wide: ClassVar[bool] = False
    """Whether a whole number is of 64 bits as it stands."""
    like_escapes: ClassVar[bool] = False
    """Whether a backslash in the pattern of a LIKE makes the next character stand for itself."""
    decimals_are_doubles: ClassVar[bool] = False
    """Whether 0.5 is a DOUBLE, so that it need not be written 0.5e0."""

    def tree(self, scalar: Scalar, schema: Schema, table: str | None = None) -> exp.Expr:
        """The tree of a scalar over a relation of this schema, which the query calls `table` if that is given."""
        return self._comparable(scalar.typed_tree(schema), DATA_TYPES[scalar.type_in(schema)], table)

    def one_nan(self, value: exp.Expr) -> exp.Expr:
        """A DOUBLE in which NaN is the NaN that equals all others; for engines that have several."""
        return value

    def other_nan(self, node: exp.Expr) -> bool:
        """Whether the node may be a NaN that does not equal others."""
        return False

    # ---- converted ---------------------------------------------------------------------------

    def _comparable(self, node: exp.Expr, type_: exp.DType, table: str | None, beside_wide: bool = False) -> exp.Expr:
        made = self._wanted(node, type_, table, beside_wide)
        return self.one_nan(made) if type_ is DOUBLE and self.other_nan(node) else made

    def _wanted(self, node: exp.Expr, type_: exp.DType, table: str | None, beside_wide: bool = False) -> exp.Expr:
        """The node as a value of this type: null typed, INTEGER made DOUBLE. beside_wide: what stands beside it makes a
        whole number 64 bits wide."""
        inner = without_parentheses(node)
        if isinstance(inner, exp.Null):
            return cast(exp.Null(), type_)
        found = node.type.this if node.type is not None else type_
        if type_ is DOUBLE and found is INTEGER:
            return self._integer_as_double(node, table)
        if _is_integer_constant(inner) and not beside_wide and not self.integers_are_wide:
            return cast(self._of(node, table), INTEGER)
        return self._of(node, table)

    def _integer_as_double(self, node: exp.Expr, table: str | None) -> exp.Expr:
        inner = without_parentheses(node)
        if isinstance(inner, exp.Literal):
            return self._double(f"{inner.name}.0")
        if isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal):
            return exp.Paren(this=exp.Neg(this=self._double(f"{inner.this.name}.0")))
        return cast(self._wanted(node, INTEGER, table), DOUBLE)

    def _double(self, text: str) -> exp.Expr:
        """A DOUBLE constant that is not negative."""
        if not self.decimals_are_doubles and "e" not in text.lower():
            text += "e0"
        return exp.Literal(this=text, is_string=False)

    def _of(self, node: exp.Expr, table: str | None) -> exp.Expr:
        rule = _RULES.get(type(node))
        if rule is None:
            raise AssertionError(f"no rule for {type(node).__name__}")
        return rule(self, node, table)

    # ---- rules -------------------------------------------------------------------------------

    def paren(self, node: exp.Expr, table: str | None) -> exp.Expr:
        return exp.Paren(this=self._of(node.this, table))

    def column(self, node: exp.Expr, table: str | None) -> exp.Expr:
        return column(node.name, table)

    def literal(self, node: exp.Expr, table: str | None) -> exp.Expr:
        if node.args["is_string"]:
            return string(node.name)
        return exp.Literal(this=node.name, is_string=False) if node.name.isdigit() else self._double(node.name)

    def boolean(self, node: exp.Expr, table: str | None) -> exp.Expr:
        return exp.Boolean(this=bool(node.this))

    def arithmetic(self, node: exp.Expr, table: str | None) -> exp.Expr:
        left, right = node.this, node.args["expression"]
        if isinstance(right, exp.Interval):
            return self.moved(node, table)
        return type(node)(this=self._side(node, left, right, table), expression=self._side(node, right, left, table))

    def _side(self, node: exp.Expr, side: exp.Expr, other: exp.Expr, table: str | None) -> exp.Expr:
        """An operand. INTEGER beside DOUBLE is left to the engine, which converts as it should."""
        type_ = _type(side) or _type(node) or DOUBLE
        return self._wanted(side, type_, table, beside_wide=_is_wide(other))

    def moved(self, node: exp.Expr, table: str | None) -> exp.Expr:
        """A day some days or months later."""
        interval = node.args["expression"]
        count, unit = interval.this.name, interval.args["unit"].name.upper()
        later = exp.Interval(this=exp.Literal.string(count), unit=exp.Var(this=unit))
        day = self._wanted(node.this, DATE, table)
        return cast(type(node)(this=day, expression=later), DATE)

    def quotient(self, node: exp.Expr, table: str | None) -> exp.Expr:
        """By IEEE 754."""
        left, right = (self._wanted(one, DOUBLE, table) for one in (node.this, node.args["expression"]))
        return exp.Div(this=left, expression=right, typed=False, safe=False)

    def remainder(self, node: exp.Expr, table: str | None) -> exp.Expr:
        """Null if the divisor is zero."""
        type_ = _type(node) or DOUBLE
        left, divisor = (self._wanted(one, type_, table) for one in (node.this, node.args["expression"]))
        inner = without_parentheses(node.args["expression"])
        if not (isinstance(inner, exp.Literal) and float(inner.name) != 0):
            zero = exp.Literal.number(0) if type_ is INTEGER else self._double("0.0")
            divisor = exp.Nullif(this=_bare(divisor), expression=zero)
        return exp.Mod(this=left, expression=divisor)

    def of_number(self, node: exp.Expr, table: str | None) -> exp.Expr:
        inner = without_parentheses(node.this)
        wide = isinstance(inner, exp.Literal)  # A literal below a sign: the pair is cast, if need be.
        return type(node)(this=self._wanted(node.this, _type(node) or DOUBLE, table, beside_wide=wide))

    def extract(self, node: exp.Expr, table: str | None) -> exp.Expr:
        day = self._wanted(node.args["expression"], DATE, table)
        return cast(exp.Extract(this=exp.Var(this=node.this.name.upper()), expression=day), INTEGER)

    def comparison(self, node: exp.Expr, table: str | None) -> exp.Expr:
        left, right = node.this, node.args["expression"]
        type_ = _common(left, right)
        return type(node)(
            this=self._comparable(left, type_, table, _is_wide(right)),
            expression=self._comparable(right, type_, table, _is_wide(left)),
        )

    def between(self, node: exp.Expr, table: str | None) -> exp.Expr:
        parts = {name: node.args[name] for name in ("this", "low", "high")}
        type_ = _common(*parts.values())
        wide = _is_wide(node.this)
        return exp.Between(**{name: self._comparable(one, type_, table, wide) for name, one in parts.items()})

    def membership(self, node: exp.Expr, table: str | None) -> exp.Expr:
        type_, wide = _common(node.this, *node.expressions), _is_wide(node.this)
        listed = [self._comparable(one, type_, table, wide) for one in node.expressions]
        return exp.In(this=self._comparable(node.this, type_, table), expressions=listed)

    def connected(self, node: exp.Expr, table: str | None) -> exp.Expr:
        assert isinstance(node, exp.Connector)
        parts = []
        for part in operands(node):
            made = self._wanted(part, BOOLEAN, table)
            parts.append(exp.Paren(this=made) if isinstance(made, exp.Connector) else made)
        kind = type(node)
        return functools.reduce(lambda left, right: kind(this=left, expression=right), parts)

    def negated(self, node: exp.Expr, table: str | None) -> exp.Expr:
        return exp.Not(this=self._wanted(node.this, BOOLEAN, table))

    def is_null(self, node: exp.Expr, table: str | None) -> exp.Expr:
        return exp.Is(this=self._of(node.this, table), expression=exp.Null())

    def like(self, node: exp.Expr, table: str | None) -> exp.Expr:
        pattern = node.args["expression"].name
        if self.like_escapes:
            pattern = pattern.replace("\\", "\\\\")
        return exp.Like(this=self._wanted(node.this, TEXT, table), expression=string(pattern))

    def case(self, node: exp.Expr, table: str | None) -> exp.Expr:
        type_ = _type(node) or TEXT
        ifs = [
            exp.If(this=self._wanted(branch.this, BOOLEAN, table), true=self._wanted(branch.args["true"], type_, table))
            for branch in node.args["ifs"]
        ]
        default = node.args.get("default")
        if default is not None and not isinstance(without_parentheses(default), exp.Null):
            return exp.Case(ifs=ifs, default=self._wanted(default, type_, table))
        return exp.Case(ifs=ifs)

    def coalesce(self, node: exp.Expr, table: str | None) -> exp.Expr:
        first, *others = [self._wanted(one, _type(node) or TEXT, table) for one in (node.this, *node.expressions)]
        return exp.Coalesce(this=first, expressions=others)

    def joined(self, node: exp.Expr, table: str | None) -> exp.Expr:
        left, right = (self._wanted(one, TEXT, table) for one in (node.this, node.args["expression"]))
        return exp.DPipe(this=left, expression=right)

    def substring(self, node: exp.Expr, table: str | None) -> exp.Expr:
        numbers = {name: node.args[name].copy() for name in ("start", "length") if node.args.get(name) is not None}
        return exp.Substring(this=self._wanted(node.this, TEXT, table), **numbers)

    # ---- casts -------------------------------------------------------------------------------

    def cast(self, node: exp.Expr, table: str | None) -> exp.Expr:
        to, from_ = node.args["to"].this, _type(node.this)
        if from_ is None:
            return cast(exp.Null(), to)
        value = self._wanted(node.this, from_, table)
        inner = without_parentheses(node.this)
        if to is DATE and isinstance(inner, exp.Literal) and parsed_date(inner.name) is not None:
            return cast(value, DATE)
        if (from_, to) == (INTEGER, BOOLEAN):
            return exp.Paren(this=exp.NEQ(this=value, expression=exp.Literal.number(0)))
        if from_ is to:
            return value
        convert = {
            (DOUBLE, INTEGER): self.double_to_integer,
            (TEXT, INTEGER): self.text_to_integer,
            (TEXT, DOUBLE): self.text_to_double,
            (TEXT, DATE): self.text_to_date,
        }.get((from_, to))
        return cast(_bare(value), to) if convert is None else convert(_bare(value))

    def double_to_integer(self, value: exp.Expr) -> exp.Expr:
        """Towards zero; null for what is none."""
        return try_cast(call("TRUNC", value), INTEGER)

    def text_to_integer(self, value: exp.Expr) -> exp.Expr:
        return when(self.matches(value, INTEGER_PATTERN), try_cast(value.copy(), INTEGER))

    def text_to_double(self, value: exp.Expr) -> exp.Expr:
        return when(self.matches(value, DOUBLE_PATTERN), try_cast(value.copy(), DOUBLE))

    def text_to_date(self, value: exp.Expr) -> exp.Expr:
        in_calendar = exp.GTE(this=_operand(value.copy()), expression=string(FIRST_DAY))
        condition = exp.And(this=self.matches(value, DATE_PATTERN), expression=in_calendar)
        return when(condition, try_cast(value.copy(), DATE))

    def matches(self, value: exp.Expr, pattern: str) -> exp.Expr:
        """Whether a text matches a regular expression that has `^` and `$`."""
        return call("REGEXP_LIKE", value, string(pattern))


def _type(node: exp.Expr) -> exp.DType | None:
    """The node's type; None for NULL."""
    found = node.type.this if node.type is not None else None
    return None if found is exp.DType.NULL else found


def _common(*nodes: exp.Expr) -> exp.DType:
    """The type that values are compared as."""
    types = {found for found in map(_type, nodes) if found is not None}
    return DOUBLE if DOUBLE in types else next(iter(types))


def _is_integer_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg):
        node = without_parentheses(node.this)
    return isinstance(node, exp.Literal) and not node.args["is_string"] and node.name.isdigit()


def _is_wide(node: exp.Expr) -> bool:
    """Whether the node, if INTEGER, is of 64 bits: no constant as it stands, which might be narrower."""
    return not _is_integer_constant(without_parentheses(node))


def _bare(node: exp.Expr) -> exp.Expr:
    """Without parentheses, for an argument of a function."""
    return without_parentheses(node)


def _operand(node: exp.Expr) -> exp.Expr:
    """In parentheses if it is an operation."""
    return exp.Paren(this=node) if isinstance(node, exp.Binary | exp.Not | exp.Neg) else node


_RULES: dict[type[exp.Expr], Callable[[SqlScalars, exp.Expr, str | None], exp.Expr]] = {
    exp.Paren: lambda one, node, table: one.paren(node, table),
    exp.Column: lambda one, node, table: one.column(node, table),
    exp.Literal: lambda one, node, table: one.literal(node, table),
    exp.Boolean: lambda one, node, table: one.boolean(node, table),
    exp.Null: lambda one, node, table: exp.Null(),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), lambda one, node, table: one.arithmetic(node, table)),
    exp.Div: lambda one, node, table: one.quotient(node, table),
    exp.Mod: lambda one, node, table: one.remainder(node, table),
    **dict.fromkeys((exp.Neg, exp.Abs), lambda one, node, table: one.of_number(node, table)),
    exp.Extract: lambda one, node, table: one.extract(node, table),
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ),
        lambda one, node, table: one.comparison(node, table),
    ),
    exp.Between: lambda one, node, table: one.between(node, table),
    exp.In: lambda one, node, table: one.membership(node, table),
    **dict.fromkeys((exp.And, exp.Or), lambda one, node, table: one.connected(node, table)),
    exp.Not: lambda one, node, table: one.negated(node, table),
    exp.Is: lambda one, node, table: one.is_null(node, table),
    exp.Like: lambda one, node, table: one.like(node, table),
    exp.Case: lambda one, node, table: one.case(node, table),
    exp.Coalesce: lambda one, node, table: one.coalesce(node, table),
    exp.DPipe: lambda one, node, table: one.joined(node, table),
    exp.Substring: lambda one, node, table: one.substring(node, table),
    exp.Cast: lambda one, node, table: one.cast(node, table),
}
