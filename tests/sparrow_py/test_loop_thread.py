"""The thread of a client: what it is asked is done on its loop, and nothing once it is closed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparrow_py.session.loop_thread import CLOSED, LoopThread
from tests.support.waiting import TIMEOUT_S


async def nothing() -> None:
    """An end."""


async def here() -> str:
    """Where it runs."""
    return threading.current_thread().name


def test_what_is_asked_runs_in_the_thread() -> None:
    thread, done = LoopThread(), threading.Event()
    assert thread.run(here) == "sparrow-client" and not thread.runs_here()
    thread.call_soon(done.set)
    assert done.wait(TIMEOUT_S)
    assert thread.close(nothing) and not thread.is_alive()
    assert not thread.close(nothing), "it is closed once"


def test_a_closed_one_says_so() -> None:
    thread = LoopThread()
    thread.close(nothing)
    for ask in (lambda: thread.call_soon(lambda: None), lambda: thread.run(here)):
        with pytest.raises(RuntimeError, match=CLOSED):
            ask()


def test_nothing_waits_in_the_thread_for_itself() -> None:
    thread = LoopThread()

    async def asks() -> None:
        for ask in (lambda: thread.run(nothing), lambda: thread.close(nothing)):
            with pytest.raises(RuntimeError, match="wait for itself"):
                ask()

    thread.run(asks)
    thread.close(nothing)


def test_whoever_waits_is_told_of_the_end() -> None:
    thread, errors, begun = LoopThread(), list[RuntimeError](), threading.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def waits() -> None:
        try:
            thread.run(forever)
        except RuntimeError as error:
            errors.append(error)

    waiting = threading.Thread(target=waits)
    waiting.start()
    assert begun.wait(TIMEOUT_S)
    thread.close(nothing)
    waiting.join(TIMEOUT_S)
    assert [str(error) for error in errors] == ["the client was closed meanwhile"]
