"""Jobs that came over HTTP: what is kept of them, for how long, and what they are refused for."""

import itertools
import json
import random
from typing import Any

import pytest

from scheduler.core import SchedulerCore
from scheduler.http import http_jobs, views
from scheduler.http.http_jobs import LINE_OVERHEAD_BYTES, HttpJob, HttpJobs, encode_line, json_value
from scheduler.http.job_requests import client_job
from scheduler.http.openapi import scheduler_document
from scheduler.options import SchedulerOptions
from sparrow_py.http.http_api import ApiError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.limits.shares import SHARE
from sparrow_py.wire import messages as m

PAYLOAD_BYTES_MAX = 1000
JOB_BYTES = 4311
"""What a job of one task of the app takes without its results; a task more is a byte."""


def body(**job: Any) -> bytes:
    return json.dumps(job).encode()


class Scheduler:
    """A core with one node that does as it is told, its HTTP jobs, and the time."""

    def __init__(self, **options: Any) -> None:
        self.now_s = 1000.0
        self.options = SchedulerOptions(**options)
        self.core = SchedulerCore(self.options, random.Random(0), self)
        self.jobs = HttpJobs(self.core, self.options, lambda: self.now_s, itertools.count(1))
        self.launched: list[m.Launch] = []
        self.cancelled: list[m.CancelAttempt] = []
        self.asks = itertools.count(1)
        self.core.node_up("n", m.NodeInfo(100, {}, {}, {"app": ""}), self.now_s)
        self._reserved: list[m.Reserve] = []

    def to_node(self, node_id: str, message: m.Message) -> None:
        if isinstance(message, m.Launch):
            self.launched.append(message)
        elif isinstance(message, m.Reserve):
            self._reserved.append(message)
        elif isinstance(message, m.CancelAttempt):
            self.cancelled.append(message)

    def to_client(self, client: str, message: m.Message) -> None:
        self.jobs.told(client, message)

    def post(self, user: str = "u", **job: Any) -> HttpJob:
        """Submit a job, as a request does."""
        user, spec, messages = client_job(body(user=user, **job), PAYLOAD_BYTES_MAX)
        before = self.jobs.find_same(user, messages.id)
        if before is not None:
            return before
        http_job = self.jobs.begin(user, spec, messages)
        for message in messages.messages(PAYLOAD_BYTES_MAX):
            self.jobs.add(http_job, message)
        self.core.check_invariants()
        return http_job

    def launch(self) -> None:
        """The node asks for all that it has reservations for."""
        reserved, self._reserved = self._reserved, []
        for reserve in reserved:
            ask = m.GetTasks(next(self.asks), reserve.ticket, reserve.count)
            self.core.receive_from_node("n", ask, self.now_s)

    def report(self, result: m.Data = b"", status: TaskStatus = TaskStatus.FINISHED, **more: Any) -> None:
        """The first task launched ends."""
        task = self.launched.pop(0)
        report = m.Report(task.job, task.task, task.attempt, status, result, "", 5.0, 0.25, **more)
        self.core.receive_from_node("n", report, self.now_s)
        self.core.check_invariants()

    def finish(self, result: m.Data = b"") -> None:
        """All tasks there are run and end."""
        self.launch()
        while self.launched:
            self.report(result)
            self.launch()

    def at(self, now_s: float) -> None:
        """The time comes to `now_s`: the timer fires when it is due."""
        while (due_s := self.jobs.next_deadline_s()) is not None and due_s <= now_s:
            self.now_s = max(due_s, self.now_s)
            self.jobs.tick(self.now_s)
        self.now_s = now_s


def lines(job: HttpJob, position: int = 0) -> list[dict[str, Any]]:
    """All results so far, from a position."""
    read = []
    while True:
        batch, position = job.lines_from(position)
        if not batch:
            return read
        read += [json.loads(line) for line in batch.splitlines()]


class TestResults:
    def test_a_job(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{"payload": {"x": [1, 2.50]}, "id": "a"}, {"payload_base64": "AP8="}])
        scheduler.launch()
        assert [task.payload for task in scheduler.launched] == [b'{"x": [1, 2.5]}', b"\0\xff"]
        scheduler.report(b'{"y":\n1}', stdout="out", stderr="err")
        assert job.ended_at_s is None
        scheduler.report(b"\0\xff", TaskStatus.FAILED)
        assert job.ended_at_s == scheduler.now_s
        common = {"stage": "", "error": "", "attempts": 1, "node": "n", "started_at_s": 5.0, "service_s": 0.25}
        assert lines(job) == [
            {
                **common,
                "task": 0,
                "id": "a",
                "status": "finished",
                "result": {"y": 1},
                "stdout": "out",
                "stderr": "err",
            },
            {**common, "task": 1, "status": "failed", "result_base64": "AP8=", "stdout": "", "stderr": ""},
        ]
        assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in job.lines)
        assert views.detail(job).finished == views.detail(job).failed == 1
        assert views.summary(job).state == "ended"

    def test_order_of_arrival(self) -> None:
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

    def test_batches_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_jobs, "BATCH_BYTES", 100)
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}] * 10)
        scheduler.finish()
        batch, position = job.lines_from(0)
        assert (batch, position) == (job.lines[0], 1)
        assert len(lines(job)) == 10

    def test_stages(self) -> None:
        scheduler = Scheduler()
        stages = [
            {"name": "empty", "app": "app"},
            {"name": "one", "app": "app", "tasks": [{}, {}], "common": {"c": 1}},
            {"name": "two", "app": "app", "after": ["one", "empty"], "tasks": [{"inputs": ["empty", ["one", 1]]}]},
        ]
        job = scheduler.post(stages=stages)
        running = views.detail(scheduler.core.jobs[job.id])
        assert [(s.name, s.tasks, s.unplaced, s.settled) for s in running.stages] == [
            ("empty", 0, 0, 0), ("one", 2, 2, 0), ("two", 1, 1, 0),
        ]  # fmt: skip
        scheduler.finish()
        assert [(line["task"], line["stage"]) for line in lines(job)] == [(0, "one"), (1, "one"), (2, "two")]
        assert [(s.name, s.after, s.settled) for s in views.detail(job).stages] == [
            ("empty", [], 0), ("one", [], 2), ("two", ["one", "empty"], 1),
        ]  # fmt: skip

    def test_no_tasks(self) -> None:
        job = Scheduler().post(app="app")
        assert job.ended_at_s is not None
        assert lines(job) == []

    def test_large_result(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}])
        scheduler.finish(BlobRef("ab" * 32, 123, ("h:1", "[::1]:2")))
        (line,) = lines(job)
        urls = [f"http://{address}/v1/blobs/{'ab' * 32}" for address in ("h:1", "[::1]:2")]
        assert line["blob"] == {"hash": "ab" * 32, "size": 123, "urls": urls}
        assert "result" not in line

    def test_watchers_are_told_of_each_change(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}, {}])
        told: list[int] = []
        job.watchers.add(lambda: told.append(len(job.lines)))
        scheduler.finish()
        assert told == [1, 2, 2]

    def test_a_watcher_may_go_when_it_is_told(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}])

        def watcher() -> None:
            job.watchers.discard(watcher)

        job.watchers.add(watcher)
        scheduler.finish()
        assert not job.watchers

    @pytest.mark.parametrize(
        ("data", "value"),
        [
            (b"", b"null"),
            (b"null", b"null"),
            (b' {"a": 1.00,\n"b": [12345678901234567890123]} ', b'{"a":1.00,"b":[12345678901234567890123]}'),
            ('"ü"'.encode(), '"ü"'.encode()),
            (b"nope", None),
            (b'"\xff"', None),
            (b'"\\ud800"', None),
            (b"NaN", None),
            (b"1e999", None),
            (b"1 2", None),
            (b"[" * 100_000 + b"]" * 100_000, None),
        ],
    )
    def test_results_that_are_json(self, data: bytes, value: bytes | None) -> None:
        assert json_value(data) == value

    def test_lines_are_as_the_document_says(self) -> None:
        schema = scheduler_document()["components"]["schemas"]["ResultLine"]
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}])
        scheduler.finish()
        assert set(schema["required"]) <= set(lines(job)[0]) <= set(schema["properties"])


class TestIdempotence:
    def test_the_same_id_is_the_same_job(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(job_id="j", app="app", tasks=[{}])
        assert scheduler.post(job_id="j", app="other", tasks=[{}, {}]) is job
        scheduler.finish()
        assert scheduler.post(job_id="j", app="app", tasks=[{}]) is job
        assert scheduler.core.counters.jobs_accepted == 1

    def test_it_is_another_job_once_the_first_is_not_kept(self) -> None:
        scheduler = Scheduler(http_retention_s=10)
        job = scheduler.post(job_id="j", app="app")
        scheduler.at(scheduler.now_s + 10)
        assert scheduler.post(job_id="j", app="app") is not job

    def test_the_id_of_another_user(self) -> None:
        scheduler = Scheduler()
        scheduler.post(job_id="j", app="app", tasks=[{}])
        with pytest.raises(ApiError, match="another client") as caught:
            scheduler.post("v", job_id="j", app="app", tasks=[{}])
        assert (caught.value.status, caught.value.field) == (409, "job_id")

    def test_the_id_of_a_job_that_did_not_come_over_http(self) -> None:
        scheduler = Scheduler()
        stage = m.Stage("app", 1, b"", "", 2.0, 0, None)
        submission = m.SubmitJob("j", 0, "", [stage], 1, False, None, False)
        scheduler.core.receive_from_client("client", "u", submission, 0.0)
        with pytest.raises(ApiError) as caught:
            scheduler.post(job_id="j", app="app", tasks=[{}])
        assert caught.value.status == 409


class TestRefusals:
    def test_too_many_tasks_now(self) -> None:
        scheduler = Scheduler(unplaced_tasks_max=3)
        scheduler.post(app="app", tasks=[{}, {}])
        with pytest.raises(ApiError, match="unplaced_tasks_max = 3") as caught:
            scheduler.post(job_id="j", app="app", tasks=[{}, {}])
        assert caught.value.status == 429
        assert caught.value.retry_after_s
        assert scheduler.jobs.get("j") is None

    def test_too_many_tasks_for_ever(self) -> None:
        with pytest.raises(ApiError, match="the job has 2 tasks") as caught:
            Scheduler(unplaced_tasks_max=1).post(app="app", tasks=[{}, {}])
        assert (caught.value.status, caught.value.retry_after_s) == (400, None)

    def test_draining(self) -> None:
        scheduler = Scheduler()
        scheduler.core.drain(0.0)
        with pytest.raises(ApiError, match="shutting down") as caught:
            scheduler.post(app="app", tasks=[{}])
        assert (caught.value.status, caught.value.retry_after_s) == (503, 1.0)

    def test_no_node_has_the_app(self) -> None:
        with pytest.raises(ApiError, match="nope") as caught:
            Scheduler().post(app="nope", tasks=[{}])
        assert (caught.value.status, caught.value.field) == (400, "app")

    def test_an_app_that_does_not_start_is_no_fault_of_the_request(self) -> None:
        scheduler = Scheduler()
        withdrawn = m.NodeInfo(100, {}, {}, {"other": ""}, withdrawn={"app": "exited with code 1"})
        scheduler.core.receive_from_node("n", m.NodeChanged(withdrawn), scheduler.now_s)
        with pytest.raises(ApiError, match="do not start on n: exited with code 1") as caught:
            scheduler.post(app="app", tasks=[{}])
        assert (caught.value.status, caught.value.field, caught.value.retry_after_s) == (503, "", None)

    def test_what_the_core_does_not_take_cancels_the_job(self) -> None:
        scheduler = Scheduler()
        _, spec, messages = client_job(body(app="app", tasks=[{}, {}]), PAYLOAD_BYTES_MAX)
        job = scheduler.jobs.begin("u", spec, messages)
        with pytest.raises(ApiError, match="do not follow") as caught:
            scheduler.jobs.add(job, m.AddTasks(job.id, 1, [b""]))
        assert caught.value.status == 400
        assert [line["status"] for line in lines(job)] == ["cancelled", "cancelled"]
        assert not scheduler.core.jobs


class TestCancelling:
    def test_tells_of_all_tasks(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}, {}])
        assert scheduler.core.cancel_job(job.id, scheduler.now_s)
        assert [line["status"] for line in lines(job)] == ["cancelled"] * 2
        assert [line["result"] for line in lines(job)] == [None] * 2
        assert job.ended_at_s is not None

    def test_what_runs_too(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}])
        scheduler.launch()
        scheduler.core.cancel_job(job.id, scheduler.now_s, running=True)
        assert [message.running for message in scheduler.cancelled] == [True]
        scheduler.report(b"", TaskStatus.CANCELLED)
        assert [line["status"] for line in lines(job)] == ["cancelled"]


class TestRetention:
    def test_ended_jobs_go_after_a_time(self) -> None:
        scheduler = Scheduler(http_retention_s=10)
        ended, running = scheduler.post(app="app", tasks=[{}]), None
        scheduler.finish()
        end_s = scheduler.now_s
        running = scheduler.post(app="app", tasks=[{}])
        scheduler.at(end_s + 9.9)
        assert scheduler.jobs.get(ended.id) is ended
        scheduler.at(end_s + 10)
        assert scheduler.jobs.get(ended.id) is None
        assert (ended.lines, ended.gone) == ([], "http_retention_s = 10 s are over")
        assert scheduler.jobs.get(running.id) is running
        scheduler.finish()
        scheduler.at(scheduler.now_s + 10)
        assert scheduler.jobs.bytes.total == 0
        assert scheduler.jobs.next_deadline_s() is None

    def test_no_timer_without_jobs(self) -> None:
        assert Scheduler().jobs.next_deadline_s() is None

    def test_newer_results_drive_out_the_oldest_ended_jobs(self) -> None:
        scheduler = Scheduler(http_results_bytes_max=SHARE * (2 * JOB_BYTES + 5000))
        posted = []
        for _ in range(3):
            posted.append(scheduler.post(app="app", tasks=[{}]))
            scheduler.finish(b"x" * 1200)  # In base64 1600 bytes.
        told: list[str] = []
        for number, job in enumerate(posted):
            job.watchers.add(lambda number=number: told.append(number))  # type: ignore[misc]
        assert scheduler.jobs.get(posted[0].id) is None
        assert "http_results_bytes_max = " in posted[0].gone
        assert [scheduler.jobs.get(job.id) for job in posted[1:]] == posted[1:]
        assert scheduler.jobs.bytes.total == posted[1].bytes + posted[2].bytes <= 2 * JOB_BYTES + 5000
        scheduler.post(app="app", tasks=[{}])
        scheduler.finish(b"x" * 1200)
        assert told == [1]

    def test_a_job_that_is_too_large_alone_keeps_what_there_is_room_for(self) -> None:
        scheduler = Scheduler(http_results_bytes_max=SHARE * (JOB_BYTES + 5000))
        job = scheduler.post(app="app", tasks=[{}] * 4)
        scheduler.finish(b"x" * 1200)
        assert ["result_base64" in line for line in lines(job)] == [True, True, False, False]
        assert "http_results_bytes_max = " in lines(job)[2]["dropped"]
        assert {line["status"] for line in lines(job)} == {"finished"}

    def test_no_job_is_taken_while_running_ones_fill_the_room(self) -> None:
        scheduler = Scheduler(http_results_bytes_max=SHARE * (JOB_BYTES + 2000))
        job = scheduler.post(app="app", tasks=[{}] * 9)
        scheduler.launch()
        for _ in range(8):
            scheduler.report(b"x" * 900)
        assert scheduler.jobs.bytes.total > JOB_BYTES + 2000
        with pytest.raises(ApiError, match="http_results_bytes_max") as caught:
            scheduler.post(app="app", tasks=[{}])
        assert (caught.value.status, caught.value.retry_after_s) == (503, 1.0)
        scheduler.report()
        assert job.ended_at_s is not None
        scheduler.post(app="app", tasks=[{}])
        assert scheduler.jobs.get(job.id) is None

    def test_jobs_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_jobs, "JOBS_MAX", 2 * SHARE)
        scheduler = Scheduler()
        first = scheduler.post(app="app")
        scheduler.post(app="app", tasks=[{}])
        scheduler.post(app="app", tasks=[{}])
        assert scheduler.jobs.get(first.id) is None
        with pytest.raises(ApiError, match=r"at most 2 of JOBS_MAX = 8 .* here u") as caught:
            scheduler.post(app="app", tasks=[{}])
        assert caught.value.status == 503

    def test_one_users_jobs_push_only_its_own_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_jobs, "JOBS_MAX", 2 * SHARE)
        scheduler = Scheduler()
        adas = scheduler.post("ada", app="app")
        posted = [scheduler.post("mallory", app="app") for _ in range(10 * SHARE)]
        assert scheduler.jobs.get(adas.id) is adas
        assert [job for job in posted if scheduler.jobs.get(job.id)] == posted[-2:]

    def test_where_users_fill_the_whole_the_one_with_most_gives_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_jobs, "JOBS_MAX", 2 * SHARE)
        scheduler = Scheduler()
        adas = scheduler.post("ada", app="app")
        crowd = [scheduler.post(user, app="app") for user in ("b", "c", "d", "e") for _ in range(2)]
        bobs = scheduler.post("bob", app="app")
        assert scheduler.jobs.get(adas.id) is adas and scheduler.jobs.get(bobs.id) is bobs
        assert len([job for job in crowd if scheduler.jobs.get(job.id)]) == 2 * SHARE - 2

    def test_one_users_results_leave_room_for_anothers(self) -> None:
        scheduler = Scheduler(http_results_bytes_max=SHARE * (2 * JOB_BYTES + 5000))
        hog = scheduler.post("mallory", app="app", tasks=[{}] * 20)
        scheduler.launch()
        for _ in range(20):
            scheduler.report(b"x" * 1200)
        assert "dropped" in lines(hog)[-1]
        adas = scheduler.post("ada", app="app", tasks=[{}])
        scheduler.finish(b"x" * 1200)
        assert "result_base64" in lines(adas)[0]

    def test_what_a_job_says_counts_as_bytes(self) -> None:
        scheduler = Scheduler()
        plain = scheduler.post(app="app", tasks=[{}]).bytes
        assert scheduler.post(app="app", tasks=[{"id": "x" * 200}]).bytes > plain + 300
        assert (
            scheduler.post(app="app", tasks=[{}], where=["n in " + "x" * 1000], wait_for_nodes_s=9).bytes > plain + 1000
        )
        stages = [{"app": "app", "name": f"s{n}"} for n in range(100)]
        assert scheduler.post(app="", stages=stages).bytes > 100 * 2000

    def test_bytes_are_those_of_the_lines(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}] * 5)
        scheduler.finish(b"result")
        bytes_of_lines = sum(len(line) + LINE_OVERHEAD_BYTES for line in job.lines)
        assert scheduler.jobs.bytes.total == job.bytes == JOB_BYTES + 4 + bytes_of_lines

    def test_closing_tells_readers(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}])
        told: list[str] = []
        job.watchers.add(lambda: told.append(job.gone))
        scheduler.jobs.close()
        assert told == ["the scheduler is shutting down"]
        assert scheduler.jobs.next_deadline_s() is None
        scheduler.finish()
        assert job.lines == []


class TestWhatTheCoreDoesNotSay:
    def test_a_job_that_is_taken_over_ends(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(job_id="j", app="app", tasks=[{}, {}])
        scheduler.launch()
        scheduler.report(b"1")
        stage = m.Stage("app", 2, b"", "", 2.0, 0, None)
        again = m.SubmitJob("j", 1, "", [stage], 3, False, None, False)
        scheduler.core.receive_from_client("client", "u", again, scheduler.now_s)
        scheduler.at(scheduler.now_s + http_jobs.CHECK_S)
        assert [line["status"] for line in lines(job)] == ["finished", "lost"]
        assert "taken over" in lines(job)[1]["error"]
        assert [line["attempts"] for line in lines(job)] == [1, 1]
        assert job.ended_at_s is not None

    def test_an_input_that_nobody_can_upload_again(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}])
        asked: list[Any] = []
        scheduler.core._from_client[m.BlobAt] = lambda job, message, now_s: asked.append(message)
        scheduler.jobs.told(job.client, m.BlobLost(job.id, "ab" * 32))
        assert asked == []  # The core is in the middle of an event.
        scheduler.at(scheduler.now_s)
        assert asked == [m.BlobAt(job.id, BlobRef("ab" * 32, 0, ()))]

    def test_outcomes_that_come_twice(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(app="app", tasks=[{}, {}])
        outcome = m.Outcome(job.id, 0, TaskStatus.FINISHED, b"", "", 1, "n", None, None, None)
        scheduler.jobs.told(job.client, outcome)
        scheduler.jobs.told(job.client, outcome)
        scheduler.jobs.told("nobody", outcome)
        assert len(job.lines) == 1


def test_an_outcome_encodes_whatever_it_has() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", name="the job's", tasks=[{}])
    outcome = m.Outcome(job.id, 0, TaskStatus.LOST, b"", 'a "reason"\n', 0, "", None, None, None, "\0", "\u2028")
    line = json.loads(encode_line(job, outcome))
    assert (line["error"], line["stdout"], line["stderr"], line["stage"]) == ('a "reason"\n', "\0", "\u2028", "")
    assert (line["started_at_s"], line["service_s"], line["result"]) == (None, None, None)
    assert "id" not in line
