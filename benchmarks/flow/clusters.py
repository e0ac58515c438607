"""Flow networks of clusters, as the figures need them: Quincy's, in which all running tasks are, and load spreading."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks.quincy_graphs import QuincyGraph, quincy_graph
from scheduler.flow.changes import Changes
from scheduler.flow.extract import Placements, extract, settle
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.network import NONE
from scheduler.flow.problem import Integers, Problem, Solution
from scheduler.flow.solver_table import SOLVERS, solver
from scheduler.flow.solvers.refine import refine
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.warm_up import warm_up

WAIT_COST = 1_000_000
TASK_COST = 100
"""What a machine costs more for each task that it has, under load spreading."""


@cache
def compile_all() -> None:
    """Have all solvers compiled, so that none is when its time is taken."""
    warm_up()
    problem = quincy_graph(3).problem
    for name in SOLVERS:
        solution = solver(name)(problem)
        solver(name)(problem, solution)
    refine(problem, solution.flow)


class QuincyCluster:
    """A graph in which tasks run, and the arcs on which they do."""

    def __init__(self, quincy: QuincyGraph, *, prioritised: bool = True, drains: bool = True, seed: int = 1) -> None:
        self.quincy = quincy
        self.drains = drains
        self.chance = np.random.default_rng(seed)
        kinds = kinds_of(quincy)
        self.graph = FlowGraph.of(quincy.problem, kinds)
        self.solver = Relaxation(self.graph, prioritised=prioritised, drains=drains)
        self.changes = Changes(self.graph, quincy.sink)
        runs = np.flatnonzero(quincy.running_on >= 0)
        self.running_arc = np.full(2 * len(kinds), NONE, np.int64)
        """By node: a task's running arc, or -1."""
        self.running_arc[quincy.tasks[0] + runs] = quincy.first_arc[runs + 1] - 1
        self.patterns = np.flatnonzero(quincy.running_on < 0)

    def age(self) -> None:
        """A second more that all tasks have run."""
        arcs = self.running_arc[self.running_arc >= 0]
        self.changes.set_costs(arcs, self.graph.cost[arcs] - 1)

    def happen(self, events: int) -> None:
        """Tasks end, and others like those that waited at first arrive."""
        running = np.flatnonzero(self.running_arc >= 0)
        for task in self.chance.choice(running, events, replace=False).tolist():
            self.changes.remove_node(task)
            self.running_arc[task] = NONE
        problem, first_arc = self.quincy.problem, self.quincy.first_arc
        for pattern in self.chance.choice(self.patterns, events).tolist():
            task = self.changes.add_node(1, Kind.TASK)
            for arc in range(int(first_arc[pattern]), int(first_arc[pattern + 1])):
                head = int(problem.head[arc])
                self.changes.add_arc(task, head, int(problem.cost[arc]), 1)
                if head in self.quincy.waiting:
                    below = self.graph.out_arcs(head)[0]
                    self.changes.set_capacity(below, len(running) + events)
        self.changes.apply(drains=self.drains)

    def place(self) -> Placements:
        """Where tasks go. Those that run elsewhere till now, or nowhere, get running arcs, cheaper than their way."""
        placements = extract(self.graph)
        moved = np.flatnonzero((placements.arc >= 0) & (placements.arc != self.running_arc[: len(placements.arc)]))
        old = self.running_arc[moved]
        for arc in old[old >= 0].tolist():
            self.changes.remove_arc(arc)
        placed = placements.machine[moved] >= 0
        self.running_arc[moved[~placed]] = NONE
        new = moved[placed]
        costs = self.graph.potential[new] - self.graph.potential[placements.machine[new]] - 1
        self.running_arc[new] = settle(self.graph, placements, new, costs)
        return placements


def kinds_of(quincy: QuincyGraph) -> Integers:
    """What each node of such a graph stands for."""
    kinds = np.full(len(quincy.problem.supply), Kind.OTHER, np.int64)
    kinds[quincy.sink] = Kind.SINK
    kinds[list(quincy.machines)] = Kind.MACHINE
    kinds[list(quincy.waiting)] = Kind.UNSCHEDULED
    kinds[list(quincy.tasks)] = Kind.TASK
    return kinds


def before_arrival(quincy: QuincyGraph) -> Problem:
    """The problem without the tasks that do not run yet: their nodes and arcs are there, their supply is not."""
    supply = quincy.problem.supply.copy()
    waiting = quincy.tasks[0] + np.flatnonzero(quincy.running_on < 0)
    supply[waiting] = 0
    supply[quincy.sink] += len(waiting)
    return replace(quincy.problem, supply=supply)


class SpreadCluster:
    """Load spreading as a problem whose nodes and arcs stay: what changes are capacities, one unit arc for each slot.

    Tasks go to the aggregator X, or wait; from X a unit arc leads to each slot, the k-th of a machine at the cost of k
    tasks. Slots of running tasks have no capacity. Nodes: the sink, X, U, machines, places for tasks that arrive.
    """

    def __init__(self, machines: int, places: int, *, slots: int = 12, utilisation: float = 0.9, seed: int = 1) -> None:
        self.slots = slots
        self.machines = machines
        self.places = places
        self.chance = np.random.default_rng(seed)
        self.running = self.chance.multinomial(int(machines * slots * utilisation), np.full(machines, 1 / machines))
        self.running = self._within_slots(self.running)
        machine = np.repeat(np.arange(machines), slots)
        unit = np.tile(np.arange(slots), machines)
        task = 3 + machines + np.arange(places)
        none = np.zeros(places, np.int64)
        self._unit = unit
        self.tail = np.concatenate([task, task, np.full(len(unit), 1), 3 + np.arange(machines), [2]])
        self.head = np.concatenate([none + 1, none + 2, 3 + machine, np.zeros(machines + 1, np.int64)])
        self.cost = np.concatenate([none, none + WAIT_COST, TASK_COST * unit, np.zeros(machines + 1, np.int64)])
        self._first_unit = 2 * places

    def problem(self, arriving: int) -> Problem:
        """With so many tasks that arrive."""
        supply = np.zeros(3 + self.machines + self.places, np.int64)
        supply[3 + self.machines : 3 + self.machines + arriving] = 1
        supply[0] = -arriving
        capacity = np.concatenate(
            [
                np.ones(2 * self.places, np.int64),
                (self._unit >= np.repeat(self.running, self.slots)).astype(np.int64),
                self.slots - self.running,
                [self.places],
            ]
        )
        tail, head, cost = (column.astype(np.int64) for column in (self.tail, self.head, self.cost))
        return Problem(tail, head, cost, capacity.astype(np.int64), np.zeros(len(capacity), np.int64), supply)

    def place(self, solution: Solution) -> None:
        """Those that were placed run from now on."""
        units = solution.flow[self._first_unit : self._first_unit + len(self._unit)]
        self.running += units.reshape(self.machines, self.slots).sum(axis=1)

    def end(self, count: int) -> None:
        """So many tasks end, anywhere."""
        on = np.repeat(np.arange(self.machines), self.running)
        self.running -= np.bincount(self.chance.choice(on, count, replace=False), minlength=self.machines)

    def _within_slots(self, running: Integers) -> Integers:
        """What is too much for a machine goes to those that have room."""
        while (over := int(np.maximum(running - self.slots, 0).sum())) > 0:
            running = np.minimum(running, self.slots)
            room = np.repeat(np.arange(self.machines), self.slots - running)
            running = running + np.bincount(self.chance.choice(room, over, replace=False), minlength=self.machines)
        return running.astype(np.int64)
