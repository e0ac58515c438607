"""Tasks that wait for a place again: starts are counted, and who is not wanted any more is settled instead."""

from __future__ import annotations

import pytest

from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import StagedRig

FINISHED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.CANCELLED, TaskStatus.LOST


def test_a_task_that_starts_again_is_placed_before_those_that_never_started() -> None:
    """Unplaced tasks go out in the order of their numbers."""
    rig = StagedRig()
    rig.submit(("a", (), 6))
    (to, reserve), *_ = rig.outbox.take(m.Reserve)
    rig.node(to, m.GetTasks(1, reserve.ticket, 2))
    first, second = rig.take(m.Launch)
    rig.report(second, LOST)
    rig.report(first, LOST)
    rig.node(to, m.GetTasks(2, reserve.ticket, 3))
    assert [launch.task for launch in rig.take(m.Launch)] == [0, 1, 2]


def test_starts_in_vain_are_counted_and_told() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 1))
    for starts in (1, 2):
        (launch,) = rig.run()
        rig.report(launch, LOST)
        assert rig.take(m.Retried) == [m.Retried("j", 0, starts)]
        assert rig.core.jobs["j"].stages[0].starts == {0: starts} and rig.core.counters.retries == starts
    (launch,) = rig.run()
    rig.report(launch)
    assert rig.outcomes() == [(0, FINISHED, 3)]


@pytest.mark.parametrize("cancel", [m.CancelJob("j", True), m.CancelTasks("j", [0], True)], ids=["job", "task"])
def test_a_task_that_was_cancelled_meanwhile_does_not_start_again(cancel: m.Message) -> None:
    rig = StagedRig()
    rig.submit(("a", (), 1))
    (launch,) = rig.run()
    rig.client(cancel)
    rig.report(launch, LOST)
    assert rig.outcomes() == [(0, CANCELLED, 1)] and not rig.take(m.Reserve) and not rig.core.jobs


def test_what_is_to_be_placed_again_counts_to_its_user_as_before() -> None:
    rig = StagedRig(unplaced_tasks_max=1)
    rig.submit(("a", (), 1))
    (launch,) = rig.run()
    rig.report(launch, LOST)
    rig.submit_job(1, job="k")
    (refused,) = rig.take(m.JobRefused)
    assert refused.job == "k" and "unplaced_tasks_max" in refused.reason


@pytest.mark.parametrize("task", [-1, 1])
def test_starts_of_no_task_end_the_link(task: int) -> None:
    rig = StagedRig()
    rig.submit(("a", (), 1))
    with pytest.raises(LinkError, match=f"there is no task {task}; it has 1"):
        rig.client(m.CountKnown("j", {task: 1}))


def test_the_client_may_know_starts_of_tasks_that_do_not_wait_for_that() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 2))
    launched = rig.run()
    rig.client(m.CountKnown("j", {0: 1, 1: 5}))
    assert not rig.take(m.Reserve)
    for launch in launched:
        rig.report(launch)
    assert rig.settled() == [(0, FINISHED), (1, FINISHED)]
