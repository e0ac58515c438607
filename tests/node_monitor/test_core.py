"""The node monitor's pure core, exchange by exchange; for whole clusters see `tests/scheduler/`."""

from __future__ import annotations

from typing import Any

import pytest

from node_monitor.supervision import RESTART_DELAY_S
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

FINISHED, LOST, CANCELLED = TaskStatus.FINISHED, TaskStatus.LOST, TaskStatus.CANCELLED


class Rig(NodeCore):
    """A node of one-place executors p0, p1, … of the app "pool"."""

    def launch(self, *attempts: int, ask: int, job: str = "j1") -> None:
        self.receive(*(m.Launch(ask, job, 0, attempt, attempt, b"payload %d" % attempt) for attempt in attempts))


def test_the_payload_is_opaque_its_user_is_named_and_the_common_bytes_go_once_to_each_executor() -> None:
    rig = Rig(2)
    rig.receive(reserve(1, 3, app="pool"), m.Common("j1", 0, b"f"))
    rig.launch(1, 2, ask=1)
    assert [(to, type(message)) for to, message in rig.outbox.sent if to[0] == "p"] == [
        ("p1", x.Common), ("p1", x.Run), ("p0", x.Common), ("p0", x.Run),
    ]  # fmt: skip
    assert [(run.payload, run.user) for run in rig.take(x.Run)] == [(b"payload 1", "anna"), (b"payload 2", "anna")]
    rig.take(x.Common)
    rig.done("p0", 2)
    rig.launch(3, ask=2)
    assert not rig.take(x.Common) and len(rig.take(x.Run)) == 1


def test_the_common_bytes_go_when_the_job_and_its_last_run_have_ended() -> None:
    rig = Rig()
    rig.receive(reserve(1, app="pool"), m.Common("j1", 0, b"f"))
    rig.launch(1, ask=1)
    rig.receive(m.ForgetJob("j1"))
    assert not rig.take(x.ForgetCommon)
    rig.done("p0", 1)
    assert len(rig.take(x.ForgetCommon)) == 1 and not rig.core.jobs.by_key


def test_common_bytes_that_come_again_outlive_an_orphan_of_the_job() -> None:
    """The link broke and came back while a task ran: it ends between the job's Common and its Launch."""
    rig = Rig(2)
    rig.receive(reserve(1, app="pool"), m.Common("j1", 0, b"f"))
    rig.launch(1, ask=1)
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s")
    rig.receive(reserve(2, app="pool", job="j1"), m.Common("j1", 0, b"f"))
    rig.done("p1", 1)
    rig.take(x.Run)
    rig.launch(9, ask=2)
    (run,) = rig.take(x.Run)
    assert run.common == rig.core.jobs.by_key["s", "j1"].commons[0].number


def test_a_launch_that_comes_twice_is_run_once_and_not_handed_back() -> None:
    """Handed back, it would be started elsewhere while it runs here."""
    rig = Rig(2)
    rig.receive(reserve(1, 2, app="pool"))
    rig.launch(1, 1, ask=1)  # The ask was for two tasks: there is room for the second.
    assert len(rig.take(x.Run)) == 1 and not rig.take(m.HandBack)
    rig.launch(2, ask=1)
    rig.launch(1, 2, ask=1)  # There is nothing left of the ask.
    assert len(rig.take(x.Run)) == 1 and not rig.take(m.HandBack)
    rig.done("p1", 1)
    rig.launch(1, ask=1)
    assert not rig.take(x.Run) and not rig.take(m.HandBack)


def test_after_a_new_link_launches_are_counted_anew() -> None:
    """A process of the same name, say, that has started again."""
    rig = Rig(2)
    rig.receive(reserve(1, app="pool"))
    rig.launch(5, ask=1)
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s")
    rig.receive(reserve(2, app="pool"))
    rig.launch(1, ask=2)
    assert len(rig.take(x.Run)) == 2


def test_an_executor_that_dies_gives_its_slot_back_and_its_runs_are_lost() -> None:
    rig = Rig()
    rig.receive(reserve(1, 2, app="pool"))
    rig.launch(1, ask=1)
    rig.core.executor_down("p0", "p0 was killed", 0.0)
    rig.settle()
    (report,) = rig.take(m.Report)
    assert (report.status, report.error) == (LOST, "p0 was killed")
    assert rig.core.free_slots == 1
    rig.take(m.GetTasks)
    rig.core.executor_up("p1", "pool", 1, 0.0)
    rig.settle()
    assert [ask.count for ask in rig.take(m.GetTasks)] == [1]


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_task_that_comes_when_all_executors_died_is_handed_back(prefetch: int) -> None:
    """It may take long until others start, if ever."""
    rig = Rig()
    rig.receive(reserve(1, 3, app="pool", prefetch=prefetch))
    asks = rig.take(m.GetTasks)
    rig.core.executor_down("p0", "p0 was killed", 0.0)
    for number, ask in enumerate(asks):
        rig.launch(number, ask=ask.ask)
    assert [back.attempt for back in rig.take(m.HandBack)] == list(range(len(asks)))
    assert rig.core.idle and rig.core.free_slots == 1


def test_executors_that_do_nothing_are_restarted_more_and_more_slowly() -> None:
    rig = Rig(1, executors=0)
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
    rig = Rig()
    rig.receive(reserve(1, app="pool"))
    rig.launch(1, ask=1)
    rig.done("p0", 1)
    before = len(rig.outbox.started)
    rig.core.executor_down("p0", "p0 was killed", 0.0)
    assert len(rig.outbox.started) == before + 1


@pytest.mark.parametrize(
    "done",
    [
        x.Done(99, FINISHED, b"", "", 0.0, 0.1),
        x.Done(1, LOST, b"", "", 0.0, 0.1),
        x.Done(1, FINISHED, b"", "", 0.0, float("nan")),
        x.Done(1, FINISHED, b"", "", 0.0, -1.0),
    ],
)
def test_an_executor_that_lies_is_cut_off_and_nothing_else_happens(done: x.Done) -> None:
    rig = Rig()
    rig.receive(reserve(1, app="pool"))
    rig.launch(1, ask=1)
    with pytest.raises(LinkError):
        rig.core.done("p0", done, 0.0)
    assert rig.core.user_of("p0", 1) is not None and rig.core.user_of("p0", 99) is None
    rig.settle()
    assert not rig.take(m.Report)
    rig.done("p0", 1)
    assert [report.status for report in rig.take(m.Report)] == [FINISHED]


@pytest.mark.parametrize(
    "fields", [{"count": 0}, {"count": -1}, {"weight": 0.0}, {"weight": float("nan")}, {"expected_duration_s": -1.0}]
)
def test_a_bad_reservation_breaks_the_link(fields: dict[str, Any]) -> None:
    rig = Rig()
    with pytest.raises(LinkError, match="bad reservation"):
        rig.core.receive("s", reserve(1, **{"app": "pool", **fields}), 0.0)
    rig.settle()


def test_reservations_are_limited_per_user_and_the_rest_refused() -> None:
    rig = Rig(1, executors=0, reservations_per_user_max=5)
    rig.receive(reserve(1, 3, app="pool"), reserve(2, 4, app="pool"), reserve(3, 2, app="pool"))
    rig.receive(reserve(4, 5, app="pool", user="bert"), reserve(5, 1, app="none"))
    assert [(refused.ticket, refused.count) for refused in rig.take(m.ReservationsRefused)] == [(2, 2), (3, 2), (5, 1)]
    assert rig.core.queue.users() == {"anna": 5, "bert": 5}


def test_short_tasks_are_given_ahead_of_time_but_none_behind_a_long_one() -> None:
    """What an executor has been given can go nowhere else, while other slots may be free."""
    rig = Rig(1)
    rig.receive(reserve(1, 9, app="pool", prefetch=8, job="j1"))
    rig.launch(1, ask=1)
    for attempt in range(2, 6):
        rig.launch(attempt, ask=2)
    assert len(rig.take(x.Run)) == 1
    rig.done("p0", 1, service_s=0.0001)  # Now they are known to be short.
    assert len(rig.take(x.Run)) == 4
    attempt = next(iter(rig.core.attempts.by_key.values()))
    attempt.job.duration_s = 5.0  # Now they are known to be long.
    rig.launch(6, ask=2)
    rig.done("p0", 2, service_s=5.0)
    assert not rig.take(x.Run)
    for run in (3, 4, 5):
        rig.done("p0", run, service_s=5.0)
    assert [run.payload for run in rig.take(x.Run)] == [b"payload 6"]


def test_a_run_given_ahead_of_time_is_revoked_when_cancelled() -> None:
    rig = Rig(1)
    rig.receive(reserve(1, 9, app="pool", prefetch=8))
    rig.launch(1, ask=1)
    rig.launch(2, 3, ask=2)
    rig.done("p0", 1)
    rig.receive(m.CancelAttempt("j1", 2), m.CancelAttempt("j1", 3), m.CancelAttempt("j1", 99))
    assert [answer.attempt for answer in rig.take(m.AttemptRuns)] == [2]
    assert rig.take(x.Revoke) == [x.Revoke([3])]
    rig.take(m.Report)
    rig.core.returned("p0", x.Returned([3]), 0.0)
    rig.settle()
    assert [(report.attempt, report.status) for report in rig.take(m.Report)] == [(3, CANCELLED)]


def test_a_scheduler_that_is_lost_leaves_nothing_behind() -> None:
    rig = Rig(2)
    rig.receive(reserve(1, 9, app="pool", prefetch=2), m.Common("j1", 0, b"f"))
    rig.launch(1, ask=1)
    rig.core.scheduler_down("s", 0.0)
    rig.settle()
    assert len(rig.core.queue) == 0 and rig.core.free_slots == 1 and not rig.core.asks.open
    rig.take(m.Report)
    rig.done("p1", 1)
    assert rig.core.free_slots == 2 and not rig.core.jobs.by_key and rig.core.idle


def test_a_result_too_large_for_the_scheduler_fails_its_task() -> None:
    rig = Rig()
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s", m.MESSAGE_OVERHEAD_BYTES + 10_000)
    rig.receive(reserve(1, app="pool"))
    rig.launch(1, ask=1)
    rig.core.done("p0", x.Done(1, FINISHED, bytes(10_001), "", 0.0, 0.1), 0.0)
    (report,) = rig.take(m.Report)
    assert report.status is TaskStatus.FAILED and report.result == b"" and "10001 bytes; at most 10000" in report.error


def test_a_draining_node_says_so_to_schedulers_that_come_later() -> None:
    rig = Rig()
    rig.receive(reserve(1, 3, app="pool"))
    rig.core.drain(0.0)
    rig.core.scheduler_up("t")
    rig.receive(reserve(2, 3, app="pool"))
    assert [to for to, _ in rig.outbox.take(m.NodeState)] == ["s", "t"]
    assert len(rig.core.queue) == 0 and rig.core.free_slots == 1
