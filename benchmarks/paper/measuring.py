"""What measures a run, in the process of the command or in one of its pool: these import this module by its name, and
know nothing of the command's own."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from benchmarks.paper.results import Result
from benchmarks.paper.runs import Measurable, Run
from benchmarks.report import ROOT
from sparrow_py.errors import SparrowError

RESULTS = ROOT / "benchmarks/paper/results.jsonl"
DOCUMENT = ROOT / "docs/paper.md"


def tried(run: Run) -> Result | str:
    """The run's result, or why it failed: one that fails does not take the others with it."""
    try:
        return measured(run)
    except SparrowError as error:
        return " ".join(str(error).split())


def measured(run: Measurable, written: Iterable[Path] = (RESULTS, DOCUMENT)) -> Result:
    """Run it. `written`: see `commit_of_code`."""
    started_s = time.monotonic()
    found = run.measure()
    return Result(
        run=run.settings,
        figures=found.figures,
        commit=commit_of_code(written),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        cores=os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 2**30),
        took_s=round(time.monotonic() - started_s, 1),
        why_invalid=found.why_invalid,
        samples=found.samples,
    )


def commit_of_code(written: Iterable[Path]) -> str:
    """Of the working tree, with a mark if the code differs from it; results and documents that are written are no
    code."""
    left_out = [f":(exclude){path.relative_to(ROOT)}" for path in written]
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *left_out)
    return (_git("rev-parse", "--short=10", "HEAD") or "unknown") + "-dirty" * bool(changed)


def _git(*words: str) -> str:
    """What git prints; nothing where there is no repository."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()
