"""Run the demo: an embedded cluster, the job of `identifiers` on it, the answer and the times.

    python -m frontends.demo [--repeat N] [--chaos] [--json]

The scheduling overhead is the job's response time over the ideal: what an omniscient scheduler
without any cost would have needed for the same tasks, each as long as it was measured to take.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from frontends.demo import identifiers
from frontends.demo.chaos import Chaos
from frontends.demo.identifiers import Answer
from sparrow_py import Client, JobReport, LocalCluster, TaskStatus
from sparrow_py.counted import counted
from sparrow_py.daemon.command_group import exit_code
from sparrow_py.daemon.version import version_option

GROUPS = 128
REDUCERS = 8
TOP = 20

Advance = Callable[[str, int, int], None]
"""Called with a stage's name, how many of its tasks have ended, and how many it has."""


class DemoError(Exception):
    """The job did not run as it should have, or its answer cannot be right."""


# ---- measurements ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a stage's tasks, or of all tasks of the job; `ideal_s` beside the real `response_s`."""

    name: str
    waits_s: list[float]
    services_s: list[float]
    responses_s: list[float]
    response_s: float
    ideal_s: float

    @property
    def overhead(self) -> float:
        """Response time over the ideal: 1.0 is perfect."""
        return self.response_s / self.ideal_s


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the job."""

    answer: Answer
    stages: list[Times]
    total: Times
    reports: list[JobReport]


def ideal_response_s(services_s: Iterable[float], slots: int) -> float:
    """When the last task would end if each went, in order and at no cost, to the slot that is free first."""
    free_at_s = [0.0] * slots
    for service_s in services_s:
        heapq.heapreplace(free_at_s, free_at_s[0] + service_s)
    return max(free_at_s)


def stage_times(name: str, report: JobReport, slots: int) -> Times:
    """The times of a stage, all of whose tasks must have finished."""
    waits, services, responses = [], [], []
    for task in report.tasks:
        if task.status is not TaskStatus.FINISHED:
            raise DemoError(f"stage {name}: task {task.task} ended {task.status}: {task.error or 'no reason given'}")
        if task.wait_s is None or task.service_s is None or task.response_s is None:
            raise DemoError(f"stage {name}: task {task.task} finished without times")
        waits.append(task.wait_s)
        services.append(task.service_s)
        responses.append(task.response_s)
    if report.response_s is None:
        raise DemoError(f"stage {name}: no task ran")
    return Times(name, waits, services, responses, report.response_s, ideal_response_s(services, slots))


def total_times(stages: Sequence[Times], response_s: float) -> Times:
    """The whole job: its ideal is the sum of the stages', since each needs all of the one before."""
    return Times(
        "job",
        [wait for stage in stages for wait in stage.waits_s],
        [service for stage in stages for service in stage.services_s],
        [response for stage in stages for response in stage.responses_s],
        response_s,
        sum(stage.ideal_s for stage in stages),
    )


# ---- the job ---------------------------------------------------------------------------------


def run_job(client: Client, groups: Sequence[Sequence[str]], slots: int, advance: Advance) -> Run:
    """Run the three stages; this client passes the results of each to the next."""
    stages: list[Times] = []
    reports: list[JobReport] = []

    def stage(name: str, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        advance(name, 0, len(calls))
        job = client.submit_calls(function, calls, name=name)
        for ended, _ in enumerate(job, start=1):
            advance(name, ended, len(calls))
        results = job.results()
        if len(results) != len(calls):
            raise DemoError(f"stage {name}: {len(calls)} tasks gave {len(results)} results")
        reports.append(job.report())
        stages.append(stage_times(name, reports[-1], slots))
        return results

    started_s = time.perf_counter()
    counted = stage("count", identifiers.count, [(group, REDUCERS) for group in groups])
    merged = stage("merge", identifiers.merge, [([c.partitions[r] for c in counted],) for r in range(REDUCERS)])
    (answer,) = stage("order", identifiers.order, [(merged, TOP)])
    response_s = time.perf_counter() - started_s

    expected = sum(counts.total for counts in counted)
    if answer.total != expected:
        raise DemoError(f"the answer counts {answer.total} identifiers, the files have {expected}")
    return Run(answer, stages, total_times(stages, response_s), reports)


# ---- output ----------------------------------------------------------------------------------


def percentiles_ms(values_s: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile, in milliseconds."""
    p50, p95 = np.percentile(values_s, [50, 95]) * 1000
    return float(p50), float(p95)


def answer_table(answer: Answer) -> Table:
    """The most used identifiers."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("identifier")
    table.add_column("count", justify="right")
    for identifier, number in answer.top:
        table.add_row(identifier, f"{number:,}")
    return table


def times_table(run: Run) -> Table:
    """A row of times per stage and one for the job, within 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("\nstage")
    headings = ["\ntasks"]
    headings += [f"{kind}\np50" if p == 50 else "\np95" for kind in ("wait", "service", "resp.") for p in (50, 95)]
    for heading in [*headings, "all\ntasks", "\nideal", "over-\nhead"]:
        table.add_column(heading, justify="right")
    for times in [*run.stages, run.total]:
        if times is run.total:
            table.add_section()
        cells = [ms for kind in (times.waits_s, times.services_s, times.responses_s) for ms in percentiles_ms(kind)]
        cells += [times.response_s * 1000, times.ideal_s * 1000]
        table.add_row(
            times.name,
            str(len(times.services_s)),
            *(f"{ms:,.1f}" if ms < 100 else f"{ms:,.0f}" for ms in cells),
            f"{times.overhead:.2f}×",
        )
    return table


def times_json(times: Times) -> dict[str, Any]:
    """A row of times as a JSON object."""
    row: dict[str, Any] = {"name": times.name, "tasks": len(times.services_s)}
    for kind, values in (("wait", times.waits_s), ("service", times.services_s), ("response", times.responses_s)):
        row[f"task_{kind}_p50_ms"], row[f"task_{kind}_p95_ms"] = percentiles_ms(values)
    return row | {"response_s": times.response_s, "ideal_s": times.ideal_s, "overhead": times.overhead}


def result_json(runs: Sequence[Run], details: dict[str, Any]) -> dict[str, Any]:
    """One object as every benchmark prints it."""
    repetitions = [times_json(run.total) | {"stages": [times_json(s) for s in run.stages]} for run in runs]
    return {
        "name": "demo_overhead",
        "value": statistics.median(run.total.overhead for run in runs),
        "unit": "job response time / ideal",
        "details": details | {"answer": runs[0].answer._asdict(), "repetitions": repetitions},
    }


@contextmanager
def progress_bars(console: Console, shown: bool) -> Iterator[Advance]:
    """A bar per stage."""
    columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not shown) as progress:
        bars: dict[str, Any] = {}

        def advance(name: str, ended: int, total: int) -> None:
            if ended == 0:
                bars[name] = progress.add_task(name, total=total)
            progress.update(bars[name], completed=ended)

        yield advance


def _with_chaos(advance: Advance, killer: Chaos | None) -> Advance:
    """A function that does what `advance` does, and tells the killer how far the first stage is."""
    if killer is None:
        return advance

    def both(name: str, ended: int, total: int) -> None:
        advance(name, ended, total)
        if name == "count":
            killer.task_ended(ended)

    return both


# ---- the command -----------------------------------------------------------------------------


@click.command(
    help="Count the identifiers of Python sources in three stages on an embedded cluster.",
    params=[version_option("python -m frontends.demo")],
)
@click.option("--schedulers", type=click.IntRange(1), default=2, show_default=True, help="Schedulers, a process each.")
@click.option(
    "--node-monitors", type=click.IntRange(1), default=4, show_default=True, help="Node monitors, a process each."
)
@click.option("--slots", type=click.IntRange(1), help="Slots per node monitor.  [default: a quarter of the cores]")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of the Python files to read.  [default: the standard library]",
)
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="How often to run the job.")
@click.option("--chaos", is_flag=True, help="Kill a node monitor and a scheduler during the job. Not with --repeat.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def main(
    schedulers: int,
    node_monitors: int,
    slots: int | None,
    directory: Path | None,
    repeat: int,
    chaos: bool,
    as_json: bool,
) -> None:
    if chaos and (repeat > 1 or schedulers < 2 or node_monitors < 2):
        raise click.UsageError("--chaos needs two schedulers and two node monitors at least, and runs the job once")
    cores = os.cpu_count() or 1
    slots = slots or max(1, cores // 4)
    root = directory or identifiers.standard_library()
    out, err = Console(highlight=False, soft_wrap=True), Console(stderr=True)

    def say(line: str = "") -> None:
        if not as_json:
            out.print(line, markup=False)

    try:
        files = identifiers.source_files(root)
        if not files:
            raise DemoError(f"{root}: no Python files there")
        groups = identifiers.balanced_groups(files, GROUPS)
        size = sum(path.stat().st_size for path in files)
        python_files = counted(len(files), "Python file")
        say(f"{python_files}, {size / 1e6:.1f} MB, in {counted(len(groups), 'group')}, from {root}")
        starting_s = time.perf_counter()
        with (
            LocalCluster(schedulers=schedulers, node_monitors=node_monitors, slots=slots) as cluster,
            Client(cluster) as client,
        ):
            start_s = time.perf_counter() - starting_s
            say(
                f"{counted(schedulers, 'scheduler')} and {counted(node_monitors, 'node monitor')}, "
                f"{counted(node_monitors * slots, 'slot')} in all, are up after {start_s:.2f} s"
            )
            runs = []
            killer = Chaos(cluster) if chaos else None
            for _ in range(repeat):
                with progress_bars(err, shown=not as_json) as advance:
                    runs.append(run_job(client, groups, node_monitors * slots, _with_chaos(advance, killer)))
        if any(run.answer != runs[0].answer for run in runs):
            raise DemoError("two runs gave different answers")
    except Exception as error:  # whoever tries the demo wants one line that says what went wrong
        first_line = next(iter(str(error).strip().splitlines()), "")
        kind = "" if isinstance(error, DemoError) else f"{type(error).__name__}: "
        click.echo(f"error: {kind}{first_line}", err=True)
        sys.exit(exit_code(error))

    if as_json:
        details = {
            "cores": cores,
            "python": platform.python_version(),
            "schedulers": schedulers,
            "node_monitors": node_monitors,
            "slots_per_node": slots,
            "probe_ratio": 2,
            "prefetch": 0,
            "files": len(files),
            "bytes": size,
            "cluster_start_s": start_s,
        }
        if killer is not None:
            details["chaos"] = killer.verdict(runs[0].reports)
        click.echo(json.dumps(result_json(runs, details)))
        return
    median = sorted(runs, key=lambda run: run.total.overhead)[(len(runs) - 1) // 2]
    say()
    say(f"{median.answer.total:,} identifiers, {median.answer.distinct:,} distinct; the most used:")
    out.print(answer_table(median.answer))
    say("Times in milliseconds, of each task and of all (probe ratio 2, prefetch 0):")
    out.print(times_table(median))
    if killer is not None:
        say(killer.verdict(median.reports))
        say(f"The job took {median.total.response_s:.2f} s all the same; its answer is that of all files.")
        return
    say(
        f"The job took {median.total.response_s:.2f} s. An omniscient scheduler at no cost would have needed"
        f" {median.total.ideal_s:.2f} s\nfor the same tasks on {counted(node_monitors * slots, 'slot')}:"
        f" overhead {median.total.overhead:.2f}×."
    )
    if repeat > 1:
        overheads = ", ".join(f"{run.total.overhead:.2f}×" for run in runs)
        say(f"Overheads of all {repeat} runs: {overheads} (shown: the median).")


if __name__ == "__main__":
    main()
