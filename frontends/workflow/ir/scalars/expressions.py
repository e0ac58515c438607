"""Scalar expressions: what a row's columns and constants are computed into.

A scalar is a sqlglot tree in a normal form that this module makes, of a listed subset:

| nodes | meaning |
|---|---|
| `Column` | a column of the input, by its name alone |
| `Literal`, `Boolean`, `Null`, `Cast(string literal AS DATE)` | constants; numbers with `.` or an exponent are DOUBLE |
| `Add`, `Sub`, `Mul`, `Div`, `Mod`, `Neg`, `Abs` | arithmetic; `Div` gives DOUBLE |
| `Add`, `Sub` of a date and an `Interval` of DAY or MONTH | the interval is a literal number |
| `Extract(YEAR, MONTH or DAY)` | parts of a date |
| `EQ`, `NEQ`, `LT`, `LTE`, `GT`, `GTE`, `NullSafeEQ` (IS NOT DISTINCT FROM), `Between` | comparison |
| `And`, `Or`, `Not`, `Is(…, Null)`, `In` a list of constants | logic of three values |
| `Like` a string literal, with `%` and `_`, without escapes | |
| `Case` without operand, `Coalesce`, `Cast` among the five types | |
| `Substring` with literal numbers, `DPipe` (`||`) | |

The normal form turns many other spellings into these (`IF`, `NULLIF`, `CASE x WHEN`, `YEAR(x)`, `CONCAT`, `<=>`,
TRY_CAST, intervals of weeks and years, …), sets parentheses where they are needed, chains AND and OR to the left, and
folds arithmetic of constants exactly (`scalar_folding`). Its text, in sqlglot's own dialect, parses back to the same
tree, so two scalars are equal if their texts are. docs/workflow-semantics.md has the meaning of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from frontends.workflow.errors import InvalidSyntax, InvalidWorkflow, TooLarge
from frontends.workflow.ir.scalars.folding import fold
from frontends.workflow.ir.scalars.normal_form import column, in_normal_form, with_parentheses
from frontends.workflow.ir.scalars.places import set_places
from frontends.workflow.ir.scalars.result_types import annotate, type_of
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.positions import Position

DIALECT = ""
"""sqlglot's own."""
SCALAR_CHARS_MAX = 100_000
"""Characters of a scalar expression."""


class Scalar:
    """A scalar expression in normal form; immutable, equal and hashed by its text."""

    __slots__ = ("_tree", "text")

    _tree: exp.Expr
    text: str
    """The canonical text."""

    def __init__(self, source: str | exp.Expr, at: Position | None = None, begins: Position | None = None) -> None:
        """From text in sqlglot's dialect, or from a tree, which is not changed and not kept.

        at: for the errors. begins: where a text begins, so that errors of types say where in it. `InvalidSyntax` if
        text does not parse, `NotSupported` for what is not in the subset.
        """
        try:
            tree = with_parentheses(
                fold(in_normal_form(_parsed(source, begins) if isinstance(source, str) else source))
            )
            text = tree.sql(DIALECT)
            if len(text) > SCALAR_CHARS_MAX:
                raise TooLarge("characters of an expression", len(text), SCALAR_CHARS_MAX)
        except InvalidWorkflow as error:
            error.locate(at)
            raise
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "text", text)

    @classmethod
    def column(cls, name: str) -> Scalar:
        """The column of this name, whatever characters it has."""
        return cls(column(name))

    def tree(self) -> exp.Expr:
        """A copy of the tree, which is the caller's to change."""
        return self._tree.copy()

    def typed_tree(self, schema: Schema) -> exp.Expr:
        """A copy of the tree in which each node's `type` is BIGINT, DOUBLE, TEXT, BOOLEAN, DATE or NULL."""
        tree = self._tree.copy()
        annotate(tree, schema)
        return tree

    def type_in(self, schema: Schema) -> Type:
        """The type over a relation of this schema; `UnknownColumn` or `TypeMismatch` if there is none."""
        return type_of(self._tree, schema)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that the expression reads."""
        return frozenset(found.name for found in self._tree.find_all(exp.Column))

    @property
    def as_column(self) -> str | None:
        """The name, if the expression is a column and nothing else."""
        return self._tree.name if isinstance(self._tree, exp.Column) else None

    @property
    def constant(self) -> bool:
        """Whether no column is read."""
        return self._tree.find(exp.Column) is None

    def conjuncts(self) -> tuple[Scalar, ...]:
        """The scalars that AND combines to this one."""
        if not isinstance(self._tree, exp.And):
            return (self,)
        return tuple(Scalar(part) for part in self._tree.flatten())

    def renamed(self, names: Mapping[str, str]) -> Scalar:
        """With other names for some columns: {old: new}."""
        return self.substituted({old: Scalar.column(new) for old, new in names.items()})

    def substituted(self, values: Mapping[str, Scalar]) -> Scalar:
        """With scalars in the place of some columns: {column: scalar}."""
        return Scalar(self._replaced(lambda name: values[name].tree() if name in values else None))

    def _replaced(self, value: Callable[[str], exp.Expr | None]) -> exp.Expr:
        def replaced(node: exp.Expr) -> exp.Expr:
            return (value(node.name) or node) if isinstance(node, exp.Column) else node

        return self._tree.transform(replaced)

    def walk(self) -> Iterator[exp.Expr]:
        """The nodes of a copy of the tree."""
        return iter(self.tree().walk())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Scalar cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Scalar) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Scalar({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.text,)


def all_of(*scalars: Scalar) -> Scalar:
    """The scalars combined by AND; at least one."""
    return Scalar(exp.and_(*(scalar.tree() for scalar in scalars), copy=False))


def _parsed(text: str, begins: Position | None) -> exp.Expr:
    if len(text) > SCALAR_CHARS_MAX:
        raise TooLarge("characters of an expression", len(text), SCALAR_CHARS_MAX)
    try:
        tree = sqlglot.parse_one(text, dialect=DIALECT)
    except (SqlglotError, RecursionError) as error:
        raise InvalidSyntax(f"the expression does not parse: {_first_line(error)}") from None
    if begins is not None and "\n" not in text:
        set_places(tree, begins)
    return tree


def _first_line(error: Exception) -> str:
    found = getattr(error, "errors", None)
    if found and isinstance(found[0], dict):
        return f"{found[0].get('description')} at character {found[0].get('col')}"
    return str(error).partition("\n")[0]
