"""Why tasks wait though slots are free: limits of a node and a rack, resources, gangs; and words for closed ways."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.quincy import Quincy
from scheduler.plane import WhyWaiting
from sparrow_py.wire import messages as m
from tests.support.flow_networks import NEVER_S
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

FREE = "4 of 4 nodes that may run it have a slot free"
CLOSED = ("cluster", "no machine takes another of its tasks")


def rig_of(slots: int = 4, **fields: Any) -> FlowRig:
    """Four nodes in two racks, with the real network."""
    nodes = {f"n{number}": node_info(slots, attributes={"rack": "ab"[number % 2]}, **fields) for number in range(4)}
    return FlowRig(nodes, network=lambda: ClusterNetwork(Quincy(), second_after_s=NEVER_S))


def why(rig: FlowRig, job: str = "j") -> WhyWaiting:
    """The answer for the job's only stage, after another round, which knows what the one before has placed."""
    rig.tick(2.0)
    (ask,) = rig.plane.explain(rig.core.jobs[job].stages, 2.0)
    found: WhyWaiting = ask()
    return found


@pytest.mark.parametrize(
    ("tasks", "running", "fields", "reason"),
    [
        (6, 4, {"max_per_node": 1}, "max_per_node=1: all 4 nodes have one of them"),
        (9, 8, {"max_per_node": 2}, "max_per_node=2: all 4 nodes have 2 of them"),
        (6, 2, {"max_per_rack": 1}, "max_per_rack=1: both racks have one of them"),
        (7, 6, {"max_per_rack": 3}, "max_per_rack=3: both racks have 3 of them"),
    ],
)
def test_a_limit_that_is_reached_everywhere_is_named(
    tasks: int, running: int, fields: dict[str, int], reason: str
) -> None:
    rig = rig_of()
    rig.submit_job(tasks, **fields)
    assert len(rig.placed()) == running
    told = why(rig)
    assert told.reasons == [FREE, reason]
    assert [(place.to, place.limit) for place in told.places] == [CLOSED]


def test_a_limit_that_is_reached_at_some_nodes_says_at_how_many() -> None:
    rig = rig_of(slots=1)
    rig.submit_job(2, job="others")
    rig.submit_job(3, max_per_node=1)
    assert "max_per_node=1: 2 of 4 nodes have one of them" in why(rig).reasons


def test_a_limit_that_is_reached_nowhere_is_not_named() -> None:
    rig = rig_of(slots=1)
    rig.submit_job(4, job="others")
    rig.submit_job(1, max_per_node=1, max_per_rack=1)
    assert why(rig).reasons == ["the slots for placed tasks are taken at all 4 nodes that may run it"]


def test_the_resource_that_lacks_is_named() -> None:
    rig = rig_of(resources={"gpu": 1.0, "disk": 8.0})
    rig.submit_job(5, demand={"gpu": 1.0, "disk": 2.0})
    assert len(rig.placed()) == 4
    told = why(rig)
    assert told.reasons == [f"{FREE}; 4 of these lack what a task demands: gpu=1"]
    assert [(place.to, place.limit) for place in told.places] == [CLOSED]
    rig.end(*next((node, attempt) for node, has in rig.running.items() for attempt in has))
    rig.submit_job(1, job="k", demand={"gpu": 1.0})
    assert why(rig, "k").reasons[0] == f"{FREE}; 4 of these lack what a task demands: gpu=1"


def test_one_node_that_lacks_a_resource_is_told_as_one() -> None:
    rig = rig_of(slots=1, resources={"gpu": 1.0})
    rig.node_up("n4", node_info(2, resources={"gpu": 1.0}))
    rig.submit_job(6, demand={"gpu": 1.0})
    expected = "1 of 5 nodes that may run it have a slot free; 1 of these lacks what a task demands: gpu=1"
    assert why(rig).reasons == [expected]


@pytest.mark.parametrize(
    ("others", "fields", "free"),
    [
        (3, {}, "1 is free"),
        (2, {}, "2 are free"),
        (4, {}, "0 are free"),
        (1, {"max_per_node": 1}, "3 are free"),
    ],
)
def test_a_gang_that_waits_is_called_one_with_the_places_that_it_needs_and_has(
    others: int, fields: dict[str, int], free: str
) -> None:
    rig = rig_of(slots=1)
    rig.submit_job(others, job="others")
    rig.submit_job(4, gang=True, **fields)
    assert len(rig.placed()) == others
    assert f"a gang of 4 tasks needs as many places at once; {free}" in why(rig).reasons


def test_a_gangs_free_places_keep_to_its_racks_limit_and_its_demand() -> None:
    rig = rig_of(resources={"gpu": 2.0})
    rig.submit_job(1, job="others", demand={"gpu": 2.0})
    rig.submit_job(8, gang=True, demand={"gpu": 1.0})
    assert "a gang of 8 tasks needs as many places at once; 6 are free" in why(rig).reasons
    racks = rig_of(slots=1)
    racks.submit_job(3, job="others")
    racks.submit_job(2, gang=True, max_per_rack=1)
    assert "a gang of 2 tasks needs as many places at once; 1 is free" in why(racks).reasons


def test_a_place_that_a_task_prefers_and_that_is_closed_is_named() -> None:
    rig = rig_of()
    detail = m.TaskDetail(("n1",))
    rig.submit_job(2, max_per_node=1, details={task: detail for task in range(2)}, local=True)
    (node,) = set(rig.placed().values())
    assert node == "n1" and len(rig.placed()) == 1
    told = why(rig)
    assert ("n1", "n1 takes no other of its tasks") in [(place.to, place.limit) for place in told.places]
