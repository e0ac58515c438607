"""Another user's backlog beside a program that has all slots: who has how much of them, on a real node monitor.

A slot's time is a task's from its start to its end, as reports have it. Tasks sleep, as slots are shared here and not
cores. On busy cores tasks learn later that they are to yield, or may start, and slots stand empty meanwhile (`taken`).
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from sparrow_py import Client, Job, LocalCluster
from sparrow_py.job import JobSpec

LEASE_S = 1.0
TASK_S = 0.2
"""Of the other user."""
WINDOW_S = 10.0
SETTLE_S = 10.0
"""From the other user's first task to the first window. Until then the program may have less than its share, as it had
all slots when the other user came: each of its tasks there was charged a lease that had only begun. How long is bounded
(`node_monitor/queueing/fair.py`)."""
START_MAX_S = 60.0
WEIGHTS = ((1, 1), (3, 1), (1, 3))
SLOTS = (2, 4)
Span = tuple[float, float]
"""When a task began and ended, seconds since the epoch."""


class _Recording(Client):
    """A client that keeps its jobs: a program's workers are a job each."""

    def submit_job(self, spec: JobSpec, **how: Any) -> Job:
        job = super().submit_job(spec, **how)
        self.__dict__.setdefault("submitted", []).append(job)
        return job


def _loop(df: Dataflow, gate: str, partitions: int) -> Any:
    """A program that runs until there is a file `gate`."""
    X, total = df.partition(np.arange(float(partitions))), df.single(np.zeros(1))
    work = df.stage(writes=[X], name="work")(lambda x: time.sleep(0.01))
    add = df.reduce(X, into=total)
    more = df.signal(on=total, name="more")(lambda total: not os.path.exists(gate))  # noqa: PTH110

    def program() -> None:
        while more():
            work()
            add()

    return program


def _await_workers(df: Dataflow, workers: int) -> None:
    """Return once the program has so many; `TimeoutError` if that takes too long."""
    until_s = time.monotonic() + START_MAX_S
    while (progress := getattr(df._cluster_runner, "progress", None)) is None or progress.workers < workers:
        if time.monotonic() > until_s:
            raise TimeoutError(f"the program did not have {workers} workers within {START_MAX_S:g} s")
        time.sleep(0.05)


def spans_of(jobs: Iterable[Job]) -> list[Span]:
    """When their tasks ran, of those that did."""
    return [
        (task.started_at_s, task.started_at_s + task.service_s)
        for job in jobs
        for task in job.report(timeout_s=60.0).tasks
        if task.started_at_s is not None and task.service_s is not None
    ]


def overlap_s(spans: Iterable[Span], since_s: float, until_s: float) -> float:
    """The time of these within others."""
    return sum(max(0.0, min(end_s, until_s) - max(begin_s, since_s)) for begin_s, end_s in spans)


def measured(slots: int, weights: tuple[int, int], windows: int) -> list[tuple[float, float]]:
    """For each window, the program's share of what both had, and the share of all slots' time that both had."""
    duration_s = SETTLE_S + windows * WINDOW_S
    options = [
        part
        for user, weight in zip(("ada", "bob"), weights, strict=True)
        for part in ("--user-weight", f"{user}={weight}")
    ]
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(slots=slots, scheduler_options=options) as cluster,
        _Recording(cluster, user="ada") as ada,
        Client(cluster, user="bob") as bob,
    ):
        gate = Path(directory, "gate")
        with Dataflow(ada, workers=slots, partitions=2 * slots, plane="local", lease_s=LEASE_S, progress=False) as df:
            running = threading.Thread(target=df.run, args=(_loop(df, str(gate), 2 * slots),))
            running.start()
            backlog: Job | None = None
            try:
                _await_workers(df, slots)
                time.sleep(2 * LEASE_S)
                backlog = bob.submit_calls(time.sleep, [(TASK_S,)] * int(2 * duration_s * slots / TASK_S))
                backlog.futures[0].result()
                since_s = time.time() + SETTLE_S
                time.sleep(duration_s)
            finally:
                if backlog is not None:
                    backlog.cancel()
                gate.touch()
                running.join()
        theirs, others = spans_of(ada.__dict__["submitted"]), spans_of([backlog])
    return [_window(theirs, others, since_s + number * WINDOW_S, slots) for number in range(windows)]


def _window(theirs: list[Span], others: list[Span], since_s: float, slots: int) -> tuple[float, float]:
    had, other = (overlap_s(spans, since_s, since_s + WINDOW_S) for spans in (theirs, others))
    return had / (had + other), (had + other) / (slots * WINDOW_S)


def rows(repeat: int = 3) -> list[dict[str, object]]:
    """A row for each number of slots and pair of weights; `repeat` windows of each."""
    made: list[dict[str, object]] = []
    for slots in SLOTS:
        for weights in WEIGHTS:
            windows = measured(slots, weights, repeat)
            due = weights[0] / sum(weights)
            made.append(
                {
                    "slots": slots,
                    "weights": f"{weights[0]}:{weights[1]}",
                    "due": due,
                    "share": median(share for share, _ in windows),
                    "furthest (of due)": max(abs(share - due) for share, _ in windows) / due,
                    "taken": median(taken for _, taken in windows),
                }
            )
    return made
