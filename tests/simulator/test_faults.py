"""Each fault does what it says: to links as TCP would, to processes as signals would, to clocks as bad ones would."""

from __future__ import annotations

import random
from typing import Any

import pytest

from simulator.soak import faults
from simulator.soak.clocks import HostClock
from simulator.soak.faults import Fault
from simulator.soak.links import Link
from simulator.soak.world import NodeHost, World
from sparrow_py.errors import InvalidOption
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

FINISHED = TaskStatus.FINISHED
HEARTBEAT_S = 2.0


def link_of(world: World, node: NodeHost) -> Link:
    (link,) = [link for link in world.links(NodeHost) if link.peer is node]
    return link


def received_by(world: World, kind: type[Any] | tuple[type[Any], ...]) -> list[Any]:
    """What nodes are handed of this kind from now on, duplicates included."""
    seen: list[Any] = []
    for node in world.nodes:
        inner = node._receive

        def receive(link: Link, message: Any, inner: Any = inner) -> None:
            if isinstance(message, kind):
                seen.append(message)
            inner(link, message)

        node._receive = receive  # type: ignore[method-assign]
    return seen


# ---- links -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("forwards", "backwards"), [(True, False), (False, True), (True, True)])
def test_after_a_lost_frame_nothing_arrives_and_each_side_finds_out_by_its_heartbeat(
    forwards: bool, backwards: bool
) -> None:
    """A half-open link: each side goes on believing in it until its own heartbeat fails, or it is told."""
    for seed in range(10):
        world = World(seed, nodes=[1], heartbeat_s=HEARTBEAT_S)
        link = link_of(world, world.nodes[0])
        world.lose_frames(link, forwards=forwards, backwards=backwards)
        placed = received_by(world, (m.Reserve, m.LaunchNow))
        log = world.submit([0.01])
        world.run_for(0.4 * HEARTBEAT_S)
        assert len(link.open) == 2, "nobody can know yet"
        assert bool(placed) is not backwards
        world.run_for(1.2 * HEARTBEAT_S)
        assert not link.open
        world.run()
        world.check_end()
        assert log.statuses() == [FINISHED]


def test_a_cut_link_loses_what_is_under_way_and_the_node_dials_again() -> None:
    world = World(nodes=[1], latency=(0.01, 0.01))
    before = link_of(world, world.nodes[0])
    log = world.submit([0.05])
    world.run_for(0.015)  # The reservation is under way.
    reserves = received_by(world, m.Reserve)
    world.drop_link(before)
    world.run_for(0.02)
    assert not reserves and not before.open
    world.run()
    world.check_end()
    assert log.statuses() == [FINISHED] and link_of(world, world.nodes[0]) is not before


def test_a_frame_that_is_delivered_twice_comes_twice_and_in_order() -> None:
    world = World(nodes=[2], split=True)
    link = link_of(world, world.nodes[0])
    link.to_peer.duplicates = 2
    seen = received_by(world, object)
    log = world.submit([0.01] * 3)
    world.run()
    world.check_end()
    assert link.duplicated and log.statuses() == [FINISHED] * 3
    assert seen[0] is seen[1] and seen[2] is seen[3] and seen[1] is not seen[2]
    assert len(log.starts) == 3


def test_a_delay_is_no_loss() -> None:
    world = World(nodes=[1])
    link = link_of(world, world.nodes[0])
    world.stall(link, 0.3)
    log = world.submit([0.01])
    world.run()
    world.check_end()
    assert link.alive and log.statuses() == [FINISHED] and log.response_s > 0.3


@pytest.mark.parametrize("vanishing", [True, False])
def test_a_partition_shorter_than_heartbeats_only_delays(vanishing: bool) -> None:
    world = World(nodes=[1], heartbeat_s=HEARTBEAT_S)
    links = world.links()
    log = world.submit([0.01])
    world.part(["n0"], 0.4 * HEARTBEAT_S, vanishing=vanishing)
    world.run()
    world.check_end()
    assert world.links() == links and log.response_s > 0.4 * HEARTBEAT_S
    assert [start.log for start in log.starts] == [log]


@pytest.mark.parametrize("vanishing", [True, False])
def test_a_longer_partition_breaks_the_links_across_and_those_only_and_heals(vanishing: bool) -> None:
    for seed in range(10):
        world = World(seed, nodes=[1, 1], heartbeat_s=HEARTBEAT_S, node={"report_idle": False})
        across, beside = (link_of(world, node) for node in world.nodes)
        log = world.submit([0.01] * 8)
        world.run_for(0.001)
        world.part(["n0"], 2 * HEARTBEAT_S, vanishing=vanishing)
        world.run()
        world.check_end()
        assert not across.open and beside.alive
        assert link_of(world, world.nodes[0]).since_s >= across.since_s + 2 * HEARTBEAT_S
        assert len(log.outcomes) == 8


def test_peers_on_different_sides_of_a_partition_cannot_dial_until_it_heals() -> None:
    world = World(nodes=[1], schedulers=1)
    world.part(["n0"], 5.0, vanishing=True)
    world.crash_node(world.nodes[0], back_after_s=0.1)
    world.run_for(4.0)
    assert not world.links(NodeHost)
    world.run_for(2.0)
    assert len(world.links(NodeHost)) == 1


# ---- processes -------------------------------------------------------------------------------


def test_a_process_that_dies_has_sent_what_it_sent() -> None:
    """A crash does not take back what the kernel has: the report arrives, and the task is not started again."""
    statuses = []
    for flushed in (True, False):
        world = World(nodes=[1], latency=(0.01, 0.01))
        log = world.submit([0.05], max_attempts=1)
        while not any(isinstance(message, m.Report) for _, _, message in world.sent):
            world.run_for(0.001)
        world.crash_node(world.nodes[0], flushed=flushed)
        world.run()
        world.check_end()
        statuses += log.statuses()
    assert statuses == [FINISHED, TaskStatus.LOST]


def test_the_death_of_a_whole_machine_is_found_by_heartbeats() -> None:
    for seed in range(5):
        world = World(seed, nodes=[1, 1], heartbeat_s=HEARTBEAT_S)
        core = world.schedulers[0].core
        world.crash_node(world.nodes[0], back_after_s=None, silent=True)
        world.run_for(0.45 * HEARTBEAT_S)
        assert "n0" in core.nodes
        world.run_for(1.2 * HEARTBEAT_S)
        assert "n0" not in core.nodes


def test_a_node_that_dials_again_before_its_death_was_seen_replaces_its_old_self() -> None:
    world = World(nodes=[1], heartbeat_s=HEARTBEAT_S)
    log = world.submit([0.5] * 2)
    world.run_for(0.1)
    world.crash_node(world.nodes[0], back_after_s=0.01, silent=True)
    world.run()
    world.check_end()
    assert log.statuses() == [FINISHED] * 2 and log.response_s < HEARTBEAT_S


def test_a_stalled_process_does_nothing_and_then_everything() -> None:
    world = World(nodes=[1], heartbeat_s=100.0)
    node = world.nodes[0]
    log = world.submit([0.02, 0.02])
    world.run_for(0.01)
    world.stall_host(node, 1.0)
    world.run_for(0.9)
    assert log.starts[0].ended_at_s is not None and not log.outcomes, "executors go on, and nobody hears them"
    world.run()
    world.check_end()
    assert log.statuses() == [FINISHED] * 2 and log.response_s > 1.0


def test_a_process_that_is_stalled_for_longer_than_heartbeats_loses_its_links() -> None:
    for seed in range(5):
        world = World(seed, nodes=[1], heartbeat_s=0.2)
        link = link_of(world, world.nodes[0])
        world.stall_host(world.nodes[0], 1.0)
        log = world.submit([0.01])
        world.run()
        world.check_end()
        assert not link.open and log.statuses() == [FINISHED]


def test_a_client_that_comes_back_knows_nothing_of_its_jobs() -> None:
    world = World(nodes=[1])
    lost = world.submit([0.5] * 3, on_client_lost="finish")
    world.run_for(0.1)
    world.kill_client(world.clients[0], back_after_s=0.1)
    world.run_for(0.5)
    log = world.submit([0.01])
    world.run()
    world.check_end()
    assert log.statuses() == [FINISHED] and not lost.outcomes
    assert sum(start.ended_at_s is not None for start in lost.starts) == 3


def test_tasks_on_a_slow_node_take_longer() -> None:
    world = World(nodes=[1])
    assert faults.inject(world, Fault(0.0, "slow-node", 0, 10.0, how=8))
    log = world.submit([0.1])
    world.run()
    assert log.starts[0].ended_at_s - log.starts[0].started_at_s == pytest.approx(1.0)
    assert world.nodes[0].slowness == 1.0, "it is over by itself"


# ---- clocks ----------------------------------------------------------------------------------


def test_a_clock_has_an_offset_and_a_rate_leaps_ahead_and_never_goes_back() -> None:
    clock = HostClock(100.0, 1.5)
    assert clock.read_s(10.0) == 115.0 and clock.true_s(115.0) == 10.0
    clock.leap(10.0, 5.0, 0.5)
    assert clock.read_s(10.0) == 120.0 and clock.read_s(12.0) == 121.0
    assert clock.read_s(11.0) == 121.0


def test_hosts_go_by_their_own_clocks() -> None:
    """Deadlines come due by the clock of who set them; times on the wire are those of who sent them."""
    clocks = iter([HostClock(0.0), HostClock(7000.0, 2.0), HostClock(-500.0)])
    world = World(nodes=[1], clock=lambda: next(clocks))
    log = world.submit([5.0], task_timeout_s=4.0)
    world.run()
    world.check_end()
    (outcome,) = log.outcomes
    (start,) = log.starts
    assert outcome.status is TaskStatus.FAILED and "task_timeout_s" in outcome.error
    assert outcome.started_at_s == 7000.0 + 2.0 * start.given_at_s
    assert log.response_s == pytest.approx(2.0, abs=0.1), "its node's seconds are half as long"


def test_a_clock_that_leaps_ahead_brings_deadlines_with_it() -> None:
    world = World(nodes=[1])
    log = world.submit([5.0], app="pool", task_timeout_s=4.0)
    world.run_for(0.1)
    world.clock_leaps(world.nodes[0], 100.0, 1.0)
    world.run()
    world.check_end()
    assert log.statuses() == [TaskStatus.FAILED] and log.response_s < 0.2


# ---- schedules -------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_faults_in_order_of_time() -> None:
    first, again = (faults.draw(random.Random(3), tuple(faults.KINDS), 50, 2.0) for _ in range(2))
    assert first == again and [fault.at_s for fault in first] == sorted(fault.at_s for fault in first)
    assert all(0 <= fault.at_s <= 2.0 and fault.lasts_s > 0 for fault in first)
    assert faults.draw(random.Random(3), (), 5, 2.0) == []


@pytest.mark.parametrize("kind", faults.KINDS)
def test_every_kind_befalls_somebody_and_is_over_by_itself(kind: str) -> None:
    for how in range(4):
        world = World(how, nodes=[2, 2], schedulers=2, users=["anna", "bert"], heartbeat_s=0.3)
        logs = [world.submit([0.05] * 6, client=client) for client in range(2)]
        world.run_for(0.02)
        assert faults.inject(world, Fault(0.0, kind, how, 1.0, how))
        world.run()
        world.check_end()
        assert world.counts[kind] == 1 and len(world.nodes) == len(world.schedulers) == 2
        assert all(log.client.alive is False or log.ended_count == 1 for log in logs)
        assert all(node.core.state == m.READY for node in world.nodes)


def test_a_fault_with_nobody_to_befall_does_not_happen() -> None:
    world = World(nodes=[])
    assert not faults.inject(world, Fault(0.0, "node-crash", 0, 1.0))
    assert not world.counts and not world.faults


def test_kinds_are_given_by_name() -> None:
    assert faults.parse_kinds(["stall,cut", "loss"]) == ("cut", "loss", "stall")
    assert faults.parse_kinds(["none"]) == ()
    with pytest.raises(InvalidOption, match="'flood'"):
        faults.parse_kinds(["flood"])
