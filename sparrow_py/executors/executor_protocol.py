"""How a node monitor and its executors talk: length-prefixed frames over a Unix socket.

A frame is a 4-byte big-endian length and that many bytes: an array of messages, in msgpack or in
JSON (`Encoding`). An executor connects to the socket named in `SPARROW_EXECUTOR_SOCKET` and says
`ExecutorHello`; the encoding of that first frame is the connection's, in both directions. It then
receives `Run`s and answers each with one `Done`. A place runs one task at a time; an executor with
one place runs what it is given in order. docs/executor-protocol.md says it for other languages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus

EXECUTOR_PROTOCOL_VERSION = 1
EXECUTOR_PROTOCOL_VERSION_OLDEST = 1
"""A node monitor takes executors of the present version and, once there are two, of the one before."""
SOCKET_VARIABLE = "SPARROW_EXECUTOR_SOCKET"
ID_VARIABLE = "SPARROW_EXECUTOR_ID"
PLACES_VARIABLE = "SPARROW_EXECUTOR_PLACES"
"""How many places the node monitor wants the executor to offer."""
FILES_VARIABLE = "SPARROW_EXECUTOR_FILES"
LOG_VARIABLE = "SPARROW_EXECUTOR_LOG"
"""Directory where the executor puts results too large for a frame."""
FILES_SUFFIX = ".files"
"""The same for executors that the node monitor did not start: this in place of the socket's suffix."""
PLACES_MAX = 1 << 16
"""Places of an executor."""
ATTRIBUTES_MAX = 64
"""Attributes that an executor may give its node."""
ATTRIBUTE_BYTES_MAX = 4096
"""Bytes of an attribute's value."""
INLINE_BYTES_MAX = 64 << 10
"""A result larger than this is handed over as a file."""
FRAME_BYTES_MAX = 64 << 20
"""A frame between a node monitor and its executor, which mostly has results."""
SMALL_FRAME_BYTES_MAX = 1 << 20
"""What is made of a frame of no more bytes takes little memory, whatever is in it. One from an executor with more is
only decoded within the limits that follow: tasks may write it."""
MESSAGES_PER_FRAME_MAX = 2 * PLACES_MAX
"""Messages in such a frame: each place has ended a run and given one back."""
REMARKS_BYTES_MAX = 4 << 20
"""Bytes of its messages other than Done, whose numbers and names take many times their bytes in memory."""
JSON_COMMAS_MAX = 1 << 20
"""Commas in such a frame in JSON, those in text included: JSON does not say ahead how long a list is. A Done of each
place has eleven."""
RUNS_PER_MESSAGE_MAX = PLACES_MAX
"""Runs in a Returned."""
HELLO_BYTES_MAX = 16 << 10
"""The first frame of an executor, before which nobody is trusted."""

HEADER = struct.Struct(">I")
HEADER_BYTES = HEADER.size


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


class File(msgspec.Struct, array_like=True, frozen=True):
    """Bytes too large for a frame, in a file on this machine; `hash` is their SHA-256 in hexadecimal.

    From an executor: a file in `SPARROW_EXECUTOR_FILES`, which is the node monitor's from then on. Its hash may be
    left empty: the node monitor finds it, and believes no other.
    To an executor: a file to read and not to change; it stays until the run has ended.
    """

    path: str
    size: int
    hash: str


Data = bytes | File


class Done(ExecutorMessage, tag=2):
    """The run ended: `status` is finished or failed. `started_at_s` in seconds since the epoch."""

    run: int
    status: TaskStatus
    result: Data
    error: str
    started_at_s: float
    service_s: float
    stdout: str = ""
    stderr: str = ""


class Returned(ExecutorMessage, tag=3):
    """Answer to each Revoke, in order: these of its runs were not started and will not be."""

    runs: Annotated[list[int], msgspec.Meta(max_length=RUNS_PER_MESSAGE_MAX)]


class Attributes(ExecutorMessage, tag=4):
    """What the executor adds to its node's attributes, in place of what it said before, as long as it lives.

    What the operator has given the node an attribute of the same name for stays.
    """

    attributes: Annotated[dict[str, str], msgspec.Meta(max_length=ATTRIBUTES_MAX)]


class Run(ExecutorMessage, tag=10):
    """Run this task. `common` is the number of a Common sent before, or 0; `inputs` the results it asked for. `user`:
    whose task it is, for executors that run those of many. `task`: its number in its job, to name it by."""

    run: int
    common: int
    payload: Data
    inputs: list[Data] = []
    user: str = ""
    task: int = 0


class Common(ExecutorMessage, tag=11):
    """Bytes that several runs need."""

    common: int
    data: Data


class ForgetCommon(ExecutorMessage, tag=12):
    """No further run will name this Common."""

    common: int


class Revoke(ExecutorMessage, tag=13):
    """Give these runs back if they have not started."""

    runs: list[int]


class Kill(ExecutorMessage, tag=14):
    """End these runs, which have started, at once, and say Done (failed) for each. Only sent to executors that have all
    slots of a node, or several places: one with a single place beside others of its app is ended itself."""

    runs: list[int]


def check_version(version: int) -> None:
    """`LinkError` unless a node monitor of today takes executors of this version of the protocol."""
    oldest, newest = EXECUTOR_PROTOCOL_VERSION_OLDEST, EXECUTOR_PROTOCOL_VERSION
    if not oldest <= version <= newest:
        spoken = f"{newest} is" if oldest == newest else f"{oldest} and {newest} are"
        behind = "node monitor" if version > newest else "executor"
        raise LinkError(f"executor protocol version {version} is not spoken here; {spoken}: upgrade the {behind}")


FromExecutor = ExecutorHello | Done | Returned | Attributes
ToExecutor = Run | Common | ForgetCommon | Revoke | Kill


# ---- frames ----------------------------------------------------------------------------------


class Encoding(msgspec.Struct, frozen=True):
    """How the messages of a connection are written. In JSON, bytes are base64 text."""

    name: str
    encoder: msgspec.msgpack.Encoder | msgspec.json.Encoder


class Direction(msgspec.Struct, frozen=True):
    """What is spoken in one direction: how to decode a frame's body in each encoding."""

    msgpack: Callable[[memoryview], list[Any]]
    json: Callable[[memoryview], list[Any]]


MSGPACK = Encoding("msgpack", msgspec.msgpack.Encoder())
JSON = Encoding("JSON", msgspec.json.Encoder())
JSON_START = ord("[")
"""A body that begins so is JSON: no array of msgpack does."""
_SEVERAL = msgspec.msgpack.Decoder(list[FromExecutor])
_SEVERAL_JSON = msgspec.json.Decoder(list[FromExecutor])
_ONE = msgspec.msgpack.Decoder(FromExecutor)
_RAW = msgspec.msgpack.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MESSAGES_PER_FRAME_MAX)])


def _from_msgpack(body: memoryview) -> list[Any]:
    """The messages of an executor's frame; of a large one each by itself, until they are too much."""
    if len(body) <= SMALL_FRAME_BYTES_MAX:
        return _SEVERAL.decode(body)
    messages: list[Any] = []
    remarks_bytes = 0
    for raw in _RAW.decode(body):
        message = _ONE.decode(raw)
        messages.append(message)
        if type(message) is not Done:
            remarks_bytes += len(memoryview(raw))
            if remarks_bytes > REMARKS_BYTES_MAX:
                raise LinkError(f"executor frame with more than {REMARKS_BYTES_MAX} bytes of messages other than Done")
    return messages


def _from_json(body: memoryview) -> list[Any]:
    """The same. Each value but the first of an array follows a comma."""
    if len(body) > SMALL_FRAME_BYTES_MAX and (commas := bytes(body).count(b",")) > JSON_COMMAS_MAX:
        raise LinkError(
            f"executor frame of {len(body)} bytes of JSON with {commas} commas; at most {JSON_COMMAS_MAX} are allowed"
        )
    return _SEVERAL_JSON.decode(body)


FROM_EXECUTOR = Direction(_from_msgpack, _from_json)
TO_EXECUTOR = Direction(msgspec.msgpack.Decoder(list[ToExecutor]).decode, msgspec.json.Decoder(list[ToExecutor]).decode)


def encode_frame(messages: list[Any], encoding: Encoding = MSGPACK) -> bytearray:
    """The frame of these messages, header included; several frames if they are too large for one.

    `LinkError` if one message alone is too large, or has text that is no Unicode.
    """
    frame = bytearray(HEADER_BYTES)
    try:
        encoding.encoder.encode_into(messages, frame, HEADER_BYTES)
    except UnicodeEncodeError as error:
        raise LinkError(f"a message has text that {encoding.name} cannot hold: {error}") from None
    length = len(frame) - HEADER_BYTES
    if length > FRAME_BYTES_MAX:
        if len(messages) == 1:
            raise LinkError(f"a message of {length} bytes in {encoding.name}; at most {FRAME_BYTES_MAX} are allowed")
        half = len(messages) // 2
        return encode_frame(messages[:half], encoding) + encode_frame(messages[half:], encoding)
    HEADER.pack_into(frame, 0, length)
    return frame


class FrameSplitter:
    """Cuts a stream of bytes into the messages of its frames, of which the first may have to be smaller."""

    def __init__(self, direction: Direction = FROM_EXECUTOR, first_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._direction = direction
        self._bytes_max = first_bytes_max
        self._decode: Callable[[memoryview], list[Any]] = self._decode_first
        self._buffer = bytearray()
        self.encoding = MSGPACK
        """Of the first frame, once it is there; all that follow must have the same."""

    def feed(self, data: bytes) -> list[Any]:
        """The messages of all frames that `data` completes; `LinkError` if a frame is not one."""
        buffer = self._buffer
        buffer += data
        messages: list[Any] = []
        position, size = 0, len(buffer)
        while size - position >= HEADER_BYTES:
            (length,) = HEADER.unpack_from(buffer, position)
            if length > self._bytes_max:
                raise LinkError(f"executor frame of {length} bytes; at most {self._bytes_max} are allowed")
            end = position + HEADER_BYTES + length
            if end > size:
                break
            try:
                messages += self._decode(memoryview(buffer)[position + HEADER_BYTES : end])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise LinkError(f"malformed executor frame ({self.encoding.name}): {error}") from None
            position = end
        if position:
            # A new object: decoded messages may hold no view, but a memoryview would block resizing.
            self._buffer = buffer[position:]
        return messages

    def _decode_first(self, body: memoryview) -> list[Any]:
        """The first frame says how all are written; those after it may be larger."""
        self._bytes_max = FRAME_BYTES_MAX
        if body and body[0] == JSON_START:
            self.encoding, self._decode = JSON, self._direction.json
        else:
            self._decode = self._direction.msgpack
        return self._decode(body)
