"""Which executors there are: started, restarted later and later, and what becomes of the tasks of those that die."""

from __future__ import annotations

import pytest

from node_monitor.supervision import RESTART_DELAY_MAX_S, RESTART_DELAY_S
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore, OneJob, far
from tests.support.recorder import reserve

LOST = TaskStatus.LOST


def test_an_executor_that_dies_gives_its_slot_back_and_its_runs_are_lost() -> None:
    rig = NodeCore()
    rig.receive(reserve(1, 2, app="pool"))
    rig.launches(1, ask=1)
    rig.core.executor_down("p0", "p0 was killed", 0.0)
    rig.settle()
    (report,) = rig.take(m.Report)
    assert (report.status, report.error) == (LOST, "p0 was killed")
    assert rig.core.free_slots == 1
    rig.take(m.GetTasks)
    rig.core.executor_up("p1", "pool", 1, 0.0)
    rig.settle()
    assert [ask.count for ask in rig.take(m.GetTasks)] == [1]


def test_executors_that_do_nothing_are_restarted_more_and_more_slowly() -> None:
    rig = NodeCore(1, executors=0)
    rig.core.start(["pool"])
    now_s, delays = 0.0, []
    for _ in range(12):
        rig.core.executor_failed("pool", "exited with code 1", now_s)
        due_s = rig.core.next_deadline_s()
        assert due_s is not None
        delays.append(due_s - now_s)
        now_s = due_s
        rig.core.tick(now_s)
    assert delays[:3] == pytest.approx([RESTART_DELAY_S, 2 * RESTART_DELAY_S, 4 * RESTART_DELAY_S])
    assert delays[-1] == pytest.approx(30.0)
    assert len(rig.outbox.started) == 13


def test_an_executor_that_worked_is_restarted_at_once() -> None:
    rig = NodeCore()
    rig.receive(reserve(1, app="pool"))
    rig.launches(1, ask=1)
    rig.done("p0", 1)
    before = len(rig.outbox.started)
    rig.core.executor_down("p0", "p0 was killed", 0.0)
    assert len(rig.outbox.started) == before + 1


def test_executors_that_ended_while_it_was_draining_start_when_it_takes_part_again() -> None:
    rig = OneJob()
    rig.start(1)
    rig.core.drain(0.0)
    before = len(rig.outbox.started)
    rig.died("p0")
    assert len(rig.outbox.started) == before
    rig.core.uncordon(0.0)
    assert len(rig.outbox.started) == before + 1


def test_the_wait_before_a_restart_has_a_maximum() -> None:
    node, waits = NodeCore(executors=0), []
    node.receive(reserve(1, app="pool"))
    for _ in range(20):
        node.outbox.started.clear()
        node.core.executor_failed("pool", "no memory", node.now_s)
        node.settle()
        due_s = node.core.next_deadline_s()
        assert due_s is not None
        waits.append(round(due_s - node.now_s, 6))
        node.tick(due_s)
    assert waits == sorted(waits) and (waits[0], waits[-1]) == (RESTART_DELAY_S, RESTART_DELAY_MAX_S)


def test_an_executor_that_is_leaving_gets_no_task_and_ends_what_it_has() -> None:
    node = NodeCore(2)
    node.receive(reserve(1, 2, app="pool"))
    node.launches(1, ask=1)
    (busy,) = [one for one, executor in node.core.executors.items() if executor.running]
    node.core.executor_leaving(busy, 0.0)
    node.core.executor_leaving(busy, 0.0)
    node.settle()
    node.done(busy, 1)
    assert [report.status for report in node.take(m.Report)] == [TaskStatus.FINISHED]
    node.receive(reserve(2, 5, app="pool"))
    assert sum(ask.count for ask in node.take(m.GetTasks)) <= 2
    assert not node.core.executors[busy].running and node.core.executors[busy].leaving


def test_an_executor_may_give_the_node_attributes_only_if_its_app_may() -> None:
    node = NodeCore()
    with pytest.raises(LinkError, match="executors of app 'pool' may give this node no attributes"):
        node.core.executor_says("p0", x.Attributes({"gpu": "yes"}), 0.0)
    assert not node.take(m.NodeChanged)


def test_a_task_that_waited_for_its_inputs_was_not_started_when_its_executor_died() -> None:
    rig = OneJob(2, "many")
    rig.start(1)
    (ask,) = rig.reserve(2)
    rig.launch(2, ask.ask, far("f"))
    rig.died("p0", "it was killed")
    assert rig.reports() == [(1, LOST, "it was killed")]
    assert [(back.attempt, back.reason) for back in rig.take(m.HandBack)] == [(2, "it was killed")]
    rig.fetched("f")
