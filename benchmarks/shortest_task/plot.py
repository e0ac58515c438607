"""The plot: response over ideal by task duration, a curve for each system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from benchmarks.shortest_task.load import BROKEN, Measured

Y_MAX = 10 * BROKEN
"""Higher ones are drawn here."""


def draw(points: Mapping[str, Mapping[float, Measured]], title: str, path: Path) -> None:
    """As the kind of file that its name says."""
    with matplotlib.rc_context({"svg.hashsalt": "sparrow-py", "text.parse_math": False}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for system, found in points.items():
            durations = sorted(found)
            ratios = [min(found[ms].over_ideal or Y_MAX, Y_MAX) for ms in durations]
            axes.plot(durations, ratios, marker="o", label=system)
        axes.axhline(BROKEN, linestyle="--", color="grey", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="task duration, ms", ylabel="median response / ideal", title=title)
        axes.title.set_fontsize(9)
        axes.legend()
        axes.grid(visible=True, alpha=0.3)
        figure.savefig(path)
