"""What figures need of a run besides `Result.figures()`."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.simulate import COOL_DOWN, PERCENTILES, WARM_UP, Result

AT_ONCE_MS = 0.001
"""Waits shorter than this are rounding: virtual time is counted in nanoseconds."""


def measures(result: Result) -> dict[str, Any]:
    """The result's figures, and what the figures of the paper show besides.

    response_mean_ms: of the measured jobs. over_ideal_p50_ms and its like: percentiles of the jobs' response times less
    their longest tasks. zero_wait: share of them all of whose tasks started when the job arrived.
    Without network delay, as §4.1 has it, those are the jobs whose tasks were all placed on idle slots; with it no job
    is.
    asking_over_service: slot time spent waiting for answers to getTask, over slot time spent on tasks, where it was
    counted (`idle_slots.WatchedSparrow`).
    """
    found = result.figures() | {"zero_wait": zero_wait(result)}
    found["response_mean_ms"] = round(float(np.mean(result.response_ms)), 3)
    over_ideal_ms = result.response_ms - result.ideal_ms
    found |= {f"over_ideal_p{p}_ms": round(float(np.percentile(over_ideal_ms, p)), 3) for p in PERCENTILES}
    if "asking_us" in result.counts:
        service_s = sum(sum(record.job.durations_s) for record in result.records)
        found["asking_over_service"] = result.counts["asking_us"] / 1e6 / service_s
    return found


def zero_wait(result: Result) -> float:
    """The share of the measured jobs whose tasks all started as soon as they could: when the job arrived, or the stages
    before had ended."""
    records = result.records
    measured = records[int(len(records) * WARM_UP) : len(records) - int(len(records) * COOL_DOWN)]
    waits_s = [max(record.waits_s()) for record in measured]
    return float(np.mean(np.array(waits_s) * 1000 < AT_ONCE_MS))
