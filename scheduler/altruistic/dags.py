"""What a job consists of: groups of tasks that are alike, and which of them wait for which (paper 002, §3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scheduler.altruistic.durations import DURATION_S_MAX

GROUPS_MAX = 1_000
"""Of a job."""
TASKS_MAX = 100_000
"""Of a job."""

Vector = NDArray[np.float64]
"""A number for each resource."""


class DagError(ValueError):
    """What a job says of itself cannot be; the message names the field, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks of a stage."""

    tasks: int
    demand: tuple[float, ...]
    """Of each task, by resource."""
    duration_s: float
    """Of each task, if it has what it demands."""
    parents: tuple[int, ...] = ()
    """Groups that must be over before one of these tasks starts."""


class Dag:
    """The groups of a job, by number. `DagError` if they cannot be."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)
        _check(self.groups)
        self.order = _in_order(self.groups)
        """Their numbers, parents first."""
        self.children = _children(self.groups)
        self.demand: Vector = np.array([group.demand for group in self.groups], np.float64)
        """Of a task of each group; a row a group."""
        self.duration_s: Vector = np.array([group.duration_s for group in self.groups], np.float64)
        self.tasks = np.array([group.tasks for group in self.groups], np.int64)
        self.waits_for = np.array([len(group.parents) for group in self.groups], np.int64)
        """By group: how many parents it has."""
        self.first_child = np.cumsum([0, *map(len, self.children)])
        """By group: where its children begin in `child`; one number more, the end."""
        self.child = np.array([child for children in self.children for child in children], np.int64)

    @cached_property
    def work(self) -> Vector:
        """By resource: what all tasks take together, times how long they take it."""
        total: Vector = (self.tasks * self.duration_s) @ self.demand
        return total

    @cached_property
    def largest(self) -> Vector:
        """By resource: the most that one task demands."""
        most: Vector = self.demand.max(axis=0)
        return most

    @cached_property
    def below_s(self) -> Vector:
        """By group: how long the longest path takes from the start of one of its tasks to the job's end."""
        below = self.duration_s.copy()
        for group in reversed(self.order):
            if self.children[group]:
                below[group] += max(below[child] for child in self.children[group])
        return below

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """By group: how many groups are above it on the longest way."""
        depth = np.zeros(len(self.groups), np.int64)
        for group in self.order:
            for parent in self.groups[group].parents:
                depth[group] = max(depth[group], depth[parent] + 1)
        return depth

    @cached_property
    def trouble(self) -> Vector:
        """By group: how long and large its tasks are, or those of the worst of all groups that wait for it."""
        most = self.demand.max(axis=0)
        size = (self.demand / np.where(most > 0, most, 1.0)).max(axis=1)
        trouble: Vector = self.duration_s / self.duration_s.max() * size
        for group in reversed(self.order):
            for child in self.children[group]:
                trouble[group] = max(trouble[group], trouble[child])
        return trouble

    @cached_property
    def plan_units(self) -> float:
        """How long it takes to plan the job: some 15 to 30 ns each. Each task is weighed against all groups that may be
        ready with its own, and those again."""
        width = int(np.bincount(self.depth).max())
        return float(self.tasks.sum()) * width * (1 + width / 100)

    @property
    def critical_path_s(self) -> float:
        """How long the job takes if there is room for all."""
        return float(self.below_s.max())

    @property
    def barriers(self) -> int:
        """Groups with several parents (paper 002, §2.2)."""
        return sum(len(group.parents) > 1 for group in self.groups)


def _check(groups: Sequence[Group]) -> None:
    if not 0 < len(groups) <= GROUPS_MAX:
        raise DagError(f"stages: {len(groups):,} is not valid; allowed: 1 to {GROUPS_MAX:,}")
    total = sum(group.tasks for group in groups)
    if total > TASKS_MAX:
        raise DagError(f"tasks: {total:,} is not valid; allowed: up to {TASKS_MAX:,} in all stages of a job")
    for number, group in enumerate(groups):
        if group.tasks < 1:
            raise DagError(f"tasks of stage {number}: {group.tasks} is not valid; allowed: from 1")
        if not 0 < group.duration_s <= DURATION_S_MAX:
            raise DagError(
                f"duration_s of stage {number}: {group.duration_s} is not valid; allowed: above 0, up to "
                f"{DURATION_S_MAX:g}"
            )
        if len(group.demand) != len(groups[0].demand):
            raise DagError(
                f"demand of stage {number}: {len(group.demand)} resources; stage 0 has {len(groups[0].demand)}"
            )
        if not all(math.isfinite(amount) and amount >= 0 for amount in group.demand) or not any(group.demand):
            raise DagError(
                f"demand of stage {number}: {group.demand} is not valid; allowed: numbers from 0, one of them above 0"
            )
        unknown = [parent for parent in group.parents if not 0 <= parent < len(groups)]
        if unknown or len(set(group.parents)) < len(group.parents):
            raise DagError(
                f"parents of stage {number}: {group.parents} is not valid; allowed: each stage from 0 to "
                f"{len(groups) - 1} once"
            )


def _children(groups: Sequence[Group]) -> list[list[int]]:
    """By group: those that wait for it."""
    children: list[list[int]] = [[] for _ in groups]
    for number, group in enumerate(groups):
        for parent in group.parents:
            children[parent].append(number)
    return children


def _in_order(groups: Sequence[Group]) -> tuple[int, ...]:
    """The groups' numbers, parents first, else as they are numbered."""
    waits = [len(group.parents) for group in groups]
    children = _children(groups)
    order = [number for number, left in enumerate(waits) if not left]
    for number in order:
        for child in children[number]:
            waits[child] -= 1
            if not waits[child]:
                order.append(child)
    if len(order) < len(groups):
        left_over = sorted(set(range(len(groups))) - set(order))
        raise DagError(f"parents: stages {left_over} wait for each other in a circle; allowed: no circles")
    return tuple(order)
