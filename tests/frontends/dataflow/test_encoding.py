"""Messages as bytes: values keep their types, arrays are not pickled, large ones travel beside."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow import encoding
from frontends.dataflow.encoding import INLINE_BYTES_MAX, INLINE_SUM_BYTES_MAX, Decoder, Encoder
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.messages import Chunk, Flag, Marker, Message, Partition, Replica, Stored, Told, Welcome

Edges = namedtuple("Edges", ["source", "dest"])
LARGE = INLINE_BYTES_MAX // 8 + 1


def through(message: msgspec.Struct) -> tuple[Any, list[Any]]:
    """The message as it arrives, and the buffers that travelled beside it."""
    out = bytearray()
    buffers = Encoder().append(message, out)
    return Decoder(Message).message(out, [buffer.copy() for buffer in buffers]), buffers


def value_through(value: Any) -> Any:
    return through(Replica(1, 2, 3, 4, 5, 6, value))[0].value


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (
            type(other) is type(one)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and (one.tobytes() == other.tobytes() if not one.dtype.hasobject else one.tolist() == other.tolist())
        )
    if isinstance(one, (tuple, list)):
        return type(other) is type(one) and len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return type(other) is dict and one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return type(other) is type(one) and (one == other or repr(one) == repr(other))


ARRAYS = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 50, shape).astype(dtype),
    st.sampled_from(["f8", "f4", "i1", "u2", "?", "c16", "M8[ns]", "m8[s]", "U7", "S3", ">f8", ">i4"]),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 9),
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.binary(),
        st.complex_numbers(),
        st.builds(np.float64, st.floats()),
        st.builds(np.int8, st.integers(-128, 127)),
        ARRAYS,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.integers(), st.text()), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_values_of_users_keep_their_types_and_contents(value: Any) -> None:
    assert equal(value, value_through(value))


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3, [("a", "i4"), ("b", "f8")]),
        np.array([1, "two"], object),
        np.zeros((), "f4"),
        np.ma.masked_array([1, 2], [True, False]),
        {1, 2},
        Edges(np.arange(3), np.arange(3)),
        tuple(range(1_000)),
        1 << 90,
        "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_msgpack_does_not_have_arrives_as_it_was(value: Any) -> None:
    came = value_through(value)
    assert type(came) is type(value) and str(came) == str(value)


@pytest.mark.parametrize(
    "message",
    [
        Marker(1, 2, -(1 << 62), 4, 5, (6, 7), 8, 9, 10, 0),
        Told(1, 2, 3, 4, 5, True, 6, (Flag(1, 2, True, -1),)),
        Welcome(1, 2, {0: 1.5, 3: None}, (0, 1), -1),
        Stored(1, 2, {(3, 4): "x"}),
        Partition(1, 2, 3, 4, {5: 6}, {5: 7}, [(8, 9, {0: [1, (2, 3)]}, frozenset({1, 2}))]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_arrive_as_they_were(message: msgspec.Struct) -> None:
    assert through(message)[0] == message


@pytest.mark.parametrize("shape", [(3, 4), (200, 300)], ids=["small", "large"])
def test_the_order_in_memory_stays_as_sums_depend_on_it(shape: tuple[int, int]) -> None:
    by_columns = np.asfortranarray(np.random.default_rng(0).random(shape))
    came = value_through(by_columns)
    assert came.flags.f_contiguous and not came.flags.c_contiguous
    assert np.array_equal(came, by_columns)


@pytest.mark.parametrize("size", [5, LARGE], ids=["small", "large"])
def test_arrays_that_are_not_contiguous_arrive_contiguous(size: int) -> None:
    every_second = np.arange(2.0 * size)[::2]
    came = value_through(every_second)
    assert came.flags.c_contiguous and np.array_equal(came, every_second)


@pytest.mark.parametrize("size", [5, LARGE], ids=["small", "large"])
def test_what_arrives_may_be_written_even_if_the_sender_may_not(size: int) -> None:
    array = np.arange(size)
    array.flags.writeable = False
    came = value_through(array)
    came += 1
    assert np.array_equal(came, array + 1)


def test_large_arrays_travel_beside_and_are_not_copied_by_the_encoder() -> None:
    array = np.arange(LARGE)
    _, buffers = through(Chunk(1, 2, 3, 4, 5, 6, 7, 8, 9, 0, [np.arange(3), array]))
    assert len(buffers) == 1 and np.shares_memory(buffers[0], array)


@pytest.mark.parametrize("wrap", [lambda a: Edges(a, 1), lambda a: {"a": a}, lambda a: (a,), lambda a: [[a]]])
@pytest.mark.parametrize("order", ["contiguous", "strided"])
def test_arrays_within_other_values_are_not_pickled_either(wrap: Any, order: str) -> None:
    array = np.arange(2 * LARGE)[:: 2 if order == "strided" else 1]
    out = bytearray()
    buffers = Encoder().append(Replica(1, 2, 3, 4, 5, 6, wrap(array)), out)
    assert [buffer.nbytes for buffer in buffers] == [array.nbytes] and len(out) < 1_000


def test_large_pickles_travel_beside() -> None:
    value = {str(number): number for number in range(10_000)}
    message = Replica(1, 2, 3, 4, 5, 6, value)
    out = bytearray()
    buffers = Encoder().append(message, out)
    assert len(buffers) == 1 and len(out) < 100
    assert through(message)[0] == message


def test_many_small_arrays_do_not_make_a_large_message() -> None:
    arrays = [np.full(INLINE_BYTES_MAX // 8, number) for number in range(100)]
    message = Chunk(1, 2, 3, 4, 5, 6, 7, 8, 9, 0, arrays)
    out = bytearray()
    buffers = Encoder().append(message, out)
    assert len(out) < INLINE_SUM_BYTES_MAX + 10_000
    assert len(buffers) == 100 - INLINE_SUM_BYTES_MAX // INLINE_BYTES_MAX
    assert equal(through(message)[0].chunks, arrays)


def test_more_buffers_than_a_frame_names_are_an_error_and_leave_the_encoder_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoding, "BUFFERS_MAX", 2)
    encoder, out = Encoder(), bytearray()
    with pytest.raises(ProtocolError, match="3 large arrays"):
        encoder.append(Chunk(1, 2, 3, 4, 5, 6, 7, 8, 9, 0, [np.arange(LARGE)] * 3), out)
    assert len(encoder.append(Replica(1, 2, 3, 4, 5, 6, np.arange(LARGE)), out)) == 1


class Odd:
    def __reduce__(self) -> Any:
        raise RuntimeError("does not want to be sent")


def test_a_value_that_cannot_be_pickled_leaves_the_encoder_as_it_was() -> None:
    encoder, out = Encoder(), bytearray()
    with pytest.raises(RuntimeError, match="does not want"):
        encoder.append(Chunk(1, 2, 3, 4, 5, 6, 7, 8, 9, 0, [np.arange(LARGE), {0: np.arange(LARGE), 1: Odd()}]), out)
    assert len(encoder.append(Replica(1, 2, 3, 4, 5, 6, np.arange(LARGE)), out)) == 1


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="a frame that is no"):
        Decoder(Message).message(data, [])
    with pytest.raises(ProtocolError, match="a frame that is no"):
        Decoder(Message).batch(memoryview(b"\xc1" + data))


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_message_with_a_changed_byte_is_an_error_or_another_message(position: int, byte: int) -> None:
    values = {5: np.arange(4), 6: (1.5, np.arange(LARGE)), 7: {"a": 3}}
    out = bytearray()
    buffers = Encoder().append(Partition(1, 2, 3, 4, values, {5: 7}, []), out)
    out[position % len(out)] = byte
    try:
        came = Decoder(Message).message(out, buffers)
    except ProtocolError:
        return
    assert isinstance(came, Message)
