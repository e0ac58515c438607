"""Messages as bytes, and the large arrays in them as buffers beside the bytes.

A message is a msgpack array of its tag and fields. What its fields of type `Any` hold are a user's values:

- numbers, strings, bytes, booleans and None travel as msgpack has them;
- numpy arrays of plain dtypes are never pickled: header (dtype, shape, order) and contents within the message up to
  `INLINE_BYTES_MAX`, else header and the number of a buffer beside it;
- numpy's scalars, tuples and lists of such values keep their types;
- all else (named tuples, objects of a user's classes) by pickle 5, with the arrays in it as buffers in the same way.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import inspect
from msgspec.msgpack import Ext

from frontends.dataflow.errors import ProtocolError
from sparrow_py import function_pickling

INLINE_BYTES_MAX = 16 << 10
"""Of an array within a message. Larger ones travel beside it."""
INLINE_SUM_BYTES_MAX = 256 << 10
"""Of all arrays within one message; those beyond travel beside it."""
BUFFERS_MAX = 65_535
"""Beside one message."""
WALKED_ITEMS_MAX = 64
"""Of a tuple or list whose items travel one by one; longer ones are pickled."""
UNREADABLE = "a frame that is no"
"""So begins why a link ended on which something came that cannot be decoded, or unpickled."""
HEADERS_MAX = 4_096
"""Of arrays, that are remembered for the next array of the same dtype and shape."""

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
"""A buffer: an array of bytes."""
_ARRAY, _ARRAY_BESIDE, _PICKLE, _PICKLE_BESIDE, _TUPLE, _SCALAR = range(1, 7)
_NUMBER = struct.Struct("<I")
_NUMBERS = struct.Struct("<II")
_ALIGNMENT = 16
_AS_THEY_ARE = frozenset({np.ndarray, float, bool, bytes, type(None)})
_INTEGERS = range(-(1 << 63), 1 << 64)
"""That msgpack has."""


def _pickled_array(array: np.ndarray[Any, Any]) -> Any:
    """How an array within an object is pickled: what is not contiguous is made so, else its contents were copied into
    the pickle."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    return array.__reduce_ex__(5)


class _Pickler(function_pickling.Pickler):
    dispatch_table = function_pickling.Pickler.dispatch_table.new_child({np.ndarray: _pickled_array})


def flat_bytes(array: np.ndarray[Any, Any]) -> Bytes:
    """The memory of a contiguous array, as bytes."""
    flat: Bytes = array.ravel(order="K").view(np.uint8)
    return flat


class Encoder:
    """Of one process. What is returned shares the memory of the message's arrays."""

    def __init__(self) -> None:
        self._msgpack = msgspec.msgpack.Encoder(enc_hook=self._encoded)
        self._headers: dict[tuple[np.dtype[Any], tuple[int, ...], bool], bytes] = {}
        self._fields: dict[type, tuple[tuple[int, str, _Walk], ...]] = {}
        self._buffers: list[Bytes] = []
        self._inline_bytes = 0

    def append(self, message: msgspec.Struct, out: bytearray) -> list[Bytes]:
        """Append the message to `out`; the buffers that travel beside it."""
        fields = self._fields.get(type(message))
        if fields is None:
            fields = self._fields[type(message)] = _fields_of(type(message))
        try:
            self._msgpack.encode_into(self._packed_in(message, fields) if fields else message, out, -1)
        except BaseException:
            self._inline_bytes, self._buffers = 0, []
            raise
        self._inline_bytes = 0
        if not self._buffers:
            return _NONE
        buffers, self._buffers = self._buffers, []
        if len(buffers) > BUFFERS_MAX:
            raise ProtocolError(
                f"{type(message).__name__}: {len(buffers)} large arrays in a message; at most {BUFFERS_MAX} are allowed"
            )
        return buffers

    def _packed_in(self, message: msgspec.Struct, fields: tuple[tuple[int, str, _Walk], ...]) -> Any:
        """The message, or if msgpack would not keep a user's values in it, its tag and fields."""
        plain: Any = message
        for position, name, walk in fields:
            value = getattr(message, name)
            walked = walk(value, self._packed)
            if walked is not value:
                if plain is message:
                    plain = [message.__struct_config__.tag, *msgspec.structs.astuple(message)]
                plain[position] = walked
        return plain

    # ---- values -----------------------------------------------------------------------------------

    def _packed(self, value: Any) -> Any:
        """The value, or what stands for it in the message."""
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is int:
            return value if value in _INTEGERS else self._pickled(value)
        if kind is str:
            return value if value.isascii() or _is_text(value) else self._pickled(value)
        if kind is tuple and len(value) <= WALKED_ITEMS_MAX:
            return Ext(_TUPLE, self._msgpack.encode([self._packed(item) for item in value]))
        if kind is list and len(value) <= WALKED_ITEMS_MAX:
            return [self._packed(item) for item in value]
        if isinstance(value, np.generic) and _is_plain(value.dtype):
            return Ext(_SCALAR, self._header(value.dtype, (), False) + value.tobytes())
        return self._pickled(value)

    def _encoded(self, value: Any) -> Ext:
        """What msgpack does not have."""
        if type(value) is not np.ndarray:
            return self._pickled(value)
        by_columns = value.ndim > 1 and value.flags.fnc
        header = self._headers.get((value.dtype, value.shape, by_columns))
        if header is None:
            if not _is_plain(value.dtype):
                return self._pickled(value)
            header = self._header(value.dtype, value.shape, by_columns)
        size = value.nbytes
        if size <= INLINE_BYTES_MAX and self._inline_bytes + size <= INLINE_SUM_BYTES_MAX:
            self._inline_bytes += size
            return Ext(_ARRAY, header + value.tobytes("A" if by_columns else "C"))
        if not (by_columns or value.flags.c_contiguous):
            value = np.ascontiguousarray(value)
        return Ext(_ARRAY_BESIDE, header + _NUMBER.pack(self._beside(flat_bytes(value))))

    def _beside(self, flat: Bytes) -> int:
        self._buffers.append(flat)
        return len(self._buffers) - 1

    def _header(self, dtype: np.dtype[Any], shape: tuple[int, ...], by_columns: bool) -> bytes:
        """Length in units of 16 bytes, order, number of dimensions, dimensions, dtype, and what fills the last unit;
        remembered."""
        rest = struct.pack(f"<BB{len(shape)}Q", by_columns, len(shape), *shape) + dtype.str.encode()
        units = -(-(1 + len(rest)) // _ALIGNMENT)
        header = bytes([units]) + rest.ljust(units * _ALIGNMENT - 1)
        if len(self._headers) >= HEADERS_MAX:
            self._headers.clear()
        self._headers[dtype, shape, by_columns] = header
        return header

    def _pickled(self, value: Any) -> Ext:
        first = len(self._buffers)

        def within(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes <= INLINE_BYTES_MAX:
                return True
            self._beside(np.frombuffer(raw, np.uint8))
            return False

        file = io.BytesIO()
        _Pickler(file, protocol=5, buffer_callback=within).dump(value)
        pickled, count = file.getbuffer(), len(self._buffers) - first
        if len(pickled) <= INLINE_BYTES_MAX:
            return Ext(_PICKLE, _NUMBERS.pack(first, count) + pickled)
        self._beside(np.frombuffer(pickled, np.uint8))
        return Ext(_PICKLE_BESIDE, _NUMBERS.pack(first, count))


_NONE: list[Bytes] = []


def _is_text(value: str) -> bool:
    """Whether UTF-8 has it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether its string says all about the dtype, and arrays of it are nothing but their bytes."""
    return not dtype.hasobject and (dtype.isbuiltin == 1 or np.dtype(dtype.str) == dtype) and dtype.itemsize > 0


class Decoder:
    """Of one process, for messages of a union of structs."""

    def __init__(self, union: Any) -> None:
        self._messages: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(
            list[union], ext_hook=self._decoded, dec_hook=_as_declared
        )
        self._message: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            union, ext_hook=self._decoded, dec_hook=_as_declared
        )
        self._items: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any], ext_hook=self._decoded)
        self._headers: dict[bytes, tuple[np.dtype[Any], tuple[int, ...], bool]] = {}
        self._buffers: Sequence[Bytes] = ()

    def batch(self, body: memoryview) -> list[Any]:
        """Messages that came as one msgpack array, none of them with buffers beside it."""
        try:
            return self._messages.decode(body)
        except Exception as error:  # Whatever unpickling raises, too.
            raise ProtocolError(f"{UNREADABLE} list of messages: {error}") from error

    def message(self, body: memoryview | bytes, buffers: Sequence[Bytes]) -> Any:
        """A message, with the buffers that came beside it; its arrays share their memory."""
        self._buffers = buffers
        try:
            return self._message.decode(body)
        except Exception as error:
            raise ProtocolError(f"{UNREADABLE} message: {error}") from error
        finally:
            self._buffers = ()

    def _decoded(self, code: int, data: memoryview) -> Any:
        if code == _ARRAY:
            units = data[0] * _ALIGNMENT
            dtype, shape, by_columns = self._described(bytes(data[:units]))
            if by_columns:
                return np.ndarray(shape, dtype, bytearray(data), units, order="F")
            return np.ndarray(shape, dtype, bytearray(data), units)
        if code == _ARRAY_BESIDE:
            units = data[0] * _ALIGNMENT
            dtype, shape, by_columns = self._described(bytes(data[:units]))
            (number,) = _NUMBER.unpack(data[units:])
            return self._buffers[number].view(dtype).reshape(shape, order="F" if by_columns else "C")
        if code == _TUPLE:
            return tuple(self._items.decode(data))
        if code == _SCALAR:
            units = data[0] * _ALIGNMENT
            dtype, _, _ = self._described(bytes(data[:units]))
            return np.frombuffer(data, dtype, 1, units)[0]
        if code in {_PICKLE, _PICKLE_BESIDE}:
            first, count = _NUMBERS.unpack(data[: _NUMBERS.size])
            arrays = self._buffers[first : first + count]
            pickled = data[_NUMBERS.size :] if code == _PICKLE else memoryview(self._buffers[first + count])
            return pickle.loads(pickled, buffers=arrays)
        raise ProtocolError(f"values of kind {code} are not known")

    def _described(self, header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
        known = self._headers.get(header)
        if known is None:
            by_columns, dimensions = header[1], header[2]
            shape = struct.unpack_from(f"<{dimensions}Q", header, 3)
            known = np.dtype(header[3 + 8 * dimensions :].decode().rstrip()), shape, bool(by_columns)
            if known[0].hasobject:
                raise ProtocolError(f"an array of Python objects (dtype {known[0]}) is not sent as bytes")
            if len(self._headers) >= HEADERS_MAX:
                self._headers.clear()
            self._headers[header] = known
        return known


def _as_declared(kind: type, value: Any) -> Any:
    """For fields of a type of numpy's: what extensions were decoded to."""
    if not isinstance(value, kind):
        raise NotImplementedError(f"{kind.__name__} expected, got {type(value).__name__}")
    return value


# ---- where a message has values of a user ---------------------------------------------------------

_Pack: TypeAlias = Callable[[Any], Any]
_Walk: TypeAlias = Callable[[Any, _Pack], Any]
"""Packs all values of a user in a field; the field itself if nothing had to be."""


def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[int, str, _Walk], ...]:
    """The fields of a struct that may hold a user's values: position after the tag, name, how they are found there."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    walks = [(field.name, _walk_of(field.type)) for field in described.fields]
    return tuple((position, name, walk) for position, (name, walk) in enumerate(walks, 1) if walk is not None)


def _walk_of(kind: inspect.Type) -> _Walk | None:
    match kind:
        case inspect.AnyType():
            return _packed_value
        case inspect.ListType(item_type=inspect.AnyType()):
            return _packed_values
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            walk = _walk_of(item)
            return None if walk is None else _in_items(walk)
        case inspect.DictType(value_type=item):
            walk = _walk_of(item)
            return None if walk is None else _in_dict(walk)
        case inspect.TupleType(item_types=items):
            walks = [_walk_of(item) for item in items]
            return _in_places(walks) if any(walks) else None
        case _:
            return None


def _packed_value(value: Any, pack: _Pack) -> Any:
    return value if type(value) in _AS_THEY_ARE else pack(value)


def _packed_values(values: list[Any], pack: _Pack) -> list[Any]:
    for value in values:
        if type(value) not in _AS_THEY_ARE:
            return [pack(value) for value in values]
    return values


def _in_items(walk: _Walk) -> _Walk:
    def packed(items: Any, pack: _Pack) -> Any:
        return [walk(item, pack) for item in items] if items else items

    return packed


def _in_dict(walk: _Walk) -> _Walk:
    def packed(values: dict[Any, Any], pack: _Pack) -> Any:
        return {key: walk(value, pack) for key, value in values.items()} if values else values

    return packed


def _in_places(walks: Sequence[_Walk | None]) -> _Walk:
    def packed(places: Any, pack: _Pack) -> Any:
        return [place if walk is None else walk(place, pack) for place, walk in zip(places, walks, strict=True)]

    return packed
