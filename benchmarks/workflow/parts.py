"""What an unfinished figure has measured so far: a line of JSON for each part, so that `--resume` measures the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.flow.outcome import Row
from sparrow_py.errors import InvalidOption

Value = TypeVar("Value")


class Part(msgspec.Struct, frozen=True):
    """name: with all that decides what is measured."""

    name: str
    rows: list[Row]


class Parts:
    """Of one figure. path: the file of its parts; without one nothing is kept. resume: whether those in it count."""

    def __init__(self, path: Path | None = None, *, resume: bool = False) -> None:
        self._path = path
        self._found: dict[str, list[Row]] = {}
        if path is not None and path.exists():
            if resume:
                self._found = {part.name: part.rows for part in _read(path)}
            else:
                path.unlink()

    def part(self, name: str, measure: Callable[[], list[Row]]) -> list[Row]:
        """The rows of a part, measured unless an interrupted run has left them."""
        if name not in self._found:
            self._found[name] = [{key: _rounded(cell) for key, cell in row.items()} for row in measure()]
            if self._path is not None:
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(Part(name, self._found[name])) + b"\n")
        return self._found[name]

    def of_each(self, name: str, values: Sequence[Value], measure: Callable[[Value], list[Row]]) -> list[Row]:
        """The rows of a part for each value."""
        return [row for value in values for row in self.part(f"{name}, {value}", partial(measure, value))]

    def over(self) -> None:
        """The figure is measured, and its rows are elsewhere."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _rounded(cell: Any) -> Any:
    """Six figures of a number: no clock says more."""
    return float(f"{cell:.6g}") if isinstance(cell, float) else cell


def _read(path: Path) -> list[Part]:
    """All whole lines; the last one is cut off where a run was interrupted as it wrote."""
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            found.append(msgspec.json.decode(line, type=Part))
        except msgspec.MsgspecError as error:
            raise InvalidOption("resume", f"{path}:{number}", f"a part of a figure ({error})") from None
    return found
