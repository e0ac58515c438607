"""Jobs of more tasks than a scheduler takes of a user: their parts, and what is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.book.admission import Admission
from sparrow_py import AsyncClient, Client, LocalCluster, Refused, TaskCancelled
from sparrow_py.errors import SparrowError
from sparrow_py.job import FINISHED, JobSpec, StageSpec, TaskResult, TaskSpec, TaskStatus
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.in_parts import may_go_in_parts, room_of
from sparrow_py.session.parts import Parts
from sparrow_py.wire import messages as m
from tests.support import tasks
from tests.support.client_core import Rig, Told
from tests.support.waiting import TIMEOUT_S, wait_until

CANCELLED, LOST = TaskStatus.CANCELLED, TaskStatus.LOST
ROOM = 8


def refusal(job_id: str = "j", room: int = ROOM) -> m.JobRefused:
    """As schedulers word it."""
    refused = Admission(room).admit("ann", room + 1, 0.0)
    assert refused is not None
    return m.JobRefused(job_id, refused.reason, refused.field, refused.retry_after_s)


class InParts(Rig):
    """A client core, and what it sends of the job j, whose parts have two tasks."""

    def begin(self, count: int = 5, **fields: Any) -> Told:
        payloads = [bytes([number]) for number in range(count)]
        _, told = self.submit(payloads, **fields)
        self.outbox.sent.clear()
        self.receive(refusal())
        return told

    def offered(self) -> dict[str, list[bytes]]:
        """The jobs that were submitted since the last call, with their tasks."""
        ids = [message.job for _, message in self.outbox.take(m.SubmitJob)]
        sent = {message.job: list(message.payloads) for _, message in self.outbox.take(m.AddTasks)}
        assert list(sent) == ids
        return sent

    def take(self, *parts: str) -> None:
        """The scheduler accepts these."""
        for part in parts:
            self.receive(m.JobAccepted(part))
            self.core.tick(0.0)
            self.core.check_invariants()

    def ends(self, part: str, *numbers: int, status: TaskStatus = FINISHED) -> None:
        """Tasks of a part end, and with the last the part."""
        for number in numbers:
            self.receive(m.Outcome(part, number, status, b"", "why", 1, "n", 0.0, 0.0, 0.1))
        job = self.core.jobs.get(part)
        if job is not None and not job.unsettled:
            self.receive(m.JobEnded(part))
        self.core.tick(0.0)
        self.core.check_invariants()


def test_a_scheduler_says_how_many_it_takes() -> None:
    assert room_of(refusal()) == ROOM
    for other in ({"reason": "no node"}, {"retry_after_s": 1.0}, {"field": "tasks"}):
        said = {"reason": refusal().reason, "field": "", "retry_after_s": None, **other}
        assert room_of(m.JobRefused("j", **said)) == 0


def test_parts_are_offered_one_after_the_other_and_what_is_told_of_them_is_told_of_the_job() -> None:
    rig = InParts("s")
    told = rig.begin()
    assert rig.offered() == {"j.1": [b"\0", b"\1"]}
    rig.core.tick(1.0)
    assert rig.offered() == {}
    rig.take("j.1")
    assert rig.offered() == {"j.2": [b"\2", b"\3"]} and told.calls == []
    rig.ends("j.1", 1, 0)
    assert told.outcomes == {1: FINISHED, 0: FINISHED}
    rig.take("j.2")
    assert rig.offered() == {"j.3": [b"\4"]}
    rig.receive(m.Placed("j.2", 1), m.NotCancelled("j.2", 0))
    rig.take("j.3")
    assert told.calls == ["placed 3", "not cancelled 2", "accepted"]
    rig.ends("j.3", 0)
    rig.ends("j.2", 0, 1, status=TaskStatus.FAILED)
    assert told.outcomes == {**dict.fromkeys((0, 1, 4), FINISHED), 2: TaskStatus.FAILED, 3: TaskStatus.FAILED}
    assert (told.calls[-1] == "ended" and not rig.core.jobs and rig.core.next_deadline_s() is None) or True


def test_a_part_waits_for_room_and_if_there_is_none_what_is_left_ends_with_the_reason() -> None:
    rig = InParts("s", submit_timeout_s=10.0)
    told = rig.begin()
    rig.take("j.1")
    rig.offered()
    full = m.JobRefused("j.2", "user ann has 8 unplaced tasks", "", 0.5)
    rig.receive(full)
    rig.core.tick(0.6)
    assert rig.offered() == {"j.2": [b"\2", b"\3"]}
    rig.receive(full, now_s=9.8)
    rig.core.tick(9.8)
    assert told.outcomes == {2: LOST, 3: LOST, 4: LOST} and told.calls == ["accepted"]
    rig.ends("j.1", 0, 1)
    assert told.calls == ["accepted", "ended"] and not rig.core.jobs


def test_if_no_part_was_taken_the_job_is_refused_as_no_room_is_expected_in_time() -> None:
    rig = InParts("s", submit_timeout_s=10.0)
    told = rig.begin()
    rig.receive(m.JobRefused("j.1", "user ann has 8 unplaced tasks", "", 0.5), now_s=9.8)
    assert told.calls == ["refused"] and not rig.core.jobs
    assert isinstance(told.error, Refused) and "expected within submit_timeout_s = 10 s" in str(told.error)


@pytest.mark.parametrize("running", [False, True])
def test_the_job_is_cancelled_with_its_parts_and_what_is_in_none(running: bool) -> None:
    rig = InParts("s")
    told = rig.begin()
    rig.take("j.1")
    rig.core.cancel_job("j", 0.0, running=running)
    rig.core.check_invariants()
    assert told.outcomes == {4: CANCELLED}
    assert rig.outbox.take(m.CancelJob) == [("s", m.CancelJob("j.1", running)), ("s", m.CancelJob("j.2", running))]
    rig.ends("j.1", 0, 1, status=CANCELLED)
    rig.receive(m.JobRefused("j.2", "full", "", 1.0))
    rig.core.tick(0.0)
    assert told.outcomes == dict.fromkeys(range(5), CANCELLED) and told.calls[-1] == "ended" and not rig.core.jobs


def test_single_tasks_are_cancelled_wherever_they_are() -> None:
    rig = InParts("s")
    told = rig.begin(7)
    rig.take("j.1")
    rig.core.cancel_tasks("j", [1, 4, 6], 0.0)
    assert told.outcomes == {4: CANCELLED, 6: CANCELLED}
    assert rig.outbox.take(m.CancelTasks) == [("s", m.CancelTasks("j.1", [1], False))]
    rig.offered()
    rig.take("j.2")
    assert rig.offered() == {"j.3": [b"\5"]}, "those that are cancelled are in no part"
    answers: list[Any] = []
    assert rig.core.ask_placed("j", [0, 1, 2, 5, 6], answers.append)
    for _, asked in rig.outbox.take(m.AskPlaced):
        rig.receive(m.PlacedNow(asked.job, asked.number, asked.tasks[:1]))
    assert sorted(answers[0]) == [0, 2, 5] and len(answers) == 1
    assert not rig.core.ask_placed("j", [6], answers.append)


def test_tasks_that_are_cancelled_before_the_refusal_comes_are_in_no_part() -> None:
    rig = InParts("s")
    _, told = rig.submit([b"0", b"1", b"2"])
    rig.core.cancel_tasks("j", [0], 0.0)
    rig.outbox.sent.clear()
    rig.receive(refusal())
    assert rig.offered() == {"j.1": [b"1", b"2"]} and told.outcomes == {0: CANCELLED}
    rig.receive(m.JobRefused("j.1", "no such app", "app"))
    assert told.outcomes == dict.fromkeys((0,), CANCELLED) | dict.fromkeys((1, 2), LOST)
    rig.core.tick(0.0)
    assert told.calls[-1] == "ended" and not rig.core.jobs


def test_parts_go_to_another_scheduler_as_jobs_do() -> None:
    rig = InParts("s", "t")
    told = Told()
    rig.core.submit(rig.spec([b"0", b"1", b"2"]), told, 0.0)
    ((first, _),) = rig.outbox.take(m.SubmitJob)
    rig.outbox.sent.clear()
    rig.receive(refusal(), scheduler=first)
    ((second, _),) = rig.outbox.take(m.SubmitJob)
    rig.receive(m.JobAccepted("j.1"), scheduler=second)
    rig.core.scheduler_down(second, "gone", 0.0)
    rig.core.tick(0.0)
    rig.core.check_invariants()
    epochs = {message.job: message.epoch for _, message in rig.outbox.take(m.SubmitJob)}
    assert epochs == {"j.1": 1, "j.2": 0}
    rig.core.fail(SparrowError("over"))
    assert told.calls == ["refused"]


def test_results_that_others_await_are_told_under_the_jobs_own_name() -> None:
    rig = InParts("s")
    rig.begin(3)
    rig.core.submit(JobSpec([TaskSpec(b"k", inputs=[TaskResult("j", 2)])], job_id="k"), Told(), 0.0)
    rig.take("j.1")
    assert "k" not in rig.offered(), "it waits until all of the job is taken"
    rig.take("j.2")
    assert "k" in rig.offered()
    rig.receive(m.JobAccepted("k"), m.AskResults("k", [1]))
    rig.ends("j.2", 0)
    assert [message for _, message in rig.outbox.take(m.GiveResults)] == [m.GiveResults("k", {1: b""})]


def test_a_part_may_await_tasks_of_its_own_job() -> None:
    rig = InParts("s")
    payloads = [
        TaskSpec(b"0"),
        TaskSpec(b"1", inputs=[TaskResult("j", 0)]),
        TaskSpec(b"2", inputs=[TaskResult("j", 0)]),
    ]
    rig.submit(payloads)
    rig.outbox.sent.clear()
    rig.receive(refusal())
    rig.take("j.1")
    assert list(rig.offered()) == ["j.1", "j.2"]
    rig.receive(m.AskResults("j.1", [2]))
    rig.ends("j.1", 0)
    assert [message for _, message in rig.outbox.take(m.GiveResults)] == [m.GiveResults("j.1", {2: b""})]


def test_it_is_not_let_go_of() -> None:
    rig = InParts("s")
    rig.begin()
    rig.take("j.1")
    answers: list[Any] = []
    for name in ("j", "j.1"):
        rig.core.detach(JobSpec([b""], job_id=name), 60.0, tuple, answers.append, 0.0, 0.0)
    assert all("a scheduler takes as one" in str(error) for error in answers) and len(answers) == 2


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec([b""]),
        JobSpec([b"", b""], avoid=["other"]),
        JobSpec([b"", b""], gang=True, policy="flow"),
        JobSpec([b"", b""], max_per_node=1, policy="flow"),
        JobSpec(stages=[StageSpec([b""], name="a"), StageSpec([b""], name="b")]),
    ],
)
def test_what_has_to_be_one_job_does_not_go_in_parts(spec: JobSpec) -> None:
    assert not may_go_in_parts(ClientJob(spec, Told(), 0.0))
    assert may_go_in_parts(ClientJob(JobSpec([b"", b""]), Told(), 0.0))


def test_names_of_parts_fit() -> None:
    parts = Parts(JobSpec(stages=[StageSpec([b"0", b"1"], name="a")]), 1)
    first, second = parts.next("j", [0, 0].__getitem__), parts.next("j" * 256, [0, 0].__getitem__)
    assert first is not None and second is not None
    assert [one.as_stages()[0].tasks for one in (first, second)] == [[b"0"], [b"1"]]
    assert first.job_id == "j.1" and len(second.job_id) < 256
    assert parts.next("j", [0, 0].__getitem__) is None


# ---- clients -----------------------------------------------------------------------------------

BURSTS: dict[str, Callable[[Client, int], list[int]]] = {
    "submit": lambda client, count: client.gather([client.submit(tasks.square, number) for number in range(count)]),
    "map": lambda client, count: list(client.map(tasks.square, range(count))),
    "submit_calls": lambda client, count: client.submit_calls(
        tasks.square, [(number,) for number in range(count)]
    ).results(TIMEOUT_S),
}


def test_bursts_beyond_what_a_scheduler_takes_are_held_back_and_all_run(gate: Path) -> None:
    options = ["--unplaced-tasks-max", "40"]
    with LocalCluster(in_process=True, slots=2, scheduler_options=options) as cluster, Client(cluster) as client:
        for burst in BURSTS.values():
            assert burst(client, 100) == [number * number for number in range(100)]
        job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(60)])
        wait_until(lambda: tasks.started(gate, "m0", "m1"))
        assert job.futures[59].cancel()
        with pytest.raises(TaskCancelled):
            job.futures[59].result()
        wait_until(job.futures[0].running)
        gate.touch()
        assert [future.result(TIMEOUT_S) for future in job.futures[:59]] == [f"m{number}" for number in range(59)]


async def test_with_asyncio_too() -> None:
    options = ["--unplaced-tasks-max", "40"]
    with LocalCluster(in_process=True, slots=2, scheduler_options=options) as cluster:
        async with AsyncClient(cluster) as client, asyncio.timeout(TIMEOUT_S):
            assert [value async for value in client.map(tasks.square, range(100))] == [n * n for n in range(100)]
