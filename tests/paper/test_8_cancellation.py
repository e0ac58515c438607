"""Paper §8, Cancellation: "canceling outstanding probes once all tasks in a job have been scheduled".

Cancelled means removed from the queues, so the tests count what is queued. (The released Java code compares ids by
object identity and removes none.) Probe sharing, which may take the place of cancellation, is in ARCHITECTURE.md,
"Tickets".
"""

from __future__ import annotations

from simulator.soak.world import JobLog, World
from sparrow_py.job import TaskStatus

NO_SHARING = {"probe_sharing": False}


def queued(world: World) -> list[int]:
    return [len(node.core.queue) for node in world.nodes]


def cancelled(world: World) -> int:
    """Reservations that node monitors removed because they were cancelled."""
    return sum(node.core.counters.cancelled_reservations for node in world.nodes)


def busy(world: World, seconds: float, user: int = 0) -> JobLog:
    """Fill every slot."""
    log = world.submit([seconds] * sum(node.slots for node in world.nodes), client=user, probe_ratio=1)
    world.run_for(0.01)
    return log


def test_surplus_reservations_leave_the_queues_when_the_last_task_is_placed() -> None:
    """10 busy slots, then 2 tasks at d = 5: 10 reservations, 2 of which get a task; the other 8 are removed."""
    world = World(nodes=[1] * 10, scheduler=NO_SHARING)
    world.submit([1.0 + number / 10 for number in range(10)], probe_ratio=1)
    world.run_for(0.01)
    world.submit([9.0, 9.0], probe_ratio=5)
    world.run_for(0.5)
    assert queued(world) == [1] * 10
    world.run_for(0.52)  # The first slot is free: one task is placed, one is not.
    assert sum(queued(world)) == 9 and cancelled(world) == 0
    world.run_for(0.1)
    assert queued(world) == [0] * 10 and cancelled(world) == 8
    world.run()
    world.check_end()


def test_a_cancelled_job_leaves_the_queues_at_once() -> None:
    """All its reservations go, and nobody else's."""
    world = World(nodes=[2] * 5, users=("anna", "bert"), scheduler=NO_SHARING)
    busy(world, 1.0)
    mine, other = world.submit([0.1] * 20, probe_ratio=2), world.submit([0.1] * 10, probe_ratio=2, client=1)
    world.run_for(0.01)
    assert sum(queued(world)) == 60
    world.cancel(mine)
    world.run_for(0.01)
    assert sum(queued(world)) == 20 and cancelled(world) == 40
    assert mine.statuses() == [TaskStatus.CANCELLED] * 20 and mine.ended_count == 1
    world.run()
    world.check_end()
    assert other.statuses() == [TaskStatus.FINISHED] * 10
    assert not mine.starts


def test_tasks_are_cancelled_one_by_one_while_queued() -> None:
    """Each is answered: those queued by an outcome, the running one by "not cancelled"."""
    world = World(nodes=[1], scheduler=NO_SHARING)
    log = world.submit([1.0, 1.0, 1.0, 1.0])
    world.run_for(0.1)
    world.cancel_tasks(log, [0, 1, 3])
    world.run()
    world.check_end()
    assert log.not_cancelled_tasks == [0]
    expected = [TaskStatus.FINISHED, TaskStatus.CANCELLED, TaskStatus.FINISHED, TaskStatus.CANCELLED]
    assert log.statuses() == expected


def test_a_cancellation_that_meets_a_lost_attempt_is_no_restart() -> None:
    """The executor dies while the cancellation is on its way: the task is cancelled, not started again."""
    world = World(nodes=[1])
    log = world.submit([1.0])
    world.run_for(0.1)
    world.cancel(log)
    world.kill_executor(world.nodes[0].executors[next(iter(world.nodes[0].executors))])
    world.run()
    world.check_end()
    assert log.statuses() == [TaskStatus.CANCELLED] and len(log.starts) == 1


def test_surplus_passes_to_the_same_users_oldest_unplaced_job() -> None:
    """Probe sharing: up to 8 reservations an unplaced task; the rest are cancelled at once. Nothing is sent for what
    is passed on."""
    world = World(nodes=[1] * 40)
    busy(world, 1.0)
    first = world.submit([1.0], probe_ratio=40)
    heir, younger = world.submit([1.0, 1.0], probe_ratio=1), world.submit([1.0], probe_ratio=1)
    world.run_for(0.01)
    core = world.schedulers[0].core
    assert sum(queued(world)) == 43
    world.cancel(first)
    world.run_for(0.01)
    live = {log.spec.job_id: core.jobs[log.spec.job_id].stages[0].plan.live for log in (heir, younger)}
    assert live == {heir.spec.job_id: 16, younger.spec.job_id: 1}
    assert core.counters.reservations_shared == 14
    assert cancelled(world) == 26 and sum(queued(world)) == 17
    world.run()
    world.check_end()


def test_surplus_never_passes_to_another_user_app_or_prefetch() -> None:
    """Only to jobs that are the same to the node monitors' queues and slots."""
    world = World(nodes=[1] * 10, users=("anna", "bert"))
    busy(world, 1.0)
    first = world.submit([1.0], probe_ratio=10)
    others = [
        world.submit([0.1], client=1),
        world.submit([0.1], app="pool"),
        world.submit([0.1], prefetch=4),
    ]
    world.run_for(0.01)
    world.cancel(first)
    world.run_for(0.01)
    assert cancelled(world) == 10
    assert world.schedulers[0].core.counters.reservations_shared == 0
    world.run()
    world.check_end()
    assert all(log.statuses() == [TaskStatus.FINISHED] for log in others)


def test_shared_reservations_are_served_by_the_heir() -> None:
    """The heir sampled one node, and yet goes to whichever of those that the first job had sampled is free first."""
    world = World(nodes=[1] * 8)
    world.submit([0.5, 0.6] + [2.0] * 6, probe_ratio=1)
    world.run_for(0.01)
    first = world.submit([5.0], probe_ratio=8)
    world.run_for(0.01)
    heir = world.submit([0.1], probe_ratio=1)
    world.run()
    world.check_end()
    assert 0.48 < first.starts[0].given_at_s - first.submitted_at_s < 0.52
    assert 0.56 < heir.starts[0].given_at_s - heir.submitted_at_s < 0.62
    assert first.starts[0].node is not heir.starts[0].node
