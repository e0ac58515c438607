"""Jobs at a scheduler whose plane has a leader, message by message: taken only while it leads, claimed by inventory."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book import inventories
from scheduler.book.submission import NOT_LEADING_RETRY_S
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.most_free_slots import LedMostFreeSlots
from tests.support.scheduler_rig import SchedulerRig, node_info

CLAIM_TIMEOUT_S = 1.0
Key = tuple[str, str, int]


@pytest.fixture(autouse=True)
def plane_with_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.core.plane_of", lambda options, history: LedMostFreeSlots)


class Rig(SchedulerRig):
    """A scheduler, "scheduler", which asks its nodes who leads, and a client that may bring the job j."""

    def __init__(self, *nodes: str, **options: Any) -> None:
        self.told: list[bool] = []
        options = {"settling_s": 0.0, "claim_timeout_s": CLAIM_TIMEOUT_S, "takeover_s": 1.0, **options}
        super().__init__(nodes, policy=m.FLOW, **options)
        self.core.lead_told = self.told.append

    def says(self, node: str, epoch: int, leader: str = "", *, linked: bool = False, now_s: float = 0.0) -> None:
        self.node(node, m.Leading(m.FLOW, epoch, leader, linked, "l:1"), now_s=now_s)

    def lead(self) -> None:
        """It comes to lead, with epoch 1. The inventories are yet to come."""
        nodes = [node.id for node in self.core.nodes.all()]
        for node in nodes:
            self.says(node, 0)
        self.tick(0.0)
        for node in nodes:
            self.says(node, 1, "scheduler", linked=True)
        assert self.core.leads

    def named(self, node: str, *jobs: Key, complete: bool = True, epoch: int = 1, now_s: float = 0.0) -> None:
        """The node's inventory, or a part of it."""
        self.node(node, m.Inventory(m.FLOW, epoch, list(jobs), complete), now_s=now_s)

    def submit_job(self, tasks: int = 1, *between: Any, **fields: Any) -> None:
        super().submit_job(tasks, *between, **{"policy": m.FLOW, **fields})

    def bring(self, job: str = "j", now_s: float = 0.0, **fields: Any) -> None:
        """The job, which was at another leader before."""
        self.submit_job(2, job=job, now_s=now_s, **{"epoch": 1, **fields})

    def claims(self) -> list[tuple[str, str]]:
        """(node, job) of those that were sent since the last call."""
        return [(node, message.job) for node, message in self.outbox.take(m.Claim)]


J: Key = ("anna", "j", 0)


def leader(*nodes: str, **options: Any) -> Rig:
    rig = Rig(*nodes, **options)
    rig.lead()
    return rig


# ---- who takes jobs -------------------------------------------------------------------------------


def test_a_job_is_refused_for_a_while_with_the_reason_until_the_scheduler_leads() -> None:
    rig = Rig("a", "b")
    rig.submit_job(1)
    (refused,) = rig.take(m.JobRefused)
    assert (refused.job, refused.retry_after_s, refused.field) == ("j", NOT_LEADING_RETRY_S, "")
    assert refused.reason == "it does not lead plane flow yet: it asks 2 nodes who does"
    rig.lead()
    assert rig.told == [True]
    rig.submit_job(1)
    assert rig.take(m.JobAccepted) == [m.JobAccepted("j")]


def test_a_deposed_scheduler_tells_clients_first_that_it_leads_no_more_and_then_hands_their_jobs_over() -> None:
    rig = leader("a")
    rig.named("a")
    rig.submit_job(6)
    assert len(rig.take(m.LaunchPlaced)) == 4
    rig.core.lead_told = lambda leads: rig.core.tell_client("c", m.Leads(leads))
    rig.outbox.sent.clear()
    rig.says("a", 2, "other", linked=True)
    to_client = [message for to, message in rig.outbox.sent if to == "c"]
    assert to_client == [m.Leads(False), m.HandedOver("j", ((4, 2),))]
    assert not rig.core.jobs and not rig.take(m.ForgetJob) and not rig.take(m.CancelAttempt)
    rig.bring()
    (refused,) = rig.take(m.JobRefused)
    assert "another scheduler does (other at l:1, epoch 2)" in refused.reason


def test_nothing_is_placed_by_a_scheduler_without_the_lead_and_what_it_has_goes_on_when_it_leads_again() -> None:
    rig = leader("a", wait_for_nodes_s=300.0)
    rig.named("a")
    rig.submit_job(6)
    rig.take(m.LaunchPlaced)
    rig.node_down("a", now_s=5.0)
    rig.tick(6.0)
    assert rig.told == [True, False] and set(rig.core.jobs) == {"j"}
    rig.node_up("b", now_s=7.0)
    assert not rig.take(m.LaunchPlaced)
    rig.says("b", 0, now_s=7.0)
    rig.tick(7.0)
    rig.says("b", 2, "scheduler", linked=True, now_s=7.0)
    rig.tick(20.0)
    assert rig.told == [True, False, True]
    assert {message.task for message in rig.take(m.LaunchPlaced)} == {0, 1, 2, 3}


# ---- claims ---------------------------------------------------------------------------------------


def test_a_job_is_claimed_where_inventories_name_it_and_nowhere_else() -> None:
    rig = leader("a", "b", "c")
    rig.named("a")
    rig.named("b", J, ("anna", "k", 0))
    rig.named("c", ("anna", "k", 0), ("bert", "j", 0), ("anna", "j", 7))
    rig.bring()
    assert rig.claims() == [("b", "j")]
    rig.node("b", m.Claimed("j", 1, [(0, 1)], False, "anna"))
    assert {message.task for message in rig.take(m.LaunchPlaced)} == {1}


def test_a_job_that_nobody_has_anything_of_starts_at_once() -> None:
    rig = leader("a", "b")
    rig.named("a")
    rig.named("b")
    rig.bring()
    assert not rig.claims() and len(rig.take(m.LaunchPlaced)) == 2


def test_a_job_that_comes_before_the_inventories_waits_for_all_of_them() -> None:
    rig = leader("a", "b")
    rig.bring()
    rig.named("a", J)
    rig.named("b", ("anna", "k", 0), complete=False)
    assert not rig.claims() and not rig.take(m.LaunchPlaced)
    rig.named("b", J)
    assert rig.claims() == [("a", "j"), ("b", "j")]
    rig.node("a", m.Claimed("j", 1, [], False, "anna"))
    assert not rig.take(m.LaunchPlaced)
    rig.node("b", m.Claimed("j", 1, [], False, "anna"))
    assert len(rig.take(m.LaunchPlaced)) == 2


def test_a_job_waits_no_longer_for_an_inventory_that_does_not_come_and_is_claimed_there_when_it_does() -> None:
    rig = leader("a", "b")
    rig.named("a", J)
    rig.bring()
    rig.tick(CLAIM_TIMEOUT_S - 0.1)
    assert not rig.claims()
    rig.tick(CLAIM_TIMEOUT_S)
    assert rig.claims() == [("a", "j")]
    rig.node("a", m.Claimed("j", 1, [], False, "anna"), now_s=1.1)
    assert len(rig.take(m.LaunchPlaced)) == 2
    rig.named("b", J, now_s=1.2)
    assert rig.claims() == [("b", "j")]
    rig.node("b", m.Claimed("j", 1, [(0, 1)], False, "anna"), now_s=1.3)
    assert len(rig.take(m.CancelAttempt)) == 1, "the task runs twice; guarantee 3 counts both"


def test_a_node_that_goes_is_waited_for_no_more() -> None:
    rig = leader("a", "b")
    rig.named("a")
    rig.bring()
    rig.node_down("b")
    assert len(rig.take(m.LaunchPlaced)) == 2


def test_a_node_that_comes_back_names_what_it_has_again() -> None:
    rig = leader("a", "b")
    rig.named("a")
    rig.named("b", J)
    rig.node_down("b")
    rig.bring()
    assert not rig.claims()
    rig.node_up("b")
    rig.says("b", 1, "scheduler", linked=True)
    rig.named("b", J)
    assert rig.claims() == [("b", "j")]


def test_a_job_that_accounts_for_its_starts_is_claimed_at_all_nodes() -> None:
    rig = leader("a", "b")
    rig.named("a")
    rig.named("b")
    rig.bring(max_attempts=1, acknowledges=True)
    assert rig.claims() == [("a", "j"), ("b", "j")]


def test_a_job_that_comes_back_to_the_leader_is_claimed_where_that_has_sent_it() -> None:
    rig = leader("a", "b", "c")
    for node in "abc":
        rig.named(node)
    rig.core.node_down("c", 0.0)
    rig.submit_job(5)
    assert {node for node, _ in rig.outbox.take(m.LaunchPlaced)} == {"a", "b"}
    rig.node_up("c")
    rig.says("c", 1, "scheduler", linked=True)
    rig.named("c")
    rig.submit_job(5, epoch=1)
    assert rig.claims() == [("a", "j"), ("b", "j")]


def test_a_job_that_has_ended_and_whose_client_comes_again_with_it_is_claimed_where_its_outcomes_are() -> None:
    rig = leader("a", "b")
    rig.named("a")
    rig.named("b")
    rig.submit_job(1)
    ((node, launch),) = rig.outbox.take(m.LaunchPlaced)
    rig.node(node, m.Report("j", 0, launch.attempt, TaskStatus.FINISHED, b"r", "", 0.0, 0.1))
    assert rig.take(m.JobEnded)
    rig.bring(now_s=inventories.ENDED_KEPT_S)
    assert rig.claims() == [(node, "j")]


def test_where_an_ended_job_has_been_is_forgotten_in_time() -> None:
    rig = leader("a")
    rig.named("a")
    for job, now_s in (("j", 0.0), ("k", inventories.ENDED_KEPT_S + 1.0)):
        rig.submit_job(1, job=job, now_s=now_s)
        ((_, launch),) = rig.outbox.take(m.LaunchPlaced)
        rig.node("a", m.Report(job, 0, launch.attempt, TaskStatus.FINISHED, b"r", "", 0.0, 0.1), now_s=now_s)
    rig.bring(now_s=inventories.ENDED_KEPT_S + 2.0)
    assert not rig.claims()


def test_a_node_that_was_named_and_has_nothing_that_runs_is_told_when_the_job_has_ended() -> None:
    """Else it would name the job for ever."""
    rig = leader("a")
    rig.named("a", J)
    rig.bring()
    rig.node("a", m.Report("j", 0, 1, TaskStatus.FINISHED, b"r", "", 0.0, 0.1))
    rig.node("a", m.Report("j", 1, 2, TaskStatus.FINISHED, b"r", "", 0.0, 0.1))
    rig.node("a", m.Claimed("j", 1, [], False, "anna"))
    assert rig.take(m.JobEnded) and rig.outbox.take(m.ForgetJob) == [("a", m.ForgetJob("j"))]


def test_what_is_named_because_of_an_earlier_epoch_or_for_another_plane_does_not_count() -> None:
    rig = leader("a")
    rig.named("a", J, epoch=3)
    rig.node("a", m.Inventory("another", 1, [J], True))
    rig.bring()
    assert not rig.claims() and not rig.take(m.LaunchPlaced)
    rig.named("a")
    assert len(rig.take(m.LaunchPlaced)) == 2


def test_a_node_that_names_too_many_jobs_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventories, "JOBS_PER_NODE_MAX", 3)
    rig = leader("a")
    with pytest.raises(LinkError, match="node a names more than 3 jobs"):
        rig.named("a", *[("anna", f"j{number}", 0) for number in range(4)])


def test_after_a_failover_jobs_and_nodes_are_not_multiplied() -> None:
    """Each of 200 jobs has something at two of 300 nodes: 400 claims, where all with all would be 60,000."""
    rig = Rig()
    for number in range(300):
        rig.core.node_up(f"n{number}", node_info(), 0.0)
    rig.lead()
    jobs = [f"j{number}" for number in range(200)]
    for number, job in enumerate(jobs):
        rig.core.receive_from_client("c", "anna", _submission(job), 0.0)
        rig.core.receive_from_client("c", "anna", m.AddTasks(job, 0, [b"p", b"p"]), 0.0)
        for node in (number, number + 100):
            rig.core.receive_from_node(f"n{node}", m.Inventory(m.FLOW, 1, [("anna", job, 0)], False), 0.0)
    assert not rig.claims()
    for number in range(300):
        rig.core.receive_from_node(f"n{number}", m.Inventory(m.FLOW, 1, [], True), 0.0)
    assert sorted(rig.claims()) == sorted((f"n{node}", job) for n, job in enumerate(jobs) for node in (n, n + 100))


def _submission(job: str) -> m.SubmitJob:
    stage = m.Stage("many", 2, b"", "", 2.0, 0, None)
    return m.SubmitJob(job, 1, "", [stage], 3, False, None, False, policy=m.FLOW)
