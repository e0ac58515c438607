"""Draws figures with matplotlib, as PNG and SVG: the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from simulator.figures.catalogue import Figure, Panel, Row

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b")
"""Told apart by the colour-blind, too (Okabe and Ito)."""

BLACK = "#000000"
"""Of the central scheduler, with which the others are compared."""

MARKERS = "osD^vPX<"
PANEL_INCHES = (4.6, 3.7)
PNG_DPI = 150
DECADE = 10
GREY = "#666666"
CONFIDENCE = "bands and bars: 95 % confidence interval of the mean over seeds"
LEGEND_COLUMNS = {1: 2, 2: 3, 3: 6}
"""By the panels in a row."""

STYLE: dict[str, Any] = {
    "svg.hashsalt": "sparrow-py", "font.size": 9, "axes.titlesize": 10, "axes.grid": True, "grid.alpha": 0.3,
    "grid.linewidth": 0.6, "lines.linewidth": 1.4, "lines.markersize": 4.5, "legend.frameon": False,
}  # fmt: skip


def draw(figure: Figure, rows: Sequence[Row], directory: Path) -> list[Path]:
    """Write figure-NAME.png and .svg; the paths."""
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]  # any str
        canvas = _canvas(figure, rows)
        paths = []
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            path = directory / f"figure-{figure.name}.{kind}"
            canvas.savefig(path, format=kind, dpi=PNG_DPI, metadata=metadata)
            paths.append(path)
    return paths


def _canvas(figure: Figure, rows: Sequence[Row]) -> Canvas:
    columns = min(figure.columns, len(figure.panels))
    lines = math.ceil(len(figure.panels) / columns)
    width, height = max(7.0, PANEL_INCHES[0] * columns), PANEL_INCHES[1] * lines + 1.3
    canvas = Canvas(figsize=(width, height), layout="constrained")
    canvas.suptitle(f"{figure.title}; {figure.profiles_text}\n{figure.scale}\n{CONFIDENCE}", fontsize=10)
    axes = canvas.subplots(lines, columns, squeeze=False)
    curves = list(dict.fromkeys(row.curve for row in rows))
    for panel, ax in zip(figure.panels, axes.flat, strict=False):
        _draw_panel(figure, panel, [row for row in rows if row.panel == panel.title], curves, ax)
    # All panels have the same curves: one legend is enough.
    handles, labels = axes.flat[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), LEGEND_COLUMNS[columns]))
    return canvas


def _draw_panel(figure: Figure, panel: Panel, rows: Sequence[Row], curves: Sequence[str], ax: Axes) -> None:
    ax.set_title(panel.title)
    ax.set_xlabel(figure.x_label)
    ax.set_ylabel(panel.y_label)
    if figure.log_x:
        ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    for line in figure.lines:
        if line.group == panel.group:
            colour = _colour(line.of, curves) if line.of else GREY
            ax.plot(line.xs, line.ys, color=colour, linestyle="--" if line.dashed else "-", label=line.label)
    foretold = {line.of for line in figure.lines}
    like = {samples.curve: samples.like for samples in figure.samples}
    coloured = [curve for curve in curves if not like[curve]]
    for number, curve in enumerate(curves):
        own = [row for row in rows if row.curve == curve]
        shift = (number - (len(curves) - 1) / 2) * 0.006 if panel.whiskers else 0.0
        of = like[curve] or curve
        look: dict[str, Any] = {
            "color": _colour(of, coloured),
            "marker": MARKERS[coloured.index(of) % len(MARKERS)],
            "linestyle": "--" if like[curve] else "-",
        }
        _draw_curve(own, curve, look, curve in foretold, shift, ax)
    if figure.log_x:
        _plain_ticks(ax.xaxis, *ax.get_xlim())
    if panel.log_y:
        _plain_ticks(ax.yaxis, *ax.get_ylim())


def _colour(curve: str, curves: Sequence[str]) -> str:
    return BLACK if curve == "central" else COLOURS[curves.index(curve) % len(COLOURS)]


def _draw_curve(rows: Sequence[Row], curve: str, look: dict[str, Any], foretold: bool, shift: float, ax: Axes) -> None:
    """The mean, the confidence interval as a band (as bars where there is a closed form), and whiskers.

    `shift`: how far to the right, so that whiskers of several curves do not hide each other.
    """
    xs = [row.x + shift for row in rows]
    means = [row.value.mean for row in rows]
    lows, highs = [row.value.low for row in rows], [row.value.high for row in rows]
    if foretold:
        below = [mean - low for mean, low in zip(means, lows, strict=True)]
        without_line = look | {"linestyle": ""}
        ax.errorbar(xs, means, yerr=below, **without_line, capsize=2, label=f"{curve}, simulated", zorder=3)
        ax.set_ylim(-0.03, 1.03)
        return
    ax.plot(xs, means, **look, label=curve, zorder=3)
    floor = min(means) / 10 if ax.get_yscale() == "log" else -math.inf
    ax.fill_between(xs, [max(low, floor) for low in lows], highs, color=look["color"], alpha=0.2, linewidth=0)
    for x, row in zip(xs, rows, strict=True):
        if row.whiskers is not None:
            ax.plot([x, x], row.whiskers, color=look["color"], linewidth=0.9, alpha=0.8)


def _plain_ticks(axis: Axis, low: float, high: float) -> None:
    """Labels that are plain numbers, and enough of them, on a logarithmic axis."""
    few = high / low < DECADE
    axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]) if few else LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
