"""Frames between a node monitor and its executors: any bytes give messages or `LinkError`, in bounded memory."""

import contextlib
import itertools
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow_py import executor_protocol as x
from sparrow_py.errors import LinkError
from sparrow_py.executor_connection import ExecutorConnection
from sparrow_py.job import TaskStatus

FROM_EXECUTOR: list[x.ExecutorMessage] = [
    x.ExecutorHello(x.EXECUTOR_PROTOCOL_VERSION, "python-1", "python", 1, "3.11", 4711),
    x.Done(7, TaskStatus.FINISHED, b"result", "", 1.5, 0.25, "out", "err"),
    x.Done(8, TaskStatus.FAILED, b"", "why", 1.5, 0.0),
    x.Returned([1, 2, 3]),
]
TO_EXECUTOR: list[x.ExecutorMessage] = [
    x.Run(1, 2, b"payload"), x.Common(2, b"function"), x.ForgetCommon(2), x.Revoke([1]),
]  # fmt: skip

frames = st.lists(st.lists(st.sampled_from(FROM_EXECUTOR), max_size=4), max_size=5)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data in pieces, cut at these places."""
    places = [0, *sorted(place % (len(data) + 1) for place in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(frames, st.lists(st.integers(0, 1 << 16), max_size=12))
def test_messages_come_out_however_the_stream_is_cut(batches: list[list[x.ExecutorMessage]], cuts: list[int]) -> None:
    stream = b"".join(x.encode_frame(batch) for batch in batches)
    splitter = x.FrameSplitter()
    received = [message for piece in cut(stream, cuts) for message in splitter.feed(piece)]
    assert received == [message for batch in batches for message in batch]
    assert splitter.feed(b"") == []


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
)
def test_mutated_frames_give_messages_or_link_error(
    batch: list[x.ExecutorMessage], changes: list[tuple[int, int]], cuts: list[int]
) -> None:
    frame = x.encode_frame(batch)
    for place, byte in changes:
        frame[place % len(frame)] = byte
    splitter = x.FrameSplitter()
    with contextlib.suppress(LinkError):
        for piece in cut(bytes(frame), cuts):
            splitter.feed(piece)


def test_deep_nesting_is_a_link_error() -> None:
    body = b"\x91" * 100_000
    with pytest.raises(LinkError, match="malformed executor frame"):
        x.FrameSplitter().feed(x.HEADER.pack(len(body)) + body)


@pytest.mark.parametrize("body", [b"\xc3", b"\x91\x92\x63\x00", b"\x91\x92\x03\xc0", b"\x91\xc0", b"", b"\x90\x90"])
def test_what_is_no_frame(body: bytes) -> None:
    with pytest.raises(LinkError, match="malformed executor frame"):
        x.FrameSplitter().feed(x.HEADER.pack(len(body)) + body)


def test_messages_of_the_other_direction_are_refused() -> None:
    with pytest.raises(LinkError):
        x.FrameSplitter().feed(x.encode_frame([TO_EXECUTOR[0]]))


def test_a_frame_too_large_is_refused_before_it_is_there() -> None:
    with pytest.raises(LinkError, match=rf"{x.FRAME_BYTES_MAX + 1} bytes; at most {x.FRAME_BYTES_MAX}"):
        x.FrameSplitter().feed(x.HEADER.pack(x.FRAME_BYTES_MAX + 1))


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
    executor.close()
