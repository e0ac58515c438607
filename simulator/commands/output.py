"""What `run` gives out: a table for people, JSON for programs, Parquet of every task."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from loadgen.jobs import WorkloadJob
from simulator.simulate import COOL_DOWN, WARM_UP, Result
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidOption

COLUMNS = {
    "response_p5_ms": "response\np5 ms", "response_p50_ms": "\np50 ms", "response_p95_ms": "\np95 ms",
    "response_p99_ms": "\np99 ms", "ideal_p50_ms": "ideal\np50 ms", "wait_p50_ms": "wait\np50 ms",
    "wait_p99_ms": "\np99 ms", "jobs_measured": "jobs\nmeasured", "noop_asks": "no-op\nasks", "events": "\nevents",
}  # fmt: skip
"""Figures that the table shows, and their headings."""


def as_json(result: Result) -> str:
    """One line: the figures, and the settings under "settings"; equal runs give equal bytes."""
    return orjson.dumps(result.figures() | {"settings": result.settings}, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def show(results: list[Result]) -> None:
    """Print a table of the runs, one row each, on standard output."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("policy", vertical="bottom")
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    for result in results:
        figures = result.figures()
        table.add_row(result.settings["policy"], *(_cell(figures[name]) for name in COLUMNS))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # A pipe has no width to fit.
    console.print(table)


def _cell(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


class TaskTable:
    """A Parquet file with a row for each task of each run. A context manager: what failed leaves no file.

    policy, seed: of the run. job: its number, from 0. stage, task: the number of its stage in the job, and its own.
    user. node: its number; -1 with the central policy, whose slots are all one. job_arrival_s, started_s: virtual
    seconds since the start. service_s: how long it ran. wait_s: from its job's arrival, or from the end of the stages
    before its own, until it started. job_response_s: of its job, from arrival to the end of its last task. measured:
    false for the jobs of warm-up and cool-down, which the figures leave out.
    """

    def __init__(self, path: str) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise InvalidOption("out", path, f"nothing without pyarrow: {install_command('simulator')}") from None
        self._arrow = pyarrow
        self._parquet = pyarrow.parquet
        self._path = Path(path)
        self._part = self._path.with_name(self._path.name + ".part")
        self._writer: Any = None
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise InvalidOption("out", path, f"a file that can be written ({error.strerror})") from None

    def __enter__(self) -> TaskTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()
        if error is None and self._writer is not None:
            self._part.replace(self._path)
        else:
            self._part.unlink()

    def add(self, result: Result) -> None:
        """The tasks of a run."""
        table = self._arrow.table(columns(result))
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)


def _stages(job: WorkloadJob) -> np.ndarray[Any, Any]:
    """For each task of the job, the number of its stage."""
    sizes = [stage.tasks for stage in job.as_stages()]
    return np.repeat(np.arange(len(sizes)), sizes)


def columns(result: Result) -> dict[str, Any]:
    """What the Parquet file has of a run, by column."""
    records = result.records
    counts = np.array([len(record.started_s) for record in records])
    jobs = len(records)
    first, last = int(jobs * WARM_UP), jobs - int(jobs * COOL_DOWN)
    started_s = np.concatenate([np.frombuffer(record.started_s) for record in records])
    service_s = np.concatenate([np.frombuffer(record.job.durations_s) for record in records])
    arrival_s = np.repeat([record.job.arrival_s for record in records], counts)
    starts = np.cumsum(counts) - counts
    ends_s = np.maximum.reduceat(started_s + service_s, starts)
    return {
        "policy": [result.settings["policy"]] * len(started_s),
        "seed": np.full(len(started_s), result.settings["seed"], np.int64),
        "job": np.repeat([record.job.number for record in records], counts),
        "stage": np.concatenate([_stages(record.job) for record in records]),
        "task": np.arange(len(started_s)) - np.repeat(starts, counts),
        "user": [user for record, count in zip(records, counts, strict=True) for user in [record.job.user] * count],
        "node": np.concatenate([np.frombuffer(record.nodes, np.intc) for record in records]),
        "job_arrival_s": arrival_s,
        "started_s": started_s,
        "service_s": service_s,
        "wait_s": np.concatenate([np.array(record.waits_s()) for record in records]),
        "job_response_s": np.repeat(ends_s, counts) - arrival_s,
        "measured": np.repeat([first <= number < last for number in range(jobs)], counts),
    }
