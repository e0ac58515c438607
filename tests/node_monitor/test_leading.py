"""Which scheduler's placed tasks a node takes, and what it tells of that, message by message."""

from __future__ import annotations

from typing import Any

import pytest

from node_monitor import leading
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

ANNA = ("anna", 0)


class Node(NodeCore):
    """A node monitor with two slots of the app "pool", linked to the schedulers a, b and c."""

    def __init__(self) -> None:
        super().__init__(2, schedulers=("a", "b", "c"), report_idle=False)

    def lead(self, scheduler: str, epoch: int, plane: str = m.FLOW) -> None:
        """The scheduler asks with epoch 0, or leads."""
        self.receive(m.Lead(plane, epoch), scheduler=scheduler)

    def to(self, scheduler: str) -> list[Any]:
        """What the scheduler was sent since the last call, but for getTasks and loads."""
        sent = [message for to, message in self.outbox.sent if to == scheduler]
        self.outbox.sent = [pair for pair in self.outbox.sent if pair[0] != scheduler]
        return [message for message in sent if not isinstance(message, m.GetTasks | m.NodeLoad)]

    def told(self, scheduler: str) -> list[tuple[int, str, bool]]:
        """(epoch, leader, linked) of what it was told of the leader."""
        return [(one.epoch, one.leader, one.linked) for one in self.to(scheduler) if isinstance(one, m.Leading)]

    def relink(self, scheduler: str) -> None:
        """The scheduler's link breaks and comes again."""
        self.core.scheduler_down(scheduler, self.now_s)
        self.core.scheduler_up(scheduler)


def test_who_asks_first_hears_that_nobody_leads() -> None:
    node = Node()
    node.lead("a", 0)
    assert node.to("a") == [m.Leading(m.FLOW, 0, "", False)]
    assert not node.core.leading.accepts("a", 0)


def test_the_first_claim_of_an_epoch_is_accepted_and_a_second_one_of_it_is_told_whose_it_is() -> None:
    node = Node()
    node.lead("a", 1)
    node.lead("b", 1)
    assert node.told("a") == [(1, "a", True)]
    assert node.to("b") == [m.Leading(m.FLOW, 1, "a", True)]
    assert node.core.leading.accepts("a", 1) and not node.core.leading.accepts("b", 1)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_claim_that_is_not_above_the_known_epoch_changes_nothing(epoch: int) -> None:
    node = Node()
    node.lead("a", 2)
    node.lead("b", epoch)
    assert node.told("b") == [(2, "a", True)]
    assert node.core.leading.accepts("a", 2)


def test_a_higher_epoch_is_accepted_and_the_leader_before_and_those_that_wait_hear_of_it() -> None:
    node = Node()
    changes: list[float] = []
    node.core.leading.leader_changed = changes.append
    node.lead("c", 0)
    node.lead("a", 1)
    node.to("a"), node.to("c")
    node.lead("b", 2)
    assert node.told("a") == node.told("c") == [(2, "b", True)]
    assert [type(one) for one in node.to("b")] == [m.Leading, m.Inventory]
    assert not node.core.leading.accepts("a", 1) and node.core.leading.accepts("b", 2)
    assert len(changes) == 2


def test_a_leader_may_raise_its_own_epoch_and_its_tasks_of_the_one_before_are_taken_no_more() -> None:
    node = Node()
    node.lead("a", 1)
    node.lead("a", 5)
    assert node.told("a") == [(1, "a", True), (5, "a", True)]
    assert node.core.leading.accepts("a", 5) and not node.core.leading.accepts("a", 1)


def test_schedulers_that_have_asked_hear_that_the_leader_is_gone_and_that_it_is_back() -> None:
    node = Node()
    node.lead("b", 0)
    node.lead("a", 1)
    node.to("b")
    node.relink("a")
    assert node.told("b") == [(1, "a", False), (1, "a", True)]
    assert node.core.leading.accepts("a", 1)


def test_it_is_told_where_the_leader_was_dialled() -> None:
    node = Node()
    node.core.scheduler_up("d", address="10.0.0.1:20503")
    node.lead("d", 1)
    assert node.to("d")[0] == m.Leading(m.FLOW, 1, "d", True, "10.0.0.1:20503")


def test_tasks_of_a_leader_whose_link_is_gone_are_not_taken() -> None:
    node = Node()
    node.lead("a", 1)
    node.core.scheduler_down("a", 0.0)
    assert not node.core.leading.accepts("a", 1)


def test_a_leader_that_asks_leads_no_more_until_it_says_so_again() -> None:
    node = Node()
    node.lead("b", 0)
    node.lead("a", 1)
    node.lead("a", 0)
    assert node.told("b") == [(0, "", False), (1, "a", True), (1, "a", False)]
    assert node.told("a") == [(1, "a", True), (1, "a", False)]
    node.lead("a", 1)
    assert node.told("a") == node.told("b") == [(1, "a", True)]


def test_while_a_plane_has_a_leader_none_of_another_is_accepted_and_that_one_hears_of_it() -> None:
    node = Node()
    node.lead("a", 1, "one")
    node.lead("b", 1, "another")
    assert node.core.leading.accepts("a", 1) and not node.core.leading.accepts("b", 1)
    assert node.to("b") == [m.Leading("one", 1, "a", True), m.Leading("another", 0, "", False)]
    assert set(node.core.leading.watchers) == {"a", "b"}


@pytest.mark.parametrize("ends", ["asks", "is gone"])
def test_once_that_leader_leads_no_more_another_plane_may_have_one_and_the_first_does_not_come_back_beside_it(
    ends: str,
) -> None:
    node = Node()
    node.lead("a", 1, "one")
    node.lead("b", 1, "another")
    node.to("b")
    if ends == "asks":
        node.lead("a", 0, "one")
    else:
        node.core.scheduler_down("a", node.now_s)
    assert m.Leading("one", 1, "a", False) in node.to("b")
    node.lead("b", 1, "another")
    assert node.core.leading.accepts("b", 1)
    if ends == "is gone":
        node.core.scheduler_up("a")
    node.to("a")
    node.lead("a", 1, "one")
    assert not node.core.leading.accepts("a", 1) and node.core.leading.accepts("b", 1)
    assert node.to("a")[0] == m.Leading("another", 1, "b", True)


def test_a_node_knows_so_many_planes() -> None:
    node = Node()
    for number in range(leading.PLANES_MAX):
        node.lead("a", 0, f"plane {number}")
    with pytest.raises(LinkError, match=f"leaders of {leading.PLANES_MAX} planes are known already"):
        node.lead("a", 1, "one more")


@pytest.mark.parametrize(
    ("plane", "epoch"),
    [("", 1), ("p" * (m.PLANE_CHARS_MAX + 1), 1), (m.FLOW, -1), (m.FLOW, m.LEAD_EPOCH_MAX)],
)
def test_a_lead_that_cannot_be_is_an_error_that_names_it(plane: str, epoch: int) -> None:
    with pytest.raises(LinkError, match=f"epoch {epoch} of plane '.* is no lead"):
        Node().lead("a", epoch, plane)


def test_the_inventory_names_jobs_that_run_and_those_that_leaders_have_placed_until_they_have_long_ended() -> None:
    node = Node()
    node.receive(reserve(1, app="pool", job="sampled"), scheduler="c")
    node.receive(m.Launch(1, "sampled", 0, 0, 1, b"p"), scheduler="c")
    for job in ("over", "kept"):
        node.core.leading.placed(ANNA, job)
    node.receive(m.ForgetJob("over"), scheduler="a")
    node.now_s = leading.ENDED_NAMED_S
    node.lead("b", 3)
    runs, over, kept = ("anna", "sampled", 0), ("anna", "over", 0), ("anna", "kept", 0)
    assert node.to("b")[-1] == m.Inventory(m.FLOW, 3, [runs, over, kept], True)
    node.now_s += 0.1
    node.lead("b", 3)
    assert node.to("b")[-1] == m.Inventory(m.FLOW, 3, [runs, kept], True)


def test_a_job_that_comes_again_has_not_ended() -> None:
    node = Node()
    node.core.leading.placed(ANNA, "j")
    node.receive(m.ForgetJob("j"), scheduler="a")
    node.core.leading.placed(ANNA, "j")
    node.now_s = 2 * leading.ENDED_NAMED_S
    node.lead("b", 1)
    assert node.to("b")[-1].jobs == [("anna", "j", 0)]


def test_the_end_of_another_users_job_of_the_same_id_is_not_its_end() -> None:
    """That one was sampled by another scheduler."""
    node = Node()
    node.core.leading.placed(("bert", 7), "j")
    node.receive(reserve(1, app="pool", job="j"), scheduler="c")
    node.receive(m.Launch(1, "j", 0, 0, 1, b"p"), scheduler="c")
    (attempt,) = node.core.attempts.by_key.values()
    assert attempt.job.owner[0] == "anna"
    node.receive(m.ForgetJob("j"), scheduler="c")
    node.now_s = 2 * leading.ENDED_NAMED_S
    node.lead("a", 1)
    assert ("bert", "j", 7) in node.to("a")[-1].jobs


def test_a_job_id_of_two_users_is_named_for_the_one_whose_job_goes_on() -> None:
    node = Node()
    node.core.leading.placed(ANNA, "j")
    node.core.leading.placed(("bert", 7), "j")
    node.core.leading.ended("j", ANNA, 0.0)
    node.now_s = 2 * leading.ENDED_NAMED_S
    node.lead("a", 1)
    assert node.to("a")[-1].jobs == [("bert", "j", 7)]


def test_a_job_id_of_two_users_is_named_for_both() -> None:
    node = Node()
    node.core.leading.placed(ANNA, "j")
    node.core.leading.placed(("bert", 7), "j")
    node.lead("a", 1)
    assert sorted(node.to("a")[-1].jobs) == [("anna", "j", 0), ("bert", "j", 7)]


@pytest.mark.parametrize("jobs", [0, 1, m.NUMBERS_PER_MESSAGE_MAX, m.NUMBERS_PER_MESSAGE_MAX + 1])
def test_an_inventory_comes_in_messages_of_so_many_jobs_of_which_the_last_says_that_it_is(jobs: int) -> None:
    node = Node()
    for number in range(jobs):
        node.core.leading.placed(ANNA, f"j{number}")
    node.lead("a", 1)
    parts = node.to("a")[1:]
    assert [len(part.jobs) <= m.NUMBERS_PER_MESSAGE_MAX for part in parts] == [True] * max(1, -(-jobs // 200))
    assert [part.complete for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [job for part in parts for _, job, _ in part.jobs] == [f"j{number}" for number in range(jobs)]


def test_the_oldest_placed_job_is_forgotten_beyond_the_maximum() -> None:
    node = Node()
    for number in range(leading.PLACED_JOBS_MAX + 1):
        node.core.leading.placed(ANNA, f"j{number}")
    node.lead("a", 1)
    named = [job for part in node.to("a")[1:] for _, job, _ in part.jobs]
    assert len(named) == leading.PLACED_JOBS_MAX and named[0] == "j1"


def test_while_no_task_was_placed_the_ends_of_jobs_cost_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one for each job that has ended, which for small jobs is one for each task."""
    node, told = Node(), list[str]()
    monkeypatch.setattr(leading.Leading, "ended", lambda self, job, owner, now_s: told.append(job))
    node.receive(reserve(1, app="pool", job="sampled"), scheduler="c")
    node.receive(m.ForgetJob("sampled"), scheduler="c")
    assert not told
    node.core.leading.placed(ANNA, "j")
    node.receive(m.ForgetJob("j"), scheduler="a")
    assert told == ["j"]
