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


def capacity_shares(queues: Mapping[str, Queue], wanted: Mapping[str, float]) -> dict[str, float]:
    """What each queue that wants something has: what is guaranteed, then what others do not want, in proportion to
    guarantees, up to its `most`. `ValueError` if more than everything is guaranteed."""
    total = sum(queue.guaranteed for queue in queues.values())
    if total > 1 + ROUNDING:
        raise ValueError(f"guaranteed: {total:g} in all queues is not valid; allowed: up to 1")
    bound = {name: min(queue.most, wanted.get(name, 0.0)) for name, queue in queues.items()}
    had = {name: min(queue.guaranteed, bound[name]) for name, queue in queues.items()}
    growing = [name for name in queues if had[name] < bound[name] - ROUNDING]
    left = 1.0 - sum(had.values())
    while growing and left > ROUNDING:
        rate = sum(queues[name].guaranteed for name in growing)
        step = min(left / rate, *((bound[name] - had[name]) / queues[name].guaranteed for name in growing))
        for name in growing:
            had[name] += step * queues[name].guaranteed
        left -= step * rate
        growing = [name for name in growing if had[name] < bound[name] - ROUNDING]
    return {name: had[name] for name in queues if bound[name] > 0}
