"""What a job has to run now, and what it can yield (paper 002, §3.3: procedure IntraJobScheduler).

With what it may use the job would end T_k from now. Tasks that must start now for that are its `must_run`; all else of
what it may use is given to others. F_k, the time at which it is to end, only moves back if what it may use shrinks, or
its work grows: else a job with slack would put off its tasks for ever. Packing the rest of a job anew may take longer
than it did before, as lists of tasks do: then the plan that there was stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from scheduler.altruistic.at_work import AtWork, Running
from scheduler.altruistic.dags import Dag, Vector
from scheduler.altruistic.kernels import kernel
from scheduler.altruistic.orders import Order
from scheduler.altruistic.packing import NO_RUNS, Runs, due_by, justified, packed, withdraw
from scheduler.altruistic.profile import ROUNDING, Indexes, Matrix


class Horizon(StrEnum):
    """How far a job looks."""

    BARRIER = "barrier"
    """Tasks that are ready end by the time at which the packed schedule starts their children."""
    DAG = "dag"
    """They end as late as the whole rest of the job allows."""


class Job:
    """How far a job is, and when it is to end."""

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        self.left: Indexes = dag.tasks.copy()
        """Tasks of each group that have not started."""
        self.at_work = AtWork()
        """Tasks that run, by group and by when they are expected to end."""
        self.target_s = np.inf
        """F_k."""
        self.plan: Runs = NO_RUNS
        """The latest starts of tasks that have not started, the first ones first."""
        self._undone: list[int] = dag.tasks.tolist()
        """Tasks of each group that have not ended."""
        self._all_undone = sum(self._undone)
        self._blocked: list[int] = dag.waits_for.tolist()
        """Parents of each group that are not over."""

    def start(self, group: int, tasks: int, now_s: float) -> float:
        """Tasks start, whether they must or may; when they are expected to end."""
        end_s = now_s + float(self.dag.duration_s[group])
        self.left[group] -= tasks
        self.at_work.add(group, end_s, tasks)
        if len(self.plan.group):
            withdraw(self.plan.group, self.plan.tasks, group, tasks)
        return end_s

    def ended(self, group: int, end_s: float, tasks: int = 1) -> list[int]:
        """Tasks that were expected to end then have ended. Groups that are ready for it."""
        self.at_work.take(group, end_s, tasks)
        self._undone[group] -= tasks
        self._all_undone -= tasks
        if self._undone[group]:
            return []
        freed = []
        for child in self.dag.children[group]:
            self._blocked[child] -= 1
            if not self._blocked[child]:
                freed.append(child)
        return freed

    def failed(self, group: int, end_s: float, tasks: int = 1) -> None:
        """Tasks that were expected to end then have to start again. The job is to be planned anew."""
        self.at_work.take(group, end_s, tasks)
        self.left[group] += tasks

    # ---- for jobs whose truth is elsewhere: who tells of them counts their tasks --------------------

    def runs(self, group: int, end_s: float, tasks: int = 1) -> None:
        """Tasks run that were started elsewhere; when they are expected to end."""
        self.at_work.add(group, end_s, tasks)

    def stopped(self, group: int, end_s: float, tasks: int = 1) -> None:
        """Tasks that were expected to end then run no more; whether they start again says `counted`."""
        self.at_work.take(group, end_s, tasks)

    def counted(self, group: int, left: int, *, is_open: bool) -> bool:
        """So many tasks of the group have not started, and may now if it is open. Whether they are more than before."""
        before = int(self.left[group])
        if left < before:
            withdraw(self.plan.group, self.plan.tasks, group, before - left)
        self.left[group] = left
        undone = left + self.at_work.of(group)
        self._all_undone += undone - self._undone[group]
        self._undone[group] = undone
        self._blocked[group] = 0 if is_open else max(1, self._blocked[group])
        return left > before

    def lasts(self, dag: Dag) -> None:
        """The same groups, whose tasks take other times than was thought."""
        self.dag = dag

    @property
    def is_over(self) -> bool:
        return not self._all_undone

    @property
    def running(self) -> list[Running]:
        return self.at_work.listed()

    def is_ready(self, group: int) -> bool:
        """Whether tasks of the group may start, if some are left."""
        return not self._blocked[group]

    def ready(self) -> list[int]:
        """Groups of which tasks may start."""
        return [group for group, left in enumerate(self.left.tolist()) if left and not self._blocked[group]]

    def used(self) -> Vector:
        """What its running tasks take."""
        total = np.zeros(self.dag.demand.shape[1])
        for group, _, tasks in self.at_work.listed():
            total += tasks * self.dag.demand[group]
        return total

    def remaining_work(self, unit: Vector) -> float:
        """What tasks that have not started take, times how long, of the resource of which that is most; in `unit`s."""
        dag = self.dag
        return _most_work(self.left, dag.duration_s, dag.demand, unit)


@dataclass(frozen=True, slots=True)
class Plan:
    """Of a job, at one time."""

    must_run: dict[int, int]
    """By group: tasks that start now."""
    next_s: float
    """When further tasks must start, if nothing else happens; infinity if none."""


def planned(
    job: Job,
    cap: Vector,
    now_s: float,
    scale: Vector,
    *,
    order: Order = Order.TETRIS,
    horizon: Horizon = Horizon.BARRIER,
    anew: bool = False,
    fits: Callable[[Runs], bool] = lambda runs: True,
) -> Plan:
    """What must start now, if the job may use so much. `anew`: it may use less than before, a task has failed or takes
    longer than was said, so that the job may end later than it was to. `fits`: whether others leave room for a plan; if
    not, the one that there was stands, too. `scale`: see `packing.packed`."""
    running = job.at_work.columns()
    limit_s = np.inf if anew else job.target_s + ROUNDING
    schedule = packed(job.dag, job.left, running, cap, now_s, scale, order, limit_s)
    if anew or schedule.end_s <= job.target_s + ROUNDING:
        movable = job.ready() if horizon is Horizon.BARRIER else None
        plan = justified(job.dag, schedule, running, cap, now_s, movable).runs
        if anew or fits(plan):
            job.plan, job.target_s = plan, schedule.end_s if anew else min(job.target_s, schedule.end_s)
    return due(job, now_s)


def due(job: Job, now_s: float) -> Plan:
    """What must start now, by the plan that there is."""
    by_group = np.zeros(len(job.left), np.int64)
    next_s = due_by(*job.plan, now_s + ROUNDING, by_group)
    must_run = {group: tasks for group, tasks in enumerate(by_group.tolist()) if tasks and job.is_ready(group)}
    return Plan(must_run, next_s)


@kernel
def _most_work(left: Indexes, duration_s: Vector, demand: Matrix, unit: Vector) -> float:
    most = 0.0
    for resource in range(len(unit)):
        total = 0.0
        for group in range(len(left)):
            total += left[group] * duration_s[group] * demand[group, resource]
        most = max(most, total * unit[resource])
    return most
