"""Durations of tasks, as plans have them."""

from __future__ import annotations

DURATION_S_MIN = 1e-3
"""What is stated or measured to be shorter counts as so long: plans have no tasks that take no time."""
DURATION_S_MAX = 1e9


def bounded(duration_s: float) -> float:
    """The duration, or the nearest that a plan may have."""
    return min(max(duration_s, DURATION_S_MIN), DURATION_S_MAX)
