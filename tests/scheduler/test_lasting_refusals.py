"""The scheduler's core and nodes that will never take a stage's tasks, by what their operator says."""

from __future__ import annotations

import pytest

from scheduler.core import SchedulerCore
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.scheduler.test_comings_and_goings import Rig

WHY = "user 'anna' has no account at this node (run_as)"


def refuse(rig: Rig, node: str, reserve: m.Reserve, reason: str = WHY) -> None:
    rig.node(node, m.ReservationsRefused(reserve.ticket, reserve.count, reason, True))


def pass_time(core: SchedulerCore, until_s: float) -> None:
    """Tick whenever it is due."""
    while (at_s := core.next_deadline_s()) is not None and at_s <= until_s:
        core.tick(at_s)
        core.check_invariants()


def test_of_what_nodes_say_little_is_kept() -> None:
    """A rogue node may refuse each reservation of each stage with a reason of a megabyte."""
    long = "x" * 900_000
    rig = Rig("a", "b", history_len_max=100)
    rig.submit(2)
    reserved = rig.reserved()
    refuse(rig, "a", reserved["a"], long)
    (stage,) = (stage for job in rig.core.jobs.values() for stage in job.stages)
    assert len(stage.search.barred_by["a"]) == m.WITHDRAWN_CHARS_MAX
    rig.node("b", m.GetTasks(1, reserved["b"].ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.node("b", m.HandBack(launch.job, launch.attempt, long))
    rig.node("b", m.NodeState(m.CORDONED, long))
    assert all(len(line) < 2 * m.WITHDRAWN_CHARS_MAX for line in rig.core.story("j"))


def outcomes(rig: Rig) -> list[tuple[int, TaskStatus, str]]:
    return [(outcome.task, outcome.status, outcome.error) for outcome in rig.take(m.Outcome)]


@pytest.mark.parametrize("local", [False, True])
def test_tasks_that_no_connected_node_takes_are_lost_at_once_and_say_why(local: bool) -> None:
    rig = Rig("a", "b")
    rig.submit(2, **({"preferred": [("a",), ("b",)]} if local else {}))
    rounds = 0
    while reserved := rig.reserved():
        for node, reserve in reserved.items():
            refuse(rig, node, reserve)
        rounds += 1
    assert rounds <= 2, "each is asked once"
    pass_time(rig.core, 0.0)
    lost = outcomes(rig)
    assert [(task, status) for task, status, _ in lost] == [(0, TaskStatus.LOST), (1, TaskStatus.LOST)]
    assert all("no connected node takes it; node " in error and WHY in error for _, _, error in lost)


def test_a_node_that_takes_them_gets_all_and_the_other_is_not_asked_again() -> None:
    rig = Rig("a", "b")
    rig.submit(4)
    reserved = rig.reserved()
    refuse(rig, "a", reserved["a"])
    assert set(rig.reserved()) <= {"b"} and rig.core.live_reservations("b") >= 4
    pass_time(rig.core, 60.0)
    assert not rig.reserved() and not outcomes(rig)


def test_what_has_begun_elsewhere_waits_for_a_node_that_takes_the_rest() -> None:
    rig = Rig("a", "b", wait_for_nodes_s=5.0)
    rig.submit(2)
    reserved = rig.reserved()
    refuse(rig, "a", reserved["a"])
    rig.node("b", m.GetTasks(1, rig.reserved().get("b", reserved["b"]).ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.node("b", m.Report("j", launch.task, launch.attempt, TaskStatus.FINISHED, b"", "", 0.0, 0.1))
    assert [status for _, status, _ in outcomes(rig)] == [TaskStatus.FINISHED]
    rig.core.node_down("b", 0.0)
    pass_time(rig.core, 4.9)
    assert not outcomes(rig), "its node may come back"
    pass_time(rig.core, 5.1)
    ((_, status, error),) = outcomes(rig)
    assert status is TaskStatus.LOST and f"no connected node has taken it for 5 s; node a: {WHY}" in error


def test_a_node_that_comes_again_is_asked_again() -> None:
    """With other accounts, perhaps."""
    rig = Rig("a", "b", wait_for_nodes_s=5.0)
    rig.node("b", m.NodeState(m.CORDONED, ""))
    rig.submit(1)
    rig.core.node_down("b", 0.0)
    refuse(rig, "a", rig.reserved()["a"])
    rig.core.node_down("a", 0.0)
    rig.core.node_up("a", m.NodeInfo(1, {}, {}, {"many": ""}), 0.0)
    assert "a" in rig.reserved()


def test_a_node_that_says_that_it_has_changed_is_asked_again() -> None:
    """As it does, with nothing changed, when executors of an account start again."""
    rig = Rig("a", "b")
    rig.submit(2)
    refuse(rig, "a", rig.reserved()["a"])
    rig.reserved()
    rig.node("a", m.NodeChanged(rig.core.nodes["a"].info))
    assert "a" in rig.reserved()
