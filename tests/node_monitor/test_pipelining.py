"""Short tasks that an executor is given ahead of time, and what of that is asked back."""

from __future__ import annotations

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
