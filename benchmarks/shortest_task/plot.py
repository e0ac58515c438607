"""The plot: response over ideal by task duration, a curve for each system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.shortest_task.load import BROKEN, Measured

Y_MAX = 10 * BROKEN
"""Higher ones are drawn here."""
Y_TICKS = (1.0, 1.2, 1.5, 2.0, 5.0, 10.0, 20.0)


def draw(points: Mapping[str, Mapping[float, Measured]], title: str, path: Path) -> None:
    """As the kind of file that its name says."""
    with matplotlib.rc_context({"svg.hashsalt": "sparrow-py", "text.parse_math": False}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for system, found in points.items():
            ratios = [min(found[ms].over_ideal or Y_MAX, Y_MAX) for ms in sorted(found)]
            axes.plot(sorted(found), ratios, marker="o", label=system)
        axes.axhline(BROKEN, linestyle="--", color="grey", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="task duration, ms", ylabel="median response / ideal", title=title)
        axes.title.set_fontsize(9)
        durations = sorted({ms for found in points.values() for ms in found})
        for axis, ticks in ((axes.xaxis, durations), (axes.yaxis, Y_TICKS)):
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.legend()
        axes.grid(visible=True, alpha=0.3)
        figure.savefig(path)
