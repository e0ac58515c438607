"""Numbers from what a load run recorded: pure functions of its tables (`recorded.JOBS`, `recorded.TASKS`).

Times are measured over the jobs that are `measured` (neither warm-up nor cool-down) and finished, and over their tasks.
Percentiles interpolate linearly. A figure for which there are no times is None.
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
from sparrow_py.errors import InvalidOption

Figures = dict[str, Any]
Times = NDArray[np.float64]
Flags = NDArray[np.bool_]

PERCENTILES = (5, 50, 95, 99)
SAME = 0.01
"""A job is slower in one of two runs if it takes so much longer there."""


def ideal_s(stages: Sequence[Sequence[int]], durations: Sequence[Sequence[float]]) -> float:
    """How long a job takes with no queueing and no overhead, for the service times that occurred: the offline ideal.

    stages: for each stage, the numbers of the stages that it waits for. durations: for each stage, the service times of
    its tasks in seconds. A stage starts when all stages that it waits for have ended and lasts as long as its longest
    task; a stage without tasks ends at once. A job of one stage therefore takes as long as its longest task.
    """
    longest_s = [max(times, default=0.0) for times in durations]
    return max(_stage_ends(stages, 0.0, lambda stage, ready_s: ready_s + longest_s[stage]), default=0.0)


def _stage_ends(stages: Sequence[Sequence[int]], begin_s: float, end: Callable[[int, float], float]) -> list[float]:
    """When each stage ends: `end(stage, ready_s)`, where `ready_s` is when the last stage that it waits for ended."""
    ends: dict[int, float] = {}
    while len(ends) < len(stages):
        able = [stage for stage in range(len(stages)) if stage not in ends and all(s in ends for s in stages[stage])]
        if not able:
            raise InvalidOption("after", stages, "numbers of stages of the same job that do not wait for each other")
        for stage in able:
            # Not Python's max, which would lose an end that is not known.
            ready_s = float(np.max([ends[before] for before in stages[stage]])) if stages[stage] else begin_s
            ends[stage] = end(stage, ready_s)
    return [ends[stage] for stage in range(len(stages))]


# ---- when tasks could have started -----------------------------------------------------------


@dataclass(frozen=True)
class Spans:
    """Times of each task of a point, in the table's order, in seconds since the point began; NaN where not known.

    job: the row of its job. ready_s: when it could have started: its job's arrival at a scheduler; in later stages the
    last end of a task in the stages before. started_s, finished_s: when it ran. gone_s: when its wait ended: at its
    start or, if it never started, at its job's end. first: whether its stage waits for no other.
    """

    job: NDArray[np.int64]
    ready_s: Times
    started_s: Times
    finished_s: Times
    gone_s: Times
    first: Flags

    @property
    def wait_s(self) -> Times:
        """How long each waited: from when it could have started until it did."""
        return self.started_s - self.ready_s

    def where(self, flags: Flags) -> Spans:
        """The spans of the flagged tasks only."""
        return Spans(*(getattr(self, name)[flags] for name in self.__dataclass_fields__))


def spans(jobs: pa.Table, tasks: pa.Table) -> Spans:
    """When the tasks of one point could start, started and ended.

    Which stage waits for which is in the column `after` of the jobs. A stage without tasks ends when it could start.
    """
    job = _rows_of_jobs(jobs, tasks)
    started_s, finished_s = _floats(tasks, "started_s"), _floats(tasks, "finished_s")
    ready_s, first = _floats(tasks, "arrived_s").copy(), np.ones(len(job), np.bool_)
    stages = _array(tasks, "stage")
    for row, of_stage in _rows_by_stage(jobs, job, stages).items():
        _set_ready(jobs["after"][row].as_py(), of_stage, ready_s, finished_s, first)
    gone_s = np.where(np.isnan(started_s), _floats(jobs, "ended_s")[job], started_s)
    return Spans(job, ready_s, started_s, finished_s, gone_s, first)


def _rows_of_jobs(jobs: pa.Table, tasks: pa.Table) -> NDArray[np.int64]:
    """For each task, the row of its job."""
    numbers, wanted = _array(jobs, "job"), _array(tasks, "job")
    order = np.argsort(numbers)
    if not len(wanted):
        return np.zeros(0, np.int64)
    if not len(numbers):
        raise InvalidOption("tasks job", int(wanted[0]), "the number of a job of the same point")
    found = order[np.minimum(np.searchsorted(numbers, wanted, sorter=order), len(numbers) - 1)]
    strange = wanted[numbers[found] != wanted]
    if len(strange):
        raise InvalidOption("tasks job", int(strange[0]), "the number of a job of the same point")
    return found


def _rows_by_stage(jobs: pa.Table, job: NDArray[np.int64], stages: NDArray[Any]) -> dict[int, dict[int, list[int]]]:
    """The rows of tasks by job and stage, of the jobs of several stages."""
    several = np.asarray(pc.list_value_length(jobs["after"])) > 1
    found: dict[int, dict[int, list[int]]] = {}
    for row in np.flatnonzero(several[job]).tolist():
        found.setdefault(int(job[row]), {}).setdefault(int(stages[row]), []).append(row)
    return found


def _set_ready(
    stages: list[list[int]], rows: dict[int, list[int]], ready_s: Times, finished_s: Times, first: Flags
) -> None:
    """Set when the tasks of a job's later stages could start."""

    def end(stage: int, ready: float) -> float:
        own = rows.get(stage, [])
        if stages[stage]:
            ready_s[own] = ready
            first[own] = False
        return float(np.max(finished_s[own])) if own else ready

    # A first stage without tasks ends when the job arrives.
    arrived_s = float(np.min(ready_s[[row for own in rows.values() for row in own]]))
    _stage_ends(stages, arrived_s, end)


# ---- over time -------------------------------------------------------------------------------


def running(tasks: Spans, edges_s: Times) -> Times:
    """How many of these tasks ran, on average, between each two of `edges_s`; tasks without start or end count not."""
    return _present(tasks.started_s, tasks.finished_s, edges_s)


def queued(tasks: Spans, edges_s: Times) -> Times:
    """How many of these tasks could have started and did not yet, on average between each two of `edges_s`."""
    return _present(tasks.ready_s, tasks.gone_s, edges_s)


def _present(from_s: Times, until_s: Times, edges_s: Times) -> Times:
    known = np.isfinite(from_s) & np.isfinite(until_s)
    time_s = _time_since(from_s[known], edges_s) - _time_since(until_s[known], edges_s)
    return np.asarray(np.diff(time_s) / np.diff(edges_s))


def _time_since(begins_s: Times, at_s: Times) -> Times:
    """At each time, the time since each earlier begin, summed up."""
    ordered = np.sort(begins_s)
    summed = np.concatenate([[0.0], np.cumsum(ordered)])
    count = np.searchsorted(ordered, at_s, side="right")
    return np.asarray(count * at_s - summed[count])


def window_s(jobs: pa.Table) -> tuple[float, float] | None:
    """The measured time of a point: when its first and last measured job were due; None with fewer than two."""
    due_s = _floats(jobs, "due_s")[_array(jobs, "measured")]
    if len(due_s) == 0 or not np.min(due_s) < np.max(due_s):
        return None
    return float(np.min(due_s)), float(np.max(due_s))


def utilisation(jobs: pa.Table, tasks: Spans, slots: int) -> float | None:
    """The share of `slots` (of the whole cluster) that ran tasks, of any job, in the measured time.

    A slot that waits for the answer to its getTask runs no task. Attempts that were lost do not count.
    """
    window = window_s(jobs)
    return None if window is None else float(running(tasks, np.array(window))[0]) / slots


# ---- figures ---------------------------------------------------------------------------------


def figures(
    jobs: pa.Table,
    tasks: pa.Table,
    *,
    slots: int | None = None,
    counts: Mapping[str, int] | None = None,
    cpu_s: Mapping[str, float] | None = None,
) -> Figures:
    """The numbers of one point; times in ms.

    jobs, tasks: the rows of this point. slots: of the whole cluster, for the utilisation. counts, cpu_s: of the point,
    as `recorded.Point` has them.

    value: median response time over median ideal. p5, p50, p95, p99: response times of jobs; with ideal_ before it,
    their offline ideals; with wait_, how long tasks waited (see `Spans`). over_ideal_p50_ms: median of the differences
    between jobs' response times and their own ideals. jobs_measured: the number of jobs that these times are of.
    jobs_unfinished: the number of measured jobs that did not finish, and so are in no time. tasks_measured: the number
    of tasks of jobs_measured. p95_later_over_earlier: see `later_over_earlier`.
    utilisation: see that function. noops_per_task, cancellations_per_task: getTasks without a task, and reservations
    cancelled. cpu_us_per_task: CPU time of each kind of process. These are of the whole point, including warm-up.
    by_label, by_user: the figures of times for the jobs of each label (query) and of each user. by_stage: for each
    label, and each name of a stage in it, response times of the stage (from when it could start to its last task's end)
    and waits of its tasks.
    """
    of_tasks, counted = spans(jobs, tasks), jobs_counted(jobs)
    found = _times(jobs, of_tasks, counted)
    found["jobs_unfinished"] = int(np.sum(_array(jobs, "measured") & ~counted))
    found["p95_later_over_earlier"] = _rounded(later_over_earlier(jobs, counted), 4)
    found["utilisation"] = None if slots is None else _rounded(utilisation(jobs, of_tasks, slots), 4)
    found |= _per_task(len(of_tasks.job), counts or {}, cpu_s or {})
    for name in ("label", "user"):
        groups = {value: counted & _matches(jobs, name, value) for value in names(jobs, name)}
        found[f"by_{name}"] = {value: _times(jobs, of_tasks, flags) for value, flags in groups.items()}
    found["by_stage"] = _by_stage(jobs, tasks, of_tasks, counted)
    return found


def later_over_earlier(jobs: pa.Table, counted: Flags) -> float | None:
    """The 95th percentile of response times of the later half of the counted jobs over that of the earlier half; None
    with fewer than two. Well above 1, the cluster falls behind: its figures say how long the run was, and no more."""
    due_s, response_s = _floats(jobs, "due_s")[counted], _floats(jobs, "response_s")[counted]
    half = len(due_s) // 2
    if not half:
        return None
    in_order = response_s[np.argsort(due_s, kind="stable")]
    earlier, later = (float(np.percentile(part, 95)) for part in (in_order[:half], in_order[half:]))
    return later / earlier if earlier else None


def job_by_job(reference: pa.Table, jobs: pa.Table) -> Figures | None:
    """How many times as long the same jobs took in another run, of those that were measured and finished in both; None
    if there are none.

    jobs: how many. mean_ms: how long they took here. factor: the mean over jobs; with _p5, _p50 and _p95 after it,
    percentiles. slower: the part of jobs that took more than `SAME` longer here.
    """
    took_s, before_s = (
        dict(zip(_array(table, "job")[flags].tolist(), _floats(table, "response_s")[flags].tolist(), strict=True))
        for table, flags in ((table, jobs_counted(table)) for table in (jobs, reference))
    )
    both = [number for number in took_s if number in before_s]
    if not both:
        return None
    here_s = np.array([took_s[number] for number in both])
    factor = np.array([before_s[number] for number in both]) / here_s
    found: Figures = {"jobs": len(both), "mean_ms": _rounded(1000 * float(here_s.mean()), 3)}
    found |= {"factor": _rounded(float(factor.mean()), 4), "slower": float((factor < 1 / (1 + SAME)).mean())}
    return found | {f"factor_p{q}": _rounded(float(np.percentile(factor, q)), 4) for q in (5, 50, 95)}


def jobs_counted(jobs: pa.Table) -> Flags:
    """Which jobs' times count: those that are measured and finished."""
    return np.asarray(_array(jobs, "measured") & _matches(jobs, "status", MEASURED_STATUS))


def names(table: pa.Table, column: str) -> list[str]:
    """The values of a column of text, in order."""
    return sorted(table[column].unique().to_pylist())


def _times(jobs: pa.Table, tasks: Spans, counted: Flags) -> Figures:
    """The figures of times of these jobs."""
    response_ms, ideal_ms = _floats(jobs, "response_s")[counted] * 1000, _floats(jobs, "ideal_s")[counted] * 1000
    own = counted[tasks.job]
    found: Figures = {"value": None, **percentiles(response_ms), **percentiles(ideal_ms, "ideal_")}
    if found["p50"] is not None and found["ideal_p50"]:
        found["value"] = _rounded(found["p50"] / found["ideal_p50"], 4)
    found["over_ideal_p50_ms"] = percentiles(response_ms - ideal_ms)["p50"]
    found |= percentiles(tasks.wait_s[own] * 1000, "wait_")
    return found | {"jobs_measured": int(np.sum(counted)), "tasks_measured": int(np.sum(own))}


def percentiles(values: Times, prefix: str = "") -> dict[str, float | None]:
    """p5, p50, p95 and p99 of the values that are known, to a thousandth."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {f"{prefix}p{percent}": None for percent in PERCENTILES}
    found = np.percentile(known, PERCENTILES)
    return {f"{prefix}p{percent}": _rounded(float(value), 3) for percent, value in zip(PERCENTILES, found, strict=True)}


def _per_task(tasks: int, counts: Mapping[str, int], cpu_s: Mapping[str, float]) -> Figures:
    def each(total: float | None) -> float | None:
        return None if total is None or not tasks else total / tasks

    return {
        "noops_per_task": _rounded(each(counts.get("noops")), 4),
        "cancellations_per_task": _rounded(each(counts.get("cancelled_reservations")), 4),
        "cpu_us_per_task": {kind: _rounded(each(used_s * 1e6), 1) for kind, used_s in cpu_s.items()},
    }


def _by_stage(jobs: pa.Table, tasks: pa.Table, of_tasks: Spans, counted: Flags) -> dict[str, dict[str, Figures]]:
    """The figures by label, and by stage in the order of the label's first job."""
    own = np.flatnonzero(counted[of_tasks.job])
    stage = _array(tasks, "stage")
    order = own[np.lexsort((stage[own], of_tasks.job[own]))]
    if not len(order):
        return {}
    begins = (np.diff(of_tasks.job[order], prepend=-1) != 0) | (np.diff(stage[order], prepend=-1) != 0)
    firsts = np.flatnonzero(begins)
    ends_s = np.maximum.reduceat(of_tasks.finished_s[order], firsts)
    response_ms = (ends_s - of_tasks.ready_s[order][firsts]) * 1000
    labels = jobs["label"].take(pa.array(of_tasks.job[order][firsts])).to_pylist()
    stage_names = tasks["stage_name"].take(pa.array(order[firsts])).to_pylist()
    kinds: dict[tuple[str, str], list[int]] = {}
    for index, kind in enumerate(zip(labels, stage_names, strict=True)):
        kinds.setdefault(kind, []).append(index)
    waits_ms = np.split(of_tasks.wait_s[order] * 1000, firsts[1:])
    found: dict[str, dict[str, Figures]] = {}
    for (label, name), members in kinds.items():
        of_kind = np.concatenate([waits_ms[index] for index in members])
        counts = {"stages_measured": len(members), "tasks_measured": len(of_kind)}
        found.setdefault(label, {})[name] = percentiles(response_ms[members]) | percentiles(of_kind, "wait_") | counts
    return dict(sorted(found.items()))


# ---- columns as arrays -----------------------------------------------------------------------


def _array(table: pa.Table, column: str) -> NDArray[Any]:
    return np.asarray(table[column].to_numpy())


def _floats(table: pa.Table, column: str) -> Times:
    """The column's values; NaN where the column has NULL."""
    return np.asarray(table[column].fill_null(math.nan).to_numpy(), dtype=np.float64)


def _matches(table: pa.Table, column: str, value: str) -> Flags:
    return np.asarray(pc.equal(table[column], value).to_numpy(), dtype=np.bool_)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)
