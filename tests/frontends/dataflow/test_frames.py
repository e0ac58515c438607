"""Frames in a stream of bytes, however it is cut; and those that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.frames import (
    DESCRIPTORS_MAX,
    ENTRY,
    HEADER,
    RECEIVE_BYTES,
    Entry,
    Frame,
    FrameReader,
    Kind,
    Where,
    entries_of,
    pack,
    pack_carried,
)


def fed(reader: FrameReader, data: bytes, cuts: Iterator[int]) -> Iterator[tuple[Kind, bytes, bytes]]:
    """What the reader hands out of these bytes, received in pieces: kinds, bodies and buffers in the stream."""
    rest = memoryview(data)
    target: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
    last: tuple[Kind, bytes] | None = None
    while rest:
        room = reader.room()
        assert room, "there is always room"
        count = min(len(room), len(rest), next(cuts))
        room[:count] = rest[:count]
        rest = rest[count:]
        reader.took(count)
        if last is not None and not reader.is_filling:
            yield *last, target[0].tobytes()
            last = None
        while (frame := reader.next()) is not None:
            if frame.kind is not Kind.CARRIED:
                yield frame.kind, bytes(frame.body), b""
                continue
            entries, message = entries_of(frame)
            target = [np.zeros(entry.size, np.uint8) for entry in entries]
            last = frame.kind, bytes(message)
            if reader.fill(target):
                yield *last, target[0].tobytes()
                last = None


FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just(Kind.BATCH), st.binary(max_size=30), st.just(b"")),
        st.tuples(st.just(Kind.BATCH), st.integers(0, 2).map(lambda n: b"x" * n * RECEIVE_BYTES), st.just(b"")),
        st.tuples(st.just(Kind.CARRIED), st.binary(max_size=30), st.binary(min_size=1, max_size=100)),
        st.tuples(st.just(Kind.CARRIED), st.just(b""), st.just(b"y" * (RECEIVE_BYTES + 1))),
    ),
    max_size=6,
)


@given(FRAMES, st.lists(st.sampled_from([1, 3, 7, 100, 70_000, 1 << 20]), min_size=1, max_size=20))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    frames: list[tuple[Kind, bytes, bytes]], cuts: list[int]
) -> None:
    def pieces() -> Iterator[int]:
        yield from cuts
        while True:
            yield 5_000

    data = b"".join(
        pack(kind, body)
        if kind is Kind.BATCH
        else pack_carried(kind, [Entry(Where.STREAM, 0, 0, len(buffer))], body) + buffer
        for kind, body, buffer in frames
    )
    reader = FrameReader()
    assert list(fed(reader, data, pieces())) == frames
    assert reader.is_empty


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ((1 << 30, Kind.BATCH, 0, 0), r"announces 1,073,741,824 bytes; at most 1,000"),
        ((0, 0, 0, 0), "kind 0"),
        ((0, 99, 0, 0), "kind 99"),
        ((0, Kind.CARRIED, DESCRIPTORS_MAX + 1, 0), "65 descriptors"),
    ],
    ids=["oversized", "kind 0", "kind 99", "descriptors"],
)
def test_headers_that_cannot_be_are_errors_before_memory_is_taken(header: tuple[int, ...], error: str) -> None:
    reader = FrameReader(1_000)
    data = HEADER.pack(*header)
    reader.room()[: len(data)] = data
    reader.took(len(data))
    with pytest.raises(ProtocolError, match=error):
        reader.next()


@pytest.mark.parametrize(
    ("entry", "descriptors", "buffers", "error"),
    [
        ((9, 0, 0, 1), 0, 1, "place 9"),
        ((Where.STREAM, 0, 0, 0), 0, 1, "buffer of 0 bytes"),
        ((Where.STREAM, 0, 0, 1 << 62), 0, 1, "buffer of 4611686018427387904 bytes"),
        ((Where.STREAM, 0, 0, 1), 0, 2, "announces 2 buffers"),
        ((Where.OWN, 0, 0, 1), 0, 1, "announces 0 descriptors"),
        ((Where.STREAM, 0, 0, 1), 1, 1, "announces 1 descriptors"),
    ],
    ids=["place", "empty", "too large", "too few", "without descriptor", "with descriptor"],
)
def test_buffers_that_cannot_be_are_errors(entry: tuple[int, ...], descriptors: int, buffers: int, error: str) -> None:
    frame = Frame(Kind.CARRIED, descriptors, buffers, memoryview(ENTRY.pack(*entry)))
    with pytest.raises(ProtocolError, match=error):
        entries_of(frame)
