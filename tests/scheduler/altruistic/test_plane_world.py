"""The altruistic plane among node monitors and clients whose processes die, stall and lose messages, under virtual
time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.soak import faults, scenarios
from simulator.soak.job_log import JobLog
from simulator.soak.world import World
from sparrow_py.job import JobSpec, TaskStatus
from sparrow_py.speculation import Speculation
from tests.support.speculating import SpeculatingClient, slow_down
from tests.support.suites import rest_after

ENOUGH_S = 600.0
"""Nodes say their load again and again, so it never is that nothing more happens; but all jobs have ended by then."""


@pytest.fixture(autouse=True)
def _all_jobs_are_for_the_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = World._submit

    def to_the_plane(world: World, spec: JobSpec, client: int) -> JobLog:
        return submit(world, replace(spec, policy="altruistic"), client)

    monkeypatch.setattr(World, "_submit", to_the_plane)


def play(seed: int, policy: str) -> None:
    """Whatever fails, the guarantees hold; what the allocator has counted is compared with the book after each event
    (`AltruisticPlane.problem_of_all`)."""
    scenario = scenarios.draw(seed, tuple(faults.KINDS))
    options = {"policy": "altruistic", "altruistic_policy": policy, "standby_of": "any"}
    world = scenario.begin(scheduler=options, events_max=200_000)
    world.run_for(ENOUGH_S)
    world.check_end()


@pytest.mark.parametrize("seed", rest_after(6, *range(15)))
def test_the_guarantees_are_kept_whatever_fails(seed: int) -> None:
    play(seed, "altruistic")


@pytest.mark.parametrize("policy", ["altruistic/lend=profile", "altruistic/altruism=0.5", "drf", "capacity", "srtf"])
@pytest.mark.parametrize("seed", rest_after(1, 16, 17, 18))
def test_they_are_kept_with_other_settings_and_schedulers(seed: int, policy: str) -> None:
    play(seed, policy)


def test_a_leader_that_takes_over_knows_what_the_one_before_has_placed() -> None:
    leading = {"standby_of": "any", "takeover_s": 0.5, "settling_s": 0.2}
    world = World(
        1, nodes=[2, 1], schedulers=2, scheduler={"policy": "altruistic", **leading}, heartbeat_s=1.0, warm=("many",)
    )
    long = world.submit([60.0] * 3, policy="altruistic")
    world.run_for(5.0)
    assert len(long.starts) == 3
    (leader,) = [host for host in world.schedulers if host.core.leads]
    world.crash_scheduler(leader, back_after_s=300.0)
    world.run_for(10.0)
    (leader,) = [host for host in world.schedulers if host.alive and host.core.leads]
    assert leader.core.counters.adopted == 3
    short = world.submit([1.0] * 4, policy="altruistic")
    world.run_for(20.0)
    assert not short.starts, "nothing is free"
    world.run_for(100.0)
    world.check_end()
    assert len(long.starts) == 3 and len(short.starts) == 4


def test_a_task_that_takes_too_long_has_a_copy_at_another_node_placed_by_the_plane() -> None:
    """The copies of a job are a job of the plane, too; who loses gives back what the plane counts for it."""
    world = World(nodes=[1] * 6, scheduler={"policy": "altruistic", "standby_of": "any"})
    slow_down(world.nodes[0], 50.0)
    client = SpeculatingClient(world)
    log = client.submit([1.0] * 6, Speculation(), policy="altruistic")
    world.run_for(10.0)
    (copy,) = client.copies[log.spec.job_id]
    (straggler,) = [start.task for start in log.starts if start.node is world.nodes[0]]
    first, second = (start.node for start in log.starts if start.task == straggler)
    assert copy.policy == "altruistic" and len(copy.tasks) == 1 and first is not second
    assert log.statuses() == [TaskStatus.FINISHED] * 6 and log.response_s < 10.0, "of 50 s"
    later = world.submit([0.05] * 6)
    world.run_for(2.0)
    assert len({start.node for start in later.starts}) == 6, "the slow node's slot is free again"
    world.run_for(5.0)
    client.check_end()
