"""Paper 004 §2.3.3, min-cost flow scheduling and Quincy's policy, claim by claim.

Its §2.3.3.2 is about schedulers that solve from scratch: that ours need not is §5.2.4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.flow.policies.network import network_of
from scheduler.flow.policies.policy import Cluster, Machine, Task
from scheduler.flow.policies.quincy import CLUSTER, GIGABYTE, Quincy, rack_of
from scheduler.flow.solvers import relaxation
from tests.support.flow_policies import MACHINES, gigabytes, placed
from tests.support.flow_problems import five_tasks, flows, network


def solved(waiting_abc: int = 5, waiting_de: int = 7) -> tuple[int, dict[tuple[str, str], int]]:
    """Cost and flow of figure 2.17."""
    problem, numbers = network(*five_tasks(waiting_abc, waiting_de))
    solution = relaxation.solve(problem)
    return solution.cost, flows(problem, numbers, solution.flow)


def test_figure_2_17() -> None:
    """ "All tasks except T0,1 are scheduled on machines." """
    cost, flow = solved()
    assert cost == 14
    assert {task: machine for (task, machine) in flow if task.islower()} == {
        "a": "M0", "b": "U0", "c": "M1", "d": "M2", "e": "M3",
    }  # fmt: skip


def test_all_flow_is_drained_into_the_sink_by_way_of_machines_or_unscheduled_aggregators() -> None:
    """ "All of it must be drained into the sink node for a feasible solution." """
    _, flow = solved()
    into_sink = {tail: amount for (tail, head), amount in flow.items() if head == "S"}
    assert into_sink == {"M0": 1, "M1": 1, "M2": 1, "M3": 1, "U0": 1}


@pytest.mark.parametrize(
    ("prices", "cost", "waiting"), [((5, 7), 14, {"b"}), ((9, 7), 18, {"b"}), ((4, 3), 12, {"b", "d"})]
)
def test_the_optimum_trades_preferences_against_waiting(prices: tuple[int, int], cost: int, waiting: set[str]) -> None:
    """ "The optimal flow expresses the best trade-off between tasks' unscheduled wait time and their placement
    preferences": what costs more to place than to leave waits."""
    found, flow = solved(*prices)
    assert found == cost
    assert {task for (task, head) in flow if head.startswith("U") and task.islower()} == waiting


def test_all_tasks_are_considered_at_once() -> None:
    """The one machine with a GPU goes to the task that prefers it more, though another one came first: task by task, it
    would have gone to that."""
    machines = [Machine("gpu", "r", 1), Machine("plain", "r", 1)]
    early = Task("early", "a", 10 * GIGABYTE, gigabytes(gpu=5, plain=4))
    late = Task("late", "b", 10 * GIGABYTE, gigabytes(gpu=10))
    assert placed(Quincy(), [early], machines, relaxation.solve) == {"early": "gpu"}
    assert placed(Quincy(), [early, late], machines, relaxation.solve) == {"early": "plain", "late": "gpu"}


def test_running_tasks_are_preempted_and_migrated_if_prudent() -> None:
    """ "Not only schedules new tasks, but also reconsiders the entire existing workload." """
    runs = Task("runs", "a", 10 * GIGABYTE, gigabytes(m1=9), runs_on="m0", ran_s=5)
    assert placed(Quincy(), [runs], MACHINES[:2], relaxation.solve) == {"runs": "m1"}
    one = [Machine("m", "r", 1)]
    plain, urgent = Task("plain", "a", runs_on="m", ran_s=5), Task("urgent", "b", waited_s=20_000)
    assert placed(Quincy(), [plain, urgent], one, relaxation.solve) == {"plain": "", "urgent": "m"}
    assert placed(Quincy(), [replace(plain, ran_s=50_000), urgent], one, relaxation.solve) == {
        "plain": "m",
        "urgent": "",
    }


def test_figure_2_18_has_aggregators_for_the_cluster_and_its_racks() -> None:
    """ "Rack aggregators to group machines that share racks, and a cluster-level aggregator to group racks." """
    task = Task("t", "j", 10 * GIGABYTE, gigabytes(m0=6))
    problem, made = network_of(Quincy(), Cluster.of(MACHINES, [task]))
    assert set(made.aggregators) == {CLUSTER, rack_of("r0"), rack_of("r1")}
    names = {**{node: name for name, node in made.machines.items()}, made.sink: "S", made.waiting["j"]: "U"}
    names |= {node: aggregator.name or "X" for aggregator, node in made.aggregators.items()}
    arcs = {
        (names.get(int(tail), "t"), names[int(head)]) for tail, head in zip(problem.tail, problem.head, strict=True)
    }
    assert arcs == {
        ("t", "m0"), ("t", "r0"), ("t", "X"), ("t", "U"), ("U", "S"), ("X", "r0"), ("X", "r1"),
        ("r0", "m0"), ("r0", "m1"), ("r1", "m2"), ("r1", "m3"), ("m0", "S"), ("m1", "S"), ("m2", "S"), ("m3", "S"),
    }  # fmt: skip


def test_with_aggregators_a_network_has_few_arcs() -> None:
    """ "If each task node is connected to each machine node […] this requires billions of arcs." """
    machines = [Machine(f"m{number}", f"r{number // 20}", 2) for number in range(200)]
    tasks = [Task(f"t{number}", "j", 10 * GIGABYTE, gigabytes(m3=6, m77=3)) for number in range(300)]
    problem, _ = network_of(Quincy(), Cluster.of(machines, tasks))
    assert len(problem.tail) < 300 * 6 + 3 * 200
    assert len(problem.tail) < 300 * 200 / 20


def test_preference_arcs_cost_less_than_the_fall_back_to_the_cluster() -> None:
    """ "Tasks have low-cost preference arcs to machines and racks on which they achieve high data locality, but also
    higher-cost fall-back arcs […], used if none of the preferred machines are available." """
    policy, task = Quincy(), Task("t", "j", 10 * GIGABYTE, gigabytes(m0=6))
    policy.see(Cluster.of(MACHINES, [task]))
    costs = {arc.to: arc.cost for arc in policy.task(task).arcs}
    assert costs["m0"] < costs[rack_of("r0")] < costs[CLUSTER]  # type: ignore[operator]
    full = [replace(machine, slots=2 * (machine.rack == "r1")) for machine in MACHINES]
    assert placed(policy, [task], full, relaxation.solve)["t"] in ("m2", "m3")


def test_the_cost_of_a_way_is_the_sum_of_its_arcs() -> None:
    """ "When using aggregators, the cost of a task placement option is the sum of all arc costs on the path." """
    task = Task("t", "j", 10 * GIGABYTE, gigabytes(m0=2, m1=1))
    problem, _ = network_of(Quincy(), Cluster.of(MACHINES[1:2], [task]))
    solution = relaxation.solve(problem)
    assert solution.cost == int(problem.cost[np.flatnonzero(solution.flow)].sum())


@pytest.mark.parametrize(("share_min", "preferred"), [(0.14, ["m0"]), (0.02, ["m0", "m1", "m2"]), (1.0, [])])
def test_a_threshold_says_which_machines_are_preferred(share_min: float, preferred: list[str]) -> None:
    """§6.3.1: 14 % in Quincy, 2 % in Firmament, "what fraction of a task's input data must reside on a machine"."""
    policy, task = Quincy(share_min=share_min), Task("t", "j", 100 * GIGABYTE, gigabytes(m0=14, m1=13, m2=2, m3=1))
    policy.see(Cluster.of(MACHINES, [task]))
    assert [arc.to for arc in policy.task(task).arcs if isinstance(arc.to, str)] == preferred


@pytest.mark.parametrize(
    ("replicas", "parts", "preferred"),
    [(8, 1, {0.14: 8, 0.02: 8}), (3, 2, {0.14: 6, 0.02: 6}), (3, 10, {0.14: 0, 0.02: 30}), (3, 60, {0.14: 0, 0.02: 0})],
)
def test_a_share_is_of_the_input_however_many_replicas_its_parts_have(
    replicas: int, parts: int, preferred: dict[float, int]
) -> None:
    """§6.3.1: "what fraction of a task's input data must reside on a machine": of equal parts a machine holds one."""
    held = {f"m{number}": 6 * GIGABYTE // parts for number in range(replicas * parts)}
    machines = [Machine(name, "r", 1) for name in held]
    for share_min, count in preferred.items():
        policy, task = Quincy(share_min=share_min, preferred_max=100), Task("t", "j", 6 * GIGABYTE, held)
        policy.see(Cluster.of(machines, [task]))
        assert sum(isinstance(arc.to, str) for arc in policy.task(task).arcs) == count


def test_at_14_percent_a_task_has_at_most_seven_preferred_machines() -> None:
    """§6.3.1: "14% local data, which corresponds to at most seven preference arcs"."""
    held = {f"m{number}": 14 * GIGABYTE for number in range(7)} | {"m7": 2 * GIGABYTE}
    machines = [Machine(f"m{number}", "r", 1) for number in range(8)]
    policy, task = Quincy(), Task("t", "j", 100 * GIGABYTE, held)
    policy.see(Cluster.of(machines, [task]))
    assert sum(isinstance(arc.to, str) for arc in policy.task(task).arcs) == 7
