"""Rows of traces as CSV files, plain or gzipped; what is wrong is said by file, line and field."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparrow_py.errors import InvalidOption


class Row:
    """One line of a file, its fields by name. A field that is empty, or `nan`, is missing."""

    __slots__ = ("_values", "path", "where")

    def __init__(self, path: str, where: str, values: dict[str, str]) -> None:
        self.path = path
        self.where = where
        """File and line."""
        self._values = values

    def text(self, name: str) -> str:
        """ "" if it is missing."""
        value = self._values[name]
        return "" if value == "nan" else value

    def whole(self, name: str, least: int, most: int, missing: int | None = None) -> int:
        """A whole number within these bounds; `missing` says what a field that is missing means, None: it may not."""
        text = self.text(name)
        if not text and missing is not None:
            return missing
        try:
            value = int(text)
        except ValueError:
            raise self.fault(name, f"a whole number from {least} to {most}") from None
        if not least <= value <= most:
            raise self.fault(name, f"a whole number from {least} to {most}")
        return value

    def real(self, name: str, least: float, most: float, missing: float | None = None) -> float:
        """The same for any number."""
        text = self.text(name)
        if not text and missing is not None:
            return missing
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise self.fault(name, f"a number from {least:g} to {most:g}")
        return value

    def fault(self, name: str, allowed: str) -> InvalidOption:
        """The error to raise about a field."""
        return InvalidOption(f"{self.where} {name}", self._values[name], allowed)


def rows(path: str | Path, columns: Sequence[str], *, named: bool = False) -> Iterator[Row]:
    """Those of a file, or of all `*.csv` and `*.csv.gz` of a directory in order of their names. `named`: each file's
    first line has the columns' names, of which there may be others; else lines have these columns, in this order."""
    for file in _files(Path(path)):
        yield from _of_file(file, columns, named)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith((".csv", ".csv.gz")))
    if not found:
        raise InvalidOption("trace", str(path), "a directory with files *.csv or *.csv.gz")
    return found


def _of_file(path: Path, columns: Sequence[str], named: bool) -> Iterator[Row]:
    name = str(path)
    try:
        with gzip.open(path, "rt", newline="") if name.endswith(".gz") else path.open(newline="") as file:
            reader = csv.reader(file)
            header: Sequence[str] = next(reader, []) if named else columns
            lacking = [column for column in columns if column not in header]
            if lacking:
                raise InvalidOption(f"{name}:1 {lacking[0]}", ",".join(header), f"the columns {', '.join(columns)}")
            for values in reader:
                if not values:
                    continue
                where = f"{name}:{reader.line_num}"
                if len(values) != len(header):
                    raise InvalidOption(where, f"{len(values)} fields", f"{len(header)} fields: {', '.join(header)}")
                yield Row(name, where, dict(zip(header, values, strict=True)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidOption("trace", name, f"a readable CSV file, plain or gzipped ({error})") from None
