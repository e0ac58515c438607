"""Schedulers are told how much of what they sent has been handled, so that they keep it no longer and send on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from sparrow_py.wire import messages as m

RECEIPT_DELAY_S = 0.1
"""So long a scheduler waits at most to be told. A frame for each of its frames would cost more than these do."""
RECEIPT_BYTES = 1 << 20
RECEIPT_MESSAGES = 2000
"""After so many bytes of results, or messages, it is told at once: it sends no more than a window ahead."""


class _Handled:
    """What one scheduler has sent."""

    __slots__ = ("bytes", "count", "timer", "told")

    def __init__(self) -> None:
        self.count = 0
        self.told = 0
        self.bytes = 0
        """Of results, since it was told."""
        self.timer: asyncio.TimerHandle | None = None


class Receipts:
    """Counts what each scheduler's link has brought, and says `Received` with `send`."""

    def __init__(self, send: Callable[[str, m.Message], None]) -> None:
        self._send = send
        self._by_scheduler: dict[str, _Handled] = {}

    def begin(self, scheduler: str) -> None:
        """A link to it stands."""
        self._by_scheduler[scheduler] = _Handled()

    def end(self, scheduler: str) -> None:
        """The link is gone."""
        handled = self._by_scheduler.pop(scheduler, None)
        if handled is not None and handled.timer is not None:
            handled.timer.cancel()

    def stop(self) -> None:
        """Say nothing more."""
        for scheduler in list(self._by_scheduler):
            self.end(scheduler)

    def handled(self, scheduler: str, batch: list[Any]) -> None:
        """These messages of it have been handled."""
        handled = self._by_scheduler.get(scheduler)
        if handled is None:  # It does not ask for that.
            return
        handled.count += len(batch)
        for message in batch:
            if type(message) is m.Outcome and type(message.result) is bytes:
                handled.bytes += len(message.result)
        if handled.bytes > RECEIPT_BYTES or handled.count - handled.told > RECEIPT_MESSAGES:
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
