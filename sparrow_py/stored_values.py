"""Values that a client gives to the cluster once (`Client.put`), for calls to name in their arguments.

A stored value is one pickle (protocol 5) whose large buffers, as those of arrays, lie beside it and not in it. Nodes
fetch it once each, and a worker maps it: an array in it is a read-only view of the node's file, without a copy.

In a call's arguments a `StoredValue` stands for the value, at any depth. The call's task asks for the data as an input,
and the payload says which of its inputs it is.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sparrow_py import function_pickling
from sparrow_py.errors import InvalidRequest
from sparrow_py.executors.executor_files import load, using
from sparrow_py.job import INPUTS_MAX, BlobRef, Ended, InputName, TaskResult, TaskSpec

if TYPE_CHECKING:
    from sparrow_py.executors.executor_protocol import Data

MAGIC = b"sparrow1"
"""What stored values begin with."""
ALIGNMENT_BYTES = 64
"""Where buffers begin: arrays compute faster on cache lines."""
_COUNT = struct.Struct("<Q")
_PLACE = struct.Struct("<QQ")


class StandsForInput:
    """Base of what stands in the arguments of a call for an input of its task, and is pickled as the input's number."""

    __slots__ = ()


class StoredValue(StandsForInput):
    """A value that a client has given to the cluster: an argument for calls of that client, in the value's place.

    The client keeps the encoded value as long as this object lives, and gives it to the cluster again if the nodes that
    had it are gone.
    """

    __slots__ = ("__weakref__", "blob", "content", "owner")

    def __init__(self, blob: BlobRef, content: bytes, owner: object) -> None:
        """blob: which nodes have it. content: as `encode` made it. owner: what its client has such values in."""
        self.blob = blob
        self.content = content
        self.owner = owner

    @property
    def hash(self) -> str:
        """The SHA-256 of what was stored, 64 hexadecimal digits."""
        return self.blob.hash

    @property
    def size_bytes(self) -> int:
        """The size of what was stored."""
        return self.blob.size

    def __repr__(self) -> str:
        return f"<StoredValue {self.hash[:12]}, {self.size_bytes:,} bytes>"

    def __reduce__(self) -> tuple[Callable[[int], Any], tuple[int]]:
        asking = _here.asking
        if asking is None:
            raise TypeError(f"{self} can only be an argument of a call of the client that has stored it")
        return input_value, (asking.place_of(self),)


class AwaitedFuture(Protocol):
    """A future of a client, for a task of one of its jobs."""

    @property
    def task_result(self) -> TaskResult:
        """Its task."""

    @property
    def session(self) -> object:
        """Its client's session."""

    def ended(self) -> Ended | None:
        """How its task ended, as far as is known; None if it has not. Large results are references, and may be on their
        way."""

    def content(self) -> bytes | bytearray | None:
        """The bytes of its task's result, once they are here."""

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn` when the future is done."""


@dataclass(slots=True)
class CallSpec(TaskSpec):
    """The task of a call that has stored values or futures in its arguments. `values`: these, so that they live as long
    as it. `futures`: these, until it is submitted; copies of it have this very list."""

    values: Sequence[StoredValue] = ()
    futures: list[AwaitedFuture] = field(default_factory=list)


# ---- bytes -----------------------------------------------------------------------------------


def encode(value: object) -> bytes:
    """The value as it is stored; raises what pickling raises."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    function_pickling.Pickler(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    parts: list[memoryview] = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    head = [MAGIC, _COUNT.pack(len(parts))]
    body: list[bytes | memoryview] = []
    end = len(MAGIC) + _COUNT.size + _PLACE.size * len(parts)
    for part in parts:
        padding = -end % ALIGNMENT_BYTES
        head.append(_PLACE.pack(end + padding, part.nbytes))
        body += bytes(padding), part
        end += padding + part.nbytes
    return b"".join([*head, *body])


def decode(content: Any) -> Any:
    """What `encode` made of a value; arrays in it are read-only views of `content` (any buffer), which they keep.

    `ValueError` if it is nothing that `encode` has made. Unpickling runs any code.
    """
    view = memoryview(content).toreadonly()
    first = len(MAGIC) + _COUNT.size
    if bytes(view[: len(MAGIC)]) != MAGIC or len(view) < first:
        raise ValueError("these bytes are no stored value")
    (count,) = _COUNT.unpack_from(view, len(MAGIC))
    if not 0 < count <= (len(view) - first) // _PLACE.size:
        raise ValueError(f"a stored value of {len(view)} bytes cannot have {count} parts")
    places = [_PLACE.unpack_from(view, first + _PLACE.size * number) for number in range(count)]
    if any(begin + size > len(view) for begin, size in places):
        raise ValueError(f"a stored value of {len(view)} bytes is cut off")
    pickled, *buffers = [view[begin : begin + size] for begin, size in places]
    return pickle.loads(pickled, buffers=buffers)


# ---- in the arguments of calls ---------------------------------------------------------------


class Asking(Protocol):
    """A call that is being encoded."""

    def place_of(self, value: StoredValue | AwaitedFuture) -> int:
        """Which of its task's inputs the value, or the future's result, is."""


class _Here(threading.local):
    asking: Asking | None = None
    """The call that this thread encodes."""
    inputs: Sequence[Data] = ()
    """Of the call that this thread decodes."""


_here = _Here()


class Asked:
    """The stored values and futures that a call names, in order, each once. A `with` block of it encodes the call."""

    __slots__ = ("_before", "_inputs")

    def __init__(self) -> None:
        self._inputs: dict[BlobRef | TaskResult | str, tuple[int, StoredValue | AwaitedFuture]] | None = None
        """By hash or task; None as with most calls."""

    def __enter__(self) -> None:
        here = _here
        self._before, here.asking = here.asking, self

    def __exit__(self, *_: object) -> None:
        _here.asking = self._before

    def place_of(self, value: StoredValue | AwaitedFuture) -> int:
        """As `Asking` says; `InvalidRequest` for one too many."""
        if self._inputs is None:
            self._inputs = {}
        key = value.hash if isinstance(value, StoredValue) else value.task_result
        place, _ = self._inputs.setdefault(key, (len(self._inputs), value))
        if place == INPUTS_MAX:
            found = f"more than {INPUTS_MAX} stored values and futures"
            raise InvalidRequest("arguments", found, f"at most {INPUTS_MAX}")
        return place

    def task(self, payload: bytes) -> bytes | CallSpec:
        """The task of the call with this payload."""
        if self._inputs is None:
            return payload
        return call_spec(payload, [value for _, value in self._inputs.values()])


def call_spec(payload: bytes, inputs: Sequence[StoredValue | AwaitedFuture | InputName]) -> CallSpec:
    """The task of a call with these inputs."""
    names: list[InputName] = []
    values: list[StoredValue] = []
    futures: list[AwaitedFuture] = []
    for one in inputs:
        if isinstance(one, StoredValue):
            names.append(one.blob)
            values.append(one)
        elif isinstance(one, str | tuple | BlobRef | TaskResult):
            names.append(one)
        else:
            names.append(one.task_result)
            futures.append(one)
    return CallSpec(payload, inputs=names, values=values, futures=futures)


@contextmanager
def asked_by(asking: Asking) -> Iterator[None]:
    """What is pickled meanwhile, by this thread, asks for stored values so."""
    before, _here.asking = _here.asking, asking
    try:
        yield
    finally:
        _here.asking = before


@contextmanager
def given(inputs: Sequence[Data]) -> Iterator[None]:
    """What is unpickled meanwhile, by this thread, has these inputs."""
    before, _here.inputs = _here.inputs, inputs
    try:
        yield
    finally:
        _here.inputs = before


def asking() -> Asking | None:
    """The call that this thread encodes; None if it encodes none."""
    return _here.asking


def result_value(place: int) -> Any:
    """The value of the task whose result is this input of the call which is being decoded."""
    inputs = _here.inputs
    if not 0 <= place < len(inputs):
        raise ValueError(f"the call refers to input {place} of its task, which has {len(inputs)}")
    return result_of(inputs[place], place)


def result_of(data: Data, place: int) -> Any:
    """The value of a call whose result these data are, the input of this number of another."""
    try:
        return using(data, pickle.loads)
    except ModuleNotFoundError as error:  # Executors say what can be done about these.
        why = f"input {place} cannot be had here: {error}"
        raise ModuleNotFoundError(why, name=error.name, path=error.path) from error
    except Exception as error:
        raise ValueError(f"input {place} is no Python value that can be had here: {error}") from error


def input_value(place: int) -> Any:
    """The stored value that is this input of the call which is being decoded."""
    inputs = _here.inputs
    if not 0 <= place < len(inputs):
        raise ValueError(f"the call refers to input {place} of its task, which has {len(inputs)}")
    try:
        return decode(load(inputs[place]))
    except Exception as error:
        raise ValueError(f"input {place} is no stored value that can be had here: {error}") from error
