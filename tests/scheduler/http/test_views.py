"""What HTTP says of jobs, while they run and afterwards."""

from scheduler.http import views
from sparrow_py.job import TaskStatus
from tests.support.http_jobs import Scheduler, lines


def test_stages() -> None:
    scheduler = Scheduler()
    stages = [
        {"name": "empty", "app": "app"},
        {"name": "one", "app": "app", "tasks": [{}, {}], "common": {"c": 1}},
        {"name": "two", "app": "app", "after": ["one", "empty"], "tasks": [{"inputs": ["empty", ["one", 1]]}]},
    ]
    job = scheduler.post(stages=stages)
    running = views.detail(scheduler.core.jobs[job.id], "sparrow")
    assert [(s.name, s.tasks, s.unplaced, s.settled) for s in running.stages] == [
        ("empty", 0, 0, 0), ("one", 2, 2, 0), ("two", 1, 1, 0),
    ]  # fmt: skip
    scheduler.finish()
    assert [(line["task"], line["stage"]) for line in lines(job)] == [(0, "one"), (1, "one"), (2, "two")]
    assert [(s.name, s.after, s.settled) for s in views.detail(job, "sparrow").stages] == [
        ("empty", [], 0), ("one", [], 2), ("two", ["one", "empty"], 1),
    ]  # fmt: skip


def test_a_job_that_moved_is_as_old_as_it_is_for_its_user() -> None:
    scheduler = Scheduler()
    job = scheduler.core.jobs[scheduler.post(app="app", tasks=[{}]).id]
    job.born_s = scheduler.now_s - 30
    assert views.summary(job, "sparrow").submitted_at_s == scheduler.now_s - 30


def test_tasks_that_have_ended_and_of_which_their_client_is_not_told_yet_count_as_ended() -> None:
    scheduler = Scheduler()
    job = scheduler.core.jobs[scheduler.post(app="app", tasks=[{}, {}, {}]).id]
    job.stages[0].all_leave(TaskStatus.CANCELLED, "it was cancelled")
    found = views.summary(job, "sparrow")
    assert (found.unplaced, found.cancelled, found.state) == (0, 3, "running")
