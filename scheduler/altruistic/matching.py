"""Which machine takes which tasks: each machine in turn takes, again and again, the best of the tasks that fit there.

Groups of which tasks wait are rows of arrays (`ready.Ready`). No machine is ever overbooked, whatever the resource.
"""

from __future__ import annotations

import numpy as np

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.kernels import kernel
from scheduler.altruistic.profile import ROUNDING, Flags, Indexes, Matrix, fitting, lacks_room, room

LOCALITY = 0.1
"""Part of its score that a row has beside it on machines that its tasks prefer (paper 002, §4: as in Tetris)."""


@kernel
def has_room_for_some(free: Vector, least: Vector) -> bool:
    """Whether the machine has the least of each resource that any row demands."""
    has_room = True
    for resource in range(len(least)):
        has_room &= free[resource] * (1 + 1e-9) + 1e-12 >= least[resource]
    return has_room


@kernel
def least_demand(demand: Matrix, rows: Indexes, wanted: Indexes) -> Vector:
    """By resource: the least that a task of any of these rows demands."""
    least = np.full(demand.shape[1], np.inf)
    for row in rows:
        if wanted[row]:
            for resource in range(len(least)):
                least[resource] = min(least[resource], demand[row, resource])
    return least


@kernel
def those_that_fit(free: Matrix, machines: Indexes, rows: Indexes, demand: Matrix) -> Indexes:
    """The rows of which one of these machines has room for a task, in their order."""
    found, count = np.empty(len(rows), np.int64), 0
    for row in rows:
        for machine in machines:
            if not lacks_room(free[machine], demand[row]) and fitting(free[machine], demand[row]):
                found[count] = row
                count += 1
                break
    return found[:count]


@kernel
def match_in_order(
    free: Matrix, machines: Indexes, held_for: Indexes, rows: Indexes, tiers: Indexes, demand: Matrix, wanted: Indexes,
    bonus: Vector, scale: Vector, is_alike: bool, may_use: Indexes, allowed: Flags,
    wants: Indexes, wanted_at: Flags, at_s: Vector, step_row: Indexes, used: Matrix, steps: int, cap: Vector,
    now_s: float, duration_s: Vector, found_row: Indexes, found_machine: Indexes, found_tasks: Indexes,
) -> int:  # fmt: skip
    """Fill machines with tasks of rows, tier by tier; how many pairs of a row and a machine are found.

    tiers: where each tier of rows begins, and the end. Within one the row with the highest score is first: its bonus,
    and how alike its demand is to what is free, if that counts. held_for: the row for which a machine is kept, or -1.
    may_use: the row of `allowed` that says which machines it may use, or -1 for any. wants: that of `wanted_at` which
    says on which it is local, likewise. steps: of the profile of what is
    planned, beside which a task must have room until its end; 0 for none."""
    found = 0
    least = least_demand(demand, rows, wanted)
    resources = demand.shape[1]
    for machine in machines:
        if not has_room_for_some(free[machine], least):
            continue
        for tier in range(len(tiers) - 1):
            while True:
                best, best_score, best_tasks = -1, 0.0, 0
                for place in range(tiers[tier], tiers[tier + 1]):
                    row = rows[place]
                    if not wanted[row] or (held_for[machine] >= 0 and held_for[machine] != row):
                        continue
                    if may_use[row] >= 0 and not allowed[may_use[row], machine]:
                        continue
                    if lacks_room(free[machine], demand[row]):
                        continue
                    tasks = fitting(free[machine], demand[row])
                    if not tasks:
                        continue
                    score = bonus[row]
                    if is_alike:
                        for resource in range(resources):
                            score += demand[row, resource] * free[machine, resource] * scale[resource]
                    if wants[row] >= 0 and wanted_at[wants[row], machine]:
                        score += LOCALITY * abs(score)
                    if best >= 0 and score <= best_score:
                        continue
                    if steps:
                        until_s = now_s + duration_s[row]
                        tasks = min(tasks, room(at_s, step_row, used, steps, cap, demand[row], now_s, until_s))
                        if not tasks:
                            continue
                    best, best_score, best_tasks = row, score, min(tasks, wanted[row])
                if best < 0:
                    break
                wanted[best] -= best_tasks
                for resource in range(resources):
                    free[machine, resource] -= best_tasks * demand[best, resource]
                found_row[found], found_machine[found], found_tasks[found] = best, machine, best_tasks
                found += 1
                if found == len(found_row):
                    return found
    return found


@kernel
def match_fairly(
    free: Matrix, machines: Indexes, held_for: Indexes, rows: Indexes, demand: Matrix, wanted: Indexes, bonus: Vector,
    scale: Vector, is_alike: bool, may_use: Indexes, allowed: Flags, wants: Indexes, wanted_at: Flags,
    owner: Indexes, has: Matrix, entitled: Matrix,
    most: Matrix, at_s: Vector, step_row: Indexes, used: Matrix, steps: int, cap: Vector, now_s: float,
    duration_s: Vector, found_row: Indexes, found_machine: Indexes, found_tasks: Indexes,
) -> int:  # fmt: skip
    """As `match_in_order`, a task at a time: of the owner that has the least part of what it is entitled to, and not
    yet the most that it may have. `has`, `entitled`, `most`: a row an owner (a job, or a queue); what is found is added
    to `has`. `most` has no columns if there is no most. The score orders rows of one owner."""
    found = 0
    least = least_demand(demand, rows, wanted)
    resources = demand.shape[1]
    part = np.zeros(len(has))
    for row in rows:
        part[owner[row]] = _part(has[owner[row]], entitled[owner[row]])
    for machine in machines:
        if not has_room_for_some(free[machine], least):
            continue
        while True:
            best, best_score = -1, 0.0
            for row in rows:
                if not wanted[row] or (held_for[machine] >= 0 and held_for[machine] != row):
                    continue
                if best >= 0 and part[owner[row]] > part[owner[best]] + ROUNDING:
                    continue
                if may_use[row] >= 0 and not allowed[may_use[row], machine]:
                    continue
                if lacks_room(free[machine], demand[row]) or not fitting(free[machine], demand[row]):
                    continue
                if not _may_have(has, most, owner[row], demand[row]):
                    continue
                score = bonus[row]
                if is_alike:
                    for resource in range(resources):
                        score += demand[row, resource] * free[machine, resource] * scale[resource]
                if wants[row] >= 0 and wanted_at[wants[row], machine]:
                    score += LOCALITY * abs(score)
                is_equal = best >= 0 and part[owner[row]] >= part[owner[best]] - ROUNDING
                if is_equal and (owner[row] != owner[best] or score <= best_score):  # Of equal ones the first.
                    continue
                if steps and not room(at_s, step_row, used, steps, cap, demand[row], now_s, now_s + duration_s[row]):
                    continue
                best, best_score = row, score
            if best < 0:
                break
            wanted[best] -= 1
            for resource in range(resources):
                free[machine, resource] -= demand[best, resource]
                has[owner[best], resource] += demand[best, resource]
            part[owner[best]] = _part(has[owner[best]], entitled[owner[best]])
            found_row[found], found_machine[found], found_tasks[found] = best, machine, 1
            found += 1
            if found == len(found_row):
                return found
    return found


@kernel
def _may_have(has: Matrix, most: Matrix, owner: int, demand: Vector) -> bool:
    """Whether the owner has not the most that it may have after one such task."""
    may = True
    for resource in range(most.shape[1]):
        may &= has[owner, resource] + demand[resource] <= most[owner, resource] * (1 + ROUNDING)
    return may


@kernel
def _part(has: Vector, entitled: Vector) -> float:
    """How much an owner has of what it is entitled to, of the resource of which that is most."""
    most = 0.0
    for resource in range(len(has)):
        if entitled[resource] > 0:
            most = max(most, has[resource] / entitled[resource])
    return most


@kernel
def bounds_of(rows: Indexes, job: Indexes) -> Indexes:
    """Where rows of another job begin, and the end."""
    bounds, count = np.empty(len(rows) + 1, np.int64), 0
    for place in range(len(rows)):
        if not place or job[rows[place]] != job[rows[place - 1]]:
            bounds[count] = place
            count += 1
    bounds[count] = len(rows)
    return bounds[: count + 1]


@kernel
def small_job_bonus(
    rows: Indexes, job: Indexes, left: Vector, mean_demand: Matrix, free: Matrix, scale: Vector, bonus: Vector
) -> None:
    """Tetris': jobs with little work left are worth as much, on average, as what is alike. `rows`: those of a job in a
    row. `bonus`: what comes of it, by row."""
    jobs, work, alike = 0, 0.0, 0.0
    mean = np.zeros(len(scale))
    for machine in range(len(free)):
        for resource in range(len(scale)):
            mean[resource] += free[machine, resource]
    for resource in range(len(scale)):
        mean[resource] *= scale[resource] / len(free)
    for place in range(len(rows)):
        own = job[rows[place]]
        if not place or own != job[rows[place - 1]]:
            jobs += 1
            work += left[own]
            for resource in range(len(scale)):
                alike += mean_demand[own, resource] * mean[resource]
    if work > 0:
        factor = -(alike / jobs) / (work / jobs)
        for row in rows:
            bonus[row] = factor * left[job[row]]


@kernel
def fill_caps(
    rows: Indexes, job: Indexes, is_selfish: Flags, demand: Matrix, left: Indexes, priority: Vector, cap: Matrix,
    has: Matrix, scale: Vector, is_tetris: bool, must: Indexes,
) -> None:  # fmt: skip
    """Have jobs that are selfish start as many tasks as fit into what they may use beside what they have: in `must`, by
    row. `rows`: those of a job in a row, by group. Of a job the rows come first that are most like what it may use
    still, or whose priority is the highest."""
    score, is_open = np.empty(len(rows)), np.zeros(len(rows), np.bool_)
    free = np.empty(len(scale))
    first = 0
    while first < len(rows):
        owner, end = job[rows[first]], first
        while end < len(rows) and job[rows[end]] == owner:
            end += 1
        if is_selfish[owner]:
            for resource in range(len(scale)):
                free[resource] = cap[owner, resource] - has[owner, resource]
            for place in range(first, end):
                row = rows[place]
                must[row], is_open[place], score[place] = 0, True, priority[row]
                if is_tetris:
                    score[place] = 0.0
                for resource in range(len(scale)):
                    is_open[place] &= demand[row, resource] <= free[resource] + ROUNDING
                    if is_tetris:
                        score[place] += demand[row, resource] * free[resource] * scale[resource]
            while True:
                best = -1
                for place in range(first, end):
                    if is_open[place] and (best < 0 or score[place] > score[best]):
                        best = place
                if best < 0:
                    break
                is_open[best], row = False, rows[best]
                must[row] = min(left[row], fitting(free, demand[row]))
                for resource in range(len(scale)):
                    free[resource] -= must[row] * demand[row, resource]
        first = end
