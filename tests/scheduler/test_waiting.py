"""Unplaced tasks wait: for a place, for preferred nodes, for nodes that refused, for nodes that are to come."""

from __future__ import annotations

import math

import pytest

from scheduler.book.waiting import BACKOFF_MAX_S, BACKOFF_S
from sparrow_py.constraints import parse
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info

LOST = TaskStatus.LOST
GPU = {"where": (parse("where", "gpu exists"),)}


def lost(rig: SchedulerRig) -> dict[int, str]:
    """Tasks that were lost since the last call, and why."""
    outcomes = rig.take(m.Outcome)
    assert {outcome.status for outcome in outcomes} <= {LOST}
    return {outcome.task: outcome.error for outcome in outcomes}


# ---- for a place -------------------------------------------------------------------------------


def test_what_has_no_place_within_the_queue_timeout_is_lost_and_what_runs_goes_on() -> None:
    rig = SchedulerRig("n")
    rig.submit_job(3, queue_timeout_s=2.0)
    (reserve,) = rig.take(m.Reserve)
    rig.node("n", m.GetTasks(1, reserve.ticket, 1), now_s=1.0)
    rig.tick(1.9)
    assert not lost(rig)
    rig.tick(2.0)
    assert lost(rig) == dict.fromkeys((1, 2), "no place was found within queue_timeout_s = 2 s")
    assert rig.core.jobs["j"].unplaced == 0 and not rig.core.admission.unplaced


def test_a_task_that_comes_back_has_its_whole_queue_timeout_again() -> None:
    rig = SchedulerRig("n")
    rig.submit_job(1, queue_timeout_s=2.0)
    (reserve,) = rig.take(m.Reserve)
    rig.node("n", m.GetTasks(1, reserve.ticket, 1), now_s=1.0)
    (launch,) = rig.take(m.Launch)
    rig.node("n", m.Report("j", 0, launch.attempt, LOST, b"", "it died", None, None), now_s=1.5)
    rig.tick(2.0)
    assert not lost(rig)
    rig.tick(3.5)
    assert list(lost(rig)) == [0]


@pytest.mark.parametrize("timeout_s", [None, math.inf])
def test_without_a_queue_timeout_tasks_wait_for_their_place_for_ever(timeout_s: float | None) -> None:
    rig = SchedulerRig("n")
    rig.submit_job(1, queue_timeout_s=timeout_s)
    rig.tick(1e9)
    assert not lost(rig) and rig.core.jobs["j"].unplaced == 1


# ---- for preferred nodes -----------------------------------------------------------------------


def test_after_the_delay_other_nodes_than_the_preferred_ones_will_do() -> None:
    rig = SchedulerRig("ab", probe_sharing=False)
    rig.submit_job(2, details={0: m.TaskDetail(("a",))}, local=True, delay_s=1.0, probe_ratio=1.0)
    first = rig.reserves()["a"]
    rig.tick(0.9)
    assert rig.core.jobs["j"].stages[0].preferences.preferred == {0: ("a",)}
    rig.tick(1.0)
    assert rig.core.jobs["j"].stages[0].preferences.preferred == {}
    rig.node("b", m.GetTasks(1, first.ticket, 2), now_s=1.0)
    assert rig.core.jobs["j"].stages[0].preferences.free == rig.core.jobs["j"].unplaced


# ---- for nodes that refused --------------------------------------------------------------------


def refuse(rig: SchedulerRig, now_s: float) -> int:
    """All nodes refuse what they were sent; returns how many reservations those were."""
    sent = rig.outbox.take(m.Reserve)
    for node, message in sent:
        rig.node(node, m.ReservationsRefused(message.ticket, message.count, "no room"), now_s=now_s)
    return len(sent)


def test_nodes_that_all_refused_are_tried_again_after_waits_that_double_up_to_the_maximum() -> None:
    rig, now_s, waits_s = SchedulerRig("a"), 0.0, []
    rig.submit_job(1)
    for _ in range(10):
        assert refuse(rig, now_s) == 1
        due_s = rig.core.jobs["j"].stages[0].search.retry_at_s
        assert due_s is not None
        waits_s.append(due_s - now_s)
        now_s = due_s
        rig.tick(now_s)
    for number, wait_s in enumerate(waits_s):
        whole_s = min(BACKOFF_S * 2**number, BACKOFF_MAX_S)
        assert whole_s / 2 - 1e-9 <= wait_s <= whole_s + 1e-9
    assert rig.core.jobs["j"].unplaced == 1


def test_a_task_that_is_placed_makes_the_next_wait_short_again() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(2, probe_ratio=1.0)
    search = rig.core.jobs["j"].stages[0].search
    refuse(rig, 0.0)
    rig.tick(search.retry_at_s)
    (reserve,) = rig.take(m.Reserve)
    assert search.backoff_s == BACKOFF_S
    rig.node("a", m.GetTasks(1, reserve.ticket, 1), now_s=1.0)
    assert search.backoff_s == 0.0


def test_a_node_that_refused_alone_is_left_alone_for_a_while() -> None:
    rig = SchedulerRig("ab")
    rig.submit_job(1, probe_ratio=1.0)
    ((node, message),) = rig.outbox.take(m.Reserve)
    rig.node(node, m.ReservationsRefused(message.ticket, 1, "no room"))
    search = rig.core.jobs["j"].stages[0].search
    assert set(rig.reserves()) == {"a", "b"} - {node} and search.refused_by == {node}
    rig.tick(BACKOFF_MAX_S)
    assert search.refused_by == set()


# ---- for nodes that are to come ----------------------------------------------------------------


@pytest.mark.parametrize(("of_job", "limit_s"), [(3.0, 3.0), (None, 9.0), (math.inf, None)])
def test_the_jobs_limit_counts_before_the_schedulers(of_job: float | None, limit_s: float | None) -> None:
    rig = SchedulerRig("n", wait_for_nodes_s=9.0)
    rig.submit_job(1, wait_for_nodes_s=of_job)
    rig.take(m.Reserve)
    rig.node_down("n", 1.0)
    rig.tick(1.0 + (limit_s or 1e6) - 0.1)
    assert not lost(rig)
    rig.tick(1.0 + (limit_s or 1e7))
    assert lost(rig) == ({0: f"no node that may run it was connected for {limit_s:g} s"} if limit_s else {})


def test_a_node_that_came_meanwhile_begins_the_wait_anew() -> None:
    rig = SchedulerRig("n")
    rig.submit_job(1, wait_for_nodes_s=10.0)
    rig.node_down("n", 1.0)
    rig.node_up("n", now_s=6.0)
    rig.node_down("n", 8.0)
    rig.tick(11.0)
    assert not lost(rig)
    rig.tick(17.9)
    assert not lost(rig)
    rig.tick(18.0)
    assert list(lost(rig)) == [0]


def test_a_node_that_comes_in_time_gets_what_waits() -> None:
    rig = SchedulerRig("n")
    rig.submit_job(2, wait_for_nodes_s=10.0, **GPU)
    assert not rig.take(m.Reserve) and rig.core.book.waiting.is_waiting(rig.core.jobs["j"].stages[0])
    rig.node_up("g", node_info(attributes={"gpu": "1"}), 9.9)
    assert set(rig.reserves()) == {"g"}
    rig.tick(1000.0)
    assert not lost(rig) and not rig.core.book.waiting.is_waiting(rig.core.jobs["j"].stages[0])


@pytest.mark.parametrize("placed", [False, True])
def test_where_every_node_bars_a_job_it_is_lost_at_once_unless_some_task_was_taken(placed: bool) -> None:
    """A job that no connected node could run is refused at once, too."""
    rig = SchedulerRig("n", wait_for_nodes_s=10.0)
    rig.submit_job(2, probe_ratio=1.0)
    (reserve,) = rig.take(m.Reserve)
    if placed:
        rig.node("n", m.GetTasks(1, reserve.ticket, 1))
    refused = m.ReservationsRefused(reserve.ticket, 1 if placed else 2, "anna has no account", True)
    rig.node("n", refused, now_s=1.0)
    rig.tick(1.0)
    why = "no connected node takes it; node n: anna has no account"
    assert lost(rig) == dict.fromkeys(() if placed else (0, 1), why)
    rig.tick(11.0)
    assert list(lost(rig)) == ([1] if placed else [])


def test_each_task_waits_for_its_own_preferred_nodes_its_own_time() -> None:
    rig = SchedulerRig("ab", wait_for_nodes_s=10.0)
    rig.submit_job(3, details={0: m.TaskDetail(("a",)), 1: m.TaskDetail(("b",))}, local=True)
    rig.node_down("a", 1.0)
    rig.node_down("b", 3.0)
    rig.tick(11.0)
    assert list(lost(rig)) == [0]
    rig.tick(13.0)
    assert sorted(lost(rig)) == [1, 2], "those without a constraint waited since the last node went"
