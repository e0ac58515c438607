"""Where something stands in the text of a workflow."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

TAB_CHARS = 4
"""How wide a line that an error shows has its tabs."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source text. line, column: counted from 1; file: a path, or what else names the text."""

    line: int
    column: int
    file: str = "<workflow>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of a workflow and its name."""

    text: str
    file: str = "<workflow>"

    def position(self, offset: int) -> Position:
        """The place of the character at this offset, from 0; past the end: the end."""
        before = self.text[: max(0, offset)]
        line_start = before.rfind("\n") + 1
        return Position(before.count("\n") + 1, len(before) - line_start + 1, self.file)

    def line(self, number: int) -> str:
        """The line of this number, from 1; empty if there is none."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


def pointed_out(line: str, column: int) -> str:
    """The line, and under it a caret at its column, which is counted from 1.

    Tabs become spaces, and what is not printable its escape. Wide characters count as two, combining ones as none.
    """
    parts: list[str] = []
    width, caret = 0, 0
    for place, character in enumerate(line):
        if place < column:
            caret = width
        part = " " * (TAB_CHARS - width % TAB_CHARS) if character == "\t" else _shown(character)
        parts.append(part)
        width += sum(map(_cells, part))
    return f"{''.join(parts)}\n{' ' * (caret if column <= len(line) else width)}^"


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def _cells(character: str) -> int:
    """How many places of a terminal the character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
