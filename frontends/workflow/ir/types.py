"""The five types of columns, and schemas. Every column may hold nulls."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from frontends.workflow.errors import InvalidWorkflow, NameTaken, OtherType, TooLarge, UnknownColumn

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
class OtherColumn:
    """A column of a table that no workflow can read. type: as Arrow calls it; place: among all columns, from 0."""

    name: str
    type: str
    place: int


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a relation, in order. Names differ, and not only in case: some engines ignore case.

    others: of a table, the columns of types that workflows do not have. Nothing reads them; they are known so that
    whoever names one, or takes all columns, is told.
    """

    columns: tuple[Column, ...]
    others: tuple[OtherColumn, ...] = field(default=(), compare=False)

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
        """The column of this name, which is compared with its case; `UnknownColumn` or `OtherType` if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        self.check_type(name)
        raise UnknownColumn(name, self.names)

    def check_type(self, name: str) -> None:
        """`OtherType` if the column of this name, in any case, has a type that workflows do not have."""
        for other in self.others:
            if other.name.casefold() == name.casefold():
                raise _other_type(other)

    def check_whole(self, taker: str, columns: int | None = None) -> None:
        """`OtherType` unless all columns have types that workflows have. taker: what takes them all.

        columns: how many it takes, from the first on, if not all.
        """
        for other in self.others:
            if columns is None or other.place < columns:
                raise _other_type(other, taker if columns is None else "")

    def index(self, name: str) -> int:
        """The place of the column of this name, from 0; `UnknownColumn` if there is none."""
        return self.columns.index(self.column(name))


def _other_type(column: OtherColumn, all_of: str = "") -> OtherType:
    return OtherType(column.name, column.type, [one.value for one in Type], all_of)


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
