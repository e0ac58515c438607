"""Stand-in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from scheduler.flow.cluster_changes import ClusterChanges, Explanation, Placed
from scheduler.flow.policies.policy import Group, Machine, Policy, Task
from scheduler.flow.problem import Problem
from scheduler.flow.solvers.stopping import StopFlag


class ClusterNetwork:
    def __init__(self, policy: Policy, *, keeps_running: bool = False) -> None:
        self.machines: dict[str, Machine] = {}
        self.tasks: dict[str, Task] = {}
        self.kinds: dict[str, Collection[str] | None] = {}
        self.groups: dict[str, Group] = {}

    def round(self, changes: ClusterChanges, stop: StopFlag | None = None) -> Placed:
        for name in changes.machines_gone:
            del self.machines[name]
        self.machines.update({machine.name: machine for machine in changes.machines})
        self.kinds.update(changes.kinds)
        for name in changes.tasks_gone:
            self.tasks.pop(name, None)
        self.tasks.update({task.name: task for task in changes.tasks})
        slots = {name: machine.slots for name, machine in self.machines.items()}
        free = {name: dict(machine.free) for name, machine in self.machines.items()}
        placed = []
        for task in self.tasks.values():
            allowed = self.kinds[task.kind]
            for name in self.machines:
                if slots[name] <= 0 or (allowed is not None and name not in allowed):
                    continue
                if any(free[name].get(what, 0.0) + 1e-9 < much for what, much in task.demand.items()):
                    continue
                slots[name] -= 1
                for what, much in task.demand.items():
                    free[name][what] -= much
                placed.append((task.name, name))
                break
        self.groups.update(changes.groups)
        counts = Counter(self.tasks[name].group for name, _ in placed)
        placed = [
            (name, where)
            for name, where in placed
            if not (group := self.tasks[name].group) or counts[group] >= self.groups[group].gang
        ]
        return Placed(
            placed, (), {}, 0, "greedy", 0.0, len(self.machines), len(self.tasks), len(self.tasks) - len(placed)
        )

    def explain(self, task: str) -> Explanation:
        """Nothing is known here."""
        raise KeyError(task)

    def dump(self) -> Problem:
        """Nothing is known here."""
        raise KeyError
