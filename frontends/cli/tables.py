"""Tables on the terminal, and in pipes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparrow_py.logs.printable import printable

COLUMNS_MAX = 10_000
"""Nothing is cut to fit the terminal: ids are there to be copied, and a pipe is no terminal."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | int]], console: Console | None = None) -> None:
    """Print the rows, each on a line, on stdout by default; numbers on the right.

    Names and cells are printed as they are: the terminal sees neither markup nor control characters of theirs.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    listed = list(rows)
    for index, column in enumerate(columns):
        number = any(isinstance(row[index], int) for row in listed)
        table.add_column(Text(printable(column)), justify="right" if number else "left")
    for row in listed:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    (console or Console(width=COLUMNS_MAX)).print(table)


def json_text(value: object, default: Callable[[object], object]) -> str:
    """The rows as JSON, which has no NaN and no infinity: they are the texts NaN, Infinity and -Infinity, as null is
    another value. default: makes of other values what JSON has."""
    return json.dumps(_finite(value), default=default, indent=1, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def age(seconds: float) -> str:
    """A duration for people: 4 s, 3 min, 2 h, 5 d."""
    seconds = max(seconds, 0.0)
    for limit, size, unit in ((100, 1, "s"), (6000, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def pairs(mapping: dict[str, object]) -> str:
    """A mapping in one cell: `cpu=4 memory=7.5GiB`, a key alone where its value is empty."""
    return " ".join(_pair(key, value) for key, value in mapping.items())


def _pair(key: str, value: object) -> str:
    if isinstance(value, int | float) and key.endswith("_bytes"):
        return f"{key.removesuffix('_bytes')}={value / (1 << 30):.1f}GiB"
    if isinstance(value, float):
        return f"{key}={value:g}"
    return f"{key}={value}" if value != "" else key
