"""What each job's share of the cluster is (paper 002, §3.3: procedure InterJobScheduler).

Dominant resource fairness: jobs get resources in proportion to what they demand, and as much of it that the largest
part of any resource that a job has is the same for all, by weight. If all demands are positive this has a closed form;
else, or if jobs cannot use more than so much, it is found by filling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
"""A row a job, a column a resource."""
Vector = NDArray[np.float64]

ROUNDING = 1e-12
LEAST_GUARANTEED = 1e-6
"""Of the cluster, to users without a queue if others have everything guaranteed: they have little else."""


def demand_vectors(work: Matrix) -> Matrix:
    """What jobs demand in proportion, from their work: the dominant resource of each is 1."""
    most = work.max(axis=1, keepdims=True)
    if not (most > 0).all():
        raise ValueError("work: a job without any work is not valid; allowed: rows with a number above 0")
    found: Matrix = work / most
    return found


def closed_form(demands: Matrix, weights: Vector) -> Matrix:
    """Shares by resource, of jobs that can use whatever they get: x times weight times demand, with x so that the first
    resource is full (Parkes, Procaccia and Shah)."""
    weighted = demands * weights[:, None]
    shares: Matrix = weighted / weighted.sum(axis=0).max()
    return shares


def filled(demands: Matrix, weights: Vector, most: Vector | None = None, capacity: Vector | None = None) -> Matrix:
    """Shares by resource: all jobs grow alike, by weight, until a resource that they need is full, or they have `most`
    of their dominant resource; the others grow on. `capacity`: all of everything, if it is not stated."""
    jobs, resources = demands.shape
    left = np.ones(resources) if capacity is None else capacity.astype(np.float64)
    level = np.zeros(jobs)
    """Of the dominant resource."""
    bound = np.full(jobs, np.inf) if most is None else most
    growing = (demands.max(axis=1) > 0) & (bound > 0)
    while growing.any():
        rate = np.where(growing, weights, 0.0)
        use = rate @ demands
        with np.errstate(divide="ignore", invalid="ignore"):
            until_full = np.where(use > 0, left / use, np.inf).min()
            until_bound = np.where(growing, (bound - level) / weights, np.inf).min()
        step = max(0.0, min(until_full, until_bound))
        level += step * rate
        left = np.maximum(left - step * use, 0.0)
        full = left <= ROUNDING
        growing &= (level < bound - ROUNDING) & ~(demands[:, full] > 0).any(axis=1)
    shares: Matrix = demands * level[:, None]
    return shares


def weights_of(jobs: Sequence[tuple[str, float]], users: Mapping[str, float]) -> Vector:
    """The weight of each job, (user, weight among the user's jobs): a user's weight is divided among its jobs."""
    total: dict[str, float] = {}
    for user, weight in jobs:
        total[user] = total.get(user, 0.0) + weight
    return np.array([users.get(user, 1.0) * weight / total[user] for user, weight in jobs])


class Cap(StrEnum):
    """What a job may use of each resource, by its share."""

    DOMINANT = "dominant"
    """As much of every resource as of its dominant one."""
    EQUAL = "equal"
    """Its part by weight of everything."""
    VECTOR = "vector"
    """Its share, resource by resource."""


def caps(shares: Matrix, weights: Vector, rule: Cap, largest: Matrix) -> Matrix:
    """By job and resource: the most that its running tasks may use; never less than its largest task."""
    if rule is Cap.DOMINANT:
        found = np.repeat(shares.max(axis=1, keepdims=True), shares.shape[1], axis=1)
    elif rule is Cap.EQUAL:
        found = np.repeat((weights / weights.sum())[:, None], shares.shape[1], axis=1)
    else:
        found = shares
    most: Matrix = np.maximum(found, largest)
    return most


# ---- queues of a capacity scheduler --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """Of a capacity scheduler: what it has in any case, and the most that it may have, parts of the cluster."""

    guaranteed: float
    most: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.guaranteed <= 1:
            raise ValueError(f"guaranteed: {self.guaranteed} is not valid; allowed: above 0, up to 1")
        if not self.guaranteed <= self.most <= 1:
            raise ValueError(f"most: {self.most} is not valid; allowed: from guaranteed ({self.guaranteed:g}) to 1")


class Queues:
    """By number. Users without a queue of their name have one together, with what is guaranteed to no other."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        left = 1.0 - sum(queue.guaranteed for queue in queues.values())
        if left < -ROUNDING:
            raise ValueError(f"guaranteed: {1 - left:g} in all queues is not valid; allowed: up to 1")
        self._number = {name: number for number, name in enumerate(queues)}
        self._queues = [*queues.values(), Queue(max(left, LEAST_GUARANTEED))]

    def __len__(self) -> int:
        return len(self._queues)

    def number(self, user: str) -> int:
        """Of the user's queue."""
        return self._number.get(user, len(self._number))

    def parts(self) -> tuple[Vector, Vector]:
        """What is guaranteed to each, and the most it may have, parts of the cluster."""
        return np.array([each.guaranteed for each in self._queues]), np.array([each.most for each in self._queues])
