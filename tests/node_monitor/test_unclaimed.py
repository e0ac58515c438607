"""A scheduler dies: what tasks had submitted there goes on for a minute, and then only if another scheduler has it."""

from __future__ import annotations

import pytest

from node_monitor.unclaimed import REASON, UNCLAIMED_S
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore
from tests.support.recorder import reserve


class Node(NodeCore):
    """A node with two slots and the schedulers "old" and "new"."""

    def __init__(self, app: str = "pool") -> None:
        plan = MANY if app == "many" else POOL
        super().__init__(2, [plan], schedulers=("old", "new"), report_idle=False)
        self.app = app

    def start(self, attempt: int, *, depth: int = 1, job: str = "j") -> tuple[str, int]:
        """The old scheduler has the attempt run here, whose job is nested so deep: at this executor, as this run."""
        fields = {"app": self.app, "job": job, "depth": depth}
        self.receive(reserve(attempt, **fields), scheduler="old")
        (ask,) = self.take(m.GetTasks)
        self.launches(attempt, ask=ask.ask, job=job, scheduler="old")
        ((executor, run),) = self.outbox.take(x.Run)
        return executor, run.run

    def lose(self, scheduler: str, now_s: float) -> None:
        """The scheduler is gone."""
        self.now_s = now_s
        self.core.scheduler_down(scheduler, now_s)
        self.settle()

    @property
    def killed(self) -> list[str]:
        """Executors that were ended since the last call."""
        killed, self.outbox.killed = list(self.outbox.killed), []
        return killed


def test_a_task_of_a_task_is_stopped_if_nobody_claims_it() -> None:
    node = Node()
    executor, _ = node.start(1)
    node.lose("old", 10.0)
    assert node.core.next_deadline_s() == 10.0 + UNCLAIMED_S
    node.tick(10.0 + UNCLAIMED_S - 0.001)
    assert not node.killed
    node.tick(10.0 + UNCLAIMED_S)
    assert node.killed == [executor]
    node.died(executor)
    assert node.core.idle


def test_its_slot_is_free_for_others_then() -> None:
    node = Node()
    executor, _ = node.start(1)
    node.start(2, job="j2")
    node.lose("old", 0.0)
    node.receive(reserve(3, app="pool", job="other"), scheduler="new")
    assert not node.take(m.GetTasks)
    node.tick(UNCLAIMED_S)
    node.died(executor)
    node.core.executor_up("p2", "pool", 1, node.now_s)
    node.settle()
    assert len(node.take(m.GetTasks)) == 1


def test_a_task_that_a_client_submitted_goes_on() -> None:
    """Its client may be cut off for long, and ask for its result then."""
    node = Node()
    node.start(1, depth=0)
    node.lose("old", 0.0)
    node.tick(100 * UNCLAIMED_S)
    assert not node.killed and not node.core.idle


def test_a_task_that_another_scheduler_has_claimed_goes_on() -> None:
    node = Node()
    executor, run = node.start(1)
    node.lose("old", 0.0)
    node.receive(m.Claim("j", "anna", 1), scheduler="new", now_s=UNCLAIMED_S - 0.001)
    node.tick(UNCLAIMED_S)
    assert not node.killed
    node.done(executor, run)
    assert [(to, report.status) for to, report in node.outbox.take(m.Report)] == [("new", TaskStatus.FINISHED)]


def test_so_it_does_if_its_own_scheduler_comes_back_and_claims_it() -> None:
    """The job's client was cut off as well, and takes the job to where it was."""
    node = Node()
    node.start(1)
    node.lose("old", 0.0)
    node.core.scheduler_up("old")
    node.receive(m.Claim("j", "anna", 1), scheduler="old", now_s=1.0)
    node.tick(UNCLAIMED_S)
    assert not node.killed


def test_the_job_of_another_id_that_is_claimed_does_not_save_it() -> None:
    node = Node()
    executor, _ = node.start(1)
    node.start(2, job="j2")
    node.lose("old", 0.0)
    node.receive(m.Claim("j2", "anna", 1), scheduler="new", now_s=1.0)
    node.tick(UNCLAIMED_S)
    assert node.killed == [executor]


def test_each_scheduler_that_has_it_counts_from_when_it_is_gone() -> None:
    node = Node()
    executor, _ = node.start(1)
    node.lose("old", 0.0)
    node.receive(m.Claim("j", "anna", 1), scheduler="new", now_s=1.0)
    node.lose("new", 2.0)
    node.tick(UNCLAIMED_S)
    assert not node.killed
    node.tick(2.0 + UNCLAIMED_S)
    assert node.killed == [executor]


def test_one_that_has_ended_meanwhile_is_not_stopped_and_its_run_is_not_anothers() -> None:
    node = Node()
    executor, run = node.start(1)
    node.lose("old", 0.0)
    node.done(executor, run, now_s=1.0)
    node.core.scheduler_up("old")
    node.start(2, depth=0, job="j2")
    node.tick(UNCLAIMED_S)
    assert not node.killed and not node.outbox.take(x.Kill)


def test_an_executor_with_several_places_ends_that_run_alone() -> None:
    node = Node("many")
    _, run = node.start(1)
    node.start(2, depth=0, job="j2")
    node.lose("old", 0.0)
    node.tick(UNCLAIMED_S)
    assert not node.killed
    assert [kill.runs for _, kill in node.outbox.take(x.Kill)] == [[run]]


def test_whoever_claims_it_later_hears_that_it_was_lost() -> None:
    """So its task starts again, if it may: nobody has cancelled it."""
    node = Node()
    executor, _ = node.start(1)
    node.lose("old", 0.0)
    node.tick(UNCLAIMED_S)
    node.died(executor)
    node.outbox.take(m.Report)
    node.receive(m.Claim("j", "anna", 1), scheduler="new")
    (report,) = node.take(m.Report)
    assert (report.attempt, report.status, report.error) == (1, TaskStatus.LOST, REASON)
    assert node.take(m.Claimed) == [m.Claimed("j", 1, [], user="anna")]


def with_one_behind_another() -> NodeCore:
    """A node whose scheduler is gone: run 2 goes on at p0, and run 3 is behind it there."""
    node = NodeCore(1)
    node.receive(reserve(1, 9, app="pool", prefetch=8, depth=1))
    node.launches(1, ask=1)
    node.launches(2, 3, ask=2)
    node.done("p0", 1)
    node.core.scheduler_down("s", 0.0)
    return node


def test_what_waits_behind_it_at_its_executor_is_asked_back() -> None:
    node = with_one_behind_another()
    node.tick(UNCLAIMED_S)
    assert node.outbox.killed == ["p0"] and node.take(x.Revoke) == [x.Revoke([3])]
    node.returned("p0", 3)
    assert [back.attempt for back in node.take(m.HandBack)] == [3]
    node.died("p0")
    assert node.core.idle


def test_what_is_not_returned_runs_by_then_and_is_stopped_later() -> None:
    node = with_one_behind_another()
    node.core.unclaimed.claimed([one for one in node.core.attempts.by_key.values() if one.number == 2])
    node.tick(UNCLAIMED_S)
    assert not node.outbox.killed
    node.done("p0", 2)
    node.returned("p0")
    assert not node.core.idle
    node.tick(2 * UNCLAIMED_S)
    assert node.outbox.killed == ["p0"]


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_it_holds_at_any_depth(depth: int) -> None:
    node = Node()
    executor, _ = node.start(1, depth=depth)
    node.lose("old", 0.0)
    node.tick(UNCLAIMED_S)
    assert node.killed == [executor]
