"""What a program prints that several workers call, and call again from its start after a failure: once, in its order.

A program does the same each time, so each worker numbers the pieces of text that the program prints, from 0 on in each
run and on each stream, and sends all of them. Of pieces with the same number the first one that comes is shown. As each
worker sends from the first piece on, there are no gaps. The same holds of calls of a program in its own process, one
after the other (`printed_here.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from frontends.dataflow.control_messages import OF_A_TASK, Printed


class PrintedLines:
    """Which pieces have been shown, of runs that may be run again."""

    def __init__(self) -> None:
        self._shown: dict[int, dict[bool, int]] = {}
        """How many, by run and stream."""

    def keep(self, runs: Iterable[int]) -> None:
        """These runs may be run; what still comes of others is not shown."""
        self._shown = {run: self._shown.get(run, {False: 0, True: 0}) for run in runs}

    def is_new(self, message: Printed) -> bool:
        """Whether to show it. What tasks print is new each time that they run."""
        return message.number == OF_A_TASK or self.is_next(message.run, message.number, is_error=message.is_error)

    def is_next(self, run: int, number: int, *, is_error: bool) -> bool:
        """Whether the piece of a run's program was not shown so far; then it is from now on."""
        shown = self._shown.get(run)
        if shown is None or number < shown[is_error]:
            return False
        shown[is_error] = number + 1
        return True
