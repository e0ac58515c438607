"""Whatever bytes there are: a parser gives a value or its own error, and what it gave can be written and read again."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from loadgen.traces import as_json, parse_lines
from scheduler.http.submissions import read_job
from scheduler.options import SchedulerOptions
from sparrow_py.access.principals import SECRET_CHARS_MIN
from sparrow_py.access.secret_files import read_tokens
from sparrow_py.daemon.options import parse
from sparrow_py.errors import InvalidOption, InvalidRequest, LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.http.http_guard import host_of, is_known
from sparrow_py.job import TaskStatus
from sparrow_py.logs.printable import printable
from sparrow_py.wire import messages as m
from sparrow_py.wire.addresses import check_source
from sparrow_py.wire.websocket import FrameReader, WebSocketError
from tests.fuzz.conftest import Fuzzing
from tests.support.raw import BINARY, CLOSE, CONTINUATION, PING, ws_frame

EXAMPLES = 80
"""A round."""
STAGE = m.Stage("noop", 1, b"", "", 1.0, 0, None)
FRAMES = [
    msgspec.msgpack.encode([m.CancelJob("j"), m.CancelTasks("j", [1, 2]), m.AddTasks("j", 0, [b"x", b""])]),
    msgspec.msgpack.encode([m.SubmitJob("j", 0, "", [STAGE], 1, False, None, False)]),
    msgspec.msgpack.encode([m.Reserve(1, "j", 0, "u", 1.0, 0, "noop", 1, 0, None), m.Launch(1, "j", 0, 0, 1, b"")]),
    msgspec.msgpack.encode([m.Report("j", 0, 1, TaskStatus.FINISHED, b"", "", 1.0, 1.0), m.GetTasks(1, 2, 3)]),
    msgspec.msgpack.encode([m.Hello(m.PROTOCOL_VERSION, "node", "n", "", "", m.NodeInfo(1, {"cpu": 1.0}, {}, {}))]),
    msgspec.msgpack.encode([m.Welcome(m.PROTOCOL_VERSION, "s", 1 << 20)]),
]  # fmt: skip
UNIONS = [m.FromClient, m.ToClient, m.FromNode, m.ToNode, m.Hello, m.Welcome | m.Goodbye]
EXECUTOR = [
    x.ExecutorHello(1, "", "noop", 1, "", 1),
    x.Done(1, TaskStatus.FINISHED, b"r", "", 1.0, 1.0),
    x.Returned([1]),
]
JOBS = [
    b'{"app":"noop","tasks":[{"payload":1},{"payload_base64":"AA=="}],"where":["zone == eu"],"demand":{"gpu":1}}',
    b'{"stages":[{"name":"a","app":"noop","tasks":[{}]},{"name":"b","app":"noop","after":["a"],"tasks":[{"inputs":["a"]}]}]}',
]  # fmt: skip
TRACES = [
    b'{"arrival_s": 0, "durations_s": [1, 2], "user": "u", "where": ["a == b"], "preferred": [[1], []]}\n',
    b'{"arrival_s": 0, "stages": [{"name": "a", "durations_s": [1]}, {"name": "b", "durations_s": [1]}]}',
    b"0.5 2 1.0 0.5 1.5\n# nothing\n",
]
TOML = [b'host = "127.0.0.1"\nuser_weight = ["a=1"]\nclients_max = 5\n', b"probe_sharing = false\nheartbeat_s = 1.5\n"]

Change = tuple[str, int, bytes]
changes: st.SearchStrategy[list[Change]] = st.lists(
    st.tuples(st.sampled_from(["put", "cut", "insert", "twice"]), st.integers(0, 1 << 16), st.binary(max_size=8)),
    max_size=6,
)


def changed(data: bytes, changes: list[Change]) -> bytes:
    """The bytes with each of the changes made."""
    changing = bytearray(data)
    for what, where, other in changes:
        at = where % (len(changing) + 1)
        if what == "put":
            changing[at : at + len(other)] = other
        elif what == "insert":
            changing[at:at] = other
        elif what == "cut":
            del changing[at : at + len(other)]
        else:
            changing[at:at] = changing[:at]
    return bytes(changing[: 1 << 16])


def almost(valid: list[bytes]) -> st.SearchStrategy[bytes]:
    """Something like what is right, or nothing like it."""
    return st.one_of(st.builds(changed, st.sampled_from(valid), changes), st.binary(max_size=300))


def fuzz(fuzzing: Fuzzing, check: Callable[..., None], *strategies: st.SearchStrategy[Any]) -> None:
    """Call `check` with examples, round after round."""

    def play(number: int) -> None:
        run = settings(
            max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, Phase.shrink],
        )(given(*strategies)(check))  # fmt: skip
        seed(number)(run)()

    fuzzing.each(play)


def test_frames_of_links(fuzzing: Fuzzing) -> None:
    def check(body: bytes, union: Any) -> None:
        decode = m.FrameDecoder(union)
        try:
            messages = decode(body)
        except LinkError:
            return
        again = decode(msgspec.msgpack.encode(messages))
        assert repr(again) == repr(messages)  # Not ==: there may be NaN in it.

    fuzz(fuzzing, check, almost(FRAMES), st.sampled_from(UNIONS))


@pytest.mark.parametrize("encoding", [x.MSGPACK, x.JSON], ids=lambda encoding: encoding.name)
def test_streams_of_executors(fuzzing: Fuzzing, encoding: x.Encoding) -> None:
    """However they are cut, they give the same messages, or none."""
    valid = [bytes(x.encode_frame([message], encoding)) for message in EXECUTOR]

    def read(pieces: list[bytes]) -> str:
        splitter, messages = x.FrameSplitter(), list[Any]()
        try:
            for piece in pieces:
                messages += splitter.feed(piece)
        except LinkError:
            return "error"
        return repr(messages)

    def check(parts: list[bytes], cuts: list[int]) -> None:
        stream = b"".join(parts)
        edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
        assert read([stream[a:b] for a, b in itertools.pairwise(edges)]) == read([stream])

    fuzz(fuzzing, check, st.lists(almost(valid), max_size=4), st.lists(st.integers(0, 1 << 16), max_size=5))


def test_streams_of_websockets(fuzzing: Fuzzing) -> None:
    """However they are cut, they give the same messages and control frames, and the same error."""
    valid = [
        ws_frame(BINARY, b"message"),
        ws_frame(BINARY, bytes(200)),
        ws_frame(BINARY, b"a", fin=False) + ws_frame(PING, b"p") + ws_frame(CONTINUATION, b"b"),
        ws_frame(CLOSE, b"\x03\xe8why"),
        ws_frame(BINARY, b"not masked", mask=False),
    ]

    def read(pieces: list[bytes], masked: bool) -> str:
        reader, events = FrameReader(masked=masked, message_bytes_max=1000), list[Any]()
        try:
            for piece in pieces:
                reader.feed(piece)
                while (event := reader.read()) is not None:
                    events.append(event if isinstance(event, tuple) else bytes(event))
        except WebSocketError as error:
            events.append((error.code, str(error)))
        return repr(events)

    def check(parts: list[bytes], cuts: list[int], masked: bool) -> None:
        stream = b"".join(parts)
        edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
        assert read([stream[a:b] for a, b in itertools.pairwise(edges)], masked) == read([stream], masked)

    cuts = st.lists(st.integers(0, 1 << 16), max_size=5)
    fuzz(fuzzing, check, st.lists(almost(valid), max_size=4), cuts, st.booleans())


def test_bodies_of_jobs(fuzzing: Fuzzing) -> None:
    def check(body: bytes) -> None:
        try:
            _, spec = read_job(body, 1 << 20)
        except InvalidRequest as error:
            assert error.field
            assert len(str(error)) < 1000
            return
        spec.validate()

    fuzz(fuzzing, check, almost(JOBS))


def test_traces(fuzzing: Fuzzing) -> None:
    def check(text: bytes) -> None:
        try:
            jobs = parse_lines("trace", text.decode("utf-8", "replace").splitlines())
        except InvalidOption:
            return
        for job in jobs:
            orjson.loads(as_json(job))

    fuzz(fuzzing, check, almost(TRACES))


def test_options_in_toml(fuzzing: Fuzzing, tmp_path: Path) -> None:
    file = tmp_path / "options.toml"

    def check(text: bytes) -> None:
        file.write_bytes(text)
        try:
            parse(SchedulerOptions, ["--config", str(file)])
        except click.ClickException as error:
            assert error.format_message()

    fuzz(fuzzing, check, almost(TOML))


def test_tokens(fuzzing: Fuzzing, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)

    def check(text: bytes) -> None:
        file.write_bytes(text)
        try:
            tokens = read_tokens(str(file), {})
        except InvalidOption as error:
            words = text.decode("utf-8", "replace").split()
            assert not any(word in str(error) for word in words if len(word) >= SECRET_CHARS_MIN)
            return
        assert len(tokens)
        if tokens.shown:
            assert len(tokens.shown) >= SECRET_CHARS_MIN
            assert tokens.find(tokens.shown) is not None

    usual = b"# ours\ncluster " + b"c" * 32 + b"\nclient ada sha256:" + b"0f" * 32 + b"\nclient bob " + b"b" * 40
    fuzz(fuzzing, check, almost([b"t" * 32, b" " + b"t" * 64 + b"\n", usual]))


def test_hosts_and_addresses(fuzzing: Fuzzing) -> None:
    def check(text: str) -> None:
        host = host_of(text)
        assert not is_known(f"{host}.evil.example", ["queue"])
        assert printable(text).isprintable()
        try:
            check_source(text)
        except InvalidRequest:
            return
        assert text

    text = st.one_of(st.text(max_size=40), st.from_regex(r"\A[a-z0-9.\[\]:%-]{0,40}\Z"))
    fuzz(fuzzing, check, text)
