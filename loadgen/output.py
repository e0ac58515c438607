"""The output of `python -m loadgen run`: a JSON object for each point, or a table."""

from __future__ import annotations

from typing import Any

import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from loadgen.recorded import Point

NAMES = ("value", "p5", "p50", "p95", "p99")
COLUMNS = {
    "p5": "response\np5 ms", "p50": "\np50 ms", "p95": "\np95 ms", "p99": "\np99 ms", "ideal_p50": "ideal\np50 ms",
    "value": "p50 over\nideal", "p95_later_over_earlier": "p95 later\nover earlier",
    "utilisation": "\nutilised", "jobs_measured": "jobs\nmeasured",
}  # fmt: skip


def as_json(point: Point, preset: str | None) -> str:
    """One line: the figures, whether they are a measurement, and the settings that reproduce them."""
    figures = point.figures
    row: dict[str, Any] = {name: figures[name] for name in NAMES}
    row |= {
        "preset": preset,
        "point": point.point,
        "label": point.label,
        "settings": point.settings,
        "valid": point.valid,
        "why_invalid": point.why_invalid,
        "late": point.late,
        "counts": point.counts,
        "cpu_s": point.cpu_s,
        "figures": figures,
    }
    return orjson.dumps(row).decode()


def show(points: list[Point]) -> None:
    """Print a table of the points, one row each, and for points that are not a measurement the reason."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("point", vertical="bottom")
    for heading in (*COLUMNS.values(), "late\np99 ms", "\nvalid"):
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    for point in points:
        cells = [_cell(point.figures[name]) for name in COLUMNS]
        table.add_row(point.label, *cells, _cell(point.late.get("p99_ms")), "yes" if point.valid else "NO")
        for user, figures in sorted(point.figures["by_user"].items()) if 1 < len(point.figures["by_user"]) <= 3 else ():
            table.add_row(f"  {user}", *(_cell(figures.get(name)) for name in COLUMNS))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # A pipe has no width to fit.
    console.print(table)
    for point in points:
        if not point.valid:
            console.print(f"{point.label} is no measurement: {point.why_invalid}", markup=False)


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
