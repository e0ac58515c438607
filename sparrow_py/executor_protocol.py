"""How a node monitor and its executors talk: length-prefixed frames over a Unix socket.

A frame is a 4-byte big-endian length and that many bytes of msgpack: an array of messages.
An executor connects to the socket named in `SPARROW_EXECUTOR_SOCKET`, says `ExecutorHello`,
then receives `Run`s and answers each with one `Done`. A place runs one task at a time; an
executor with one place runs what it is given in order.
"""

from __future__ import annotations

import struct
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


class ExecutorMessage(msgspec.Struct, array_like=True, gc=False):
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
    """Answer to each Revoke, in order: these of its runs were not started and will not be."""

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
to_executor = msgspec.msgpack.Decoder(list[ToExecutor])
"""For the executor's `FrameSplitter`."""


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
