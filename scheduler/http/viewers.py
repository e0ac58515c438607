"""People who look at a scheduler live: server-sent events, one state a second for each of them.

A state is bounded (`cluster_state`), and the next is written only when the one before has been read, so who reads
slowly sees fewer of them and costs less. Who does not read at all is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from scheduler.http.cluster_state import Roster, StateFeed
from scheduler.http.jobs import BUSY_RETRY_S
from sparrow_py.access.principals import Principal
from sparrow_py.http import http_guard
from sparrow_py.limits.seats import Seats

VIEWERS_MAX = 64
"""Streams of states at a time."""
STATE_S = 1.0
"""From one state to the next."""
UNREAD_S_MAX = 30.0
"""Who has not read a state in so long is cut off."""
RETRY_MS = 2_000
"""When browsers try again that have lost the stream."""
EVENTS_TYPE = "text/event-stream"


class Viewers:
    """All who look. `clock`: the scheduler's."""

    def __init__(self, feed: StateFeed, clock: Callable[[], float], viewers_max: int) -> None:
        self.seats = Seats(
            "VIEWERS_MAX", max(1, min(VIEWERS_MAX, viewers_max // 4)), "people look at this scheduler live"
        )
        self._feed = feed
        self._clock = clock
        self._closed = asyncio.Event()

    def close(self) -> None:
        """The scheduler ends: whoever looks is told so."""
        self._closed.set()

    async def serve(
        self, request: web.Request, principal: Principal, search: str, holder: str, stands: Callable[[], bool]
    ) -> web.StreamResponse:
        """Answer with states until the viewer goes, or what it has shown (`stands`) is withdrawn."""
        async with self.seats.taken(holder, BUSY_RETRY_S):
            with http_guard.seated(request):
                response = web.StreamResponse(headers={"Content-Type": EVENTS_TYPE, "Cache-Control": "no-store"})
                await response.prepare(request)
                try:
                    await self._stream(request, response, principal, search, stands)
                except (ConnectionError, TimeoutError):
                    if request.transport is not None:
                        request.transport.abort()
                return response

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        principal: Principal,
        search: str,
        stands: Callable[[], bool],
    ) -> None:
        roster: Roster | None = None
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        while not self._closed.is_set() and request.transport is not None:
            if not stands():
                await response.write(b"event: withdrawn\ndata: {}\n\n")
                return
            state = self._feed.of(principal, search, self.now_s())
            if self._feed.roster is not roster:
                roster = self._feed.roster
                await self._write(response, b"roster", msgspec.json.encode(roster))
            await self._write(response, b"state", state)
            await self._pause()
        await response.write(b"event: ends\ndata: {}\n\n")

    def now_s(self) -> float:
        """The time in whole intervals, so that all who look in the same one share its state."""
        return self._clock() // STATE_S * STATE_S

    async def _write(self, response: web.StreamResponse, event: bytes, data: bytes) -> None:
        async with asyncio.timeout(UNREAD_S_MAX):
            await response.write(b"event: %s\ndata: %s\n\n" % (event, data))  # JSON has no line breaks.

    async def _pause(self) -> None:
        now_s = self._clock()
        try:
            async with asyncio.timeout(STATE_S - now_s % STATE_S + 0.01):
                await self._closed.wait()
        except TimeoutError:
            pass
