"""Paper 004 §5.2.1 to §5.2.3: what a min-cost flow is, the algorithms, and where relaxation is slow.

Instead of times the tests count work: arcs that searches look at, pushes and relabels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.check import fault_of_flow, fault_of_potentials, negative_cycle
from scheduler.flow.graph import FlowGraph
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.network import network_of
from scheduler.flow.policies.policy import Cluster, Machine, Task
from scheduler.flow.problem import Problem, Solution, StoppedError
from scheduler.flow.solver_table import SOLVERS, solver
from scheduler.flow.solvers import cost_scaling, relaxation
from scheduler.flow.solvers.stopping import stop_flag
from tests.support.flow_policies import kinds_of
from tests.support.flow_problems import integers, network, oracle_cost, scheduling_problems


def steps(problem: Problem, kinds: np.ndarray | None = None, **options: bool) -> int:
    """Arcs that relaxation looks at, from nothing."""
    return relaxation.Relaxation(FlowGraph.of(problem, kinds), **options).solve().steps


def work(problem: Problem) -> int:
    """Pushes and relabels of cost scaling, from nothing."""
    ordered = cost_scaling.residual_of(problem, None, len(problem.supply) + 1)
    scaling = cost_scaling.Scaling(ordered, None, stop_flag(), cost_scaling.ALPHA)
    scaling.run(cost_scaling.FIRST_DIVISOR)
    return sum(phase.work for phase in scaling.phases)


# ---- §5.2.1 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("running", [0.5, 0.95])
def test_all_algorithms_find_the_same_cost(name: str, running: float) -> None:
    problem = quincy_graph(12, running=running, arriving=0.1).problem
    assert solver(name)(problem).cost == oracle_cost(problem)


@given(scheduling_problems(), st.integers(0, 2**31))
def test_reduced_costs_change_no_cycle_and_paths_only_by_their_ends(problem: Problem, seed: int) -> None:
    """ "The reduced cost does not change the cost of any directed cycle"; so with any potentials the same flows cost
    least."""
    potential = np.random.default_rng(seed).integers(-9, 10, len(problem.supply))
    reduced = replace(problem, cost=problem.cost - potential[problem.tail] + potential[problem.head])
    shift = int(problem.supply @ potential)
    assert oracle_cost(reduced) == oracle_cost(problem) - shift


@given(scheduling_problems())
def test_an_optimal_flow_has_no_residual_cycle_of_negative_cost(problem: Problem) -> None:
    """Theorem 5.2.1."""
    assert negative_cycle(residual(problem, relaxation.solve(problem))) == []


def residual(problem: Problem, solution: Solution) -> Problem:
    """Figure 5.3: forward arcs with what is left, backward arcs with what can be taken back."""
    back = np.flatnonzero(solution.flow > problem.minimum)
    on = np.flatnonzero(solution.flow < problem.capacity)
    return Problem(
        np.concatenate([problem.tail[on], problem.head[back]]),
        np.concatenate([problem.head[on], problem.tail[back]]),
        np.concatenate([problem.cost[on], -problem.cost[back]]),
        np.concatenate([problem.capacity[on] - solution.flow[on], solution.flow[back] - problem.minimum[back]]),
        np.zeros(len(on) + len(back), np.int64),
        np.zeros(len(problem.supply), np.int64),
    )


def test_complementary_slackness_is_meant_for_flows_between_their_bounds() -> None:
    """Equation 5.6b is printed with l ≤ f ≤ u; it has to be l < f < u. Here the cheap arc is full and its reduced cost
    is below 0, which the equation as printed would forbid for an optimal flow."""
    problem, _ = network({"a": 2, "b": -2}, [("a", "b", 1, 1), ("a", "b", 5, 5)])
    solution = relaxation.solve(problem)
    assert solution.flow.tolist() == [1, 1]
    reduced = problem.cost - solution.potential[problem.tail] + solution.potential[problem.head]
    assert reduced.tolist() == [-4, 0]
    assert fault_of_potentials(problem, solution.flow, solution.potential) == ""


def test_a_dearer_or_unbalanced_flow_is_none() -> None:
    problem, _ = network({"a": 1, "b": -1}, [("a", "b", 1, 1), ("a", "b", 5, 5)])
    assert negative_cycle(residual(problem, Solution(integers([0, 1]), integers([0, 0]), 5))) != []
    assert fault_of_flow(problem, integers([1, 1])) != ""


def test_relaxation_does_little_where_destinations_are_uncontested() -> None:
    """ "Relaxation manages to route most of the flow supply in almost a single pass over the flow network"."""
    problem = quincy_graph(40, running=0.5, arriving=0.01).problem
    assert steps(problem) < 1.5 * len(problem.tail)


# ---- §5.2.2 ----------------------------------------------------------------------------------------------------------


def test_close_to_full_relaxation_has_far_more_to_do_and_cost_scaling_little_more() -> None:
    """Figure 5.6: 90 % full, and a job that fills the cluster and more."""
    calm, crowded = (quincy_graph(40, arriving=arriving).problem for arriving in (0.01, 0.15))
    assert steps(crowded) > 10 * steps(calm)
    assert work(crowded) < 6 * work(calm)
    assert steps(crowded) / steps(calm) > 3 * work(crowded) / work(calm)


def spreading(tasks: int) -> tuple[Problem, np.ndarray]:
    """Figure 5.7 with so many tasks: machines have 0 to 11 already."""
    machines = [Machine(f"m{number}", "r", 12, running=number % 12) for number in range(60)]
    cluster = Cluster.of(machines, [Task(f"t{number}", "j") for number in range(tasks)])
    problem, made = network_of(LoadSpreading(), cluster)
    return problem, kinds_of(problem, made)


def test_popular_machines_make_relaxation_slow() -> None:
    """Figure 5.8: with load spreading all new tasks want the same few machines; what each task costs grows with how
    many come at once."""
    each = {tasks: steps(*spreading(tasks)) / tasks for tasks in (25, 100, 400)}
    assert each[100] > each[25]
    assert each[400] > each[100]
    problem, _ = spreading(25)
    assert each[25] > 5 * len(problem.tail) / 60 / 12


def test_load_spreading_fills_machines_one_task_at_a_time() -> None:
    """ "The number of tasks on a machine only increases once all other machines have at least as many tasks"."""
    machines = [Machine(f"m{number}", "r", 9, running=number) for number in range(4)]
    cluster = Cluster.of(machines, [Task(f"t{number}", "j") for number in range(10)])
    problem, made = network_of(LoadSpreading(), cluster)
    solution = relaxation.solve(problem)
    has = []
    for machine in machines:
        to_sink = (problem.tail == made.machines[machine.name]) & (problem.head == made.sink)
        has.append(machine.running + int(solution.flow[to_sink].sum()))
    assert has == [4, 4, 4, 4]


# ---- §5.2.3 ----------------------------------------------------------------------------------------------------------


def test_a_solver_that_is_stopped_early_has_no_placements_to_use() -> None:
    """ "Early termination appears not to be a viable scalability optimisation": before the end units are still on their
    way, so tasks have no place at all. Ours then says so instead of giving an answer."""
    stop = stop_flag()
    stop[0] = 1
    for name in ("relaxation", "cost-scaling"):
        with pytest.raises(StoppedError):
            solver(name)(quincy_graph(12).problem, None, stop)
