"""Paper §3.2, On-Demand Task Assignment (late binding), on the real cores. Probe sharing is off: counts are exact."""

from __future__ import annotations

import random
from typing import Any

import pytest

from simulator.soak.world import World
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore
from tests.support.recorder import reserve
from tests.support.scheduler_rig import SchedulerRig, node_info


class Node(NodeCore):
    """A node with one executor of all its slots."""

    def __init__(self, slots: int, **options: Any) -> None:
        super().__init__(slots, [MANY], **options)

    def asks(self) -> list[tuple[int, int]]:
        """(ticket, count) of the getTasks sent since the last call."""
        return [(ask.ticket, ask.count) for ask in self.take(m.GetTasks)]


def test_slots_run_what_they_can_and_the_rest_one_per_completion_in_order() -> None:
    """ "Slaves queue the probes until they have available resources to run the task."
    4 slots, 1 + 2 + 3 reservations."""
    world = World(nodes=[4], scheduler={"probe_sharing": False, "push_to_idle": False})
    jobs = [world.submit([0.1], probe_ratio=1), world.submit([0.2, 0.3], probe_ratio=1)]
    jobs.append(world.submit([0.4, 0.5, 0.6], probe_ratio=1))
    world.run_for(0.05)
    started = [(jobs.index(start.log), start.task) for start in world.starts]
    assert started == [(0, 0), (1, 0), (1, 1), (2, 0)]
    assert len(world.nodes[0].core.queue) == 2
    for elapsed_s, expected in ((0.1, (2, 1)), (0.1, (2, 2))):
        world.run_for(elapsed_s)
        started.append(expected)
        assert [(jobs.index(start.log), start.task) for start in world.starts] == started
    world.run()
    world.check_end()
    assert [sum(isinstance(message, kind) for _, _, message in world.sent) for kind in (m.Launch, m.NoTask)] == [6, 0]


def test_a_slave_asks_only_when_it_has_available_resources() -> None:
    """ "When the slave has enough resources to run a new task, it responds to the probe with a getTask() RPC." """
    node = Node(2)
    node.receive(reserve(1, 5))
    assert node.asks() == [(1, 2)]  # Several free slots ask in one message.
    node.receive(reserve(2, 5))
    assert node.asks() == []
    node.receive(m.Launch(1, "j1", 0, 0, 1, b""), m.Launch(1, "j1", 0, 1, 2, b""))
    assert node.asks() == []
    node.done("p0", 1, now_s=1.0)
    assert node.asks() == [(1, 1)]
    node.receive(m.NoTask(2, 1))
    assert node.asks() == [(1, 1)]


def test_a_slave_never_asks_for_more_than_is_queued() -> None:
    """One getTask per probe: 8 free slots, 3 and 2 reservations."""
    node = Node(8)
    node.receive(reserve(1, 3), reserve(2, 2))
    assert node.asks() == [(1, 3), (2, 2)]
    assert node.core.free_slots == 3


def scheduler_of(nodes: int, tasks: int, probe_ratio: float) -> tuple[SchedulerRig, dict[str, int]]:
    """A scheduler with one job, and the ticket that each node holds."""
    rig = SchedulerRig({f"n{number}": node_info(1) for number in range(nodes)}, probe_sharing=False)
    rig.submit_job(tasks, payloads=[bytes([task]) for task in range(tasks)], probe_ratio=probe_ratio)
    return rig, {node: message.ticket for node, message in rig.reserves().items()}


def test_exactly_m_tasks_go_out_then_no_ops() -> None:
    """ "Some slaves will reply to the scheduler after it has launched all tasks for the job, in which case the
    scheduler simply replies with a no-op message." Tasks go out in submission order, to whoever asks first.
    The asks that get no-ops crossed the cancellation of their reservations: they are answered all the same."""
    rig, tickets = scheduler_of(6, 3, 2.0)
    asking = list(tickets)
    random.Random(5).shuffle(asking)
    for ask, node in enumerate(asking, 1):
        rig.node(node, m.GetTasks(ask, tickets[node], 1), now_s=0.1)
    launches = rig.outbox.take(m.Launch)
    assert [(node, message.ask, message.task, message.payload) for node, message in launches] == [
        (asking[task], task + 1, task, bytes([task])) for task in range(3)
    ]
    assert sorted(node for node, _ in rig.outbox.take(m.CancelReservations)) == sorted(asking[3:])
    assert rig.outbox.take(m.NoTask) == [(asking[ask - 1], m.NoTask(ask, 1)) for ask in (4, 5, 6)]


def test_an_ask_for_several_gets_what_is_left_and_no_ops_for_the_rest() -> None:
    """One message may carry several getTasks."""
    rig, tickets = scheduler_of(1, 3, 2.0)
    rig.node("n0", m.GetTasks(1, tickets["n0"], 5), now_s=0.1)
    assert [launch.task for launch in rig.take(m.Launch)] == [0, 1, 2]
    assert rig.outbox.take(m.NoTask) == [("n0", m.NoTask(1, 2))]


@pytest.mark.parametrize("timeout_s", [0.3, 1.0])
def test_an_unanswered_get_task_releases_its_slot_and_a_late_task_is_handed_back(timeout_s: float) -> None:
    """Not in the paper, whose "RPC" may take for ever: a scheduler that does not answer must not hold a slot."""
    node = Node(1, get_task_timeout_s=timeout_s)
    node.receive(reserve(1), reserve(2))
    assert node.asks() == [(1, 1)]
    assert node.core.next_deadline_s() == timeout_s
    node.tick(timeout_s * 0.99)
    assert node.asks() == []
    node.tick(timeout_s)
    assert node.asks() == [(2, 1)]  # The slot is free for the next.
    node.receive(m.Launch(1, "j1", 0, 0, 77, b""))
    assert [message.attempt for message in node.take(m.HandBack)] == [77]
    assert not node.take(x.Run)
    node.receive(m.NoTask(1, 1))  # A late no-op: nothing is freed twice.
    assert node.core.free_slots == 0


def test_a_task_that_is_handed_back_runs_elsewhere_and_this_was_no_start() -> None:
    """The whole of it: a stalled link, a getTask that times out, and the job ends with one start a task."""
    world = World(nodes=[1, 1], node={"get_task_timeout_s": 0.2}, scheduler={"probe_sharing": False})
    link = next(link for link in world.links() if link.peer is world.nodes[0])
    world.run_for(0.01)
    log = world.submit([0.1] * 4, max_attempts=1)
    world.run_for(0.0011)  # The reservations are queued, the getTasks under way.
    link.to_peer.hold(world.now + 0.5)
    world.run()
    world.check_end()
    assert log.statuses() == [TaskStatus.FINISHED] * 4
    assert len(world.starts) == 4
    assert any(isinstance(message, m.HandBack) for _, _, message in world.sent)


def test_tasks_go_to_the_slaves_where_they_will_execute_soonest() -> None:
    """ "It can assign the m tasks to the slaves where the tasks will execute soonest without needing to predict the
    runtimes of other tasks": the short queue is of long tasks, the long one of short ones."""
    world = World(nodes=[1, 1], scheduler={"probe_sharing": False})
    slow = world.submit([5.0], probe_ratio=1)
    world.run_for(0.1)
    busy = slow.starts[0].node
    quick = [world.submit([0.1], probe_ratio=2) for _ in range(6)]
    world.run()
    world.check_end()
    assert all(log.starts[0].node is not busy for log in quick)
