"""A task's outcome comes from elsewhere than its attempt: what it waits for is called off, what runs of it is stopped,
and the stages after it go on with the result."""

from __future__ import annotations

import pytest

from scheduler.book.outcomes import SETTLED_AT_ONCE_MAX
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, StagedRig, ref

FINISHED, LOST, CANCELLED = TaskStatus.FINISHED, TaskStatus.LOST, TaskStatus.CANCELLED


def staged() -> StagedRig:
    """A scan of two tasks, and a sum that asks for both results."""
    rig = StagedRig()
    rig.submit(("scan", (), 2), ("sum", ("scan",), 1, ("scan",)))
    return rig


def finishes(task: int, result: m.Data = b"copy") -> m.FinishedElsewhere:
    return m.FinishedElsewhere("j", task, result)


def inputs(rig: StagedRig) -> dict[int, m.Data]:
    """The results that the sum is sent, by their tasks."""
    rig.run()
    return {message.task: message.data for message in rig.take(m.Input)}


def test_what_runs_is_stopped_and_the_next_stage_is_given_the_result() -> None:
    rig = staged()
    first, second = rig.run()
    rig.report(first)
    rig.client(finishes(1))
    assert rig.take(m.CancelAttempt) == [m.CancelAttempt("j", second.attempt, True)]
    assert rig.settled() == [(0, FINISHED)]  # The client knows the other.
    assert inputs(rig) == {0: b"r", 1: b"copy"}
    assert rig.core.counters.settled[FINISHED] == 2 and rig.core.counters.finished_elsewhere == 1


@pytest.mark.parametrize("end", [FINISHED, CANCELLED, LOST])
def test_what_is_heard_of_its_attempt_later_is_ignored(end: TaskStatus) -> None:
    rig = staged()
    first, second = rig.run()
    rig.client(finishes(1))
    rig.report(second, end, b"late")
    rig.report(first)
    assert rig.settled() == [(0, FINISHED)] and rig.core.counters.stale_reports == 1
    assert inputs(rig) == {0: b"r", 1: b"copy"}


def test_a_task_that_was_not_placed_needs_no_place() -> None:
    rig = staged()
    rig.client(finishes(0), finishes(1))
    assert sum(rig.core.admission.unplaced.values()) == 1
    (launch,) = rig.run()
    assert launch.task == 2
    rig.report(launch)
    assert rig.settled() == [(2, FINISHED)] and len(rig.take(m.JobEnded)) == 1


def test_a_task_that_is_settled_stays_as_it_is() -> None:
    rig = staged()
    first, second = rig.run()
    rig.report(first)
    rig.client(finishes(0))
    rig.report(second)
    assert inputs(rig) == {0: b"r", 1: b"r"} and rig.core.counters.finished_elsewhere == 0


def test_a_task_that_waits_for_a_lost_input_waits_no_more() -> None:
    rig = StagedRig()
    rig.submit(("scan", (), 1), ("sum", ("scan",), 1, ("scan",)), ("last", ("sum",), 1, ("sum",)))
    (launch,) = rig.run()
    rig.report(launch, result=ref("a"))
    (launch,) = rig.run()
    rig.missing(launch, "a" * 64)
    job = rig.core.jobs["j"]
    assert job.stages[1].blocked and job.awaited
    rig.client(finishes(1))
    assert not job.stages[1].blocked and not job.awaited
    assert {launch.task for launch in rig.run()} == {0, 2}  # The scan runs again, for nobody; the last stage goes on.


def test_a_large_result_that_is_lost_is_produced_by_the_task_itself() -> None:
    rig = StagedRig()
    rig.submit(("scan", (), 1), ("sum", ("scan",), 1, ("scan",)))
    rig.run()
    rig.client(finishes(0, ref("a")))
    (launch,) = rig.run()
    rig.missing(launch, "a" * 64)
    (again,) = rig.run()
    assert again.task == 0
    rig.report(again)
    (launch,) = rig.run()
    rig.report(launch)
    assert rig.settled() == [(1, FINISHED)]


@pytest.mark.parametrize("task", [-1, 3])
def test_a_task_that_the_job_has_not_got(task: int) -> None:
    rig = staged()
    with pytest.raises(LinkError, match=f"there is no task {task}; it has 3"):
        rig.client(finishes(task))


def test_a_reference_that_cannot_be() -> None:
    rig = staged()
    with pytest.raises((LinkError, InvalidRequest)):
        rig.client(finishes(0, BlobRef("x", -1, ())))


# ---- results that a job is given -----------------------------------------------------------------


def test_a_job_that_is_given_results_runs_only_what_asks_for_them() -> None:
    rig = StagedRig()
    stages = [
        m.Stage("many", 2, b"", "", 1.0, 0, None, name="scan"),
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="sum", after=("scan",)),
    ]
    known = m.Known("j", [m.KnownOutcome(0, FINISHED, b"r0"), m.KnownOutcome(1, FINISHED, b"r1")], {0: 2, 1: 2})
    details = {2: m.TaskDetail((), ((0, 2),))}
    job = m.SubmitJob("j", 0, "", stages, 3, False, None, False)
    rig.client(job, known, m.AddTasks("j", 0, [b"", b"", b"p"], details))
    (launch,) = rig.run()
    assert launch.task == 2 and {one.task: one.data for one in rig.take(m.Input)} == {0: b"r0", 1: b"r1"}
    rig.report(launch)
    assert rig.settled() == [(2, FINISHED)] and len(rig.take(m.JobEnded)) == 1
    assert not any(rig.core.admission.unplaced.values()) and not any(rig.core.admission.held_bytes.values())


def test_a_given_result_that_is_lost_is_not_produced_there() -> None:
    """Its task has no payload in this job: whoever waits for that is lost."""
    rig = StagedRig()
    stages = [
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="scan"),
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="sum", after=("scan",)),
    ]
    known = m.Known("j", [m.KnownOutcome(0, FINISHED, ref("a"))], {0: 2})
    job = m.SubmitJob("j", 0, "", stages, 3, False, None, False)
    rig.client(job, known, m.AddTasks("j", 0, [b"", b"p"], {1: m.TaskDetail((), ((0, 1),))}))
    (launch,) = rig.run()
    rig.missing(launch, "a" * 64)
    assert rig.settled() == [(1, LOST)]


@pytest.mark.parametrize(
    "outcome", [m.KnownOutcome(0, LOST, b""), m.KnownOutcome(1, FINISHED, b"r"), m.KnownOutcome(2, FINISHED, b"r")]
)
def test_a_job_is_given_no_other_outcomes(outcome: m.KnownOutcome) -> None:
    rig = SchedulerRig("n")
    stages = [
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="scan"),
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="sum", after=("scan",)),
    ]
    rig.client(m.SubmitJob("j", 0, "", stages, 3, False, None, False))
    with pytest.raises(LinkError, match="job j: "):
        rig.client(m.Known("j", [outcome], {}))


def test_a_task_of_many_that_are_cancelled_bit_by_bit_leaves_no_more() -> None:
    count = SETTLED_AT_ONCE_MAX + 100
    rig = StagedRig()
    rig.submit(("scan", (), count), ("sum", ("scan",), 1, ("scan",)))
    rig.client(m.CancelJob("j"))
    rig.client(*(finishes(task) for task in range(count - 10, count)))
    while (due_s := rig.core.next_deadline_s()) is not None and rig.core.jobs:
        rig.tick(due_s)
    told = rig.settled()
    assert sorted(task for task, _ in told) == [*range(count - 10), count]
    assert {status for _, status in told} == {CANCELLED} and len(rig.take(m.JobEnded)) == 1
