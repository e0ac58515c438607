"""The five types of columns, and schemas. Every column may hold nulls."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from frontends.workflow.errors import InvalidWorkflow, NameTaken, TooLarge, UnknownColumn

COLUMNS_MAX = 2_000
"""Columns of a relation."""
NAME_CHARS_MAX = 255
"""Characters of the name of a column, relation or table."""


class Type(enum.Enum):
    """The type of a column or of a scalar expression; the value is how IR text writes it."""

    INTEGER = "INTEGER"
    """64 bits, signed. Overflow is undefined."""
    DOUBLE = "DOUBLE"
    """IEEE 754, 64 bits. NaN equals itself and is greater than all else; the sign of zero is undefined."""
    STRING = "STRING"
    """Unicode, ordered by code points."""
    BOOLEAN = "BOOLEAN"
    """false is less than true."""
    DATE = "DATE"
    """A day of the proleptic Gregorian calendar, of the years 1 to 9999."""

    @property
    def numeric(self) -> bool:
        return self in (Type.INTEGER, Type.DOUBLE)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation."""

    name: str
    type: Type

    def __post_init__(self) -> None:
        check_name("column", self.name)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a relation, in order. Names differ, and not only in case: some engines ignore case."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidWorkflow("a relation has at least one column")
        if len(self.columns) > COLUMNS_MAX:
            raise TooLarge("columns of a relation", len(self.columns), COLUMNS_MAX)
        seen: dict[str, str] = {}
        for column in self.columns:
            folded = column.name.casefold()
            if folded in seen:
                raise NameTaken("column", column.name, seen[folded])
            seen[folded] = column.name

    @classmethod
    def of(cls, **columns: Type) -> Schema:
        """For names that are identifiers: `Schema.of(id=Type.INTEGER, town=Type.STRING)`."""
        return cls(tuple(Column(name, type_) for name, type_ in columns.items()))

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return any(column.name == name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(column.type for column in self.columns)

    def column(self, name: str) -> Column:
        """The column of this name, which is compared with its case; `UnknownColumn` if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownColumn(name, self.names)

    def index(self, name: str) -> int:
        """The place of the column of this name, from 0; `UnknownColumn` if there is none."""
        return self.columns.index(self.column(name))


def check_name(what: str, name: str) -> None:
    """`InvalidWorkflow` unless `name` can name a column, relation or table: 1 to 255 printable characters.

    Keywords of languages and engines are names like any other: whoever writes code quotes them.
    """
    if not name or not name.isprintable() or name != name.strip():
        raise InvalidWorkflow(
            f"{name!r} cannot be the name of a {what}: it has printable characters, and no space at its ends"
        )
    if len(name) > NAME_CHARS_MAX:
        raise TooLarge(f"characters of the name of a {what}", len(name), NAME_CHARS_MAX)
