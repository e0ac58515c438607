"""`Future.running()`: asked of the scheduler when it is called, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from scheduler.book.attempts import Attempts
from sparrow_py import Client, LocalCluster, SchedulerHere, SparrowExecutor
from sparrow_py.errors import LinkError
from sparrow_py.futures import running
from sparrow_py.wire import messages as m
from tests.conftest import SLOTS
from tests.scheduler.test_cancellation import Rig as SchedulerRig
from tests.support import tasks
from tests.support.client_core import Rig as ClientRig
from tests.support.client_core import outcome
from tests.support.waiting import TIMEOUT_S, wait_until

# ---- the scheduler ---------------------------------------------------------------------------


def test_a_scheduler_says_which_tasks_have_left_the_queue() -> None:
    rig = SchedulerRig()
    rig.client(m.AskPlaced("j", 7, [1, 0, 1]))
    rig.node("n", m.Report("j", 0, 1, m.TaskStatus.FINISHED, b"", "", 0.0, 0.0))
    rig.client(m.AskPlaced("j", 8, [0, 1]), m.AskPlaced("other", 9, [0]), m.AskPlaced("j", 10, []))
    answers = [m.PlacedNow("j", 7, [1, 0, 1]), m.PlacedNow("j", 8, [1]), m.PlacedNow("j", 10, [])]
    assert rig.outbox.take(m.PlacedNow) == [("c", answer) for answer in answers]


def test_tasks_that_have_not_arrived_have_not_left_it() -> None:
    rig = SchedulerRig()
    rig.client(m.SubmitJob("k", 0, "", [m.Stage("many", 3, b"", "", 1.0, 0, None)], 3, False, None, False))
    rig.client(m.AskPlaced("k", 1, [2]))
    assert rig.outbox.take(m.PlacedNow) == [("c", m.PlacedNow("k", 1, []))]


@pytest.mark.parametrize("asked", [[2], [-1], [0] * (m.NUMBERS_PER_MESSAGE_MAX + 1)])
def test_who_asks_for_what_cannot_be_is_cut_off(asked: list[int]) -> None:
    with pytest.raises(LinkError, match=r"there is no task|at most 200"):
        SchedulerRig().client(m.AskPlaced("j", 1, asked))


# ---- the client's core -----------------------------------------------------------------------


class Asking:
    """A client's core with a job of two tasks at scheduler s, and what it is told."""

    def __init__(self) -> None:
        self.rig = ClientRig("s")
        self.rig.submit(2)
        self.told: list[Sequence[int]] = []

    def ask(self) -> bool:
        return self.rig.core.ask_placed("j", [0, 1], self.told.append)


def test_a_question_is_answered_once() -> None:
    asking = Asking()
    assert asking.ask(), "it may run before it is told that it was accepted"
    asking.rig.receive(m.JobAccepted("j"))
    assert asking.ask()
    (first, second) = [message for _, message in asking.rig.outbox.take(m.AskPlaced)]
    assert (first.tasks, first.number != second.number) == ([0, 1], True)
    asking.rig.receive(m.PlacedNow("j", second.number, [1]), m.PlacedNow("j", second.number, [0]))
    asking.rig.receive(m.PlacedNow("j", 12345, [0]))
    assert asking.told == [[1]]
    asking.rig.receive(m.PlacedNow("j", first.number, [0, 1]))
    assert asking.told == [[1], [0, 1]]


@pytest.mark.parametrize("end", ["refused", "refused for now", "moved", "handed over", "ended", "abandoned"])
def test_who_gets_no_answer_is_told_so(end: str) -> None:
    asking = Asking()
    assert asking.ask()
    if end == "refused":
        asking.rig.receive(m.JobRefused("j", "no"))
    elif end == "refused for now":
        asking.rig.receive(m.JobRefused("j", "no", "", 1.0))
    elif end == "moved":
        asking.rig.core.scheduler_down("s", "lost", 0.0)
    elif end == "handed over":
        asking.rig.receive(m.HandedOver("j", ()))
    elif end == "ended":
        asking.rig.receive(outcome(0), outcome(1), m.JobEnded("j"))
    else:
        asking.rig.core.abandon()
    assert asking.told == [()]


def test_a_scheduler_that_is_silent_is_not_asked_for_ever() -> None:
    asking = Asking()
    asking.rig.receive(m.JobAccepted("j"))
    assert [asking.ask() for _ in range(101)] == [True] * 100 + [False]


# ---- futures ---------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each question to a scheduler of this process is about."""
    counts: list[int] = []
    answer = Attempts.placed_now

    def count(attempts: Attempts, job: Any, message: m.AskPlaced, now_s: float) -> None:
        counts.append(len(message.tasks))
        answer(attempts, job, message, now_s)

    monkeypatch.setattr(Attempts, "placed_now", count)
    return counts


@pytest.fixture
def held(client: Client, gate: Path) -> Iterator[list[Future[str]]]:
    """Tasks that have started and go on until the gate is there, one for each slot, then one that waits."""
    futures = [client.submit(tasks.hold, gate, f"m{number}") for number in range(SLOTS)]
    wait_until(lambda: tasks.started(gate, *(f"m{number}" for number in range(SLOTS))), "all slots to be taken")
    yield [*futures, client.submit(tasks.hold, gate)]
    gate.touch()


def test_a_future_is_running_while_its_task_runs(held: list[Future[str]], gate: Path) -> None:
    assert [future.running() for future in held] == [True] * SLOTS + [False]
    assert not any(future.done() for future in held)
    gate.touch()
    for future in held:
        future.result(TIMEOUT_S)
        assert not future.running()


def test_an_executors_future_is_too_though_it_is_told_of_no_task(cluster: LocalCluster, gate: Path) -> None:
    with SparrowExecutor(cluster) as executor:
        future = executor.submit(tasks.hold, gate, "held")
        assert not future.job.spec.report_placed  # type: ignore[attr-defined]
        wait_until(lambda: tasks.started(gate, "held"), "the task to start")
        assert future.running()
        assert not future.cancel()
        gate.touch()
        assert future.result(TIMEOUT_S) == "held"


def test_cancellation_asks_nobody_whether_a_task_runs(held: list[Future[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.WhetherRunning, "find_out", lambda *_: pytest.fail("it was asked"))
    assert [future.cancel() for future in held] == [False] * SLOTS + [True]


def test_many_futures_are_one_question(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FRESH_S", 1000.0)
    with Client(SchedulerHere()) as client:
        job = client.submit_calls(tasks.square, [(number,) for number in range(450)])
        job.accepted(TIMEOUT_S)
        assert not any(future.running() for future in job.futures for _ in range(3))
        assert asked == [200, 200, 50]


def test_what_was_answered_is_asked_again_when_it_is_not_fresh(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FRESH_S", 0.0)
    monkeypatch.setattr(running, "QUESTIONS_MAX", 2)
    with Client(SchedulerHere()) as client:
        job = client.submit_calls(tasks.square, [(number,) for number in range(1000)])
        job.accepted(TIMEOUT_S)
        for _ in range(2):
            assert not any(future.running() for future in job.futures[::200])
        assert asked == [200] * 10
        assert job._whether_running is not None and len(job._whether_running._questions) <= 2


def test_a_done_callback_does_not_wait_for_an_answer(client: Client, held: list[Future[str]]) -> None:
    seen: list[bool] = []
    called = threading.Event()

    def look(_: Future[int]) -> None:
        seen.append(held[-1].running())
        called.set()

    other = client.submit(tasks.square, 2)
    other.add_done_callback(look)
    assert other.cancel()
    assert called.wait(TIMEOUT_S)
    assert seen == [False]


def test_futures_that_are_done_or_whose_client_is_closed_ask_nobody(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster) as client:
        future = client.submit(abs, -1)
        assert future.result(TIMEOUT_S) == 1
        job = client.submit_calls(tasks.hold, [(gate,)])
    assert not future.running() and not job.futures[0].running()
    job.futures[0]._state = "PENDING"  # As one that asks while its client is being closed.
    assert not job.futures[0].running()


def test_a_scheduler_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempts, "placed_now", lambda *_: None)
    monkeypatch.setattr(running, "ANSWER_TIMEOUT_S", 0.01)
    with Client(SchedulerHere()) as client:
        job = client.submit_calls(abs, [(1,)])
        job.accepted(TIMEOUT_S)
        assert not job.futures[0].running()
