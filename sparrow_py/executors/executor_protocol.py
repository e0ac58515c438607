"""How a node monitor and its executors talk: length-prefixed frames over a Unix socket.

A frame is a 4-byte big-endian length and that many bytes: an array of messages, in msgpack or in JSON (`Encoding`). An
executor connects to the socket named in `SPARROW_EXECUTOR_SOCKET` and sends `ExecutorHello`; both sides then use the
encoding of that first frame. The executor receives `Run`s and answers each with one `Done`. A place runs one task at a
time; an executor with one place runs its tasks in the order in which they came. docs/executor-protocol.md describes the
protocol for other languages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus

EXECUTOR_PROTOCOL_VERSION = 2
EXECUTOR_PROTOCOL_VERSION_OLDEST = 1
"""A node monitor takes executors of the present version and of the one before."""
YIELD_SINCE = 2
"""The version that knows `Yield`: executors of an earlier one are given no task that has a lease."""
SOCKET_VARIABLE = "SPARROW_EXECUTOR_SOCKET"
ID_VARIABLE = "SPARROW_EXECUTOR_ID"
NODE_VARIABLE = "SPARROW_EXECUTOR_NODE"
"""The id of the executor's node."""
PLACES_VARIABLE = "SPARROW_EXECUTOR_PLACES"
"""How many places the node monitor wants the executor to offer."""
LOG_VARIABLE = "SPARROW_EXECUTOR_LOG"
"""Descriptor of the node monitor's log, to which the executor may write after its hello."""
FILES_VARIABLE = "SPARROW_EXECUTOR_FILES"
"""Directory in which the executor puts results that are too large for a frame."""
NOT_KEPT = "cannot be kept on the node: "
"""In the error of a run whose result could not be written there, before the reason: the node monitor counts such, and
its log says so."""
FILES_SUFFIX = ".files"
"""Executors that the node monitor did not start have such a directory beside the socket: its name is the socket's with
this suffix in place of the socket's own."""
PLACES_MAX = 1 << 16
"""Most places of an executor."""
ATTRIBUTES_MAX = 64
"""Most attributes that an executor may give its node."""
ATTRIBUTE_BYTES_MAX = 4096
"""Most bytes of an attribute's value."""
INLINE_BYTES_MAX = 64 << 10
"""A result of more bytes is handed over as a file."""
FRAME_BYTES_MAX = 64 << 20
"""Most bytes of a frame between a node monitor and its executor; most of them are results."""
SMALL_FRAME_BYTES_MAX = 1 << 20
"""A frame of no more bytes takes little memory when it is decoded, whatever is in it. A larger frame from an executor,
which may have been written by a task, is decoded only within the limits that follow."""
MESSAGES_PER_FRAME_MAX = 2 * PLACES_MAX
"""Most messages in such a frame: each place may have ended a run and given another back."""
REMARKS_BYTES_MAX = 4 << 20
"""Most bytes of messages other than Done and ClientFrame in such a frame: their numbers and names take many times their
bytes in memory."""
JSON_COMMAS_MAX = 1 << 20
"""Most commas in such a frame in JSON, those in text included: JSON does not say ahead how long a list is. A Done has
twelve commas."""
RUNS_PER_MESSAGE_MAX = PLACES_MAX
"""Most runs in a Returned."""
HELLO_BYTES_MAX = 16 << 10
"""Most bytes of an executor's first frame: before it nobody knows who has connected."""

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

    From an executor: a file in `SPARROW_EXECUTOR_FILES`, which belongs to the node monitor from then on. The hash may
    be empty: the node monitor computes it, and refuses a file with another.
    To an executor: a file to read and not to change, which stays until the run has ended.
    """

    path: str
    size: int
    hash: str


Data = bytes | File


class Used(msgspec.Struct, array_like=True, frozen=True):
    """What a run has used: seconds of CPU, those of processes that it started included, and the most memory that it had
    at a time. None: not known."""

    cpu_s: float | None = None
    memory_bytes: int | None = None


class Done(ExecutorMessage, tag=2):
    """The run ended: `status` is finished or failed. `started_at_s` in seconds since the epoch. `used`: if the run said
    `measure`, and it is known. `retry`: it failed in a way that may pass, so that it runs again if its stage has a
    `job.RetryPolicy`."""

    run: int
    status: TaskStatus
    result: Data
    error: str
    started_at_s: float
    service_s: float
    stdout: str = ""
    stderr: str = ""
    used: Used | None = None
    retry: bool = False


class Returned(ExecutorMessage, tag=3):
    """Answer to each Revoke, in order: these of the Revoke's runs were not started and will not be."""

    runs: Annotated[list[int], msgspec.Meta(max_length=RUNS_PER_MESSAGE_MAX)]


class Attributes(ExecutorMessage, tag=4):
    """Attributes that the executor adds to its node's as long as it lives, in place of those that it added before.

    An attribute that the operator has given the node keeps the operator's value.
    """

    attributes: Annotated[dict[str, str], msgspec.Meta(max_length=ATTRIBUTES_MAX)]


class Waits(ExecutorMessage, tag=5):
    """The run is about to wait for tasks of its own, and gives its slot back meanwhile. The answer is `MayWait`: until
    then it does not wait. Only an executor with one place says so, of the run that it works for."""

    run: int


class WantsSlot(ExecutorMessage, tag=6):
    """The run has waited, and is to go on. The answer is `HasSlot`, once a slot is free: until then it does nothing."""

    run: int


class TaskClientHello(ExecutorMessage, tag=7):
    """First message of a further connection of an executor's process, or of one that it has started: a client within
    the task of this run. From then on it is a link to a scheduler that the node monitor relays, and closes when the run
    ends: what the client says is in `ClientFrame`s, its `Hello` first, and so is what it hears. `key` is that of the
    `Run`: without it a process is not believed to be the executor's."""

    version: int
    run: int
    key: bytes = b""


class ClientFrame(ExecutorMessage, tag=8):
    """Either way, on such a connection: a frame of messages between clients and schedulers (`wire.messages`)."""

    data: bytes


class StoreData(ExecutorMessage, tag=9):
    """On such a connection: large data that the client gives to the cluster. The answer is `DataStored`, with the
    number."""

    number: int
    file: File


class FetchData(ExecutorMessage, tag=18):
    """On such a connection: large data that the client wants. The answer is `DataFetched`, with the number."""

    number: int
    hash: str
    size: int
    at: tuple[str, ...]


class DataStored(ExecutorMessage, tag=19):
    """Answer to `StoreData`: its SHA-256, and the address where it lies; or why it could not be kept."""

    number: int
    hash: str
    at: tuple[str, ...]
    why_not: str = ""


class DataFetched(ExecutorMessage, tag=20):
    """Answer to `FetchData`: a file that has the data as long as the connection stands; or why nobody has them."""

    number: int
    file: File | None
    why_not: str = ""


class Run(ExecutorMessage, tag=10):
    """Run this task. `common` is the number of a Common sent before, or 0; `inputs` are the results that the task asked
    for; `user` is the task's user, for executors that run tasks of several users; `task` is its number in its job.
    `measure`: the node monitor wants to know what the run has used. `key`: what a client within the run says in its
    `TaskClientHello`, the same for all runs of a process. It is kept in memory only: not in the environment, not in a
    file, not in a log. Empty for executors that the node monitor did not start."""

    run: int
    common: int
    payload: Data
    inputs: list[Data] = []
    user: str = ""
    task: int = 0
    measure: bool = False
    key: bytes = b""


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


class Yield(ExecutorMessage, tag=15):
    """Have this run, which has started, end in an orderly way within so many seconds: its lease is over, and others
    come first. Its Done is as always; a run that has not ended by then is killed. Only sent to executors of version
    `YIELD_SINCE` and later."""

    run: int
    within_s: float


class MayWait(ExecutorMessage, tag=16):
    """Answer to `Waits`: the slot is given back; or it is kept, if `why_not` says why, and then there is no
    `WantsSlot`. What was given to the executor behind the run has been revoked before."""

    run: int
    why_not: str = ""


class HasSlot(ExecutorMessage, tag=17):
    """Answer to `WantsSlot`: the run goes on."""

    run: int


def check_version(version: int) -> None:
    """`LinkError` unless a node monitor of today takes executors of this version of the protocol."""
    oldest, newest = EXECUTOR_PROTOCOL_VERSION_OLDEST, EXECUTOR_PROTOCOL_VERSION
    if not oldest <= version <= newest:
        spoken = f"{newest} is" if oldest == newest else f"{oldest} and {newest} are"
        behind = "node monitor" if version > newest else "executor"
        raise LinkError(f"executor protocol version {version} is not spoken here; {spoken}: upgrade the {behind}")


SINCE: dict[type[ExecutorMessage], int] = {
    Yield: YIELD_SINCE,
    Waits: 2,
    WantsSlot: 2,
    MayWait: 2,
    HasSlot: 2,
    TaskClientHello: 2,
    ClientFrame: 2,
    StoreData: 2,
    DataStored: 2,
    FetchData: 2,
    DataFetched: 2,
}
"""The versions that brought messages which the version before does not know."""

FromExecutor = (
    ExecutorHello | Done | Returned | Attributes | Waits | WantsSlot | TaskClientHello | ClientFrame | StoreData
    | FetchData
)  # fmt: skip
ToExecutor = (
    Run | Common | ForgetCommon | Revoke | Kill | Yield | MayWait | HasSlot | ClientFrame | DataStored | DataFetched
)  # fmt: skip


# ---- frames ----------------------------------------------------------------------------------


class Encoding(msgspec.Struct, frozen=True):
    """How the messages of a connection are encoded. In JSON, bytes are base64 text."""

    name: str
    encoder: msgspec.msgpack.Encoder | msgspec.json.Encoder


class Direction(msgspec.Struct, frozen=True):
    """The messages of one direction: how to decode a frame's body in each encoding."""

    msgpack: Callable[[memoryview], list[Any]]
    json: Callable[[memoryview], list[Any]]


MSGPACK = Encoding("msgpack", msgspec.msgpack.Encoder())
JSON = Encoding("JSON", msgspec.json.Encoder())
JSON_START = ord("[")
"""First byte of a body in JSON: no array of msgpack begins with it."""
_SEVERAL = msgspec.msgpack.Decoder(list[FromExecutor])
_SEVERAL_JSON = msgspec.json.Decoder(list[FromExecutor])
_ONE = msgspec.msgpack.Decoder(FromExecutor)
_RAW = msgspec.msgpack.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MESSAGES_PER_FRAME_MAX)])


def _from_msgpack(body: memoryview) -> list[Any]:
    """The messages of an executor's frame. Those of a large frame are decoded one by one, within the limits above."""
    if len(body) <= SMALL_FRAME_BYTES_MAX:
        return _SEVERAL.decode(body)
    messages: list[Any] = []
    remarks_bytes = 0
    for raw in _RAW.decode(body):
        message = _ONE.decode(raw)
        messages.append(message)
        if type(message) is not Done and type(message) is not ClientFrame:
            remarks_bytes += len(memoryview(raw))
            if remarks_bytes > REMARKS_BYTES_MAX:
                raise LinkError(
                    f"executor frame with more than {REMARKS_BYTES_MAX} bytes of messages other than results"
                )
    return messages


def _from_json(body: memoryview) -> list[Any]:
    """As `_from_msgpack`. Each value of an array but the first follows a comma."""
    if len(body) > SMALL_FRAME_BYTES_MAX and (commas := bytes(body).count(b",")) > JSON_COMMAS_MAX:
        raise LinkError(
            f"executor frame of {len(body)} bytes of JSON with {commas} commas; at most {JSON_COMMAS_MAX} are allowed"
        )
    return _SEVERAL_JSON.decode(body)


FROM_EXECUTOR = Direction(_from_msgpack, _from_json)
TO_EXECUTOR = Direction(msgspec.msgpack.Decoder(list[ToExecutor]).decode, msgspec.json.Decoder(list[ToExecutor]).decode)


def encode_frame(messages: list[Any], encoding: Encoding = MSGPACK, bytes_max: int = FRAME_BYTES_MAX) -> bytearray:
    """The frame of these messages, header included; several frames if they are too large for one of `bytes_max`.

    `LinkError` if one message alone is too large, or has text that is no Unicode.
    """
    frame = bytearray(HEADER_BYTES)
    try:
        encoding.encoder.encode_into(messages, frame, HEADER_BYTES)
    except UnicodeEncodeError as error:
        raise LinkError(f"a message has text that {encoding.name} cannot hold: {error}") from None
    length = len(frame) - HEADER_BYTES
    if length > bytes_max:
        if len(messages) == 1:
            raise LinkError(f"a message of {length} bytes in {encoding.name}; at most {bytes_max} are allowed")
        half = len(messages) // 2
        return encode_frame(messages[:half], encoding, bytes_max) + encode_frame(messages[half:], encoding, bytes_max)
    HEADER.pack_into(frame, 0, length)
    return frame


class FrameSplitter:
    """Cuts a stream of bytes into the messages of its frames. The first frame may have a smaller limit."""

    def __init__(self, direction: Direction = FROM_EXECUTOR, first_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._direction = direction
        self._bytes_max = first_bytes_max
        self._decode: Callable[[memoryview], list[Any]] = self._decode_first
        self._buffer = bytearray()
        self.encoding = MSGPACK
        """The encoding of the first frame, once that has come; all further frames must have the same."""

    def limit(self, bytes_max: int) -> None:
        """Once the first frame has come: a frame has so many bytes at most from now on."""
        self._bytes_max = bytes_max

    def feed(self, data: bytes) -> list[Any]:
        """The messages of all frames that `data` completes; `LinkError` if a frame is malformed or too large."""
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
            # A new object, since a memoryview of the old one may still be there, which would block resizing.
            self._buffer = buffer[position:]
        return messages

    def _decode_first(self, body: memoryview) -> list[Any]:
        """The first frame decides the encoding of all frames; frames after it may be larger."""
        self._bytes_max = FRAME_BYTES_MAX
        if body and body[0] == JSON_START:
            self.encoding, self._decode = JSON, self._direction.json
        else:
            self._decode = self._direction.msgpack
        return self._decode(body)
