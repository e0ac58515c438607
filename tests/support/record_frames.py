"""Record how the protocols of this version look, for the tests of later versions to be held against:

    python -m tests.support.record_frames

writes `tests/data/protocol-vN` and `tests/data/executor-protocol-vN` unless they are there: run it before
`PROTOCOL_VERSION` or `EXECUTOR_PROTOCOL_VERSION` is raised, and commit what it wrote.

`schema.json`: the shapes of all messages. `frames.jsonl`: two frames of each. `conversation.jsonl` (between daemons):
what a client, a scheduler and a node monitor said to each other over two jobs.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from frontends.synthetic.tasks import encode_duration
from sparrow_py import AsyncClient, JobSpec, StageSpec, TaskSpec, TaskStatus
from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import messages as m
from sparrow_py.wire.links import LINK_PATH
from tests.support.daemons import Daemon
from tests.support.wire import RECORDED, describe, examples, members_of, plain

DIRECTIONS: dict[str, Any] = {
    "Hello": m.Hello,
    "Answer": m.Welcome | m.Goodbye,
    "FromClient": m.FromClient,
    "ToClient": m.ToClient,
    "FromNode": m.FromNode,
    "ToNode": m.ToNode,
}
"""What is said on a link: its first frame, the answer, and all that follows."""
EXECUTOR_DIRECTIONS: dict[str, Any] = {"FromExecutor": x.FromExecutor, "ToExecutor": x.ToExecutor}


def frames(directions: dict[str, Any], encodings: Iterable[x.Encoding]) -> list[dict[str, Any]]:
    """A line for each frame: what it says, and its bytes."""
    return [
        {
            "direction": direction, "message": kind.__name__, "variant": variant, "encoding": encoding.name,
            "fields": plain(message), "frame": encoding.encoder.encode([message]).hex(),
        }
        for direction, union in directions.items()
        for kind in members_of(union)
        for variant, message in examples(kind).items()
        for encoding in encodings
    ]  # fmt: skip


class Relay:
    """Stands between a scheduler and those who dial it, and writes down every frame of both."""

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler
        self.lines: list[dict[str, Any]] = []

    async def until(self, link: str, kind: type[m.Message]) -> None:
        """Wait for a message of this kind to a dialler."""
        tag = kind.__struct_config__.tag
        while not any(
            message[0] == tag
            for line in self.lines
            if line["link"] == link and line["said_by"] == "scheduler"
            for message in msgspec.msgpack.decode(bytes.fromhex(line["frame"]))
        ):
            await asyncio.sleep(0.005)

    async def link(self, request: web.Request) -> web.WebSocketResponse:
        """A dial: dial the scheduler, and pass everything on."""
        near = web.WebSocketResponse(compress=False)
        await near.prepare(request)
        first = await near.receive_bytes()
        (hello,) = msgspec.msgpack.decode(first, type=list[m.Hello])
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://{self._scheduler}{LINK_PATH}") as far,
        ):
            self._note(hello.role, "dialler", first)
            await far.send_bytes(first)
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pass_on(hello.role, "dialler", near, far)),
                    asyncio.ensure_future(self._pass_on(hello.role, "scheduler", far, near)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            await near.close()
        return near

    async def _pass_on(self, link: str, said_by: str, source: Any, sink: Any) -> None:
        async for frame in source:
            try:
                await sink.send_bytes(frame.data)
            except aiohttp.ClientConnectionResetError:
                return  # It has gone, and hears this no more.
            self._note(link, said_by, frame.data)

    def _note(self, link: str, said_by: str, frame: bytes) -> None:
        self.lines.append({"link": link, "said_by": said_by, "frame": frame.hex()})


async def conversation() -> list[dict[str, Any]]:
    """A job of two stages runs to its end, another is stopped while it runs; one client, one node of one slot."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        with await asyncio.to_thread(Daemon, "scheduler", log=log) as scheduler:
            relay = Relay(scheduler.address)
            app = web.Application()
            app.add_routes([web.get(LINK_PATH, relay.link)])
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            address = "{}:{}".format(*runner.addresses[0])
            flags = ["--scheduler", address, "--slots", "1", "--node-id", "node"]
            with await asyncio.to_thread(lambda: Daemon("node_monitor", *flags, log=log)):
                async with AsyncClient(address, user="ann") as client:
                    await two_jobs(client, relay.until("client", m.Placed))
            await runner.cleanup()
    return relay.lines


async def two_jobs(client: AsyncClient, second_runs: Awaitable[None]) -> None:
    """The client's part: a job that finishes, and one that is stopped when it runs."""
    nap = encode_duration(0.001)
    first = StageSpec([nap, nap], name="first", app="sleep", common=b"of all")
    second = StageSpec([TaskSpec(nap, inputs=["first"])], name="second", app="sleep", after=["first"])
    job = client.submit_job(JobSpec(stages=[first, second], job_id="finishes"))
    assert await job.results() == [b"", b"", b""]
    assert {task.node for task in (await job.report()).tasks} == {"node"}
    long = JobSpec([encode_duration(1000.0)], app="sleep", job_id="stopped", report_placed=True)
    stopped = client.submit_job(long)
    await second_runs
    stopped.cancel(running=True)
    assert (await stopped.report()).count(TaskStatus.CANCELLED) == 1


def write(directory: Path, schema: dict[str, Any], **files: list[dict[str, Any]]) -> None:
    """Write what was recorded of a protocol."""
    directory.mkdir(parents=True)
    (directory / "schema.json").write_text(json.dumps(schema, indent=1) + "\n")
    for name, lines in files.items():
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{directory}: {', '.join(f'{len(lines)} lines of {name}' for name, lines in files.items())}")


def main() -> None:
    """Record what is not recorded yet."""
    directory = RECORDED / f"protocol-v{m.PROTOCOL_VERSION}"
    if not directory.exists():
        said = asyncio.run(conversation())
        write(directory, describe(DIRECTIONS), frames=frames(DIRECTIONS, [x.MSGPACK]), conversation=said)
    directory = RECORDED / f"executor-protocol-v{x.EXECUTOR_PROTOCOL_VERSION}"
    if not directory.exists():
        lines = frames(EXECUTOR_DIRECTIONS, [x.MSGPACK, x.JSON])
        write(directory, describe(EXECUTOR_DIRECTIONS), frames=lines)


if __name__ == "__main__":
    main()
