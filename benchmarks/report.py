"""What all benchmarks share: the command line, the tables and JSON they print, percentiles, CPU time and memory.

A benchmark makes a `Report`. With `--json` it prints exactly one object, {name, value, unit, details}; `details`
holds every repetition. CPU time is that of a process's own clock, in nanoseconds; memory is the resident set.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
import psutil
from rich import box
from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
ROOT = Path(__file__).parents[1]
PERCENTILES = (50, 95, 99)
_PROCESS_CLOCK = 2
"""`CPUCLOCK_SCHED`, which with the complement of a process's number names its clock (`clock_getcpuclockid`)."""


@dataclass
class Report:
    """A benchmark's result: the figure it stands for, and tables of rows whose keys are the columns.

    `repetitions` are the raw figures; a cell of a table is their median. `notes` say what must be known to read it.
    """

    name: str
    value: float
    unit: str
    tables: dict[str, list[Row]]
    repetitions: list[Any]
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        """The one object."""
        details = machine() | self.details
        details |= {"tables": self.tables, "notes": self.notes, "repetitions": self.repetitions}
        return json.dumps({"name": self.name, "value": self.value, "unit": self.unit, "details": details})

    def show(self, console: Console) -> None:
        """The tables, for people."""
        for title, rows in self.tables.items():
            console.print(title, markup=False, style="bold")
            console.print(table(rows))
        for note in self.notes:
            console.print(note, markup=False, style="dim")
        console.print(f"{self.name}: {self.value:.4g} {self.unit}", markup=False)


SEPARATE = "separate"
"""The arrangement of an embedded cluster in which each daemon has a process of its own."""


def command(name: str, measure: Callable[[int], Report], *, repeat: int, help: str) -> click.Command:
    """The command line of a benchmark: `measure(repetitions)` makes its report."""

    def run(as_json: bool, repeat: int) -> None:
        tell(measure(repeat), as_json=as_json)

    return click.Command(
        name,
        callback=run,
        help=help,
        params=[
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of tables."),
            click.Option(
                ["--repeat"], type=click.IntRange(1), default=repeat, show_default=True,
                help="Repetitions; tables show their medians.",
            ),
        ],
    )  # fmt: skip


def file_option(name: str, default: Path, what: str) -> Callable[[F], F]:
    """The option `--name` of a command, a file; without it that of the repository."""
    known = default.relative_to(ROOT)
    return click.option(
        f"--{name}", default=default, type=click.Path(path_type=Path), show_default=False,
        help=f"{what}  [default: {known}]",
    )  # fmt: skip


def command_of_cluster(name: str, measure: Callable[[int, str], Report], *, repeat: int, help: str) -> click.Command:
    """The same for a benchmark of an embedded cluster of either arrangement: `measure(repetitions, processes)`."""
    made = command(name, lambda repeat: measure(repeat, SEPARATE), repeat=repeat, help=help)
    made.callback = lambda as_json, repeat, processes: tell(measure(repeat, processes), as_json=as_json)
    made.params.append(
        click.Option(
            ["--processes"], type=click.Choice([SEPARATE, "one"]), default=SEPARATE, show_default=True,
            help="Whether scheduler and node monitor have a process each, or share one, as they do by default.",
        )
    )  # fmt: skip
    return made


def tell(report: Report, *, as_json: bool) -> None:
    """Print it, for people or as JSON."""
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False))


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy the machine was with other things."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "load_average_1_min": os.getloadavg()[0],
    }


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """p50, p95 and p99."""
    found = np.percentile(np.fromiter(values, float), PERCENTILES)
    return {f"p{p}": float(value) for p, value in zip(PERCENTILES, found, strict=True)}


def median_row(rows: Sequence[Row]) -> Row:
    """Rows of several repetitions as one: medians of the numbers that differ, of those repetitions that have a number
    there; the rest from the first."""
    row = dict(rows[0])
    for column, value in row.items():
        numbers = [other[column] for other in rows if not isinstance(other[column], str | bool)]
        if any(number != value for number in numbers):
            row[column] = statistics.median(numbers)
    return row


def median_rows(repetitions: Sequence[Sequence[Row]]) -> list[Row]:
    """The table of the medians: row i is the median of all row i."""
    return [median_row(rows) for rows in zip(*repetitions, strict=True)]


def cpu_s(pids: Iterable[int], *, children: bool = False) -> float:
    """CPU seconds that these live processes have used; with `children`, also all live ones under them."""
    return sum(_cpu_of(process) for process in _processes(pids, children))


def rss_mb(pids: Iterable[int], *, children: bool = False) -> float:
    """Resident megabytes (10^6 bytes) of these processes."""
    return sum(float(process.memory_info().rss) for process in _processes(pids, children)) / 1e6


def _processes(pids: Iterable[int], children: bool) -> list[psutil.Process]:
    processes = [psutil.Process(pid) for pid in pids]
    below = [child for process in processes for child in process.children(recursive=True)] if children else []
    return list({process.pid: process for process in [*processes, *below]}.values())


def _cpu_of(process: psutil.Process) -> float:
    """By the process's own clock, which counts nanoseconds; what psutil reads counts ticks of 10 ms."""
    try:
        return time.clock_gettime(~process.pid << 3 | _PROCESS_CLOCK)
    except OSError:
        raise psutil.NoSuchProcess(process.pid) from None


def table(rows: Sequence[Row]) -> Table:
    """For people; the keys of the first row are the columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for column, value in rows[0].items():
        justify: Any = "left" if isinstance(value, str) else "right"
        heading = column.replace(" × ", "\n×\u00a0").replace(" ", "\n")
        table.add_column(heading, justify=justify, no_wrap=True, vertical="bottom")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def progress(line: str) -> None:
    """A word on standard error, for whoever waits."""
    print(line, file=sys.stderr, flush=True)
