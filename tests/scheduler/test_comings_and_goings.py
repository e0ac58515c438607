"""Nodes that are cordoned, drained and come back, and clients that go: what the scheduler makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.soak.world import World
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, node_info

FINISHED, CANCELLED = TaskStatus.FINISHED, TaskStatus.CANCELLED


class Rig(SchedulerRig):
    """A scheduler with nodes of one slot and a client c."""

    def __init__(self, *nodes: str, **options: Any) -> None:
        super().__init__({node: node_info(1, resources={"cpu": 0.3}) for node in nodes}, **options)

    def submit(self, tasks: int = 1, job: str = "j", **fields: Any) -> None:
        details = {task: m.TaskDetail(nodes) for task, nodes in enumerate(fields.pop("preferred", ())) if nodes}
        self.submit_job(tasks, job=job, details=details, local=bool(details), **fields)

    def reserved(self) -> dict[str, m.Reserve]:
        return self.reserves()


@pytest.mark.parametrize("local", [False, True])
def test_a_cordoned_node_gets_no_reservations_and_those_it_has_are_served(local: bool) -> None:
    rig = Rig("a", "b")
    preferred = {"preferred": [("a", "b")] * 2} if local else {}
    rig.submit(2, **preferred)
    held = rig.reserved()
    rig.node("a", m.NodeState(m.CORDONED, ""))
    rig.submit(2, "k", **preferred)
    assert set(rig.reserved()) == {"b"}
    rig.node("a", m.GetTasks(1, held["a"].ticket, 1))
    assert len(rig.take(m.Launch)) == 1


def test_when_all_nodes_are_cordoned_jobs_wait() -> None:
    rig = Rig("a")
    rig.node("a", m.NodeState(m.CORDONED, ""))
    rig.submit()
    assert not rig.take(m.JobRefused) and not rig.reserved()
    rig.node("a", m.NodeState(m.READY, ""))
    assert rig.reserved()


def test_tasks_are_not_lost_whose_reservations_came_from_another_stage_while_their_node_was_cordoned() -> None:
    """A cordoned node serves what it has queued. The stage needs no probe when the node is ready again."""
    rig = Rig("a", order="reserved", wait_for_nodes_s=5.0)
    rig.submit(1, "first")
    ticket = rig.reserved()["a"].ticket
    rig.node("a", m.NodeState(m.CORDONED, ""))
    rig.submit(1, "second")
    rig.node("a", m.GetTasks(1, ticket, 1))  # The reservation that is left is the other stage's from now on.
    assert [launch.job for launch in rig.take(m.Launch)] == ["first"]
    rig.node("a", m.NodeState(m.READY, ""))
    rig.tick(10.0)
    assert not rig.outcomes()
    rig.node("a", m.GetTasks(2, ticket, 1))
    assert [launch.job for launch in rig.take(m.Launch)] == ["second"]


def test_nodes_that_do_not_suit_a_stage_do_not_make_it_wait_for_longer() -> None:
    """Whichever way tasks are placed."""
    for placement in ("sparrow", "random"):
        rig = Rig("a", placement=placement, wait_for_nodes_s=5.0)
        rig.submit(1, preferred=[("a",)])
        rig.node_down("a")
        rig.tick(3.0)
        rig.node_up("b", node_info(1), 3.0)
        rig.tick(5.0)
        assert [status for _, status, _ in rig.outcomes()] == [TaskStatus.LOST], placement


@pytest.mark.parametrize("local", [False, True])
def test_what_a_draining_node_had_queued_is_probed_elsewhere(local: bool) -> None:
    rig = Rig("a", "b")
    rig.submit(2, **({"preferred": [("a", "b"), ("a", "b")]} if local else {}))
    rig.reserved()
    rig.node("a", m.NodeState(m.DRAINING, ""))
    assert rig.core.live_reservations("a") == 0 and rig.core.live_reservations("b") >= 2


@pytest.mark.parametrize("placement", ["sparrow", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_end_one_after_the_other_lose_nothing_that_may_start_once_only(seed: int, placement: str) -> None:
    """Tasks are shorter than a frame takes: a node is often idle while tasks are on their way to it."""
    world = World(seed, nodes=[1, 1, 1], schedulers=2, latency=(0.005, 0.03), scheduler={"placement": placement})
    log = world.submit([0.001] * 60, max_attempts=1)
    for number in range(6):
        world.run_for(0.1 + 0.01 * seed)
        world.drain_node(world.nodes[number % len(world.nodes)], back_after_s=0.05)
    world.run()
    world.check_end()
    assert set(log.statuses()) == {FINISHED}


@pytest.mark.parametrize("local", [False, True])
def test_what_crossed_the_news_of_a_drain_is_not_taken_for_new(local: bool) -> None:
    """The node is ready again by the time the scheduler hears of its drain: what was on its way is queued there."""
    rig = Rig("a")
    rig.submit(3, **({"preferred": [("a",)] * 3} if local else {}))
    old = rig.reserved()["a"].ticket
    rig.node("a", m.NodeState(m.DRAINING, ""))
    assert [cancel.ticket for cancel in rig.take(m.CancelReservations)] == [old]
    rig.node("a", m.NodeState(m.READY, ""))
    new = rig.reserved()["a"]
    assert new.ticket != old
    rig.node("a", m.GetTasks(7, old, 1), m.ReservationsRefused(old, 1, "too many"))
    assert rig.take(m.NoTask) == [m.NoTask(7, 1)]
    assert rig.core.live_reservations("a") == new.count


def test_an_ask_for_more_than_was_reserved_gets_nothing_that_was_reserved_under_another_ticket() -> None:
    """Its reservation came twice: no TCP connection does that, but the scheduler's books have to survive it."""
    rig = Rig("a", "b")
    rig.submit(2, preferred=[("a",), ("b",)], retry_failed=True)
    first = rig.reserved()["a"].ticket
    rig.node("a", m.GetTasks(1, first, 1))
    rig.node("b", m.NodeState(m.DRAINING, ""))  # From now on the stage's reservations have another ticket.
    (launch,) = rig.take(m.Launch)
    rig.node("a", m.Report("j", 0, launch.attempt, TaskStatus.FAILED, b"", "", 0.0, 0.1))
    second = rig.reserved()["a"].ticket
    assert second != first
    rig.node("a", m.GetTasks(2, first, 1))
    assert rig.take(m.NoTask) == [m.NoTask(2, 1)] and not rig.take(m.Launch)
    rig.node("a", m.GetTasks(3, second, 1))
    assert [launch.task for launch in rig.take(m.Launch)] == [0]


def test_a_state_that_is_none_breaks_the_link() -> None:
    with pytest.raises(LinkError, match="dancing"):
        Rig("a").node("a", m.NodeState("dancing", ""))


def test_an_ask_gets_as_many_tasks_as_fit_what_is_free() -> None:
    rig = Rig("a")
    rig.submit(5, demand={"cpu": 0.1})
    ticket = rig.reserved()["a"].ticket
    rig.node("a", m.GetTasks(1, ticket, 5, {"cpu": 0.3 - 0.1 + 0.1}))
    assert len(rig.take(m.Launch)) == 3 and rig.take(m.NoTask) == [m.NoTask(1, 2)]


# ---- clients -------------------------------------------------------------------------------------


def test_tasks_may_be_cancelled_whose_payloads_came_too_late() -> None:
    """The operator had cancelled the job; the client, who cannot know, cancels more of it: its link must stand."""
    rig = Rig("a")
    rig.core.receive_from_client("c", "anna", submission("j", 3), 0.0)
    rig.core.receive_from_client("c", "anna", m.AddTasks("j", 0, [b""]), 0.0)
    rig.node("a", m.GetTasks(1, rig.reserved()["a"].ticket, 1))
    rig.core.cancel_job("j", 0.1)
    rig.core.receive_from_client("c", "anna", m.AddTasks("j", 1, [b"", b""]), 0.1)
    rig.core.receive_from_client("c", "anna", m.CancelTasks("j", [0, 2]), 0.1)
    rig.core.check_invariants()
    assert [outcome.task for outcome in rig.take(m.Outcome)] == [1, 2]


def test_a_task_that_has_not_arrived_cannot_be_cancelled() -> None:
    rig = Rig("a")
    rig.core.receive_from_client("c", "anna", submission("j", 3), 0.0)
    for number in (-1, 0, 3):
        with pytest.raises(LinkError, match=f"there is no task {number}"):
            rig.core.receive_from_client("c", "anna", m.CancelTasks("j", [number]), 0.0)


def test_a_job_that_has_the_id_of_an_earlier_one_does_not_get_its_results() -> None:
    """A client may choose ids, and use them again. If a scheduler dies meanwhile, the results are yesterday's."""
    world = World(nodes=[1, 1], schedulers=1)
    world.submit([0.01] * 2, job_id="nightly", common=b"")
    world.run()
    del world.logs["nightly"]
    again = world.submit([5.0] * 2, job_id="nightly", common=b"")
    world.run_for(0.1)
    world.crash_scheduler(world.schedulers[0])
    world.run()
    assert all(outcome.result == again.payloads[outcome.task] for outcome in again.outcomes)


def test_a_job_that_has_the_id_of_an_earlier_one_that_was_moved_is_not_fenced() -> None:
    """Node monitors remember the earlier one's epoch, and that it was another job."""
    world = World(nodes=[1], schedulers=1)
    world.submit([0.1], job_id="nightly", common=b"")
    world.run_for(0.05)
    world.crash_scheduler(world.schedulers[0])
    world.run()
    del world.logs["nightly"]
    again = world.submit([0.1], job_id="nightly", common=b"")
    world.run()
    assert again.ended_count == 1 and again.statuses() == [TaskStatus.FINISHED]
