"""Clients let go of jobs and attach to them: what the core of a client sends, waits for and tells, and that it works
between processes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from sparrow_py import AsyncClient, AsyncJob, CallStage, Client, InvalidRequest, JobDetached, LocalCluster, Refused
from sparrow_py.access.credentials import Access
from sparrow_py.connection import Connection
from sparrow_py.errors import NoScheduler, SparrowError
from sparrow_py.job import FINISHED, JobSpec, TaskResult, TaskSpec, TaskStatus
from sparrow_py.session.attaching import LOST, TOLD_ANOTHER
from sparrow_py.session.core import DECIDE_TIMEOUT_S
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.session import Session
from sparrow_py.wire import messages as m
from tests.support import tasks
from tests.support.client_core import Rig, Told, outcome
from tests.support.recorder import submission
from tests.support.waiting import TIMEOUT_S, wait_until


class LettingGo(Rig):
    """A client core that lets go of the job j, and what it says of that."""

    def __init__(self, *schedulers: str, **options: Any) -> None:
        super().__init__(*schedulers, **options)
        self.answers: list[Any] = []

    def let_go(self, tasks: int = 2, *given_back: m.Outcome) -> None:
        self.core.detach(self.spec(tasks), 60.0, lambda: given_back, self.answers.append, 5.0, 2.0)
        self.core.check_invariants()

    def attach(self, told: Told | None = None, *, now_s: float = 0.0) -> Told:
        sink = told or Told()
        self.core.attach("j", lambda *_: sink, self.answers.append, now_s)
        return sink

    def sent(self, kind: type[Any]) -> list[Any]:
        return [message for _, message in self.outbox.take(kind)]


def attached(tasks: int = 2, **fields: Any) -> m.Attached:
    return m.Attached(submission("j", tasks, app="python", **fields))


# ---- letting go ------------------------------------------------------------------------------


def test_a_job_is_let_go_of_once_its_scheduler_has_it_with_all_that_is_known() -> None:
    rig = LettingGo("s")
    _, told = rig.submit(2)
    rig.let_go(2, outcome(0))
    assert not rig.sent(m.Detach)
    rig.receive(m.JobAccepted("j"))
    assert rig.sent(m.GiveBack) == [m.GiveBack("j", [outcome(0)])]
    (detach,) = rig.sent(m.Detach)
    assert detach.submission.job == "j" and detach.retention_s == 60.0
    rig.receive(outcome(1), m.JobEnded("j"), m.Detached("j"))
    assert rig.answers == [None] and not rig.core.jobs
    assert told.calls == ["accepted"] and not told.outcomes


def test_what_comes_meanwhile_is_heard_if_the_job_is_not_let_go_of() -> None:
    rig = LettingGo("s")
    _, told = rig.submit(2)
    rig.receive(m.JobAccepted("j"))
    rig.let_go()
    rig.receive(outcome(1), m.NotDetached("j", "full"))
    assert isinstance(rig.answers[0], Refused) and told.outcomes == {1: FINISHED}
    rig.let_go()
    rig.receive(outcome(0), m.JobEnded("j"), m.NotDetached("j", "retention_s is too much", "retention_s"))
    assert isinstance(rig.answers[1], InvalidRequest) and rig.answers[1].field == "retention_s"
    assert told.outcomes == {0: FINISHED, 1: FINISHED} and told.calls == ["accepted", "ended"]


def test_a_scheduler_that_is_lost_meanwhile_is_no_answer_and_the_next_one_is_told() -> None:
    rig = LettingGo("s")
    job, told = rig.submit(2, max_attempts=1)
    rig.receive(m.JobAccepted("j"))
    rig.let_go(2)
    rig.receive(outcome(1), m.AskResults("j", [7]))
    rig.core.scheduler_down("s", "gone", 1.0)
    assert told.outcomes == {1: FINISHED} and rig.answers == []
    assert job.used is None, "the job may have been started where this client was not told"
    rig.core.scheduler_up("t", m.FRAME_BYTES_MAX, 1.0)
    rig.sent(m.Detach)
    rig.receive(m.JobAccepted("j"), scheduler="t")
    assert not rig.sent(m.Detach)
    rig.core.streamed(job)
    assert len(rig.sent(m.Detach)) == 1
    rig.receive(m.Detached("j"), scheduler="t")
    assert rig.answers == [None] and not rig.core.jobs


def test_a_job_that_is_handed_over_meanwhile_is_let_go_of_at_the_next_scheduler() -> None:
    rig = LettingGo("s", "t")
    job, _ = rig.submit(1)
    (first,) = {to for to, _ in rig.outbox.take(m.SubmitJob)}
    rig.receive(m.JobAccepted("j"), scheduler=first)
    rig.let_go(1)
    rig.core.receive(first, m.Draining(), 0.0)
    rig.receive(m.HandedOver("j", ((0, 1),)), scheduler=first)
    ((second, _),) = rig.outbox.take(m.SubmitJob)
    rig.receive(m.JobAccepted("j"), scheduler=second)
    rig.core.streamed(job)
    rig.receive(m.Detached("j"), scheduler=second)
    assert second != first and rig.answers == [None]


def test_a_job_that_has_ended_is_kept_by_any_scheduler() -> None:
    rig = LettingGo("s")
    rig.let_go(2, outcome(0), outcome(1))
    assert rig.sent(m.GiveBack) == [m.GiveBack("j", [outcome(0), outcome(1)])]
    assert [detach.submission.age_s for detach in rig.sent(m.Detach)] == [3.0]
    rig.receive(m.Detached("j"))
    assert rig.answers == [None] and not rig.core.jobs
    rig.let_go(2, outcome(0), outcome(1))
    rig.core.scheduler_down("s", "gone", 1.0, redialled=True)
    assert isinstance(rig.answers[1], NoScheduler) and not rig.core.jobs
    rig.let_go(2, outcome(0), outcome(1))
    assert isinstance(rig.answers[2], NoScheduler)


def test_jobs_that_need_their_client_are_named() -> None:
    rig = LettingGo("s")
    rig.submit(1)
    awaits = JobSpec([TaskSpec(b"x", inputs=[TaskResult("j", 0)])], job_id="k")
    rig.core.submit(awaits, Told(), 0.0)
    rig.receive(m.JobAccepted("j"))
    rig.let_go(1)
    rig.core.detach(awaits, 60.0, tuple, rig.answers.append, 0.0, 0.0)
    assert "a job whose results no other job of this client waits for" in str(rig.answers[0])
    assert "whose tasks wait for no results of other jobs" in str(rig.answers[1])
    rig.receive(outcome(0), m.JobEnded("j"))
    rig.core.abandon()


def test_whoever_waits_hears_of_it_when_the_client_is_closed_or_the_job_ends() -> None:
    rig = LettingGo("s")
    rig.submit(1)
    rig.let_go(1)
    rig.let_go(1)
    assert "not being detached already" in str(rig.answers[0])
    rig.core.cancel_job("j", 0.0)
    rig.receive(outcome(0, TaskStatus.CANCELLED), m.JobEnded("j"))
    assert "has ended meanwhile" in str(rig.answers[1])
    rig.submit(1)
    rig.let_go(1)
    rig.core.attach("other", lambda *_: Told(), rig.answers.append, 0.0)
    rig.core.abandon()
    assert [str(one) for one in rig.answers[2:]] == ["the client was closed meanwhile"] * 2


def test_an_older_scheduler_keeps_nothing() -> None:
    rig = LettingGo()
    rig.core.scheduler_up("s", m.FRAME_BYTES_MAX, 0.0, version=m.SINCE[m.Detach] - 1)
    rig.submit(1)
    rig.receive(m.JobAccepted("j"))
    rig.let_go(1)
    assert "of a version that keeps no jobs" in str(rig.answers[0])
    rig.core.jobs.clear()
    rig.attach()
    assert "asked none" in str(rig.answers[1])


# ---- attaching -------------------------------------------------------------------------------


def test_schedulers_are_asked_one_after_the_other_until_one_has_the_job() -> None:
    rig = LettingGo("s", "t", "u")
    told = rig.attach()
    assert [to for to, _ in rig.outbox.take(m.Attach)] == ["s"]
    rig.receive(m.NotAttached("j"))
    rig.core.scheduler_down("t", "gone", 0.0)
    assert [to for to, _ in rig.outbox.take(m.Attach)] == ["t", "u"]
    rig.receive(attached(2), outcome(1), scheduler="u")
    assert rig.answers == [None] and told.outcomes == {1: FINISHED}
    rig.receive(outcome(0), m.JobEnded("j"), scheduler="u")
    assert told.calls == ["ended"] and not rig.core.jobs


def test_a_job_that_no_scheduler_keeps_is_an_error_once_all_have_been_asked() -> None:
    rig = LettingGo("s")
    rig.core.dialling()
    rig.attach()
    rig.receive(m.NotAttached("j"))
    assert rig.answers == []  # Others may be connected soon.
    rig.core.tick(DECIDE_TIMEOUT_S)
    assert isinstance(rig.answers[0], InvalidRequest) and "asked 1: s" in str(rig.answers[0])
    rig.core.all_dialled(3.0)
    rig.attach(now_s=3.0)
    rig.receive(m.NotAttached("j", is_kept=True))
    assert isinstance(rig.answers[1], Refused) and "a client is attached to job j" in str(rig.answers[1])


def test_the_link_of_an_attached_job_may_break_and_come_back() -> None:
    rig = LettingGo("s")
    told = rig.attach()
    rig.receive(attached(3), outcome(0))
    (first,) = rig.sent(m.Attach)
    rig.core.scheduler_down("s", "gone", 1.0, redialled=True)
    rig.core.check_invariants()
    rig.core.cancel_job("j", 1.0)
    rig.core.scheduler_up("s", m.FRAME_BYTES_MAX, 1.1)
    assert rig.sent(m.Attach) == [first] and not rig.sent(m.SubmitJob)
    rig.receive(attached(3), outcome(0), outcome(1))
    assert rig.sent(m.CancelJob) == [m.CancelJob("j")]
    rig.receive(m.JobEnded("j"))
    assert told.outcomes == {0: FINISHED, 1: FINISHED, 2: TaskStatus.LOST} and told.calls == ["ended"]


@pytest.mark.parametrize("how", ["unreachable", "not redialled", "not kept", "handed over"])
def test_an_attached_job_is_lost_with_its_scheduler(how: str) -> None:
    rig = LettingGo("s", "t")
    told = ToldWhy()
    rig.attach(told)
    rig.receive(attached(2), outcome(0))
    if how == "handed over":
        rig.receive(m.HandedOver("j", ()))
    else:
        rig.core.scheduler_down("s", "gone", 1.0, redialled=how != "not redialled")
    if how == "unreachable":
        rig.core.scheduler_unreachable("s", 2.0)
    elif how == "not kept":
        rig.core.scheduler_up("s", m.FRAME_BYTES_MAX, 1.1)
        rig.receive(m.NotAttached("j"))
    assert told.outcomes == {0: "", 1: LOST} and told.calls == ["ended"] and not rig.core.jobs
    assert not rig.sent(m.SubmitJob)


class ToldWhy(Told):
    attempts = 0

    def kept(self, outcome: m.Outcome) -> Any:
        self.attempts = outcome.attempts
        return outcome.error


def test_what_another_client_was_told_is_said_so() -> None:
    rig = LettingGo("s")
    told = ToldWhy()
    rig.attach(told)
    rig.receive(attached(1, max_attempts=3, retry=m.Retry(5, 0.0, 1.0, 0.0, 0.0)), m.JobEnded("j"))
    assert told.outcomes == {0: TOLD_ANOTHER}
    assert told.attempts == 7, "as many as nobody can rule out"


def test_an_attached_job_may_be_let_go_of_again() -> None:
    rig = LettingGo("s")
    rig.attach()
    rig.receive(attached(2, instance=7), outcome(0))
    rig.let_go(2, outcome(0))
    (detach,) = rig.sent(m.Detach)
    assert detach.submission.instance == 7
    rig.receive(m.Detached("j"))
    assert rig.answers == [None, None] and not rig.core.jobs


class Kept(JobSink):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.tasks: list[int] = []

    def settle(self, outcome: m.Outcome, lost: SparrowError | None = None) -> None:
        self.tasks.append(outcome.task)

    def finish(self) -> None: ...


class SilentLink:
    """Remembers what is sent."""

    peer = "s:1"

    def __init__(self) -> None:
        self.sent: list[m.Message] = []

    def send(self, message: m.Message) -> None:
        self.sent.append(message)

    async def drained(self) -> None: ...

    def receipts(self) -> list[int]:
        return [message.count for message in self.sent if isinstance(message, m.Received)]


async def test_a_scheduler_hears_at_once_what_an_attached_client_has() -> None:
    """Who attaches next is told again what there is no receipt of; of jobs of its own a client takes its time."""
    session, link, kept = Session("s:1"), SilentLink(), Kept()
    session._links, session._connected = {"s": link}, asyncio.Event()
    session.scheduler_up("s", m.Welcome(m.PROTOCOL_VERSION, "s", m.FRAME_BYTES_MAX))
    session.attach("j", lambda *_: kept, lambda _: None)
    session.scheduler_said("s", [attached(3), outcome(0)])
    assert link.receipts() == [2] and kept.tasks == [0], "in the frame that brings the job"
    session.scheduler_said("s", [outcome(1)])
    assert link.receipts() == [2, 3]
    own = JobSpec([b"x"], job_id="own")
    session.submit(own, Kept())
    session.scheduler_said("s", [m.JobAccepted("own"), msgspec.structs.replace(outcome(0), job="own")])
    assert link.receipts() == [2, 3]
    session.scheduler_said("s", [outcome(2), m.JobEnded("j")])
    assert link.receipts() == [2, 3, 7]
    session.scheduler_said("s", [m.JobEnded("own")])
    assert link.receipts() == [2, 3, 7]
    await session.stop()


def test_who_awaits_results_of_a_job_that_is_let_go_of_hears_so() -> None:
    """The job was being let go of when the other was submitted."""
    rig = LettingGo("s")
    rig.submit(1)
    rig.receive(m.JobAccepted("j"))
    rig.let_go(1)
    rig.core.submit(JobSpec([TaskSpec(b"x", inputs=[TaskResult("j", 0)])], job_id="k"), Told(), 0.0)
    rig.receive(m.JobAccepted("k"), m.AskResults("k", [1]))
    assert not rig.sent(m.GiveResults)
    rig.receive(m.Detached("j"))
    (given,) = rig.sent(m.GiveResults)
    status, result, error = given.failures[1]
    exception, _ = pickle.loads(result)
    assert (status, type(exception)) == (TaskStatus.FAILED, JobDetached) and "was detached" in error


def test_a_job_that_is_here_is_not_attached_to() -> None:
    rig = LettingGo("s")
    rig.submit(1)
    rig.attach()
    assert "a job that this client does not have" in str(rig.answers[0])


# ---- clients ---------------------------------------------------------------------------------


def squared(number: int, pause_s: float = 0.0) -> int:
    time.sleep(pause_s)
    return number * number


def fails() -> None:
    raise LookupError("no such thing")


def test_a_client_lets_go_of_a_job_and_another_has_all_of_it(cluster: LocalCluster) -> None:
    with Client(cluster) as client, Client(cluster) as another:
        job = client.submit_calls(squared, [(number, 0.02 * (number > 1)) for number in range(6)], name="squares")
        assert job.futures[0].result(30) == 0
        job_id = client.detach(job)
        assert job.detached and job.futures[0].result() == 0
        with pytest.raises(JobDetached, match=f"job {job_id} was detached"):
            job.accepted()
        with pytest.raises(InvalidRequest, match="has not been detached before"):
            client.detach(job)
        attached_to = another.attach(job_id)
        assert attached_to.results(30) == [0, 1, 4, 9, 16, 25]
        assert attached_to.spec.name == "squares" and attached_to.report().response_s > 0


def test_a_future_of_a_detached_job_is_no_argument_and_the_call_says_why(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster) as client:
        job = client.submit_calls(tasks.hold, [(gate, "one")])
        job_id = client.detach(job)
        for _ in range(2):  # Of what hangs on such a call, too.
            error = client.submit(abs, job.futures[0]).exception(TIMEOUT_S)
            assert type(error) is JobDetached and f"job {job_id} was detached" in str(error)
        gate.touch()
        assert client.attach(job_id).results(TIMEOUT_S) == ["one"]
        wait_until(lambda: not client._jobs)
        with pytest.raises(InvalidRequest, match="has been told everything"):
            attach_until_forgotten(client, job_id)


def attach_until_forgotten(client: Client, job_id: str) -> None:
    """The receipt of the last outcome may be on its way: until it is there the job is kept."""
    while True:
        with contextlib.suppress(Refused):
            client.attach(job_id).wait(TIMEOUT_S)


def test_exceptions_and_stages_are_told_as_of_any_job(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        stages = [CallStage("first", squared, [(3,)]), CallStage("second", fails, after=["first"])]
        job = client.submit_stages(stages)
        assert job.wait(30)
        again = client.attach(client.detach(job))
        assert again.wait(30) and again.stage("first")[0].result() == 9
        with pytest.raises(LookupError, match="no such thing"):
            again.stage("second")[0].result()


def test_what_cannot_be_attached_to_or_let_go_of_is_named(cluster: LocalCluster) -> None:
    with Client(cluster) as client, Client(cluster) as another:
        with pytest.raises(
            InvalidRequest, match="job_id: 'unknown' is not valid; allowed: a detached job of this user"
        ):
            client.attach("unknown")
        with pytest.raises(InvalidRequest, match="job_id"):
            client.attach("")
        job = client.submit_calls(squared, [(1,)])
        with pytest.raises(InvalidRequest, match="a job of this client"):
            another.detach(job)
        for bad in (-1.0, math.nan, "1"):
            with pytest.raises(InvalidRequest, match=r"retention_s: .* detached_retention_s_max, which is a day"):
                client.detach(job, retention_s=bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="detached_retention_s_max"):
            client.detach(job, retention_s=1e8)
        assert job.results(30) == [1]


def test_a_job_does_not_outlive_a_cluster_that_ends_with_its_client() -> None:
    for connection in (
        Connection((), Access.of_client(), own=True),
        Connection((), Access.of_client(), here=cast(Any, 1)),
    ):
        with pytest.raises(InvalidRequest, match="does not end with this client"):
            connection.check_outlives("j")
    Connection("a:1", Access.of_client()).check_outlives("j")


async def test_the_same_with_asyncio(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as client, AsyncClient(cluster) as another:
        job = client.submit_calls(squared, [(number, 0.02) for number in range(4)])
        job_id = await client.detach(job)
        assert job.detached
        for future in job.futures:  # Some may have ended before.
            assert isinstance(future.exception(), JobDetached | None)
        with pytest.raises(InvalidRequest, match="has not been detached before"):
            await client.detach(job)
        async with asyncio.timeout(30):
            attached_to = await another.attach(job_id)
            assert await attached_to.results() == [0, 1, 4, 9]
        with pytest.raises(SparrowError):
            await another.attach("unknown")


Detaching = Callable[[JobSpec, float, float, Callable[[], Iterable[m.Outcome]], Callable[[Any], None]], None]


def saying(detach: Detaching, said: Callable[[], None]) -> Detaching:
    """A session's `detach` that also says that it has been answered."""

    def detach_and_say(spec: JobSpec, begun_s: float, retention_s: float, given_back: Any, told: Any) -> None:
        def told_and_said(error: SparrowError | None) -> None:
            told(error)
            said()

        detach(spec, begun_s, retention_s, given_back, told_and_said)

    return detach_and_say


def and_then(
    told: Callable[[SparrowError | None], None], act: Callable[[], object]
) -> Callable[[SparrowError | None], None]:
    """Tells, and acts in the same turn of the loop."""

    def told_and_acted(error: SparrowError | None) -> None:
        told(error)
        act()

    return told_and_acted


@pytest.mark.parametrize("when", ["before the answer", "in its turn of the loop"])
async def test_an_attach_that_is_cancelled_takes_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It may succeed all the same, and outcomes come with the answer."""
    async with AsyncClient(cluster) as client, AsyncClient(cluster) as another:
        job = client.submit_calls(squared, [(number,) for number in range(4)])
        await job.results()
        job_id = await client.detach(job)
        session, let_go = another._shared.open_session(), asyncio.Event()
        monkeypatch.setattr(session, "detach", saying(session.detach, let_go.set))
        attach = session.attach

        def attach_and_cancel(job_id: str, sink_of: Any, told: Any) -> None:
            attach(job_id, sink_of, and_then(told, attaching.cancel))
            if when == "before the answer":
                attaching.cancel()

        with monkeypatch.context() as patched:
            patched.setattr(session, "attach", attach_and_cancel)
            attaching = asyncio.create_task(another.attach(job_id))
            with pytest.raises(asyncio.CancelledError):
                await attaching
            async with asyncio.timeout(TIMEOUT_S):
                await let_go.wait()
        assert job_id not in another._shared.jobs
        assert await (await another.attach(job_id)).results() == [0, 1, 4, 9]


async def test_an_attach_that_is_cancelled_takes_nothing_though_its_client_is_closed_next(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(cluster) as client:
        job = client.submit_calls(squared, [(number,) for number in range(4)])
        await job.results()
        job_id = await client.detach(job)
    async with AsyncClient(cluster) as another:
        session = another._shared.open_session()
        attach = session.attach

        def attach_and_cancel(job_id: str, sink_of: Any, told: Any) -> None:
            attach(job_id, sink_of, and_then(told, attaching.cancel))

        monkeypatch.setattr(session, "attach", attach_and_cancel)
        attaching = asyncio.create_task(another.attach(job_id))
        with pytest.raises(asyncio.CancelledError):
            await attaching
    async with AsyncClient(cluster) as last:
        assert await (await attached_once_let_go(last, job_id)).results() == [0, 1, 4, 9]


async def attached_once_let_go(client: AsyncClient, job_id: str) -> AsyncJob:
    """The word that the one before has let go of it comes over another link."""
    while True:
        with contextlib.suppress(Refused):
            return await client.attach(job_id)


async def test_the_end_of_a_job_is_not_that_of_the_one_that_was_attached_to_under_its_id(
    cluster: LocalCluster, gate: Path
) -> None:
    async with AsyncClient(cluster) as client:
        before = client.submit_calls(tasks.hold, [(gate, "one")])
        await client.detach(before)
        attached = await client.attach(before.job_id)
        before.on_ended()
        assert client._shared.jobs == {before.job_id: attached}
        gate.touch()
        await attached.results()


@pytest.mark.parametrize("again", [None, 50.0])
def test_a_job_that_is_let_go_of_again_is_kept_as_long_as_before_unless_said(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, again: float | None
) -> None:
    with Client(cluster) as client:
        job = client.submit_calls(squared, [(number,) for number in range(4)])
        assert job.retention_s == 3600
        job_id = client.detach(job, retention_s=77)
        attached = client.attach(job_id)
        asked: list[float] = []
        detach = client._session.detach
        monkeypatch.setattr(
            client._session,
            "detach",
            lambda spec, age_s, kept_s, *rest: (asked.append(kept_s), detach(spec, age_s, kept_s, *rest)),
        )
        client.detach(attached, retention_s=again)
        assert (attached.retention_s, asked) == (77, [again or 77])
        assert client.attach(job_id).retention_s == (again or 77)


async def test_so_is_one_that_an_asyncio_client_lets_go_of(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as client:
        job_id = await client.detach(client.submit_calls(squared, [(1,)]), retention_s=77)
        assert await client.detach(await client.attach(job_id)) == job_id
        assert (await client.attach(job_id)).retention_s == 77


def test_a_scheduler_that_is_older_does_not_say_how_long_a_job_was_to_be_kept() -> None:
    class Older(m.Message, tag=85):
        submission: m.SubmitJob

    said = msgspec.msgpack.encode(Older(attached().submission))
    assert msgspec.msgpack.decode(said, type=m.Attached) == attached()


@pytest.mark.parametrize("when", ["before the answer", "after it"])
def test_an_attach_that_is_interrupted_takes_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    class Interrupted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            if when == "after it":
                super().result(TIMEOUT_S)
            raise KeyboardInterrupt

    with Client(cluster) as client, Client(cluster) as another:
        job = client.submit_calls(squared, [(number,) for number in range(4)])
        job.results()
        job_id = client.detach(job)
        let_go = threading.Event()
        monkeypatch.setattr(another._session, "detach", saying(another._session.detach, let_go.set))
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("sparrow_py.client.Future", Interrupted)
            another.attach(job_id)
        assert let_go.wait(TIMEOUT_S)
        assert another.attach(job_id).results() == [0, 1, 4, 9]


PROGRAM = """
from sparrow_py import Client

def squared(number):
    import time
    time.sleep(0.05)
    return number * number

with Client() as client:
    print(client.detach(client.submit_calls(squared, [(number,) for number in range(8)])))
"""


def test_a_job_outlives_the_program_that_submitted_it(cluster: LocalCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "SPARROW_SCHEDULER": cluster.addresses[0]},
    )  # fmt: skip
    with Client(cluster) as client:
        assert client.attach(done.stdout.strip()).results(30) == [number * number for number in range(8)]
