"""CPU time of a cluster's flow network under Quincy: made, cold, and in rounds in which tasks arrive and others end.

python -m benchmarks.cluster_network --machines 12500 --events 100 --rounds 20

All that a round does is in its time: changes by names, the policy's answers, ageing, the solve, placements.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import dataclass, field, replace

import click
import numpy as np

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork, Placed
from scheduler.flow.policies.policy import Machine, Task
from scheduler.flow.policies.quincy import Quincy
from scheduler.flow.warm_up import warm_up

MEGABYTE = 1_000_000
MACHINES_PER_RACK = 40
FIRST_ROUNDS = 3
"""Not counted: in them memory is touched for the first time."""


@dataclass
class Cluster:
    """Machines and tasks by their names; what is placed runs."""

    machines: int
    slots: int
    keeps_running: bool
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    running: dict[str, str] = field(default_factory=dict)
    by_name: dict[str, Machine] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        for number in range(self.machines):
            machine = Machine(f"m{number}", f"r{number // MACHINES_PER_RACK}", self.slots)
            self.by_name[machine.name] = machine

    def tasks(self, count: int, now_s: float) -> list[Task]:
        """Each has up to ten machines that hold some of its input."""
        sizes = np.clip(self.chance.lognormal(6.5, 1.2, count), 50, 11_500)
        made = []
        for size, wanted in zip(sizes.tolist(), self.chance.integers(0, 11, count).tolist(), strict=True):
            places = self.chance.integers(0, self.machines, wanted).tolist()
            parts = (0.1 + 0.9 * self.chance.random(wanted)).tolist()
            local = {f"m{place}": int(size * part) * MEGABYTE for place, part in zip(places, parts, strict=True)}
            self.made += 1
            name, size_bytes = f"t{self.made}", int(size) * MEGABYTE
            made.append(Task(name, f"j{self.made // 50}", size_bytes, local, user="user", since_s=now_s))
        return made

    def fill(self, full: float) -> list[Task]:
        """Tasks that have run for up to an hour; those that the network is to know of."""
        count = int(self.machines * self.slots * full)
        places = self.chance.permutation(self.machines * self.slots)[:count] // self.slots
        names = [f"m{place}" for place in places.tolist()]
        if self.keeps_running:
            since_s = (-3600 * self.chance.random(count)).tolist()
            rows = zip(self.tasks(count, 0.0), names, since_s, strict=True)
            tasks = [replace(task, runs_on=name, since_s=since) for task, name, since in rows]
            self.running = {task.name: task.runs_on or "" for task in tasks}
            return tasks
        self.running = {f"first{number}": name for number, name in enumerate(names)}
        for name, runs in Counter(names).items():
            self.by_name[name] = replace(self.by_name[name], slots=self.slots - runs, running=runs)
        return []

    def happen(self, placed: Placed, events: int, now_s: float) -> ClusterChanges:
        """What was placed runs; some tasks end, others arrive."""
        touched: dict[str, int] = {}
        for name, machine in placed.placed:
            before = self.running.get(name)
            if before is not None:
                touched[before] = touched.get(before, 0) - 1
            touched[machine] = touched.get(machine, 0) + 1
            self.running[name] = machine
        names = list(self.running)
        ended = [names[place] for place in self.chance.choice(len(names), min(events, len(names)), replace=False)]
        for name in ended:
            machine = self.running.pop(name)
            touched[machine] = touched.get(machine, 0) - 1
        tasks = self.tasks(events, now_s)
        if self.keeps_running:
            return ClusterChanges(tasks_gone=ended, tasks=tasks, tasks_run=placed.placed, now_s=now_s)
        for machine, change in touched.items():
            known = self.by_name[machine]
            self.by_name[machine] = replace(known, slots=known.slots - change, running=known.running + change)
        return ClusterChanges(
            machines=[self.by_name[machine] for machine in touched],
            tasks_gone=[name for name, _ in placed.placed],
            tasks=tasks,
            now_s=now_s,
        )


@click.command()
@click.option("--machines", default=12_500, show_default=True)
@click.option("--slots", default=12, show_default=True)
@click.option("--full", default=0.9, show_default=True, help="Part of the slots that are taken at first.")
@click.option("--events", default=100, show_default=True, help="Tasks that arrive, and that end, in a round.")
@click.option("--rounds", default=20, show_default=True)
@click.option("--keeps-running/--waiting-only", default=True, help="Whether running tasks are part of the network.")
@click.option("--second-after-s", default=float("inf"), show_default=True, help="When cost scaling starts beside.")
def main(
    machines: int, slots: int, full: float, events: int, rounds: int, keeps_running: bool, second_after_s: float
) -> None:
    """Print CPU times of the first round and of those after it."""
    warm_up()
    cluster = Cluster(machines, slots, keeps_running)
    network = ClusterNetwork(Quincy(), keeps_running=keeps_running, second_after_s=second_after_s)
    tasks = cluster.fill(full)
    start_s = time.process_time()
    placed = network.round(ClusterChanges(machines=list(cluster.by_name.values()), tasks=tasks, now_s=0.0))
    print(
        f"{placed.nodes} nodes, {placed.arcs} arcs: first round {time.process_time() - start_s:.2f} s CPU, "
        f"solver {placed.solve_s:.2f} s wall, {len(placed.placed)} placed, {placed.waiting} wait"
    )
    whole, solver = [], []
    for number in range(FIRST_ROUNDS + rounds):
        changes = cluster.happen(placed, events, float(number + 1))
        start_s = time.process_time()
        placed = network.round(changes)
        if number >= FIRST_ROUNDS:
            whole.append(1000 * (time.process_time() - start_s))
            solver.append(1000 * placed.solve_s)
    for what, values in (("rounds, CPU", whole), ("solver, wall", solver)):
        print(
            f"{what:12} median {statistics.median(values):6.1f} ms, p90 {np.percentile(values, 90):6.1f}, "
            f"largest {max(values):6.1f}"
        )
    print(f"last round: {len(placed.placed)} placed, {placed.waiting} wait, wins {dict(network.race.wins)}")


if __name__ == "__main__":
    main()
