"""What a job has to run now, and what it can yield (paper 002, §3.3: procedure IntraJobScheduler).

With what it may use the job would end T_k from now. Tasks that must start now for that are its `must_run`; all else of
what it may use is given to others. F_k, the time at which it is to end, only moves back if what it may use shrinks, or
its work grows: else a job with slack would put off its tasks for ever. Packing the rest of a job anew may take longer
than it did before, as lists of tasks do: then the plan that there was stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from scheduler.altruistic.dags import Dag, Vector
from scheduler.altruistic.packing import ROUNDING, Order, Run, Running, justified, packed, tetris


class Horizon(StrEnum):
    """How far a job looks."""

    BARRIER = "barrier"
    """Tasks that are ready end by the time at which the packed schedule starts their children."""
    DAG = "dag"
    """They end as late as the whole rest of the job allows."""


@dataclass(slots=True)
class Job:
    """How far a job is, and when it is to end."""

    dag: Dag
    left: list[int]
    """Tasks of each group that have not started."""
    running: list[Running]
    target_s: float = np.inf
    """F_k."""
    plan: list[Run] = field(default_factory=list)
    """The latest starts of tasks that have not started, the first ones first."""

    @classmethod
    def new(cls, dag: Dag) -> Job:
        return cls(dag, dag.tasks.tolist(), [])

    def start(self, group: int, tasks: int, now_s: float) -> None:
        """Tasks start, whether they must or may."""
        self.left[group] -= tasks
        self.running.append(Running(group, now_s + float(self.dag.duration_s[group]), tasks))
        plan: list[Run] = []
        for run in self.plan:
            taken = min(tasks, run.tasks) if run.group == group else 0
            tasks -= taken
            if taken < run.tasks:
                plan.append(run._replace(tasks=run.tasks - taken))
        self.plan = plan

    @property
    def is_over(self) -> bool:
        return not any(self.left) and not self.running

    def used(self) -> Vector:
        """What its running tasks take."""
        total = np.zeros(self.dag.demand.shape[1])
        for group, _, tasks in self.running:
            total += tasks * self.dag.demand[group]
        return total

    def ready(self) -> list[int]:
        """Groups of which tasks may start."""
        busy = {group for group, tasks in enumerate(self.left) if tasks} | {group for group, _, _ in self.running}
        return [
            group for group in self.dag.order if self.left[group] and busy.isdisjoint(self.dag.groups[group].parents)
        ]

    def remaining_work(self) -> Vector:
        """By resource: what tasks that have not started take, times how long."""
        total: Vector = (np.array(self.left) * self.dag.duration_s) @ self.dag.demand
        return total


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
    *,
    order: Order = tetris,
    horizon: Horizon = Horizon.BARRIER,
    anew: bool = False,
    fits: Callable[[Sequence[Run]], bool] = lambda runs: True,
) -> Plan:
    """What must start now, if the job may use so much. `anew`: it may use less than before, a task has failed or takes
    longer than was said, so that the job may end later than it was to. `fits`: whether others leave room for a plan; if
    not, the one that there was stands, too."""
    schedule = packed(job.dag, job.left, job.running, cap, now_s, order)
    ready = set(job.ready())
    if anew or schedule.end_s <= job.target_s + ROUNDING:
        movable = ready if horizon is Horizon.BARRIER else None
        plan = justified(job.dag, schedule, job.running, cap, now_s, movable).runs
        if anew or fits(plan):
            job.plan, job.target_s = plan, schedule.end_s if anew else min(job.target_s, schedule.end_s)
    must_run: dict[int, int] = {}
    next_s = np.inf
    for group, start_s, tasks in job.plan:
        if start_s > now_s + ROUNDING:
            next_s = start_s
            break
        if group in ready:
            must_run[group] = must_run.get(group, 0) + tasks
    return Plan(must_run, next_s)
