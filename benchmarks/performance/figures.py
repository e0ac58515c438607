"""What a row of the page is, and how its numbers are found in what a benchmark printed: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.performance.results import Recorded

Selector = Mapping[str, Any]
"""Cells by their columns, which one row of a table has all of."""
VALUE = "value"
"""The column of a line whose number is the benchmark's own value."""


@dataclass(frozen=True)
class Figure:
    """Numbers of one unit, that stand together: `0.5 / 0.7 ms`."""

    columns: tuple[str, ...]
    unit: str = ""


@dataclass(frozen=True)
class Aim:
    """What a column's number is to be at most, or at least. label: what tells it from others of its line; times: the
    bound is a multiple of the number that this row beside ours has."""

    column: str
    bound: float
    at_least: bool = False
    label: str = ""
    times: str = ""


@dataclass(frozen=True)
class Line:
    """A row of the page. table: how its title in the benchmark's report begins; None where the number is the
    benchmark's value. beside: rows of the same table that are shown with ours, by what they are called."""

    what: str
    benchmark: str
    table: str | None
    row: Selector
    figures: tuple[Figure, ...]
    beside: Mapping[str, Selector] = field(default_factory=dict)
    aims: tuple[Aim, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Of all figures."""
        return [column for figure in self.figures for column in figure.columns]

    def unit(self, column: str) -> str:
        """What this column's number counts."""
        return next(figure.unit for figure in self.figures if column in figure.columns)


Numbers = dict[str, float]


@dataclass(frozen=True)
class Found:
    """The numbers of a line in one run, by their columns."""

    ours: Numbers
    beside: dict[str, Numbers]

    def meets(self, aim: Aim) -> bool:
        """Whether this run's number is as is aimed at."""
        number = self.ratio(aim) if aim.times else self.ours[aim.column]
        return number >= aim.bound if aim.at_least else number <= aim.bound

    def ratio(self, aim: Aim) -> float:
        """Ours over that of the row that the aim compares with."""
        return self.ours[aim.column] / self.beside[aim.times][aim.column]


def found(line: Line, result: Recorded) -> Found:
    """`LookupError` names the table, row or column that the benchmark no longer has."""
    if line.table is None:
        return Found({VALUE: result.value}, {})
    rows = _table(line.table, result)
    beside = {name: _numbers(rows, selector, line, result) for name, selector in line.beside.items()}
    return Found(_numbers(rows, line.row, line, result), beside)


def _table(title: str, result: Recorded) -> list[dict[str, Any]]:
    fitting = [rows for name, rows in result.tables.items() if name.startswith(title)]
    if len(fitting) != 1:
        raise LookupError(f"{result.benchmark}: {len(fitting)} tables of {list(result.tables)} begin with {title!r}")
    return fitting[0]


def _numbers(rows: list[dict[str, Any]], selector: Selector, line: Line, result: Recorded) -> Numbers:
    fitting = [row for row in rows if all(row.get(column) == cell for column, cell in selector.items())]
    if len(fitting) != 1:
        raise LookupError(f"{result.benchmark}: {len(fitting)} rows of {line.table!r} have {dict(selector)}")
    lacking = [column for column in line.columns if column not in fitting[0]]
    if lacking:
        raise LookupError(f"{result.benchmark}: {line.table!r} has no column {lacking[0]!r} but {list(fitting[0])}")
    return {column: float(fitting[0][column]) for column in line.columns}
