"""Have all that rounds need compiled before the first of them: seconds on a machine that has not done so before."""

from __future__ import annotations

import numpy as np

from scheduler.flow.changes import Changes
from scheduler.flow.extract import extract, settle
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.solvers.residual import all_reach_demand, residual_of
from scheduler.flow.solvers.warm_start import largest_violation, take_back


def warm_up() -> None:
    """Play two rounds of a cluster of one machine, and have the solver that may race for it solve it, too."""
    graph = FlowGraph()
    sink = graph.add_node(kind=Kind.SINK)
    changes, solver = Changes(graph, sink), Relaxation(graph)
    machine = changes.add_node(kind=Kind.MACHINE)
    slots = changes.add_arc(machine, sink, 0, 1)
    tasks = [changes.add_node(1, Kind.TASK) for _ in range(3)]
    ways = [changes.add_arc(task, sink, 2, 1) for task in tasks]
    wishes = [changes.add_arc(task, machine, 1, 1) for task in tasks]
    changes.apply()
    solver.solve()
    placements = extract(graph)
    placed = np.flatnonzero(placements.machine >= 0)
    settle(graph, placements, placed, np.zeros(len(placed), np.int64))
    changes.remove_node(int(placed[0]))
    waiting = next(number for number, task in enumerate(tasks) if task != placed[0])
    changes.remove_arc(wishes[waiting])
    changes.set_cost(ways[waiting], 3)
    changes.set_capacity(slots, 2)
    changes.apply()
    solver.solve()
    graph.adopt(graph.solution())
    cost_scaling.solve(graph.problem())
    cost_scaling.solve(graph.problem(), graph.solution())
    network = residual_of(graph.problem()).network
    all_reach_demand(network)
    take_back(network, graph.potential, np.empty(0, np.int32))
    largest_violation(network, graph.potential)
