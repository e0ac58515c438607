"""Short tasks that an executor is given ahead of time, and what of that is asked back."""

from __future__ import annotations

from typing import Any

from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

CANCELLED = TaskStatus.CANCELLED


def test_short_tasks_are_given_ahead_of_time_but_none_behind_a_long_one() -> None:
    """What an executor has been given can go nowhere else, while other slots may be free."""
    rig = NodeCore(1)
    rig.receive(reserve(1, 9, app="pool", prefetch=8, job="j1"))
    rig.launches(1, ask=1)
    for attempt in range(2, 6):
        rig.launches(attempt, ask=2)
    assert len(rig.take(x.Run)) == 1
    rig.done("p0", 1, service_s=0.0001)  # Now they are known to be short.
    assert len(rig.take(x.Run)) == 4
    attempt = next(iter(rig.core.attempts.by_key.values()))
    attempt.job.duration_s = 5.0  # Now they are known to be long.
    rig.launches(6, ask=2)
    rig.done("p0", 2, service_s=5.0)
    assert not rig.take(x.Run)
    for run in (3, 4, 5):
        rig.done("p0", run, service_s=5.0)
    assert [run.payload for run in rig.take(x.Run)] == [b"payload 6"]


def test_a_run_given_ahead_of_time_is_revoked_when_cancelled() -> None:
    rig = NodeCore(1)
    rig.receive(reserve(1, 9, app="pool", prefetch=8))
    rig.launches(1, ask=1)
    rig.launches(2, 3, ask=2)
    rig.done("p0", 1)
    rig.receive(m.CancelAttempt("j1", 2), m.CancelAttempt("j1", 3), m.CancelAttempt("j1", 99))
    assert [answer.attempt for answer in rig.take(m.AttemptRuns)] == [2]
    assert rig.take(x.Revoke) == [x.Revoke([3])]
    rig.take(m.Report)
    rig.core.returned("p0", x.Returned([3]), 0.0)
    rig.settle()
    assert [(report.attempt, report.status) for report in rig.take(m.Report)] == [(3, CANCELLED)]


def given(ready: int, *, slots: int = 1, executors: int | None = None, prefetch: int = 8, **common: Any) -> list[int]:
    """How many of so many ready tasks each executor has once the first task of the job has ended in no time."""
    node = NodeCore(slots, executors=executors)
    node.receive(m.Common("j1", 0, b"", **common), reserve(1, 1 + ready, app="pool", prefetch=prefetch))
    asks = node.take(m.GetTasks)
    node.launches(1, ask=asks[0].ask)
    ahead = [ask for ask in [*asks[1:], *node.take(m.GetTasks)] for _ in range(ask.count)]
    for number, ask in enumerate(ahead[:ready], 2):
        node.launches(number, ask=ask.ask)
    first = next(one for one, executor in node.core.executors.items() if 1 in executor.running)
    node.done(first, 1)
    return [len(executor.running) for executor in node.core.executors.values()]


def test_no_more_is_given_ahead_than_its_job_prefetches() -> None:
    assert given(3, prefetch=8) == [3] and given(8, prefetch=2) == [2]


def test_tasks_that_may_start_once_or_have_a_time_out_are_given_one_by_one() -> None:
    """What is given ahead dies with what is killed before it, and a time-out begins with the task."""
    assert given(3, once=True) == [1] and given(3, task_timeout_s=5.0) == [1]


def test_what_was_given_ahead_goes_back_to_the_scheduler_with_its_executor() -> None:
    """All were given, and nobody but the executor knows which of them had begun: all count as started."""
    node = NodeCore(1)
    node.receive(reserve(1, 9, app="pool", prefetch=8))
    node.launches(1, ask=1)
    node.launches(2, 3, ask=2)
    node.done("p0", 1)
    node.take(m.Report)
    node.died("p0")
    assert {report.attempt: report.status for report in node.take(m.Report)} == {2: TaskStatus.LOST, 3: TaskStatus.LOST}
