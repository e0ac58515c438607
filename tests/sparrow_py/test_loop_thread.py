"""The thread of a client: what it is asked is done on its loop, and nothing once it is closed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from sparrow_py.session.loop_thread import CLOSED, LoopThread
from tests.support.interrupts import interrupted
from tests.support.waiting import TIMEOUT_S, wait_until


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
    thread.close(nothing)
    assert not thread.is_alive()


def test_it_is_closed_once_and_all_who_close_it_wait_for_that() -> None:
    thread, go_on, ends = LoopThread(), asyncio.Event(), list[str]()

    async def end() -> None:
        ends.append("begun")
        await go_on.wait()
        ends.append("over")

    closing = [threading.Thread(target=thread.close, args=[end]) for _ in range(3)]
    for one in closing:
        one.start()
    wait_until(lambda: ends)
    assert all(one.is_alive() for one in closing) and thread.is_alive()
    thread.loop.call_soon_threadsafe(go_on.set)
    for one in closing:
        one.join(TIMEOUT_S)
        assert not one.is_alive()
    thread.close(end)
    assert ends == ["begun", "over"] and not thread.is_alive()


def test_who_is_interrupted_while_it_closes_closes_it_again() -> None:
    thread, go_on, ends = LoopThread(), asyncio.Event(), list[str]()

    async def end() -> None:
        ends.append("begun")
        await go_on.wait()
        ends.append("over")

    with interrupted(lambda: ends):
        thread.close(end)
    assert thread.closed and thread.is_alive()
    thread.loop.call_soon_threadsafe(go_on.set)
    thread.close(end)
    assert ends == ["begun", "over"] and not thread.is_alive()


@pytest.mark.processes
def test_a_child_that_was_forked_while_it_closed_does_not_wait_for_the_end() -> None:
    thread, go_on, ends = LoopThread(), asyncio.Event(), list[str]()

    async def end() -> None:
        ends.append("begun")
        await go_on.wait()

    closing = threading.Thread(target=thread.close, args=[end])
    closing.start()
    wait_until(lambda: ends)
    child = os.fork()
    if not child:
        signal.alarm(int(TIMEOUT_S))
        of_open_one = thread.forked("of the parent")
        thread.close(end)
        os._exit(7 if not of_open_one and not thread.is_alive() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    thread.loop.call_soon_threadsafe(go_on.set)
    closing.join(TIMEOUT_S)
    assert ends == ["begun"] and not thread.is_alive()


def test_an_end_that_fails_says_so_and_the_thread_ends() -> None:
    thread = LoopThread()

    async def fails() -> None:
        raise ValueError("not so")

    for _ in range(2):
        with pytest.raises(ValueError, match="not so"):
            thread.close(fails)
    assert not thread.is_alive()


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


def test_a_finalizer_may_ask_for_something_where_the_lock_is_held() -> None:
    """The collector calls it in the thread that holds the lock, if that makes an object."""
    thread, done = LoopThread(), threading.Event()

    def finalized() -> None:
        with thread.lock:
            thread.call_soon(done.set)

    asking = threading.Thread(target=finalized, daemon=True)
    asking.start()
    asking.join(TIMEOUT_S)
    assert not asking.is_alive() and done.wait(TIMEOUT_S)
    thread.close(nothing)
