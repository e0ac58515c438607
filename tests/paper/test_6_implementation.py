"""Paper §6, Implementation: schedulers, node monitors, slots and executors together, on the real cores; and the
prefetching that the paper does not have."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from node_monitor.host.resources import cores
from simulator.soak.world import World
from sparrow_py import LocalCluster
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from sparrow_py.wire.http_get import http_get_json


def test_arbitrarily_many_schedulers_operate_concurrently() -> None:
    """ "Because batch sampling does not require any communication between schedulers, arbitrarily many schedulers may
    operate concurrently, and users or applications may use any available scheduler." """
    world = World(3, nodes=[2] * 4, schedulers=5, users=["anna"] * 4, latency=(0.0005, 0.004))
    logs = [world.submit([0.05] * 4, client=number % 4) for number in range(20)]
    world.run()
    world.check_end()
    assert all(log.statuses() == [TaskStatus.FINISHED] * 4 for log in logs)
    assert {message.job for scheduler, _, message in world.sent if isinstance(message, m.JobAccepted)} == set(
        world.logs
    )
    assert len({scheduler for scheduler, _, message in world.sent if isinstance(message, m.JobAccepted)}) == 5


def test_frameworks_share_a_machine_and_its_slots() -> None:
    """ "Executor processes for multiple frameworks may run co-resident on a single machine; the node monitor federates
    resource usage between co-located frameworks", in "a fixed number of slots": two apps, never more than 3 tasks."""
    world = World(nodes=[3])
    logs = [world.submit([0.1] * 9, app=app) for app in ("many", "pool")]
    world.run()
    world.check_end()  # The world itself asserts that a slot never runs two tasks.
    assert max(log.response_s for log in logs) == pytest.approx(6 * 0.1, abs=0.02)
    assert all(log.statuses() == [TaskStatus.FINISHED] * 9 for log in logs)


def test_executors_are_long_lived() -> None:
    """ "Executor processes are responsible for executing tasks, and are long-lived"; what a job's tasks have in common
    is sent once per job and node."""
    world = World(nodes=[2])
    executors = set(world.nodes[0].executors)
    for _ in range(5):
        world.submit([0.01] * 10)
    world.run()
    world.check_end()
    assert set(world.nodes[0].executors) == executors
    commons = [message.job for _, _, message in world.sent if isinstance(message, m.Common)]
    assert sorted(commons) == sorted(world.logs)


def test_a_request_lists_tasks_each_with_an_optional_list_of_nodes() -> None:
    """ "Each scheduling request includes a list of task specifications; the specification for a task includes a task
    description, opaque to Sparrow, and an optional list of nodes on which the task should be run." """
    world = World(2, nodes=[2] * 4)
    log = world.submit([0.01] * 8, preferred=[("n1",), ()])
    world.run()
    world.check_end()
    assert log.statuses() == [TaskStatus.FINISHED] * 8
    assert {start.node.name for start in log.starts if start.task % 2 == 0} == {"n1"}


def test_a_job_of_phases_the_first_constrained_and_the_rest_anywhere() -> None:
    """ "The first phase of the job is typically constrained to execute on machines that contain partitions of the
    cached input data set, while the remaining phases (which read data shuffled over the network) can execute anywhere.
    When one phase completes, Spark requests scheduling of the tasks in the subsequent phase": here the scheduler does
    so itself."""
    world = World(2, nodes=[2] * 4)
    cached = {"preferred": [("n0", "n1"), ("n1", "n2")]}
    phases = [("scan", [], [0.02] * 8, cached), ("shuffle", ["scan"], [0.02] * 16), ("sum", ["shuffle"], [0.02])]
    log = world.submit_stages(*phases, large=True)
    world.run()
    world.check_end()  # The world itself asserts that a phase begins when the one before has ended.
    assert log.statuses() == [TaskStatus.FINISHED] * 25
    assert "n3" not in {start.node.name for start in log.starts if start.task < 8}
    assert "n3" in {start.node.name for start in log.starts}


def test_a_node_has_as_many_slots_as_cores() -> None:
    """ "In our implementation, the number of slots on each machine is set to the number of cores": unless an operator
    says otherwise."""
    with LocalCluster(1, 1) as cluster:
        (node,) = http_get_json(cluster.addresses[0], "/v1/nodes")["nodes"]
    assert node["slots"] == cores()


# ---- prefetch: not in the paper --------------------------------------------------------------


@pytest.mark.parametrize("app", ["many", "pool"])
@pytest.mark.parametrize("prefetch", [1, 3, 8])
def test_never_more_than_prefetch_tasks_a_slot_are_ahead(app: str, prefetch: int) -> None:
    """Asked for, waiting, or given to an executor ahead of time: all count."""
    world = World(nodes=[2], latency=(0.0002, 0.0002))
    log = world.submit([0.0003] * 300, app=app, prefetch=prefetch, probe_ratio=1)
    most = 0
    while log.ended_count == 0:
        world.run_for(0.0001)
        core = world.nodes[0].core
        asked = sum(ask.left for ask in core.asks.open.values())
        waiting = len(core.attempts.by_key) + len(list(core.backlog.ready.all())) - world.nodes[0].running
        assert waiting + asked <= prefetch * 2 + core.slots - world.nodes[0].running
        most = max(most, waiting)
    world.run()
    world.check_end()
    assert prefetch <= most <= prefetch * 2  # It is used, and not overdone.


def test_prefetched_tasks_count_as_queued_and_can_be_cancelled() -> None:
    """One task runs, four are prefetched, the rest wait at the scheduler: all but the first are cancelled."""
    world = World(nodes=[1])
    log = world.submit([0.1] * 10, prefetch=4, probe_ratio=1)
    world.run_for(0.05)
    core = world.nodes[0].core
    assert len(core.attempts.by_key) == 1 and len(log.starts) == 1
    assert len(list(core.backlog.ready.all())) == 4 and len(core.queue) == 9
    world.cancel(log)
    world.run()
    world.check_end()
    assert log.statuses() == [TaskStatus.FINISHED] + [TaskStatus.CANCELLED] * 9
    assert log.outcomes[-1].attempts == 1 and log.outcomes[0].attempts == 0


def test_prefetched_tasks_are_handed_back_on_drain() -> None:
    """They run elsewhere, at once; it was no start."""
    world = World(nodes=[1, 1])
    log = world.submit([0.1] * 10, prefetch=4, probe_ratio=1, max_attempts=1)
    world.run_for(0.05)
    node = world.nodes[0]
    world.drain_node(node, back_after_s=100.0)
    world.run()
    world.check_end()
    assert log.statuses() == [TaskStatus.FINISHED] * 10
    assert [start.node for start in log.starts].count(node) == 1
    assert {outcome.attempts for outcome in log.outcomes} == {1}


def test_who_does_not_prefetch_is_not_starved_by_one_who_does() -> None:
    """Both backlogged, equal weights, tasks of 2 ms: each gets half of the slots."""
    world = World(nodes=[4], users=("anna", "bert"), checks=False)
    world.submit([0.002] * 8000, probe_ratio=1, prefetch=32)
    world.submit([0.002] * 8000, probe_ratio=1, client=1)
    world.run_for(2.0)
    served = [world.service_s[("n0", user)] for user in ("anna", "bert")]
    assert served[1] / sum(served) > 0.45


# ---- shares and failures, end to end ----------------------------------------------------------

WEIGHTS = {"anna": 1.0, "bert": 1.0, "cleo": 2.0}
MIXES = {"anna": (0.02, 0.05), "bert": (0.1, 0.4), "cleo": (0.02, 0.4, 0.1)}


def shares(nodes: int, seed: int, seconds: float) -> dict[str, float]:
    """Slot-seconds of three backlogged users, over their weights, relative to the mean."""
    rng = random.Random(seed)
    world = World(
        seed, nodes=[4] * nodes, users=list(WEIGHTS), checks=False, scheduler={"user_weight": ("cleo=2",)}, schedulers=2
    )
    for client, user in enumerate(WEIGHTS):
        mean_s = fmean(MIXES[user])
        tasks = int(1.5 * nodes * 4 * seconds * WEIGHTS[user] / sum(WEIGHTS.values()) / mean_s)
        for _ in range(4):
            world.submit([rng.choice(MIXES[user]) for _ in range(tasks // 4)], client=client)
    world.run_for(seconds)
    for client in world.clients:
        assert client.core.jobs, "it was to be backlogged to the end"
    served = {user: sum(world.service_s[(node.name, user)] for node in world.nodes) for user in WEIGHTS}
    assert sum(served.values()) == pytest.approx(nodes * 4 * seconds, rel=0.03)  # Hardly a slot was ever idle.
    return {user: served[user] / WEIGHTS[user] / (sum(served.values()) / 4) for user in WEIGHTS}


def test_three_users_get_slot_seconds_by_weight_on_one_node() -> None:
    """§3.5 through scheduler, node monitor and executors: weights 1, 1, 2, and tasks of 20 to 400 ms. On one node the
    bound of `node_monitor.queueing.fair` is 4 · 4 · 0.4 s = 6.4 s of the 60 s that a unit of weight gets."""
    got = shares(1, seed=1, seconds=60.0)
    assert all(abs(share - 1) < 6.4 / 60 for share in got.values()), got


def test_three_users_get_slot_seconds_by_weight_across_ten_nodes() -> None:
    """ "By extension [...] their fair share of the aggregate resources they use in expectation." """
    got = shares(10, seed=2, seconds=8.0)
    assert all(abs(share - 1) < 0.05 for share in got.values()), got


def responses(nodes: int, dead: int, seed: int) -> list[float]:
    """Response times of 60 jobs of 6 tasks at 60 % load of 3 nodes, after `dead` nodes died."""
    rng = random.Random(seed)
    world = World(seed, nodes=[4] * nodes, checks=False, latency=(0.0003, 0.0007))
    world.submit([0.2] * 30)
    world.run_for(0.1)
    for _ in range(dead):
        world.crash_node(world.nodes[0], back_after_s=None)
    world.run()
    logs = []
    for _ in range(60):
        world.run_for(rng.expovariate(0.6 * 12 / (6 * 0.1)))
        logs.append(world.submit([rng.expovariate(10.0) for _ in range(6)]))
    world.run()
    world.check_end()
    return [log.response_s for log in logs]


def test_with_one_of_four_nodes_dead_response_times_match_a_cluster_of_three() -> None:
    """The same arrivals and tasks, by pairs of runs: the mean difference is within its noise, and small."""
    pairs = [(fmean(responses(4, 1, seed)), fmean(responses(3, 0, seed))) for seed in range(6)]
    differences = [dead - three for dead, three in pairs]
    noise = stdev(differences) / len(differences) ** 0.5
    typical = fmean(three for _, three in pairs)
    assert abs(fmean(differences)) <= 3 * noise + 0.005 * typical, (differences, typical)
    assert abs(fmean(differences)) < 0.05 * typical, (differences, typical)


def test_tasks_go_out_in_submission_order() -> None:
    """On one node, started in order."""
    world = World(nodes=[3])
    log = world.submit([0.01] * 50)
    world.run()
    assert all(a.task < b.task for a, b in pairwise(log.starts))
