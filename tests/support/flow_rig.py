"""A scheduler with a flow plane, whose network is a simple one: each task goes to the first machine that has room for
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from scheduler.flow.cluster_changes import ClusterChanges, Explanation, Placed
from scheduler.flow.policies.policy import Group, Machine, Task
from scheduler.flow.solvers.stopping import StopFlag
from sparrow_py.wire import messages as m
from tests.support.led_rig import LedRig


class FirstFit:
    """Stands for `ClusterNetwork`: has its methods, and no solver."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        self.tasks: dict[str, Task] = {}
        self.kinds: dict[str, Any] = {}
        self.groups: dict[str, Group] = {}
        self.rounds: list[ClusterChanges] = []

    def round(self, changes: ClusterChanges, stop: StopFlag | None = None) -> Placed:
        """As `ClusterNetwork.round`."""
        self.rounds.append(changes)
        for name in changes.machines_gone:
            del self.machines[name]
        self.machines.update({machine.name: machine for machine in changes.machines})
        self.kinds.update(changes.kinds)
        for name, group in changes.groups.items():
            if group is None:
                del self.groups[name]
            else:
                self.groups[name] = group
        for name in changes.tasks_gone:
            del self.tasks[name]
        for task in changes.tasks:
            assert task.name not in self.tasks, f"{task.name} is there already"
            self.tasks[task.name] = task
        placed = self._first_fit()
        arcs = len(self.tasks) * len(self.machines)
        waiting = len(self.tasks) - len(placed)
        return Placed(placed, (), {}, 0, "first-fit", 0.0, len(self.machines), arcs, waiting)

    def explain(self, task: str) -> Explanation:
        """It knows no costs."""
        raise KeyError(task)

    def _first_fit(self) -> list[tuple[str, str]]:
        slots = {name: machine.slots for name, machine in self.machines.items()}
        free = {name: dict(machine.free) for name, machine in self.machines.items()}
        groups: Counter[tuple[str, str]] = Counter()
        racks: Counter[tuple[str, str]] = Counter()
        placed = []
        for task in self.tasks.values():
            for name in self.machines:
                allowed, group = self.kinds[task.kind], self.groups.get(task.group, Group())
                fits = all(free[name].get(what, 0.0) + 1e-9 >= much for what, much in task.demand.items())
                held = groups[task.group, name] + group.running.get(name, 0)
                rack = self.machines[name].rack
                in_rack = racks[task.group, rack] + sum(
                    count for one, count in group.running.items() if self.machines[one].rack == rack
                )
                full = group.max_per_machine and held >= group.max_per_machine
                full = full or (group.max_per_rack and in_rack >= group.max_per_rack)
                if slots[name] > 0 and fits and not full and (allowed is None or name in allowed):
                    slots[name] -= 1
                    groups[task.group, name] += 1
                    racks[task.group, rack] += 1
                    for what, much in task.demand.items():
                        free[name][what] -= much
                    placed.append((task.name, name))
                    break
        sizes = Counter(self.tasks[name].group for name, _ in placed)
        gangs = {name: group.gang for name, group in self.groups.items()}
        return [one for one in placed if sizes[group := self.tasks[one[0]].group] >= gangs.get(group, 0)]


class FlowRig(LedRig):
    """See the module's docstring. `inline`: problems are solved as soon as they are there."""

    def __init__(self, nodes: Any = (), *, network: Callable[[], Any] = FirstFit, inline: bool = True, **options: Any):
        self.networks: list[Any] = []
        self._network = network
        super().__init__(nodes, policy=m.FLOW, inline=inline, **options)

    def prepare(self) -> None:
        self.plane.network_of = self._network_of

    def _network_of(self) -> Any:
        self.networks.append(self._network())
        return self.networks[-1]
