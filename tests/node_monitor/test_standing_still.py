"""A node monitor that stood still longer than its peers wait looks before it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from node_monitor.daemon import NodeMonitorDaemon
from node_monitor.options import NodeMonitorOptions
from sparrow_py.daemon.options import parse
from sparrow_py.wire import messages as m
from sparrow_py.wire.links import LINK_PATH
from tests.support.recorder import reserve
from tests.support.waiting import TIMEOUT_S


class Dialled:
    """A scheduler's end of a link: what has come, and what is sent."""

    def __init__(self, ws: web.WebSocketResponse) -> None:
        self._ws = ws
        self.heard: asyncio.Queue[Any] = asyncio.Queue()

    async def say(self, *messages: m.Message) -> None:
        await self._ws.send_bytes(msgspec.msgpack.encode(messages))

    async def hear(self, kind: type[m.Message]) -> Any:
        """The next message of this kind."""
        while not isinstance(message := await self.heard.get(), kind):
            pass
        return message


@asynccontextmanager
async def scheduler() -> AsyncIterator[tuple[str, asyncio.Queue[Dialled]]]:
    """A scheduler that says what the test says: its address, and the links that node monitors dial."""
    dialled: asyncio.Queue[Dialled] = asyncio.Queue()
    decode = m.FrameDecoder(m.FromNode)

    async def link(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.receive_bytes()
        end = Dialled(ws)
        await end.say(m.Welcome(m.PROTOCOL_VERSION, "s", m.FRAME_BYTES_MAX))
        dialled.put_nowait(end)
        async for frame in ws:
            if frame.type is WSMsgType.BINARY:
                for message in decode(frame.data):
                    end.heard.put_nowait(message)
        return ws

    app = web.Application()
    app.add_routes([web.get(LINK_PATH, link)])
    async with TestServer(app) as server:
        yield f"127.0.0.1:{server.port}", dialled


def pushed(number: int) -> list[m.Message]:
    """A task that is pushed to the node: it starts at once if a slot is free."""
    return [
        m.Common("j", 0, b""),
        m.Launch(0, "j", 0, number, number, b"", (), number),
        reserve(number, job="j", app="noop"),
    ]


async def test_what_was_sent_before_is_not_started_and_the_link_is_dialled_again() -> None:
    """Its scheduler has counted that as lost, and may have started it elsewhere."""
    async with scheduler() as (address, dialled), asyncio.timeout(TIMEOUT_S):
        flags = ["--port", "0", "--scheduler", address, "--node-id", "n", "--slots", "1", "--warm", "noop"]
        daemon = NodeMonitorDaemon(parse(NodeMonitorOptions, flags))
        await daemon.start()
        try:
            before = await dialled.get()
            await before.say(*pushed(1))
            assert (await before.hear(m.Report)).task == 1
            daemon._standstill._alive_s -= 2 * daemon.options.heartbeat_s
            await before.say(*pushed(2))
            assert "stood still" in (await before.hear(m.Goodbye)).reason
            after = await dialled.get()
            await after.say(*pushed(3))
            assert (await after.hear(m.Report)).task == 3
            assert daemon.nodes[0].core.counters.started == 2
        finally:
            await daemon.stop()
