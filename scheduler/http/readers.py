"""Readers of a job's results: how many there may be, and the stream of lines that each of them gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from scheduler.http.job import HttpJob
from scheduler.http.jobs import BUSY_RETRY_S
from scheduler.http.result_lines import lines_from
from sparrow_py.http import http_guard
from sparrow_py.http.http_api import NDJSON_TYPE
from sparrow_py.limits.seats import Seats

READERS_MAX = 1000
"""Streams of results at a time."""
READS_AT_ONCE_MAX = 4
"""Readers that get lines in one turn of the loop, one of a user at most: whoever reads as fast as lines are written
leaves others their turns, however many connections that is."""
READER_CHECK_S = 5.0
"""How often to look whether a reader that waits for lines has gone."""


class Readers:
    """All readers of results at this scheduler."""

    def __init__(self, readers_max: int) -> None:
        self.seats = Seats("READERS_MAX", min(READERS_MAX, readers_max), "readers of results are connected")
        self._reads = Seats("READS_AT_ONCE_MAX", READS_AT_ONCE_MAX, "readers read at a time")
        self._unread: dict[str, dict[asyncio.Transport, None]] = {}
        """By holder of seats: the connections of readers that have not read all they were sent, the slowest first."""

    async def serve(
        self, request: web.Request, job: HttpJob, holder: str, stands: Callable[[], bool]
    ) -> web.StreamResponse:
        """Answer with the job's lines. `stands`: whether the reader's token has not been withdrawn."""
        self._cut_unread(holder)
        async with self.seats.taken(holder, BUSY_RETRY_S):
            with http_guard.seated(request):
                response = web.StreamResponse(headers={"Content-Type": NDJSON_TYPE, "Cache-Control": "no-store"})
                await response.prepare(request)
                with _changes(request, job) as changed:
                    await self._stream(request, response, job, holder, changed, stands)
                return response

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        job: HttpJob,
        holder: str,
        changed: asyncio.Event,
        stands: Callable[[], bool],
    ) -> None:
        """Write the job's lines as they come, until the job ends, the reader goes or its token is withdrawn."""
        position = 0
        try:
            while not job.gone and request.transport is not None:
                if not stands():
                    request.transport.abort()
                    return
                changed.clear()
                async with self._reads.taken(holder):
                    await asyncio.sleep(0)
                    batch, position = lines_from(job, position)
                if batch:
                    with self._unread_by(holder, request.transport):
                        await response.write(batch)
                elif job.ended_at_s is not None:
                    await response.write_eof()
                    return
                else:
                    await _wait(changed)
        except ConnectionError:
            pass  # The reader has gone.

    # ---- readers that do not read ------------------------------------------------------------

    @contextmanager
    def _unread_by(self, holder: str, transport: asyncio.Transport) -> Iterator[None]:
        """A reader of the holder's has not read what it was sent until the block ends."""
        unread = self._unread.setdefault(holder, {})
        unread[transport] = None
        try:
            yield
        finally:
            del unread[transport]
            if not unread:
                self._unread.pop(holder, None)

    def _cut_unread(self, holder: str) -> None:
        """Make room for one more reader: if the holder has no seat, cut the reader that has not read for longest."""
        unread = self._unread.get(holder)
        if unread and self.seats.why_not(holder):
            next(iter(unread)).abort()


@contextmanager
def _changes(request: web.Request, job: HttpJob) -> Iterator[asyncio.Event]:
    """An event that is set when the job changes.

    When the job's lines go, the connection is cut, even if its reader does not read: a stream that breaks off is known
    to lack lines.
    """
    changed = asyncio.Event()

    def tell() -> None:
        changed.set()
        if job.gone and request.transport is not None:
            request.transport.abort()

    job.watchers.add(tell)
    try:
        yield changed
    finally:
        job.watchers.discard(tell)


async def _wait(changed: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(READER_CHECK_S):
            await changed.wait()
    except TimeoutError:
        pass
