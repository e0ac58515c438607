"""Failover at the node monitor, message by message (ARCHITECTURE.md, "Failover"): claims, fences, remembered starts."""

from __future__ import annotations

from typing import Any

import pytest

from node_monitor.remembered_outcomes import RememberedOutcomes
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

FAILED = TaskStatus.FAILED


class Node(NodeCore):
    """A node monitor with two slots of the app "pool", and two schedulers: the old one loses the job j to the new."""

    def __init__(self) -> None:
        super().__init__(2, schedulers=("old", "new"), report_idle=False)

    def hear(self, scheduler: str, *messages: Any) -> None:
        """The scheduler says that."""
        self.receive(*messages, scheduler=scheduler)

    def run(self, attempt: int, ask: int, scheduler: str = "old", payload: m.Data = b"p") -> None:
        """The scheduler reserves a slot, and answers the node's ask with this attempt."""
        self.hear(scheduler, reserve(ask, app="pool", job="j"))
        self.hear(scheduler, m.Launch(ask, "j", 0, 0, attempt, payload))

    def to(self, scheduler: str) -> list[Any]:
        """What the scheduler was sent since the last call, but for getTasks."""
        sent = [message for to, message in self.outbox.sent if to == scheduler]
        self.outbox.sent = [pair for pair in self.outbox.sent if pair[0] != scheduler]
        return [message for message in sent if not isinstance(message, m.GetTasks)]


def test_a_node_moves_what_runs_to_the_scheduler_that_claims_it() -> None:
    node = Node()
    node.run(1, 1)
    node.hear("new", m.Claim("j", "anna", 1))
    assert node.to("new") == [m.Claimed("j", 1, [(0, 1)], user="anna")]
    assert node.to("old") == [m.Fenced("j", 1, "anna")]
    node.done("p1", 1)
    assert [type(message) for message in node.to("new")] == [m.Report] and not node.to("old")


def test_a_launch_of_a_lower_epoch_is_handed_back_and_its_slot_free() -> None:
    node = Node()
    node.hear("old", reserve(1, app="pool", job="j"))
    node.hear("new", m.Claim("j", "anna", 2))
    node.to("old")
    node.hear("old", m.Launch(1, "j", 0, 0, 1 << m.EPOCH_SHIFT | 1, b"p"))
    assert node.to("old") == [
        m.Fenced("j", 2, "anna"),
        m.HandBack("j", 1 << m.EPOCH_SHIFT | 1, "another scheduler has the job"),
    ]
    assert node.core.free_slots == 2 and node.core.idle and not node.outbox.take(x.Run)


def test_a_scheduler_whose_job_was_claimed_while_it_had_nothing_here_is_fenced_all_the_same() -> None:
    """Its task has ended, but the common bytes that it sent are here, and it will not send them again."""
    node = Node()
    node.hear("old", m.Common("j", 0, b"f", instance=7))
    node.run(1, 1)
    node.done("p1", 1)
    node.hear("old", reserve(2, app="pool", job="j"))
    node.hear("new", m.Claim("j", "anna", 1, instance=7))
    node.to("old")
    node.outbox.take(x.Run)
    node.hear("old", m.Launch(2, "j", 0, 1, 2, b"p"))
    assert node.to("old") == [m.Fenced("j", 1, "anna", 7), m.HandBack("j", 2, "another scheduler has the job")]
    assert not node.outbox.take(x.Run)
    node.hear("old", m.ForgetJob("j"))
    assert not node.core.jobs.by_key


def test_the_scheduler_that_claimed_may_launch() -> None:
    node = Node()
    node.hear("new", m.Claim("j", "anna", 1))
    node.run(1 << m.EPOCH_SHIFT | 1, 1, "new")
    assert len(node.outbox.take(x.Run)) == 1


def test_a_lower_claim_is_answered_with_the_fence() -> None:
    node = Node()
    node.hear("new", m.Claim("j", "anna", 2))
    node.to("new")
    node.hear("old", m.Claim("j", "anna", 1))
    assert node.to("old") == [m.Fenced("j", 2, "anna")] and not node.to("new")


def test_another_users_job_of_the_same_id_is_not_touched() -> None:
    node = Node()
    node.run(1, 1)
    node.hear("new", m.Claim("j", "bert", 1))
    assert node.to("new") == [m.Claimed("j", 1, [], user="bert")] and node.to("old") == []


def test_another_users_job_of_the_same_id_is_not_told_even_if_the_same_scheduler_had_it() -> None:
    node = Node()
    node.run(1, 1)
    node.hear("new", m.Claim("j", "anna", 1, 7), m.Claim("j", "anna", 1), m.Claim("j", "bert", 1))
    assert node.to("new") == [
        m.Claimed("j", 1, [], user="anna", instance=7),
        m.Claimed("j", 1, [(0, 1)], user="anna"),
        m.Claimed("j", 1, [], user="bert"),
    ]
    node.done("p1", 1)
    assert [(one.task, one.attempt) for one in node.to("new")] == [(0, 1)]


def test_a_node_says_whose_tasks_it_has_started() -> None:
    node = Node()
    launch(node, 0, 1)
    node.hear("new", m.Claim("j", "bert", 1, 7, 5.0), m.Claim("j", "anna", 1, 7, 5.0))
    assert [one for one in node.to("new") if not isinstance(one, m.Report)] == [
        m.Claimed("j", 1, [], True, "bert", 7),
        m.StartedHere("j", 1, [0, 1], "anna", 7),
        m.Claimed("j", 1, [], True, "anna", 7),
    ]


def test_outcomes_are_told_again_from_memory() -> None:
    node = Node()
    node.run(1, 1)
    node.done("p1", 1)
    (told,) = node.to("old")
    node.hear("new", m.Claim("j", "anna", 1))
    assert node.to("new") == [told, m.Claimed("j", 1, [], user="anna")]


def test_a_task_that_was_stopped_for_its_timeout_is_remembered_too() -> None:
    node = Node()
    node.hear("old", reserve(1, app="pool", job="j"), m.Common("j", 0, b"", 1.0))
    node.hear("old", m.Launch(1, "j", 0, 0, 1, b"p"))
    node.core.tick(1.0)
    node.core.executor_down(node.outbox.killed[0], "killed", 1.0)
    (told,) = node.to("old")
    assert told.status is FAILED
    node.hear("new", m.Claim("j", "anna", 1))
    assert node.to("new") == [told, m.Claimed("j", 1, [], user="anna")]


def test_what_has_not_started_is_dropped_when_it_is_claimed_and_when_its_scheduler_is_lost() -> None:
    """It waits for large data: nobody has seen it run."""
    for lose in (False, True):
        node = Node()
        node.run(1, 1, payload=BlobRef("f" * 64, 1 << 20, ("far:1",)))
        assert node.outbox.fetches and node.core.free_slots == 1
        if lose:
            node.core.scheduler_down("old", 0.0)
        else:
            node.hear("new", m.Claim("j", "anna", 1))
            assert node.to("new") == [m.Claimed("j", 1, [], user="anna")]
        assert node.core.free_slots == 2 and node.core.idle
        node.core.fetched("anna", "f" * 64, "", 0.0)
        assert not node.outbox.take(x.Run)


# ---- starts that are remembered --------------------------------------------------------------


def starts_of(node: Node, age_s: float | None = 5.0, epoch: int = 1) -> tuple[list[int], bool]:
    node.hear("new", m.Claim("j", "anna", epoch, 7, age_s))
    *before, claimed_ = [one for one in node.to("new") if isinstance(one, m.StartedHere | m.Claimed)]
    return [task for message in before for task in message.tasks], claimed_.vouches


def launch(node: Node, *tasks: int, once: bool = True) -> None:
    """The tasks start, one after the other, and end."""
    for task in tasks:
        node.hear("old", reserve(task + 1, app="pool", job="j"), m.Common("j", 0, b"", None, 7, once))
        ((_, ask),) = node.outbox.take(m.GetTasks)
        node.hear("old", m.Launch(ask.ask, "j", 0, task, task + 1, b"p"))
        for executor, run in node.outbox.take(x.Run):
            node.done(executor, run.run)


def test_a_node_names_the_tasks_that_it_has_started_even_if_their_outcomes_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    launch(node, 0, 1, 2)
    monkeypatch.setattr(RememberedOutcomes, "of", lambda *_: iter(()))
    assert starts_of(node) == ([0, 1, 2], True)


def test_a_node_says_nothing_of_starts_where_nobody_asks() -> None:
    node = Node()
    launch(node, 0)
    assert starts_of(node, age_s=None) == ([], False)
    other = Node()
    launch(other, 0, once=False)
    assert starts_of(other) == ([], True)


def test_starts_outlast_the_scheduler_and_its_forgetting() -> None:
    node = Node()
    launch(node, 0)
    node.hear("old", m.ForgetJob("j"))
    node.core.scheduler_down("old", 0.0)
    assert starts_of(node) == ([0], True)
