"""Whatever comes over a link, that link alone is closed, with a reason; others on the scheduler notice nothing."""

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow_py import Client, LocalCluster
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support import tasks
from tests.support.daemons import http, nodes_of
from tests.support.waiting import TIMEOUT_S, wait_until

NODE = m.NodeInfo(1, {"cpu": 1.0}, {}, {"intruders": ""})
CLIENT_HELLO = m.Hello(m.PROTOCOL_VERSION, "client", "", "mallory", "")
NODE_HELLO = m.Hello(m.PROTOCOL_VERSION, "node", "intruder", "", "", NODE)
CUT_OFF = {1009, 1006}
"""WebSocket close codes: message too big; or none came, as the scheduler did not read what it refused."""


def frame(*messages: m.Message) -> bytes:
    return msgspec.msgpack.encode(list(messages))


def submission(job: str = "j", tasks: int = 2, **fields: Any) -> m.SubmitJob:
    stage = m.Stage("python", tasks, b"", "", fields.pop("probe_ratio", 2.0), fields.pop("prefetch", 0), None)
    values: dict[str, Any] = {"epoch": 0, "name": "", "stages": [stage], "max_attempts": 1, "retry_failed": False}
    values |= {"queue_timeout_s": None, "report_placed": False} | fields
    return m.SubmitJob(job, **values)


async def say(address: str, *frames: bytes | str) -> tuple[list[list[Any]], str, int | None]:
    """Send these frames; (messages that came back, as arrays, the Goodbye's reason, the close code)."""
    received: list[list[Any]] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://{address}/link") as ws:
        try:
            for sent in frames:
                await (ws.send_str(sent) if isinstance(sent, str) else ws.send_bytes(sent))
        except ConnectionError:
            pass  # Cut off before all was said.
        async with asyncio.timeout(TIMEOUT_S):
            async for message in ws:
                assert message.type is aiohttp.WSMsgType.BINARY
                received += msgspec.msgpack.decode(message.data)
        goodbyes = [message[1] for message in received if message[0] == tag(m.Goodbye)]
        return received, goodbyes[0] if goodbyes else "", ws.close_code


def tag(kind: type[m.Message]) -> object:
    """The first element of such messages."""
    return kind.__struct_config__.tag


@pytest.fixture
def bystander(cluster: LocalCluster) -> Iterator[Callable[[], None]]:
    """Another client: its job runs before and after, and another one during."""
    with Client(cluster, user="bystander") as client:
        expected = [x * x for x in range(20)]
        assert list(client.map(tasks.square, range(20))) == expected
        during = client.submit_calls(tasks.square, [(x,) for x in range(200)])

        def check() -> None:
            assert list(client.map(tasks.square, range(20))) == expected
            assert during.results(TIMEOUT_S) == [x * x for x in range(200)]
            assert {task.attempts for task in during.report().tasks} == {1}

        yield check


HANDSHAKES: dict[str, tuple[bytes | str, str]] = {
    "text": ("hello", "text frame"),
    "random bytes": (b"\xff\x00\x13", "malformed frame of 3 bytes"),
    "nothing": (b"", "malformed frame of 0 bytes"),
    "an empty frame": (frame(), "0 messages in the first frame; one is expected"),
    "two messages": (frame(CLIENT_HELLO, CLIENT_HELLO), "2 messages in the first frame; one is expected"),
    "no hello": (frame(m.CancelJob("j")), "malformed frame"),
    "a wrong version": (
        frame(m.Hello(999, "client", "", "mallory", "")),
        f"protocol version 999 is not spoken here; versions {m.PROTOCOL_VERSION_OLDEST} to {m.PROTOCOL_VERSION} are: "
        "upgrade the scheduler first",
    ),
    "a wrong role": (
        frame(m.Hello(m.PROTOCOL_VERSION, "king", "", "mallory", "")),
        "role: 'king' is not valid; allowed: client or node",
    ),
    "no user": (frame(m.Hello(m.PROTOCOL_VERSION, "client", "", "", "")), "user: '' is not valid"),
    "a user of 10 kB": (frame(m.Hello(m.PROTOCOL_VERSION, "client", "", "u" * 10_240, "")), "user: 'uuu"),
    "no node id": (frame(m.Hello(m.PROTOCOL_VERSION, "node", "", "", "", NODE)), "node id: '' is not valid"),
    "no node": (frame(m.Hello(m.PROTOCOL_VERSION, "node", "n", "", "")), "node: None is not valid"),
    "negative slots": (
        frame(m.Hello(m.PROTOCOL_VERSION, "node", "n", "", "", m.NodeInfo(-1, {}, {}, {}))),
        "slots: -1 is not valid",
    ),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_a_bad_handshake(cluster: LocalCluster, name: str) -> None:
    sent, expected = HANDSHAKES[name]
    received, reason, _ = await say(cluster.addresses[0], sent)
    assert len(received) == 1
    assert expected in reason
    assert len(reason) < 400


AS_CLIENT: dict[str, tuple[list[bytes | str], str]] = {
    "text": (["text"], "text frame"),
    "random bytes": ([b"\xde\xad\xbe\xef"], "malformed frame of 4 bytes"),
    "a second hello": ([frame(CLIENT_HELLO)], "malformed frame"),
    "a node monitor's message": ([frame(m.GetTasks(1, 1, 1))], "malformed frame"),
    "tasks out of order": ([frame(submission(), m.AddTasks("j", 1, [b""]))], "do not follow"),
    "tasks given twice": (
        [frame(submission("twice"), m.AddTasks("twice", 0, [b""])), frame(m.AddTasks("twice", 0, [b""]))],
        "each task must be given once, in order",
    ),
    "more tasks than announced": ([frame(submission(), m.AddTasks("j", 0, [b""] * 3))], "do not follow"),
    "too many tasks in a message": (
        [frame(submission("many", tasks=20_000), m.AddTasks("many", 0, [b""] * 10_001))],
        "10001 tasks in a message; at most 10000",
    ),
    "a task that is not there": ([frame(submission(), m.CancelTasks("j", [7]))], "there is no task 7"),
}


@pytest.mark.parametrize("name", AS_CLIENT)
async def test_a_client_that_breaks_the_protocol(
    cluster: LocalCluster, bystander: Callable[[], None], name: str
) -> None:
    frames, expected = AS_CLIENT[name]
    _, reason, _ = await say(cluster.addresses[0], frame(CLIENT_HELLO), *frames)
    assert expected in reason
    await asyncio.to_thread(bystander)


@pytest.mark.parametrize("hello", [[], [frame(CLIENT_HELLO)], [frame(NODE_HELLO)]])
async def test_a_frame_too_large(cluster: LocalCluster, bystander: Callable[[], None], hello: list[bytes]) -> None:
    _, reason, code = await say(cluster.addresses[0], *hello, bytes(3 << 20))
    assert code in CUT_OFF or "big" in reason or "size" in reason or "before a Hello was accepted" in reason
    await asyncio.to_thread(bystander)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"probe_ratio": math.nan}, "probe_ratio"),
        ({"probe_ratio": -1.0}, "probe_ratio"),
        ({"probe_ratio": math.inf}, "probe_ratio"),
        ({"prefetch": -1}, "prefetch"),
        ({"tasks": -1}, "task_count"),
        ({"tasks": 1 << 40}, "task_count"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"epoch": -1}, "epoch"),
        ({"queue_timeout_s": math.nan}, "queue_timeout_s"),
        ({"stages": []}, "stages"),
        ({"job": ""}, "job_id"),
        ({"job": "j" * 10_240}, "job_id"),
        ({"name": "a\nb"}, "name"),
    ],
)
async def test_a_bad_submission_is_refused_and_the_link_stands(
    cluster: LocalCluster, fields: dict[str, Any], field: str
) -> None:
    received, reason, _ = await say(cluster.addresses[0], frame(CLIENT_HELLO), frame(submission(**fields)), "over")
    ((_, job, why, named, retry_after_s),) = [message for message in received if message[0] == tag(m.JobRefused)]
    assert len(job) <= 256
    assert job[:64] == fields.get("job", "j")[:64] or not fields["job"]
    assert (named, retry_after_s) == (field, None)
    assert why.startswith(f"{field}: ")
    assert "text frame" in reason


AS_NODE: dict[str, tuple[list[bytes | str], str]] = {
    "text": (["text"], "text frame"),
    "random bytes": ([b"\xc1"], "malformed frame of 1 bytes"),
    "a client's message": ([frame(m.CancelJob("j"))], "malformed frame"),
    "a status that is none": ([b"\x91\x99\x2a\xa1j\x01\xa1x\xc4\x00\xa0\xc0\xc0\xa0\xa0"], "malformed frame"),
}


@pytest.mark.parametrize("name", AS_NODE)
async def test_a_node_monitor_that_breaks_the_protocol(
    cluster: LocalCluster, bystander: Callable[[], None], name: str
) -> None:
    frames, expected = AS_NODE[name]
    _, reason, _ = await say(cluster.addresses[0], frame(NODE_HELLO), *frames)
    assert expected in reason
    await asyncio.to_thread(bystander)
    await asyncio.to_thread(wait_until, lambda: "intruder" not in nodes_of(cluster.addresses[0]))


async def test_stale_reports_of_a_node_monitor_are_ignored(
    cluster: LocalCluster, bystander: Callable[[], None]
) -> None:
    stale = frame(
        m.Report("j", 0, 1, TaskStatus.FINISHED, b"", "", 1.0, 1.0),
        m.HandBack("j", 2, "why"),
        m.AttemptRuns("j", 3),
        m.ReservationsRefused(4, 5, "full"),
        m.GetTasks(6, 7, 1),
    )
    _, reason, _ = await say(cluster.addresses[0], frame(NODE_HELLO), stale, "over")
    assert "text frame" in reason
    await asyncio.to_thread(bystander)


client_messages = st.one_of(
    st.builds(
        submission,
        st.sampled_from(["a", "b"]),
        st.integers(-2, 5),
        probe_ratio=st.floats(),
        max_attempts=st.integers(-1, 3),
    ),
    st.builds(
        m.AddTasks, st.sampled_from(["a", "b", "c"]), st.integers(-2, 5), st.lists(st.binary(max_size=4), max_size=4)
    ),
    st.builds(m.CancelJob, st.sampled_from(["a", "b", "c"])),
    st.builds(m.CancelTasks, st.sampled_from(["a", "b", "c"]), st.lists(st.integers(-2, 6), max_size=3)),
    st.just(m.Goodbye("bye")),
)
node_messages = st.one_of(
    st.builds(m.GetTasks, st.integers(-1, 5), st.integers(-1, 5), st.integers(-2, 5)),
    st.builds(m.ReservationsRefused, st.integers(-1, 5), st.integers(-2, 5), st.just("x")),
    st.builds(m.HandBack, st.just("a"), st.integers(-1, 5), st.just("x")),
    st.builds(m.AttemptRuns, st.just("a"), st.integers(-1, 5)),
    st.just(m.NodeChanged(NODE)),
    st.just(m.NodeState("draining", "x")),
)
garbage = st.one_of(st.binary(max_size=64), st.text(max_size=8))
fuzz = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@fuzz
@given(st.lists(garbage, min_size=1, max_size=4))
def test_fuzz_handshakes(cluster: LocalCluster, frames: list[bytes | str]) -> None:
    assert asyncio.run(say(cluster.addresses[0], *frames))[1]


@fuzz
@given(st.lists(st.one_of(garbage, st.lists(client_messages, max_size=4).map(lambda batch: frame(*batch))), max_size=6))
def test_fuzz_clients(cluster: LocalCluster, frames: list[bytes | str]) -> None:
    assert asyncio.run(say(cluster.addresses[0], frame(CLIENT_HELLO), *frames, "over"))[1]


@fuzz
@given(st.lists(st.one_of(garbage, st.lists(node_messages, max_size=4).map(lambda batch: frame(*batch))), max_size=6))
def test_fuzz_node_monitors(cluster: LocalCluster, frames: list[bytes | str]) -> None:
    assert asyncio.run(say(cluster.addresses[0], frame(NODE_HELLO), *frames, "over"))[1]


def test_after_all_that_the_scheduler_works(cluster: LocalCluster, client: Client) -> None:
    assert http(cluster.addresses[0], "/livez") == (200, "ok\n")
    assert list(client.map(tasks.square, range(100))) == [x * x for x in range(100)]
    wait_until(lambda: set(nodes_of(cluster.addresses[0])) == {"node-0", "node-1"})
