"""What was measured, as JSON lines: one for each run of a figure, with commit, date and machine."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.dataflow.catalogue import Figure
from benchmarks.flow.results import FigureResult, TargetResult
from benchmarks.paper.measuring import commit_of_code
from benchmarks.report import ROOT

RESULTS = ROOT / "benchmarks/dataflow/results.jsonl"
DOCUMENT = ROOT / "docs/dataflow-figures.md"


def measured(
    name: str, figure: Figure, *, quick: bool, arguments: dict[str, Any],
    written: Sequence[Path] = (RESULTS, DOCUMENT),
) -> FigureResult:  # fmt: skip
    """Run a figure; `arguments` come before those of `quick`. written: files that are no code, so may differ."""
    started_s, cpu_s = time.monotonic(), _cpu_s()
    rows = figure.measure(**{**(figure.quick if quick else {}), **arguments})
    return FigureResult(
        figure=name,
        scale="quick" if quick else "full",
        rows=rows,
        targets=[TargetResult(target.text, target.ours, target.verdict) for target in figure.targets(rows)],
        notes=list(figure.notes),
        commit=commit_of_code(written),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        cores=os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 2**30),
        load=round(os.getloadavg()[0], 1),
        took_s=round(time.monotonic() - started_s, 1),
        cpu_s=round(_cpu_s() - cpu_s, 1),
    )


def _cpu_s() -> float:
    """Of this process, and of those that it has waited for."""
    return sum(os.times()[:4])
