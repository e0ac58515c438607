"""Failover message by message (ARCHITECTURE.md, "Failover"): claims, adoption, outcomes, new starts, fences."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book import footprint
from scheduler.book.register import TAKEN_OVER_MAX
from scheduler.options import PLACEMENTS
from simulator.soak.fallible_hosts import ClientHost
from simulator.soak.world import World
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig
from tests.support.worlds import crash_all_that_know_a_job

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST
INFO = m.NodeInfo(4, {}, {}, {"many": ""})


class Rig(SchedulerRig):
    """A scheduler that has long been up, nodes, and a client that brings the job j with epoch 1."""

    def __init__(self, *nodes: str, **options: Any) -> None:
        super().__init__(nodes, **{"settling_s": 0.0, "claim_timeout_s": 1.0, **options})

    def bring(self, tasks: int = 1, known: m.Known | None = None, now_s: float = 0.0, **fields: Any) -> None:
        self.submit_job(tasks, *([known] if known else []), now_s=now_s, **{"epoch": 1, **fields})


def claimed(*running: tuple[int, int]) -> m.Claimed:
    return m.Claimed("j", 1, list(running))


def report(task: int, attempt: int, status: TaskStatus = FINISHED, result: m.Data = b"r") -> m.Report:
    return m.Report("j", task, attempt, status, result, "", 0.0, 0.1)


def test_all_nodes_are_asked_once_all_tasks_have_arrived_and_nothing_starts_before_they_have_answered() -> None:
    rig = Rig("a", "b")
    rig.client(submission("j", 2, epoch=1), m.AddTasks("j", 0, [b"p"]))
    assert not rig.take(m.Claim)
    rig.client(m.AddTasks("j", 1, [b"p"]))
    assert rig.outbox.take(m.Claim) == [("a", m.Claim("j", "anna", 1)), ("b", m.Claim("j", "anna", 1))]
    rig.node("a", claimed())
    assert not rig.take(m.Reserve)
    rig.node("b", claimed())
    assert rig.take(m.Reserve)


def test_what_runs_is_adopted_what_is_reported_is_settled_and_only_the_rest_is_started_again() -> None:
    rig = Rig("a", "b")
    rig.bring(3)
    rig.node("a", report(0, 1), claimed())
    rig.node("b", claimed((1, 2)))
    assert rig.outcomes() == [(0, FINISHED, 1)]
    (one, _) = rig.outbox.take(m.Reserve)
    assert sum(message.count for _, message in [one, _]) == 2  # For task 2 alone.
    rig.node(one[0], m.GetTasks(1, one[1].ticket, 1))
    assert [launch.task for launch in rig.take(m.Launch)] == [2]
    rig.node("b", report(1, 2))
    assert rig.outcomes() == [(1, FINISHED, 1)]


def test_attempts_carry_the_epoch_so_that_nodes_can_tell_them_apart() -> None:
    rig = Rig("a")
    rig.bring()
    rig.node("a", claimed())
    (reserve_,) = rig.take(m.Reserve)
    rig.node("a", m.GetTasks(1, reserve_.ticket, 1))
    (launch,) = rig.take(m.Launch)
    assert launch.attempt >> m.EPOCH_SHIFT == 1


def test_what_the_client_has_is_not_run_again_and_its_results_go_to_later_stages() -> None:
    rig = Rig("a")
    stages = [
        m.Stage("many", 2, b"", "", 2.0, 0, None, name="map"),
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="reduce", after=("map",)),
    ]
    rig.client(m.SubmitJob("j", 1, "", stages, 3, False, None, False))
    known = [m.KnownOutcome(0, FINISHED, b"zero"), m.KnownOutcome(1, FINISHED, b"one")]
    rig.client(m.Known("j", known, {}))
    rig.client(m.AddTasks("j", 0, [b"p"] * 3, {2: m.TaskDetail((), ((0, 2),))}))
    rig.node("a", claimed())
    (reserve_,) = rig.take(m.Reserve)
    rig.node("a", m.GetTasks(1, reserve_.ticket, 1))
    assert [(put.task, put.data) for put in rig.take(m.Input)] == [(0, b"zero"), (1, b"one")]
    assert [launch.task for launch in rig.take(m.Launch)] == [2]
    assert not rig.take(m.Outcome)


def test_a_failure_that_the_client_knows_dooms_what_comes_after() -> None:
    rig = Rig("a")
    stages = [
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="map"),
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="reduce", after=("map",)),
    ]
    rig.client(m.SubmitJob("j", 1, "", stages, 3, False, None, False))
    rig.client(m.Known("j", [m.KnownOutcome(0, FAILED, b"")], {}), m.AddTasks("j", 0, [b"p"] * 2))
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.task, outcome.status) == (1, CANCELLED) and "task 0 before it was failed" in outcome.error
    assert len(rig.take(m.JobEnded)) == 1


def test_known_outcomes_must_come_before_their_tasks() -> None:
    rig = Rig("a")
    rig.client(submission("j", 1), submission("k", 1, epoch=1))
    for job in ("j", "k"):
        with pytest.raises(LinkError, match="tasks that are to follow"):
            rig.client(m.Known(job, [m.KnownOutcome(1, FINISHED, b"")], {}))


@pytest.mark.parametrize(("starts", "ends"), [(0, []), (1, []), (2, [(0, LOST, 3)])])
def test_starts_in_vain_that_the_client_knows_of_count(starts: int, ends: list[Any]) -> None:
    """One more may have been lost with the scheduler: of three, one is left after one in vain, none after two."""
    rig = Rig("a")
    rig.bring(known=m.Known("j", [], {0: starts}), max_attempts=3)
    rig.node("a", claimed())
    assert rig.outcomes() == ends


def test_at_most_once_is_kept() -> None:
    rig = Rig("a")
    rig.bring(2, max_attempts=1)
    rig.node("a", report(0, 1), claimed())
    (first, second) = rig.take(m.Outcome)
    assert (first.task, first.status) == (0, FINISHED)
    assert (second.task, second.status) == (1, LOST) and "may have been started" in second.error


def test_nodes_that_do_not_answer_are_waited_for_so_long_and_no_longer() -> None:
    rig = Rig("a", "b", claim_timeout_s=1.0)
    rig.bring()
    rig.node("a", claimed())
    rig.tick(0.99)
    assert not rig.take(m.Reserve)
    rig.tick(1.0)
    assert rig.take(m.Reserve)


def test_a_node_that_dies_while_it_is_asked_is_not_waited_for() -> None:
    rig = Rig("a", "b")
    rig.bring()
    rig.node("a", claimed())
    rig.core.node_down("b", 0.1)
    assert rig.take(m.Reserve)


def test_a_scheduler_that_has_just_started_waits_for_nodes_to_dial() -> None:
    rig = Rig("a", settling_s=2.0, claim_timeout_s=1.0)
    rig.bring()
    rig.node("a", claimed())
    rig.core.node_up("b", INFO, 1.5)
    assert [to for to, _ in rig.outbox.take(m.Claim)] == ["a", "b"]
    rig.tick(2.0)
    assert not rig.take(m.Reserve)
    rig.node("b", claimed((0, 7)), now_s=2.1)
    assert not rig.take(m.Reserve) and rig.core.counters.adopted == 1


def test_a_scheduler_that_had_lost_all_nodes_waits_for_them_to_dial_again() -> None:
    """It was stopped, or cut off: a client may be back with its job before the nodes are."""
    rig = Rig("a", "b", settling_s=2.0, claim_timeout_s=1.0)
    rig.core.node_down("a", 100.0)
    rig.core.node_down("b", 100.0)
    rig.core.node_up("a", INFO, 100.5)
    rig.bring(now_s=101.0)
    rig.node("a", claimed(), now_s=101.0)
    rig.core.node_up("b", INFO, 102.0)
    assert not rig.take(m.Reserve)
    rig.tick(102.5)
    rig.node("b", claimed((0, 7)), now_s=102.6)
    assert not rig.take(m.Reserve) and rig.core.counters.adopted == 1


def test_a_scheduler_without_any_node_waits_for_the_first_and_those_after_it() -> None:
    rig = Rig("a", settling_s=2.0, claim_timeout_s=1.0)
    rig.core.node_down("a", 100.0)
    rig.bring(now_s=101.0)
    rig.core.node_up("a", INFO, 102.0)
    rig.tick(103.0)
    rig.node("a", claimed((0, 7)), now_s=103.1)
    assert rig.core.counters.adopted == 1


def test_one_node_that_comes_back_among_others_is_not_waited_for() -> None:
    rig = Rig("a", "b", settling_s=2.0)
    rig.core.node_down("b", 100.0)
    rig.core.node_up("b", INFO, 100.5)
    rig.bring(now_s=101.0)
    rig.node("a", claimed(), now_s=101.0)
    rig.node("b", claimed(), now_s=101.0)
    assert rig.take(m.Reserve)


def test_a_late_node_fences_and_its_outcome_counts_but_what_it_runs_twice_is_stopped() -> None:
    rig = Rig("a")
    rig.bring(2)
    rig.node("a", claimed())
    (reserve_,) = rig.take(m.Reserve)
    rig.node("a", m.GetTasks(1, reserve_.ticket, 2))
    first, second = rig.take(m.Launch)
    rig.core.node_up("b", INFO, 0.5)
    rig.node("b", report(0, 3), claimed((1, 4)), now_s=0.6)
    assert rig.outcomes() == [(0, FINISHED, 2)]
    cancels = rig.outbox.take(m.CancelAttempt)
    assert cancels == [
        ("a", m.CancelAttempt("j", first.attempt, True)), ("b", m.CancelAttempt("j", 4, True)),
    ]  # fmt: skip
    rig.node("a", report(0, first.attempt, CANCELLED), report(1, second.attempt))
    assert rig.outcomes() == [(1, FINISHED, 2)]
    assert rig.core.counters.stale_reports == 1


def test_what_a_late_node_runs_is_adopted_if_nobody_else_has_it_yet() -> None:
    rig = Rig("a")
    rig.bring()
    rig.node("a", claimed())
    rig.core.node_up("b", INFO, 0.5)
    rig.node("b", claimed((0, 4)), now_s=0.6)
    assert rig.core.live_reservations("a") == 0
    rig.node("b", report(0, 4))
    assert [(task, status) for task, status, _ in rig.outcomes()] == [(0, FINISHED)]


def test_a_job_that_ended_while_it_was_claimed_is_forgotten_by_the_node_that_answers_late() -> None:
    rig = Rig("a", "b")
    rig.bring()
    rig.node("a", report(0, 1), claimed())
    assert rig.outcomes() == [(0, FINISHED, 1)] and not rig.core.jobs
    rig.outbox.sent.clear()
    rig.node("b", claimed((0, 9)))
    assert rig.outbox.sent == [("b", m.ForgetJob("j"))]


def test_of_a_failure_that_is_to_be_retried_the_retry_counts() -> None:
    """The old scheduler had started the task again: that runs at b. What a remembers of it is no outcome."""
    for order in ("ab", "ba"):
        rig = Rig("a", "b")
        rig.bring(known=m.Known("j", [], {0: 1}), max_attempts=2, retry_failed=True)
        for node in order:
            rig.node(node, *([report(0, 1, FAILED), claimed()] if node == "a" else [claimed((0, 2))]))
        assert not rig.take(m.Outcome) and not rig.take(m.CancelAttempt)
        rig.node("b", report(0, 2))
        assert rig.outcomes() == [(0, FINISHED, 2)]


def test_a_failure_at_the_last_start_that_may_be_is_the_outcome() -> None:
    rig = Rig("a")
    rig.bring(max_attempts=2, retry_failed=True)
    rig.node("a", report(0, 1, FAILED), claimed())
    assert rig.outcomes() == [(0, FAILED, 2)]


def test_starts_in_vain_that_only_nodes_know_of_count() -> None:
    """Its client had lost the old scheduler long before that was fenced."""
    rig = Rig("a")
    rig.bring(max_attempts=3)
    rig.node("a", report(0, 1, LOST), report(0, 2, LOST), claimed())
    assert rig.outcomes() == [(0, LOST, 3)]


@pytest.mark.parametrize(("status", "max_attempts"), [(LOST, 2), (LOST, 3), (FAILED, 3)])
def test_starts_in_vain_count_for_a_stage_that_is_not_open_yet_too(status: TaskStatus, max_attempts: int) -> None:
    """It was open at the old scheduler; here the stage before it has yet to run again, as its node cannot be asked."""
    rig = Rig("a")
    stages = [
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="first"),
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="last", after=("first",)),
    ]
    rig.client(m.SubmitJob("j", 1, "", stages, max_attempts, True, None, False), m.AddTasks("j", 0, [b"p"] * 2))
    rig.node("a", *(report(1, attempt, status) for attempt in range(1, max_attempts + 1)), claimed())
    assert (1, status, max_attempts) in rig.outcomes()


def test_a_report_of_an_attempt_that_no_earlier_epoch_can_have_made_is_ignored() -> None:
    rig = Rig("a")
    rig.bring()
    rig.node("a", report(0, 1 << m.EPOCH_SHIFT | 5), claimed())
    assert not rig.take(m.Outcome) and rig.core.counters.stale_reports == 1


# ---- cancelled meanwhile -------------------------------------------------------------------------


@pytest.mark.parametrize("running", [False, True])
def test_a_job_that_is_cancelled_while_it_is_claimed_waits_for_what_nodes_say(running: bool) -> None:
    rig = Rig("a", "b")
    rig.bring(3)
    rig.client(m.CancelJob("j", running))
    assert not rig.take(m.Outcome)
    rig.node("a", report(0, 1), claimed((1, 2)))
    assert rig.outbox.take(m.CancelAttempt) == [("a", m.CancelAttempt("j", 2, running))]
    rig.node("b", claimed())
    assert rig.outcomes() == [(0, FINISHED, 1), (2, CANCELLED, 1)]  # It may have started.
    rig.node("a", report(1, 2, CANCELLED))
    assert [status for _, status, _ in rig.outcomes()] == [CANCELLED] and not rig.core.jobs


@pytest.mark.parametrize("running", [False, True])
def test_tasks_that_are_cancelled_while_their_job_is_claimed_wait_for_what_nodes_say(running: bool) -> None:
    rig = Rig("a")
    rig.bring(4)
    rig.client(m.CancelTasks("j", [0, 1, 2], running))
    rig.node("a", report(0, 1), claimed((1, 2)))
    assert rig.outcomes() == [(0, FINISHED, 1), (2, CANCELLED, 1)]  # It may have started.
    assert rig.outbox.take(m.CancelAttempt) == [("a", m.CancelAttempt("j", 2, running))]
    if not running:
        rig.node("a", m.AttemptRuns("j", 2))
        assert rig.take(m.NotCancelled) == [m.NotCancelled("j", 1)]


def test_a_client_that_vanishes_before_it_has_brought_the_whole_job_leaves_nothing() -> None:
    rig = Rig("a", client_grace_s=10.0)
    rig.client(submission("j", 3, epoch=1, on_client_lost="finish"), m.AddTasks("j", 0, [b"p"]))
    rig.core.client_down("c", 1.0, said_goodbye=False)
    rig.tick(11.0)
    assert not rig.core.jobs and not rig.core.admission.unplaced


def test_a_job_with_more_bytes_than_the_next_scheduler_holds_ends_and_what_ran_counts() -> None:
    job = submission("j", 3, epoch=1)
    rig = Rig("a", held_bytes_max=footprint.job_bytes(job) + 10)
    rig.client(job)
    rig.client(m.AddTasks("j", 0, [b"x" * 20, b"y"]), m.AddTasks("j", 2, [b"z"]))
    rig.node("a", report(1, 1), claimed((2, 2)))
    rig.node("a", report(2, 2))
    outcomes = {outcome.task: outcome for outcome in rig.take(m.Outcome)}
    assert [outcomes[task].status for task in range(3)] == [CANCELLED, FINISHED, FINISHED]
    assert "held_bytes_max" in outcomes[0].error and not rig.core.admission.held_bytes


def test_empty_stages_do_not_hide_starts_of_what_comes_after_them() -> None:
    """Stages come in any order: the last of a chain first, the empty one between is over as soon as it may be."""
    rig = Rig("a")
    stages = [
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="last", after=("none",)),
        m.Stage("many", 0, b"", "", 2.0, 0, None, name="none", after=("first",)),
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="first"),
    ]
    rig.client(m.SubmitJob("j", 1, "", stages, 1, False, None, False))
    rig.client(m.Known("j", [m.KnownOutcome(1, FINISHED, b"")], {}), m.AddTasks("j", 0, [b"p"] * 2))
    rig.node("a", claimed())
    assert rig.outcomes() == [(0, LOST, 1)]


# ---- superseded ----------------------------------------------------------------------------------


def test_a_fenced_scheduler_drops_the_job_and_tells_only_a_client_that_thinks_it_is_there() -> None:
    rig = Rig("a")
    rig.bring(2)
    rig.node("a", claimed((0, 3)))
    rig.outbox.sent.clear()
    rig.node("a", m.Fenced("j", 1))  # Its own epoch: nothing.
    assert rig.core.jobs
    rig.node("a", m.Fenced("j", 2))
    assert not rig.core.jobs and not rig.core.admission.unplaced
    assert (rig.core.register.taken_over, list(rig.core.register.news)) == ({"j": (2, "anna")}, ["j"])
    assert sorted(type(message).__name__ for _, message in rig.outbox.sent) == [
        "CancelReservations", "ForgetJob", "JobRefused",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fence", "dropped"),
    [
        (m.Fenced("j", 2, "bert", 0), False),
        (m.Fenced("j", 2, "anna", 7), False),
        (m.Fenced("j", 1, "anna", 0), False),
        (m.Fenced("j", 2, "anna", 0), True),
        (m.Fenced("j", 2), True),
    ],
)
def test_a_fence_is_for_the_job_of_one_user_and_instance(fence: m.Fenced, dropped: bool) -> None:
    rig = Rig("a")
    rig.bring(2)
    rig.node("a", claimed((0, 3)), fence)
    assert (not rig.core.jobs, bool(rig.core.register.taken_over)) == (dropped, dropped)


OTHERS = [{"user": "bert"}, {"user": "anna", "instance": 7}, {"user": ""}]
OWN: list[dict[str, Any]] = [{"user": "anna"}, {}]
"""Without a user, as a node monitor of a version before answers."""


@pytest.mark.parametrize("whose", OWN)
def test_an_answer_to_a_claim_is_for_the_job_of_one_user_and_instance(whose: dict[str, Any]) -> None:
    rig = Rig("a")
    rig.bring(2)
    rig.node("a", m.Claimed("j", 1, [(0, 3)], **whose))
    assert rig.core.counters.adopted == 1 and list(rig.core.jobs["j"].attempts) == [3]
    assert rig.reserves()


@pytest.mark.parametrize("whose", OTHERS)
@pytest.mark.parametrize("running", [[], [(0, 3)]])
def test_a_late_answer_for_another_job_of_the_id_is_not_taken_for_this_ones(
    whose: dict[str, Any], running: list[tuple[int, int]]
) -> None:
    rig = Rig("a")
    rig.bring(2)
    rig.outbox.sent.clear()
    rig.node("a", m.Claimed("j", 1, running, True, **whose))
    job = rig.core.jobs["j"]
    assert not rig.outbox.sent and not job.attempts and not job.vouched and job.unanswered == {"a"}
    rig.node("a", m.Claimed("j", 1, [(1, 4)], user="anna"))
    assert list(job.attempts) == [4] and rig.reserves()


def test_a_node_that_has_something_of_another_job_of_the_id_is_told_to_forget_it() -> None:
    rig = Rig("a", "b")
    rig.bring()
    rig.node("a", m.Claimed("j", 1, [(0, 3)], user="bert"))
    rig.client(m.CancelJob("j"))
    rig.node("a", m.Claimed("j", 1, [], user="anna"))
    rig.node("b", m.Claimed("j", 1, [], user="anna"))
    assert not rig.core.jobs and rig.outbox.take(m.ForgetJob) == [("a", m.ForgetJob("j"))]


@pytest.mark.parametrize(("whose", "starts"), [*((one, set()) for one in OTHERS), *((one, {0}) for one in OWN)])
def test_tasks_that_a_node_has_started_are_those_of_one_user_and_instance(
    whose: dict[str, Any], starts: set[int]
) -> None:
    rig = Rig("a")
    rig.bring(2, m.Known("j", [], {}, (), ("a",)), acknowledges=True, max_attempts=1)
    rig.node("a", m.StartedHere("j", 1, [0], **whose))
    assert rig.core.jobs["j"].started_before == starts


def test_the_same_scheduler_may_get_the_job_again_with_a_higher_epoch() -> None:
    rig = Rig("a")
    rig.client(submission("j", 2), m.AddTasks("j", 0, [b"p"] * 2))
    (reserve_,) = rig.take(m.Reserve)
    rig.node("a", m.GetTasks(1, reserve_.ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.bring(2)
    assert rig.take(m.Claim)
    rig.node("a", claimed((0, launch.attempt)))
    rig.node("a", report(0, launch.attempt))
    assert rig.outcomes() == [(0, FINISHED, 1)]


# ---- a client that comes back to its own scheduler ------------------------------------------------


def launch_one(rig: Rig) -> m.Launch:
    """One task of what is reserved is launched at the node a."""
    rig.node("a", m.GetTasks(1, rig.reserves()["a"].ticket, 1))
    (launch,) = rig.take(m.Launch)
    return launch


def counted(rig: Rig) -> dict[int, int]:
    """The starts of which the client is told."""
    return {task: starts for message in rig.take(m.Counted) for task, starts in message.starts.items()}


def rig_with_one_of_two_launched(**fields: Any) -> tuple[Rig, m.Launch]:
    """The client has just brought the job j of two tasks, the first of which was sent to the node a."""
    rig = Rig("a")
    rig.bring(2, **{"epoch": 0, "acknowledges": True, **fields})
    return rig, launch_one(rig)


def test_only_what_may_run_counts_as_started_when_the_client_comes_back_to_its_scheduler() -> None:
    rig, _ = rig_with_one_of_two_launched(max_attempts=2)
    for epoch in (1, 2, 3):
        rig.bring(2, m.Known("j", [], {0: 1}) if epoch > 1 else None, epoch=epoch, acknowledges=True, max_attempts=2)
        rig.node("a", m.Claimed("j", epoch, []))
        assert not rig.take(m.Outcome)
        assert counted(rig) == ({0: 1} if epoch == 1 else {})
    rig.node("a", m.GetTasks(1, rig.reserves()["a"].ticket, 2))
    for launch in rig.take(m.Launch):
        rig.node("a", report(launch.task, launch.attempt))
    assert rig.outcomes() == [(0, FINISHED, 2), (1, FINISHED, 1)]


@pytest.mark.parametrize("knows", [None, 0, 1, 2])
def test_starts_that_were_counted_before_the_client_knew_are_not_forgotten_when_it_comes_back(
    knows: int | None,
) -> None:
    rig, launch = rig_with_one_of_two_launched(max_attempts=4)
    rig.node("a", report(0, launch.attempt, LOST))
    assert counted(rig) == {0: 1}
    known = None if knows is None else m.Known("j", [], {0: knows})
    rig.bring(2, known, acknowledges=True, max_attempts=4)
    rig.node("a", claimed())
    starts = max(knows or 0, 1)
    assert counted(rig) == ({} if knows else {0: 1})
    if not knows:
        rig.client(m.CountKnown("j", {0: 1}))
    for reserve_ in rig.take(m.Reserve):
        rig.node("a", m.GetTasks(1, reserve_.ticket, reserve_.count))
    (launch,) = [one for one in rig.take(m.Launch) if one.task == 0]
    rig.node("a", report(0, launch.attempt))
    assert rig.outcomes() == [(0, FINISHED, starts + 1)]


def test_what_starts_again_waits_until_the_client_that_came_back_knows_earlier_starts() -> None:
    rig, launch = rig_with_one_of_two_launched()
    rig.node("a", report(0, launch.attempt, LOST))
    rig.bring(2, acknowledges=True)
    rig.node("a", claimed())
    for _, reserve_ in rig.outbox.take(m.Reserve):
        rig.node("a", m.GetTasks(1, reserve_.ticket, reserve_.count))
    assert [one.task for one in rig.take(m.Launch)] == [1]


def test_a_client_that_comes_back_twice_before_its_job_is_claimed_finds_the_same_counts() -> None:
    rig, launch = rig_with_one_of_two_launched()
    rig.node("a", report(0, launch.attempt, LOST))
    rig.bring(2, acknowledges=True)
    rig.bring(2, epoch=2, acknowledges=True)
    rig.take(m.Counted)
    rig.node("a", m.Claimed("j", 2, []))
    assert counted(rig) == {0: 1}


@pytest.mark.parametrize("fields", [{"epoch": 2}, {"instance": 1}])
def test_a_job_that_was_elsewhere_meanwhile_or_is_another_finds_no_counts(fields: dict[str, int]) -> None:
    rig, _ = rig_with_one_of_two_launched()
    rig.bring(2, acknowledges=True, **{"epoch": 1, **fields})
    rig.node("a", m.Claimed("j", fields.get("epoch", 1), []))
    assert counted(rig) == {0: 1, 1: 1}


def test_a_task_that_may_start_once_and_has_not_is_not_lost_when_its_client_comes_back() -> None:
    rig, _ = rig_with_one_of_two_launched(max_attempts=1, acknowledges=False)
    rig.bring(2, max_attempts=1)
    rig.node("a", claimed())
    assert rig.outcomes() == [(0, LOST, 1)]
    assert launch_one(rig).task == 1


@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_a_client_whose_link_breaks_again_and_again_loses_no_task(max_attempts: int) -> None:
    world = World(1, nodes=[1], receipts=True)
    log = world.submit([0.5] * 40, max_attempts=max_attempts)
    for _ in range(3):
        world.run_for(1.0)
        for link in world.links(ClientHost):
            world.drop_link(link, 0.1)
    world.run()
    world.check_end()
    assert log.submitted_to == ["s0"] * 4
    assert log.statuses() == [FINISHED] * 40
    assert [outcome.attempts for outcome in log.outcomes] == [1] * 40


def test_of_jobs_that_were_taken_over_the_latest_are_remembered_until_they_come_back() -> None:
    rig = Rig("a")
    for number in range(TAKEN_OVER_MAX + 1):
        rig.client(submission(f"j{number}"), m.AddTasks(f"j{number}", 0, [b"p"]))
        rig.node("a", m.Fenced(f"j{number}", 1))
    assert len(rig.core.register.taken_over) == len(rig.core.register.news) == TAKEN_OVER_MAX
    assert "j0" not in rig.core.register.taken_over
    rig.client(submission("j7", epoch=2))
    assert "j7" not in rig.core.register.taken_over


# ---- the whole of it -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_what_linked_nodes_account_for_is_not_started_again(seed: int) -> None:
    """A scheduler dies while nodes stay: tasks that ran or had ended then are started once, all others in the end."""
    world = World(seed, nodes=[2, 2, 2], schedulers=2, latency=(0.0005, 0.01))
    logs = [world.submit([0.05] * 9), world.submit_stages(("a", [], [0.03] * 4), ("b", ["a"], [0.03] * 4))]
    world.run_for(0.02 + 0.007 * seed)
    dead = [one for one in world.schedulers if one.core.jobs]
    given = {(start.log.spec.job_id, start.task) for start in world.starts}
    on_their_way = {
        (message.job, message.task) for _, _, message in world.sent if isinstance(message, m.Launch)
    } - given
    for scheduler in dead:
        world.crash_scheduler(scheduler)
    world.run()
    world.check_end()
    for log in logs:
        assert log.statuses() == [FINISHED] * len(log.payloads)
        for task in range(len(log.payloads)):
            key = (log.spec.job_id, task)
            starts = [start for start in log.starts if start.task == task]
            assert len(starts) == 1 or key in on_their_way


# ---- jobs whose tasks may start once ---------------------------------------------------------------


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_job_that_may_start_once_loses_nothing_that_had_not_started(placement: str) -> None:
    world = World(1, nodes=[2, 2, 2], schedulers=2, latency=(0.0005, 0.003), scheduler={"placement": placement})
    log = world.submit([0.05] * 60, max_attempts=1)
    world.run_for(0.2)
    (holder,) = [one for one in world.schedulers if one.core.jobs]
    world.crash_scheduler(holder)
    world.run()
    world.check_end()
    assert log.statuses() == [FINISHED] * 60
    assert [outcome.attempts for outcome in log.outcomes] == [1] * 60


def test_a_job_that_may_start_once_loses_what_a_node_that_is_gone_may_have_started() -> None:
    """Schedulers and one of the nodes are gone at once: nobody can say what that one had started."""
    world = World(1, nodes=[2, 2, 2], schedulers=2)
    log = world.submit([0.05] * 60, max_attempts=1)
    world.run_for(0.2)
    (holder,) = [one for one in world.schedulers if one.core.jobs]
    world.crash_node(world.nodes[0])
    world.crash_scheduler(holder)
    world.run()
    world.check_end()
    assert LOST in log.statuses() and {outcome.attempts for outcome in log.outcomes} == {1}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_schedulers_and_nodes_that_die_together_again_and_again_start_nothing_too_often(placement: str) -> None:
    """Each time the start that was open is lost with all that knew of it, but for the client."""
    world = World(2, nodes=[1, 1], schedulers=3, heartbeat_s=0.3, scheduler={"placement": placement, "settling_s": 0.0})
    log = world.submit([1.0] * 2, max_attempts=2)
    crash_all_that_know_a_job(world, 4, every_s=0.4, restart_s=0.1)
    world.run()
    world.check_end()
    for task in range(2):
        assert len([start for start in log.starts if start.task == task]) <= 2
    assert [outcome.attempts for outcome in log.outcomes] == [2, 2]
