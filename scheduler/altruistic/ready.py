"""Groups of which tasks wait and may start, as rows of arrays; and what each job has, likewise."""

from __future__ import annotations

import numpy as np

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.profile import Flags, Indexes, Matrix

ROWS = 64
"""To begin with."""


class Rows:
    """Numbers of rows that are in use; those that are given back are used again."""

    def __init__(self) -> None:
        self.size = ROWS
        self._free: list[int] = list(range(ROWS - 1, -1, -1))

    def new(self) -> int:
        """A row that is not in use. `size` is twice as large if none was left."""
        if not self._free:
            self._free = list(range(2 * self.size - 1, self.size - 1, -1))
            self.size *= 2
        return self._free.pop()

    def give_back(self, row: int) -> None:
        self._free.append(row)


class JobRows:
    """A row a job: what its tasks have, and what they may have."""

    def __init__(self, resources: int) -> None:
        self._rows = Rows()
        self.has: Matrix = np.zeros((ROWS, resources))
        self.cap: Matrix = np.zeros((ROWS, resources))
        self.share: Vector = np.zeros(ROWS)
        """What the job is entitled to, of its dominant resource."""
        self.left: Vector = np.zeros(ROWS)
        """Work of tasks that have not started, of the resource of which that is most."""
        self.work: Vector = np.zeros(ROWS)
        """Of all tasks, likewise."""
        self.path_s: Vector = np.zeros(ROWS)
        """How long its longest path takes."""
        self.mean_demand: Matrix = np.zeros((ROWS, resources))
        """Of a task, the mean over its groups."""
        self.number: Indexes = np.zeros(ROWS, np.int64)
        """By when they came."""
        self.due_s: Vector = np.full(ROWS, np.inf)
        """When it must start further tasks."""
        self.yields: Flags = np.zeros(ROWS, np.bool_)
        """Whether it yields what it need not have, now."""

    def add(self, number: int) -> int:
        row = self._rows.new()
        if row >= len(self.number):
            names = ("has", "cap", "share", "left", "work", "path_s", "mean_demand", "number", "yields")
            for name in names:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
            self.due_s = np.concatenate([self.due_s, np.full_like(self.due_s, np.inf)])
        self.has[row], self.cap[row], self.share[row], self.number[row] = 0.0, 0.0, 0.0, number
        return row

    def remove(self, row: int) -> None:
        self.has[row], self.share[row], self.due_s[row], self.yields[row] = 0.0, 0.0, np.inf, False
        self._rows.give_back(row)


class Ready:
    """A row a group of which tasks wait."""

    def __init__(self, resources: int) -> None:
        self._rows = Rows()
        self.row_of: dict[tuple[int, int], int] = {}
        """Of (row of its job, group)."""
        self.demand: Matrix = np.zeros((ROWS, resources))
        self.duration_s: Vector = np.zeros(ROWS)
        self.priority: Vector = np.zeros(ROWS)
        """Within its job."""
        self.left: Indexes = np.zeros(ROWS, np.int64)
        """Tasks that wait."""
        self.must: Indexes = np.zeros(ROWS, np.int64)
        """Those of them that must start now."""
        self.job: Indexes = np.zeros(ROWS, np.int64)
        self.group: Indexes = np.zeros(ROWS, np.int64)
        self.may_use: Indexes = np.full(ROWS, -1, np.int64)
        """Its row of the machines that are allowed, -1 for all."""
        self.wants: Indexes = np.full(ROWS, -1, np.int64)
        """Its row of the machines that its tasks prefer, -1 for none."""
        self.number: Indexes = np.zeros(ROWS, np.int64)
        """Of its job, by when that came."""
        self.unfit_since_s: Vector = np.full(ROWS, np.inf)
        """Since when tasks that must start fit nowhere; infinite if there are none."""
        self._listed: Indexes | None = None
        """Rows in use, if they are the same as when somebody asked last."""

    def add(
        self, job: int, group: int, *, number: int, demand: Vector, duration_s: float, priority: float, left: int,
        may_use: int = -1,
    ) -> int:  # fmt: skip
        """The row of a group, which may be new; tasks of it wait."""
        row = self.row_of.get((job, group))
        if row is None:
            row = self.row_of[job, group] = self._rows.new()
            self._listed = None
            if row >= len(self.left):
                names = (
                    "demand",
                    "duration_s",
                    "priority",
                    "left",
                    "must",
                    "job",
                    "group",
                    "may_use",
                    "wants",
                    "number",
                )
                for name in names:
                    column = getattr(self, name)
                    setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
                self.unfit_since_s = np.concatenate([self.unfit_since_s, np.full_like(self.unfit_since_s, np.inf)])
            self.must[row] = 0
            self.number[row], self.wants[row] = number, -1
        self.demand[row], self.duration_s[row], self.priority[row] = demand, duration_s, priority
        self.left[row], self.job[row], self.group[row], self.may_use[row] = left, job, group, may_use
        return row

    def started(self, row: int, tasks: int) -> bool:
        """Tasks wait no more; whether that was the last of them, and the row is gone."""
        self.left[row] -= tasks
        self.must[row] = max(0, self.must[row] - tasks)
        if self.left[row]:
            return False
        self.remove(int(self.job[row]), int(self.group[row]))
        return True

    def remove(self, job: int, group: int) -> None:
        row = self.row_of.pop((job, group), None)
        if row is not None:
            self.left[row] = self.must[row] = 0
            self.unfit_since_s[row] = np.inf
            self._rows.give_back(row)
            self._listed = None

    def rows(self) -> Indexes:
        """Those in use, of the job that came first first, of one job by group."""
        if self._listed is None:
            rows = np.fromiter(self.row_of.values(), np.int64, len(self.row_of))
            self._listed = rows[np.lexsort((self.group[rows], self.number[rows]))]
        return self._listed
