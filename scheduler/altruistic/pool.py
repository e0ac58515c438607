"""Altruistic scheduling of one pool of resources: who starts what now (paper 002, pseudocode 1).

Each job has its share, and plans within that (`intra`). Tasks that must run start first. What is left over then, since
jobs yielded it, goes to tasks that may run. A task that is lent room may still be at work when another job's tasks must
start there: with `Lend.PROFILE` nothing is lent into what jobs have planned, and no job ends later than its first
target for that (theorem 3.1); the paper's lends whatever is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.intra import Horizon, Job, planned
from scheduler.altruistic.packing import Order, Profile, Run, fitting, tetris
from scheduler.altruistic.shares import Matrix


class Lend(StrEnum):
    GREEDY = "greedy"
    """Whatever is free now."""
    PROFILE = "profile"
    """What is free until the task's end, beside all that jobs have planned."""


class Rank(StrEnum):
    """Whose tasks come first."""

    SRTF = "srtf"
    """Jobs with the least work left."""
    PACK = "pack"
    """Tasks whose demand is most like what is free."""
    DRF = "drf"
    """Jobs that have the least part of their share, a task at a time."""


class Start(NamedTuple):
    """Tasks that start now."""

    job: int
    group: int
    tasks: int
    is_lent: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """What the paper leaves open, or lets operators choose. The defaults are those of its implementation (§4)."""

    order: Order = tetris
    """Of tasks within a job, for its plan, and when it is lent room."""
    horizon: Horizon = Horizon.BARRIER
    must: Rank = Rank.PACK
    """Of tasks that must run."""
    may: Rank = Rank.SRTF
    """Of tasks that may."""
    lend: Lend = Lend.GREEDY


class Round:
    """One look at all jobs. `caps`: a row a job, what its tasks may use; capacity is 1 of everything."""

    def __init__(self, jobs: Sequence[Job], caps: Matrix, now_s: float, settings: Settings) -> None:
        self.jobs, self.now_s, self._settings = jobs, now_s, settings
        self.free: Vector = np.ones(caps.shape[1]) - sum((job.used() for job in jobs), np.zeros(caps.shape[1]))
        self._caps = caps
        self._ahead = Profile(np.ones(caps.shape[1]))
        """All that runs, and all that is planned."""
        self.starts: list[Start] = []
        self.next_s = np.inf
        """When further tasks must start, if nothing else happens."""

    def run(self, anew: Sequence[bool] = ()) -> list[Start]:
        """What starts now; jobs have started it. `anew`: whether a job's target may move back (`intra.planned`)."""
        for job in self.jobs:
            for group, end_s, tasks in job.running:
                self._ahead.take(self.now_s, max(end_s, self.now_s), tasks * job.dag.demand[group])
            self._foresee(job, job.plan, 1)
        must: list[dict[int, int]] = []
        for number, job in enumerate(self.jobs):
            plan = planned(
                job, self._caps[number], self.now_s, order=self._settings.order, horizon=self._settings.horizon,
                anew=bool(anew) and anew[number], fits=lambda runs, job=job: self._adopts(job, runs),  # type: ignore[misc]
            )  # fmt: skip
            must.append(plan.must_run)
            self.next_s = min(self.next_s, plan.next_s)
        self._start_all(must, self._settings.must, is_lent=False)
        may = [{group: job.left[group] for group in job.ready()} for job in self.jobs]
        self._start_all(may, self._settings.may, is_lent=True)
        return self.starts

    def _foresee(self, job: Job, runs: Sequence[Run], sign: int) -> None:
        """Have what the job has planned in the profile, or no longer (-1)."""
        for group, start_s, tasks in runs:
            begin_s = max(start_s, self.now_s)
            self._ahead.take(begin_s, begin_s + job.dag.duration_s[group], sign * tasks * job.dag.demand[group])

    def _adopts(self, job: Job, runs: Sequence[Run]) -> bool:
        """Whether there is room for a new plan in place of the job's; the profile has that then."""
        self._foresee(job, job.plan, -1)
        taken: list[Run] = []
        for run in runs:
            end_s = run.start_s + float(job.dag.duration_s[run.group])
            if self._ahead.room(job.dag.demand[run.group], run.start_s, end_s) < run.tasks:
                self._foresee(job, taken, -1)
                self._foresee(job, job.plan, 1)
                return False
            self._foresee(job, [run], 1)
            taken.append(run)
        return True

    # ---- who starts --------------------------------------------------------------------------------

    def _start_all(self, wanted: Sequence[dict[int, int]], rank: Rank, *, is_lent: bool) -> None:
        """Start tasks of each job and group, as many as are wanted, as far as there is room, in this order."""
        for number, group, most in self._ranked(wanted, rank, is_lent=is_lent):
            tasks = min(most, self._room(number, group, is_lent=is_lent))
            if tasks:
                self._start(number, group, tasks, is_lent=is_lent)
                wanted[number][group] -= tasks
            else:
                wanted[number][group] = 0

    def _ranked(self, wanted: Sequence[dict[int, int]], rank: Rank, *, is_lent: bool) -> Iterator[tuple[int, int, int]]:
        """Job, group, and how many of its tasks at most. After each, `wanted` says what is left; 0 of a group for which
        there is no room."""
        if rank is Rank.SRTF:
            left = [float(job.remaining_work().max()) for job in self.jobs]
            for number in sorted(range(len(self.jobs)), key=lambda number: (left[number], number)):
                for group in self._settings.order(self.jobs[number].dag, list(wanted[number]), self.free):
                    yield number, group, wanted[number][group]
            return
        while choices := [(number, group) for number, groups in enumerate(wanted) for group in groups if groups[group]]:
            if rank is Rank.PACK:
                number, group = max(choices, key=lambda one: self._alike(*one))
                yield number, group, wanted[number][group]
            else:
                number = min((number for number, _ in choices), key=lambda number: (self._has(number), number))
                dag = self.jobs[number].dag
                group = self._settings.order(dag, [group for other, group in choices if other == number], self.free)[0]
                yield number, group, 1

    def _alike(self, number: int, group: int) -> tuple[float, int, int]:
        return float(self.jobs[number].dag.demand[group] @ self.free), -number, -group

    def _has(self, number: int) -> float:
        """What part of its share a job has, of the resource of which that is most."""
        return float((self.jobs[number].used() / self._caps[number]).max())

    def _room(self, number: int, group: int, *, is_lent: bool) -> int:
        """How many tasks of the group have room."""
        dag = self.jobs[number].dag
        room = fitting(self.free, dag.demand[group])
        if is_lent and self._settings.lend is Lend.PROFILE:
            room = min(room, self._ahead.room(dag.demand[group], self.now_s, self.now_s + float(dag.duration_s[group])))
        return room

    def _start(self, number: int, group: int, tasks: int, *, is_lent: bool) -> None:
        job = self.jobs[number]
        self._foresee(job, job.plan, -1)
        job.start(group, tasks, self.now_s)
        self._foresee(job, job.plan, 1)
        self._ahead.take(self.now_s, self.now_s + float(job.dag.duration_s[group]), tasks * job.dag.demand[group])
        self.free = self.free - tasks * job.dag.demand[group]
        self.starts.append(Start(number, group, tasks, is_lent))
