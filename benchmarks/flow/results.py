"""What was measured, as JSON lines: one for each run of a figure, with commit, date and machine."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from benchmarks.flow.outcome import Figure, Outcome, Row, Scale
from benchmarks.paper.measuring import commit_of_code
from benchmarks.report import ROOT
from simulator import results_file
from sparrow_py.errors import InvalidOption

RESULTS = ROOT / "benchmarks/flow/results.jsonl"
DOCUMENT = ROOT / "docs/flow-figures.md"
Kind = TypeVar("Kind", bound=msgspec.Struct)


class TargetResult(msgspec.Struct, frozen=True):
    """What was aimed at, and what came out; verdict: "met", "missed", or why neither."""

    text: str
    ours: str
    verdict: str


class FigureResult(msgspec.Struct, frozen=True):
    """Of one run. load: how many processes wanted a core in the minute before it ended, this one included."""

    figure: str
    scale: str
    rows: list[Row]
    targets: list[TargetResult]
    notes: list[str]
    commit: str
    date: str
    cores: int
    memory_gb: int
    load: float
    took_s: float
    cpu_s: float


def measured(figure: Figure, scale: Scale) -> tuple[FigureResult, Outcome]:
    """Run a figure."""
    started_s, cpu_s = time.monotonic(), time.process_time()
    outcome = figure.measure(scale)
    return FigureResult(
        figure=figure.name,
        scale=scale.value,
        rows=[{name: _rounded(cell) for name, cell in row.items()} for row in outcome.rows],
        targets=[TargetResult(target.text, target.ours, target.verdict) for target in outcome.targets],
        notes=outcome.notes,
        commit=commit_of_code((RESULTS, DOCUMENT)),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        cores=os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 2**30),
        load=round(os.getloadavg()[0], 1),
        took_s=round(time.monotonic() - started_s, 1),
        cpu_s=round(time.process_time() - cpu_s, 1),
    ), outcome


def _rounded(cell: Any) -> Any:
    """Six figures of a number: no clock says more."""
    return float(f"{cell:.6g}") if isinstance(cell, float) else cell


def add(path: Path, result: FigureResult) -> None:
    """Append a result."""
    add_line(path, result)


def read(path: Path) -> list[FigureResult]:
    """All results in a file, in their order; none if there is no file."""
    return read_lines(path, FigureResult)


def add_line(path: Path, result: msgspec.Struct) -> None:
    """Append a result of any kind."""
    with results_file.opened(path) as file:
        file.write(msgspec.json.encode(result) + b"\n")


def read_lines(path: Path, kind: type[Kind]) -> list[Kind]:
    """All results of this kind in a file, in their order; none if there is no file. `InvalidOption` names a line that
    is no such result."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidOption("results", str(path), f"a file that can be read ({error.strerror})") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except msgspec.MsgspecError as error:
            raise InvalidOption("results", f"{path}:{number}", f"a result ({error})") from None
    return found
