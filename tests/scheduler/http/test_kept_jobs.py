"""Which jobs that came over HTTP are kept, for how long, and who has to make room for whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.http import kept_jobs
from scheduler.http.job import ERROR_CHARS_MAX, ERRORS_WITH_ROOM
from scheduler.http.result_lines import NO_ROOM
from sparrow_py.http.http_api import ApiError
from sparrow_py.job import TaskStatus
from sparrow_py.limits.shares import SHARE
from tests.support.http_jobs import Scheduler, bytes_of_job, lines


def test_ended_jobs_go_after_a_time() -> None:
    scheduler = Scheduler(http_retention_s=10)
    ended, running = scheduler.post(app="app", tasks=[{}]), None
    scheduler.finish()
    end_s = scheduler.now_s
    running = scheduler.post(app="app", tasks=[{}])
    scheduler.at(end_s + 9.9)
    assert scheduler.jobs.kept.get(ended.id) is ended
    scheduler.at(end_s + 10)
    assert scheduler.jobs.kept.get(ended.id) is None
    assert (ended.lines, ended.gone) == ([], "http_retention_s = 10 s are over")
    assert scheduler.jobs.kept.get(running.id) is running
    scheduler.finish()
    scheduler.at(scheduler.now_s + 10)
    assert scheduler.jobs.kept.bytes.total == 0
    assert scheduler.jobs.next_deadline_s() is None


def test_no_timer_without_jobs() -> None:
    assert Scheduler().jobs.next_deadline_s() is None


def test_newer_results_drive_out_the_oldest_ended_jobs() -> None:
    scheduler = Scheduler(http_results_bytes_max=SHARE * (2 * bytes_of_job(1) + 5000))
    posted = []
    for _ in range(3):
        posted.append(scheduler.post(app="app", tasks=[{}]))
        scheduler.finish(b"x" * 1200)  # In base64 1600 bytes.
    told: list[str] = []
    for number, job in enumerate(posted):
        job.watchers.add(lambda number=number: told.append(number))  # type: ignore[misc]
    assert scheduler.jobs.kept.get(posted[0].id) is None
    assert "http_results_bytes_max = " in posted[0].gone
    assert [scheduler.jobs.kept.get(job.id) for job in posted[1:]] == posted[1:]
    assert scheduler.jobs.kept.bytes.total == posted[1].bytes + posted[2].bytes <= 2 * bytes_of_job(1) + 5000
    scheduler.post(app="app", tasks=[{}])
    scheduler.finish(b"x" * 1200)
    assert told == [1]


def test_a_job_that_is_too_large_alone_keeps_what_there_is_room_for() -> None:
    scheduler = Scheduler(http_results_bytes_max=SHARE * (bytes_of_job(4) + 4700))
    job = scheduler.post(app="app", tasks=[{}] * 4)
    scheduler.finish(b"x" * 1200)
    assert ["result_base64" in line for line in lines(job)] == [True, True, False, False]
    assert "http_results_bytes_max = " in lines(job)[2]["dropped"]
    assert {line["status"] for line in lines(job)} == {"finished"}


def test_long_errors_of_tasks_are_not_kept_where_there_is_no_room() -> None:
    """Each task that is doomed by a failed one is told why that failed."""
    scheduler = Scheduler(http_results_bytes_max=SHARE * (bytes_of_job(101) + 30_000))
    first, second = {"name": "a", "app": "app", "tasks": [{}]}, {"name": "b", "app": "app", "tasks": [{}] * 100}
    job = scheduler.post(stages=[first, {**second, "after": ["a"]}])
    scheduler.launch()
    scheduler.report(status=TaskStatus.FAILED, error="x" * 4000)
    assert len(lines(job)) == 101
    lengths = [len(line["error"]) for line in lines(job)]
    assert lengths[0] == 4000 and 1000 < lengths[1] < 1100
    assert max(lengths[1:]) < 1100


def test_where_nothing_more_fits_the_status_the_attempts_and_some_errors_are_kept() -> None:
    """Some results, then some lines without, then nothing but these. The 20 tasks' errors all have room."""
    scheduler = Scheduler(http_results_bytes_max=SHARE * (bytes_of_job(20) + 6500))
    job = scheduler.post(app="app", tasks=[{"id": f"t{number}"} for number in range(10)] + [{}] * 10)
    scheduler.launch()
    for _ in range(12):
        scheduler.report(status=TaskStatus.FAILED, error="x" * 900)
    for _ in range(8):
        scheduler.report(b"x" * 900)
    assert scheduler.jobs.kept.bytes.total == job.bytes <= scheduler.jobs.kept.bytes.share
    read = lines(job)
    assert [line["task"] for line in read] == list(range(20)) and [line.get("id") for line in read[8:11]] == [
        "t8",
        "t9",
        None,
    ]
    assert [line["status"] for line in read] == ["failed"] * 12 + ["finished"] * 8
    assert {line["attempts"] for line in read} == {1}
    assert {len(line["error"]) for line in read[:12]} == {900, ERROR_CHARS_MAX + 1}
    assert {line.get("dropped") for line in read[-8:]} == {NO_ROOM} and {line["error"] for line in read[-8:]} == {""}


def test_the_first_failures_say_why_where_results_of_others_have_used_up_the_room() -> None:
    """The error that explains all may come last."""
    scheduler = Scheduler(http_results_bytes_max=SHARE * (bytes_of_job(60) + 3000))
    job = scheduler.post(app="app", tasks=[{}] * 60)
    scheduler.launch()
    for _ in range(30):
        scheduler.report(b"x" * 900)
    for number in range(30):
        scheduler.report(status=TaskStatus.FAILED, error=f"the disk of node {number} is full")
    errors = [line["error"] for line in lines(job)[30:]]
    assert errors[:ERRORS_WITH_ROOM] == [f"the disk of node {number} is full" for number in range(ERRORS_WITH_ROOM)]
    assert set(errors[ERRORS_WITH_ROOM:]) == {NO_ROOM}
    assert {line["dropped"] for line in lines(job)[30:]} == {NO_ROOM}
    assert scheduler.jobs.kept.bytes.total == job.bytes <= scheduler.jobs.kept.bytes.share


@given(
    spare_bytes=st.integers(0, 20_000),
    ends=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 3000)), min_size=1, max_size=40),
)
def test_a_user_never_has_more_than_a_share(spare_bytes: int, ends: list[tuple[int, int]]) -> None:
    """Whatever results and errors its tasks have; and each task has a line."""
    scheduler = Scheduler(http_results_bytes_max=SHARE * (bytes_of_job(len(ends)) + spare_bytes))
    job = scheduler.post(app="app", tasks=[{}] * len(ends))
    scheduler.launch()
    for result_bytes, error_chars in ends:
        status = TaskStatus.FAILED if error_chars else TaskStatus.FINISHED
        scheduler.report(b"x" * result_bytes, status, "x" * error_chars)
        assert scheduler.jobs.kept.bytes.total == job.bytes <= scheduler.jobs.kept.bytes.share
    assert sorted(line["task"] for line in lines(job)) == list(range(len(ends)))


def test_a_job_that_is_refused_drives_out_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it never fits, does not fit now, or is refused by the core."""
    scheduler = Scheduler(http_results_bytes_max=SHARE * (2 * bytes_of_job(1) + 20_000))
    small = scheduler.post(app="app", tasks=[{}])
    scheduler.finish()
    with pytest.raises(ApiError, match=r"takes \d+ bytes .* at most \d+ of http_results_bytes_max") as caught:
        scheduler.post(app="app", tasks=[{}] * 1000)
    assert (caught.value.status, caught.value.retry_after_s) == (413, None)
    scheduler.post(app="app", tasks=[{}] * 100)
    with pytest.raises(ApiError, match="http_results_bytes_max") as caught:
        scheduler.post(app="app", tasks=[{}] * 100)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1.0)
    assert scheduler.jobs.kept.get(small.id) is small
    with pytest.raises(ApiError) as caught:
        scheduler.post(app="app", tasks=[{}], where=["n == nowhere"])
    assert caught.value.status == 400
    assert scheduler.jobs.kept.get(small.id) is small
    job = scheduler.post(app="app", tasks=[{}])
    assert scheduler.jobs.kept.get(small.id) is None and scheduler.jobs.kept.get(job.id) is job
    assert scheduler.jobs.kept.bytes.total <= scheduler.jobs.kept.bytes.share


def test_no_job_is_taken_while_running_ones_fill_the_room() -> None:
    scheduler = Scheduler(http_results_bytes_max=SHARE * (bytes_of_job(9) + 2000))
    job = scheduler.post(app="app", tasks=[{}] * 9)
    scheduler.launch()
    for _ in range(8):
        scheduler.report(b"x" * 900)
    assert bytes_of_job(9) < scheduler.jobs.kept.bytes.total <= scheduler.jobs.kept.bytes.share
    with pytest.raises(ApiError, match="http_results_bytes_max") as caught:
        scheduler.post(app="app", tasks=[{}])
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1.0)
    scheduler.report()
    assert job.ended_at_s is not None
    scheduler.post(app="app", tasks=[{}])
    assert scheduler.jobs.kept.get(job.id) is None


def test_jobs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_jobs, "JOBS_MAX", 2 * SHARE)
    scheduler = Scheduler()
    first = scheduler.post(app="app")
    scheduler.post(app="app", tasks=[{}])
    scheduler.post(app="app", tasks=[{}])
    assert scheduler.jobs.kept.get(first.id) is None
    with pytest.raises(ApiError, match=r"at most 2 of JOBS_MAX = 8 .* here u") as caught:
        scheduler.post(app="app", tasks=[{}])
    assert caught.value.status == 503


def test_one_users_jobs_push_only_its_own_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_jobs, "JOBS_MAX", 2 * SHARE)
    scheduler = Scheduler()
    adas = scheduler.post("ada", app="app")
    posted = [scheduler.post("mallory", app="app") for _ in range(10 * SHARE)]
    assert scheduler.jobs.kept.get(adas.id) is adas
    assert [job for job in posted if scheduler.jobs.kept.get(job.id)] == posted[-2:]


def test_where_users_fill_the_whole_the_one_with_most_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_jobs, "JOBS_MAX", 2 * SHARE)
    scheduler = Scheduler()
    adas = scheduler.post("ada", app="app")
    crowd = [scheduler.post(user, app="app") for user in ("b", "c", "d", "e") for _ in range(2)]
    bobs = scheduler.post("bob", app="app")
    assert scheduler.jobs.kept.get(adas.id) is adas and scheduler.jobs.kept.get(bobs.id) is bobs
    assert len([job for job in crowd if scheduler.jobs.kept.get(job.id)]) == 2 * SHARE - 2


def test_one_users_results_leave_room_for_anothers() -> None:
    scheduler = Scheduler(http_results_bytes_max=SHARE * (bytes_of_job(20) + 5000))
    hog = scheduler.post("mallory", app="app", tasks=[{}] * 20)
    scheduler.launch()
    for _ in range(20):
        scheduler.report(b"x" * 1200)
    assert "dropped" in lines(hog)[-1]
    adas = scheduler.post("ada", app="app", tasks=[{}])
    scheduler.finish(b"x" * 1200)
    assert "result_base64" in lines(adas)[0]


def test_closing_tells_readers() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}])
    told: list[str] = []
    job.watchers.add(lambda: told.append(job.gone))
    scheduler.jobs.close()
    assert told == ["the scheduler is shutting down"]
    assert scheduler.jobs.next_deadline_s() is None
    scheduler.finish()
    assert job.lines == []
