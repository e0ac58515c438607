"""Failures that are retried by a stage's policy: how often, after which delay, and what becomes of who waits."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.book.jobs import HELD
from scheduler.book.retries import ERROR_CHARS_MAX, ERRORS_KEPT_MAX, delay_s
from scheduler.explaining import waiting_stages
from sparrow_py.errors import LinkError
from sparrow_py.job import RETRY_ATTEMPTS_MAX, RETRY_DELAY_S_MAX, RETRY_FACTOR_MAX, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import SchedulerRig

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST
POLICY = m.Retry(attempts=3, first_delay_s=1.0, factor=3.0, longest_delay_s=2.0, jitter=0.0)
"""Delays are 1 and 2 s."""


class Rig(SchedulerRig):
    """A scheduler that has long been up, with the node n, and clients that answer by hand."""

    def __init__(self, policy: m.Retry | None = POLICY, **options: Any) -> None:
        super().__init__("n", **{"settling_s": 0.0, **options})
        self.policy = policy

    def submit(self, tasks: int = 1, *between: Any, now_s: float = 0.0, **fields: Any) -> None:
        self.submit_job(tasks, *between, now_s=now_s, **{"retry": self.policy, **fields})

    def start(self, now_s: float = 0.0) -> list[m.Launch]:
        """What is launched when the node asks for all that is reserved there."""
        for _, reserve in self.outbox.take(m.Reserve):
            self.node("n", m.GetTasks(1, reserve.ticket, reserve.count), now_s=now_s)
        return self.take(m.Launch)

    def end(
        self,
        launch: m.Launch,
        status: TaskStatus = FAILED,
        error: str = "oh",
        *,
        retry: bool = True,
        now_s: float = 0.0,
    ) -> None:
        """The task fails in a way that may pass, unless something else is said."""
        ended = m.Report(launch.job, launch.task, launch.attempt, status, b"r", error, 0.0, 0.1, retry=retry)
        self.node("n", ended, now_s=now_s)

    def fail(self, now_s: float = 0.0, error: str = "oh") -> None:
        """The one task starts, and fails so."""
        (launch,) = self.start(now_s)
        self.end(launch, error=error, now_s=now_s)

    def known_to_be_over(self) -> list[m.CountKnown]:
        """The client's answers when it is told that delays are over."""
        told = self.take(m.Counted)
        assert not any(one.waiting for one in told)
        return [m.CountKnown(one.job, one.starts, one.failures) for one in told]

    def settled(self) -> tuple[TaskStatus, int, tuple[str, ...]]:
        """Status, attempts and earlier errors of the one task."""
        (outcome,) = self.take(m.Outcome)
        return outcome.status, outcome.attempts, outcome.earlier_errors


# ---- how long --------------------------------------------------------------------------------


@given(
    first_s=st.floats(0, RETRY_DELAY_S_MAX),
    factor=st.floats(1, RETRY_FACTOR_MAX),
    longest_s=st.floats(0, RETRY_DELAY_S_MAX),
    failures=st.integers(1, RETRY_ATTEMPTS_MAX),
)
def test_delays_grow_and_are_never_longer_than_the_longest(
    first_s: float, factor: float, longest_s: float, failures: int
) -> None:
    policy = m.Retry(RETRY_ATTEMPTS_MAX, first_s, factor, max(first_s, longest_s), 0.0)
    assert first_s <= delay_s(policy, failures) <= delay_s(policy, failures + 1) <= policy.longest_delay_s
    assert delay_s(policy, 1) == first_s
    if factor == 1 or not first_s:
        assert delay_s(policy, failures) == first_s


@pytest.mark.parametrize("jitter", [0.25, 1.0])
def test_chance_takes_no_more_off_than_the_jitter_says(jitter: float) -> None:
    delays = set()
    for seed in range(20):
        rig = Rig(m.Retry(2, 8.0, 1.0, 8.0, jitter), seed=seed)
        rig.submit()
        rig.fail()
        (until_s,) = rig.core.jobs["j"].stages[0].held.values()
        delays.add(until_s)
        rig.tick(math.nextafter(until_s, 0.0))
        assert not rig.take(m.Reserve)
        rig.tick(until_s)
        assert rig.take(m.Reserve)
    assert len(delays) == 20 and all(8.0 * (1 - jitter) <= one_s <= 8.0 for one_s in delays)


# ---- how often -------------------------------------------------------------------------------


def test_a_task_that_failed_so_waits_in_no_slot_and_starts_again_after_each_delay() -> None:
    rig = Rig()
    rig.submit(max_attempts=2)
    rig.fail(0.0, "first")
    stage = rig.core.jobs["j"].stages[0]
    assert not rig.take(m.Reserve) and not rig.core.jobs["j"].attempts and stage.states[0] == HELD
    rig.tick(0.9)
    assert not rig.take(m.Reserve)
    rig.tick(1.0)
    rig.fail(1.0, "second")
    rig.tick(2.9)
    assert not rig.take(m.Reserve)
    rig.tick(3.0)
    rig.fail(3.0, "third")
    assert rig.settled() == (FAILED, 3, ("first", "second"))
    assert not rig.core.jobs and rig.core.counters.failures_retried == 2 and not rig.core.counters.retries


@pytest.mark.parametrize(("policy", "retry"), [(POLICY, False), (None, True), (m.Retry(1, 0.0, 1.0, 0.0, 0.0), True)])
def test_any_other_failure_is_the_outcome(policy: m.Retry | None, retry: bool) -> None:
    rig = Rig(policy)
    rig.submit()
    (launch,) = rig.start()
    rig.end(launch, retry=retry)
    assert rig.settled() == (FAILED, 1, ())


def test_a_task_that_finishes_is_not_started_again_whatever_its_executor_says_besides() -> None:
    rig = Rig()
    rig.submit()
    rig.fail()
    rig.tick(1.0)
    (launch,) = rig.start(1.0)
    rig.end(launch, FINISHED, retry=True, now_s=1.0)
    assert rig.settled() == (FINISHED, 2, ("oh",))


def test_lost_starts_and_failures_do_not_use_each_other_up() -> None:
    rig = Rig()
    rig.submit(max_attempts=2)
    rig.fail(0.0)
    rig.tick(1.0)
    (launch,) = rig.start(1.0)
    rig.end(launch, LOST, "its executor died", now_s=1.0)
    assert rig.take(m.Retried)[-1] == m.Retried("j", 0, 2)
    rig.fail(1.0)
    rig.tick(3.0)
    (launch,) = rig.start(3.0)
    rig.end(launch, LOST, "its executor died", now_s=3.0)
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.status, outcome.attempts) == (LOST, 4) and outcome.error.startswith("started 4 times")


def test_the_last_errors_are_kept_and_their_beginnings() -> None:
    rig = Rig(m.Retry(6, 0.0, 1.0, 0.0, 0.0))
    rig.submit()
    for number in range(6):
        rig.fail(float(number), f"{number}" * 500)
        rig.tick(number + 0.5)
    status, attempts, errors = rig.settled()
    assert (status, attempts) == (FAILED, 6)
    assert errors == tuple(f"{number}" * ERROR_CHARS_MAX for number in range(5 - ERRORS_KEPT_MAX, 5))


def test_tasks_whose_delays_are_over_together_are_placed_together() -> None:
    rig = Rig()
    rig.submit(4)
    for launch in rig.start():
        rig.end(launch, now_s=0.25 * (launch.task // 2))
    rig.tick(1.0)
    assert [launch.task for launch in rig.start(1.0)] == [0, 1]
    rig.tick(1.25)
    assert [launch.task for launch in rig.start(1.25)] == [2, 3]


def test_there_are_no_more_timers_than_tasks_that_wait() -> None:
    rig = Rig(m.Retry(2, 8.0, 1.0, 8.0, 1.0))  # Some are over before those that began earlier.
    rig.submit(40)
    launches, timers = rig.start(), rig.core.book.ledger.timers
    others = len(timers)
    for launch in launches:
        rig.end(launch)
    stage = rig.core.jobs["j"].stages[0]
    for until_s in sorted(stage.held.values()):
        rig.tick(until_s)
        assert len(timers) - others <= len(stage.held) + 1
    assert not stage.held


def test_those_who_wait_count_to_their_users_unplaced_tasks_and_bytes() -> None:
    rig = Rig(unplaced_tasks_max=1)
    rig.submit()
    held = rig.core.admission.held_bytes["anna"]
    rig.fail()
    assert rig.core.admission.held_bytes["anna"] > held
    rig.submit_job(1, job="k")
    (refused,) = rig.take(m.JobRefused)
    assert refused.job == "k" and "unplaced_tasks_max" in refused.reason
    rig.client(m.CancelJob("j"))
    assert not rig.core.admission.held_bytes and not rig.core.admission.unplaced


def test_a_queue_timeout_begins_when_the_delay_is_over() -> None:
    rig = Rig()
    rig.submit(queue_timeout_s=0.5)
    rig.fail()
    rig.tick(1.0)
    rig.tick(1.4)
    assert not rig.take(m.Outcome)
    rig.tick(1.5)
    assert rig.settled() == (LOST, 1, ("oh",))


def test_people_are_told_why_such_a_task_waits() -> None:
    rig = Rig()
    rig.submit(2)
    for launch in rig.start():
        rig.end(launch, now_s=0.5 * launch.task)
    ((stage,), _) = waiting_stages(rig.core, rig.core.jobs["j"], 0.75)
    assert (stage.waiting, stage.reasons) == (2, ["2 of its tasks failed and are retried, the next in 0.2 s"])


@pytest.mark.parametrize("placement", ["batch", "per-task", "random", "central"])
def test_other_placements_start_it_again_as_well(placement: str) -> None:
    rig = Rig(placement=placement)
    rig.submit()
    for now_s in (0.0, 1.0):
        rig.tick(now_s)
        for ask in rig.take(m.AskLength):
            rig.node("n", m.QueueLength(ask.probe, 0), now_s=now_s)
        (launch,) = rig.take(m.Launch)
        rig.end(launch, FAILED if not now_s else FINISHED, now_s=now_s)
    assert rig.settled() == (FINISHED, 2, ("oh",))


def test_policy_flow_places_it_again_as_well() -> None:
    rig = FlowRig(["n1"])
    rig.submit_job(1, retry=m.Retry(2, 0.0, 1.0, 0.0, 0.0))
    ((attempt, launch),) = rig.running.pop("n1").items()
    rig.running["n1"] = {}
    rig.node("n1", m.Report("j", launch.task, attempt, FAILED, b"", "oh", 0.0, 0.1, retry=True))
    assert not rig.placed()
    rig.tick(0.0)
    assert rig.placed() == {0: "n1"}


# ---- cancelled meanwhile ---------------------------------------------------------------------


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_who_waits_is_cancelled_at_once(running: bool, whole: bool) -> None:
    rig = Rig()
    rig.submit()
    rig.fail()
    rig.client(m.CancelJob("j", running) if whole else m.CancelTasks("j", [0], running))
    assert rig.settled() == (CANCELLED, 1, ("oh",))
    assert not rig.core.jobs


def test_a_task_that_is_to_be_stopped_is_not_retried() -> None:
    rig = Rig()
    rig.submit()
    (launch,) = rig.start()
    rig.client(m.CancelTasks("j", [0], running=True))
    rig.end(launch)
    assert rig.settled() == (FAILED, 1, ())


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("policy", [POLICY, None])
def test_a_task_that_runs_on_although_it_was_to_be_cancelled_is_not_retried(
    whole: bool, policy: m.Retry | None
) -> None:
    rig = Rig(policy)
    rig.submit(retry_failed=policy is None)
    (launch,) = rig.start()
    rig.client(m.CancelJob("j") if whole else m.CancelTasks("j", [0]))
    rig.node("n", m.AttemptRuns("j", launch.attempt))
    rig.end(launch)
    assert rig.settled() == (FAILED, 1, ())


def test_a_copy_that_finishes_elsewhere_ends_the_wait() -> None:
    rig = Rig()
    rig.submit(2)
    first, second = rig.start()
    rig.end(first)
    rig.client(m.FinishedElsewhere("j", 0, b"r"))
    rig.end(second, FINISHED)
    assert [task for task, *_ in rig.outcomes()] == [1] and not rig.core.jobs


# ---- clients that are told -------------------------------------------------------------------


def test_a_client_knows_that_a_task_waits_and_the_task_starts_again_once_it_knows_that_this_is_over() -> None:
    rig = Rig()
    rig.submit(acknowledges=True)
    rig.fail()
    assert rig.take(m.Counted) == [m.Counted("j", {0: 0}, {0: 1}, waiting=True)]
    rig.client(m.CountKnown("j", {0: 0}, {0: 1}), now_s=0.1)  # Nobody asked.
    rig.tick(1.0)
    assert rig.take(m.Counted) == [m.Counted("j", {0: 0}, {0: 1})] and not rig.take(m.Reserve)
    rig.client(m.CountKnown("j", {0: 0}), now_s=1.1)  # Not what it was told.
    assert not rig.take(m.Reserve)
    rig.client(m.CountKnown("j", {0: 0}, {0: 1}), now_s=1.5)
    assert len(rig.start(1.5)) == 1


def test_without_a_delay_it_starts_again_when_its_client_knows() -> None:
    rig = Rig(m.Retry(2, 0.0, 1.0, 0.0, 0.0))
    rig.submit(acknowledges=True)
    rig.fail()
    assert rig.take(m.Counted) == [m.Counted("j", {0: 0}, {0: 1})]
    rig.tick(0.0)
    assert not rig.take(m.Reserve)
    rig.client(m.CountKnown("j", {0: 0}, {0: 1}))
    assert len(rig.start()) == 1


def test_a_job_that_goes_on_without_its_client_waits_for_the_delay_alone() -> None:
    rig = Rig(client_grace_s=0.25)
    rig.submit(acknowledges=True, on_client_lost="finish")
    rig.fail()
    rig.core.client_down("c", 0.0, said_goodbye=True)
    rig.tick(0.9)
    assert not rig.take(m.Reserve)
    rig.tick(1.0)
    assert rig.take(m.Reserve)


# ---- another scheduler -----------------------------------------------------------------------


def claimed(epoch: int = 1) -> m.Claimed:
    return m.Claimed("j", epoch, [])


def failure(attempt: int, error: str = "there", task: int = 0) -> m.Report:
    return m.Report("j", task, attempt, FAILED, b"r", error, 0.0, 0.1, retry=True)


def test_the_next_scheduler_goes_on_counting_and_the_delay_begins_again() -> None:
    rig = Rig()
    rig.submit(1, m.Known("j", [], {}, ((0, 1),), failures={0: 2}), epoch=1, now_s=10.0)
    rig.node("n", claimed(), now_s=10.0)
    assert not rig.take(m.Reserve) and rig.core.jobs["j"].stages[0].held == {0: 12.0}
    rig.tick(12.0)
    rig.fail(12.0)
    assert rig.settled() == (FAILED, 3, ())


def test_what_nodes_tell_of_failures_counts_once_and_is_told_the_client() -> None:
    rig = Rig()
    rig.submit(2, m.Known("j", [], {}, ((0, 2),), failures={0: 1}), epoch=1, acknowledges=True)
    rig.node("n", failure(1), failure(1), failure(5), failure(7, task=1), claimed())
    assert rig.take(m.Counted) == [m.Counted("j", {0: 0, 1: 0}, {0: 2, 1: 1}, waiting=True)]
    rig.tick(1.0)
    rig.client(*rig.known_to_be_over(), now_s=1.0)
    assert [launch.task for launch in rig.start(1.0)] == [1]
    rig.tick(2.0)
    rig.client(*rig.known_to_be_over(), now_s=2.0)
    assert [launch.task for launch in rig.start(2.0)] == [0]


def test_a_last_failure_of_which_a_node_tells_is_the_outcome() -> None:
    rig = Rig()
    rig.submit(1, m.Known("j", [], {}, ((0, 1),), failures={0: 2}), epoch=1)
    rig.node("n", failure(1), failure(9, "last"), failure(5), claimed())
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.status, outcome.error, outcome.attempts) == (FAILED, "last", 3)


def test_a_task_that_runs_on_is_adopted_with_its_failures() -> None:
    rig = Rig()
    rig.submit(1, m.Known("j", [], {}, failures={0: 1}), epoch=1)
    rig.node("n", failure(1), m.Claimed("j", 1, [(0, 2)]))
    assert not rig.take(m.Reserve)
    rig.node("n", failure(2), now_s=5.0)
    assert rig.core.jobs["j"].stages[0].held == {0: 7.0}


def test_starts_that_nobody_accounts_for_are_lost_ones() -> None:
    rig = Rig()
    rig.submit(1, m.Known("j", [], {0: 1}, failures={0: 1}), epoch=1, max_attempts=2)
    rig.node("n", claimed())
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.status, outcome.attempts) == (LOST, 3)


@pytest.mark.parametrize("knows", [0, 1])
def test_a_client_that_comes_back_finds_the_failures_counted(knows: int) -> None:
    rig = Rig()
    rig.submit(epoch=0, acknowledges=True)
    rig.fail()
    rig.take(m.Counted)
    known = m.Known("j", [], {}, ((0, 1),), failures={0: 1}) if knows else m.Known("j", [], {})
    rig.submit(1, known, epoch=1, acknowledges=True)
    rig.node("n", claimed())
    told = m.Counted("j", {0: 0}, {0: 1}, waiting=True)
    assert rig.take(m.Counted) == ([] if knows else [told])
    rig.tick(1.0)
    rig.client(*rig.known_to_be_over(), now_s=1.0)
    (launch,) = rig.start(1.0)
    rig.end(launch, FINISHED)
    assert rig.outcomes() == [(0, FINISHED, 2)]


def test_who_waits_is_charged_no_start_at_any_move_and_starts_once_the_client_knows_that_this_is_over() -> None:
    rig = Rig()
    for epoch in range(1, 9):
        known = m.Known("j", [], {}, ((0, 1),), failures={0: 1})
        rig.submit(1, known, epoch=epoch, acknowledges=True, max_attempts=2, now_s=float(epoch))
        rig.node("n", failure(1, "first"), claimed(epoch), now_s=float(epoch))
    rig.tick(9.0)
    assert not rig.take(m.Reserve) and not rig.take(m.Outcome)
    rig.client(*rig.known_to_be_over(), now_s=9.0)
    (launch,) = rig.start(9.0)
    rig.end(launch, FINISHED, now_s=9.0)
    assert rig.settled() == (FINISHED, 2, ())


def test_one_that_waited_was_adopted_and_comes_back_is_not_started_before_the_client_knows() -> None:
    rig = Rig()
    known = m.Known("j", [], {0: 1}, ((0, 1),), failures={0: 1})
    rig.submit(1, known, epoch=1, acknowledges=True, max_attempts=3)
    rig.node("n", m.Claimed("j", 1, [(0, 7)]))
    rig.node("n", m.HandBack("j", 7, "full"))
    assert not rig.take(m.Reserve)
    rig.client(*rig.known_to_be_over())
    assert rig.take(m.Reserve)


@pytest.mark.parametrize("epoch", [1, 2])
def test_moves_that_use_up_all_starts_are_no_failure_and_the_reason_names_them(epoch: int) -> None:
    rig = Rig()
    rig.submit(1, m.Known("j", [], {0: 1}), epoch=epoch, max_attempts=2)
    rig.node("n", failure(1, "TimeoutError: no answer"), claimed(epoch))
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.status, outcome.attempts, outcome.earlier_errors) == (LOST, 3, ("TimeoutError: no answer",))
    assert ("its job has moved 2 times" in outcome.error) is (epoch == 2)


def test_a_scheduler_that_ends_says_of_those_who_wait_that_no_start_is_open() -> None:
    rig = Rig()
    rig.submit(2)
    first, _ = rig.start()
    rig.end(first)
    (handed_over,) = [one for _, one in rig.core.hand_over(0.0) if isinstance(one, m.HandedOver)]
    assert handed_over.unstarted == ((0, 1),)


@pytest.mark.parametrize("failures", [3, -1])
def test_more_failures_than_the_policy_allows_end_the_link(failures: int) -> None:
    with pytest.raises(LinkError, match=f"task 0 cannot have been retried {failures} times"):
        Rig().submit(1, m.Known("j", [], {}, failures={0: failures}), epoch=1)


def test_failures_of_a_stage_without_a_policy_end_the_link() -> None:
    with pytest.raises(LinkError, match="task 0 cannot have been retried 1 times"):
        Rig(None).submit(1, m.Known("j", [], {}, failures={0: 1}), epoch=1)
