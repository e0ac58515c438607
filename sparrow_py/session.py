"""The client's driver: links and timers around `client_core.ClientCore`, on an event loop."""

from __future__ import annotations

import asyncio
import getpass
import random
from collections.abc import Sequence
from typing import Any

import aiohttp

from sparrow_py import messages as m
from sparrow_py.addresses import check_source
from sparrow_py.client_core import ClientCore, ClientJob, Sink
from sparrow_py.clock import Clock, DeadlineTimer
from sparrow_py.dialling import Dialling
from sparrow_py.errors import InvalidOption, NoScheduler
from sparrow_py.job import JobSpec, check_name
from sparrow_py.options import check_token, read_token

CONNECT_TIMEOUT_S = 10.0
SUBMIT_TIMEOUT_S = 60.0
HEARTBEAT_S = 10.0


def check_sources(schedulers: str | Sequence[str]) -> list[str]:
    """The schedulers as a list of sources; `InvalidRequest` if one is none."""
    given = [schedulers] if isinstance(schedulers, str) else list(schedulers)
    sources = [part.strip() for source in given for part in source.split(",") if part.strip()]
    if not sources:
        raise InvalidOption("schedulers", schedulers, "at least one scheduler address")
    return [check_source(source) for source in sources]


class Session:
    """A client's links to its schedulers, and its jobs. All methods run on the loop that started it."""

    def __init__(
        self,
        schedulers: str | Sequence[str],
        *,
        user: str | None = None,
        token: str | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        submit_timeout_s: float = SUBMIT_TIMEOUT_S,
    ) -> None:
        self.sources = check_sources(schedulers)
        self.user = getpass.getuser() if user is None else user
        check_name("user", self.user, empty=False)
        self._token = read_token(None) if token is None else check_token("token", token)
        self._connect_timeout_s = connect_timeout_s
        self.core = ClientCore(random.Random(), self, submit_timeout_s=submit_timeout_s)
        self._clock = Clock()
        self._timer = DeadlineTimer(self._clock, self.core.next_deadline_s, self._tick)
        self._streams: set[asyncio.Task[None]] = set()
        self._connected: asyncio.Event | None = None
        self._session: aiohttp.ClientSession | None = None
        self._dialling: Dialling | None = None

    async def start(self) -> None:
        """Connect; `NoScheduler` if no scheduler answers within `connect_timeout_s`."""
        self._connected = asyncio.Event()
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        hello = m.Hello(m.PROTOCOL_VERSION, "client", "", self.user, self._token)
        self._dialling = Dialling(
            self.sources, hello, m.FrameDecoder(m.ToClient), self, self._session, heartbeat_s=HEARTBEAT_S
        )
        self._dialling.start()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connected.wait()
        except TimeoutError:
            last_error = self._dialling.last_error
            await self.stop()
            raise NoScheduler(f"no scheduler answered within {self._connect_timeout_s:g} s: {last_error}") from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close all links. Schedulers cancel what has not started."""
        self._timer.cancel()
        for stream in self._streams:
            stream.cancel()
        if self._dialling is not None:
            await self._dialling.stop("the client is done")
        if self._session is not None:
            await self._session.close()

    # ---- the user ----------------------------------------------------------------------------

    def submit(self, spec: JobSpec, sink: Sink) -> ClientJob:
        """Submit a job; its sink is told what becomes of it."""
        job = self.core.submit(spec, sink, self._clock())
        self._timer.update()
        return job

    def cancel_job(self, job_id: str) -> None:
        """Cancel what of the job has not started."""
        self.core.cancel_job(job_id, self._clock())

    def cancel_tasks(self, job_id: str, tasks: list[int]) -> None:
        """Cancel tasks that have not started."""
        self.core.cancel_tasks(job_id, tasks, self._clock())

    def now_s(self) -> float:
        """The session's clock."""
        return self._clock()

    # ---- the core's outbox -------------------------------------------------------------------

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Effect of the core."""
        assert self._dialling is not None
        link = self._dialling.links.get(scheduler)
        if link is not None:
            link.send(message)

    def stream(self, scheduler: str, job: ClientJob) -> None:
        """Effect of the core."""
        task = asyncio.ensure_future(self._stream(scheduler, job))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _stream(self, scheduler: str, job: ClientJob) -> None:
        assert self._dialling is not None
        link = self._dialling.links.get(scheduler)
        chunks = job.chunks  # Others, if the job is refused meanwhile and submitted again.
        for chunk in chunks:
            if link is None or job.chunks is not chunks or job.scheduler != scheduler or job.cancelled:
                return
            link.send(chunk)
            await link.drained()
        if job.chunks is chunks and job.scheduler == scheduler:
            self.core.streamed(job)

    # ---- links' events -----------------------------------------------------------------------

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        """Event of the dialling."""
        assert self._connected is not None
        self._connected.set()
        self.core.scheduler_up(scheduler, welcome.frame_bytes_max, self._clock())

    def scheduler_said(self, scheduler: str, batch: list[Any]) -> None:
        """Event of the dialling."""
        now_s, receive = self._clock(), self.core.receive
        for message in batch:
            receive(scheduler, message, now_s)
        self._timer.update()

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        """Event of the dialling."""
        self.core.scheduler_down(scheduler, reason, self._clock())
        self._timer.update()

    def _tick(self) -> None:
        self.core.tick(self._clock())
