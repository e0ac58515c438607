"""Conditions and constants of BEER and GAS as scalar expressions."""

from __future__ import annotations

import functools
from collections.abc import Callable

from sqlglot import exp

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import check_condition
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import cast
from frontends.workflow.ir.scalars.normal_form import column as column_tree
from frontends.workflow.ir.scalars.places import set_place
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages.parsing import NODE_LEVELS_MAX, Node, Token, Tree, position, subtrees, tokens

COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "==": exp.EQ,
    "<>": exp.NEQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
ARITHMETIC: dict[str, type[exp.Binary]] = {"SUM": exp.Add, "SUB": exp.Sub, "MUL": exp.Mul, "DIV": exp.Div}
"""The operators that compute a column."""

ColumnOf = Callable[[Token], str]
"""The column of a schema that a name in the text means; `UnknownColumn` with the place if there is none."""


def condition(node: Node, column: ColumnOf, schema: Schema, file: str) -> Scalar:
    """The condition over rows of this schema; `InvalidWorkflow` with the place if it is not BOOLEAN."""
    at = position(node, file)
    try:
        scalar = Scalar(_Conditions(column, file).of(node, 0))
        check_condition(scalar, schema)
    except InvalidWorkflow as error:
        error.locate(at)
        raise
    return scalar


def term(node: Node, column: ColumnOf, file: str) -> exp.Expr:
    """The tree of a column or of a number."""
    return _Conditions(column, file).of(node, 0)


def columns_named(node: Node) -> list[Token]:
    """The columns that a condition names, in order."""
    return [token for one in subtrees(node) if one.data == "column" for token in tokens(one, "NAME")]


def name_in(token: Token) -> str:
    """The name, without the quotes that it may have."""
    return str(token).strip("`")


def text_in(token: Token) -> str:
    """The text between quotes, of which doubled ones stand for one."""
    quote = token[0]
    return str(token[1:-1]).replace(quote * 2, quote)


class _Conditions:
    """Makes trees of one relation's conditions."""

    def __init__(self, column: ColumnOf, file: str) -> None:
        self._column_of, self._file = column, file

    def of(self, node: Node, level: int) -> exp.Expr:
        if level > NODE_LEVELS_MAX:
            raise InvalidWorkflow(f"a condition has more than {NODE_LEVELS_MAX} levels")
        while node.data in ("condition", "conjunction") and len(node.children) == 1:
            (node,) = (child for child in node.children if isinstance(child, Tree))
        made = _RULES[node.data](self, node, level + 1)
        set_place(made, position(node, self._file))
        return made

    def _operands(self, node: Node, level: int) -> list[exp.Expr]:
        return [self.of(child, level) for child in node.children if isinstance(child, Tree)]

    def any_of(self, node: Node, level: int) -> exp.Expr:
        return functools.reduce(lambda left, right: exp.Or(this=left, expression=right), self._operands(node, level))

    def all_of(self, node: Node, level: int) -> exp.Expr:
        return functools.reduce(lambda left, right: exp.And(this=left, expression=right), self._operands(node, level))

    def negated(self, node: Node, level: int) -> exp.Expr:
        (inner,) = self._operands(node, level)
        return exp.Not(this=inner)

    def comparison(self, node: Node, level: int) -> exp.Expr:
        left, right = self._operands(node, level)
        (sign,) = tokens(node, "COMPARISON")
        return COMPARISONS[str(sign)](this=left, expression=right)

    def null_test(self, node: Node, level: int) -> exp.Expr:
        (operand,) = self._operands(node, level)
        test = exp.Is(this=operand, expression=exp.Null())
        return exp.Not(this=test) if tokens(node, "NOT") else test

    def column(self, node: Node, level: int) -> exp.Expr:
        (token,) = tokens(node, "NAME")
        return column_tree(self._column_of(token))

    def number(self, node: Node, level: int) -> exp.Expr:
        (token,) = tokens(node, "NUMBER")
        literal = exp.Literal(this=token.lstrip("+-"), is_string=False)
        return exp.Neg(this=literal) if token.startswith("-") else literal

    def text(self, node: Node, level: int) -> exp.Expr:
        (token,) = tokens(node, "STRING")
        return exp.Literal(this=text_in(token), is_string=True)

    def truth(self, node: Node, level: int) -> exp.Expr:
        return exp.Boolean(this=node.children[0] == "TRUE")

    def day(self, node: Node, level: int) -> exp.Expr:
        return cast(self.text(node, level), Type.DATE)


_RULES: dict[str, Callable[[_Conditions, Node, int], exp.Expr]] = {
    "condition": _Conditions.any_of,
    "conjunction": _Conditions.all_of,
    "negated": _Conditions.negated,
    "comparison": _Conditions.comparison,
    "null_test": _Conditions.null_test,
    "column": _Conditions.column,
    "number": _Conditions.number,
    "text": _Conditions.text,
    "truth": _Conditions.truth,
    "day": _Conditions.day,
}
