"""How a node monitor and its executors talk: length-prefixed frames over a Unix socket.

A frame is a 4-byte big-endian length and that many bytes of msgpack: an array of messages.
An executor connects to the socket named in `SPARROW_EXECUTOR_SOCKET`, says `ExecutorHello`,
then receives `Run`s and answers each with one `Done`. A place runs one task at a time; an
executor with one place runs what it is given in order.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from typing import Any

import msgspec

from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus

EXECUTOR_PROTOCOL_VERSION = 1
SOCKET_VARIABLE = "SPARROW_EXECUTOR_SOCKET"
ID_VARIABLE = "SPARROW_EXECUTOR_ID"
FRAME_BYTES_MAX = 64 << 20
"""A frame between a node monitor and its executor, which trust each other, may be larger."""

HEADER = struct.Struct(">I")


class ExecutorMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of the messages between a node monitor and an executor."""


class ExecutorHello(ExecutorMessage, tag=1):
    """First message of an executor. `id` is what the node monitor gave it to start with, or empty."""

    version: int
    id: str
    app: str
    places: int
    runtime: str
    pid: int


class Done(ExecutorMessage, tag=2):
    """The run ended: `status` is finished or failed. `started_at_s` in seconds since the epoch."""

    run: int
    status: TaskStatus
    result: bytes
    error: str
    started_at_s: float
    service_s: float
    stdout: str = ""
    stderr: str = ""


class Returned(ExecutorMessage, tag=3):
    """Answer to Revoke: these runs were not started and will not be."""

    runs: list[int]


class Run(ExecutorMessage, tag=10):
    """Run this task. `common` is the number of a Common sent before, or 0."""

    run: int
    common: int
    payload: bytes


class Common(ExecutorMessage, tag=11):
    """Bytes that several runs need."""

    common: int
    data: bytes


class ForgetCommon(ExecutorMessage, tag=12):
    """No further run will name this Common."""

    common: int


class Revoke(ExecutorMessage, tag=13):
    """Give these runs back if they have not started."""

    runs: list[int]


FromExecutor = ExecutorHello | Done | Returned
ToExecutor = Run | Common | ForgetCommon | Revoke

_encoder = msgspec.msgpack.Encoder()
_from_executor = msgspec.msgpack.Decoder(list[FromExecutor])
_to_executor = msgspec.msgpack.Decoder(list[ToExecutor])


def encode_frame(messages: list[Any]) -> bytearray:
    """The frame of these messages, header included."""
    frame = bytearray(HEADER.size)
    _encoder.encode_into(messages, frame, HEADER.size)
    HEADER.pack_into(frame, 0, len(frame) - HEADER.size)
    return frame


class FrameSplitter:
    """Cuts a stream of bytes into the messages of its frames."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[list[Any]] = _from_executor) -> None:
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages of all frames that `data` completes; `LinkError` if a frame is not one."""
        buffer = self._buffer
        buffer += data
        messages: list[Any] = []
        position, size = 0, len(buffer)
        while size - position >= HEADER.size:
            (length,) = HEADER.unpack_from(buffer, position)
            if length > FRAME_BYTES_MAX:
                raise LinkError(f"executor frame of {length} bytes; at most {FRAME_BYTES_MAX} are allowed")
            end = position + HEADER.size + length
            if end > size:
                break
            try:
                messages += self._decode(memoryview(buffer)[position + HEADER.size : end])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise LinkError(f"malformed executor frame: {error}") from None
            position = end
        if position:
            # A new object: decoded messages may hold no view, but a memoryview would block resizing.
            self._buffer = buffer[position:]
        return messages


class ExecutorConnection:
    """The executor's side, blocking: for executors written as a plain loop."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._splitter = FrameSplitter(_to_executor)

    @classmethod
    def from_environment(cls, app: str, places: int = 1, runtime: str = "") -> ExecutorConnection:
        """Connect to the node monitor that started this process, and say hello."""
        connection = cls(os.environ[SOCKET_VARIABLE])
        connection.hello(app, places, runtime, os.environ.get(ID_VARIABLE, ""))
        return connection

    def hello(self, app: str, places: int = 1, runtime: str = "", executor_id: str = "") -> None:
        """Say hello."""
        self.send([ExecutorHello(EXECUTOR_PROTOCOL_VERSION, executor_id, app, places, runtime, os.getpid())])

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def receive(self, *, wait: bool = True) -> list[Any]:
        """The next messages; without `wait`, those that have arrived. `EOFError` when closed."""
        messages: list[Any] = []
        while not messages:
            try:
                data = self._socket.recv(1 << 18, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not data:
                raise EOFError
            messages = self._splitter.feed(data)
            if not wait:
                break
        return messages

    def send(self, messages: Iterable[Any]) -> None:
        """Send these as one frame."""
        self._socket.sendall(encode_frame(list(messages)))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
