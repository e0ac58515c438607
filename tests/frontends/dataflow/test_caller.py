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
from frontends.dataflow.printed_lines import PrintedLines
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
        self.lines = PrintedLines()
        self.lines.keep(self.shipped)
        self.caller = Caller(self.shipped.__getitem__, self.said.put, self.lines, is_templated=False)
        self.thread = threading.Thread(target=self.caller.call, daemon=True)
        self.thread.start()

    def begin(self, epoch: int, until: int = 0) -> None:
        self.caller.put(Begin(0, epoch, until, dict.fromkeys(range(until), True)))

    def next(self, kind: type) -> Any:
        message = self.said.get(timeout=LIMIT_S)
        assert type(message) is kind, message
        return message

    def answer(self) -> None:
        """Of the next block, once it is begun."""
        self.answer_is_awaited()
        self.give_answer()

    def answer_is_awaited(self) -> None:
        self._asked = self.next(Submit)

    def give_answer(self) -> None:
        submit = self._asked
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


def test_a_stream_that_the_program_puts_in_the_place_of_stdout_has_all_and_stdout_what_is_new(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In each call of the program: it is the program's own."""
    inner = io.StringIO()
    sys.inner = inner  # type: ignore[attr-defined]  # The program has it by reference.

    def redirecting(more: Any) -> Callable[[], Any]:
        def program() -> Any:
            print("first")
            with contextlib.redirect_stdout(sys.inner):  # type: ignore[attr-defined]
                more()
                print("inner")
                more()
            print("outer")

        return program

    try:
        played = Played(redirecting)
        played.begin(1)
        played.answer()
        played.next(Submit)
        played.begin(2, until=1)
        played.answer()
        played.next(RunOver)
        played.end()
    finally:
        del sys.inner  # type: ignore[attr-defined]
    assert (inner.getvalue(), capsys.readouterr().out) == ("inner\ninner\n", "first\nouter\n")


@pytest.mark.parametrize("until", [0, 1], ids=["from its start", "from a snapshot"])
def test_what_a_program_has_printed_is_not_printed_again_when_it_is_called_again(
    until: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether or not there is a snapshot, what other threads print aside; nor is what it prints when it is left."""

    def printing(more: Any) -> Callable[[], Any]:
        def program() -> Any:
            print("begins")
            other = threading.Thread(target=print, args=("other",))
            other.start()
            other.join()
            try:
                more()
                sys.stdout.writelines(["one ", "two "])
                print("error", file=sys.stderr)
                more()
                print("both")
            finally:
                print("ends")

        return program

    before = sys.stdout, sys.stderr
    played = Played(printing)
    played.begin(1)
    played.answer()
    played.next(Submit)
    for epoch in (2, 3):
        played.begin(epoch, until)
        if not until:
            played.answer()
        if epoch == 2:
            played.next(Submit)
    played.answer()
    played.next(RunOver)
    played.begin(4)  # As if it had to be run again for the next run.
    played.answer()
    played.answer()
    played.next(RunOver)
    played.end()
    assert (sys.stdout, sys.stderr) == before
    printed = capsys.readouterr()
    assert printed.out.split() == ["begins", "other", "one", "two", "other", "other", "both", "ends", "other"]
    assert printed.err == "error\n"


def test_a_run_that_ends_prints_what_its_program_prints_then(capsys: pytest.CaptureFixture[str]) -> None:
    def cleaning(more: Any) -> Callable[[], Any]:
        def program() -> Any:
            try:
                more()
            finally:
                print("cleaned up")

        return program

    played = Played(cleaning)
    played.begin(1)
    played.next(Submit)
    played.end()
    assert capsys.readouterr().out == "cleaned up\n"


def test_programs_in_several_threads_leave_the_streams_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever ends first."""

    def printing(more: Any) -> Callable[[], Any]:
        def program() -> Any:
            print("begins")
            more()
            print("ends")

        return program

    before = sys.stdout
    for last in (0, 1):
        two = [Played(printing), Played(printing)]
        for played in two:
            played.begin(1)
            played.answer_is_awaited()
        for played in (two[1 - last], two[last]):
            assert sys.stdout is not before
            played.give_answer()
            played.next(RunOver)
            played.end()
        assert sys.stdout is before
    assert capsys.readouterr().out.split() == ["begins", "begins", "ends", "ends"] * 2


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
