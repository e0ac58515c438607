"""What the plane places is what costs least: known answers, with the solvers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.policy import Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost
from scheduler.flow.policies.quincy import Quincy
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

FIVE = {
    "a": {"M0": 2, "M1": 3},
    "b": {"M1": 6},
    "c": {"M1": 1, "M3": 2},
    "d": {"M2": 4},
    "e": {"M3": 2},
}
WAITING = {"a": 5, "b": 5, "c": 5, "d": 7, "e": 7}


OTHER = "other"
"""A job that has no place anywhere."""


class Stated:
    """A policy whose costs are stated, by job and machine."""

    def __init__(self, costs: Mapping[str, Mapping[str, int]], waiting: Mapping[str, int]) -> None:
        self._costs = {**costs, OTHER: {}}
        self._waiting = {**waiting, OTHER: 1}
        self._machines: Mapping[str, Machine] = {}

    def see(self, cluster: Cluster) -> None:
        """See `Policy`, as the others."""
        self._machines = cluster.machines

    def task(self, task: Task) -> TaskCosts:
        arcs = [ArcTo(name, cost) for name, cost in self._costs[task.job].items() if name in self._machines]
        return TaskCosts(arcs, self._waiting[task.job])

    def machine_cost(self, machine: Machine) -> UnitCost:
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        return ()


def rig_of(
    slots: Mapping[str, int],
    costs: Mapping[str, Mapping[str, int]] = FIVE,
    waiting: Mapping[str, int] = WAITING,
) -> FlowRig:
    """Nodes with so many slots, which are all there before the first round."""
    nodes = {name: node_info(count) for name, count in slots.items()}
    return FlowRig(nodes, network=lambda: ClusterNetwork(Stated(costs, waiting)), inline=False)


def placed_together(rig: FlowRig) -> dict[str, list[str]]:
    """Where the tasks of the five jobs go, which come while another round is under way: one round weighs them all."""
    for job in (OTHER, *FIVE):
        rig.submit_job(1, job=job)
    return solve_all(rig)


def solve_all(rig: FlowRig) -> dict[str, list[str]]:
    """Where the tasks of each job are once there is nothing more to solve."""
    while rig.solve():
        pass
    rig.after(0.0)
    return {job: sorted(rig.placed(job).values()) for job in rig.core.jobs if rig.placed(job)}


def test_five_tasks_go_where_they_cost_least_together_and_one_waits() -> None:
    rig = rig_of({"M0": 1, "M1": 1, "M2": 1, "M3": 1})
    assert placed_together(rig) == {"a": ["M0"], "c": ["M1"], "d": ["M2"], "e": ["M3"]}
    (ask,) = rig.plane.explain(rig.core.jobs["b"].stages, 0.0)
    assert ask().waiting_cost == 5


def test_without_a_machine_what_would_go_there_waits() -> None:
    rig = rig_of({"M0": 1, "M1": 1, "M2": 1})
    assert placed_together(rig) == {"a": ["M0"], "c": ["M1"], "d": ["M2"]}


def test_where_waiting_costs_more_who_has_no_other_place_goes_first() -> None:
    rig = rig_of({"M0": 1, "M1": 1, "M2": 1, "M3": 2}, waiting=WAITING | dict.fromkeys("abc", 9))
    assert placed_together(rig) == {"a": ["M0"], "b": ["M1"], "c": ["M3"], "d": ["M2"], "e": ["M3"]}


def test_users_have_shares_of_the_slots_by_their_weights() -> None:
    nodes = {name: node_info(4) for name in ("n1", "n2")}
    rig = FlowRig(nodes, network=lambda: ClusterNetwork(Quincy()), user_weight=("bob=3",))
    rig.submit_job(200, job="of-anna", user="anna")
    rig.submit_job(200, job="of-bob", user="bob", client="d")
    rng, of_bob, ends = random.Random(1), 0, 160
    for end in range(ends + 40):
        running = [(node, attempt) for node, launches in rig.running.items() for attempt in launches]
        assert len(running) == 8
        if end >= 40:
            of_bob += len(rig.placed("of-bob"))
        rig.end(*rng.choice(running), now_s=float(end))
    assert 0.9 * 6 <= of_bob / ends <= 1.1 * 6


def test_a_gang_pays_for_all_its_places() -> None:
    costs, waiting = {"gang": {"M0": 4, "M1": 9}}, {"gang": 5}
    gang = rig_of({"M0": 1, "M1": 1}, costs, waiting)
    gang.submit_job(2, job="gang", gang=True)
    assert solve_all(gang) in ({"gang": ["M0", "M1"]}, {})
    single = rig_of({"M0": 1, "M1": 1}, costs, waiting)
    single.submit_job(2, job="gang")
    assert solve_all(single) == {"gang": ["M0"]}
