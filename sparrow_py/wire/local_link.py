"""A link within this process, for a frontend that runs its scheduler itself (Sparrow §6.1): no socket, no encoding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sparrow_py.wire import messages as m


class LocalLink:
    """One direction of it: what is sent is delivered as one batch in the loop's next turn, as over a `Link`."""

    def __init__(self, peer: str, deliver: Callable[[list[Any]], None]) -> None:
        self.peer = peer
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._queued: list[m.Message] = []
        self._closed = False

    def send(self, message: m.Message) -> None:
        """Queue a message; after the link has closed it is dropped."""
        if self._closed:
            return
        if not self._queued:
            self._loop.call_soon(self._flush)
        self._queued.append(message)

    def _flush(self) -> None:
        batch, self._queued = self._queued, []
        if not self._closed:
            self._deliver(batch)

    async def drained(self) -> None:
        """Let the other side take what was sent."""
        await asyncio.sleep(0)

    def close(self, reason: str = "") -> None:
        """Deliver nothing more."""
        self._closed = True

    async def aclose(self, reason: str = "") -> None:
        """As `close`."""
        self.close(reason)
