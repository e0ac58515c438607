"""The node monitor's pure core and executors that are late, that lie, that do not start or that die."""

from __future__ import annotations

import pytest

from node_monitor.executors.offers import START_FAILURES_MAX
from node_monitor.results import ERROR_CHARS_MAX
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

FINISHED, FAILED, LOST, CANCELLED = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.LOST, TaskStatus.CANCELLED


class Rig(NodeCore):
    """A node of one slot, for the app "pool" with executors of one place."""

    def __init__(self, *executors: str) -> None:
        super().__init__(executors=0)
        for executor in executors:
            self.core.executor_up(executor, "pool", 1, 0.0)

    def reports(self) -> list[tuple[int, TaskStatus]]:
        return [(report.attempt, report.status) for report in self.take(m.Report)]


@pytest.fixture
def ahead() -> Rig:
    """The executor p runs run 2 and has run 3 ahead of time; their attempts are 2 and 3."""
    rig = Rig("p")
    rig.receive(reserve(1, 3, app="pool", prefetch=8))
    rig.receive(m.Launch(1, "j1", 0, 0, 1, b""))
    for attempt in (2, 3):
        rig.receive(m.Launch(2, "j1", 0, attempt - 1, attempt, b""))
    rig.done("p", 1)
    assert [run.run for run in rig.take(x.Run)] == [1, 2, 3]
    assert rig.reports() == [(1, FINISHED)]
    return rig


def test_a_run_that_was_given_ahead_counts_as_started_if_its_executor_is_killed_for_another(ahead: Rig) -> None:
    """That one may have ended a moment before, and it may have begun."""
    ahead.receive(m.CancelAttempt("j1", 2, running=True))
    assert ahead.outbox.killed == ["p"]
    ahead.core.executor_down("p", "killed", 1.0)
    ahead.settle(1.0)
    assert ahead.reports() == [(2, CANCELLED), (3, LOST)] and not ahead.take(m.HandBack)


def test_of_tasks_that_may_start_only_once_none_is_given_ahead() -> None:
    """It would die with the one before it, if that is killed, and could not be started again."""
    rig = Rig("p")
    rig.receive(m.Common("j1", 0, b"", None, 0, True), reserve(1, 3, app="pool", prefetch=8))
    rig.receive(m.Launch(1, "j1", 0, 0, 1, b""))
    for attempt in (2, 3):
        rig.receive(m.Launch(2, "j1", 0, attempt - 1, attempt, b""))
    rig.done("p", 1)
    assert [run.run for run in rig.take(x.Run)] == [1, 2]


# ---- what is asked back ----------------------------------------------------------------------


def test_a_revoke_that_comes_too_late_is_answered(ahead: Rig) -> None:
    """Else the one who cancels would wait until the task ends."""
    ahead.receive(m.CancelAttempt("j1", 3))
    assert ahead.take(x.Revoke) == [x.Revoke([3])]
    ahead.returned("p")
    assert ahead.take(m.AttemptRuns) == [m.AttemptRuns("j1", 3)]
    assert ahead.reports() == []
    ahead.done("p", 2)
    ahead.done("p", 3)
    assert ahead.reports() == [(2, FINISHED), (3, FINISHED)]
    assert ahead.core.idle and ahead.core.free_slots == 1


def test_a_revoke_in_time_cancels(ahead: Rig) -> None:
    ahead.receive(m.CancelAttempt("j1", 3))
    ahead.returned("p", 3)
    assert ahead.take(m.AttemptRuns) == []
    assert ahead.reports() == [(3, CANCELLED)]


def test_a_revoke_of_a_run_that_ends_meanwhile_needs_no_answer(ahead: Rig) -> None:
    ahead.receive(m.CancelAttempt("j1", 3))
    ahead.done("p", 2)
    ahead.done("p", 3)
    ahead.returned("p")
    assert ahead.reports() == [(2, FINISHED), (3, FINISHED)]
    assert ahead.take(m.AttemptRuns) == []


def test_an_executor_that_returns_what_nobody_asked_back_is_cut_off(ahead: Rig) -> None:
    """It would be taken for cancelled."""
    with pytest.raises(LinkError, match="executor p returned runs that nobody revoked"):
        ahead.core.returned("p", x.Returned([3]), 0.0)
    ahead.settle()
    assert ahead.reports() == []


def test_an_executor_that_answers_twice_is_cut_off(ahead: Rig) -> None:
    ahead.receive(m.CancelAttempt("j1", 3))
    ahead.returned("p", 3)
    with pytest.raises(LinkError, match="nobody revoked"):
        ahead.core.returned("p", x.Returned([2]), 0.0)


def test_of_an_answer_only_what_was_asked_back_counts(ahead: Rig) -> None:
    ahead.receive(m.CancelAttempt("j1", 3))
    ahead.returned("p", 2, 3)
    assert ahead.reports() == [(3, CANCELLED)]
    ahead.done("p", 2)
    assert ahead.reports() == [(2, FINISHED)]


# ---- what does not fit -----------------------------------------------------------------------


def test_an_error_of_any_length_is_cut_and_reported() -> None:
    rig = Rig("p")
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s", m.MESSAGE_OVERHEAD_BYTES + 10_000)
    rig.receive(reserve(1, app="pool"))
    rig.receive(m.Launch(1, "j1", 0, 0, 1, b""))
    rig.done("p", 1, FAILED, error="e" * 20_000)
    (report,) = rig.take(m.Report)
    assert (report.attempt, report.status) == (1, FAILED)
    assert report.error == "e" * ERROR_CHARS_MAX


# ---- what does not start, what dies ----------------------------------------------------------


def fail_to_start(rig: Rig, times: int, now_s: float = 0.0) -> float:
    """Every start is in vain; returns when the last one was."""
    for _ in range(times):
        rig.core.executor_failed("pool", "exited with code 1", now_s)
        rig.settle(now_s)
        due_s = rig.core.next_deadline_s()
        assert due_s is not None
        now_s = due_s
        rig.core.tick(now_s)
        rig.settle(now_s)
    return now_s


def refusals(rig: Rig) -> list[tuple[int, int]]:
    """(ticket, count) of each."""
    return [(refused.ticket, refused.count) for refused in rig.take(m.ReservationsRefused)]


def test_an_app_that_does_not_start_refuses_what_is_queued_and_what_comes() -> None:
    rig = Rig()
    rig.receive(reserve(1, 3, app="pool"), reserve(2, 1, app="pool"))
    now_s = fail_to_start(rig, START_FAILURES_MAX - 1)
    assert refusals(rig) == []
    now_s = fail_to_start(rig, 1, now_s)
    assert sorted(refusals(rig)) == [(1, 3), (2, 1)]
    assert len(rig.core.queue) == 0
    rig.receive(reserve(3, 2, app="pool"), now_s=now_s)
    assert refusals(rig) == [(3, 2)]
    assert rig.take(m.GetTasks) == []


def test_an_app_that_starts_at_last_takes_reservations_again() -> None:
    rig = Rig()
    rig.receive(reserve(1, app="pool"))
    now_s = fail_to_start(rig, START_FAILURES_MAX)
    assert refusals(rig) == [(1, 1)]
    rig.core.executor_up("p", "pool", 1, now_s)
    rig.receive(reserve(2, app="pool"), now_s=now_s)
    assert refusals(rig) == []
    assert [ask.ticket for ask in rig.take(m.GetTasks)] == [2]


def test_an_executor_that_dies_of_a_task_is_no_start_in_vain() -> None:
    """Else a job's tasks that kill their workers would keep others from the node."""
    rig = Rig()
    rig.core.start(["pool"])
    for number in range(1, START_FAILURES_MAX + 3):
        assert len(rig.outbox.started) == number  # At once, each time.
        rig.core.executor_up(f"p{number}", "pool", 1, 0.0)
        rig.receive(reserve(number, app="pool", job="j"))
        (ask,) = rig.take(m.GetTasks)
        rig.receive(m.Launch(ask.ask, "j", 0, number, number, b""))
        rig.core.executor_down(f"p{number}", "it was killed", 0.0)
        rig.settle()
        assert rig.reports() == [(number, LOST)]
    rig.receive(reserve(99, app="pool"))
    assert refusals(rig) == []


@pytest.mark.parametrize("answered", [False, True])
def test_an_executor_that_is_leaving_gets_nothing(answered: bool) -> None:
    """Nothing would come of it: a task that is given to it is a start in vain."""
    rig = Rig("p")
    rig.receive(reserve(1, 2, app="pool"))
    (ask,) = rig.take(m.GetTasks)
    rig.core.executor_leaving("p", 0.0)
    rig.settle()
    if answered:
        rig.receive(m.Launch(ask.ask, "j1", 0, 0, 1, b""))
    else:
        rig.receive(m.NoTask(ask.ask, 1))
    assert rig.take(x.Run) == rig.take(m.GetTasks) == []
    rig.core.executor_down("p", "it was killed", 0.0)
    rig.settle()
    assert rig.reports() == []
    assert [back.attempt for back in rig.take(m.HandBack)] == [1] * answered
    rig.core.executor_up("q", "pool", 1, 0.0)
    rig.settle()
    assert [ask.count for ask in rig.take(m.GetTasks)] == [1]


def test_the_last_words_of_an_executor_that_is_leaving_count_and_it_gets_nothing_for_them(ahead: Rig) -> None:
    """Its process has ended, and what it sent before is read."""
    ahead.take(m.GetTasks)
    ahead.core.executor_leaving("p", 0.0)
    ahead.settle()
    ahead.receive(reserve(2, 8, app="pool", job="j1", prefetch=8))
    (ask,) = ahead.take(m.GetTasks)
    ahead.receive(*(m.Launch(ask.ask, "j1", 0, task, 100 + task, b"") for task in range(ask.count)))
    ahead.done("p", 2)
    ahead.done("p", 3)
    assert ahead.reports() == [(2, FINISHED), (3, FINISHED)]
    assert ahead.take(x.Run) == []
    assert ahead.core.free_slots == 1
    ahead.core.executor_down("p", "it was killed", 0.0)
    ahead.settle()
    assert ahead.reports() == []
    assert [back.attempt for back in ahead.take(m.HandBack)] == [100 + task for task in range(ask.count)]


def test_what_an_executor_that_is_leaving_runs_is_lost_when_it_is_down() -> None:
    rig = Rig("p", "q")
    rig.receive(reserve(1, app="pool"))
    (ask,) = rig.take(m.GetTasks)
    rig.receive(m.Launch(ask.ask, "j1", 0, 0, 1, b""))
    ((runs_at, _),) = rig.outbox.take(x.Run)
    rig.core.executor_leaving(runs_at, 0.0)
    rig.settle()
    assert rig.reports() == []
    rig.core.executor_down(runs_at, "it was killed", 0.0)
    rig.settle()
    assert rig.reports() == [(1, LOST)]
    assert rig.core.free_slots == 1


def test_a_task_done_ends_the_row_of_starts_in_vain() -> None:
    rig = Rig()
    rig.receive(reserve(1, app="pool"))
    now_s = fail_to_start(rig, START_FAILURES_MAX - 1)
    rig.core.executor_up("p", "pool", 1, now_s)
    rig.settle(now_s)
    (ask,) = rig.take(m.GetTasks)
    rig.receive(m.Launch(ask.ask, "j1", 0, 0, 1, b""), now_s=now_s)
    rig.done("p", 1, now_s=now_s)
    rig.core.executor_down("p", "it was killed", now_s)
    fail_to_start(rig, 1, now_s)
    rig.receive(reserve(2, app="pool"), now_s=now_s)
    assert refusals(rig) == []
