"""Frames between a node monitor and its executors: any bytes give messages or `LinkError`, in bounded memory."""

import contextlib
import errno
import itertools
import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.executors.executor_files import load, read, store, using
from sparrow_py.job import TaskStatus

FROM_EXECUTOR: list[x.ExecutorMessage] = [
    x.ExecutorHello(x.EXECUTOR_PROTOCOL_VERSION, "python-1", "python", 1, "3.11", 4711),
    x.Done(7, TaskStatus.FINISHED, b"result", "", 1.5, 0.25, "out", "err"),
    x.Done(8, TaskStatus.FAILED, b"", "why", 1.5, 0.0),
    x.Done(9, TaskStatus.FINISHED, x.File("/files/ä", 1 << 40, "ab" * 32), "", 1.5, 0.0),
    x.Returned([1, 2, 3]),
]
TO_EXECUTOR: list[x.ExecutorMessage] = [
    x.Run(1, 2, b"payload"), x.Run(2, 0, x.File("/f", 2, "cd" * 32), [b"input", x.File("/g", 3, "ef" * 32)]),
    x.Common(2, b"function"), x.Common(3, x.File("/h", 4, "01" * 32)), x.ForgetCommon(2), x.Revoke([1]), x.Kill([1, 2]),
]  # fmt: skip
ENCODINGS = [x.MSGPACK, x.JSON]
encodings = st.sampled_from(ENCODINGS)

frames = st.lists(st.lists(st.sampled_from(FROM_EXECUTOR), max_size=4), max_size=5)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data in pieces, cut at these places."""
    places = [0, *sorted(place % (len(data) + 1) for place in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(frames, st.lists(st.integers(0, 1 << 16), max_size=12), encodings)
def test_messages_come_out_however_the_stream_is_cut(
    batches: list[list[x.ExecutorMessage]], cuts: list[int], encoding: x.Encoding
) -> None:
    stream = b"".join(x.encode_frame(batch, encoding) for batch in batches)
    splitter = x.FrameSplitter()
    received = [message for piece in cut(stream, cuts) for message in splitter.feed(piece)]
    assert received == [message for batch in batches for message in batch]
    assert splitter.feed(b"") == []
    assert not batches or splitter.encoding is encoding


def test_one_byte_at_a_time() -> None:
    splitter = x.FrameSplitter()
    stream = bytes(x.encode_frame(FROM_EXECUTOR)) * 2
    assert [m for byte in stream for m in splitter.feed(bytes([byte]))] == FROM_EXECUTOR * 2


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes_give_messages_or_link_error(pieces: list[bytes]) -> None:
    splitter = x.FrameSplitter()
    with contextlib.suppress(LinkError):
        for piece in pieces:
            for message in splitter.feed(piece):
                assert isinstance(message, x.ExecutorMessage)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_body_gives_messages_or_link_error(body: bytes) -> None:
    with contextlib.suppress(LinkError):
        x.FrameSplitter().feed(x.HEADER.pack(len(body)) + body)


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from(FROM_EXECUTOR + TO_EXECUTOR), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4),
    st.lists(st.integers(0, 1 << 16), max_size=4),
    encodings,
)
def test_mutated_frames_give_messages_or_link_error(
    batch: list[x.ExecutorMessage], changes: list[tuple[int, int]], cuts: list[int], encoding: x.Encoding
) -> None:
    frame = x.encode_frame(batch, encoding)
    for place, byte in changes:
        frame[place % len(frame)] = byte
    splitter = x.FrameSplitter()
    with contextlib.suppress(LinkError):
        for piece in cut(bytes(frame), cuts):
            splitter.feed(piece)


@pytest.mark.parametrize("start", [b"\x91", b"["])
def test_deep_nesting_is_a_link_error(start: bytes) -> None:
    body = start * 100_000
    with pytest.raises(LinkError, match="malformed executor frame"):
        x.FrameSplitter().feed(x.HEADER.pack(len(body)) + body)


@pytest.mark.parametrize("body", [b"\xc3", b"\x91\x92\x63\x00", b"\x91\x92\x03\xc0", b"\x91\xc0", b"", b"\x90\x90"])
def test_what_is_no_frame(body: bytes) -> None:
    with pytest.raises(LinkError, match="malformed executor frame"):
        x.FrameSplitter().feed(x.HEADER.pack(len(body)) + body)


@pytest.mark.parametrize(
    "body",
    [
        b"[", b"[]]", b"[[3]]", b"[[3,[1.5]]]", b"[[99]]", b"[null]", b'[[3,[1]]]x', b"[[3,NaN]]",
        b'[[2,1,"finished","not base64","",1,0]]', b'[[2,1,"finished","","\\ud800",1,0]]',
        b'[[2,1,"finished","","\xff",1,0]]', b'[[2,1,"finished","","",1e999,0]]', b'[[2,1,"perhaps","","",1,0]]',
    ],
)  # fmt: skip
def test_what_is_no_json_frame(body: bytes) -> None:
    with pytest.raises(LinkError, match=r"malformed executor frame \(JSON\)"):
        x.FrameSplitter().feed(x.HEADER.pack(len(body)) + body)


@pytest.mark.parametrize(("first", "then"), [ENCODINGS, ENCODINGS[::-1]], ids=["msgpack", "JSON"])
def test_the_encoding_is_that_of_the_first_frame(first: x.Encoding, then: x.Encoding) -> None:
    splitter = x.FrameSplitter()
    assert splitter.feed(x.encode_frame(FROM_EXECUTOR, first)) == FROM_EXECUTOR
    with pytest.raises(LinkError, match=rf"malformed executor frame \({first.name}\)"):
        splitter.feed(x.encode_frame(FROM_EXECUTOR, then))


def test_json_is_what_a_standard_library_makes_of_it() -> None:
    body = bytes(x.encode_frame([TO_EXECUTOR[0], TO_EXECUTOR[1]], x.JSON)[x.HEADER_BYTES :])
    assert json.loads(body) == [
        [10, 1, 2, "cGF5bG9hZA==", [], "", 0, False, ""],
        [10, 2, 0, ["/f", 2, "cd" * 32], ["aW5wdXQ=", ["/g", 3, "ef" * 32]], "", 0, False, ""],
    ]
    body = json.dumps([[2, 7, "failed", "aGk=", "wäs", 1, 0.5], [2, 8, "finished", ["/f", 1, ""], "", 1, 2]]).encode()
    assert x.FrameSplitter().feed(x.HEADER.pack(len(body)) + body) == [
        x.Done(7, TaskStatus.FAILED, b"hi", "wäs", 1.0, 0.5),
        x.Done(8, TaskStatus.FINISHED, x.File("/f", 1, ""), "", 1.0, 2.0),
    ]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
def test_text_that_is_no_unicode_is_a_link_error(encoding: x.Encoding) -> None:
    with pytest.raises(LinkError, match=rf"text that {encoding.name} cannot hold"):
        x.encode_frame([x.Run(1, 0, x.File("/\udcff", 1, ""))], encoding)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
def test_messages_too_large_for_a_frame_go_in_several(encoding: x.Encoding) -> None:
    messages: list[Any] = [x.Run(number, 0, bytes(200)) for number in range(20)]
    splitter = x.FrameSplitter(x.TO_EXECUTOR)
    splitter.feed(x.encode_frame(messages[:1], encoding))
    splitter.limit(1000)
    assert splitter.feed(x.encode_frame(messages, encoding, bytes_max=1000)) == messages
    with pytest.raises(LinkError, match=rf"in {encoding.name}; at most 1000 are allowed"):
        x.encode_frame([*messages, x.Common(1, bytes(1000))], encoding, bytes_max=1000)
    with pytest.raises(LinkError, match="1001 bytes; at most 1000"):
        splitter.feed(x.HEADER.pack(1001))


def test_messages_of_the_other_direction_are_refused() -> None:
    with pytest.raises(LinkError):
        x.FrameSplitter().feed(x.encode_frame([TO_EXECUTOR[0]]))


def test_a_frame_too_large_is_refused_before_it_is_there() -> None:
    with pytest.raises(LinkError, match=rf"{x.FRAME_BYTES_MAX + 1} bytes; at most {x.FRAME_BYTES_MAX}"):
        x.FrameSplitter().feed(x.HEADER.pack(x.FRAME_BYTES_MAX + 1))


MANY = x.MESSAGES_PER_FRAME_MAX
RETURNED = b"\x92\x03\x90"
JSON_RETURNED = b"[3,[]],"


def small_messages(count: int) -> bytes:
    """A body of this many messages of three bytes, beside one that makes its frame a large one."""
    large = x.encode_frame([x.Done(1, TaskStatus.FINISHED, bytes(x.SMALL_FRAME_BYTES_MAX), "", 0, 0)])
    return b"\xdd" + (count + 1).to_bytes(4, "big") + large[x.HEADER_BYTES + 1 :] + RETURNED * count


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (small_messages(MANY), f"`array` of length <= {MANY}"),
        (b"\x91\x92\x03\xdd" + (2 << 20).to_bytes(4, "big") + bytes(2 << 20), "`array` of length <= 65536"),
        (b"\x91\x92\x04\xdf" + (1 << 20).to_bytes(4, "big") + b"\xa0\xa0" * (1 << 20), "`object` of length <= 64"),
        (b"\x9f" + (b"\x92\x03\xdc\xff\xff" + b"\xcd\x03\xe8" * 0xFFFF) * 15, None),
        (b"\xdc\x00\x20" + (b"\x92\x03\xdc\xff\xff" + b"\xcd\x03\xe8" * 0xFFFF) * 32, "more than 4194304 bytes"),
        (b"[" + JSON_RETURNED * (x.JSON_COMMAS_MAX // 2) + b"[3,[]]]", f"with {x.JSON_COMMAS_MAX + 1} commas"),
    ],
    ids=["messages", "runs", "attributes", "lists", "many lists", "JSON"],
)
def test_a_large_frame_that_would_take_many_times_its_bytes_is_refused(body: bytes, reason: str | None) -> None:
    assert len(body) > x.SMALL_FRAME_BYTES_MAX
    frame = x.HEADER.pack(len(body)) + body
    if reason is None:
        assert len(x.FrameSplitter().feed(frame)) == 15
        return
    with pytest.raises(LinkError, match=reason):
        x.FrameSplitter().feed(frame)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
def test_an_executor_may_tell_of_all_its_places_at_once(encoding: x.Encoding) -> None:
    messages: list[Any] = [
        x.Done(run, TaskStatus.FINISHED, b"the result", "", 1.5, 0.5, "out") for run in range(x.PLACES_MAX)
    ]
    if encoding is x.MSGPACK:
        messages += [x.Returned([run]) for run in range(x.PLACES_MAX)]
    frame = x.encode_frame(messages, encoding)
    assert len(frame) > x.SMALL_FRAME_BYTES_MAX
    assert x.FrameSplitter().feed(frame) == messages


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
def test_an_executor_gives_so_many_attributes_and_no_more(encoding: x.Encoding) -> None:
    attributes = {f"a{number}": "" for number in range(x.ATTRIBUTES_MAX)}
    assert x.FrameSplitter().feed(x.encode_frame([x.Attributes(attributes)], encoding)) == [x.Attributes(attributes)]
    with pytest.raises(LinkError, match="`object` of length <= 64"):
        x.FrameSplitter().feed(x.encode_frame([x.Attributes({**attributes, "one more": ""})], encoding))


def test_what_was_read_is_not_kept() -> None:
    splitter = x.FrameSplitter()
    frame = bytes(x.encode_frame(FROM_EXECUTOR))
    for _ in range(1000):
        splitter.feed(frame + frame[:5])
        splitter.feed(frame[5:])
    assert len(splitter._buffer) == 0


# ---- the executor's side ---------------------------------------------------------------------


def test_executor_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "socket")
    monkeypatch.setenv(x.SOCKET_VARIABLE, path)
    monkeypatch.setenv(x.ID_VARIABLE, "python-9")
    monkeypatch.setenv(x.FILES_VARIABLE, str(tmp_path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        executor = ExecutorConnection.from_environment("python", places=2, runtime="3.11")
        monitor, _ = listener.accept()
    with monitor:
        splitter = x.FrameSplitter()
        (hello,) = splitter.feed(monitor.recv(4096))
        assert (hello.version, hello.id, hello.app, hello.places) == (
            x.EXECUTOR_PROTOCOL_VERSION,
            "python-9",
            "python",
            2,
        )
        assert executor.receive(wait=False) == []
        monitor.sendall(x.encode_frame(TO_EXECUTOR))
        assert executor.receive() == TO_EXECUTOR
        executor.send(FROM_EXECUTOR[1:])
        received: list[Any] = splitter.feed(monitor.recv(4096))
        assert received == FROM_EXECUTOR[1:]
    with pytest.raises(EOFError):
        executor.receive()
    assert isinstance(executor.data(bytes(x.INLINE_BYTES_MAX + 1)), x.File)
    executor.close()


# ---- files -----------------------------------------------------------------------------------


def test_what_is_large_is_stored_in_a_file(tmp_path: Path) -> None:
    small, large = bytes(x.INLINE_BYTES_MAX), os.urandom(x.INLINE_BYTES_MAX + 1)
    assert store(small, str(tmp_path)) is small
    file = store(large, str(tmp_path))
    assert isinstance(file, x.File)
    path = Path(file.path)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (large, 0o600)
    assert (file.size, file.hash) == (len(large), "")
    assert store(large, str(tmp_path)) != file
    assert read(file) == large
    content = load(file)
    assert not isinstance(content, bytes)
    with content:
        assert content[:] == large
    assert load(small) is small


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match="No space left"):
        store(bytes(1 << 17), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert using(x.File(str(path), 3, ""), bytes) == b"abc"
    with pytest.raises(LinkError, match="has 3 bytes; 4 were announced"):
        read(x.File(str(path), 4, ""))
    path.write_bytes(b"")
    assert read(x.File(str(path), 0, "")) == b""


# ---- whatever a signal's handler raises --------------------------------------------------------


def test_all_is_sent_although_a_handler_raises_meanwhile(tmp_path: Path) -> None:
    """Of more than the socket takes, whose reader reads once the handler has raised."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    connection = ExecutorConnection(str(tmp_path / "socket"))
    peer, _ = listener.accept()
    received: list[Any] = []
    raised = threading.Event()

    def raises(*_: object) -> None:
        raised.set()
        raise TimeoutError("alarm")

    def read_all() -> None:
        splitter = x.FrameSplitter()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        raised.wait()
        while len(received) < 2:
            received.extend(splitter.feed(peer.recv(1 << 16)))

    before = signal.signal(signal.SIGUSR1, raises)
    reader = threading.Thread(target=read_all)
    try:
        messages = [x.Done(run, TaskStatus.FINISHED, bytes(2 << 20), "", 0.0, 0.0) for run in (1, 2)]
        try:
            reader.start()
            interrupted = connection.send_through(messages)
        except TimeoutError:  # Before it began.
            interrupted = connection.send_through(messages)
        reader.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
        for one in (peer, listener):
            one.close()
    assert received == messages and (interrupted is None or str(interrupted) == "alarm")
    assert connection.is_gone()
    connection.close()
