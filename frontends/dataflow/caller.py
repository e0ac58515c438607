"""Calls programs in their own process, for controllers that command workers (planes `templates` and `central`).

Each epoch begins with a `Begin`, and calls a program from its start: blocks that a snapshot has are skipped. The
thread of the program waits here for answers, which the thread that takes what comes hands over (`put`).
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from frontends.dataflow.calls import SIGNALS_MAX, Block, Calls
from frontends.dataflow.commands import Answer, Unknown
from frontends.dataflow.control_messages import Begin, RunFailed, RunOver, Shipped
from frontends.dataflow.kept_classes import KeptClasses
from frontends.dataflow.shipping import ProgramHere, unpack_definition, unpack_program
from frontends.dataflow.submissions import Submissions
from sparrow_py.exception_pickling import encode_exception

Handed = Begin | Answer | Unknown


class _Abandoned(BaseException):
    """The call is over: another epoch has begun, or the run has ended."""

    def __init__(self, begin: Begin | None) -> None:
        self.begin = begin


class _Mutable:
    """In the place of a standard stream: what the program's thread prints is dropped while `is_mute`.

    Other threads print meanwhile; and the program, or a library it uses, may keep the stream beyond that.
    """

    def __init__(self, stream: Any, thread: int) -> None:
        self._stream, self._thread = stream, thread
        self.is_mute = True

    def write(self, text: str) -> int:
        if not self.is_mute or threading.get_ident() != self._thread:
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Muted:
    """What is printed is dropped until a block runs that is not skipped: it was printed before."""

    def __init__(self, *, is_muted: bool) -> None:
        self._streams: dict[str, _Mutable] = {}
        if is_muted:
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if stream is not None:
                    self._streams[name] = made = _Mutable(stream, threading.get_ident())
                    setattr(sys, name, made)

    def end(self) -> None:
        """Where the program has put a stream of its own, that stays."""
        for name, stream in self._streams.items():
            stream.is_mute = False
            if getattr(sys, name) is stream:
                setattr(sys, name, stream._stream)


class Caller:
    """Of one run of a program, and of those before that have to be run again."""

    def __init__(self, shipped: Callable[[int], Shipped], send: Callable[[Any], None], *, is_templated: bool) -> None:
        """`shipped` has the runs by number; `send` sends to the controller."""
        self._shipped, self._send, self._is_templated = shipped, send, is_templated
        self._inbox: queue.SimpleQueue[Handed | None] = queue.SimpleQueue()
        self.error: BaseException | None = None
        """What the program raised."""

    def put(self, message: Handed | None) -> None:
        """In any thread: something has come; None: the run is over."""
        self._inbox.put(message)

    def call(self) -> None:
        """Call programs until the run is over."""
        begin = self._next_begin()
        while begin is not None:
            try:
                self._call(begin)
            except _Abandoned as abandoned:
                begin = abandoned.begin
            else:
                begin = self._next_begin()

    def _next_begin(self) -> Begin | None:
        """Wait for an epoch; answers of the one before are dropped."""
        while True:
            message = self._inbox.get()
            if message is None or isinstance(message, Begin):
                return message

    def _call(self, begin: Begin) -> None:
        """Call the program in this epoch, and say how it ended."""
        self.error = None
        muted = _Muted(is_muted=begin.until > 0)
        try:
            over = self._over(begin, muted)
        except (_Abandoned, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.error = error
            text = "".join(traceback.format_exception(error))
            self._send(RunFailed(begin.epoch, encode_exception(error, text)))
        else:
            self._send(over)
        finally:
            muted.end()

    def _over(self, begin: Begin, muted: _Muted) -> RunOver:
        """What the program returns in this epoch."""
        shipped = self._shipped(begin.run)
        here = ProgramHere(unpack_definition(shipped.definition))
        submissions = Submissions(
            here.definition, self._send, is_templated=self._is_templated, epoch=begin.epoch, first_block=begin.until
        )

        def run_block(block: Block) -> bool:
            muted.end()
            submissions.begin(block)
            return self._answer(submissions)

        calls = Calls(run_block, until=begin.until, signals=begin.signals, signals_max=SIGNALS_MAX)
        with KeptClasses() as kept:
            program = unpack_program(shipped.program, here, kept)
            returned, datasets = here.pack_returned(here.calling(program, calls))
        return RunOver(begin.epoch, calls.blocks, calls.hash, returned, datasets)

    def _answer(self, submissions: Submissions) -> bool:
        """What the signal of the block said that was begun."""
        while True:
            message = self._inbox.get()
            if message is None or isinstance(message, Begin):
                raise _Abandoned(message)
            answer = submissions.receive(message)
            if answer is not None:
                return answer.value
