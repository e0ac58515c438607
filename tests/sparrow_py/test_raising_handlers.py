"""A signal's handler that raises again and again in the thread that submits, waits and closes: no call is lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sparrow_py
from sparrow_py import Client, LocalCluster
from sparrow_py.futures.task_future import TaskFuture
from tests.support import tasks
from tests.support.suites import rest_after

pytestmark = pytest.mark.processes

LIBRARY = str(Path(sparrow_py.__file__).parent)
THREADS = 8
PERIOD_S = 0.001
PATIENCE_S = 300.0


class Rung(BaseException):
    """What the handler raises. No `Exception`: one that comes while a call is pickled is that call's failure."""


def ring(_: int, frame: FrameType | None) -> None:
    """Raise where the main thread is in the library, or in what that has called: this file could not tell how far it
    had come itself."""
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_filename.startswith(LIBRARY):
            raise Rung
        frame = frame.f_back


@pytest.mark.parametrize("count", rest_after(1, 400, 10_000))
@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_handler_that_raises_all_the_time_loses_nothing(
    cluster: LocalCluster, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Counter[TaskFuture] = Counter()
    settle = TaskFuture.settle

    def settle_counted(future: TaskFuture, *args: Any) -> None:
        told[future] += 1
        settle(future, *args)

    monkeypatch.setattr(TaskFuture, "settle", settle_counted)
    unraisable: list[sys.UnraisableHookArgs] = []
    # What the handler raises in a finalizer, as of a weak reference, the interpreter tells here, and goes on. pytest's
    # own way to hear of it is interrupted itself.
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    futures: list[Future[int]] = []

    def work(client: Client) -> None:
        for number in range(count // THREADS):
            future = client.submit(tasks.square, number)
            assert future.result(PATIENCE_S) == number * number
            futures.append(future)

    rung = read = 0
    closed = False
    before = signal.getsignal(signal.SIGALRM)
    with Client(cluster) as client:
        others = [threading.Thread(target=work, args=[client]) for _ in range(THREADS - 1)]
        for other in others:
            other.start()
        mine: list[Future[int]] = []
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, PERIOD_S, PERIOD_S)
        try:
            while len(mine) < count // THREADS or not rung:
                try:
                    mine.append(client.submit(tasks.square, len(mine)))
                except Rung:
                    rung += 1
                # So that some are submitted one by one, others together.
                if len(mine) % 3 and len(mine) < count // THREADS:
                    continue
                while read < len(mine):
                    try:
                        assert mine[read].result(PATIENCE_S) == read * read
                        read += 1
                    except Rung:
                        rung += 1
            for other in others:
                other.join()
            while not closed:
                try:
                    client.close()
                    closed = True
                except Rung:
                    rung += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    futures += mine
    assert {one.exc_type for one in unraisable} <= {Rung}, unraisable
    assert len(futures) == len(mine) + (THREADS - 1) * (count // THREADS), "all others have come to their end"
    assert {told[future] for future in futures} == {1}, "each is told once"
    assert set(told.values()) == {1}
