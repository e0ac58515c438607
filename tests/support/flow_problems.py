"""Min-cost-flow problems with known answers, made-up ones, and OR-tools as an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from scheduler.flow import dimacs
from scheduler.flow.problem import InfeasibleError, Integers, Problem, Solution

# ---- problems by the names of their nodes --------------------------------------------------------------------------

Arc = tuple[str, str, int, int] | tuple[str, str, int, int, int]
"""Tail, head, cost, capacity and, if there is one, the minimum."""


def integers(values: Sequence[int] | Integers) -> Integers:
    """An array of a problem."""
    return np.array(values, np.int64)


def network(supply: Mapping[str, int], arcs: Sequence[Arc]) -> tuple[Problem, dict[str, int]]:
    """The problem, and the number of each node: those with a supply come first, then the others as arcs name them."""
    numbers = {name: number for number, name in enumerate(supply)}
    for arc in arcs:
        for name in arc[:2]:
            numbers.setdefault(name, len(numbers))
    supplies = integers([supply.get(name, 0) for name in numbers])
    problem = Problem(
        tail=integers([numbers[arc[0]] for arc in arcs]),
        head=integers([numbers[arc[1]] for arc in arcs]),
        cost=integers([arc[2] for arc in arcs]),
        capacity=integers([arc[3] for arc in arcs]),
        minimum=integers([arc[4] if len(arc) == 5 else 0 for arc in arcs]),
        supply=supplies,
    )
    return problem, numbers


def flows(problem: Problem, numbers: Mapping[str, int], flow: Integers) -> dict[tuple[str, str], int]:
    """What flows between two nodes, by their names, where anything does; parallel arcs are added up."""
    names = {number: name for name, number in numbers.items()}
    found: dict[tuple[str, str], int] = {}
    for arc in np.flatnonzero(flow):
        pair = names[int(problem.tail[arc])], names[int(problem.head[arc])]
        found[pair] = found.get(pair, 0) + int(flow[arc])
    return found


# ---- known answers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A problem whose answer was found by hand. `flow` names some of what flows, where that is unique."""

    name: str
    problem: Problem
    numbers: Mapping[str, int]
    cost: int
    flow: Mapping[tuple[str, str], int]

    def __repr__(self) -> str:
        return self.name


def known(
    name: str,
    cost: int,
    supply: Mapping[str, int],
    arcs: Sequence[Arc],
    flow: Mapping[tuple[str, str], int] | None = None,
) -> Known:
    """A problem with its answer."""
    return Known(name, *network(supply, arcs), cost, flow or {})


SMALL_ARCS: tuple[Arc, ...] = (
    ("1", "2", 1, 7),
    ("1", "3", 5, 7),
    ("2", "3", 2, 2),
    ("2", "4", 8, 3),
    ("3", "4", 3, 3),
    ("3", "5", 4, 2),
    ("4", "6", 0, 10),
    ("5", "6", 0, 10),
)
SMALL_SUPPLY = {"1": 5, "2": 0, "3": 0, "4": 0, "5": 0, "6": -5}


def five_tasks(
    waiting_abc: int = 5, waiting_de: int = 7, slots: Mapping[str, int] | None = None
) -> tuple[dict[str, int], list[Arc]]:
    """Supply and arcs of five tasks on machines of one slot each, or of as many as `slots` says."""
    machines = {"M0": 1, "M1": 1, "M2": 1, "M3": 1} | dict(slots or {})
    preferences = [
        ("a", "M0", 2),
        ("a", "M1", 3),
        ("b", "M1", 6),
        ("c", "M1", 1),
        ("c", "M3", 2),
        ("d", "M2", 4),
        ("e", "M3", 2),
    ]
    arcs: list[Arc] = [(task, machine, cost, 1) for task, machine, cost in preferences]
    arcs += [(task, "U0", waiting_abc, 1) for task in "abc"] + [(task, "U1", waiting_de, 1) for task in "de"]
    arcs += [(machine, "S", 0, count) for machine, count in machines.items()]
    arcs += [("U0", "S", 0, 3), ("U1", "S", 0, 2)]
    return dict.fromkeys("abcde", 1) | {"S": -5}, arcs


def at_most(placed_max: int, per_machine_max: int) -> tuple[dict[str, int], list[Arc]]:
    """Supply and arcs of the construct `xor` (figure 5.17): of two tasks so many are placed, so many a machine."""
    arcs: list[Arc] = [(task, "G", 0, 1) for task in "ab"] + [(task, "U", 10, 1) for task in "ab"]
    arcs += [("G", "O", 0, placed_max), ("O", "M0", 1, per_machine_max), ("O", "M1", 3, per_machine_max)]
    arcs += [("M0", "S", 0, 2), ("M1", "S", 0, 2), ("U", "S", 0, 2)]
    return {"a": 1, "b": 1, "S": -2}, arcs


def gang(minimum: int) -> tuple[dict[str, int], list[Arc]]:
    """Supply and arcs of a rigid gang of two (figure 5.19); with a minimum of 0 its tasks go one by one."""
    arcs: list[Arc] = [(task, "G", 0, 1) for task in "ab"] + [(task, "U", 5, 1) for task in "ab"]
    arcs += [("G", "J", 0, 2, minimum), ("J", "M0", 4, 1), ("J", "M1", 9, 1)]
    arcs += [("M0", "S", 0, 1), ("M1", "S", 0, 1), ("U", "S", 0, 2)]
    return {"a": 1, "b": 1, "S": -2}, arcs


LINK_MBPS = 1250
IN_USE_MBPS = {"M0": 850, "M1": 850, "M2": 650, "M3": 1050}
"""Bandwidth in use of figure 5.21 (the text calls it available; its costs make sense only as what is in use)."""


def network_aware() -> tuple[dict[str, int], list[Arc]]:
    """Supply and arcs of figure 5.21: two tasks that ask for 400 MB/s, three for 150, convex arcs unit by unit."""
    tasks = {"a": 400, "b": 400, "c": 150, "d": 150, "e": 150}
    arcs: list[Arc] = [(task, f"RA{request}", 0, 1) for task, request in tasks.items()]
    arcs += [(task, "U", 2500, 1) for task in tasks]
    for request in (400, 150):
        for machine, used in IN_USE_MBPS.items():
            units = (LINK_MBPS - used) // request
            arcs += [(f"RA{request}", machine, used + request * (unit + 1), 1) for unit in range(units)]
    arcs += [(machine, "S", 0, len(tasks)) for machine in IN_USE_MBPS] + [("U", "S", 0, len(tasks))]
    return dict.fromkeys(tasks, 1) | {"S": -len(tasks)}, arcs


_PLACED = {("a", "M0"): 1, ("c", "M1"): 1, ("d", "M2"): 1, ("e", "M3"): 1, ("b", "U0"): 1}

KNOWN: tuple[Known, ...] = (
    known("six nodes", 38, SMALL_SUPPLY, SMALL_ARCS),
    known("five tasks", 14, *five_tasks(), _PLACED),
    known("five tasks, M3 gone", 19, *five_tasks(slots={"M3": 0}), {("b", "U0"): 1, ("e", "U1"): 1, ("c", "M1"): 1}),
    known("five tasks, waiting dearer", 18, *five_tasks(9), _PLACED),
    known("five tasks, M3 of two slots", 16, *five_tasks(9, slots={"M3": 2}), {("b", "M1"): 1, ("c", "M3"): 1}),
    known("five tasks, waiting cheaper", 12, *five_tasks(4, 3), {("b", "U0"): 1, ("d", "U1"): 1}),
    known("at most one of two tasks", 11, *at_most(1, 1), {("O", "M0"): 1}),
    known("one task a machine", 4, *at_most(2, 1), {("O", "M0"): 1, ("O", "M1"): 1}),
    known("two tasks a machine", 2, *at_most(2, 2), {("O", "M0"): 2}),
    known("gang of two", 13, *gang(2), {("J", "M0"): 1, ("J", "M1"): 1}),
    known("no gang", 9, *gang(0), {("J", "M0"): 1}),
    known("figure 5.21", 5050, *network_aware(), {("RA150", "M2"): 2, ("RA400", "M2"): 1}),
)
"""Of issue 18, of figures 5.17, 5.19 and 5.21 of paper 004, and of Flowlessly's tests (six nodes)."""

INFEASIBLE: tuple[Known, ...] = (
    known("gang of two, one machine", 0, *(gang(2)[0], [arc for arc in gang(2)[1] if "M1" not in arc])),
    known("too little capacity", 0, {"1": 3, "2": -3}, [("1", "2", 1, 2)]),
    known("no way", 0, {"1": 1, "2": -1}, []),
    known("minimum without supply", 0, {"1": 0, "2": 0}, [("1", "2", 1, 2, 1)]),
)
"""No flow answers these, though each is a problem; their costs mean nothing."""


# ---- made-up problems ----------------------------------------------------------------------------------------------


@st.composite
def feasible_problems(draw: st.DrawFn, nodes_max: int = 8, arcs_max: int = 24, largest: int = 9) -> Problem:
    """Problems that have an answer: parallel arcs, arcs of capacity 0, minimum flows, negative costs.

    They are made from the answer's end: a flow within the bounds says what the supplies are. Costs are what is left of
    a reduced cost from 0 when potentials are taken out, so no cycle is negative.
    """
    count = draw(st.integers(2, nodes_max))
    node = st.integers(0, count - 1)
    pairs = st.tuples(node, node).filter(lambda pair: pair[0] != pair[1])
    amounts = st.tuples(st.integers(0, largest), st.integers(0, largest), st.integers(0, largest))
    arcs = draw(st.lists(st.tuples(pairs, st.integers(0, largest), amounts), max_size=arcs_max))
    potentials = draw(st.lists(st.integers(-largest, largest), min_size=count, max_size=count))
    supply = [0] * count
    rows = []
    for (tail, head), reduced, chosen in arcs:
        minimum, flow, capacity = sorted(chosen)
        supply[tail] += flow
        supply[head] -= flow
        rows.append((tail, head, reduced + potentials[tail] - potentials[head], capacity, minimum))
    columns = [integers(column) for column in zip(*rows, strict=True)] or [integers([])] * 5
    return Problem(*columns, integers(supply))


@st.composite
def scheduling_problems(draw: st.DrawFn, tasks_max: int = 8, machines_max: int = 4, cost_max: int = 9) -> Problem:
    """Tasks with preferred machines, one aggregator before all machines, one for those that wait, a single sink."""
    tasks, machines = draw(st.integers(1, tasks_max)), draw(st.integers(1, machines_max))
    cost = st.integers(0, cost_max)
    sink, waiting, cluster = tasks + machines, tasks + machines + 1, tasks + machines + 2
    rows: list[tuple[int, int, int, int, int]] = []
    for task in range(tasks):
        preferred = draw(st.lists(st.integers(0, machines - 1), max_size=3))
        rows += [(task, tasks + machine, draw(cost), 1, 0) for machine in preferred]
        rows += [(task, cluster, draw(cost), 1, 0), (task, waiting, draw(cost), 1, 0)]
    for machine in range(machines):
        slots = draw(st.integers(0, 3))
        rows += [(cluster, tasks + machine, draw(cost), slots, 0), (tasks + machine, sink, 0, slots, 0)]
    rows.append((waiting, sink, 0, tasks, 0))
    columns = [integers(column) for column in zip(*rows, strict=True)]
    return Problem(*columns, integers([1] * tasks + [0] * machines + [-tasks, 0, 0]))


@st.composite
def chains(draw: st.DrawFn) -> list[Problem]:
    """A problem, and what becomes of it: costs, bounds and supplies change, nodes and arcs are added, each with the
    number after the last. Not all need have an answer."""
    chain = [draw(feasible_problems(nodes_max=5, arcs_max=10))]
    for _ in range(draw(st.integers(1, 3))):
        before = chain[-1]
        nodes = len(before.supply) + draw(st.integers(0, 2))
        node = st.integers(0, nodes - 1)
        count = len(before.tail)
        dearer = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        bounds = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=count, max_size=count))
        kept = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        added = draw(st.lists(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), max_size=4))
        supply = np.append(before.supply, np.zeros(nodes - len(before.supply), np.int64))
        moved = draw(st.integers(0, 3))
        supply[draw(node)] += moved
        supply[draw(node)] -= moved
        chain.append(
            Problem(
                tail=np.append(before.tail, integers([tail for tail, _ in added])),
                head=np.append(before.head, integers([head for _, head in added])),
                cost=np.append(before.cost + np.where(kept, 0, integers(dearer)), integers([18] * len(added))),
                capacity=np.append(
                    np.where(kept, before.capacity, integers([max(pair) for pair in bounds])),
                    integers([2] * len(added)),
                ),
                minimum=np.append(
                    np.where(kept, before.minimum, integers([min(pair) for pair in bounds])), integers([0] * len(added))
                ),
                supply=supply,
            )
        )
    return chain


def file_of(chain: list[Problem]) -> str:
    """DIMACS with a graph, and its changes."""
    lines = [*dimacs.write(chain[0]), dimacs.end_of_iteration()]
    for before, after in pairwise(chain):
        lines += [*dimacs.write_changes(before, after), dimacs.end_of_iteration()]
    return "".join([*lines, "c EOS\n"])


# ---- OR-tools ------------------------------------------------------------------------------------------------------


def _oracle(problem: Problem) -> Any:
    """OR-tools' solver after it has solved the problem less its minimum flows, which it does not know."""
    from ortools.graph.python import min_cost_flow  # Many modules that problems alone do not need.

    solver = min_cost_flow.SimpleMinCostFlow()
    forced = problem.minimum
    solver.add_arcs_with_capacity_and_unit_cost(problem.tail, problem.head, problem.capacity - forced, problem.cost)
    supply = problem.supply.copy()
    np.subtract.at(supply, problem.tail, forced)
    np.add.at(supply, problem.head, forced)
    solver.set_nodes_supplies(np.arange(len(supply), dtype=np.int64), supply)
    status = solver.solve()
    if status in (solver.INFEASIBLE, solver.UNBALANCED):
        raise InfeasibleError("OR-tools finds no flow that meets all supplies and minimum flows")
    assert status == solver.OPTIMAL, status
    return solver


def oracle_flow(problem: Problem) -> Integers:
    """A flow of least cost, as OR-tools finds it; `InfeasibleError` if there is none."""
    solver = _oracle(problem)
    return problem.minimum + integers(solver.flows(np.arange(len(problem.tail), dtype=np.int64)))


def oracle_cost(problem: Problem) -> int:
    """The least cost, as OR-tools finds it; `InfeasibleError` if no flow meets all supplies and minimum flows."""
    return int(_oracle(problem).optimal_cost()) + int(problem.cost @ problem.minimum)


def oracle_solve(problem: Problem, start: object = None, stop: object = None) -> Solution:
    """A solver to test with what calls solvers: OR-tools' flow, and potentials that prove it."""
    del start, stop
    flow = oracle_flow(problem)
    return Solution(flow, proving_potentials(problem, flow), int(problem.cost @ flow))


def proving_potentials(problem: Problem, flow: Integers) -> Integers:
    """Potentials for a flow of least cost: distances to any node in the residual network, by Bellman and Ford."""
    forward, backward = flow < problem.capacity, flow > problem.minimum
    tail = np.concatenate([problem.tail[forward], problem.head[backward]])
    head = np.concatenate([problem.head[forward], problem.tail[backward]])
    cost = np.concatenate([problem.cost[forward], -problem.cost[backward]])
    potential = np.zeros(len(problem.supply), np.int64)
    for _ in range(len(potential) + 1):
        before = potential.copy()
        np.minimum.at(potential, tail, cost + before[head])
        if np.array_equal(before, potential):
            return potential
    raise AssertionError("the residual network has a negative cycle, so the flow is not of least cost")


# ---- other problems of the same answer ------------------------------------------------------------------------------


def with_offset(problem: Problem, node: int, amount: int) -> Problem:
    """The problem with all arcs that leave a node dearer by the same: where that has supply and no arc enters, the
    same flows are of least cost."""
    return replace(problem, cost=np.where(problem.tail == node, problem.cost + amount, problem.cost))
