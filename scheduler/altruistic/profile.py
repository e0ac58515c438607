"""How much is used when, as steps: the arrays behind packed schedules, and what may be lent beside them.

A profile is `at_s` (when each step begins, in order; the first is minus infinity), `row` (where the step's amounts are)
and `used` (a row a step, a column a resource), of which the first `steps` count. Steps are put in between others, so
rows are in no order. All arrays have room for two steps more for each piece that is taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.kernels import kernel

ROUNDING = 1e-9

Flags = NDArray[np.bool_]
Indexes = NDArray[np.int64]
Matrix = NDArray[np.float64]


@kernel
def fitting(free: Vector, demand: Vector) -> int:
    """How many tasks of this demand have room."""
    most = np.inf
    for resource in range(len(demand)):
        if demand[resource] > 0:
            most = min(most, free[resource] / demand[resource])
    return max(0, int(min(most, 1e9) + ROUNDING))


@kernel
def lacks_room(free: Vector, demand: Vector) -> bool:
    """Whether there is clearly no room for one task of this demand: cheaper to say than how many have room."""
    for resource in range(len(demand)):
        if free[resource] < demand[resource] * (1 - 3 * ROUNDING) and demand[resource] > 0:
            return True
    return False


@kernel
def step_from(at_s: Vector, steps: int, time_s: float) -> int:
    """The first step that begins at this time or later; `steps` if none does."""
    low, high = 0, steps
    while low < high:
        middle = (low + high) // 2
        if at_s[middle] < time_s:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def cut(at_s: Vector, row: Indexes, used: Matrix, steps: int, time_s: float) -> int:
    """Have a step begin at this time; how many there are then."""
    place = step_from(at_s, steps, time_s)
    if place < steps and at_s[place] == time_s:
        return steps
    for step in range(steps, place, -1):
        at_s[step] = at_s[step - 1]
        row[step] = row[step - 1]
    at_s[place] = time_s
    row[place] = steps
    for resource in range(used.shape[1]):
        used[steps, resource] = used[row[place - 1], resource]
    return steps + 1


@kernel
def take(
    at_s: Vector, row: Indexes, used: Matrix, steps: int, start_s: float, end_s: float, demand: Vector, tasks: int
) -> int:
    """So many tasks are at work between these times, or are no more, if negative; how many steps there are then."""
    steps = cut(at_s, row, used, steps, start_s)
    steps = cut(at_s, row, used, steps, end_s)
    for step in range(step_from(at_s, steps, start_s), step_from(at_s, steps, end_s)):
        for resource in range(len(demand)):
            used[row[step], resource] += tasks * demand[resource]
    return steps


@kernel
def room(
    at_s: Vector, row: Indexes, used: Matrix, steps: int, cap: Vector, demand: Vector, start_s: float, end_s: float
) -> int:
    """How many such tasks have room between these times."""
    first = max(0, step_from(at_s, steps, start_s + ROUNDING) - 1)
    if first + 1 < steps and at_s[first + 1] <= start_s + ROUNDING:
        first += 1
    last = max(step_from(at_s, steps, end_s - ROUNDING), first + 1)
    most = 1_000_000_000
    for step in range(first, last):
        for resource in range(len(demand)):
            if demand[resource] > 0:
                left = (cap[resource] + ROUNDING - used[row[step], resource]) / demand[resource]
                most = min(most, max(0, int(left + ROUNDING)))
    return most


class Profile:
    """What is used of `cap`, and when. It grows as it is taken from."""

    def __init__(self, cap: Vector, pieces: int = 16) -> None:
        self.cap = cap
        self.steps = 1
        self.at_s: Vector = np.full(2 * pieces + 1, -np.inf)
        self.row: Indexes = np.zeros(2 * pieces + 1, np.int64)
        self.used: Matrix = np.zeros((2 * pieces + 1, len(cap)))

    def take(self, start_s: float, end_s: float, demand: Vector, tasks: int) -> None:
        """So many tasks are at work between these times; no more, if negative."""
        if self.steps + 2 > len(self.at_s):
            self.at_s = np.concatenate([self.at_s, self.at_s])
            self.row = np.concatenate([self.row, self.row])
            self.used = np.concatenate([self.used, self.used])
        self.steps = take(self.at_s, self.row, self.used, self.steps, start_s, end_s, demand, tasks)

    def room(self, demand: Vector, start_s: float, end_s: float) -> int:
        """How many such tasks have room between these times."""
        return room(self.at_s, self.row, self.used, self.steps, self.cap, demand, start_s, end_s)
