"""Times of a process's own clock as times since 1970, so that those of several processes can be shown together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def by_wall_clock(deliver: Callable[[Array], None]) -> Callable[[Array], None]:
    """Takes spans whose times are of `time.perf_counter_ns`, and delivers them with times since 1970."""
    offset_ns = time.time_ns() - time.perf_counter_ns()

    def delivered(spans: Array) -> None:
        spans["begin_ns"] += offset_ns
        spans["end_ns"] += offset_ns
        deliver(spans)

    return delivered
