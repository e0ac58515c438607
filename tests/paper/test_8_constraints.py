"""Paper §8, Limitations and Future Work, on constraints: delay scheduling (`delay_s`), inter-job ones (`avoid`)."""

from __future__ import annotations

import pytest

from simulator.world import World
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
        assert rig.core.jobs["k"].avoids == ({"j"} if user == "anna" else set())
        rig.core.client_down("d", 0.0)
