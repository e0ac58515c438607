"""Machines: what they have, what is free there, which of them are kept for tasks that fit nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.profile import Flags, Indexes, Matrix

HOLDS_MAX = 0.1
"""Part of the machines that are kept for tasks that must run and fit nowhere; one machine in any case."""
ROUNDING = 1e-9


class Machines:
    """By name, and as rows of arrays."""

    def __init__(self, resources: int) -> None:
        self.names: list[str] = []
        self.number: dict[str, int] = {}
        self.capacity: Matrix = np.zeros((0, resources))
        self.free: Matrix = np.zeros((0, resources))
        self.held_for: Indexes = np.zeros(0, np.int64)
        """The group of tasks for which it is kept, -1 for none."""
        self.freed: set[int] = set()
        """Those that have more room than before."""
        self.total: Vector = np.zeros(resources)
        """What all have."""
        self.unit: Vector = np.ones(resources)
        """One over that."""
        self.scale: Vector = np.zeros(resources)
        """Its square: what a unit of each resource counts where demands are compared to what is free."""
        self.all: Indexes = np.zeros(0, np.int64)
        """All of their numbers."""
        self.holds: dict[int, int] = {}
        """By group: the machine that is kept for it."""

    def __len__(self) -> int:
        return len(self.names)

    def came(self, names: Sequence[str], capacity: Matrix) -> None:
        """Machines are new, or have other resources than before. What runs there runs on."""
        new = [name for name in names if name not in self.number]
        self.number.update({name: len(self) + place for place, name in enumerate(new)})
        self.names += new
        nothing = np.zeros((len(new), len(self.total)))
        self.capacity, self.free = np.vstack([self.capacity, nothing]), np.vstack([self.free, nothing])
        self.held_for = np.append(self.held_for, np.full(len(new), -1))
        self.all = np.arange(len(self))
        numbers = [self.number[name] for name in names]
        self.free[numbers] += capacity - self.capacity[numbers]
        self.capacity[numbers] = capacity
        self.freed.update(numbers)
        self.total = self.capacity.sum(axis=0)
        self.unit = 1.0 / np.where(self.total > 0, self.total, 1.0)
        self.scale = np.where(self.total > 0, self.unit**2, 0.0)

    def take(self, name: str, amount: Vector) -> None:
        """Tasks run there that were started elsewhere."""
        self.free[self.number[name]] -= amount

    def give_back(self, name: str, amount: Vector) -> None:
        """Tasks there have ended."""
        number = self.number[name]
        self.free[number] += amount
        self.freed.add(number)

    def could_run(self, demand: Vector) -> bool:
        """Whether a machine could run such a task, if nothing else ran."""
        return bool(self._could_run(demand).any())

    def _could_run(self, demand: Vector) -> Flags:
        return np.asarray((self.capacity * (1 + ROUNDING) >= demand).all(axis=1))

    # ---- those that are kept -------------------------------------------------------------------------

    @property
    def may_hold(self) -> bool:
        """Whether not too many are kept yet for one more."""
        return len(self.holds) < max(1, int(HOLDS_MAX * len(self.names)))

    def hold(self, row: int, demand: Vector, allowed: Flags | None = None) -> None:
        """Keep the machine that has most room for such tasks, of those that may and could run one, if there is one."""
        could = self._could_run(demand) & (self.held_for < 0)
        if allowed is not None:
            could &= allowed
        if could.any():
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(demand > 0, self.free / demand, np.inf).min(axis=1)
            number = self.holds[row] = int(np.argmax(np.where(could, room, -np.inf)))
            self.held_for[number] = row

    def release(self, row: int) -> None:
        """No machine is kept for this group any more."""
        number = self.holds.pop(row, None)
        if number is not None:
            self.held_for[number] = -1
            self.freed.add(number)
