"""Tasks of a job that run: columns that kernels read as they are, however many tasks begin and end meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.profile import Indexes

ROWS = 16
"""To begin with."""


class Running(NamedTuple):
    """Tasks of a group that are at work, and end at the same time."""

    group: int
    end_s: float
    tasks: int


class RunningColumns(NamedTuple):
    """Such tasks, a row each; rows without tasks do not count."""

    group: Indexes
    end_s: Vector
    tasks: Indexes


def columns_of(running: list[Running]) -> RunningColumns:
    """The same as columns."""
    groups, ends_s, tasks = zip(*running, strict=True) if running else ((), (), ())
    return RunningColumns(np.array(groups, np.int64), np.array(ends_s, np.float64), np.array(tasks, np.int64))


NOTHING_RUNS = columns_of([])


class AtWork:
    """A row for each group and expected end, in the order in which they began. What has ended leaves a row without
    tasks, until there are more of these than of others."""

    def __init__(self) -> None:
        self._columns = RunningColumns(np.zeros(ROWS, np.int64), np.zeros(ROWS), np.zeros(ROWS, np.int64))
        self._row: dict[tuple[int, float], int] = {}
        self._size = 0

    def add(self, group: int, end_s: float, tasks: int) -> None:
        """Tasks have started."""
        row = self._row.get((group, end_s))
        if row is not None:
            self._columns.tasks[row] += tasks
            return
        if self._size == len(self._columns.tasks):
            self._make_room()
        row = self._row[group, end_s] = self._size
        self._size += 1
        groups, ends_s, counts = self._columns
        groups[row], ends_s[row], counts[row] = group, end_s, tasks

    def take(self, group: int, end_s: float, tasks: int) -> None:
        """Tasks that were expected to end then run no more."""
        row = self._row[group, end_s]
        left = self._columns.tasks[row] - tasks
        self._columns.tasks[row] = left
        if not left:
            del self._row[group, end_s]

    def _make_room(self) -> None:
        """Have the rows with tasks first, and as many more, at least."""
        rows = np.fromiter(self._row.values(), np.int64, len(self._row))
        room = max(ROWS, 2 * len(rows))
        columns = RunningColumns(np.zeros(room, np.int64), np.zeros(room), np.zeros(room, np.int64))
        for column, before in zip(columns, self._columns, strict=True):
            column[: len(rows)] = before[rows]
        self._columns, self._size = columns, len(rows)
        self._row = {key: row for row, key in enumerate(self._row)}

    def columns(self) -> RunningColumns:
        """All of them; a view, which changes with them."""
        groups, ends_s, tasks = self._columns
        return RunningColumns(groups[: self._size], ends_s[: self._size], tasks[: self._size])

    def listed(self) -> list[Running]:
        """Those that have tasks."""
        tasks = self._columns.tasks
        return [Running(group, end_s, int(tasks[row])) for (group, end_s), row in self._row.items()]

    def of(self, group: int) -> int:
        """Tasks of the group."""
        return sum(int(self._columns.tasks[row]) for (one, _), row in self._row.items() if one == group)
