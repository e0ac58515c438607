"""Whole clusters under virtual time whose plane has a leader: schedulers, nodes, clients and links fail, one leads in
the end, and the guarantees hold."""

from __future__ import annotations

import pytest

from simulator.soak import faults, scenarios
from simulator.soak.world import SchedulerHost, World
from sparrow_py.wire import messages as m
from tests.support.most_free_slots import LedMostFreeSlots
from tests.support.suites import rest_after

TAKEOVER_S, SETTLING_S = 0.5, 0.2
OPTIONS = {"policy": m.FLOW, "standby_of": "any", "takeover_s": TAKEOVER_S, "settling_s": SETTLING_S}
OVER_S = 400.0
"""By then the faults are over, all jobs have ended, and every timer was due. Nodes tell their load for ever."""


@pytest.fixture(autouse=True)
def plane_with_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.core.plane_of", lambda options, history: LedMostFreeSlots)


def leaders(world: World) -> list[SchedulerHost]:
    return [host for host in world.schedulers if host.alive and host.core.leads]


def cluster(seed: int = 1, nodes: int = 4, schedulers: int = 2) -> World:
    """In which one leads."""
    world = World(seed, nodes=[2] * nodes, schedulers=schedulers, scheduler=OPTIONS, receipts=True, heartbeat_s=1.0)
    world.run_for(2 * (TAKEOVER_S + SETTLING_S))
    assert len(leaders(world)) == 1
    return world


@pytest.mark.parametrize("seed", rest_after(6, *range(16)))
def test_whatever_fails_the_guarantees_hold_and_one_leads_in_the_end(seed: int) -> None:
    """Jobs with stages, constraints, cancellations, large results, and losses of all kinds; the invariants are checked
    after each event, the guarantees at the end."""
    world = scenarios.draw(seed, tuple(faults.KINDS)).begin(scheduler=OPTIONS, events_max=400_000)
    world.run(world.now + OVER_S)
    world.check_end()
    assert any(log.starts for log in world.logs.values())
    (leader,) = leaders(world)
    assert leader.core.leading is not None and leader.core.leading.accepted == len(world.nodes)


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_when_the_leader_dies_what_runs_goes_on_and_no_task_starts_twice(max_attempts: int) -> None:
    """All tasks run, and the client is told of them by the next leader: no claim finds less than runs."""
    world = cluster()
    log = world.submit([2.0] * 8, max_attempts=max_attempts)
    world.run_for(1.0)
    assert len(log.starts) == 8
    (leader,) = leaders(world)
    world.crash_scheduler(leader, back_after_s=30.0)
    world.run_for(10.0)
    world.check_end()
    assert len(log.starts) == 8 and leaders(world) != [leader]


def test_when_the_leader_dies_what_waited_is_started_by_the_next() -> None:
    world = cluster()
    log = world.submit([1.0] * 20, max_attempts=3)
    world.run_for(0.5)
    (leader,) = leaders(world)
    world.crash_scheduler(leader, back_after_s=30.0)
    world.run_for(20.0)
    world.check_end()
    assert len(log.starts) == 20


def test_a_restarted_leader_leads_again_without_a_standby() -> None:
    world = cluster(schedulers=1)
    log = world.submit([1.0] * 12)
    world.run_for(0.5)
    (leader,) = leaders(world)
    world.crash_scheduler(leader, 0.1)
    world.run_for(20.0)
    world.check_end()
    (again,) = leaders(world)
    assert again is not leader and again.core.leading is not None and again.core.leading.epoch == 2
    assert len(log.starts) == 12


def test_an_order_moves_the_lead_and_the_jobs_and_what_had_not_been_sent_costs_no_attempt() -> None:
    world = cluster()
    log = world.submit([1.0] * 20, max_attempts=2)
    world.run_for(0.5)
    (leader,) = leaders(world)
    (standby,) = [host for host in world.schedulers if host is not leader]
    standby.event(lambda: standby.core.lead(standby.now_s) and None)
    world.run_for(0.3)
    assert leaders(world) == [standby] and not leader.core.jobs and list(standby.core.jobs) == [log.spec.job_id]
    world.run_for(20.0)
    world.check_end()
    assert len(log.starts) == 20
    assert {outcome.attempts for outcome in log.outcomes} == {1}


def test_a_leader_that_is_cut_off_from_all_nodes_gives_its_jobs_up_once_it_hears_of_the_next() -> None:
    world = cluster()
    log = world.submit([0.5] * 20)
    world.run_for(0.1)
    (leader,) = leaders(world)
    reachable = [*world.nodes, *(one for one in world.schedulers if one is not leader)]
    world.part([host.name for host in reachable], 8.0, vanishing=True)
    world.run_for(6.0)
    assert len(leaders(world)) == 1 and leaders(world) != [leader], "the standby leads, and the other knows"
    world.run_for(OVER_S)
    world.check_end()
    assert len(leaders(world)) == 1 and len(log.starts) >= 20


def test_claims_go_where_the_job_has_been_and_nowhere_else() -> None:
    world = cluster(nodes=6)
    world.submit([5.0] * 2)
    world.run_for(0.5)
    busy = {node.name for node in world.nodes if node.running}
    (leader,) = leaders(world)
    world.sent.clear()
    world.crash_scheduler(leader, back_after_s=30.0)
    world.run_for(3.0)
    claims = {to for _, to, message in world.sent if isinstance(message, m.Claim)}
    assert claims == busy and len(busy) <= 2
