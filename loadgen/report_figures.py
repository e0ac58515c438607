"""The plots of a report, and the data of each; plots without data are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadgen import measures, report_plots
from loadgen.recorded import Simulated
from loadgen.report_content import CONSEQUENT, WAYS, Group, Shown, described, text, varying
from loadgen.report_plots import IDEAL, Curve, Range
from sparrow_py.counted import agreeing, counted

LABELS_MAX = 24
"""Labels whose ranges are drawn; the table has all labels."""

STAGE_PLOTS_MAX = 6
"""Names of stages that have a plot each; if there are more, there are two plots: of first stages and of later ones."""

USERS_MAX = 7
"""Users with a curve each; all others share one."""

BINS = 160
"""Steps of a curve over time."""


@dataclass(frozen=True)
class Key:
    """An entry of a legend: name, number of the colour, and whether the line is dashed."""

    name: str
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    """A drawing in the page. note: a remark that a reader of the plot needs."""

    title: str
    svg: str
    legend: tuple[Key, ...] = ()
    note: str = ""


# ---- points against a setting ----------------------------------------------------------------


def sweeps(points: Sequence[Shown], simulated: Simulated | None) -> list[Plot]:
    """Response times against load, probe ratio and task duration, as far as the points differ in them."""
    differing = varying(points)
    found: list[Plot] = []
    if "load" in differing:
        found += _plots_against(points, "load", simulated, "load")
    if len({shown.settings.probe_ratio for shown in points if shown.settings.placement != "random"}) > 2:
        sampled = [shown for shown in points if shown.settings.placement != "random"]
        found += _plots_against(sampled, "probe_ratio", simulated, "probe ratio d")
    if "duration_ms" in differing:
        timed = [shown for shown in points if shown.settings.duration_ms]
        found += _plots_against(timed, "duration_ms", None, "duration of a task (ms)")
    return found


def _plots_against(points: Sequence[Shown], x: str, simulated: Simulated | None, x_label: str) -> Iterator[Plot]:
    """Plots of the median, of its difference to the ideal, and of the tail."""
    names = {"p50": "Median response time", "p95": "p95 of response times"}
    names |= {"over_ideal_p50_ms": "Median response time over ideal"}
    for figure in ("p50", "over_ideal_p50_ms", "p95"):
        curves, legend = _curves(points, x, figure, simulated)
        if curves:
            crossed = any(curve.crossed for curve in curves)
            against = x_label.split(" (", maxsplit=1)[0]
            svg = report_plots.lines(curves, x_label, "ms", log_x=x == "duration_ms")
            note = "× marks points that are not valid." if crossed else ""
            yield Plot(f"{names[figure]} against {against}", svg, tuple(legend), note)


def _curves(points: Sequence[Shown], x: str, figure: str, simulated: Simulated | None) -> tuple[list[Curve], list[Key]]:
    others = [name for name in varying(points) if name != x and name not in CONSEQUENT]
    lines: dict[str, list[Shown]] = {}
    for shown in points:
        if shown.figures[figure] is not None:
            of_random = shown.settings.placement == "random"
            named = [name for name in others if name not in WAYS and not (of_random and name == "probe_ratio")]
            words = [shown.name] * any(name in others for name in WAYS) + [described(shown, named)] * bool(named)
            lines.setdefault(" · ".join(words) or shown.name, []).append(shown)
    by_placement = bool(others) and set(others) <= set(WAYS)
    curves, legend = [], []
    for place, (name, members) in enumerate(lines.items()):
        colour = members[0].colour if by_placement else place % len(report_plots.SERIES)
        members.sort(key=lambda shown: float(shown.point.settings[x]))
        xs = [float(shown.point.settings[x]) for shown in members]
        crossed = frozenset(at for at, shown in enumerate(members) if not shown.point.valid)
        curves.append(Curve(name, colour, xs, [shown.figures[figure] for shown in members], False, crossed))
        legend.append(Key(text(name), colour))
        foretold = _simulated(members, x, figure, simulated)
        if foretold:
            curves.append(Curve(name, colour, [at for at, _ in foretold], [value for _, value in foretold], True))
    if any(curve.dashed for curve in curves):
        legend.append(Key("simulated", IDEAL, dashed=True))
    return _with_ideal(curves, legend, points, x, figure)


def _with_ideal(
    curves: list[Curve], legend: list[Key], points: Sequence[Shown], x: str, figure: str
) -> tuple[list[Curve], list[Key]]:
    ideals: dict[float, float] = {}
    for shown in points:
        value = shown.figures.get(f"ideal_{figure}")
        if value is not None:
            ideals.setdefault(float(shown.point.settings[x]), value)
    if ideals:
        xs = sorted(ideals)
        curves.append(Curve("ideal", IDEAL, xs, [ideals[at] for at in xs]))
        legend.append(Key("ideal", IDEAL))
    return curves, legend


def _simulated(members: Sequence[Shown], x: str, figure: str, simulated: Simulated | None) -> list[tuple[float, float]]:
    """The simulator's results for the curve's settings; empty if there are none."""
    if simulated is None:
        return []
    other = "load" if x == "probe_ratio" else "probe_ratio"
    wanted = getattr(members[0].settings, other)
    found = [
        (getattr(one, x), getattr(one, figure, None))
        for one in simulated.points
        if getattr(one, other) == wanted and one.is_of(members[0].settings)
    ]
    return sorted((at, value) for at, value in found if value is not None)


# ---- points side by side ---------------------------------------------------------------------


def response_by_label(group: Group) -> list[Plot]:
    """The paper's figure 10: percentiles of each query's response times, by placement, beside the ideal."""
    rows = []
    for label in group.labels[:LABELS_MAX]:
        times = [(shown, group.times(shown, "by_label", label)) for shown in group.points]
        row = [
            Range(shown.colour, found["p5"], found["p50"], found["p95"])
            for shown, found in times
            if found is not None and found["p50"] is not None
        ]
        ideal = next((found for _, found in times if found is not None and found["ideal_p50"] is not None), None)
        if ideal is not None:
            row.append(Range(IDEAL, ideal["ideal_p5"], ideal["ideal_p50"], ideal["ideal_p95"]))
        if row:
            rows.append((text(label), row))
    if not rows:
        return []
    left_out = len(group.labels) - LABELS_MAX
    note = "A bar reaches from the 5th to the 95th percentile, its mark is the median."
    note += f" {left_out} more {agreeing(left_out, 'are')} in the table." if left_out > 0 else ""
    svg = report_plots.ranges(rows, "response time (ms)")
    return [Plot("Response time by query", svg, (*_legend(group), Key("ideal", IDEAL)), note)]


def waits(group: Group) -> list[Plot]:
    """The paper's figure 11: how long tasks waited; also for each stage, where jobs have several."""
    found = [_waits_where(group, "All tasks", [_measured(shown) for shown in group.points])]
    if group.stages:
        found += [_waits_where(group, title, flags) for title, flags in _by_stage(group)]
    return [plot for plot in found if plot is not None]


def _by_stage(group: Group) -> Iterator[tuple[str, list[NDArray[np.bool_]]]]:
    stages = list(dict.fromkeys(name for _, name in group.stages))
    if len(stages) <= STAGE_PLOTS_MAX:
        for name in stages:
            yield f"Stage {text(name)}", [_measured(shown) & _stage_is(shown, name) for shown in group.points]
        return
    yield "First stages", [_measured(shown) & shown.spans.first for shown in group.points]
    yield "Later stages", [_measured(shown) & ~shown.spans.first for shown in group.points]


def _measured(shown: Shown) -> NDArray[np.bool_]:
    """Which tasks' waits count."""
    counted = measures.jobs_counted(shown.run.jobs)[shown.spans.job]
    return np.asarray(counted & np.isfinite(shown.spans.wait_s))


def _stage_is(shown: Shown, name: str) -> NDArray[np.bool_]:
    return np.asarray(pc.equal(shown.run.tasks["stage_name"], name).to_numpy())


def _waits_where(group: Group, title: str, flags: Sequence[NDArray[np.bool_]]) -> Plot | None:
    pairs = [(shown, own) for shown, own in zip(group.points, flags, strict=True) if np.any(own)]
    if not pairs:
        return None
    svg = report_plots.cdf([(shown.colour, shown.spans.wait_s[own] * 1000) for shown, own in pairs])
    return Plot(title, svg, tuple(Key(shown.name, shown.colour) for shown, _ in pairs))


def _legend(group: Group) -> tuple[Key, ...]:
    return tuple(Key(shown.name, shown.colour) for shown in group.points)


# ---- over time -------------------------------------------------------------------------------


def tasks_by_user(group: Group) -> list[Plot]:
    """The paper's figure 12: tasks of each user that run, and below them those that wait, one plot for each placement.

    All plots of a kind have one scale.
    """
    users = group.users
    if len(users) < 2:
        return []
    legend = tuple(Key(name, colour) for colour, name in enumerate(_user_names(users)))
    kinds = {"Running tasks": measures.running, "Queued tasks": measures.queued}
    found = []
    for kind, count in kinds.items():
        drawn = [(shown, _time_steps(shown)) for shown in group.points]
        values = [
            [count(shown.spans.where(flags), edges) for flags in _of_users(shown, users)] for shown, edges in drawn
        ]
        top = 1.05 * max((float(np.max(ys)) for own in values for ys in own), default=0.0) or None
        for (shown, edges), own in zip(drawn, values, strict=True):
            curves = [Curve("", colour, edges, ys) for colour, ys in enumerate(own)]
            svg = report_plots.over_time(curves, kind.lower(), measures.window_s(shown.run.jobs), top)
            found.append(Plot(f"{kind}: {shown.name}", svg, legend))
    return found


def _user_names(users: Sequence[str]) -> list[str]:
    rest = len(users) - USERS_MAX
    return [text(user) for user in users[:USERS_MAX]] + ([counted(rest, "other")] if rest > 0 else [])


def _of_users(shown: Shown, users: Sequence[str]) -> list[NDArray[np.bool_]]:
    """For each curve, the tasks that it counts."""
    own = shown.run.jobs["user"].to_numpy()[shown.spans.job]
    flags = [own == user for user in users[:USERS_MAX]]
    return [*flags, ~np.any(flags, axis=0)] if len(users) > USERS_MAX else flags


def utilisation(group: Group) -> list[Plot]:
    """The share of the slots that ran tasks."""
    curves = []
    for shown in group.points:
        edges, slots = _time_steps(shown), shown.settings.nodes * shown.settings.slots
        curves.append(Curve(shown.name, shown.colour, edges, measures.running(shown.spans, edges) / slots * 100))
    svg = report_plots.over_time(curves, "busy slots (%)", measures.window_s(group.points[0].run.jobs), 102)
    return [Plot("Utilisation", svg, _legend(group))]


def events(group: Group) -> list[Plot]:
    """GetTasks that got no task, and cancelled reservations, a second."""
    found = []
    for kind, title in (("noop", "No-ops"), ("cancelled", "Cancelled reservations")):
        curves = []
        for shown in group.points:
            own = shown.run.events.filter(pc.equal(shown.run.events["kind"], kind))
            if own.num_rows:
                edges = _time_steps(shown)[::4]
                counts, _ = np.histogram(own["at_s"].to_numpy(), edges, weights=own["count"].to_numpy())
                curves.append(Curve(shown.name, shown.colour, edges, counts / np.diff(edges)))
        if curves:
            svg = report_plots.over_time(curves, "a second", None)
            found.append(Plot(f"{title} a second", svg, tuple(Key(curve.name, curve.colour) for curve in curves)))
    return found


def _time_steps(shown: Shown) -> NDArray[np.float64]:
    """The times between which tasks are counted, from the point's beginning to the end of its last task."""
    ends = shown.spans.finished_s[np.isfinite(shown.spans.finished_s)]
    return np.linspace(0, float(np.max(ends, initial=0.0)) or 1.0, BINS + 1)
