"""Figure 5.9, and the statistics of the workload beside those that are published."""

from __future__ import annotations

import numpy as np

from benchmarks.flow.outcome import Outcome, Plot, Row, Scale, Target, at_least
from loadgen.google_like import GoogleLike, event_times_s, events_in_windows

HOURS = {Scale.TINY: 0.5, Scale.QUICK: 6.0, Scale.FULL: 48.0}
WINDOWS_S = (0.5, 1.0, 5.0, 20.0)
SEED = 1
SHARES = (5, 25, 50, 60, 75, 90, 95, 99)


def windows(scale: Scale) -> Outcome:
    """Figure 5.9: task events (submissions, starts, ends) in windows of time."""
    workload = GoogleLike(seconds=3600 * scale.of(HOURS))
    times_s = event_times_s(workload, SEED)
    rows: list[Row] = []
    for window_s in WINDOWS_S:
        counts = events_in_windows(times_s, window_s, workload.seconds)
        row: Row = {"window s": window_s}
        row |= {f"p{share}": round(float(np.percentile(counts, share))) for share in SHARES}
        rows.append(row | {"largest": int(counts.max())})
    short = events_in_windows(times_s, 0.5, workload.seconds)
    long = events_in_windows(times_s, 20.0, workload.seconds)
    p95 = float(np.percentile(long, 95))
    tells = scale is not Scale.TINY
    return Outcome(
        rows,
        [
            at_least("half a second: under 10 events in over 60 %", 100 * float(np.mean(short < 10)), 60, " %",
                     tells=tells),
            _near("half a second: under 100 events in 95 %", 100 * float(np.mean(short < 100)), 95, 1.5, " %", tells),
            at_least("20 s: over 500 events in the median", float(np.median(long)), 500, tells=tells),
            _near("20 s: about 5,000 events in the 95th percentile", p95, 5_000, 1_500, "", tells),
        ],
        [f"{scale.of(HOURS):g} hours, 12,500 machines, seed {SEED}; each task is submitted, starts and ends."],
        Plot("window s", ("p50", "p95", "p99"), "window [s]", "events", log_x=True, log_y=True),
    )  # fmt: skip


def workload(scale: Scale) -> Outcome:
    """What is published of the workload in other places (§2.3.3, §5.2.2, §6.2.4)."""
    made = GoogleLike(seconds=3600 * scale.of(HOURS))
    running, arrivals = made.running(SEED), made.arrivals(SEED)
    sizes, running_sizes = np.bincount(arrivals.job), np.bincount(running.job)
    rows: list[Row] = [
        _row("tasks that run", len(running.job), 135_000),
        _row("jobs that run", len(running_sizes), 1_800),
        _row("of their tasks, batch", int(np.isfinite(running.left_s).sum()), "about 20,000, or as windows need"),
        _row("of jobs above 1,000 tasks [%]", 100 * float(np.mean(sizes > 1_000)), 1.2),
        _row("tasks of the largest job", int(max(sizes.max(), running_sizes.max())), "over 20,000"),
    ]
    for share, published in ((50, 420), (90, 3_600), (99, 18_300)):
        found = float(np.percentile(arrivals.duration_s, share))
        rows.append(_row(f"duration of batch tasks, p{share} [s]", found, published))
    rows.append(_row("batch tasks that come a second", len(arrivals.job) / made.seconds, "unpublished"))
    return Outcome(rows, [], ["Events in windows: figure 5.9."])


def _row(what: str, ours: float, published: float | str) -> Row:
    return {"statistic": what, "made up": ours, "published": str(published)}


def _near(text: str, value: float, aim: float, tolerance: float, unit: str, tells: bool) -> Target:
    return Target(text, f"{value:.4g}{unit}", abs(value - aim) <= tolerance if tells else None)
