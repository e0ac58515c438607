"""One job that came over HTTP: its lines, its readers' positions and watchers, and what it takes in memory."""

import sys

from scheduler.http.job import BARE_LINE_BYTES, ERROR_BYTES, BareFailure, BareLine, beginning_of, bytes_of_line
from sparrow_py.job import TaskStatus
from tests.support.http_jobs import Scheduler, bytes_of_job, lines


def test_order_of_arrival() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}, {}, {}])
    scheduler.launch()
    scheduler.launched.reverse()
    scheduler.report()
    assert [line["task"] for line in lines(job)] == [2]
    scheduler.report()
    scheduler.report()
    assert [line["task"] for line in lines(job)] == [2, 1, 0]
    assert [line["task"] for line in lines(job, 1)] == [1, 0]


def test_watchers_are_told_of_each_change() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}, {}])
    told: list[int] = []
    job.watchers.add(lambda: told.append(len(job.lines)))
    scheduler.finish()
    assert told == [1, 2, 2]


def test_a_watcher_may_go_when_it_is_told() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}])

    def watcher() -> None:
        job.watchers.discard(watcher)

    job.watchers.add(watcher)
    scheduler.finish()
    assert not job.watchers


def test_what_a_job_says_counts_as_bytes() -> None:
    scheduler = Scheduler()
    plain = scheduler.post(app="app", tasks=[{}]).bytes
    assert scheduler.post(app="app", tasks=[{"id": "x" * 200}]).bytes > plain + 300
    assert scheduler.post(app="app", tasks=[{}], where=["n in " + "x" * 1000], wait_for_nodes_s=9).bytes > plain + 1000
    stages = [{"app": "app", "name": f"s{n}"} for n in range(100)]
    assert scheduler.post(app="", stages=stages).bytes > 100 * 2000


def test_bytes_are_those_of_the_lines() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}] * 5)
    scheduler.finish(b"result")
    bytes_of_lines = sum(map(bytes_of_line, job.lines))
    assert bytes_of_lines > 5 * 100
    assert scheduler.jobs.kept.bytes.total == job.bytes == bytes_of_job(5) + bytes_of_lines


def test_a_bare_line_takes_what_it_is_counted_for() -> None:
    """With its place in the list and the number of its task; the number of attempts is one of Python's own."""
    place_bytes = 8
    bare = BareLine(100_000, TaskStatus.FINISHED, 1)
    assert sys.getsizeof(bare) + sys.getsizeof(bare.task) + place_bytes <= BARE_LINE_BYTES


def test_so_does_the_beginning_of_an_error() -> None:
    """Of the widest characters, too."""
    bare, failure = (
        BareLine(1, TaskStatus.FAILED, 1),
        BareFailure(1, TaskStatus.FAILED, 1, beginning_of("\U0001f600" * 200)),
    )
    assert sys.getsizeof(failure) - sys.getsizeof(bare) + sys.getsizeof(failure.error) <= ERROR_BYTES
