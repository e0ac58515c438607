"""Jobs on machines, played by the allocator until all are over; the jobs of figure 2 of paper 002, and random ones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from scheduler.altruistic.allocator import Allocator, Start
from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.settings import Settings

EPS = 1e-6
J1 = Dag([Group(2, (0.04,), 1.0), Group(3, (0.21,), 1.0), Group(1, (0.5,), 0.1, (0, 1))])
J2 = Dag([Group(2, (0.29,), 1.0)])


class Played:
    """Jobs on machines until all are over, each task as long as was said."""

    def __init__(
        self, dags: list[Dag], settings: Settings, machines: Any = None, owners: Sequence[str] = (), **options: Any
    ) -> None:
        """owners: the jobs' users, if there are several."""
        capacity = np.ones((1, dags[0].demand.shape[1])) if machines is None else machines
        self.allocator = Allocator(capacity.shape[1], settings, draw=Random(1).random, **options)
        self.allocator.machines_came([str(number) for number in range(len(capacity))], capacity)
        for number, dag in enumerate(dags):
            self.allocator.job_came(str(number), dag, owners[number] if owners else "")
        self.dags, self.capacity, self.now_s = dags, capacity, 0.0
        self.running: list[Start] = []
        self.looks: list[list[Start]] = []
        self.ends = [np.inf] * len(dags)

    def look(self) -> list[Start]:
        """What starts now; no machine has more than it can hold."""
        starts = self.allocator.pump(self.now_s)
        self.looks.append(starts)
        self.running += starts
        used = np.zeros_like(self.capacity)
        for start in self.running:
            used[int(start.machine)] += start.tasks * self.dags[int(start.job)].demand[start.group]
        assert (used <= self.capacity + EPS).all()
        assert np.allclose(self.capacity - used, self.allocator.machines.free)
        return starts

    def next(self) -> bool:
        """Go on to when something happens; False if all is over."""
        self.now_s = min([self.allocator.next_s, *(at.end_s for at in self.running)])
        for at in [at for at in self.running if at.end_s <= self.now_s + EPS]:
            self.running.remove(at)
            if self.allocator.ended(at.job, at.group, at.machine, at.end_s, at.tasks):
                self.ends[int(at.job)] = self.now_s
        return bool(self.allocator.jobs)

    def play(self) -> Played:
        for _ in range(2000 if self.allocator.jobs else 0):
            self.look()
            assert self.running or np.isfinite(self.allocator.next_s), "nothing runs, and nothing will"
            if not self.next():
                break
        assert not self.allocator.jobs, "it does not end"
        return self

    def targets(self) -> list[float]:
        return [here.job.target_s for here in self.allocator.jobs.values()]


def random_jobs(seed: int) -> list[Dag]:
    """Up to four jobs whose tasks fit into the job's part of everything."""
    chance = Random(seed)
    count, resources = chance.randint(1, 4), chance.randint(1, 3)
    dags = []
    for _ in range(count):
        groups = []
        for number in range(chance.randint(1, 5)):
            parents = tuple(parent for parent in range(number) if chance.random() < 0.4)
            demand = [chance.randint(0, 8) / 8 / count for _ in range(resources)]
            demand[chance.randrange(resources)] = chance.randint(1, 8) / 8 / count
            groups.append(Group(chance.randint(1, 4), tuple(demand), chance.randint(1, 16) / 8, parents))
        dags.append(Dag(groups))
    return dags
