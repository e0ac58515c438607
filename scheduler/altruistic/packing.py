"""Schedules of one job within what it may use: packed from now on, and justified: each task as late as may be without
the job ending later (paper 002, §3.3).

Packing is list scheduling: whenever tasks end, as many of the tasks that are ready start as fit, in a given order.
Justification goes through them from the last to end to the first, and starts each as late as its children and the
resources allow. Of tasks that were handled before, those that are at work at a time were at work then in the packed
schedule, too: so each task has room where it was packed, and none starts earlier than there. (The paper reverses the
graph and packs again, which may take longer than the packed schedule; its line 20 has a sign wrong.)
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scheduler.altruistic.dags import Dag, Vector

ROUNDING = 1e-9


class Run(NamedTuple):
    """Tasks of a group that start at the same time."""

    group: int
    start_s: float
    tasks: int


class Running(NamedTuple):
    """Tasks of a group that are at work, and end at the same time."""

    group: int
    end_s: float
    tasks: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """What starts when; `end_s` is when the last task ends, those at work included."""

    runs: list[Run]
    end_s: float


Order = Callable[[Dag, Sequence[int], Vector], Sequence[int]]
"""From groups of which tasks are ready, and what is free, to the order in which they are to start."""


def breadth_first(dag: Dag, ready: Sequence[int], free: Vector) -> Sequence[int]:
    """Groups that are nearer to the job's beginning first."""
    return sorted(ready, key=lambda group: (dag.depth[group], group))


def critical_path(dag: Dag, ready: Sequence[int], free: Vector) -> Sequence[int]:
    """Groups below which the most time is left first."""
    return sorted(ready, key=lambda group: (-dag.below_s[group], group))


def tetris(dag: Dag, ready: Sequence[int], free: Vector) -> Sequence[int]:
    """Groups whose demand is most like what is free first (Grandl et al., Tetris: the product of both)."""
    return sorted(ready, key=lambda group: (-float(dag.demand[group] @ free), group))


ORDERS: dict[str, Order] = {"tetris": tetris, "critical-path": critical_path, "breadth-first": breadth_first}


def fitting(free: Vector, demand: Vector) -> int:
    """How many tasks of this demand have room."""
    wanted = demand > 0
    return max(0, int((free[wanted] / demand[wanted]).min() + ROUNDING))


def packed(
    dag: Dag, left: Sequence[int], running: Sequence[Running], cap: Vector, now_s: float, order: Order = tetris
) -> Schedule:
    """The rest of the job, from now on. `left`: tasks of each group that have not started. `cap` must have room for the
    largest task; while running tasks take more than that nothing starts that has no room."""
    waiting, undone = list(left), list(left)
    free = cap.astype(np.float64)
    ends: list[tuple[float, int, int]] = []
    for group, end_s, tasks in running:
        undone[group] += tasks
        free -= tasks * dag.demand[group]
        heapq.heappush(ends, (max(end_s, now_s), group, tasks))
    blocked = [sum(undone[parent] > 0 for parent in group.parents) for group in dag.groups]
    ready = [number for number in dag.order if waiting[number] and not blocked[number]]
    runs: list[Run] = []
    at_s = now_s
    while True:
        for group in order(dag, ready, free) if ready else ():
            tasks = min(waiting[group], fitting(free, dag.demand[group]))
            if tasks:
                runs.append(Run(group, at_s, tasks))
                waiting[group] -= tasks
                free -= tasks * dag.demand[group]
                heapq.heappush(ends, (at_s + dag.duration_s[group], group, tasks))
        ready = [group for group in ready if waiting[group]]
        if not ends:
            break
        at_s = ends[0][0]
        while ends and ends[0][0] <= at_s:
            _, group, tasks = heapq.heappop(ends)
            free += tasks * dag.demand[group]
            undone[group] -= tasks
            if not undone[group]:
                for child in dag.children[group]:
                    blocked[child] -= 1
                    if not blocked[child] and waiting[child]:
                        ready.append(child)
    if any(waiting):
        raise ValueError(f"cap: {cap} is not valid; allowed: room for the largest task, {dag.largest}")
    return Schedule(runs, at_s)


class Profile:
    """How much is used when, as steps."""

    def __init__(self, cap: Vector) -> None:
        self._cap = cap + ROUNDING
        self._times = [-np.inf]
        """When each step begins."""
        self._used = [np.zeros(len(cap))]

    def _cut(self, at_s: float) -> int:
        """The step that begins then."""
        place = bisect_left(self._times, at_s)
        if place == len(self._times) or self._times[place] != at_s:
            self._times.insert(place, at_s)
            self._used.insert(place, self._used[place - 1].copy())
        return place

    def take(self, start_s: float, end_s: float, amount: Vector) -> None:
        """So much is used between these times; given back, if it is negative."""
        first, last = self._cut(start_s), self._cut(end_s)
        for step in range(first, last):
            self._used[step] += amount

    def latest(self, demand: Vector, duration_s: float, from_s: float, until_s: float) -> float:
        """The latest start of a task that ends by `until_s`: no earlier than `from_s`, where there is room."""
        end_s = until_s
        step = bisect_left(self._times, until_s) - 1
        while step >= 0 and end_s - duration_s > from_s + ROUNDING:
            if (self._used[step] + demand <= self._cap).all():
                if end_s - duration_s >= self._times[step] - ROUNDING:
                    return end_s - duration_s
            else:
                end_s = self._times[step]
            step -= 1
        return from_s

    def room(self, demand: Vector, start_s: float, end_s: float) -> int:
        """How many such tasks have room between these times."""
        first, last = bisect_right(self._times, start_s + ROUNDING) - 1, bisect_left(self._times, end_s - ROUNDING)
        return min(fitting(self._cap - self._used[step], demand) for step in range(first, max(last, first + 1)))


def justified(
    dag: Dag,
    schedule: Schedule,
    running: Sequence[Running],
    cap: Vector,
    now_s: float,
    movable: Container[int] | None = None,
) -> Schedule:
    """The schedule with each task as late as may be, so that it ends when it did. Tasks of groups that are not
    `movable` stay where they were packed."""
    profile = Profile(cap)
    for group, end_s, tasks in running:
        if end_s > now_s:
            profile.take(now_s, end_s, tasks * dag.demand[group])
    first_s = [schedule.end_s] * len(dag.groups)
    """When the first of a group's tasks starts."""
    runs: list[Run] = []
    moved: list[Run] = []
    for run in schedule.runs:
        if movable is None or run.group in movable:
            moved.append(run)
            continue
        profile.take(run.start_s, run.start_s + dag.duration_s[run.group], run.tasks * dag.demand[run.group])
        first_s[run.group] = min(first_s[run.group], run.start_s)
        runs.append(run)
    moved.sort(key=lambda run: (run.start_s + dag.duration_s[run.group], run.start_s), reverse=True)
    for group, packed_s, tasks in moved:
        demand, duration_s, left = dag.demand[group], float(dag.duration_s[group]), tasks
        until_s = min((first_s[child] for child in dag.children[group]), default=schedule.end_s)
        while left:
            start_s = profile.latest(demand, duration_s, packed_s, until_s)
            # Where they were packed there is room for all that are left, whatever rounding says.
            many = 0 if start_s <= packed_s else min(left, profile.room(demand, start_s, start_s + duration_s))
            if not many:
                start_s, many = packed_s, left
            profile.take(start_s, start_s + duration_s, many * demand)
            runs.append(Run(group, start_s, many))
            first_s[group] = min(first_s[group], start_s)
            left -= many
    runs.sort(key=lambda run: (run.start_s, run.group))
    return Schedule(runs, schedule.end_s)
