"""Have all that decisions need compiled before the first of them: seconds on a machine that has not done so before."""

from __future__ import annotations

import numpy as np

from scheduler.altruistic.allocator import Allocator
from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.settings import SCHEDULERS, Lend, Settings


def warm_up() -> None:
    """Play two small jobs on two machines, under each kind of scheduler."""
    for settings in (*SCHEDULERS.values(), Settings(lend=Lend.PROFILE)):
        allocator = Allocator(2, settings)
        allocator.machines_came(["a", "b"], np.ones((2, 2)))
        dag = Dag([Group(2, (0.5, 0.25), 1.0), Group(1, (0.5, 0.25), 1.0, (0,))])
        allocator.job_came("one", dag)
        allocator.job_came("two", dag, "another")
        allocator.limit({("one", 0): np.array([True, False])})
        for start in allocator.pump(0.0):
            for _ in range(start.tasks):
                allocator.ended(start.job, start.group, start.machine, start.end_s)
        allocator.pump(1.0)
