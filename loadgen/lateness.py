"""What keeps a point from being a measurement: jobs that were submitted late, a plane without a CPU to decide on.

Responses count from when a job was due, so a late generator makes a cluster look worse, never better. A point is
invalid if the 99th percentile of lateness, over its measured jobs, is above `LATE_MAX_SHARE` of their median ideal
response time, and above `LATE_MAX_S`: smaller delays come from timers, and from other programs on the machine.

One scheduler of a plane places all tasks. While it waits for a CPU nothing starts, so more jobs are there at a time, of
which each decision takes longer still: such a point says nothing of the plane.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LATE_MAX_SHARE = 0.05
LATE_MAX_S = 0.005
WAITED_MAX_SHARE = 0.1
"""Of a point's time: as long a plane's scheduler may have waited for a CPU."""

Times = NDArray[np.float64]


def lateness(late_s: Times) -> dict[str, float | None]:
    """Percentiles of lateness in milliseconds, rounded to microseconds; None where nothing was submitted."""
    if not len(late_s):
        return {"p50_ms": None, "p99_ms": None, "max_ms": None}
    p50, p99, most = (*np.percentile(late_s, (50, 99)), np.max(late_s))
    return {name: round(1000 * float(value), 3) for name, value in (("p50_ms", p50), ("p99_ms", p99), ("max_ms", most))}


def why_too_late(late_s: Times, ideal_s: Times) -> str:
    """Why jobs with this lateness and these ideals are not a measurement; empty if they are one."""
    known = ideal_s[np.isfinite(ideal_s)]
    if not len(late_s) or not len(known):
        return ""
    p99_s = float(np.percentile(late_s, 99))
    allowed_s = max(LATE_MAX_S, LATE_MAX_SHARE * float(np.median(known)))
    if p99_s <= allowed_s:
        return ""
    return (
        f"the load generator was late: p99 {1000 * p99_s:.1f} ms, at most {1000 * allowed_s:.1f} ms are allowed "
        f"({LATE_MAX_SHARE:.0%} of the median ideal response time, or {1000 * LATE_MAX_S:g} ms)"
    )


def why_starved(waited_s: float | None, lasted_s: float) -> str:
    """Why a point whose scheduler waited so long for a CPU is no measurement of its plane; empty if it is one, or if
    nobody knows how long."""
    if waited_s is None or waited_s <= WAITED_MAX_SHARE * lasted_s:
        return ""
    return (
        f"a scheduler that places all tasks waited for a CPU for {waited_s:.1f} s of {lasted_s:.1f} s, at most "
        f"{WAITED_MAX_SHARE:.0%} is allowed: the machine is too busy"
    )
