"""Parsers made by lark (LALR) from grammars in files beside this one, whose errors say where, with a caret."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

from frontends.workflow.errors import InvalidSyntax, TooLarge
from frontends.workflow.extra import needs_extra
from frontends.workflow.positions import Position, SourceText

with needs_extra():
    from lark import Lark, Token, Tree
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken
    from lark.lexer import PatternStr

__all__ = ("NODE_LEVELS_MAX", "Grammar", "Node", "Token", "Tree", "part", "parts", "position", "subtrees", "tokens")

TEXT_CHARS_MAX = 200_000
"""Characters of a workflow's text."""
NODE_LEVELS_MAX = 50
"""Levels of a condition (parentheses alone are none), and of operators that are written within each other."""
EXPECTED_SHOWN = 6
"""Things that an error lists of those that could stand at a place."""

_NAMED = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "PATH": "a path",
    "COMPARISON": "<, <=, =, <>, >=, >",
    "FOLD": "+",
    "ARITHMETIC": "SUM, SUB, MUL, DIV",
    "EXTREME": "MIN, MAX",
    "DIRECTION": "INC, DEC",
    "GATHERED": "SUM, MIN, MAX, COUNT",
    "$END": "the end",
}
"""What errors call terminals that are not written as they are."""

Node = Tree[Token]


class Grammar:
    """A grammar, whose parser is made when it is needed first."""

    def __init__(self, path: str) -> None:
        self._path = path

    @functools.cached_property
    def _parser(self) -> Lark:
        return Lark.open(self._path, rel_to=__file__, parser="lalr", propagate_positions=True)

    def parse(self, source: SourceText) -> Node:
        """The tree of the text; `InvalidSyntax` with the place and with what could stand there."""
        if len(source.text) > TEXT_CHARS_MAX:
            raise TooLarge("characters of a workflow", len(source.text), TEXT_CHARS_MAX)
        if not source.text.strip():
            raise InvalidSyntax("the text is empty", Position(1, 1, source.file))
        try:
            return self._parser.parse(source.text)
        except UnexpectedToken as error:
            expected = self._one_of(error.accepts or error.expected)
            if error.token.type == "$END":
                at = source.position(len(source.text.rstrip()))
                raise InvalidSyntax(f"the text ends where {expected} is expected", at) from None
            raise InvalidSyntax(
                f"{error.token} stands where {expected} is expected", position(error.token, source.file)
            ) from None
        except UnexpectedCharacters as error:
            at = Position(error.line, error.column, source.file)
            raise InvalidSyntax(
                f"{error.char!r} begins nothing that may stand here; {self._one_of(error.allowed)} is expected", at
            ) from None

    def _one_of(self, terminals: Collection[str] | None) -> str:
        shown = sorted({self._shown(name) for name in terminals or ()})
        more = ["…"] if len(shown) > EXPECTED_SHOWN else []
        parts = shown[:EXPECTED_SHOWN] + more
        return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "something else"

    def _shown(self, terminal: str) -> str:
        if terminal in _NAMED:
            return _NAMED[terminal]
        for one in self._parser.terminals:
            if one.name == terminal and isinstance(one.pattern, PatternStr):
                return str(one.pattern.value)
        return terminal


def position(node: Node | Token, file: str) -> Position:
    """Where the node begins; at the start of the text if it is empty."""
    if isinstance(node, Token):
        return Position(node.line or 1, node.column or 1, file)
    meta = node.meta
    return Position(1, 1, file) if meta.empty else Position(meta.line, meta.column, file)


def subtrees(node: Node) -> Iterator[Node]:
    """The node and all nodes below, in the order of the text."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [child for child in reversed(one.children) if isinstance(child, Tree)]


def parts(node: Node, rule: str) -> list[Node]:
    """The children that this rule made."""
    return [child for child in node.children if isinstance(child, Tree) and child.data == rule]


def part(node: Node, rule: str) -> Node | None:
    """The first child that this rule made, None if there is none."""
    return next(iter(parts(node, rule)), None)


def tokens(node: Node, *types: str) -> list[Token]:
    """The children that are tokens of these types."""
    return [child for child in node.children if isinstance(child, Token) and child.type in types]
