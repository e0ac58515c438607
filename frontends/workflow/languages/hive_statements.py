"""The statements of a HiveQL text, without what only the thesis writes.

Its listings (3.1, 4.1) name the result of a statement by a trailing `AS name`, and write a join without SELECT:
`a JOIN b ON … AS c`. sqlglot rejects the second, and takes the name in `FROM properties AS locs` for that of the table.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frontends.workflow.errors import InvalidSyntax, NotSupported, TooLarge
from frontends.workflow.positions import Position, SourceText

TEXT_CHARS_MAX = 1_000_000
"""Characters of a HiveQL text."""
STATEMENTS_MAX = 1_000
"""Statements of a text."""
NESTING_MAX = 60
"""Parentheses within parentheses."""
BARE_JOIN = "SELECT * FROM "
"""What stands before a join without SELECT when sqlglot reads it."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<name>`[^`\n]+`)
  | (?P<word>\w+)
  | (?P<open>['"`]|/\*)
  | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_FIRST_WORDS = frozenset(("SELECT", "WITH", "CREATE", "INSERT", "FROM"))
_NAMED_OTHERWISE = frozenset(("CREATE", "INSERT"))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int
    depth: int
    """Parentheses around it."""

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words

    def is_name(self) -> bool:
        return self.kind in ("word", "name")

    @property
    def unquoted(self) -> str:
        return self.text.strip("`") if self.kind == "name" else self.text

    @property
    def end(self) -> int:
        return self.offset + len(self.text)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as sqlglot can read it.

    shift: what is added to an offset in `text` for that in the source. name: by the trailing AS, empty without.
    bare_join: it is a join without SELECT.
    """

    source: SourceText
    text: str
    shift: int
    first: int
    last: int
    name: str = ""
    bare_join: bool = False

    def position(self, offset: int | None = None) -> Position:
        """Of this offset in `text`; None: of the first character."""
        if offset is None:
            return self.source.position(self.first)
        return self.source.position(min(max(self.first, offset + self.shift), self.last))


def statements(source: SourceText, strict: bool = False) -> tuple[Statement, ...]:
    """The statements of the text. strict: what only the thesis writes stays as it is, for sqlglot to judge.

    `InvalidSyntax` for quotes, comments and parentheses that do not end.
    """
    if len(source.text) > TEXT_CHARS_MAX:
        raise TooLarge("characters of a HiveQL text", len(source.text), TEXT_CHARS_MAX)
    found = [_statement(source, tokens, strict) for tokens in _split(_tokens(source))]
    if not found:
        raise InvalidSyntax("there is no statement", source.position(len(source.text)))
    if len(found) > STATEMENTS_MAX:
        raise TooLarge("statements", len(found), STATEMENTS_MAX)
    return tuple(found)


def _tokens(source: SourceText) -> Iterator[_Token]:
    depth = 0
    for match in _TOKEN.finditer(source.text):
        kind, text, offset = str(match.lastgroup), match[0], match.start()
        if kind == "open":
            what = {"'": "a string", '"': "a string", "`": "a quoted name", "/*": "a comment"}[text]
            raise InvalidSyntax(f"{what} does not end", source.position(offset))
        if kind == "space":
            continue
        if text == ")":
            depth -= 1
        if depth < 0:
            raise InvalidSyntax(") without (", source.position(offset))
        if depth > NESTING_MAX:
            raise TooLarge("parentheses within each other", depth, NESTING_MAX, source.position(offset))
        yield _Token(kind, text, offset, depth)
        if text == "(":
            depth += 1


def _split(tokens: Iterator[_Token]) -> Iterator[list[_Token]]:
    one: list[_Token] = []
    for token in tokens:
        if token.text != ";":
            one.append(token)
        elif one:
            yield one
            one = []
    if one:
        yield one


def _statement(source: SourceText, tokens: Sequence[_Token], strict: bool) -> Statement:
    first = tokens[0]
    at = source.position(first.offset)
    bare_join = not strict and _is_bare_join(tokens)
    if not bare_join and not first.is_word(*_FIRST_WORDS) and first.text != "(":
        if not first.is_name() or any(token.is_word("JOIN") for token in tokens):
            raise InvalidSyntax(f"a statement begins with SELECT, WITH, CREATE or INSERT, not with {first.text}", at)
        raise NotSupported(f"a statement that begins with {first.text}", at)
    for token, following in itertools.pairwise(tokens):
        if token.is_word("NULLS") and following.is_word("FIRST"):
            raise NotSupported("NULLS FIRST", source.position(token.offset))
    name = "" if strict else _trailing_name(tokens, bare_join)
    end = (tokens[-3] if name else tokens[-1]).end
    text = (BARE_JOIN if bare_join else "") + source.text[first.offset : end]
    shift = first.offset - (len(BARE_JOIN) if bare_join else 0)
    return Statement(source, text, shift, first.offset, end, name, bare_join)


def _is_bare_join(tokens: Sequence[_Token]) -> bool:
    if not tokens[0].is_name() or tokens[0].is_word(*_FIRST_WORDS):
        return False
    return any(token.depth == 0 and token.is_word("JOIN") for token in tokens)


def _trailing_name(tokens: Sequence[_Token], bare_join: bool) -> str:
    """The name that a trailing AS gives the statement's result; empty if it is another's, or there is none.

    It is a column's without FROM before it, and a table's if the statement uses it as a qualifier.
    """
    if len(tokens) < 4 or tokens[0].is_word(*_NAMED_OTHERWISE):
        return ""
    word, name = tokens[-2:]
    if not word.is_word("AS") or word.depth != 0 or not name.is_name():
        return ""
    clauses = [token for token in tokens[:-2] if token.depth == 0 and token.is_word("SELECT", "FROM")]
    if not bare_join and (not clauses or not clauses[-1].is_word("FROM")):
        return ""
    qualifiers = {
        token.unquoted.casefold() for token, dot in itertools.pairwise(tokens) if token.is_name() and dot.text == "."
    }
    return "" if name.unquoted.casefold() in qualifiers else name.unquoted
