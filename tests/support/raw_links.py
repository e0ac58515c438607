"""Links whose messages a test makes up itself, as whoever it likes."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from sparrow_py.access.credentials import OPEN, Access
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from sparrow_py.wire.connector import Connector
from sparrow_py.wire.dial import dial as dial_link
from sparrow_py.wire.links import Link
from tests.support.waiting import TIMEOUT_S

NODE = m.NodeInfo(1, {}, {}, {"noop": ""}, "127.0.0.1:1")


def hello(role: str, user: str = "", name: str = "") -> m.Hello:
    """What a client or a node of one slot says."""
    return m.Hello(m.PROTOCOL_VERSION, role, name, user, "", NODE if role == "node" else None)


class RawLinks:
    """Links whose messages a test makes up itself. `async with RawLinks(address) as raw: link = await raw.dial(…)`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._open: list[Link] = []

    async def __aenter__(self) -> RawLinks:
        self._session = aiohttp.ClientSession(connector=Connector())
        return self

    async def __aexit__(self, *_: object) -> None:
        for link in self._open:
            await link.aclose("the test is over")
        await self._session.close()

    async def dial(self, first: m.Hello, access: Access = OPEN) -> RawLink:
        decode = m.FrameDecoder(m.ToNode if first.role == "node" else m.ToClient)
        link, welcome = await dial_link(
            self._session, self.address, first, decode, heartbeat_s=TIMEOUT_S, access=access
        )
        self._open.append(link)
        return RawLink(link, welcome)


def why_refused(address: str, access: Access) -> str:
    """Why ada cannot link with this, at once: a client would try again for a while."""

    async def dial() -> str:
        async with RawLinks(address) as raw:
            try:
                await raw.dial(hello("client", "ada"), access)
            except LinkError as error:
                return str(error)
        raise AssertionError(f"{access} was welcome")

    return asyncio.run(dial())


class RawLink:
    """One of them, and all that has come over it."""

    def __init__(self, link: Link, welcome: m.Welcome) -> None:
        self.welcome = welcome
        self.came: list[Any] = []
        self.send = link.send
        self._batches: asyncio.Queue[list[Any] | None] = asyncio.Queue()
        self._listening = asyncio.ensure_future(self._listen(link))

    async def _listen(self, link: Link) -> None:
        try:
            link.listen(self._batches.put_nowait)
            await link.ended()
        finally:
            self._batches.put_nowait(None)

    async def until(self, kind: type) -> Any:
        """The next message of this kind; `AssertionError` if the link ends without one."""
        async with asyncio.timeout(TIMEOUT_S):
            while (batch := await self._batches.get()) is not None:
                self.came += batch
                found = next((message for message in batch if type(message) is kind), None)
                if found is not None:
                    return found
        raise AssertionError(f"no {kind.__name__} came, but {self.came}")


def job_message(job: str, tasks: int = 1, epoch: int = 0) -> m.SubmitJob:
    """A job of no-ops."""
    stage = m.Stage("noop", tasks, b"", "", 2.0, 0, None)
    return m.SubmitJob(job, epoch, "", [stage], 3, False, None, False)
