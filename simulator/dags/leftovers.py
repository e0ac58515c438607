"""What jobs could yield of what their shares hold, as time passes (paper 002, §2.2).

At a time, the rest of a job is packed into what it may use, tasks that run among it for as long as they still take.
What of it is at work then is the job's allocation. Its leftover is the part of that which the job could do without for
as long as the tasks themselves take, and end at the same time: nothing is preempted, so what is lent is lent for about
so long. What could wait at all, if only for a moment, is more.
"""

from __future__ import annotations

import numpy as np

from scheduler.altruistic.allocator import Allocator, JobHere
from scheduler.altruistic.at_work import NOTHING_RUNS
from scheduler.altruistic.dags import Dag, Group, Vector
from scheduler.altruistic.durations import DURATION_S_MIN
from scheduler.altruistic.intra import Job
from scheduler.altruistic.packing import Runs, justified, packed
from scheduler.altruistic.profile import ROUNDING, Indexes, Matrix
from simulator.dags.watching import Watcher


class Leftovers(Watcher):
    """Each `every_s`, of all jobs that are here. A row a look: `allocated`, `leftover` and what `could_wait` by
    resource, parts of the cluster; `shapes` stages, barriers and lengths of the longest paths, of all jobs together."""

    def __init__(self, every_s: float) -> None:
        self.allocated: list[Vector] = []
        self.leftover: list[Vector] = []
        self.could_wait: list[Vector] = []
        self.shapes: list[tuple[int, int, int]] = []
        self._every_s = every_s
        self._next_s = 0.0

    def pumped(self, allocator: Allocator, now_s: float) -> None:
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        jobs = list(allocator.jobs.values())
        if not jobs:
            return
        found = np.array([_of_job(allocator, here, now_s) for here in jobs]).sum(axis=0) * allocator.machines.unit
        self.allocated.append(found[0])
        self.leftover.append(found[1])
        self.could_wait.append(found[2])
        dags = [here.job.dag for here in jobs]
        self.shapes.append(
            (
                sum(len(dag.groups) for dag in dags),
                sum(dag.barriers for dag in dags),
                sum(int(dag.depth.max()) + 1 for dag in dags),
            )
        )

    def parts(self) -> Matrix:
        """A row a look: leftover over allocation, by resource; nothing of what nobody needs."""
        return _parts(self.leftover, self.allocated)

    def waiting_parts(self) -> Matrix:
        """The same of what could wait at all."""
        return _parts(self.could_wait, self.allocated)

    def correlations(self) -> tuple[float, float, float]:
        """Over time, of how much is left over, on average over the resources, with stages, barriers and path lengths of
        the jobs that are here; 0 where one of both never changes."""
        amount = np.array(self.leftover).mean(axis=1)
        shapes = np.array(self.shapes, np.float64)
        stages, barriers, paths = (_correlation(amount, column) for column in shapes.T)
        return stages, barriers, paths


def _of_job(allocator: Allocator, here: JobHere, now_s: float) -> tuple[Vector, Vector, Vector]:
    """Its allocation, its leftover, and what could wait at all."""
    dag, cap = _rest(here.job, now_s), allocator.rows.cap[here.row]
    schedule = packed(dag, dag.tasks, NOTHING_RUNS, cap, now_s, allocator.machines.scale, allocator.settings.order)
    late = justified(dag, schedule, NOTHING_RUNS, cap, now_s).runs
    now = _starting(dag, schedule.runs, np.full(len(dag.groups), now_s))
    soon = _starting(dag, late, now_s + dag.duration_s)
    at_once = _starting(dag, late, np.full(len(dag.groups), now_s))
    return now @ dag.demand, np.maximum(now - soon, 0) @ dag.demand, (now - at_once) @ dag.demand


def _rest(job: Job, now_s: float) -> Dag:
    """What is not over of the job: tasks that wait, and tasks that run as groups of their own."""
    numbers: dict[int, list[int]] = {}
    """By group of the job: its groups in the rest."""
    groups: list[Group] = []
    for group, end_s, tasks in job.running:
        numbers.setdefault(group, []).append(len(groups))
        demand = job.dag.groups[group].demand
        groups.append(Group(tasks, demand, max(end_s - now_s, DURATION_S_MIN)))
    for group in job.dag.order:
        one, left = job.dag.groups[group], int(job.left[group])
        if left:
            parents = tuple(number for parent in one.parents for number in numbers.get(parent, ()))
            numbers.setdefault(group, []).append(len(groups))
            groups.append(Group(left, one.demand, one.duration_s, parents))
    return Dag(groups)


def _starting(dag: Dag, runs: Runs, until_s: Vector) -> Indexes:
    """By group: tasks that start until then."""
    starts = runs.start_s <= until_s[runs.group] + ROUNDING
    return np.bincount(runs.group[starts], runs.tasks[starts], len(dag.groups)).astype(np.int64)


def _parts(some: list[Vector], of: list[Vector]) -> Matrix:
    whole = np.array(of)
    return np.array(some) / np.where(whole > 0, whole, 1.0)


def _correlation(one: Vector, other: Vector) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) > 0 and np.ptp(other) > 0 else 0.0
