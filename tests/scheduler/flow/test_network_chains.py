"""A network that lasts costs, after any chain of changes, what one costs that is made of the cluster as it is then."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork, Placed, Share
from scheduler.flow.pipes import FORESEEN_MIN
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.policy import ArcTo, Machine, Policy, Task, TaskCosts
from scheduler.flow.policies.quincy import GIGABYTE, Quincy
from tests.support.flow_networks import NEVER_S
from tests.support.flow_problems import oracle_solve


class Asked(Quincy):
    """Quincy, with no more than a policy must have: it is asked about everything in each round."""

    machine_arcs = None  # type: ignore[assignment]

    def task(self, task: Task) -> TaskCosts:
        costs = super().task(task)
        return TaskCosts(costs.arcs, costs.waiting, costs.running)


class Offset(Quincy):
    """Quincy, with all that a task's arcs cost the same dearer."""

    def task(self, task: Task) -> TaskCosts:
        costs = super().task(task)
        more = 1000 + int(task.name[1:])
        arcs = [ArcTo(arc.to, arc.cost + more) for arc in costs.arcs if isinstance(arc.cost, int)]
        return replace(costs, arcs=arcs, waiting=costs.waiting + more, running=costs.running + more)


POLICIES: dict[str, Callable[[], Policy]] = {
    "quincy": Quincy,
    "asked": Asked,
    "load spreading": lambda: LoadSpreading(waiting_cost=250),
}
STEPS = st.tuples(
    st.sampled_from(["arrive", "end", "machine", "resize", "lose", "wait", "kind"]),
    st.integers(0, 11),
    st.integers(0, 5),
)


@dataclass
class World:
    """A cluster that changes at random; some placements are carried out, others are not."""

    policy: Callable[[], Policy]
    keeps_running: bool
    second_after_s: float = NEVER_S
    network: ClusterNetwork = field(init=False)
    machines: dict[str, Machine] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    kinds: dict[str, list[str] | None] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=lambda: {"ann": 0, "bob": 0})
    now_s: float = 0.0
    made: int = 0

    def __post_init__(self) -> None:
        self.network = ClusterNetwork(
            self.policy(), keeps_running=self.keeps_running, second_after_s=self.second_after_s
        )

    def step(self, what: str, number: int, other: int) -> ClusterChanges:
        """One change; what of it the network has to be told."""
        if what == "arrive":
            tasks = [self._task(number, place) for place in range(other + 1)]
            self.tasks |= {task.name: task for task in tasks}
            return ClusterChanges(tasks=tasks)
        if what == "end":
            gone = list(self.tasks)[number::6]
            for name in gone:
                self._leave(name)
            return ClusterChanges(tasks_gone=gone, machines=self._resized(gone))
        if what == "machine":
            machine = Machine(f"m{number}", f"r{number % 3}", other, running=self._runs(f"m{number}"))
            self.machines[machine.name] = machine
            return ClusterChanges(machines=[machine])
        if what == "resize":
            machines = [replace(machine, slots=(machine.slots + number) % 4) for machine in self.machines.values()]
            self.machines = {machine.name: machine for machine in machines}
            return ClusterChanges(machines=machines)
        if what == "lose":
            name = f"m{number}"
            self.machines.pop(name, None)
            self.tasks = {
                task.name: replace(task, runs_on=None, since_s=self.now_s) if task.runs_on == name else task
                for task in self.tasks.values()
            }
            return ClusterChanges(machines_gone=[name])
        if what == "kind":
            self.kinds["k"] = [f"m{place}" for place in range(other, number)] if other else None
            return ClusterChanges(kinds={"k": self.kinds["k"]})
        self.now_s += 10 * number
        return ClusterChanges()

    def _task(self, number: int, place: int) -> Task:
        self.made += 1
        local = {f"m{(number + step) % 12}": (step + 1) * GIGABYTE for step in range(place)}
        user = "ann" if place % 2 else "bob"
        kind = "k" if place == 3 else ""
        return Task(
            f"t{self.made}",
            f"j{number}",
            10 * GIGABYTE,
            local,
            user=user,
            kind=kind,
            since_s=self.now_s - place,
            priority=place - 2 if number == 1 else 0,
        )

    def _leave(self, name: str) -> None:
        del self.tasks[name]

    def _runs(self, machine: str) -> int:
        return sum(task.runs_on == machine for task in self.tasks.values())

    def _resized(self, gone: list[str]) -> list[Machine]:
        """Machines have as many tasks running as they have."""
        changed = [
            replace(machine, running=self._runs(machine.name))
            for machine in self.machines.values()
            if machine.running != self._runs(machine.name)
        ]
        self.machines |= {machine.name: machine for machine in changed}
        return changed

    def carry_out(self, placed: Placed, carries: int) -> ClusterChanges:
        """Of the placements some: their tasks run, or are no part of the network any more."""
        chosen = placed.placed[:carries]
        if self.keeps_running:
            for name, machine in chosen:
                self.tasks[name] = replace(self.tasks[name], runs_on=machine, since_s=self.now_s)
            return ClusterChanges(tasks_run=chosen, machines=self._resized([]), now_s=self.now_s)
        for name, machine in chosen:
            self.held[self.tasks.pop(name).user] += 1
            place = self.machines[machine]
            self.machines[machine] = replace(place, slots=place.slots - 1, running=place.running + 1)
        return ClusterChanges(
            tasks_gone=[name for name, _ in chosen],
            machines=[self.machines[machine] for machine in {machine for _, machine in chosen}],
            shares=self.shares(),
            now_s=self.now_s,
        )

    def shares(self) -> dict[str, Share]:
        return {user: Share(1.0 + (user == "bob"), held) for user, held in self.held.items()}

    def round(self, changes: ClusterChanges) -> Placed:
        return self.network.round(replace(changes, shares=self.shares(), now_s=self.now_s))

    def cold(self) -> Placed:
        """What a network that is made now says."""
        made = ClusterNetwork(self.policy(), keeps_running=self.keeps_running, second_after_s=NEVER_S)
        made.balance = deepcopy(self.network.balance)
        return made.round(
            ClusterChanges(
                machines=list(self.machines.values()),
                kinds=self.kinds,
                tasks=list(self.tasks.values()),
                shares=self.shares(),
                now_s=self.now_s,
            )
        )

    def check(self, placed: Placed) -> None:
        """It costs what it has to, and nothing is overcommitted."""
        problem = self.network.dump()
        assert placed.cost == oracle_solve(problem).cost
        cold = self.cold()
        lowest = self.network.cluster.priority_min
        offset = 1000 * (min(0, *(task.priority for task in self.tasks.values()), 0) - lowest) if self.tasks else 0
        if not offset:
            assert placed.cost == cold.cost
        taken: dict[str, int] = {}
        moved = dict(placed.placed)
        for task in self.tasks.values():
            machine = moved.get(task.name, None if task.name in placed.stopped else task.runs_on)
            if machine is not None:
                taken[machine] = taken.get(machine, 0) + 1
                allowed = self.kinds.get(task.kind)
                assert allowed is None or machine in allowed or machine == task.runs_on
        outside = [task.name for task in self.tasks.values() if self.network.cluster.kinds.is_outside(task.name)]
        assert outside == [
            task.name for task in self.tasks.values() if self.kinds.get(task.kind) == [] and task.runs_on is None
        ]
        assert placed.waiting == len(self.tasks) - sum(taken.values())
        for machine, count in taken.items():
            assert count <= self.machines[machine].slots


@pytest.mark.parametrize("keeps_running", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 12)), min_size=1, max_size=12))
def test_a_chain_of_changes_costs_what_a_new_network_does(
    policy: str, keeps_running: bool, steps: list[tuple[tuple[str, int, int], int]]
) -> None:
    world = World(POLICIES[policy], keeps_running)
    first = [("machine", number, number % 4) for number in range(0, 10, 2)] + [("arrive", 1, 5), ("arrive", 5, 4)]
    for step in first:
        world.round(world.step(*step))
    for step, carries in steps:
        placed = world.round(world.step(*step))
        world.check(placed)
        placed = world.round(world.carry_out(placed, carries))
        world.check(placed)


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 12)), min_size=1, max_size=8))
def test_a_chain_in_which_either_solver_may_win_costs_the_same(
    steps: list[tuple[tuple[str, int, int], int]],
) -> None:
    world = World(Quincy, True, second_after_s=0.0)
    for step in [("machine", 0, 2), ("machine", 5, 3), ("arrive", 1, 5), ("arrive", 2, 5)]:
        world.round(world.step(*step))
    for step, carries in steps:
        world.check(world.round(world.step(*step)))
        world.check(world.round(world.carry_out(world.round(ClusterChanges()), carries)))


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 12)), min_size=1, max_size=8))
def test_what_all_arcs_of_a_task_cost_more_changes_no_cost_but_by_that(
    steps: list[tuple[tuple[str, int, int], int]],
) -> None:
    plain, dearer = World(Quincy, False), World(Offset, False)
    for step in [("machine", 0, 2), ("machine", 5, 3), ("arrive", 1, 5), *(step for step, _ in steps)]:
        placed = plain.round(plain.step(*step))
        other = dearer.round(dearer.step(*step))
        assert other.cost - placed.cost == sum(1000 + int(name[1:]) for name in plain.network.cluster.tasks)


def test_tasks_that_run_are_not_moved_between_equal_places() -> None:
    chance = np.random.default_rng(1)
    network = ClusterNetwork(Quincy(running_bonus_per_s=0.0), keeps_running=True, second_after_s=NEVER_S)
    machines = [Machine(f"m{number}", f"r{number % 4}", 3) for number in range(20)]
    placed = network.round(ClusterChanges(machines=machines, tasks=[Task(f"t{n}", "j") for n in range(40)]))
    runs = dict(placed.placed)
    told = list(placed.placed)
    for turn in range(30):
        ended = list(chance.choice(sorted(runs), 3, replace=False))
        for name in ended:
            del runs[name]
        fresh = [Task(f"n{turn}-{number}", "j", since_s=float(turn)) for number in range(3)]
        placed = network.round(ClusterChanges(tasks_gone=ended, tasks=fresh, tasks_run=told, now_s=float(turn)))
        assert {name for name, _ in placed.placed} <= {task.name for task in fresh}
        assert not placed.stopped
        told = list(placed.placed)
        runs |= dict(told)


def test_the_first_task_of_a_demand_finds_machines_as_they_are_by_then() -> None:
    made = ClusterNetwork(LoadSpreading(), second_after_s=NEVER_S)
    free = {"gpu": 1.0}
    made.round(ClusterChanges(machines=[Machine("m0", "r", 0, free), Machine("m1", "r", 1)], tasks=[Task("a", "j")]))
    told = ClusterChanges(machines=[Machine("m0", "r", 1, free)], tasks=[Task("b", "j", demand=free)])
    assert ("b", "m0") in made.round(told).placed


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=12, deadline=None)
@given(tasks=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 5)), max_size=12), slots=st.integers(1, 4))
def test_tasks_that_come_at_once_cost_what_those_do_that_come_one_by_one(
    policy: str, tasks: list[tuple[int, int]], slots: int
) -> None:
    at_once, singly = World(POLICIES[policy], True), World(POLICIES[policy], True)
    found = []
    for world in (at_once, singly):
        for number in range(0, 10, 2):
            world.round(world.step("machine", number, slots))
        made = [world._task(*one) for one in tasks]
        made = [replace(task, runs_on=f"m{2 * place}") if place < 4 else task for place, task in enumerate(made)]
        world.tasks = {task.name: task for task in made}
        blocks = [made] if world is at_once else [[task] for task in made]
        for block in blocks:
            placed = world.round(ClusterChanges(tasks=block, now_s=world.now_s))
        placed = world.round(world.step("wait", 3, 0))
        world.check(placed)
        found.append(placed.cost)
    assert found[0] == found[1]


@pytest.mark.parametrize("slots", [1, 4, 40])
def test_many_tasks_at_once_are_spread_in_a_solve_or_two(slots: int) -> None:
    made = ClusterNetwork(LoadSpreading(), second_after_s=NEVER_S)
    machines = [Machine(f"m{number}", "r", slots, running=number % 3) for number in range(20)]
    made.round(ClusterChanges(machines=machines))
    solves = made.race.wins.total()
    tasks = [Task(f"t{number}", "j") for number in range(FORESEEN_MIN)]
    placed = made.round(ClusterChanges(tasks=tasks))
    assert made.race.wins.total() - solves <= 2
    assert placed.cost == oracle_solve(made.dump()).cost
    one_by_one = ClusterNetwork(LoadSpreading(), second_after_s=NEVER_S)
    one_by_one.round(ClusterChanges(machines=machines))
    for begin in range(0, FORESEEN_MIN, FORESEEN_MIN // 2):
        single = one_by_one.round(ClusterChanges(tasks=tasks[begin : begin + FORESEEN_MIN // 2]))
    assert placed.cost == single.cost
    assert placed.waiting == max(0, FORESEEN_MIN - 20 * slots)
