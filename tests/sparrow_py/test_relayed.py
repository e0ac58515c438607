"""How a client within a task keeps its link through the node monitor, which a stand-in plays here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparrow_py.errors import NoScheduler, ResultLost
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.session.relayed import RelayedLink, RelayedSession, Relaying
from sparrow_py.session.session import SUBMIT_TIMEOUT_S
from sparrow_py.wire import messages as m
from sparrow_py.wire.outgoing import Outgoing
from tests.support.linked import until


@dataclass
class Task:
    """The task whose client it is."""

    socket_path: str
    run: int = 1
    client_key: bytes = b"key"


@dataclass
class Told:
    """What the session is told, in its order."""

    events: list[tuple[str, ...]] = field(default_factory=list)

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        self.events.append(("up", scheduler))

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        self.events.append(("down", scheduler))

    def unreachable(self, scheduler: str) -> None:
        self.events.append(("unreachable", scheduler))


async def test_the_scheduler_before_is_given_up_once_another_has_the_task(tmp_path: Path) -> None:
    """Its jobs would wait for it to come back, though the task itself has moved."""
    schedulers = iter(["s1", "s1", "s2"])
    writers: list[asyncio.StreamWriter] = []

    async def node_monitor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter, said = x.FrameSplitter(x.FROM_EXECUTOR), list[Any]()
        while len(said) < 2:
            said += splitter.feed(await reader.read(1 << 16))
        assert said[0] == x.TaskClientHello(x.EXECUTOR_PROTOCOL_VERSION, 1, b"key")
        welcome = m.Welcome(m.PROTOCOL_VERSION, next(schedulers), m.FRAME_BYTES_MAX, user="ada")
        writer.write(x.encode_frame([x.ClientFrame(m.one_message_frame(welcome))]))
        writers.append(writer)

    told, path = Told(), str(tmp_path / "socket")
    async with await asyncio.start_unix_server(node_monitor, path):
        relaying = Relaying(
            Task(path), m.Hello(m.PROTOCOL_VERSION, "client", "task", "", ""), told, Outgoing(),
            all_dialled=lambda: None, denied=lambda: None, unreachable=told.unreachable, made=lambda socket: None,
        )  # type: ignore[arg-type]  # fmt: skip
        relaying.start()
        for ups in (1, 2, 3):
            await until(lambda ups=ups: sum(event[0] == "up" for event in told.events) == ups)
            if ups < 3:
                writers[-1].close()
        await relaying.stop("over")
        writers[-1].close()
    first = [("up", "s1"), ("down", "s1"), ("up", "s1"), ("down", "s1")]
    assert told.events[:6] == [*first, ("up", "s2"), ("unreachable", "s1")]


class Writer:
    """Of a connection, which keeps what is written to it."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def write(self, frames: bytes) -> None:
        while frames:
            (length,) = x.HEADER.unpack_from(frames)
            self.frames.append(frames[: x.HEADER_BYTES + length])
            frames = frames[x.HEADER_BYTES + length :]


async def test_what_is_sent_together_goes_in_frames_as_large_as_the_scheduler_takes() -> None:
    writer, outgoing = Writer(), Outgoing()
    link = RelayedLink(writer, outgoing)  # type: ignore[arg-type]
    link.frame_bytes_max = 20_000
    for number in range(10):
        link.send(m.AddTasks("j", number, [bytes(15_000)]))
    link.flush_hurried()
    assert len(writer.frames) == 10
    assert max(map(len, writer.frames)) <= 20_000 + m.MESSAGE_OVERHEAD_BYTES


@pytest.mark.parametrize("submit_timeout_s", [0.02, SUBMIT_TIMEOUT_S])
async def test_a_client_within_a_task_waits_for_a_scheduler_as_long_as_its_jobs_do(
    tmp_path: Path, submit_timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler that has the task may be away just then, which is no failure of the task's."""
    waited: list[float | None] = []
    timeout = asyncio.timeout

    def timeout_at_once(after_s: float | None) -> asyncio.Timeout:
        waited.append(after_s)
        return timeout(0)

    monkeypatch.setattr("sparrow_py.session.session.asyncio.timeout", timeout_at_once)
    session = RelayedSession(Task(str(tmp_path / "nobody")), submit_timeout_s=submit_timeout_s)  # type: ignore[arg-type]
    with pytest.raises(NoScheduler, match=f"within {submit_timeout_s:g} s"):
        await session.start()
    assert waited == [submit_timeout_s]


async def test_a_result_is_fetched_though_the_scheduler_dies_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node monitor closes the connection with its scheduler, and has the data all the same."""
    monkeypatch.setattr("sparrow_py.session.relayed.LINK_PAUSE_S", 0.001)
    content = tmp_path / "content"
    asked: list[x.FetchData] = []

    async def node_monitor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = x.FrameSplitter(x.FROM_EXECUTOR)
        welcome = m.Welcome(m.PROTOCOL_VERSION, "s", m.FRAME_BYTES_MAX, user="ada")
        writer.write(x.encode_frame([x.ClientFrame(m.one_message_frame(welcome))]))
        while data := await reader.read(1 << 16):
            for question in splitter.feed(data):
                if not isinstance(question, x.FetchData):
                    continue
                asked.append(question)
                if len(asked) == 1:
                    writer.close()
                    return
                if len(asked) == 3:  # At the second one the file is gone with the connection.
                    content.write_bytes(b"large")
                file = x.File(str(content), 5, "ab") if question.hash == "ab" else None
                answer = x.DataFetched(question.number, file, "" if file else "no node has them")
                writer.write(x.encode_frame([answer]))
        writer.close()

    path = str(tmp_path / "socket")
    async with await asyncio.start_unix_server(node_monitor, path):
        session = RelayedSession(Task(path))  # type: ignore[arg-type]
        await session.start()
        assert await session.download(BlobRef("ab", 5, ("n:1",))) == b"large"
        assert len(asked) == 3
        with pytest.raises(ResultLost, match="no node has them"):
            await session.download(BlobRef("cd", 5, ("n:1",)))
        assert len(asked) == 4
        await session.stop()


async def test_a_result_is_lost_if_no_scheduler_comes_in_time(tmp_path: Path) -> None:
    session = RelayedSession(Task(str(tmp_path / "nobody")), submit_timeout_s=0.0)  # type: ignore[arg-type]
    with pytest.raises(NoScheduler):
        await session.start()
    with pytest.raises(ResultLost, match="no scheduler can be reached"):
        await session.download(BlobRef("ab", 5, ("n:1",)))
