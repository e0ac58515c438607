"""Numbers from what a load run recorded: pure functions of its tables (`recorded.JOBS`, `recorded.TASKS`).

Times are measured over the jobs that are `measured` (neither warm-up nor cool-down) and finished, and over their tasks.
Percentiles interpolate linearly. Where there is nothing to measure a figure is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadgen.recorded import MEASURED_STATUS

Figures = dict[str, Any]
Times = NDArray[np.float64]
Flags = NDArray[np.bool_]

PERCENTILES = (5, 50, 95, 99)


def ideal_s(stages: Sequence[Sequence[int]], durations: Sequence[Sequence[float]]) -> float:
    """How long a job takes with no queueing and no overhead, for the service times that occurred: the offline ideal.

    stages: of each stage, the numbers of the stages that it waits for. durations: of each stage, the service times of
    its tasks in seconds. A stage starts when all that it waits for have ended and lasts as long as its longest task; a
    stage without tasks ends at once. A job of one stage therefore takes as long as its longest task.
    """
    longest_s = [max(times, default=0.0) for times in durations]
    return max(_ends(stages, lambda stage, ready_s: ready_s + longest_s[stage]), default=0.0)


def _ends(stages: Sequence[Sequence[int]], end: Callable[[int, float], float]) -> list[float]:
    """When each stage ends, `end(stage, ready)` being its end if all it waits for has ended at `ready` (from 0)."""
    ends: dict[int, float] = {}
    while len(ends) < len(stages):
        able = [stage for stage in range(len(stages)) if stage not in ends and all(s in ends for s in stages[stage])]
        if not able:
            raise ValueError(f"stages wait for each other, or for one that is not there: {stages}")
        for stage in able:
            ends[stage] = end(stage, max((ends[before] for before in stages[stage]), default=0.0))
    return [ends[stage] for stage in range(len(stages))]


# ---- when tasks could have started -----------------------------------------------------------


@dataclass(frozen=True)
class Spans:
    """Of each task of a table, in its order, seconds since the point began; NaN where not known.

    ready_s: when it could have started: its job's arrival at a scheduler, in later stages the last end in the stages
    before. started_s, finished_s: when it ran. gone_s: when it stopped waiting: its start, or if it never started its
    job's end.
    """

    ready_s: Times
    started_s: Times
    finished_s: Times
    gone_s: Times

    @property
    def wait_s(self) -> Times:
        """How long each waited, §7 of the paper: from ready to its start."""
        return self.started_s - self.ready_s


def spans(jobs: pa.Table, tasks: pa.Table) -> Spans:
    """When the tasks of one point could start, started and ended.

    Which stage waits for which is in the column `after` of the jobs. A stage without tasks ends when it could start.
    """
    started_s, finished_s = _times(tasks, "started_s"), _times(tasks, "finished_s")
    place = _places(jobs, tasks)
    ready_s = _times(tasks, "arrived_s").copy()
    _set_ready_of_later_stages(jobs, tasks, place, ready_s, finished_s)
    job_ended_s = np.append(_times(jobs, "ended_s"), math.nan)[place]
    return Spans(ready_s, started_s, finished_s, np.where(np.isnan(started_s), job_ended_s, started_s))


def _set_ready_of_later_stages(
    jobs: pa.Table, tasks: pa.Table, place: NDArray[np.int64], ready_s: Times, finished_s: Times
) -> None:
    several = np.append(_column(jobs, "stages") > 1, False)[place]
    stage = _column(tasks, "stage")
    rows: dict[int, dict[int, list[int]]] = {}
    for row in np.flatnonzero(several).tolist():
        rows.setdefault(int(place[row]), {}).setdefault(int(stage[row]), []).append(row)
    after = jobs["after"]
    for job, of_stage in rows.items():
        arrived_s = min(float(ready_s[row]) for stage_rows in of_stage.values() for row in stage_rows)

        def end(stage: int, ready: float, of_stage: dict[int, list[int]] = of_stage, at: float = arrived_s) -> float:
            own = of_stage.get(stage, [])
            if stages[stage]:
                ready_s[own] = ready
            return float(np.max(finished_s[own])) if own else ready or at

        stages = after[job].as_py()
        _ends(stages, end)
