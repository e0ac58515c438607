"""The one way in which attempts leave a node: what their scheduler hears, and what comes back with them."""

from __future__ import annotations

import pytest

from node_monitor.attempts import State
from sparrow_py.errors import InvariantViolated
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import OneJob, far

FINISHED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.CANCELLED, TaskStatus.LOST


def is_as_before(rig: OneJob) -> bool:
    core = rig.core
    return not core.attempts.by_key and core.free_slots == core.slots and core.free == {"cpu": 1.0}


@pytest.mark.parametrize("way", ["ended", "died", "cancelled", "handed back"])
def test_slot_and_resources_come_back_whichever_way_it_leaves(way: str) -> None:
    rig = OneJob(cpu=1.0)
    waits = way in ("cancelled", "handed back")
    (ask,) = rig.reserve(1, demand={"cpu": 1.0})
    rig.launch(1, ask.ask, far("f") if waits else b"p")
    assert rig.core.free == {"cpu": 0.0} and rig.core.free_slots == 0
    if way == "ended":
        rig.done("p0", 1)
    elif way == "died":
        rig.died("p0")
        rig.core.executor_up("p1", "pool", 1, 0.0)
    elif way == "cancelled":
        rig.receive(m.CancelAttempt("j", 1))
    else:
        rig.fetched("f", "far:1: 404")
    assert is_as_before(rig)
    said = [type(message) for _, message in rig.outbox.sent if isinstance(message, m.Report | m.HandBack)]
    assert said == [m.HandBack if way == "handed back" else m.Report], "its scheduler hears of each end once"


def test_an_end_is_remembered_for_the_next_scheduler_unless_the_task_was_cancelled() -> None:
    rig = OneJob(2)
    rig.start(1, 2)
    rig.done("p1", 1)
    rig.receive(m.CancelAttempt("j", 2, True))
    rig.died("p0")
    assert [status for _, status, _ in rig.reports()] == [FINISHED, CANCELLED]
    rig.core.scheduler_up("t")
    rig.receive(m.Claim("j", "anna", 1), scheduler="t")
    assert [(to, report.task) for to, report in rig.outbox.take(m.Report)] == [("t", 1)]


def test_attempts_are_found_by_state_and_scheduler() -> None:
    rig = OneJob(2)
    rig.start(1)
    (ask,) = rig.reserve(2)
    rig.launch(2, ask.ask, far("f"))
    book = rig.core.attempts
    assert [one.number for one in book.in_state(State.RUNS)] == [1]
    assert [one.number for one in book.in_state(State.WAITS, "s")] == [2]
    assert book.in_state(State.WAITS, "t") == [] == book.in_state(State.STOPPED)
    rig.fetched("f", "404")


def test_an_attempt_leaves_once() -> None:
    rig = OneJob()
    rig.start(1)
    (attempt,) = rig.core.attempts.by_key.values()
    executor = rig.core.executors["p0"]
    rig.done("p0", 1)
    with pytest.raises(InvariantViolated):
        rig.core.attempts.report(attempt, executor, 0.0, LOST, "once more")
