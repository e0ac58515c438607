"""The report's plots: matplotlib draws them as SVG that stands in the page and takes its colours and font.

A plot is drawn in colours that stand for the page's (`INK`, `GRID`, `SERIES`) and that are replaced by its CSS
variables, so the same drawing is legible on a light and on a dark page. Legends are the page's business, since they
have to wrap on a phone. Text is text and never a formula. The same numbers give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # Here and below: matplotlib is imported when something is drawn.

Values = NDArray[np.float64]

INK, GRID = "#010101", "#010102"
SERIES = tuple(f"#0102{number:02x}" for number in range(8))
"""The colours of curves, by number."""

IDEAL = -1
"""The number of the curve of the ideal, which has the colour of text."""

WIDTH_INCHES, HEIGHT_INCHES = 4.4, 2.75
RANGE_INCHES = 0.18
"""Height of one range in the plot of ranges."""

LOG_FROM = 20
"""An axis is logarithmic if its largest value is at least so many times its smallest."""

CDF_POINTS = 201
WAIT_MS_MIN = 0.1
"""On a logarithmic axis, shorter waits are drawn as this."""

STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "sparrow-py", "text.parse_math": False, "font.size": 9.5,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID, "xtick.color": GRID, "ytick.color": GRID,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.7,
    "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.7,
    "lines.markersize": 4.5, "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
}  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """A line. `colour`: a number of `SERIES`, or `IDEAL`. `crossed`: the points to be drawn as ×."""

    name: str
    colour: int
    xs: Sequence[float] | Values
    ys: Sequence[float] | Values
    dashed: bool = False
    crossed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Range:
    """A 5th, a 50th and a 95th percentile; `colour` as in `Curve`."""

    colour: int
    p5: float
    p50: float
    p95: float


def ranges(rows: Sequence[tuple[str, Sequence[Range]]], x_label: str) -> str:
    """A drawing of the ranges of each name, one below the other: a bar from p5 to p95, and a mark at the median."""
    count = sum(len(row) + 1 for _, row in rows)
    with _plot(height=0.65 + RANGE_INCHES * count) as (ax, drawn):
        at, ticks = 0.0, []
        for _, row in rows:
            ticks.append(at + (len(row) - 1) / 2)
            for number, one in enumerate(row):
                _range(ax, at + number, one)
            at += len(row) + 1
        ax.set_yticks(ticks, [name for name, _ in rows])
        ax.set_ylim(at - 1.2, -0.8)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        values = [value for _, row in rows for one in row for value in (one.p5, one.p95)]
        _scale(ax, "x", values)
        ax.set_xlabel(x_label)
    return drawn[0]


def _range(ax: Axes, at: float, one: Range) -> None:
    colour = _colour(one.colour)
    thick = 2.0 if one.colour == IDEAL else 7.0
    ax.plot([one.p5, one.p95], [at, at], color=colour, linewidth=thick, alpha=0.45, solid_capstyle="butt")
    ax.plot([one.p50], [at], color=colour, marker="|", markersize=8, markeredgewidth=2.4)


def cdf(waits_ms: Sequence[tuple[int, Values]]) -> str:
    """A drawing of the share of tasks over their longest wait; each curve is given by its colour and waits in ms."""
    shares = np.linspace(0, 1, CDF_POINTS)
    with _plot() as (ax, drawn):
        for colour, values in waits_ms:
            ax.plot(np.maximum(np.quantile(values, shares), WAIT_MS_MIN), shares * 100, color=_colour(colour))
        _make_logarithmic(ax, "x")
        ax.set_ylim(0, 101)
        least_ms = min(float(np.min(values)) for _, values in waits_ms)
        ax.set_xlabel(
            "wait of a task (ms" + (f"; below {WAIT_MS_MIN:g} as {WAIT_MS_MIN:g})" if least_ms < WAIT_MS_MIN else ")")
        )
        ax.set_ylabel("tasks (%)")
    return drawn[0]


def over_time(
    curves: Sequence[Curve], y_label: str, window_s: tuple[float, float] | None, y_max: float | None = None
) -> str:
    """Means between the times `xs` (one more than `ys`), as steps; the measured time has a darker ground."""
    with _plot() as (ax, drawn):
        if window_s is not None:
            ax.axvspan(*window_s, color=INK, alpha=0.05, linewidth=0)
        for curve in curves:
            ax.stairs(
                np.asarray(curve.ys), np.asarray(curve.xs), color=_colour(curve.colour), linewidth=1.2, baseline=None
            )
        ax.margins(x=0)
        ax.set_ylim(0, y_max)
        ax.set_xlabel("seconds since the point began")
        ax.set_ylabel(y_label)
    return drawn[0]


def lines(curves: Sequence[Curve], x_label: str, y_label: str, *, log_x: bool = False) -> str:
    """Values against a setting; the y axis is logarithmic where the values span much."""
    with _plot() as (ax, drawn):
        for curve in curves:
            style = "--" if curve.dashed else "-"
            marker = "" if curve.dashed or curve.colour == IDEAL else "o"
            ax.plot(curve.xs, curve.ys, color=_colour(curve.colour), linestyle=style, marker=marker)
            for at in curve.crossed:
                ax.plot(curve.xs[at], curve.ys[at], color=_colour(curve.colour), marker="x", markersize=10)
        if log_x:
            _make_logarithmic(ax, "x")
        _scale(ax, "y", [float(value) for curve in curves for value in curve.ys])
        ax.set_xlabel(x_label)
        ax.set_ylabel(y_label)
    return drawn[0]


# ---- drawing ---------------------------------------------------------------------------------


@contextmanager
def _plot(height: float = HEIGHT_INCHES) -> Iterator[tuple[Axes, list[str]]]:
    """Axes to draw on; afterwards the list has the SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    drawn: list[str] = []
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]  # any str
        # The page is drawn with the browser's fonts.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        yield figure.subplots(), drawn
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    drawn.append(_in_page_colours(out.getvalue()))


def _in_page_colours(svg: str) -> str:
    """The drawing's SVG element, in the page's colours, without a size of its own."""
    svg = svg[svg.index("<svg") :]
    head, rest = svg.split(">", 1)
    variables = {INK: "--ink", GRID: "--line", **{colour: f"--s{number}" for number, colour in enumerate(SERIES)}}
    colours = re.compile("|".join(variables))
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return _change_tags(f"{head}>{rest}", lambda tag: colours.sub(lambda found: f"var({variables[found[0]]})", tag))


def with_own_ids(svg: str, prefix: str) -> str:
    """The same drawing with ids that no other plot of the page has."""
    return _change_tags(svg, lambda tag: re.sub(r'( id="|href="#|url\(#)', rf"\1{prefix}", tag))


def _change_tags(svg: str, change: Callable[[str], str]) -> str:
    """The SVG with its tags changed; the text between them, which has no "<", stays as it is."""
    return re.sub(r"<[^>]+>", lambda tag: change(tag[0]), svg)


def _colour(number: int) -> str:
    return INK if number == IDEAL else SERIES[number % len(SERIES)]


def _scale(ax: Axes, which: str, values: Sequence[float]) -> None:
    """A logarithmic axis if the values ask for it, else one from 0."""
    if min(values) > 0 and max(values) / min(values) >= LOG_FROM:
        _make_logarithmic(ax, which)
    elif min(values) >= 0:
        getattr(ax, f"set_{which}lim")(0, None)


def _make_logarithmic(ax: Axes, which: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    low, high = getattr(ax, f"get_{which}lim")()
    decades = np.log10(high / low)
    if decades < 1:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 3 else (1.0, 3.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())
