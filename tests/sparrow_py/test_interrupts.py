"""Ctrl-C while somebody waits for results: what the call has in flight is stopped, and the client stays usable."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import Client, LocalCluster, SparrowExecutor
from sparrow_py.futures.task_future import TaskFuture
from tests.conftest import SLOTS
from tests.support import tasks
from tests.support.interrupts import interrupted
from tests.support.waiting import TIMEOUT_S, wait_until

MARKS = [f"m{number}" for number in range(2 * SLOTS)]
"""Of tasks half of which wait for a slot."""


def some_run(gate: Path) -> bool:
    """Whether every slot has one of the tasks."""
    return sum(tasks.started(gate, mark) for mark in MARKS) == SLOTS


def waiting_with_some_running(gate: Path) -> Callable[[], bool]:
    """Whether the main thread waits for something while tasks run."""
    main = threading.get_ident()

    def holds() -> bool:
        gc.disable()  # A collection within `_current_frames` waits for ever for a lock that this call holds.
        try:
            frame = sys._current_frames()[main]
        finally:
            gc.enable()
        names = {frame.f_code.co_name, frame.f_back.f_code.co_name if frame.f_back is not None else ""}
        return not {"wait", "_wait_ended"}.isdisjoint(names) and some_run(gate)

    return holds


def stopped(client: Client, gate: Path, futures: list[Future[Any]]) -> None:
    """The tasks end though nobody opens their gate, none starts any more, and the client works."""
    wait_until(lambda: all(future.done() for future in futures))
    assert all(future.cancelled() for future in futures)
    assert list(client.map(tasks.square, range(20))) == [number * number for number in range(20)]
    assert some_run(gate)
    assert not client.unfinished()


@pytest.fixture
def in_flight(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[Future[Any]]:
    """The futures of the client's jobs from now on."""
    futures: list[Future[Any]] = []
    made = TaskFuture.__init__

    def make(future: TaskFuture, *args: Any) -> None:
        made(future, *args)
        futures.append(future)

    monkeypatch.setattr(TaskFuture, "__init__", make)
    return futures


@pytest.mark.parametrize("use", ["results", "iteration", "gather", "progress"])
def test_what_a_job_has_in_flight_is_stopped(
    client: Client, gate: Path, use: str, in_flight: list[Future[Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    def call() -> object:
        job = client.submit_calls(tasks.hold, [(gate, mark) for mark in MARKS], progress=use == "progress")
        if use == "results":
            return job.results()
        return list(job) if use == "iteration" else client.gather([done, *job.futures])

    done: Future[str] = Future()  # Not of ours, which does not matter.
    done.set_result("done")
    with interrupted(waiting_with_some_running(gate)):
        call()
    assert len(in_flight) == len(MARKS)
    stopped(client, gate, in_flight)


def test_what_a_map_has_in_flight_is_stopped(client: Client, gate: Path, in_flight: list[Future[Any]]) -> None:
    with interrupted(waiting_with_some_running(gate)):
        list(client.map(tasks.hold, [gate] * len(MARKS), MARKS))
    stopped(client, gate, in_flight)


def test_what_an_executors_map_has_in_flight_is_stopped(
    cluster: LocalCluster, client: Client, gate: Path, in_flight: list[Future[Any]]
) -> None:
    with SparrowExecutor(cluster) as executor:
        with interrupted(waiting_with_some_running(gate)):
            list(executor.map(tasks.hold, [gate] * len(MARKS), MARKS))
        wait_until(lambda: all(future.cancelled() for future in in_flight))
        assert executor.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_what_a_map_has_begun_while_it_takes_from_its_iterables_is_stopped(
    client: Client, gate: Path, in_flight: list[Future[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def marks() -> Iterator[str]:
        yield from MARKS
        wait_until(lambda: some_run(gate))
        raise KeyboardInterrupt

    monkeypatch.setattr("sparrow_py.call_jobs.MAP_JOB_TASKS", len(MARKS))
    with pytest.raises(KeyboardInterrupt):
        client.map(tasks.hold, [gate] * 100, marks())
    stopped(client, gate, in_flight)


def test_a_keyboard_interrupt_that_a_task_raised_is_its_failure_and_stops_nothing(client: Client, gate: Path) -> None:
    held = client.submit(tasks.hold, gate, "held")
    wait_until(lambda: tasks.started(gate, "held"))
    with pytest.raises(KeyboardInterrupt, match="on purpose"):
        client.gather([client.submit(tasks.raise_, KeyboardInterrupt), held])
    gate.touch()
    assert held.result(TIMEOUT_S) == "held"


def test_ctrl_c_in_a_client_that_was_closed_meanwhile_is_only_raised(cluster: LocalCluster, gate: Path) -> None:
    class Interrupting(Future[str]):
        def result(self, timeout: float | None = None) -> str:
            with suppress(RuntimeError):
                client.close()
            raise KeyboardInterrupt

    client = Client(cluster)
    with pytest.raises(KeyboardInterrupt):
        client.gather([Interrupting(), client.submit(tasks.hold, gate)])
