"""Schedulers are told how many of their messages were handled: they keep these no longer, and send further ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from sparrow_py.wire import messages as m

RECEIPT_DELAY_S = 0.1
"""A scheduler waits no longer than that for a receipt. A receipt for each of its frames would cost more."""
RECEIPT_BYTES = 250_000
RECEIPT_MESSAGES = 400
"""After so many bytes of outcomes, or so many messages, a scheduler has a receipt at once, as it sends no more than a
window ahead. The smallest window, of a scheduler with the smallest `link_backlog_bytes_max`, has more of the one or the
other: else each window would take `RECEIPT_DELAY_S`."""


class _Handled:
    """The messages of one scheduler since its link stands."""

    __slots__ = ("bytes", "count", "timer", "told")

    def __init__(self) -> None:
        self.count = 0
        self.told = 0
        """The count in the last receipt."""
        self.bytes = 0
        """Bytes of outcomes since the last receipt."""
        self.timer: asyncio.TimerHandle | None = None
        """Until the next receipt, if one is due."""


class Receipts:
    """Counts the messages of each scheduler's link, and sends receipts (`Received`) by `send`."""

    def __init__(self, send: Callable[[str, m.Message], None]) -> None:
        self._send = send
        self._by_scheduler: dict[str, _Handled] = {}

    def begin(self, scheduler: str) -> None:
        """A link to this scheduler stands, which wants receipts."""
        self._by_scheduler[scheduler] = _Handled()

    def end(self, scheduler: str) -> None:
        """The link to this scheduler is gone."""
        handled = self._by_scheduler.pop(scheduler, None)
        if handled is not None and handled.timer is not None:
            handled.timer.cancel()

    def stop(self) -> None:
        """Send the last receipts: what a client that attached to a job has had, no other is to be told."""
        for scheduler, handled in list(self._by_scheduler.items()):
            if handled.count > handled.told:
                self._tell(scheduler, handled)
            self.end(scheduler)

    def handled(self, scheduler: str, batch: list[Any], *, at_once: bool = False) -> None:
        """These messages of the scheduler have been handled. at_once: the receipt is not to wait for others."""
        handled = self._by_scheduler.get(scheduler)
        if handled is None:  # The scheduler wants no receipts.
            return
        handled.count += len(batch)
        for message in batch:
            if type(message) is m.Outcome:
                handled.bytes += _size(message)
        if at_once or handled.bytes > RECEIPT_BYTES or handled.count - handled.told > RECEIPT_MESSAGES:
            self._tell(scheduler, handled)
        elif handled.timer is None:
            loop = asyncio.get_running_loop()
            handled.timer = loop.call_later(RECEIPT_DELAY_S, partial(self._tell, scheduler, handled))

    def _tell(self, scheduler: str, handled: _Handled) -> None:
        if handled.timer is not None:
            handled.timer.cancel()
            handled.timer = None
        handled.told, handled.bytes = handled.count, 0
        self._send(scheduler, m.Received(handled.count))


def _size(outcome: m.Outcome) -> int:
    """About how many bytes the outcome has: those of a command may be in its output alone."""
    texts = len(outcome.error) + len(outcome.stdout) + len(outcome.stderr)
    return texts + (len(outcome.result) if type(outcome.result) is bytes else 0)
