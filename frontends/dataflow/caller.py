"""Calls programs in their own process, for controllers that command workers (planes `templates` and `central`).

Each epoch begins with a `Begin`, and calls a program from its start: blocks that a snapshot has are skipped, and what
it has printed is not shown again. The thread of the program waits here for answers, which the thread that takes what
comes hands over (`put`).
"""

from __future__ import annotations

import queue
import traceback
from collections.abc import Callable
from typing import Any

from frontends.dataflow.calls import SIGNALS_MAX, Block, Calls
from frontends.dataflow.commands import Answer, Unknown
from frontends.dataflow.control_messages import Begin, RunFailed, RunOver, Shipped
from frontends.dataflow.kept_classes import KeptClasses
from frontends.dataflow.printed_here import PrintedHere
from frontends.dataflow.printed_lines import PrintedLines
from frontends.dataflow.shipping import ProgramHere, unpack_definition, unpack_program
from frontends.dataflow.submissions import Submissions
from sparrow_py.exception_pickling import encode_exception

Handed = Begin | Answer | Unknown


class _Abandoned(BaseException):
    """The call is over: another epoch has begun, or the run has ended."""

    def __init__(self, begin: Begin | None) -> None:
        self.begin = begin


class Caller:
    """Of one run of a program, and of those before that have to be run again."""

    def __init__(
        self,
        shipped: Callable[[int], Shipped],
        send: Callable[[Any], None],
        lines: PrintedLines,
        *,
        is_templated: bool,
    ) -> None:
        """`shipped` has the runs by number; `send` sends to the controller; `lines` knows what was printed before."""
        self._shipped, self._send, self._lines, self._is_templated = shipped, send, lines, is_templated
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
        printed = PrintedHere(self._lines, begin.run)
        try:
            with printed.shown():
                over = self._over(begin, printed)
        except (_Abandoned, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.error = error
            text = "".join(traceback.format_exception(error))
            self._send(RunFailed(begin.epoch, encode_exception(error, text)))
        else:
            self._send(over)

    def _over(self, begin: Begin, printed: PrintedHere) -> RunOver:
        """What the program returns in this epoch."""
        shipped = self._shipped(begin.run)
        here = ProgramHere(unpack_definition(shipped.definition))
        submissions = Submissions(
            here.definition, self._send, is_templated=self._is_templated, epoch=begin.epoch, first_block=begin.until
        )

        def run_block(block: Block) -> bool:
            submissions.begin(block)
            try:
                return self._answer(submissions)
            except _Abandoned as abandoned:
                printed.is_left = abandoned.begin is not None
                raise

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
