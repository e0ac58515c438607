"""Figure 10 of execution templates: how long the tasks of a water simulation take.

The paper's is PhysBAM's; here it is the example `water`, each task of `inline` with its CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.dataflow.examples_taken import program_of
from benchmarks.flow.outcome import Row
from examples.dataflow import water
from frontends.dataflow.calls import Calls
from frontends.dataflow.inline import InlineRunner

PAPER_MS = {"10th percentile": 3.0, "median": 13.0, "shortest": 0.1, "main tasks": 65.0}
PERCENTILES = {"shortest": 0, "10th percentile": 10, "median": 50, "90th percentile": 90, "longest": 100}


def durations(size: int, blocks: tuple[int, int], frames: int) -> dict[str, list[int]]:
    """CPU time of each task in ns, by stage."""
    grid = water.Grid(size, *blocks)
    df, program = program_of(water, lambda: water.simulate(grid, frames, plane="inline", progress=False))
    df._freeze()
    taken: dict[str, list[int]] = {}

    def timed(function: Callable[..., Any], each: list[int]) -> Callable[..., Any]:
        def task(*arrays: Any, **parameters: Any) -> Any:
            then = time.thread_time_ns()
            made = function(*arrays, **parameters)
            made = list(made) if hasattr(made, "send") or hasattr(made, "__next__") else made
            each.append(time.thread_time_ns() - then)
            return made

        return task

    stages = df._definition.stages
    for number, stage in enumerate(stages):
        if stage.function is not None:
            stages[number] = replace(stage, function=timed(stage.function, taken.setdefault(stage.name, [])))
    runner = InlineRunner(df._definition)
    runner.load()
    # As `Dataflow.run` does, which would take the stages as they were declared again.
    df._called(program, Calls(runner.run_block))
    return taken


def measure(size: int = 1800, blocks: tuple[int, int] = (1, 1), frames: int = 1) -> list[Row]:
    """A row for each percentile of all tasks, then the median of each stage."""
    taken = durations(size, blocks, frames)
    every = np.concatenate([np.array(each) for each in taken.values()]) / 1e6
    made: list[Row] = [
        {"of": name, "tasks": len(every), "ms": round(float(np.percentile(every, percent)), 3),
         "paper_ms": PAPER_MS.get(name)}
        for name, percent in PERCENTILES.items()
    ]  # fmt: skip
    by_stage = sorted((float(np.median(each)) / 1e6, name, len(each)) for name, each in taken.items() if each)
    made.append({"of": "median of the stages' medians", "tasks": len(by_stage),
                 "ms": round(float(np.median([ms for ms, _, _ in by_stage])), 3), "paper_ms": None})  # fmt: skip
    return made + [
        {"of": f"stage {name}", "tasks": count, "ms": round(ms, 3), "paper_ms": None} for ms, name, count in by_stage
    ]
