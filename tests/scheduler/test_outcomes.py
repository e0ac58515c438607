"""What a settled task leaves behind: one outcome for its client, what later stages need, and nothing else."""

from __future__ import annotations

import pytest

from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, StagedRig, ref

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


def held_bytes(rig: SchedulerRig) -> int:
    return sum(rig.core.admission.held_bytes.values())


def test_an_outcome_says_what_the_report_said() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 1))
    (launch,) = rig.run()
    rig.node("n", m.Report("j", 0, launch.attempt, FAILED, b"r", "boom", 1.0, 0.5, "out", "err"))
    (outcome,) = rig.take(m.Outcome)
    said = (outcome.status, outcome.result, outcome.error, outcome.stdout, outcome.stderr)
    assert said == (FAILED, b"r", "boom", "out", "err")
    assert (outcome.node, outcome.attempts, outcome.started_at_s, outcome.service_s) == ("n", 1, 1.0, 0.5)


@pytest.mark.parametrize(("started_at_s", "attempts"), [(None, 0), (1.0, 1)])
def test_a_cancelled_task_counts_a_start_if_it_had_begun(started_at_s: float | None, attempts: int) -> None:
    rig = StagedRig()
    rig.submit(("a", (), 1))
    (launch,) = rig.run()
    rig.node("n", m.Report("j", 0, launch.attempt, CANCELLED, b"", "it was cancelled", started_at_s, None))
    assert rig.outcomes() == [(0, CANCELLED, attempts)]


def test_the_outcome_of_a_task_that_did_not_run_names_no_node() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 1))
    rig.client(m.CancelJob("j"))
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.node, outcome.attempts, outcome.started_at_s, outcome.service_s) == ("", 0, None, None)


def test_a_payload_goes_with_its_task_if_nothing_comes_after_it() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 2), payloads=[b"x" * 1000, b"y" * 500])
    before = held_bytes(rig)
    first, second = rig.run()
    rig.report(first)
    assert before - held_bytes(rig) == 1000
    rig.report(second)
    assert held_bytes(rig) == 0


@pytest.mark.parametrize(("result", "is_large"), [(b"r" * 300, False), (ref("a"), True)])
def test_a_result_that_a_later_stage_needs_is_kept_and_of_a_large_one_the_payload_too(
    result: m.Data, is_large: bool
) -> None:
    """A large result lies at a node, and may get lost: then its task has to run again."""
    rig = StagedRig()
    rig.submit(("a", (), 1), ("b", ("a",), 1, ("a",)), payloads=[b"x" * 1000, b"y"])
    before = held_bytes(rig)
    (launch,) = rig.run()
    rig.report(launch, result=result)
    stage = rig.core.jobs["j"].stages[0]
    assert rig.core.jobs["j"].results == {0: result} and stage.large is is_large
    assert (stage.payloads[0] is None) is not is_large
    assert held_bytes(rig) - before == (0 if is_large else 300 - 1000)


def test_a_result_that_is_no_success_is_not_kept_and_dooms_what_comes_after() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 2), ("b", ("a",), 1))
    first, second = rig.run()
    rig.report(first, FAILED)
    assert not rig.core.jobs["j"].results
    (_, doomed) = rig.take(m.Outcome)
    assert (doomed.task, doomed.status, doomed.error) == (2, CANCELLED, "task 0 before it was failed: oh")
    rig.report(second)
    assert rig.settled() == [(1, FINISHED)] and not rig.core.jobs


def test_a_task_that_is_withdrawn_needs_no_place_and_the_others_keep_theirs() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 3))
    rig.client(m.CancelTasks("j", [1]))
    assert rig.settled() == [(1, CANCELLED)]
    assert [launch.task for launch in rig.run()] == [0, 2]
    assert sum(rig.core.admission.unplaced.values()) == 0


def test_outcomes_are_counted_by_status() -> None:
    rig = StagedRig()
    rig.submit(("a", (), 3), max_attempts=1)
    for launch, status in zip(rig.run(), (FINISHED, FAILED, LOST), strict=True):
        rig.report(launch, status)
    settled = rig.core.counters.settled
    assert {status: settled[status] for status in TaskStatus} == {FINISHED: 1, FAILED: 1, LOST: 1, CANCELLED: 0}
