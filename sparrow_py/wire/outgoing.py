"""What links have been given to send during an event leaves when the event ends: a frame per peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol


class Sender(Protocol):
    """A link."""

    loop: asyncio.AbstractEventLoop
    first: bool
    """Whether what it has to send leaves before what others have."""

    def flush_hurried(self) -> None:
        """Send what is queued, if it has not been sent meanwhile."""


class Outgoing:
    """The links of a process, or of a loop, that have something to send.

    An event is what comes over a link or from an executor, or a timer that is due: drivers put `begin` and `end`
    around what they do for it. What is sent outside any event leaves at the end of the loop's turn.
    """

    __slots__ = ("_depth", "_first", "_others", "_soon")

    def __init__(self) -> None:
        self._depth = 0
        """Events that have begun and not ended: one may be within another."""
        self._first: list[Sender] = []
        self._others: list[Sender] = []
        self._soon = False
        """Whether the loop will call `flush`."""

    def begin(self) -> None:
        """An event has begun."""
        self._depth += 1

    def end(self) -> None:
        """The event has ended: send what it led to."""
        self._depth -= 1
        if not self._depth and (self._first or self._others):
            self.flush()

    def event(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """A function that handles an event, with `begin` and `end` around it."""

        def within(*args: Any) -> Any:
            self.begin()
            try:
                return handle(*args)
            finally:
                self.end()

        return within

    def add(self, link: Sender) -> None:
        """The link has something to send. It may be added again."""
        (self._first if link.first else self._others).append(link)
        if not self._depth and not self._soon:
            self._soon = True
            link.loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._soon = False
        self.flush()

    def flush(self) -> None:
        """Send what all links have: those that go first before the others."""
        while self._first or self._others:
            first, self._first = self._first, []
            for link in first:
                link.flush_hurried()
            others, self._others = self._others, []
            for link in others:
                link.flush_hurried()
