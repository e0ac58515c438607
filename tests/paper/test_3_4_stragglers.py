"""Paper §3.4: "straggler mitigation can be implemented on top of batch sampling". `speculate=` does, in the client.

One of ten one-slot nodes is 20 times slower than the others, and tasks last 0.1 s: its task is the straggler.
"""

from __future__ import annotations

from typing import Any

import pytest

from simulator.soak.world import JobLog, World
from sparrow_py.job import TaskStatus
from sparrow_py.speculation import Speculation
from sparrow_py.wire import messages as m
from tests.support.speculating import SpeculatingClient, slow_down

TASK_S = 0.1
FACTOR = 20.0
LATENCY_S = 0.0005
ROUND_TRIPS_S = 0.02
"""More than the messages take that a job needs, one after the other."""


def slow_node(**scheduler: Any) -> World:
    """Ten nodes of one slot; the first is slow."""
    world = World(nodes=[1] * 10, latency=(LATENCY_S, LATENCY_S), scheduler=scheduler)
    slow_down(world.nodes[0], FACTOR)
    return world


def starts_of(log: JobLog) -> list[int]:
    """How often each task was started."""
    return [sum(start.task == task for start in log.starts) for task in range(len(log.payloads))]


def reservations(world: World, job_id: str) -> int:
    """Queued for this job over its life."""
    return sum(
        message.count for _, _, message in world.sent if isinstance(message, m.Reserve) and message.job == job_id
    )


def test_batch_sampling_itself_does_not_consider_stragglers() -> None:
    """Without `speculate` each task runs once, and the job is as slow as the slow node."""
    world = slow_node()
    log = world.submit([TASK_S] * 10)
    world.run()
    world.check_end()
    assert starts_of(log) == [1] * 10
    assert log.response_s >= FACTOR * TASK_S


def test_a_task_that_takes_unexpectedly_long_is_submitted_again_and_the_job_does_not_wait_for_it() -> None:
    """The copy starts after 1.5 medians, and takes one more on another node."""
    world = slow_node()
    client = SpeculatingClient(world)
    log = client.submit([TASK_S] * 10, Speculation())
    world.run()
    straggler = next(start.task for start in log.starts if start.node is world.nodes[0])
    assert starts_of(log) == [1 + (task == straggler) for task in range(10)]
    first, second = (start for start in log.starts if start.task == straggler)
    assert first.node is not second.node and first.ended_at_s is None, "the straggler was not stopped"
    assert log.statuses() == [TaskStatus.FINISHED] * 10
    assert log.response_s == pytest.approx(2.5 * TASK_S, abs=ROUND_TRIPS_S)
    client.check_end()


def test_the_copies_are_a_new_separate_job_placed_by_batch_sampling() -> None:
    """ "re-submit these tasks to be scheduled as a new, separate job using batch sampling": d·m reservations of its
    own, for all the tasks that are slow at the time together."""
    world = slow_node(push_to_idle=False)
    slow_down(world.nodes[1], FACTOR)
    client = SpeculatingClient(world)
    log = client.submit([TASK_S] * 10, Speculation(copies_max=0.5), probe_ratio=3, name="wash")
    world.run()
    (copy,) = client.copies[log.spec.job_id]
    assert len(copy.tasks) == 2 and copy.name == "wash (again)" and copy.job_id != log.spec.job_id
    assert reservations(world, log.spec.job_id) == 30 and reservations(world, copy.job_id) == 6
    client.check_end()


def test_tasks_that_take_as_long_as_the_others_are_not_submitted_again() -> None:
    world = World(nodes=[1] * 10)
    client = SpeculatingClient(world)
    log = client.submit([TASK_S * (1 + task / 25) for task in range(10)], Speculation())
    world.run()
    assert starts_of(log) == [1] * 10 and not client.copies[log.spec.job_id]
    client.check_end()


def test_the_loser_gives_its_slot_back() -> None:
    """What runs for nothing is ended: the slow node takes another user's task long before it would have been done."""
    world = World(nodes=[1] * 10, users=("anna", "bert"))
    slow_down(world.nodes[0], FACTOR)
    client = SpeculatingClient(world)
    client.submit([TASK_S] * 10, Speculation())
    world.run_for(3 * TASK_S)
    assert world.nodes[0].running == 0
    other = world.submit([0.001] * 10, client=1, probe_ratio=1)
    world.run()
    assert {start.node.name for start in other.starts} == {node.name for node in world.nodes}
    client.check_end()


def test_speculation_is_orthogonal_to_batch_sampling() -> None:
    """Schedulers and node monitors know nothing of it. To them it is two jobs, and a task that is cancelled: a user
    who does that by hand has them say the same things."""
    world = slow_node()
    client = SpeculatingClient(world)
    client.submit([TASK_S] * 10, Speculation())
    world.run()
    with_copies = kinds(world)
    client.check_end()
    world = slow_node()
    first = world.submit([TASK_S] * 10, report_placed=True)
    world.run_for(1.5 * TASK_S)
    second = world.submit([TASK_S])
    world.run_for(1.5 * TASK_S)
    world.cancel(first, running=True)
    world.run()
    world.check_end()
    assert second.statuses() == [TaskStatus.FINISHED] and with_copies == kinds(world)


def test_a_straggler_of_a_stage_holds_up_no_stage_after_it() -> None:
    """The copy's result stands for the task: the next stage begins with it, on nodes that are not slow."""
    world = slow_node()
    client = SpeculatingClient(world)
    log = client.submit_stages(
        ("scan", [], [TASK_S] * 10), ("sum", ["scan"], [TASK_S] * 2), speculate=Speculation(), probe_ratio=3
    )
    world.run()
    assert log.statuses() == [TaskStatus.FINISHED] * 12
    straggler = next(start.task for start in log.starts if start.node is world.nodes[0])
    assert starts_of(log)[:10] == [1 + (task == straggler) for task in range(10)]
    sums = [start for start in log.starts if start.task >= 10 and start.ended_at_s is not None]
    assert min(start.given_at_s for start in sums) - log.submitted_at_s == pytest.approx(
        2.5 * TASK_S, abs=ROUND_TRIPS_S
    )
    assert world.schedulers[0].core.counters.finished_elsewhere == 1
    client.check_end()


def test_a_straggler_of_a_later_stage_is_submitted_again_with_the_results_that_it_asks_for() -> None:
    """Executors of the world check that each task is given the results of all tasks before it."""
    world = World(nodes=[1] * 10, latency=(LATENCY_S, LATENCY_S))
    client = SpeculatingClient(world)
    log = client.submit_stages(("scan", [], [TASK_S] * 3), ("sum", ["scan"], [TASK_S] * 10), speculate=Speculation())
    world.run_for(0.9 * TASK_S)
    slow_down(world.nodes[0], FACTOR)
    world.run()
    assert log.statuses() == [TaskStatus.FINISHED] * 13
    (copy,) = client.copies[log.spec.job_id]
    assert [stage.name for stage in copy.stages] == ["scan", "sum"]
    assert log.response_s == pytest.approx(3.5 * TASK_S, abs=2 * ROUND_TRIPS_S)
    client.check_end()


def kinds(world: World) -> set[type[m.Message]]:
    """Of all messages between schedulers, node monitors and clients."""
    return {type(message) for _, _, message in world.sent}
