"""Draws a figure's columns, in the look of the simulator's figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.flow.outcome import Outcome, Plot, Row

LINES = ("-", "--", ":", "-.")
LINES_INSIDE = 6
"""With more lines than this their names stand beside the drawing."""


def draw(name: str, title: str, outcome: Outcome, directory: Path) -> list[Path]:
    """Write flow-figure-NAME.png and .svg; the paths. None if the figure has no drawing."""
    plot = outcome.plot
    if plot is None:
        return []
    import matplotlib  # Much, for the commands that draw nothing.
    from matplotlib.figure import Figure as Canvas

    from simulator.figures.plots import COLOURS, MARKERS, PNG_DPI, STYLE

    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]  # any str
        canvas = Canvas(figsize=(7.0, 4.2), layout="constrained")
        ax = canvas.subplots()
        ax.set_title(title)
        ax.set_xlabel(plot.x_label)
        ax.set_ylabel(plot.y_label)
        if plot.log_x:
            ax.set_xscale("log")
        if plot.log_y:
            ax.set_yscale("log")
        for colour, (group, rows) in enumerate(groups(outcome.rows, plot.by).items()):
            for number, column in enumerate(plot.ys):
                xs, ys = _points(rows, plot.x, column)
                if xs:
                    colour_of = colour if plot.by else number
                    look: dict[str, Any] = {"color": COLOURS[colour_of % len(COLOURS)], "marker": MARKERS[number]}
                    if plot.by:
                        look["linestyle"] = LINES[number % len(LINES)]
                    ax.plot(xs, ys, label=_label(group, column, plot), **look)
        if len(ax.lines) > LINES_INSIDE:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        else:
            ax.legend()
        paths = []
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            path = directory / f"flow-figure-{name}.{kind}"
            canvas.savefig(path, format=kind, dpi=PNG_DPI, metadata=metadata)
            paths.append(path)
    return paths


def groups(rows: Sequence[Row], by: str) -> dict[str, list[Row]]:
    """Rows by the value of a column, in the order in which the values come; all in one without a column."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        value = row[by] if by else ""
        found.setdefault(f"{value:,}" if isinstance(value, int) else str(value), []).append(row)
    return found


def _label(group: str, column: str, plot: Plot) -> str:
    if not plot.by:
        return column
    group = f"{group} {plot.by}" if group[:1].isdigit() else group
    return group if len(plot.ys) == 1 else f"{group}, {column}"


def _points(rows: Sequence[Row], x: str, y: str) -> tuple[list[Any], list[float]]:
    """Those that are numbers: a solve that was stopped is none."""
    found = [(row[x], row[y]) for row in rows if isinstance(row.get(y), int | float)]
    return [at for at, _ in found], [value for _, value in found]
