"""What a client may try, no node monitor's link pays for: its own is closed, and others' tasks go on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sparrow_py import CallOptions, Client, LocalCluster, calls
from sparrow_py.wire import messages as m
from tests.conftest import SLOTS
from tests.support import tasks
from tests.support.daemons import nodes_of
from tests.support.waiting import TIMEOUT_S, wait_until

FRAME_MAX = m.FRAME_BYTES_MAX + m.MESSAGE_OVERHEAD_BYTES
"""The largest frame that a scheduler reads."""
TO_CLIENT = msgspec.msgpack.Decoder(list[m.Welcome | m.ToClient])


def frame(*messages: m.Message) -> bytes:
    return msgspec.msgpack.encode(list(messages))


class Attacker:
    """A client that says what it likes."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._ws = ws
        self.received: list[Any] = []

    async def say(self, *frames: bytes) -> None:
        for sent in frames:
            await self._ws.send_bytes(sent)

    async def hear(self, kind: type[m.Message]) -> Any:
        """The next message of the kind, once it has come; all that come are in `received`."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                batch = TO_CLIENT.decode((await self._ws.receive()).data)
                self.received += batch
                for message in batch:
                    if isinstance(message, kind):
                        return message


@asynccontextmanager
async def attacker_of(address: str) -> AsyncIterator[Attacker]:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://{address}/link", max_msg_size=0) as ws:
        attacker = Attacker(ws)
        await attacker.say(frame(m.Hello(m.PROTOCOL_VERSION, "client", "", "mallory", "")))
        await attacker.hear(m.Welcome)
        yield attacker


def held(job: str, gate: Path, mark: str) -> bytes:
    """A job with one task that waits for the gate."""
    common = calls.encode_function(tasks.hold, capture_output=False)
    stage = m.Stage(calls.APP, 1, common, calls.RUNTIME, 2.0, 0, None)
    submission = m.SubmitJob(job, 0, "", [stage], 1, False, None, False)
    return frame(submission, m.AddTasks(job, 0, [calls.encode_arguments((gate, mark), {})]))


@pytest.fixture
def bystander(cluster: LocalCluster, gate: Path) -> Iterator[Callable[[], None]]:
    """Another client's tasks hold a slot of every node monitor: were one's link to break, they would start again."""
    marks = [f"bystander{number}" for number in range(SLOTS - 1)]
    with Client(cluster, user="bystander") as client:
        job = client.submit_calls(tasks.hold, [(gate, mark) for mark in marks], options=CallOptions(max_attempts=5))
        wait_until(lambda: tasks.started(gate, *marks), "all slots but one to be held")

        def check() -> None:
            gate.touch()
            assert job.results(TIMEOUT_S) == marks
            assert {task.attempts for task in job.report().tasks} == {1}
            assert {task.node for task in job.report().tasks} == set(nodes_of(cluster.addresses[0]))
            assert client.gather([client.submit(tasks.square, x) for x in range(20)]) == [x * x for x in range(20)]

        yield check
        gate.touch()


async def test_a_payload_that_fits_the_frame_from_the_client_and_none_to_a_node(
    cluster: LocalCluster, bystander: Callable[[], None]
) -> None:
    stage = m.Stage("noop", 1, b"", "", 1.0, 0, None)
    submission = m.SubmitJob("large", 0, "", [stage], 1000, False, None, False)
    overhead = len(frame(m.AddTasks("large", 0, [bytes(1 << 20)]))) - (1 << 20)
    largest = frame(m.AddTasks("large", 0, [bytes(FRAME_MAX - overhead - 1)]))
    assert len(largest) == FRAME_MAX - 1
    async with attacker_of(cluster.addresses[0]) as attacker:
        await attacker.say(frame(submission), largest)
        goodbye = await attacker.hear(m.Goodbye)
    assert "job large: a payload of" in goodbye.reason
    assert f"at most {m.FRAME_BYTES_MAX - m.MESSAGE_OVERHEAD_BYTES}" in goodbye.reason
    await asyncio.to_thread(bystander)


async def test_common_bytes_that_fit_no_frame_to_a_node_are_refused(
    cluster: LocalCluster, bystander: Callable[[], None]
) -> None:
    stage = m.Stage("noop", 1, bytes(m.FRAME_BYTES_MAX), "", 1.0, 0, None)
    async with attacker_of(cluster.addresses[0]) as attacker:
        await attacker.say(frame(m.SubmitJob("wide", 0, "", [stage], 1, False, None, False)))
        refused = await attacker.hear(m.JobRefused)
    assert (refused.job, refused.field, refused.retry_after_s) == ("wide", "common", None)
    await asyncio.to_thread(bystander)


async def test_a_million_cancels_in_a_message(cluster: LocalCluster, bystander: Callable[[], None], gate: Path) -> None:
    async with attacker_of(cluster.addresses[0]) as attacker:
        await attacker.say(held("j" * 200, gate, "attacker"))
        await asyncio.to_thread(wait_until, lambda: tasks.started(gate, "attacker"))
        await attacker.say(frame(m.CancelTasks("j" * 200, [0] * 1_000_000)))
        goodbye = await attacker.hear(m.Goodbye)
    assert "1000000 tasks in a message; at most 10000" in goodbye.reason
    await asyncio.to_thread(bystander)


async def test_cancels_of_one_task_repeated_are_one_question_to_its_node(
    cluster: LocalCluster, bystander: Callable[[], None], gate: Path
) -> None:
    async with attacker_of(cluster.addresses[0]) as attacker:
        await attacker.say(held("j", gate, "attacker"))
        await asyncio.to_thread(wait_until, lambda: tasks.started(gate, "attacker"))
        await attacker.say(frame(m.CancelTasks("j", [0] * 10_000)))
        await attacker.hear(m.NotCancelled)
        gate.touch()
        await attacker.hear(m.JobEnded)
    assert [m.NotCancelled("j", 0)] == [said for said in attacker.received if isinstance(said, m.NotCancelled)]
    await asyncio.to_thread(bystander)


async def test_a_job_cancelled_again_and_again_is_cancelled_once(
    cluster: LocalCluster, bystander: Callable[[], None], gate: Path
) -> None:
    async with attacker_of(cluster.addresses[0]) as attacker:
        await attacker.say(held("j", gate, "attacker"))
        await asyncio.to_thread(wait_until, lambda: tasks.started(gate, "attacker"))
        await attacker.say(*[frame(*[m.CancelJob("j")] * 10_000)] * 3)
        await attacker.hear(m.NotCancelled)
        gate.touch()
        await attacker.hear(m.JobEnded)
    assert [m.NotCancelled("j", 0)] == [said for said in attacker.received if isinstance(said, m.NotCancelled)]
    await asyncio.to_thread(bystander)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost", "null"])
async def test_web_pages_cannot_dial(cluster: LocalCluster, origin: str) -> None:
    """A browser lets any page dial loopback, and says which one does."""
    url = f"http://{cluster.addresses[0]}/link"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(url, headers={"Origin": origin})
    assert caught.value.status == 403
