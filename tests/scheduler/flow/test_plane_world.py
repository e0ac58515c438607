"""The flow plane among node monitors and clients whose processes die, stall and lose messages, under virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.soak import faults, scenarios
from simulator.soak.world import World
from tests.support.flow_rig import FirstFit

SEEDS = range(20)
ENOUGH_S = 600.0
"""Nodes say their load again and again, so it never is that nothing more happens; but all jobs have ended by then."""


@pytest.fixture(autouse=True)
def _of_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs are for the plane; there is no solver, which this is not about."""
    submit = World._submit
    monkeypatch.setattr(
        World, "_submit", lambda world, spec, client: submit(world, replace(spec, policy="flow"), client)
    )
    monkeypatch.setattr("scheduler.flow.cluster_network.ClusterNetwork", lambda policy, keeps_running: FirstFit())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_guarantees_are_kept_whatever_fails(seed: int) -> None:
    scenario = scenarios.draw(seed, tuple(faults.KINDS))
    world = scenario.begin(scheduler={"policy": "flow", "standby_of": "any"}, events_max=200_000)
    world.run_for(ENOUGH_S)
    world.check_end()


def test_a_job_of_more_tasks_than_slots_runs_slot_by_slot() -> None:
    world = World(1, nodes=[2, 1], scheduler={"policy": "flow"}, warm=("many",))
    log = world.submit([1.0] * 6, policy="flow")
    world.run_for(20.0)
    world.check_end()
    assert len(log.starts) == 6
