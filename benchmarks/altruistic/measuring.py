"""Runs one after the other, or in processes; what was measured before is not measured again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from benchmarks.altruistic.setups import Run
from benchmarks.paper.measuring import measured
from benchmarks.paper.results import Result, key, read, writer
from benchmarks.report import ROOT

RESULTS = ROOT / "benchmarks/altruistic/results.jsonl"
DOCUMENT = ROOT / "docs/altruistic-figures.md"


def _measured(run: Run) -> Result:
    return measured(run, (RESULTS, DOCUMENT))


def have_all(runs: Sequence[Run], results: Path, processes: int) -> Iterator[Result]:
    """The results of all runs, as they come; those that are in the file at once."""
    known = read(results)
    missing = []
    for run in runs:
        result = known.get(key(run.settings))
        if result is None:
            missing.append(run)
        else:
            yield result
    if not missing:
        return
    with writer(results) as file:
        for result in _each(missing, processes):
            file.add(result)
            yield result


def _each(runs: Sequence[Run], processes: int) -> Iterator[Result]:
    if processes <= 1:
        yield from map(_measured, runs)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_measured, run) for run in runs]):
            yield done.result()
