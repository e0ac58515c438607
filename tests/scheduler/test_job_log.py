"""The scheduler's log has one line for each job."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from scheduler.book.admission import Refusal
from scheduler.book.jobs import JobState
from scheduler.job_log import INTERVAL_S, LINES_MAX, JobLog
from sparrow_py import Client, JobSpec, LocalCluster
from sparrow_py.errors import SparrowError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.scheduler.test_cancellation import Rig
from tests.support import tasks
from tests.support.recorder import submission

log = logging.getLogger("sparrow.test_job_log")


class Ended:
    """What a core says of jobs that are gone."""

    def __init__(self, rig: Rig) -> None:
        self.lines: list[tuple[str, str, float]] = []
        rig.core.register.job_gone = lambda job, how, now_s: self.lines.append((job.id, how, now_s))


def report(task: int) -> m.Report:
    return m.Report("j", task, task + 1, TaskStatus.FINISHED, b"", "", 0.0, 0.0)


def test_a_job_that_ends_is_told_once() -> None:
    rig = Rig()
    ended = Ended(rig)
    rig.node("n", report(0), report(1), report(1))
    assert ended.lines == [("j", "ended", 0.0)]


def test_so_is_one_that_another_scheduler_has_taken_over() -> None:
    rig = Rig()
    ended = Ended(rig)
    rig.node("n", m.Fenced("j", 1))
    assert ended.lines == [("j", "was taken over by another scheduler", 0.0)]


def test_so_is_one_that_is_handed_over() -> None:
    rig = Rig()
    ended = Ended(rig)
    rig.core.hand_over(5.0)
    assert ended.lines == [("j", "was handed over to other schedulers", 5.0)]


def test_one_that_is_refused_never_was_here() -> None:
    rig = Rig()
    ended = Ended(rig)
    rig.client(submission("k", app="nobody has it"))
    assert rig.outbox.take(m.JobRefused) and not ended.lines


def test_one_that_is_refused_is_told_of_with_its_user_and_the_reason() -> None:
    rig = Rig()
    refused: list[tuple[str, str, Refusal]] = []
    rig.core.register.job_refused = lambda job_id, user, why: refused.append((job_id, user, why))
    rig.client(submission("k", app="nobody has it"))
    ((job_id, user, why),) = refused
    ((_, told),) = rig.outbox.take(m.JobRefused)
    assert (job_id, user, why.reason) == ("k", "anna", told.reason)


def test_the_line_of_a_refusal_says_whose_why_and_when_to_try_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)
    lines = JobLog(log)
    lines.refused("j1", "an\nn", Refusal("it has too many tasks"))
    lines.refused("j2", "ann", Refusal("no room", 1.5))
    assert [record.getMessage() for record in caplog.records] == [
        "job j1 of user 'an\\nn' was refused: it has too many tasks",
        "job j2 of user 'ann' was refused: no room; its client may try again after 1.5 s",
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_refusals_leave_lines_of_jobs_that_end_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)
    lines = JobLog(log, lambda: 100.0)
    for _ in range(LINES_MAX + 7):
        lines.refused("j1", "ann", Refusal("no room", 1.5))
    lines.ended(JobState(submission("j2", tasks=0), "c", "ann", 100.0), "ended", 100.0)
    assert len(caplog.records) == LINES_MAX + 1 and "job j2" in caplog.messages[-1]


def test_the_line_says_whose_it_was_how_large_how_it_ended_and_how_long_it_took(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = JobState(submission("j1", tasks=3, name="clean\nup\x1b[2J"), "c", "ann", 100.0)
    job.counts[TaskStatus.FINISHED], job.counts[TaskStatus.FAILED] = 2, 1
    caplog.set_level(logging.INFO, log.name)
    JobLog(log).ended(job, "ended", 101.5)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "job j1 'clean\\nup\\x1b[2J' of user 'ann' ended after 1.500 s, 3 tasks: 2 finished, 1 failed"
    )


def test_lines_have_a_rate_and_what_is_left_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    lines = JobLog(log, lambda: now[0])
    job = JobState(submission("j1", tasks=0), "c", "ann", 100.0)
    caplog.set_level(logging.INFO, log.name)
    for _ in range(LINES_MAX + 7):
        lines.ended(job, "ended", 100.0)
    assert len(caplog.records) == LINES_MAX
    now[0] += INTERVAL_S
    lines.ended(job, "ended", 110.0)
    assert caplog.records[-1].getMessage().endswith("0 tasks: no outcome; before that 7 were left out")


def test_where_nobody_wants_to_know_nothing_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines = JobLog(log, lambda: pytest.fail("it was counted"))
    caplog.set_level(logging.WARNING, log.name)
    lines.ended(JobState(submission("j1"), "c", "ann", 100.0), "ended", 100.0)
    assert not caplog.records


@pytest.mark.processes
def test_a_scheduler_that_runs_writes_it(tmp_path: Path) -> None:
    with LocalCluster(slots=1, log_dir=tmp_path) as cluster, Client(cluster, user="ann") as client:
        assert client.submit_calls(tasks.square, [(2,), (3,)], name="squares").results() == [4, 9]
    (line,) = [line for line in (tmp_path / "cluster.log").read_text().splitlines() if "squares" in line]
    assert "INFO" in line and "of user 'ann' ended after" in line and line.endswith("2 tasks: 2 finished")


@pytest.mark.processes
def test_so_it_does_of_one_that_it_refuses(tmp_path: Path) -> None:
    cluster = LocalCluster(slots=1, log_dir=tmp_path)
    with cluster, Client(cluster, user="ann") as client, pytest.raises(SparrowError):
        client.submit_job(JobSpec([b""], app="python", where=["gpu exists"])).results()
    (line,) = [line for line in (tmp_path / "cluster.log").read_text().splitlines() if "was refused" in line]
    assert "INFO" in line and "of user 'ann' was refused: " in line and "gpu" in line
