"""A peer of the protocol's previous version: plays its side of a recorded conversation against today's code.

It reads and writes by the recorded schema alone. It says what was recorded, with the numbers that today's side chose
(tickets, asks, attempts, …) in place of the recorded ones, and before each of its messages has heard all that was
heard before it in the recording. Anything that it cannot decode is an error.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from sparrow_py.wire.links import LINK_PATH
from tests.support.waiting import TIMEOUT_S
from tests.support.wire import plain, recorded_lines, recorded_schema

IDENTIFIERS = ("ticket", "ask", "attempt", "instance")
SAME = ("job", "task", "stage", "status", "result", "error", "running", "payload", "inputs", "data", "reason")
"""Fields that today's side must fill as the previous version did."""
HINTS = ("Idle",)
"""Messages that may come more or less often."""


class Recording:
    """A conversation. `side` is who is played: "dialler" (client and node monitor) or "scheduler"."""

    def __init__(self, protocol: str, side: str) -> None:
        self.schema = recorded_schema(protocol)
        self._side = side
        self._lines = recorded_lines(protocol, "conversation.jsonl")
        self._live: dict[tuple[str, Any], Any] = {}
        """What today's side calls what was recorded under another number."""
        self._links: dict[str, asyncio.Future[_PlayedLink]] = defaultdict(asyncio.get_running_loop().create_future)

    def linked(self, link: _PlayedLink) -> None:
        """A link of this role ("client" or "node") stands."""
        self._links[link.role].set_result(link)

    async def play(self) -> None:
        """Say what was recorded; `AssertionError` if today's side does not do its part."""
        first: set[tuple[str, str]] = set()
        for line in self._lines:
            role, said_by = line["link"], line["said_by"]
            direction = _direction(role, said_by, first=(role, said_by) not in first)
            first.add((role, said_by))
            link = await asyncio.wait_for(self._links[role], TIMEOUT_S)
            messages = self.schema.decode(direction, bytes.fromhex(line["frame"]))
            if said_by == self._side:
                await link.say([self._translated(message) for message in messages])
                continue
            for message in messages:
                if type(message).__name__ not in HINTS:
                    self._heard(message, await link.hear(type(message).__name__))

    def _translated(self, message: Any) -> Any:
        known = {name: getattr(message, name) for name in IDENTIFIERS if name in message.__struct_fields__}
        live = {name: self._live.get((name, value), value) for name, value in known.items()}
        return msgspec.structs.replace(message, **live)

    def _heard(self, recorded: Any, live: Any) -> None:
        for name in recorded.__struct_fields__:
            if name in IDENTIFIERS:
                self._live[name, getattr(recorded, name)] = getattr(live, name)
            elif name in SAME:
                assert plain(getattr(live, name)) == plain(getattr(recorded, name)), (name, recorded, live)


def _direction(role: str, said_by: str, *, first: bool) -> str:
    if said_by == "dialler":
        return "Hello" if first else f"From{role.capitalize()}"
    return "Answer" if first else f"To{role.capitalize()}"


class _PlayedLink:
    """A played peer's end of a link: everything that comes is decoded, and kept until it is asked for."""

    def __init__(self, schema: Any, role: str, hears: str, ws: Any) -> None:
        self.role = role
        self._schema = schema
        self._hears = hears
        self._ws = ws
        self._kept: list[Any] = []

    async def say(self, messages: list[Any]) -> None:
        """In one frame, as recorded: today's side decides what to do when it has read the whole of it."""
        await self._ws.send_bytes(msgspec.msgpack.encode(messages))

    async def hear(self, kind: str) -> Any:
        """The next message of this kind."""
        while True:
            for message in self._kept:
                if type(message).__name__ == kind:
                    self._kept.remove(message)
                    return message
            frame = await asyncio.wait_for(self._ws.receive(), TIMEOUT_S)
            assert frame.type is aiohttp.WSMsgType.BINARY, f"{frame} in place of {kind}; heard: {self._kept}"
            self.keep(self._schema.decode(self._hears, frame.data))

    def keep(self, messages: list[Any]) -> None:
        """These have come."""
        assert messages, "a frame without messages"
        self._kept += messages
        if self._hears == "Answer":
            self._hears = f"To{self.role.capitalize()}"


async def dial(recording: Recording, session: aiohttp.ClientSession, scheduler: str) -> None:
    """Dial a scheduler of today as a client, and as a node monitor."""
    for role in ("client", "node"):
        ws = await session.ws_connect(f"http://{scheduler}{LINK_PATH}")
        recording.linked(_PlayedLink(recording.schema, role, "Answer", ws))


class PlayedScheduler:
    """A scheduler of the previous version, for today's clients and node monitors to dial. `address` is where."""

    def __init__(self, recording: Recording, version: int) -> None:
        self._recording = recording
        self._version = version
        self._over = asyncio.Event()
        self.address = ""
        self.refused = 0
        """Dials that were answered with a Goodbye."""

    async def __aenter__(self) -> PlayedScheduler:
        app = web.Application()
        app.add_routes([web.get(LINK_PATH, self._link)])
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = "{}:{}".format(*self._runner.addresses[0])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._runner.cleanup()

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        schema = self._recording.schema
        (hello,) = schema.decode("Hello", await ws.receive_bytes())
        if hello.version != self._version:
            self.refused += 1
            why_not = f"protocol version {hello.version} is not spoken here; {self._version} is"
            await ws.send_bytes(msgspec.msgpack.encode([schema.kinds["Goodbye"](why_not)]))
            return ws
        link = _PlayedLink(schema, hello.role, f"From{hello.role.capitalize()}", ws)
        link.keep([hello])
        self._recording.linked(link)
        await self._over.wait()
        return ws
