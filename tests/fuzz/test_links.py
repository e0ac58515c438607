"""Links on which anything is said, right and wrong: as a client and as a node to a scheduler, as a scheduler to a node
monitor. The daemon lives, serves an honest client, and says why when it closes a link."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from sparrow_py import Client, JobSpec
from sparrow_py.wire import messages as m
from tests.fuzz.conftest import Fuzzing
from tests.fuzz.speaking import Speaker, kinds
from tests.support.daemons import Daemon, get_json, node_of, nodes_of
from tests.support.waiting import TIMEOUT_S, wait_until

TALKS = 12
"""Links in a round."""
TURNS = 25
"""Frames said on a link, at most."""
FAKE_TALKS = 4
"""Links of a node monitor to false schedulers in a round."""
NODE = m.NodeInfo(2, {"cpu": 1.0}, {}, {"noop": ""})
TO_PEER = {
    role: msgspec.msgpack.Decoder(list[m.Welcome | said]) for role, said in (("client", m.ToClient), ("node", m.ToNode))
}  # type: ignore[valid-type]
FROM_PEER = {"client": kinds(m.FromClient), "node": kinds(m.FromNode)}
FROM_NODE = msgspec.msgpack.Decoder(list[m.FromNode])

Socket = aiohttp.ClientWebSocketResponse | web.WebSocketResponse


class Talk:
    """One end of a link that says what the speaker makes up."""

    def __init__(self, ws: Socket, speaker: Speaker, decoder: Any, kinds: list[type], initiatives: list[Any]) -> None:
        self._ws = ws
        self._speaker = speaker
        self._decoder = decoder
        self._kinds = kinds
        self._initiatives = initiatives
        """What an honest one says unasked."""
        self._to_answer: list[Any] = []
        self.goodbye: str | None = None
        self.closed = False

    @property
    def knows_why(self) -> bool:
        """Whether the other side said why it closed the link, or could not be heard as this side wrote on."""
        return self.goodbye is not None or self._ws.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE

    async def hold(self, turns: int) -> None:
        """Speak so often, listening all the while; then go, with or without goodbye."""
        listening = asyncio.create_task(self._listen())
        try:
            for _ in range(turns):
                if self.closed:
                    break
                await self._say(self._next())
                await asyncio.sleep(self._speaker.random.choice((0, 0, 0.001, 0.005)))
            if self._speaker.random.random() < 0.5:
                await self._say([m.Goodbye("enough")])
            else:
                await self._say_raw(b"\xc1")  # Then the other side ends it, and says why.
            async with asyncio.timeout(TIMEOUT_S):
                await listening
        finally:
            listening.cancel()
            await self._ws.close()

    def _next(self) -> list[m.Message]:
        chance = self._speaker.random.random()
        if self._to_answer and chance < 0.5:
            return [answer for message in self._to_answer for answer in self._speaker.answer(message)]
        if self._initiatives and chance < 0.8:
            made: list[m.Message] = self._speaker.random.choice(self._initiatives)()
            return made
        return [self._speaker.make(self._speaker.random.choice(self._kinds)) for _ in range(1 + int(chance * 4))]

    async def _say(self, messages: list[m.Message]) -> None:
        self._to_answer.clear()
        if messages:
            await self._say_raw(self._speaker.encoded(messages))

    async def _say_raw(self, frame: bytes) -> None:
        try:
            await self._ws.send_bytes(frame)
        except (ConnectionError, aiohttp.ClientError, RuntimeError):
            self.closed = True

    async def _listen(self) -> None:
        async for frame in self._ws:
            assert frame.type is aiohttp.WSMsgType.BINARY, frame
            self._speaker.hear(msgspec.msgpack.decode(frame.data))
            for message in self._decoder.decode(frame.data):  # What a daemon says is always of the protocol.
                if isinstance(message, m.Goodbye):
                    self.goodbye = message.reason
                self._to_answer.append(message)
            del self._to_answer[:-20]
        self.closed = True


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    log = tmp_path_factory.mktemp("scheduler") / "log"
    flags = ("--client-grace-s", "0.2", "--audit-log", str(log.with_name("audit")), "--history-len-max", "1000")
    with Daemon("scheduler", *flags, log=log) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def node(scheduler: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with node_of(scheduler.address, tmp_path_factory.mktemp("node") / "log", slots=4) as daemon:
        yield daemon


def check(scheduler: Daemon, node: Daemon, name: str = "n") -> None:
    """The daemons live, nothing of theirs went wrong, and an honest client's job runs on the honest node."""
    with Client(scheduler.address, user="honest") as client:
        job = client.submit_job(JobSpec([b""] * 20, app="noop", where=[f"node == {name}"], wait_for_nodes_s=TIMEOUT_S))
        assert len(job.results(TIMEOUT_S)) == 20
    for daemon in (scheduler, node):
        assert daemon.process.poll() is None
        get_json(daemon.address, "/openapi.json")
        assert "Traceback" not in daemon.log.read_text(), daemon.log.read_text()[-5000:]


async def talk_to_scheduler(address: str, speaker: Speaker) -> None:
    role = speaker.random.choice(("client", "node"))
    hello = m.Hello(m.PROTOCOL_VERSION, role, f"fuzz{speaker.random.randrange(3)}", "fuzz", "", NODE)
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://{address}/link", max_msg_size=0) as ws:
        await ws.send_bytes(msgspec.msgpack.encode([hello]))
        talk = Talk(ws, speaker, TO_PEER[role], FROM_PEER[role], [speaker.job] if role == "client" else [])
        await talk.hold(speaker.random.randint(0, TURNS))
        assert talk.knows_why, f"{ws.close_code}"


async def talk_at_once(address: str, seed: int) -> None:
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as talks:
        for number in range(TALKS):
            talks.create_task(talk_to_scheduler(address, Speaker(seed * TALKS + number)))


def test_peers_of_a_scheduler(fuzzing: Fuzzing, scheduler: Daemon, node: Daemon) -> None:
    def play(seed: int) -> None:
        asyncio.run(talk_at_once(scheduler.address, seed))
        wait_until(lambda: not any(name.startswith("fuzz") for name in nodes_of(scheduler.address)))
        check(scheduler, node)

    fuzzing.each(play)
    wait_until(lambda: not get_json(scheduler.address, "/v1/jobs")["jobs"], "all jobs of those who went to end")


@asynccontextmanager
async def fake_scheduler(speaker: Speaker, talks: list[Talk]) -> AsyncIterator[str]:
    """A scheduler that says what it likes; its address."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=0)
        await ws.prepare(request)
        hello = m.FrameDecoder(m.Hello)((await ws.receive()).data)
        assert hello[0].role == "node"
        await ws.send_bytes(msgspec.msgpack.encode([m.Welcome(m.PROTOCOL_VERSION, f"fake{id(ws)}", 1 << 20)]))
        talk = Talk(ws, speaker, FROM_NODE, kinds(m.ToNode), [speaker.reserve])
        await talk.hold(TURNS)
        talks.append(talk)
        return ws

    app = web.Application()
    app.add_routes([web.get("/link", serve)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


@pytest.mark.rest
def test_schedulers_of_a_node_monitor(fuzzing: Fuzzing, scheduler: Daemon, tmp_path: Path) -> None:
    addresses = tmp_path / "addresses"
    addresses.write_text(scheduler.address)
    flags = ("--scheduler", f"file:{addresses}", "--slots", "4", "--node-id", "m", "--get-task-timeout-s", "0.1")

    async def schedulers(seed: int) -> None:
        talks: list[Talk] = []
        async with fake_scheduler(Speaker(seed), talks) as one, fake_scheduler(Speaker(seed + 1), talks) as two:
            addresses.write_text(f"{scheduler.address}\n{one}\n{two}\n")
            with Daemon("node_monitor", *flags, log=tmp_path / "log") as node:
                await asyncio.to_thread(wait_until, lambda: len(talks) >= FAKE_TALKS, f"links of {node.log}")
                await asyncio.to_thread(check, scheduler, node, "m")
        assert all(talk.knows_why for talk in talks)

    fuzzing.each(lambda seed: asyncio.run(schedulers(seed)))
