"""The program's thread on commanded planes: epochs that end in the midst of a call, and what is printed meanwhile."""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow, InvalidProgram
from frontends.dataflow.caller import Caller
from frontends.dataflow.commands import Answer, Submit
from frontends.dataflow.control_messages import Begin, RunFailed, RunOver, Shipped
from frontends.dataflow.shipping import pack_definition, pack_program
from frontends.dataflow.worker_core import layout_of

LIMIT_S = 20


class Played:
    """A caller in a thread of its own, and what it says to the controller."""

    def __init__(self, program_of: Callable[[Any], Callable[[], Any]]) -> None:
        df = Dataflow(partitions=1, progress=False)
        one = df.single(np.zeros(1), name="one")
        more = df.signal(on=one, name="more")(lambda one: True)
        df._declare_barrier()
        df._freeze()
        definition = df._definition
        packed = pack_program(program_of(more), df)
        shipped = Shipped(0, layout_of(definition), pack_definition(definition), packed, b"")
        self.said: SimpleQueue[Any] = SimpleQueue()
        self.shipped = {0: shipped}
        self.caller = Caller(self.shipped.__getitem__, self.said.put, is_templated=False)
        self.thread = threading.Thread(target=self.caller.call, daemon=True)
        self.thread.start()

    def begin(self, epoch: int, until: int = 0) -> None:
        self.caller.put(Begin(0, epoch, until, dict.fromkeys(range(until), True)))

    def next(self, kind: type) -> Any:
        message = self.said.get(timeout=LIMIT_S)
        assert type(message) is kind, message
        return message

    def answer(self) -> None:
        submit = self.next(Submit)
        self.caller.put(Answer(submit.epoch, submit.block, True, -1))

    def end(self) -> None:
        self.caller.put(None)
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()


def swallowing(more: Any) -> Callable[[], Any]:
    def program() -> Any:
        for _ in range(3):
            with contextlib.suppress(BaseException):
                more()
        return "over"

    return program


def replacing(more: Any) -> Callable[[], Any]:
    def program() -> Any:
        try:
            more()
        except BaseException as error:
            raise ValueError("mine") from error

    return program


@pytest.mark.parametrize("program_of", [swallowing, replacing])
def test_a_program_that_catches_all_exceptions_is_called_anew_in_the_next_epoch(program_of: Any) -> None:
    played = Played(program_of)
    for epoch in (1, 2):
        played.begin(epoch)
        assert played.next(Submit).epoch == epoch
    played.begin(3)
    played.answer()
    if program_of is swallowing:
        played.answer()
        played.answer()
    assert played.next(RunOver).epoch == 3
    played.end()


@pytest.mark.parametrize("program_of", [swallowing, replacing])
def test_a_run_ends_although_its_program_catches_all_exceptions(program_of: Any) -> None:
    played = Played(program_of)
    played.begin(1)
    played.next(Submit)
    played.end()
    assert played.caller.error is None and played.said.empty()


def _unpickled_no_more() -> None:
    raise ZeroDivisionError("unpickled")


class _Unpicklable:
    def __reduce__(self) -> Any:
        return _unpickled_no_more, ()


def test_what_cannot_be_unpickled_fails_the_run() -> None:
    played = Played(swallowing)
    broken = pickle.dumps(_Unpicklable())
    shipped = played.shipped[0]
    played.shipped[0] = Shipped(0, shipped.layout, broken, shipped.program, b"")
    played.begin(1)
    assert played.next(RunFailed).epoch == 1
    played.end()
    assert isinstance(played.caller.error, ZeroDivisionError)


def test_a_stream_that_the_program_puts_in_the_place_of_stdout_stays_and_goes_when_the_program_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also if blocks are skipped before, whose prints are dropped."""
    inner = io.StringIO()
    sys.inner = inner  # type: ignore[attr-defined]  # The program has it by reference.

    def redirecting(more: Any) -> Callable[[], Any]:
        def program() -> Any:
            print("dropped")
            with contextlib.redirect_stdout(sys.inner):  # type: ignore[attr-defined]
                more()
                more()
                print("inner")
            print("outer")

        return program

    try:
        played = Played(redirecting)
        played.begin(1, until=1)
        played.answer()
        played.next(RunOver)
        played.end()
    finally:
        del sys.inner  # type: ignore[attr-defined]
    assert (inner.getvalue(), capsys.readouterr().out) == ("inner\n", "outer\n")


def test_other_threads_print_while_the_program_is_muted(capsys: pytest.CaptureFixture[str]) -> None:
    def pausing(more: Any) -> Callable[[], Any]:
        def program() -> Any:
            print("dropped")
            other = threading.Thread(target=print, args=("other",))
            other.start()
            other.join()
            sys.stdout.writelines(["dropped", "too"])
            more()
            more()
            print("mine")

        return program

    before = sys.stdout
    played = Played(pausing)
    played.begin(1, until=1)
    played.answer()
    played.next(RunOver)
    played.end()
    assert sys.stdout is before and capsys.readouterr().out.split() == ["other", "mine"]


def test_stages_are_called_in_the_programs_own_thread() -> None:
    def threaded(more: Any) -> Callable[[], Any]:
        def program() -> Any:
            raised: list[BaseException] = []

            def call() -> None:
                try:
                    more()
                except BaseException as error:
                    raised.append(error)

            other = threading.Thread(target=call)
            other.start()
            other.join()
            raise raised[0]

        return program

    played = Played(threaded)
    played.begin(1)
    played.next(RunFailed)
    played.end()
    assert isinstance(played.caller.error, InvalidProgram)
    assert "stage more is called in a thread that the program started" in str(played.caller.error)
