"""Figure 10 of execution templates: how long the tasks of a water simulation take.

The paper's is PhysBAM's; here it is the example `water`, each task of `inline` with its CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.dataflow.examples_taken import program_of
from benchmarks.flow.outcome import Row
from examples.dataflow import water
from frontends.dataflow.calls import Calls
from frontends.dataflow.inline import InlineRunner
from frontends.dataflow.stages import StageKind

PAPER_MS = {"10th percentile": 3.0, "median": 13.0, "shortest": 0.1, "main tasks": 65.0}
WRITING, SUMMING = "median of the stages that write fields", "median of the stages that sum fields"
PERCENTILES = {"shortest": 0, "10th percentile": 10, "median": 50, "90th percentile": 90, "longest": 100}


@dataclass
class Taken:
    """Of a stage's tasks."""

    kind: StageKind
    each_ns: list[int] = field(default_factory=list)
    cells_read: int = 0
    """Of the largest array that one of them had."""
    cells_written: int = 0


def durations(size: int, blocks: tuple[int, int], frames: int) -> dict[str, Taken]:
    """CPU time of each task, by stage."""
    grid = water.Grid(size, *blocks)
    df, program = program_of(water, lambda: water.simulate(grid, frames, plane="inline", progress=False))
    df._freeze()
    taken: dict[str, Taken] = {}

    def timed(function: Callable[..., Any], stage: Taken, writes: int) -> Callable[..., Any]:
        def task(*arrays: Any, **parameters: Any) -> Any:
            then = time.thread_time_ns()
            made = function(*arrays, **parameters)
            made = list(made) if hasattr(made, "__next__") else made
            stage.each_ns.append(time.thread_time_ns() - then)
            sizes = [getattr(array, "size", 0) for array in arrays]
            stage.cells_read = max(stage.cells_read, *sizes, 0)
            stage.cells_written = max(stage.cells_written, *sizes[len(sizes) - writes :], 0)
            return made

        return task

    stages = df._definition.stages
    for number, stage in enumerate(stages):
        if stage.function is not None:
            each = taken.setdefault(stage.name, Taken(stage.kind))
            stages[number] = replace(stage, function=timed(stage.function, each, len(stage.writes)))
    runner = InlineRunner(df._definition)
    runner.load()
    # As `Dataflow.run` does, which would take the stages as they were declared again.
    df._called(program, Calls(runner.run_block))
    return {name: stage for name, stage in taken.items() if stage.each_ns}


def measure(size: int = 1800, blocks: tuple[int, int] = (2, 2), frames: int = 1) -> list[Row]:
    """A row for each percentile of all tasks, of stages that write fields or sum them, then the median of each."""
    taken = durations(size, blocks, frames)
    every = np.concatenate([stage.each_ns for stage in taken.values()]) / 1e6
    cells = size * size // (blocks[0] * blocks[1])
    medians = {name: float(np.median(stage.each_ns)) / 1e6 for name, stage in taken.items()}
    computing = {name: stage for name, stage in taken.items() if stage.kind is StageKind.COMPUTE}
    kinds = {
        WRITING: [name for name, stage in computing.items() if 2 * stage.cells_written >= cells],
        SUMMING: [name for name, stage in computing.items() if 2 * stage.cells_read >= cells > 2 * stage.cells_written],
    }

    def row(of: str, tasks: int, ms: float, paper_ms: float | None = None) -> Row:
        return {"of": of, "tasks": tasks, "ms": round(ms, 3), "paper_ms": paper_ms}

    return [
        *(
            row(name, len(every), float(np.percentile(every, at)), PAPER_MS.get(name))
            for name, at in PERCENTILES.items()
        ),
        *(
            row(
                kind,
                sum(len(taken[name].each_ns) for name in names),
                float(np.median([medians[name] for name in names])),
            )
            for kind, names in kinds.items()
        ),
        *(
            row(f"stage {name}", len(taken[name].each_ns), medians[name])
            for name in sorted(taken, key=medians.__getitem__)
        ),
    ]
