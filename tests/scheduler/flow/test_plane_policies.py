"""Each policy in a scheduler with its flow plane: what jobs state and nodes measure reaches it, and it decides."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.table import POLICIES, policy_named
from sparrow_py.wire import messages as m
from tests.support.flow_networks import NEVER_S
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

NET = "net_bytes_per_s"
MB = 1e6


def rig_of(policy: str, nodes: dict[str, m.NodeInfo]) -> FlowRig:
    return FlowRig(nodes, network=lambda: ClusterNetwork(policy_named(policy), second_after_s=NEVER_S))


def linked() -> m.NodeInfo:
    """A node with a link of 1,250 MB/s."""
    return node_info(8, resources={NET: 1250 * MB})


@pytest.mark.parametrize("policy", POLICIES)
def test_under_any_policy_all_tasks_run_as_slots_get_free(policy: str) -> None:
    rig = rig_of(policy, {"n1": node_info(2), "n2": node_info(1)})
    rig.submit_job(5, job="a", expected_duration_s=3.0)
    rig.submit_job(2, job="b")
    assert Counter(rig.placed("a").values()) + Counter(rig.placed("b").values()) == {"n1": 2, "n2": 1}
    assert rig.end_all() == 7
    assert not rig.core.jobs and not rig.plane.left_over()


def test_quincy_reads_where_the_data_of_tasks_lie() -> None:
    rig = rig_of("quincy", {f"n{number}": node_info(2) for number in range(4)})
    data = {task: m.TaskDetail(data=((f"n{task % 4}", 10**10), (f"n{(task + 1) % 4}", 10**8))) for task in range(8)}
    rig.submit_job(8, details=data)
    assert rig.placed() == {task: f"n{task % 4}" for task in range(8)}


def test_data_with_replicas_are_preferred_where_they_lie_if_what_they_are_parts_of_is_stated() -> None:
    """Eight replicas of all of the input are an eighth each of the sum, which is below the threshold of 14 %."""
    nodes = {f"n{number}": node_info(1) for number in range(20)}
    replicas = tuple((f"n{number}", 10**10) for number in range(12, 20))
    rig = rig_of("quincy", nodes)
    rig.submit_job(8, details={task: m.TaskDetail(data=replicas, data_bytes=10**10) for task in range(8)})
    assert set(rig.placed().values()) == {name for name, _ in replicas}


def test_the_network_aware_policy_fills_links_evenly_and_none_beyond_what_it_has() -> None:
    rig = rig_of("network-aware", {"n1": linked(), "n2": linked()})
    rig.submit_job(8, demand={NET: 400 * MB})
    assert Counter(rig.placed().values()) == {"n1": 3, "n2": 3}
    assert rig.end_all() == 8


def test_the_network_aware_policy_counts_what_nodes_measure() -> None:
    rig = rig_of("network-aware", {"n1": linked(), "n2": linked()})
    rig.node("n1", m.NodeLoad(8, 8, 0, 0, {NET: 1250 * MB}, net_in_bytes_per_s=900 * MB))
    rig.submit_job(3, demand={NET: 400 * MB})
    assert Counter(rig.placed().values()) == {"n2": 3}


def test_the_network_aware_policy_goes_by_what_tasks_of_a_stage_have_used() -> None:
    """They demand a tenth of a link and take all of it: the next ones go to a link each, and the others wait."""
    rig = rig_of("network-aware", {"n1": linked(), "n2": linked()})
    rig.submit_job(1, job="first", name="read", demand={NET: 125 * MB})
    ((node, attempts),) = [(node, attempts) for node, attempts in rig.running.items() if attempts]
    (attempt,) = attempts
    rig.end(node, attempt, used=m.Used(net_bytes_per_s=1200 * MB))
    rig.submit_job(4, job="second", name="read", demand={NET: 125 * MB})
    assert Counter(rig.placed("second").values()) == {"n1": 1, "n2": 1}
    rig.tick(100.0)
    assert Counter(rig.placed("second").values()) == {"n1": 2, "n2": 2}, "not for ever"


def test_shortest_job_goes_by_stated_durations() -> None:
    rig = rig_of("shortest-job", {"n1": node_info(1)})
    rig.submit_job(1, job="first", expected_duration_s=1.0)
    rig.submit_job(1, job="long", expected_duration_s=100.0)
    rig.submit_job(1, job="unknown")
    rig.submit_job(1, job="short", expected_duration_s=2.0)
    order = []
    while rig.running["n1"]:
        ((attempt, launch),) = rig.running["n1"].items()
        order.append(launch.job)
        rig.end("n1", attempt)
    assert order == ["first", "short", "long", "unknown"]


def test_co_location_keeps_tasks_off_nodes_whose_cpus_are_busy() -> None:
    rig = rig_of("co-location", {"n1": node_info(4), "n2": node_info(4)})
    rig.node("n1", m.NodeLoad(4, 4, 0, 0, {}, cpu=3.0))
    rig.submit_job(4)
    assert Counter(rig.placed().values()) == {"n1": 1, "n2": 3} or Counter(rig.placed().values()) == {"n2": 4}


def test_load_spreading_counts_measured_load_if_it_is_asked_to() -> None:
    for policy, found in (("load-spreading", {"n1": 2, "n2": 2}), ("load-spreading,measured=cpu", {"n2": 4})):
        rig = rig_of(policy, {"n1": node_info(4), "n2": node_info(4)})
        rig.node("n1", m.NodeLoad(4, 4, 0, 0, {}, cpu=9.0))
        rig.submit_job(4)
        assert Counter(rig.placed().values()) == found


@pytest.mark.parametrize(("policy", "step_s"), [("quincy", 2000.0), ("load-spreading", 1000.0)])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_step_of_priority_is_worth_so_much_waiting(policy: str, step_s: float, steps: int) -> None:
    """As docs/flow.md says: priorities are a price, and not strict."""
    for later_s, first in ((steps * step_s - 20.0, "high"), (steps * step_s + 20.0, "low")):
        rig = rig_of(policy, {"n1": node_info(1)})
        rig.submit_job(1, job="runs")
        rig.submit_job(1, job="low", priority=-steps)
        rig.submit_job(1, job="high", now_s=later_s)
        rig.end("n1", *rig.running["n1"], now_s=later_s + 1.0)
        assert rig.placed(first) == {0: "n1"}, (later_s, first)
