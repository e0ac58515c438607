"""The relaxation-type solver: on problems from nothing, and on graphs after changes."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.changes import Changes
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.problem import InfeasibleError, Problem, ProblemError, Solution, StoppedError
from scheduler.flow.solvers import relaxation
from scheduler.flow.solvers.relaxation import Relaxation, Round
from scheduler.flow.solvers.stopping import POLL_STEPS, stop_flag
from tests.support.flow_problems import (
    KNOWN,
    five_tasks,
    integers,
    network,
    oracle_cost,
    scheduling_problems,
    with_offset,
)
from tests.support.flow_proofs import assert_consistent, assert_least_cost

NOTHING = Round(0, 0, 0, 0)


def compact_solution(graph: FlowGraph) -> tuple[Problem, Solution]:
    """The graph's problem without gaps, and its flow."""
    compact = graph.compact()
    found = graph.solution()
    return compact.problem, Solution(found.flow[compact.arcs], found.potential[compact.nodes], found.cost)


def assert_solved(graph: FlowGraph) -> None:
    """The graph's flow is one of least cost, as the oracle says, too."""
    problem, solution = compact_solution(graph)
    assert_least_cost(problem, solution)
    assert solution.cost == oracle_cost(problem)


@st.composite
def any_problems(draw: st.DrawFn) -> Problem:
    """Problems that may have no answer, and negative cycles."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    nodes, arcs = draw(st.integers(2, 7)), draw(st.integers(0, 18))
    ends = [chance.sample(range(nodes), 2) for _ in range(arcs)]
    capacities = [chance.randint(0, 6) for _ in ends]
    minimums = [chance.randint(0, most) if chance.random() < 0.2 else 0 for most in capacities]
    costs = [chance.randint(-5, 9) for _ in ends]
    supply = [chance.randint(-2, 2) for _ in range(nodes)]
    supply[-1] -= sum(supply)
    columns = ([end[0] for end in ends], [end[1] for end in ends], costs, capacities, minimums, supply)
    return Problem(*map(integers, columns))


@given(any_problems())
def test_negative_cycles_and_what_has_no_answer(problem: Problem) -> None:
    try:
        cost = oracle_cost(problem)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            relaxation.solve(problem)
    else:
        solution = relaxation.solve(problem)
        assert_least_cost(problem, solution)
        assert solution.cost == cost


@settings(max_examples=30)
@given(scheduling_problems(), st.integers(0, 99))
def test_an_offset_on_all_arcs_of_a_task_moves_nothing(problem: Problem, amount: int) -> None:
    graph = FlowGraph.of(problem)
    solver = Relaxation(graph)
    solver.solve()
    before = graph.solution()
    arcs = np.flatnonzero(problem.tail == 0)
    graph.set_costs(arcs, problem.cost[arcs] + amount)
    solver.solve()
    assert np.array_equal(graph.flow, before.flow)
    assert graph.solution().cost == before.cost + amount == relaxation.solve(with_offset(problem, 0, amount)).cost


def test_a_start_of_another_size_is_refused() -> None:
    known = KNOWN[0]
    with pytest.raises(ProblemError, match=r"the solution is for 6 nodes and 8 arcs: the graph has 12 and 18"):
        relaxation.solve(network(*five_tasks())[0], relaxation.solve(known.problem))


# ---- graphs that change ----------------------------------------------------------------------------------------------


class Cluster:
    """Five tasks of the known answers, by name."""

    def __init__(self, **options: bool) -> None:
        problem, self.number = network(*five_tasks())
        kinds = {"S": Kind.SINK, "M": Kind.MACHINE, "U": Kind.UNSCHEDULED}
        self.graph = FlowGraph.of(problem, np.array([kinds.get(name[0], Kind.TASK) for name in self.number], np.int64))
        self.solver = Relaxation(self.graph, **options)
        self.changes = Changes(self.graph, self.number["S"])

    def arc(self, tail: str, head: str) -> int:
        (found,) = set(self.graph.out_arcs(self.number[tail])) & set(self.graph.in_arcs(self.number[head]))
        return found

    def cost(self) -> int:
        self.changes.apply()
        assert_consistent(self.graph)
        self.solver.solve()
        assert_consistent(self.graph)
        assert_solved(self.graph)
        return self.graph.solution().cost


@pytest.mark.parametrize("options", [{}, {"prioritised": False}, {"drains": False}], ids=repr)
def test_known_answers_one_after_the_other(options: dict[str, bool]) -> None:
    cluster = Cluster(**options)
    changes = cluster.changes
    assert cluster.cost() == 14
    changes.set_capacity(cluster.arc("M3", "S"), 0)
    assert cluster.cost() == 19
    changes.set_capacity(cluster.arc("M3", "S"), 1)
    for task in "abc":
        changes.set_cost(cluster.arc(task, "U0"), 9)
    assert cluster.cost() == 18
    changes.set_capacity(cluster.arc("M3", "S"), 2)
    assert cluster.cost() == 16
    changes.set_capacity(cluster.arc("M3", "S"), 1)
    for task, waiting, cost in (("a", "U0", 4), ("b", "U0", 4), ("c", "U0", 4), ("d", "U1", 3), ("e", "U1", 3)):
        changes.set_cost(cluster.arc(task, waiting), cost)
    assert cluster.cost() == 12
    changes.remove_node(cluster.number["M2"])
    assert cluster.cost() == 12
    changes.remove_node(cluster.number["M3"])
    assert cluster.cost() == 13
    for task in "abcde":
        changes.remove_node(cluster.number[task])
    assert cluster.cost() == 0


def test_a_machine_that_goes_with_its_node_sends_its_task_elsewhere() -> None:
    cluster = Cluster()
    assert cluster.cost() == 14
    cluster.changes.remove_node(cluster.number["M3"])
    assert cluster.cost() == 19


def test_changes_that_break_nothing_solve_nothing() -> None:
    cluster = Cluster()
    cluster.cost()
    waits, runs = cluster.arc("b", "U0"), cluster.arc("c", "M1")
    cluster.changes.set_cost(cluster.arc("b", "M1"), 7)
    cluster.changes.set_cost(runs, 0)
    cluster.changes.set_cost(waits, 5)
    cluster.changes.set_capacity(cluster.arc("M0", "S"), 5)
    cluster.changes.apply()
    assert cluster.graph.is_settled()
    assert cluster.solver.solve() == NOTHING
    assert_solved(cluster.graph)
    cluster.changes.set_cost(runs, 6)
    cluster.changes.apply()
    assert not cluster.graph.is_settled()
    assert cluster.solver.solve() != NOTHING
    assert_solved(cluster.graph)


def test_no_change_solves_nothing() -> None:
    cluster = Cluster()
    cluster.cost()
    cluster.changes.apply()
    assert cluster.solver.solve() == NOTHING


def test_a_task_that_ends_is_taken_back_down_to_the_sink() -> None:
    cluster = Cluster()
    cluster.cost()
    cluster.changes.remove_node(cluster.number["d"])
    cluster.changes.apply()
    assert cluster.graph.flow[cluster.arc("M2", "S")] == 0
    assert cluster.graph.is_settled()


def test_what_has_no_answer_now_may_have_one_later() -> None:
    cluster = Cluster()
    cluster.cost()
    waiting = [cluster.arc("U0", "S"), cluster.arc("U1", "S")]
    for arc in waiting:
        cluster.changes.set_capacity(arc, 0)
    cluster.changes.apply()
    with pytest.raises(InfeasibleError):
        cluster.solver.solve()
    assert_consistent(cluster.graph)
    for arc in waiting:
        cluster.changes.set_capacity(arc, 1)
    assert cluster.cost() == 14


def test_potentials_that_have_drifted_far_are_forgotten() -> None:
    cluster = Cluster()
    cluster.cost()
    cluster.graph.potential[:] += relaxation.POTENTIAL_MAX + 1
    cluster.changes.set_cost(cluster.arc("a", "M0"), 9)
    assert cluster.cost() == 17
    assert np.abs(cluster.graph.potential).max() < 10


class World:
    """A graph at which chance tugs: tasks, machines, racks, any arcs, also with minimum flows."""

    def __init__(self, seed: int, **options: bool) -> None:
        self.chance = random.Random(seed)
        self.graph = FlowGraph(1, 1)
        self.sink = self.graph.add_node(0, Kind.SINK)
        self.changes = Changes(self.graph, self.sink)
        self.drains = options.get("drains", True)
        self.solver = Relaxation(self.graph, **options)
        self.waiting = self.changes.add_node(0, Kind.UNSCHEDULED)
        self.changes.add_arc(self.waiting, self.sink, 0, 99)
        self.machines: list[int] = []
        self.tasks: list[int] = []
        self.arcs: list[int] = []
        for _ in range(3):
            self.machine()
        for _ in range(self.chance.randint(0, 6)):
            self.task()

    def machine(self) -> None:
        node = self.changes.add_node(0, Kind.MACHINE)
        self.arcs.append(self.changes.add_arc(node, self.sink, self.chance.randint(0, 2), self.chance.randint(0, 2)))
        for other in self.chance.sample(self.machines, min(2, len(self.machines))):
            self.arcs.append(self.changes.add_arc(other, node, self.chance.randint(0, 3), self.chance.randint(0, 2)))
        for task in self.chance.sample(self.tasks, min(2, len(self.tasks))):
            self.arcs.append(self.changes.add_arc(task, node, self.chance.randint(-3, 9), 1))
        self.machines.append(node)

    def task(self) -> None:
        node = self.changes.add_node(self.chance.choice([1, 1, 1, 2]), Kind.TASK)
        self.changes.add_arc(node, self.waiting, self.chance.randint(5, 12), 2)
        for machine in self.chance.choices(self.machines, k=self.chance.randint(0, 3)) if self.machines else ():
            self.arcs.append(self.changes.add_arc(node, machine, self.chance.randint(-3, 9), 1))
        self.tasks.append(node)

    def change(self) -> None:
        """One change, any."""
        what = self.chance.randrange(10)
        self.arcs = [arc for arc in self.arcs if self.changes.has_arc(arc)]
        if what == 0:
            self.machine()
        elif what in (1, 2):
            self.task()
        elif what == 3 and self.tasks:
            self.changes.remove_node(self.tasks.pop(self.chance.randrange(len(self.tasks))))
        elif what == 4 and self.machines:
            self.changes.remove_node(self.machines.pop(self.chance.randrange(len(self.machines))))
        elif self.arcs:
            arc = self.chance.choice(self.arcs)
            if what == 5:
                self.changes.remove_arc(arc)
            elif what == 6:
                self.changes.set_minimum(arc, 0)
                self.changes.set_capacity(arc, self.chance.randint(0, 3))
            elif what == 9:
                self.changes.set_minimum(arc, 1)
                self.changes.set_capacity(arc, self.chance.randint(1, 3))
            elif what == 7:
                arcs = integers([*{arc, self.chance.choice(self.arcs)}])
                self.changes.set_costs(arcs, integers([self.chance.randint(-3, 9) for _ in arcs]))
            else:
                self.changes.set_cost(arc, self.chance.randint(-3, 9))

    def assert_solved(self) -> None:
        """The solver and the oracle agree, also on what has no answer."""
        problem = self.graph.compact().problem
        try:
            cost = oracle_cost(problem)
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                self.solver.solve()
        else:
            self.solver.solve()
            assert_solved(self.graph)
            assert self.graph.solution().cost == relaxation.solve(self.graph.problem()).cost == cost
        assert_consistent(self.graph)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_chains_of_changes_equal_a_cold_solve(seed: int, prioritised: bool, drains: bool) -> None:
    world = World(seed, prioritised=prioritised, drains=drains)
    for _ in range(6):
        for _ in range(world.chance.randint(0, 5)):
            world.change()
        world.changes.apply(drains=drains)
        assert_consistent(world.graph)
        world.assert_solved()


@given(scheduling_problems(), st.lists(st.integers(-9, 9), min_size=80, max_size=80), st.booleans())
def test_all_arcs_may_change_at_once(problem: Problem, costs: list[int], drains: bool) -> None:
    graph = FlowGraph.of(problem)
    solver = Relaxation(graph, drains=drains)
    arcs = np.arange(len(problem.cost))
    for each in (costs, costs[::-1], problem.cost):
        graph.set_costs(arcs, np.resize(integers(each), len(arcs)))
        graph.set_bounds(arcs, problem.capacity, problem.minimum)
        solver.solve()
        assert_consistent(graph)
        assert_solved(graph)


# ---- told to stop ----------------------------------------------------------------------------------------------------


def assert_fits(graph: FlowGraph) -> None:
    """Each arc's flow fits its bounds and its reduced cost, though nodes may be out of balance."""
    reduced = graph.cost - graph.potential[graph.tail] + graph.potential[graph.head]
    assert np.all((graph.minimum <= graph.flow) & (graph.flow <= graph.capacity))
    assert np.array_equal(graph.flow[reduced < 0], graph.capacity[reduced < 0])
    assert np.array_equal(graph.flow[reduced > 0], graph.minimum[reduced > 0])


@pytest.mark.parametrize("drains", [True, False])
def test_a_solver_that_is_told_to_stop_leaves_a_graph_to_go_on_with(drains: bool) -> None:
    quincy = quincy_graph(40, 2)
    graph = FlowGraph.of(quincy.problem)
    solver = Relaxation(graph, drains=drains)
    told = stop_flag(POLL_STEPS)
    with pytest.raises(StoppedError, match=r"the solver was told to stop"):
        solver.solve(told)
    assert_fits(graph)
    assert 0 < graph.flow.sum() < len(quincy.tasks)
    solver.solve()
    assert_solved(graph)
    changes = Changes(graph, quincy.sink)
    for task in quincy.tasks[::4]:
        changes.remove_node(task)
    machines = np.flatnonzero((graph.head == quincy.sink) & np.isin(graph.tail, quincy.machines))
    for arc in machines[::3].tolist():
        changes.set_capacity(arc, 15)
    changes.set_costs(np.arange(0, len(graph.cost), 5), graph.cost[::5] + 700)
    changes.apply(drains=drains)
    stops = 0
    for _ in range(4):
        try:
            solver.solve(told)
        except StoppedError:
            stops += 1
        assert_fits(graph)
    assert stops > 0
    solver.solve()
    assert_consistent(graph)
    assert_solved(graph)


def test_a_solver_that_is_told_to_stop_at_once_does_nothing() -> None:
    """It does not make the arcs of a large graph fit before it looks at the flag: a race would wait for that."""
    quincy = quincy_graph(40, 2)
    graph = FlowGraph.of(quincy.problem)
    solver = Relaxation(graph)
    told = stop_flag()
    told[0] = 1
    for step in range(3):
        counts, flow = graph.network.counts.copy(), graph.flow.copy()
        with pytest.raises(StoppedError):
            solver.solve(told)
        assert np.array_equal(graph.network.counts, counts) and np.array_equal(graph.flow, flow)
        assert_consistent(graph)
        told[0] = 0
        solver.solve(told)
        assert_solved(graph)
        told[0] = 1
        graph.set_costs(np.arange(len(graph.cost)), graph.cost + 700 * (np.arange(len(graph.cost)) % (3 + step) == 0))
        graph.set_supply(quincy.tasks[step], 0)
        graph.set_supply(quincy.sink, int(graph.supply[quincy.sink]) + 1)


def test_stopped_from_another_thread() -> None:
    problem = quincy_graph(80, 3).problem
    flag, cost = stop_flag(), oracle_cost(problem)
    graph = FlowGraph.of(problem)
    solver = Relaxation(graph)
    timer = threading.Thread(target=flag.__setitem__, args=(0, 1))
    timer.start()
    try:
        solver.solve(flag)
    except StoppedError:
        timer.join()
        flag[0] = 0
        solver.solve(flag)
    timer.join()
    assert graph.solution().cost == cost


def test_another_solvers_answer_is_adopted() -> None:
    quincy = quincy_graph(40, 4)
    graph = FlowGraph.of(quincy.problem)
    solution = relaxation.solve(quincy.problem)
    assert graph.adopt(solution) == 0
    assert graph.is_settled()
    assert_solved(graph)
    graph.set_capacity(int(graph.arc_room.limit) - 1, 0)
    worse = replace(solution, potential=solution.potential * 0)
    assert graph.adopt(worse) > 0
    Relaxation(graph).solve()
    assert_solved(graph)
