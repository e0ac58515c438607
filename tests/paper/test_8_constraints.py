"""Paper §8, Limitations and Future Work, on constraints: delay scheduling (`delay_s`), inter-job ones (`avoid`,
`avoid_by`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.soak.job_log import JobLog
from simulator.soak.world import World
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.paper.test_3_3_constraints import Rig

FINISHED = TaskStatus.FINISHED

# ---- delay scheduling: constraints as "soft" -----------------------------------------------------


def test_probes_go_first_to_nodes_with_the_data_and_to_others_when_these_take_longer_than_a_threshold() -> None:
    rig = Rig("ABCD")
    rig.submit("A", delay_s=0.5)
    assert rig.reserved() == {"A": 1}
    rig.core.tick(0.49)
    assert not rig.reserved()
    rig.core.tick(0.5)
    more = rig.reserved()
    assert sum(more.values()) == 2  # Additional ones, anywhere; the first is still there.
    assert rig.core.live_reservations("A") >= 1
    rig.core.check_invariants()
    assert rig.asks(next(node for node in more if node != "A")) == [0]


def test_a_task_that_its_preferred_node_takes_in_time_sends_no_more_probes() -> None:
    rig = Rig("ABCD")
    rig.submit("A", delay_s=0.5)
    rig.reserved()
    assert rig.asks("A") == [0]
    rig.core.tick(1.0)
    assert not rig.reserved()


def test_without_a_threshold_the_constraint_is_firm() -> None:
    rig = Rig("ABCD")
    rig.submit("A")
    rig.reserved()
    rig.core.tick(1e6)
    assert not rig.reserved()


def test_a_task_whose_preferred_nodes_are_not_there_runs_elsewhere_after_the_delay() -> None:
    rig = Rig("AB")
    rig.submit("X", delay_s=0.5)
    assert not rig.reserved()
    rig.core.tick(0.5)
    assert rig.reserved()


@pytest.mark.parametrize(("delay_s", "elsewhere"), [(None, False), (0.05, True), (5.0, False)])
def test_delay_scheduling_takes_load_off_a_busy_node(delay_s: float | None, elsewhere: bool) -> None:
    world = World(1, nodes=[1, 1, 1])
    log = world.submit([0.1] * 9, preferred=[("n0",)], delay_s=delay_s)
    world.run()
    world.check_end()
    assert log.statuses() == [FINISHED] * 9
    assert any(start.node.name != "n0" for start in log.starts) == elsewhere


# ---- inter-job constraints -----------------------------------------------------------------------


def test_tasks_of_jobs_that_avoid_each_other_are_not_on_one_node_at_a_time() -> None:
    for seed in range(20):
        world = World(seed, nodes=[2, 2, 2])
        first = world.submit([0.05] * 4, probe_ratio=1.0)
        world.run_for(0.005)
        second = world.submit([0.05] * 4, avoid=[first.spec.job_id])
        world.run()  # `World` checks it with every start.
        world.check_end()
        assert second.avoids == [first]
        assert first.statuses() == second.statuses() == [FINISHED] * 4


def test_it_goes_both_ways_and_both_end_even_on_one_node() -> None:
    world = World(5, nodes=[2])
    first = world.submit([0.02] * 6)
    world.run_for(0.005)
    second = world.submit([0.02] * 2, avoid=[first.spec.job_id])
    world.run()
    world.check_end()
    assert first.statuses() + second.statuses() == [FINISHED] * 8
    assert min(start.given_at_s for start in second.starts) >= max(start.ended_at_s or 0.0 for start in first.starts)


def test_a_job_that_has_to_keep_away_from_a_node_keeps_nobody_else_from_it() -> None:
    """The user's oldest job waits for one that it avoids; a third, which avoids nobody, runs meanwhile."""
    world = World(1, nodes=[2], scheduler={"probe_sharing": False})
    avoided = world.submit([0.5], app="pool")
    world.run_for(0.005)
    oldest = world.submit([0.01] * 2, avoid=[avoided.spec.job_id])
    third = world.submit([0.01] * 2)
    world.run()
    world.check_end()
    assert oldest.statuses() + third.statuses() == [FINISHED] * 4
    assert third.ended_at_s < avoided.ended_at_s < oldest.ended_at_s


def test_the_two_are_sent_to_the_same_scheduler_which_alone_can_see_to_it() -> None:
    world = World(2, nodes=[2, 2], schedulers=3)
    first = world.submit([0.05] * 2)
    others = [world.submit([0.05], avoid=[first.spec.job_id]) for _ in range(5)]
    world.run()
    world.check_end()
    assert {to for log in others for to in log.submitted_to} == set(first.submitted_to)


def test_a_job_that_has_ended_or_is_anothers_is_not_avoided() -> None:
    rig = Rig("A")
    rig.submit("")
    for user, client in (("bert", "d"), ("anna", "c")):
        job = m.SubmitJob("k", 0, "", [m.Stage("many", 1, b"", "", 2.0, 0, None)], 3, False, None, False)
        job.avoid = ("gone", "j", "k")
        rig.core.receive_from_client(client, user, job, 0.0)
        assert rig.core.jobs["k"].avoids == ({"j": {""}} if user == "anna" else {})
        rig.core.client_down("d", 0.0)


# ---- inter-job constraints over attributes -------------------------------------------------------

PLACEMENTS = ("sparrow", "batch", "per-task", "random", "central")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_tasks_for_job_a_do_not_run_on_racks_with_tasks_for_job_b(placement: str) -> None:
    for seed in range(5):
        world = World(seed, nodes=[2] * 6, racks=("r0", "r1", "r2"), scheduler={"placement": placement})
        first = world.submit([0.05] * 2, probe_ratio=1.0)
        world.run_for(0.005)
        second = world.submit([0.05] * 5, avoid=[first.spec.job_id], avoid_by="rack")
        world.run()  # `World` checks it with every start.
        world.check_end()
        assert second.avoids == [first]
        assert first.statuses() + second.statuses() == [FINISHED] * 7


def racks_of(log: JobLog) -> set[str]:
    return {start.node.info().attributes.get("rack", "none") for start in log.starts}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_rack_is_kept_free_of_the_other_job_for_as_long_as_it_runs_there(placement: str) -> None:
    world = World(3, nodes=[2] * 4, racks=("r0", "r1"), scheduler={"placement": placement})
    first = world.submit([5.0], where=["rack == r0"])
    world.run_for(0.01)
    second = world.submit([0.05] * 8, avoid=[first.spec.job_id], avoid_by="rack")
    third = world.submit([0.05] * 8, avoid=[first.spec.job_id])
    world.run()
    world.check_end()
    assert racks_of(second) == {"r1"} and second.ended_at_s < first.ended_at_s
    assert third.ended_at_s < first.ended_at_s and first.starts[0].node not in {one.node for one in third.starts}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_jobs_that_avoid_each_other_by_rack_end_even_if_there_is_only_one(placement: str) -> None:
    """It goes both ways: the first, which names nobody, waits for the other as well."""
    world = World(4, nodes=[1, 1, 1], racks=("r0",), scheduler={"placement": placement})
    first = world.submit([0.02] * 6)
    second = world.submit([0.02] * 6, avoid=[first.spec.job_id], avoid_by="rack")
    third = world.submit([0.02] * 3, avoid=[first.spec.job_id, second.spec.job_id], avoid_by="rack")
    world.run()
    world.check_end()
    assert first.statuses() + second.statuses() + third.statuses() == [FINISHED] * 15


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_without_the_attribute_runs_nothing_of_a_job_that_avoids_by_it(placement: str) -> None:
    world = World(5, nodes=[2] * 4, racks=("r0", ""), scheduler={"placement": placement})
    first = world.submit([0.05] * 12)
    world.run_for(0.005)
    second = world.submit([0.02] * 4, avoid=[first.spec.job_id], avoid_by="rack")
    world.run()
    world.check_end()
    assert racks_of(first) == {"r0", "none"} and racks_of(second) == {"r0"}
    assert first.statuses() + second.statuses() == [FINISHED] * 16


def test_a_job_is_refused_if_no_node_has_the_attribute_unless_it_waits_for_one() -> None:
    world = World(6, nodes=[1])
    refused = world.submit([0.01], avoid_by="rack")
    waiting = world.submit([0.01], avoid_by="rack", wait_for_nodes_s=0.5)
    world.run()
    world.check_end()
    assert isinstance(refused.error, InvalidRequest) and refused.error.field == "avoid_by"
    assert "no node monitor satisfies rack exists (they have: rack unset)" in str(refused.error)
    assert waiting.error is None and waiting.statuses() == [TaskStatus.LOST]


def test_to_avoid_by_node_is_to_avoid_each_node() -> None:
    world = World(7, nodes=[2, 2])
    first = world.submit([5.0])
    world.run_for(0.005)
    second = world.submit([0.01] * 3, avoid=[first.spec.job_id], avoid_by="node")
    world.run()
    world.check_end()
    assert second.ended_at_s < first.ended_at_s


RACKS = st.lists(st.sampled_from(["r0", "r1", "r2", ""]), min_size=1, max_size=4).filter(any)
AVOIDING = st.fixed_dictionaries(
    {
        "durations_s": st.lists(st.sampled_from([0.0, 0.003, 0.01, 0.05]), min_size=1, max_size=8),
        "prefetch": st.sampled_from([0, 0, 3]),
        "retry_failed": st.booleans(),
        "failures": st.sampled_from([0, 0, 1]),
        "avoid_by": st.sampled_from(["", "rack", "rack", "parity", "node"]),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    racks=RACKS,
    placement=st.sampled_from(PLACEMENTS),
    slots=st.lists(st.integers(1, 3), min_size=4, max_size=6),
    jobs=st.lists(st.tuples(AVOIDING, st.integers(0, 7), st.sampled_from([0.0, 0.004, 0.03])), min_size=2, max_size=6),
)
def test_whatever_jobs_avoid_they_keep_apart_and_end(
    seed: int, racks: list[str], placement: str, slots: list[int], jobs: list[tuple[dict[str, Any], int, float]]
) -> None:
    """`World` checks with every start that they are apart."""
    world = World(seed, nodes=slots, racks=racks, scheduler={"placement": placement})
    logs: list[JobLog] = []
    for fields, avoided, after_s in jobs:
        avoid = [log.spec.job_id for number, log in enumerate(logs) if avoided >> number & 1]
        logs.append(world.submit(**fields, avoid=avoid))
        world.run_for(after_s)
    world.run()
    world.check_end()
    for log in logs:
        assert log.error is None and set(log.statuses()) <= {FINISHED, TaskStatus.FAILED}
