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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sparrow_py import function_pickling
from sparrow_py.errors import InvalidRequest
from sparrow_py.executors.executor_files import load
from sparrow_py.job import INPUTS_MAX, BlobRef, TaskSpec

if TYPE_CHECKING:
    from sparrow_py.executors.executor_protocol import Data

MAGIC = b"sparrow1"
"""What stored values begin with."""
ALIGNMENT_BYTES = 64
"""Where buffers begin: arrays compute faster on cache lines."""
_COUNT = struct.Struct("<Q")
_PLACE = struct.Struct("<QQ")


class StoredValue:
    """A value that a client has given to the cluster: an argument for calls of that client, in the value's place.

    The client keeps the encoded value as long as this object lives, and gives it to the cluster again if the nodes that
    had it are gone.

    hash: the SHA-256 of what was stored, in hexadecimal. size_bytes: of what was stored.
    """

    __slots__ = ("__weakref__", "blob", "content", "owner")

    def __init__(self, blob: BlobRef, content: bytes, owner: object) -> None:
        """blob: which nodes have it. content: as `encode` made it. owner: what its client has such values in."""
        self.blob = blob
        self.content = content
        self.owner = owner

    @property
    def hash(self) -> str:
        return self.blob.hash

    @property
    def size_bytes(self) -> int:
        return self.blob.size

    def __repr__(self) -> str:
        return f"<StoredValue {self.hash[:12]}, {self.size_bytes:,} bytes>"

    def __reduce__(self) -> tuple[Callable[[int], Any], tuple[int]]:
        asking = _here.asking
        if asking is None:
            raise TypeError(f"{self} can only be an argument of a call of the client that has stored it")
        return input_value, (asking.place_of(self),)


@dataclass(slots=True)
class CallSpec(TaskSpec):
    """The task of a call that has stored values in its arguments. `values`: these, so that they live as long as it."""

    values: Sequence[StoredValue] = ()


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

    def place_of(self, value: StoredValue) -> int:
        """Which of its task's inputs the value is."""


class _Here(threading.local):
    asking: Asking | None = None
    """The call that this thread encodes."""
    inputs: Sequence[Data] = ()
    """Of the call that this thread decodes."""


_here = _Here()


class Asked:
    """The stored values that a call names, in order, each once. A `with` block of it encodes the call."""

    __slots__ = ("_before", "_values")

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, StoredValue]] | None = None  # As with most calls.

    def __enter__(self) -> None:
        here = _here
        self._before, here.asking = here.asking, self

    def __exit__(self, *_: object) -> None:
        _here.asking = self._before

    @property
    def values(self) -> list[StoredValue]:
        return [value for _, value in (self._values or {}).values()]

    def place_of(self, value: StoredValue) -> int:
        """As `Asking` says; `InvalidRequest` for one too many."""
        if self._values is None:
            self._values = {}
        place, _ = self._values.setdefault(value.hash, (len(self._values), value))
        if place == INPUTS_MAX:
            raise InvalidRequest("arguments", f"more than {INPUTS_MAX} stored values", f"at most {INPUTS_MAX}")
        return place

    def task(self, payload: bytes) -> bytes | CallSpec:
        """The task of the call with this payload."""
        if self._values is None:
            return payload
        values = self.values
        return CallSpec(payload, inputs=[value.blob for value in values], values=values)


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


def input_value(place: int) -> Any:
    """The stored value that is this input of the call which is being decoded."""
    inputs = _here.inputs
    if not 0 <= place < len(inputs):
        raise ValueError(f"the call refers to input {place} of its task, which has {len(inputs)}")
    try:
        return decode(load(inputs[place]))
    except Exception as error:
        raise ValueError(f"input {place} is no stored value that can be had here: {error}") from error
