"""Jobs that came over HTTP: how they are submitted, what they are refused for, and what is told of them."""

from typing import Any

import pytest

from scheduler.http import jobs, views
from scheduler.http.submissions import read_submission
from sparrow_py.http.http_api import ApiError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.http_jobs import PAYLOAD_BYTES_MAX, Scheduler, body, lines


def test_a_job() -> None:
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
    assert views.detail(job, "sparrow").finished == views.detail(job, "sparrow").failed == 1
    assert views.summary(job, "sparrow").state == "ended"


@pytest.mark.parametrize(("stated", "priority"), [({}, 5), ({"priority": -3}, -3)])
def test_the_priority_is_shown_before_the_end_and_after(stated: dict[str, int], priority: int) -> None:
    scheduler = Scheduler(user_priority=("u=5",))
    job = scheduler.post(app="app", tasks=[{}], **stated)
    assert views.summary(scheduler.core.jobs[job.id], "sparrow").priority == priority
    scheduler.finish()
    assert job.ended_at_s is not None and views.summary(job, "sparrow").priority == priority


def test_no_tasks() -> None:
    job = Scheduler().post(app="app")
    assert job.ended_at_s is not None
    assert lines(job) == []


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
        assert scheduler.jobs.kept.get("j") is None

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

    def test_a_priority_above_the_users_own(self) -> None:
        scheduler = Scheduler(user_priority=("u=2",))
        with pytest.raises(ApiError, match=r"priority: 3 .* to 2, the user's own") as caught:
            scheduler.post("u", app="app", tasks=[{}], priority=3)
        assert (caught.value.status, caught.value.field) == (400, "priority")
        scheduler.post("u", job_id="j", app="app", tasks=[{}], priority=1)
        assert scheduler.core.jobs["j"].priority == 1

    def test_an_app_that_does_not_start_is_no_fault_of_the_request(self) -> None:
        scheduler = Scheduler()
        withdrawn = m.NodeInfo(100, {}, {}, {"other": ""}, withdrawn={"app": "exited with code 1"})
        scheduler.core.receive_from_node("n", m.NodeChanged(withdrawn), scheduler.now_s)
        with pytest.raises(ApiError, match="do not start on n: exited with code 1") as caught:
            scheduler.post(app="app", tasks=[{}])
        assert (caught.value.status, caught.value.field, caught.value.retry_after_s) == (503, "", None)

    def test_what_the_core_does_not_take_cancels_the_job(self) -> None:
        scheduler = Scheduler()
        submission = read_submission(body(app="app", tasks=[{}, {}]), PAYLOAD_BYTES_MAX)
        job = scheduler.jobs.begin("u", submission)
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


class TestWhatTheCoreDoesNotSay:
    def test_a_job_that_is_taken_over_ends(self) -> None:
        scheduler = Scheduler()
        job = scheduler.post(job_id="j", app="app", tasks=[{}, {}])
        scheduler.launch()
        scheduler.report(b"1")
        stage = m.Stage("app", 2, b"", "", 2.0, 0, None)
        again = m.SubmitJob("j", 1, "", [stage], 3, False, None, False)
        scheduler.core.receive_from_client("client", "u", again, scheduler.now_s)
        scheduler.at(scheduler.now_s + jobs.CHECK_S)
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
