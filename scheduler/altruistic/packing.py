"""Schedules of one job within what it may use: packed from now on, and justified: each task as late as may be without
the job ending later (paper 002, §3.3).

Packing is list scheduling: whenever tasks end, as many of the tasks that are ready start as fit, in a given order.
Justification goes through them from the last to end to the first, and starts each as late as its children and the
resources allow. Of tasks that were handled before, those that are at work at a time were at work then in the packed
schedule, too: so each task has room where it was packed, and none starts earlier than there. (The paper reverses the
graph and packs again, which may take longer than the packed schedule; its line 20 has a sign wrong.)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scheduler.altruistic.at_work import RunningColumns
from scheduler.altruistic.chain import latest_in, room_in, seek, take_in
from scheduler.altruistic.dags import Dag, Vector
from scheduler.altruistic.kernels import kernel
from scheduler.altruistic.orders import Order, priorities
from scheduler.altruistic.profile import Flags, Indexes, Matrix, fitting, lacks_room


class Run(NamedTuple):
    """Tasks of a group that start at the same time."""

    group: int
    start_s: float
    tasks: int


class Runs(NamedTuple):
    """What starts when, as columns; the number of tasks of a run gets less as they start by chance before it."""

    group: Indexes
    start_s: Vector
    tasks: Indexes

    def first(self, count: int) -> Runs:
        """So many of them."""
        return Runs(self.group[:count], self.start_s[:count], self.tasks[:count])

    def listed(self) -> list[Run]:
        """Those that have tasks."""
        rows = zip(self.group.tolist(), self.start_s.tolist(), self.tasks.tolist(), strict=True)
        return [Run(*row) for row in rows if row[2]]


NO_RUNS = Runs(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Schedule:
    """What starts when; `end_s` is when the last task ends, those at work included."""

    runs: Runs
    end_s: float


GIVEN_UP = Schedule(NO_RUNS, np.inf)


def packed(
    dag: Dag, left: Indexes, running: RunningColumns, cap: Vector, now_s: float, scale: Vector,
    order: Order = Order.TETRIS, limit_s: float = np.inf,
) -> Schedule:  # fmt: skip
    """The rest of the job, from now on. `left`: tasks of each group that have not started. `cap` must have room for the
    largest task; while running tasks take more than that nothing starts that has no room. `scale`: what a unit of each
    resource counts in a task's likeness to what is free. `limit_s`: once it is clear that the schedule ends later than
    that, it is given up: it has no runs then, and never ends."""
    waiting = left.copy()
    most = int(waiting.sum())
    found = Runs(np.empty(most, np.int64), np.empty(most), np.empty(most, np.int64))
    count, end_s = _pack(
        dag.demand, dag.duration_s, dag.below_s, dag.waits_for, dag.first_child, dag.child, waiting, *running, cap,
        now_s, limit_s, scale, priorities(dag, order), order is Order.TETRIS, *found,
    )  # fmt: skip
    if count < 0:
        return GIVEN_UP
    if waiting.any():
        raise ValueError(f"cap: {cap} is not valid; allowed: room for the largest task, {dag.largest}")
    return Schedule(found.first(count), float(end_s))


def justified(
    dag: Dag,
    schedule: Schedule,
    running: RunningColumns,
    cap: Vector,
    now_s: float,
    movable: Collection[int] | None = None,
) -> Schedule:
    """The schedule with each task as late as may be, so that it ends when it did. Tasks of groups that are not
    `movable` stay where they were packed."""
    runs = schedule.runs
    # The last to end first; of equal ones the last to start first, then as they were packed.
    keys: tuple[Vector | Flags, ...] = (-runs.start_s, -(runs.start_s + dag.duration_s[runs.group]))
    if movable is None:
        moved = np.ones(len(runs.group), np.bool_)
        pieces = int(runs.tasks.sum())
    else:
        may_move = np.zeros(len(dag.groups), np.bool_)
        may_move[list(movable)] = True
        moved = may_move[runs.group]
        pieces = int(runs.tasks[moved].sum()) + int((~moved).sum())
        keys = (*keys, moved)
    steps = 2 * (len(running.tasks) + pieces) + 3
    found = Runs(np.empty(pieces, np.int64), np.empty(pieces), np.empty(pieces, np.int64))
    count = _justify(
        dag.demand, dag.duration_s, dag.first_child, dag.child, *runs, moved, np.lexsort(keys), *running, cap, now_s,
        schedule.end_s, np.empty(steps), np.empty(steps, np.int64), np.empty(steps, np.int64),
        np.empty((steps, dag.demand.shape[1])), *found,
    )  # fmt: skip
    runs = found.first(count)
    by_start = np.lexsort((runs.group, runs.start_s))
    return Schedule(Runs(runs.group[by_start], runs.start_s[by_start], runs.tasks[by_start]), schedule.end_s)


# ---- in machine code -------------------------------------------------------------------------------------


@kernel
def _push(
    heap_s: Vector, heap_group: Indexes, heap_tasks: Indexes, size: int, at_s: float, group: int, tasks: int
) -> int:
    """Have an end in the heap; its size then. Of equal times the lower group is first."""
    place = size
    while place > 0:
        above = (place - 1) // 2
        if heap_s[above] < at_s or (heap_s[above] == at_s and heap_group[above] <= group):
            break
        heap_s[place], heap_group[place], heap_tasks[place] = heap_s[above], heap_group[above], heap_tasks[above]
        place = above
    heap_s[place], heap_group[place], heap_tasks[place] = at_s, group, tasks
    return size + 1


@kernel
def _drop_first(heap_s: Vector, heap_group: Indexes, heap_tasks: Indexes, size: int) -> int:
    """Take the first end out of the heap; its size then."""
    size -= 1
    at_s, group, tasks = heap_s[size], heap_group[size], heap_tasks[size]
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and (
            heap_s[below + 1] < heap_s[below]
            or (heap_s[below + 1] == heap_s[below] and heap_group[below + 1] < heap_group[below])
        ):
            below += 1
        if at_s < heap_s[below] or (at_s == heap_s[below] and group <= heap_group[below]):
            break
        heap_s[place], heap_group[place], heap_tasks[place] = heap_s[below], heap_group[below], heap_tasks[below]
        place = below
    heap_s[place], heap_group[place], heap_tasks[place] = at_s, group, tasks
    return size


@kernel
def _is_beyond(least_s: float, now_s: float, limit_s: float) -> bool:
    """Whether what ends then at the earliest ends after the limit, whatever rounding says."""
    return least_s > limit_s + 1e-6 + 1e-8 * (least_s - now_s)


@kernel
def _time_for(work: Vector, cap: Vector) -> float:
    """How long so much work takes at least."""
    most = 0.0
    for resource in range(len(work)):
        if cap[resource] > 0:
            most = max(most, work[resource] / cap[resource])
    return most


@kernel
def _pack(
    demand: Matrix, duration_s: Vector, below_s: Vector, waits_for: Indexes, first_child: Indexes, child: Indexes,
    waiting: Indexes, running_group: Indexes, running_end_s: Vector, running_tasks: Indexes, cap: Vector, now_s: float,
    limit_s: float, scale: Vector, priority: Vector, is_tetris: bool, run_group: Indexes, run_start_s: Vector,
    run_tasks: Indexes,
) -> tuple[int, float]:  # fmt: skip
    """How many runs there are, and the end; -1 if that is beyond the limit. `waiting` has what has no place."""
    groups, resources = demand.shape
    free, undone = cap.copy(), waiting.copy()
    most = len(running_group) + len(run_group)
    heap_s, heap_group, heap_tasks = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    size = 0
    for number in range(len(running_group)):
        group, tasks = running_group[number], running_tasks[number]
        if tasks:
            undone[group] += tasks
            for resource in range(resources):
                free[resource] -= tasks * demand[group, resource]
            size = _push(heap_s, heap_group, heap_tasks, size, max(running_end_s[number], now_s), group, tasks)
    work = np.zeros(resources)
    for group in range(groups):
        for resource in range(resources):
            work[resource] += waiting[group] * duration_s[group] * demand[group, resource]
    blocked = waits_for.copy()
    for group in range(groups):
        if not undone[group]:
            for place in range(first_child[group], first_child[group + 1]):
                blocked[child[place]] -= 1
    ready, many = np.empty(groups, np.int64), 0
    for group in range(groups):
        if waiting[group] and not blocked[group]:
            ready[many] = group
            many += 1
    score, is_tried = np.empty(groups), np.zeros(groups, np.bool_)
    runs, at_s = 0, now_s
    while True:
        if _is_beyond(at_s + _time_for(work, cap), now_s, limit_s):
            return -1, np.inf
        for number in range(many):
            group = ready[number]
            is_tried[group] = lacks_room(free, demand[group])
            score[group] = priority[group]
            if is_tetris and not is_tried[group]:
                score[group] = 0.0
                for resource in range(resources):
                    score[group] += demand[group, resource] * free[resource] * scale[resource]
        kept = many
        while True:
            best = -1
            for number in range(many):
                group = ready[number]
                if not is_tried[group] and (
                    best < 0 or score[group] > score[best] or (score[group] == score[best] and group < best)
                ):
                    best = group
            if best < 0:
                break
            is_tried[best] = True
            tasks = min(waiting[best], fitting(free, demand[best]))
            if tasks:
                if _is_beyond(at_s + below_s[best], now_s, limit_s):
                    return -1, np.inf
                run_group[runs], run_start_s[runs], run_tasks[runs] = best, at_s, tasks
                runs += 1
                waiting[best] -= tasks
                kept -= not waiting[best]
                for resource in range(resources):
                    free[resource] -= tasks * demand[best, resource]
                    work[resource] -= tasks * duration_s[best] * demand[best, resource]
                size = _push(heap_s, heap_group, heap_tasks, size, at_s + duration_s[best], best, tasks)
        if kept < many:
            kept = 0
            for number in range(many):
                if waiting[ready[number]]:
                    ready[kept] = ready[number]
                    kept += 1
            many = kept
        if not size:
            return runs, at_s
        at_s = heap_s[0]
        while size and heap_s[0] <= at_s:
            group, tasks = heap_group[0], heap_tasks[0]
            size = _drop_first(heap_s, heap_group, heap_tasks, size)
            for resource in range(resources):
                free[resource] += tasks * demand[group, resource]
            undone[group] -= tasks
            if not undone[group]:
                for place in range(first_child[group], first_child[group + 1]):
                    below = child[place]
                    blocked[below] -= 1
                    if not blocked[below] and waiting[below]:
                        ready[many] = below
                        many += 1


@kernel
def _justify(
    demand: Matrix, duration_s: Vector, first_child: Indexes, child: Indexes, run_group: Indexes, run_start_s: Vector,
    run_tasks: Indexes, moved: Flags, sequence: Indexes, running_group: Indexes, running_end_s: Vector,
    running_tasks: Indexes, cap: Vector, now_s: float, end_s: float, at_s: Vector, after: Indexes, before: Indexes,
    used: Matrix, found_group: Indexes, found_start_s: Vector, found_tasks: Indexes,
) -> int:  # fmt: skip
    """How many runs are found. `sequence`: the runs that stay where they are, then the others, the last first."""
    steps, near = 1, 0
    at_s[0], after[0], before[0], used[0] = -np.inf, -1, -1, 0.0
    peak = np.empty(len(cap))
    for number in range(len(running_group)):
        if running_tasks[number] and running_end_s[number] > now_s:
            group = running_group[number]
            steps, near = take_in(
                at_s, after, before, used, steps, near, now_s, running_end_s[number], demand, group,
                running_tasks[number],
            )  # fmt: skip
    first_s = np.full(len(duration_s), end_s)
    # By group: where no search has been, since there is no room later, and the step there; -1 before the first search.
    until_s, until_step = np.empty(len(duration_s)), np.full(len(duration_s), -1)
    count = 0
    for run in sequence:
        group, left = run_group[run], run_tasks[run]
        if moved[run] and until_step[group] < 0:
            until_s[group] = end_s
            for place in range(first_child[group], first_child[group + 1]):
                until_s[group] = min(until_s[group], first_s[child[place]])
            until_step[group] = seek(at_s, after, before, near, until_s[group])
        while left:
            start_s, many = run_start_s[run], left
            if moved[run]:
                near = seek(at_s, after, before, until_step[group], until_s[group])
                late_s, until_s[group], until_step[group] = latest_in(
                    at_s, before, used, near, cap, demand, group, duration_s[group], run_start_s[run], until_s[group]
                )
                near = until_step[group]
                # Where they were packed there is room for all that are left, whatever rounding says.
                if late_s > run_start_s[run]:
                    fit = room_in(
                        at_s, after, before, used, near, cap, demand, group, late_s, late_s + duration_s[group], peak
                    )
                    if fit:
                        start_s, many = late_s, min(left, fit)
            steps, near = take_in(
                at_s, after, before, used, steps, near, start_s, start_s + duration_s[group], demand, group, many
            )
            found_group[count], found_start_s[count], found_tasks[count] = group, start_s, many
            count += 1
            first_s[group] = min(first_s[group], start_s)
            left -= many
    return count


@kernel
def withdraw(runs_group: Indexes, runs_tasks: Indexes, group: int, tasks: int) -> None:
    """Tasks of the group have started: those that were to start first."""
    for run in range(len(runs_group)):
        if runs_group[run] == group and runs_tasks[run]:
            taken = min(tasks, runs_tasks[run])
            runs_tasks[run] -= taken
            tasks -= taken
            if not tasks:
                return


@kernel
def due_by(runs_group: Indexes, runs_start_s: Vector, runs_tasks: Indexes, time_s: float, due: Indexes) -> float:
    """By group, in `due`: tasks that are to start by this time. When the next ones are; infinity if none."""
    for run in range(len(runs_group)):
        if runs_tasks[run]:
            if runs_start_s[run] > time_s:
                return float(runs_start_s[run])
            due[runs_group[run]] += runs_tasks[run]
    return np.inf
