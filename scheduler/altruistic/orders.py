"""In which order tasks of a job start, of those that are ready."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from scheduler.altruistic.dags import Dag, Vector


class Order(StrEnum):
    """Of a job's groups."""

    TETRIS = "tetris"
    """Groups whose demand is most like what is free first (Grandl et al., Tetris: the product of both)."""
    CRITICAL_PATH = "critical-path"
    """Groups below which the most time is left first."""
    BREADTH_FIRST = "breadth-first"
    """Groups that are nearer to the job's beginning first."""
    TROUBLESOME = "troublesome"
    """Groups first that are, or lead to, one whose tasks are long and large (as DAGPS has it, in short)."""


def priorities(dag: Dag, order: Order) -> Vector:
    """By group: the highest is first, of equal ones the lowest number. (Tetris' depend on what is free.)"""
    if order is Order.CRITICAL_PATH:
        return dag.below_s
    if order is Order.BREADTH_FIRST:
        return -dag.depth.astype(np.float64)
    if order is Order.TROUBLESOME:
        return dag.trouble
    return np.zeros(len(dag.groups))
