"""The log of attempts that have ended: chains of jobs, and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.recent import task_log
from scheduler.recent.task_log import NONE, RECORD_BYTES, Ran, TaskLog
from sparrow_py.job import FAILED, FINISHED, LOST, TaskStatus
from sparrow_py.wire import messages as m


def report(job: str, task: int, status: TaskStatus = FINISHED, started_at_s: float | None = 5.0) -> m.Report:
    return m.Report(job, task, task + 1, status, b"", "", started_at_s, 0.25)


def add(log: TaskLog, node: str, *reports: m.Report) -> list[bool]:
    return [log.add(node, one) for one in reports]


def everybody(job_id: str) -> bool:
    return True


def tasks(log: TaskLog, job: str) -> list[int]:
    return [ran.task for ran in log.walk(log.latest(job))]


def test_a_job_has_its_runs_the_latest_first() -> None:
    log = TaskLog(everybody)
    add(log, "n1", report("j", 0), report("k", 7), report("j", 1, FAILED))
    add(log, "n2", report("j", 0))
    assert list(log.walk(log.latest("j"))) == [
        Ran(0, "n2", 5.0, 0.25, FINISHED),
        Ran(1, "n1", 5.0, 0.25, FAILED),
        Ran(0, "n1", 5.0, 0.25, FINISHED),
    ]
    assert tasks(log, "k") == [7]


def test_of_jobs_that_are_not_here_and_attempts_that_did_not_run_nothing_is_kept() -> None:
    log = TaskLog("here".__eq__)
    add(log, "n", report("gone", 0), report("here", 0, LOST, None), report("here", -1), report("here", 2**40))
    assert (log.latest("gone"), log.latest("here"), log.place) == (NONE, NONE, 0)
    assert list(log.walk(NONE)) == []


def test_a_job_that_left_is_found_by_its_place_and_its_id_begins_anew() -> None:
    log = TaskLog(everybody)
    add(log, "n", report("j", 0))
    place = log.let_go("j")
    add(log, "n", report("j", 9))
    assert ([ran.task for ran in log.walk(place)], tasks(log, "j")) == ([0], [9])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chunks of two records."""
    monkeypatch.setattr(task_log, "CHUNK_BYTES", 2 * RECORD_BYTES)
    monkeypatch.setattr(task_log, "CHUNKS_MAX", 3)


@pytest.mark.usefixtures("small")
def test_the_oldest_records_go_and_the_bytes_stay_as_they_are() -> None:
    log = TaskLog(everybody)
    first = []
    for task in range(20):
        add(log, "n", report(f"j{task % 2}", task))
        first.append(log.latest("j0"))
    assert log.bytes == 3 * 2 * RECORD_BYTES
    assert (tasks(log, "j0"), tasks(log, "j1")) == ([18, 16], [19, 17])
    assert list(log.walk(first[0])) == []


def test_with_too_many_nodes_all_is_forgotten_and_old_places_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_log, "NODES_MAX", 2)
    log = TaskLog(everybody)
    add(log, "n1", report("j", 1))
    add(log, "n2", report("j", 2))
    before = log.latest("j")
    add(log, "n3", report("j", 3))
    assert ([ran.node for ran in log.walk(log.latest("j"))], list(log.walk(before))) == (["n3"], [])


@pytest.mark.usefixtures("small")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99)), max_size=40))
def test_chains_are_the_latest_of_what_was_added(added: list[tuple[str, int]]) -> None:
    log = TaskLog(everybody)
    for job, task in added:
        add(log, "n", report(job, task))
    for job in "abc":
        found = tasks(log, job)
        assert found == [task for name, task in reversed(added) if name == job][: len(found)]
        assert len(found) >= sum(name == job for name, _ in added[-4:])  # Two chunks are full.


def test_the_next_report_is_looked_at_from_a_place_on() -> None:
    log = TaskLog(everybody)
    assert add(log, "n", report("j", 0), report("j", 1)) == [True, True]
    log.look_at = log.place + RECORD_BYTES
    assert add(log, "n", report("j", 2), report("j", 3, started_at_s=None), report("j", 4)) == [False, False, True]


def test_so_many_records_are_made_at_once_and_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_log, "BURST_MAX", 3)
    monkeypatch.setattr(task_log, "RATE_MAX", 2)
    log = TaskLog(everybody)
    add(log, "n", report("j", 0), report("j", 1))
    assert log.left == 1
    add(log, "n", report("j", 2))
    assert log.left == 0  # Who feeds it looks at this first.
    log.time_passed(1.0)
    assert log.left == 2
    log.time_passed(10.0)
    assert log.left == 3
