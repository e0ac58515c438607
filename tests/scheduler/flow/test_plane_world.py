"""The flow plane among node monitors and clients whose processes die, stall and lose messages, under virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.soak import faults, scenarios
from simulator.soak.job_log import JobLog
from simulator.soak.world import World
from sparrow_py.job import JobSpec
from tests.support.flow_rig import FirstFit
from tests.support.suites import rest_after

SEEDS = range(20)
ENOUGH_S = 600.0
"""Nodes say their load again and again, so it never is that nothing more happens; but all jobs have ended by then."""


def is_for_the_plane(monkeypatch: pytest.MonkeyPatch, *, preemptible: bool = False) -> None:
    """All jobs are."""
    submit = World._submit

    def to_the_plane(world: World, spec: JobSpec, client: int) -> JobLog:
        may = preemptible and spec.max_attempts > 1
        return submit(world, replace(spec, policy="flow", preemptible=may), client)

    monkeypatch.setattr(World, "_submit", to_the_plane)


def has_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks go to the first machine with room."""
    monkeypatch.setattr("scheduler.flow.guarded_policy.GuardedNetwork", lambda policy, keeps_running: FirstFit())


def play(seed: int, **options: Any) -> None:
    """Whatever fails, the guarantees hold."""
    scenario = scenarios.draw(seed, tuple(faults.KINDS))
    world = scenario.begin(scheduler={"policy": "flow", "standby_of": "any", **options}, events_max=200_000)
    world.run_for(ENOUGH_S)
    world.check_end()


@pytest.mark.parametrize("seed", rest_after(8, *SEEDS))
def test_the_guarantees_are_kept_whatever_fails(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    is_for_the_plane(monkeypatch)
    has_no_solver(monkeypatch)
    play(seed)


@pytest.mark.parametrize("seed", rest_after(1, 8, 6, 14, 25, 35))
def test_they_are_kept_with_solvers_and_preemption(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 and 25 rounds placed tasks that had run when they began, in vain."""
    is_for_the_plane(monkeypatch, preemptible=True)
    play(seed, flow_preemption=True)


def test_a_job_of_more_tasks_than_slots_runs_slot_by_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    has_no_solver(monkeypatch)
    world = World(1, nodes=[2, 1], scheduler={"policy": "flow"}, warm=("many",))
    log = world.submit([1.0] * 6, policy="flow")
    world.run_for(20.0)
    world.check_end()
    assert len(log.starts) == 6


def test_a_leader_that_takes_over_can_stop_tasks_that_the_one_before_has_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading = {"standby_of": "any", "takeover_s": 0.5, "settling_s": 0.2}
    options = {"policy": "flow", "flow_preemption": True, **leading}
    world = World(1, nodes=[2, 1], schedulers=2, scheduler=options, heartbeat_s=1.0)
    low = world.submit([60.0] * 3, policy="flow", preemptible=True, priority=-5, max_attempts=3)
    world.run_for(5.0)
    assert len(low.starts) == 3
    (leader,) = [host for host in world.schedulers if host.core.leads]
    world.crash_scheduler(leader, back_after_s=300.0)
    world.run_for(10.0)
    (leader,) = [host for host in world.schedulers if host.alive and host.core.leads]
    assert leader.core.counters.adopted == 3
    high = world.submit([1.0] * 2, policy="flow")
    world.run_for(10.0)
    assert len(high.starts) == 2 and leader.core.counters.preempted == 2
    world.run_for(200.0)
    world.check_end()
    assert len(low.starts) == 5
