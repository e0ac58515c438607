"""Tasks with leases under virtual time: in the lean cluster, which has no faults, and in the one that fails."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from simulator import hosts
from simulator.cluster import Cluster
from simulator.figures.catalogue import paper
from simulator.simulate import simulate
from simulator.soak import executors
from simulator.soak.broken import Broken
from simulator.soak.world import World
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus

LATENCY_S = 0.1
"""More than the simulated network takes for all that a task needs."""


def test_a_lean_cluster_has_tasks_end_early_where_another_user_waits() -> None:
    """Tasks of a second on two slots at too high a load; each is done when it is asked to yield, or after its time."""
    workload = Synthetic(tasks=1, jobs=60, load=0.95, durations=Durations("constant", 1000.0), users=("anna", "bert"))
    submit, early = hosts.ClientHost.submit, hosts.NodeHost._end_early
    ended: list[int] = []

    def submit_with_lease(client: Any, record: Any, **fields: Any) -> None:
        submit(client, record, **fields, lease_s=0.25)

    def end_early(node: Any, run: int) -> None:
        ended.append(run)
        early(node, run)

    cluster = Cluster(nodes=1, slots=2)
    with mock.patch.object(hosts.ClientHost, "submit", submit_with_lease):
        with mock.patch.object(hosts.NodeHost, "_end_early", end_early):
            leased = simulate(cluster, workload, "sparrow", paper(), seed=1)
        again = simulate(cluster, workload, "sparrow", paper(), seed=1)
    plain = simulate(cluster, workload, "sparrow", paper(), seed=1)
    assert len(ended) > 5
    assert again.figures() == leased.figures()
    assert leased.figures()["wait_p50_ms"] < plain.figures()["wait_p50_ms"]


@pytest.mark.parametrize("app", ["many", "pool"])
@pytest.mark.parametrize("hears", [1.0, 0.0])
def test_a_user_waits_for_a_lease_and_the_time_to_yield_at_most(
    monkeypatch: pytest.MonkeyPatch, app: str, hears: float
) -> None:
    monkeypatch.setattr(executors, "HEARS_OF_YIELD", hears)
    monkeypatch.setattr(executors, "YIELDING_TAKES_MAX", 0.9)
    world = World(nodes=[2], users=["anna", "bert"], node={"yield_within_s": 0.5})
    long = world.submit([60.0, 60.0], app=app, lease_s=1.0, max_attempts=1)
    world.run_for(10.5)
    short = world.submit([0.01] * 2, app=app, client=1)
    world.run_for(3.0)
    assert short.statuses() == [TaskStatus.FINISHED] * 2
    leases = 2 if app == "pool" else 1  # An executor of its own is started when the first one ends.
    assert short.response_s <= leases * 1.0 + 0.5 + LATENCY_S
    (node,) = world.nodes
    counters = node.core.counters
    assert 1 <= counters.yields <= 2 and counters.yields_late == (0 if hears else counters.yields)
    world.run()
    world.check_end()
    assert long.statuses().count(TaskStatus.LOST) == counters.yields_late
    assert long.statuses().count(TaskStatus.FINISHED) == 2 - counters.yields_late


def test_the_executors_notice_who_is_asked_without_reason() -> None:
    world = World(nodes=[1])
    world.submit([5.0])
    world.run_for(0.1)
    (executor,) = (one for one in world.nodes[0].executors.values() if one.running)
    with pytest.raises(Broken, match="has no lease"):
        executor.received(x.Yield(next(iter(executor.running)), 1.0))


def test_the_executors_notice_two_that_are_asked_at_the_same_time() -> None:
    world = World(nodes=[2])
    world.submit([5.0, 5.0], lease_s=1.0)
    world.run_for(0.1)
    (executor,) = (one for one in world.nodes[0].executors.values() if one.running)
    first, second = executor.running
    executor.received(x.Yield(first, 1.0))
    with pytest.raises(Broken, match="at the same time"):
        executor.received(x.Yield(second, 1.0))
