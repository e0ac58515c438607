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
    SJF = "sjf"
    """Jobs whose work is the least of all."""
    SJF_BY_PATH = "sjf-by-path"
    """Jobs whose longest path takes the least time (the paper's SJF)."""
    PACK = "pack"
    """Tasks whose demand is most like what is free."""
    TETRIS = "tetris"
    """The same, and jobs with little work left are worth as much on average."""
    DRF = "drf"
    """Jobs that have the least part of their share, a task at a time."""


ONE_JOB_AFTER_THE_OTHER = frozenset({Rank.SRTF, Rank.SJF, Rank.SJF_BY_PATH})


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
    fairness: float = 0.0
    """Of Tetris (f): only this part of the jobs fewer, those that have most of their share, are left out."""


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

    def run(self, altruistic: Sequence[bool], anew: Sequence[bool] = ()) -> list[Start]:
        """What starts now; jobs have started it. `altruistic`: whether a job yields now; one that does not must run
        whatever is ready, as far as it may. If none does, nothing is yielded, and `may` alone says who starts (P = 0,
        §3.4). `anew`: whether a job's target may move back (`intra.planned`)."""
        if any(altruistic):
            self._look_ahead()
            must = [
                self._must_run(number, anew=bool(anew) and anew[number]) if yields else self._within_cap(number)
                for number, yields in enumerate(altruistic)
            ]
            self._start_all(must, self._settings.must, is_lent=False)
        may = [{group: job.left[group] for group in job.ready()} for job in self.jobs]
        self._leave_out(may)
        self._start_all(may, self._settings.may, is_lent=True)
        return self.starts

    def _look_ahead(self) -> None:
        for job in self.jobs:
            for group, end_s, tasks in job.running:
                self._ahead.take(self.now_s, max(end_s, self.now_s), tasks * job.dag.demand[group])
            self._foresee(job, job.plan, 1)

    def _must_run(self, number: int, *, anew: bool) -> dict[int, int]:
        job = self.jobs[number]
        plan = planned(
            job, self._caps[number], self.now_s, order=self._settings.order, horizon=self._settings.horizon, anew=anew,
            fits=lambda runs: self._adopts(job, runs),
        )  # fmt: skip
        self.next_s = min(self.next_s, plan.next_s)
        return plan.must_run

    def _within_cap(self, number: int) -> dict[int, int]:
        """Tasks that are ready, as many as fit into what the job may use."""
        job = self.jobs[number]
        free = self._caps[number] - job.used()
        found: dict[int, int] = {}
        for group in self._settings.order(job.dag, job.ready(), free):
            found[group] = min(job.left[group], fitting(free, job.dag.demand[group]))
            free = free - found[group] * job.dag.demand[group]
        return found

    def _leave_out(self, may: list[dict[int, int]]) -> None:
        """Of jobs with tasks that may run, keep the part that has least of its share (Tetris' fairness)."""
        if not self._settings.fairness:
            return
        waiting = sorted((number for number, groups in enumerate(may) if groups), key=lambda one: (self._has(one), one))
        for number in waiting[max(1, round((1 - self._settings.fairness) * len(waiting))) :]:
            may[number] = {}

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
        if rank in ONE_JOB_AFTER_THE_OTHER:
            size = [_size(job, rank) for job in self.jobs]
            for number in sorted(range(len(self.jobs)), key=lambda number: (size[number], number)):
                for group in self._settings.order(self.jobs[number].dag, list(wanted[number]), self.free):
                    yield number, group, wanted[number][group]
            return
        while choices := [(number, group) for number, groups in enumerate(wanted) for group in groups if groups[group]]:
            if rank is not Rank.DRF:
                bonus = self._bonus({number for number, _ in choices}) if rank is Rank.TETRIS else {}
                number, group = max(choices, key=lambda one: self._score(one[0], one[1], bonus))
                yield number, group, wanted[number][group]
            else:
                number = min((number for number, _ in choices), key=lambda number: (self._has(number), number))
                dag = self.jobs[number].dag
                group = self._settings.order(dag, [group for other, group in choices if other == number], self.free)[0]
                yield number, group, 1

    def _score(self, number: int, group: int, bonus: dict[int, float]) -> tuple[float, int, int]:
        alike = float(self.jobs[number].dag.demand[group] @ self.free)
        return alike + bonus.get(number, 0.0), -number, -group

    def _bonus(self, numbers: set[int]) -> dict[int, float]:
        """By job, for having little work left: as much on average as tasks are like what is free."""
        left = {number: float(self.jobs[number].remaining_work().max()) for number in numbers}
        alike = [float((self.jobs[number].dag.demand @ self.free).mean()) for number in numbers]
        mean = sum(left.values()) / len(left)
        weight = float(np.mean(alike)) / mean if mean else 0.0
        return {number: -weight * work for number, work in left.items()}

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


def _size(job: Job, rank: Rank) -> float:
    """By which jobs come one after the other."""
    if rank is Rank.SRTF:
        return float(job.remaining_work().max())
    return float(job.dag.work.max()) if rank is Rank.SJF else job.dag.critical_path_s
