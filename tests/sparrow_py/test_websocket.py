"""WebSocket framing without I/O: the cases of RFC 6455 one by one, and any messages cut up in any way."""

import itertools
import os
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrow_py.wire import websocket as ws
from sparrow_py.wire.websocket import FRAGMENT, Close, FrameReader, Ping, Pong, WebSocketError

KEY = b"\x12\x34\x56\x78"
LENGTHS = [0, 1, 125, 126, 127, 128, 65535, 65536, 70_000]
BYTES_MAX = 100_000
WAYS = {"masked with zeros": bytes(4), "masked": KEY, "not masked": None}


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, key: bytes | None = None) -> bytes:
    """A frame, made in another way than the product makes it."""
    flag = 0 if key is None else 0x80
    size = len(payload)
    if size < 126:
        header = struct.pack(">BB", fin << 7 | rsv << 4 | opcode, flag | size)
    elif size < 1 << 16:
        header = struct.pack(">BBH", fin << 7 | rsv << 4 | opcode, flag | 126, size)
    else:
        header = struct.pack(">BBQ", fin << 7 | rsv << 4 | opcode, flag | 127, size)
    if key is None:
        return header + payload
    return header + key + bytes(byte ^ mask for byte, mask in zip(payload, itertools.cycle(key), strict=False))


def events(pieces: Iterable[bytes], *, masked: bool = False, bytes_max: int = BYTES_MAX) -> list[Any]:
    """What these pieces amount to."""
    reader = FrameReader(masked=masked, message_bytes_max=bytes_max)
    found = []
    for piece in pieces:
        reader.feed(piece)
        while (event := reader.read()) is not None:
            if event is not FRAGMENT:
                found.append(bytes(event) if isinstance(event, memoryview | bytearray) else event)
    return found


def code_of(data: bytes, **options: Any) -> int:
    """The close code that this leads to."""
    with pytest.raises(WebSocketError) as raised:
        events([data], **options)
    assert str(raised.value)
    return raised.value.code


def each_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# ---- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", LENGTHS)
def test_messages_of_all_lengths(length: int, way: str) -> None:
    payload, key = os.urandom(length), WAYS[way]
    data = frame(ws.BINARY, payload, key=key)
    assert events([data], masked=key is not None) == [payload]
    assert events([data, data], masked=key is not None) == [payload] * 2
    assert events([data + data], masked=key is not None) == [payload] * 2
    for cut in (1, 2, 3, 5, 9, 13, 14, 15, len(data) - 1):
        assert events([data[:cut], data[cut:] + data], masked=key is not None) == [payload] * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [length for length in LENGTHS if length <= 128])
def test_byte_by_byte(length: int, way: str) -> None:
    payload, key = os.urandom(length), WAYS[way]
    data = frame(ws.BINARY, payload, key=key) + frame(ws.PING, b"x", key=key)
    assert events(each_byte(data), masked=key is not None) == [payload, Ping(b"x")]


def test_a_message_in_one_piece_is_not_copied() -> None:
    data = frame(ws.BINARY, bytes(1000), key=bytes(4))
    reader = FrameReader(masked=True, message_bytes_max=BYTES_MAX)
    reader.feed(data)
    message = reader.read()
    assert isinstance(message, memoryview) and message.obj is data


def test_what_was_read_is_let_go_of() -> None:
    reader = FrameReader(masked=False, message_bytes_max=BYTES_MAX)
    reader.feed(frame(ws.BINARY, bytes(60_000)))
    assert reader.read() is not None and reader.read() is None
    assert not reader._data


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_written_is_what_the_rfc_says(length: int, masks: bool) -> None:
    payload = os.urandom(length)
    made = bytearray(ws.HEADER_ROOM) + payload
    ws.put_header(made, masks=masks)
    assert made == frame(ws.BINARY, payload, key=bytes(4) if masks else None)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("length", [0, 1, 125])
def test_control_frames_that_are_written(length: int, masks: bool) -> None:
    payload, key = os.urandom(length), bytes(4) if masks else None
    assert ws.control_frame(ws.PONG, payload, masks=masks) == frame(ws.PONG, payload, key=key)
    assert ws.close_frame(1002, masks=masks) == frame(ws.CLOSE, b"\x03\xea", key=key)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 1023, 1024, 1025, 1026, 900 << 10])
def test_masks_of_all_kinds_come_off(length: int) -> None:
    payload = os.urandom(length)
    for key in (KEY, b"\x00\x00\x00\x01", b"\xff\x00\x00\x00", b"\xff" * 4):
        masked = frame(ws.BINARY, payload, key=key)[-length:] if length else b""
        assert ws.unmasked(masked, key) == payload
        assert ws.unmasked(memoryview(masked), key) == payload


# ---- fragments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("between", ["nothing", "ping", "pong", "ping and pong"])
@pytest.mark.parametrize("parts", [[b"a", b""], [b"", b"a"], [b"", b""], [b"ab", b"cd", b"ef"], [bytes(70_000), b"x"]])
def test_fragments(parts: list[bytes], between: str, way: str) -> None:
    key = WAYS[way]
    control = [Ping(b"p")] * ("ping" in between) + [Pong(b"q")] * ("pong" in between)
    data = b""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        data += frame(ws.CONTINUATION if number else ws.BINARY, part, fin=last, key=key)
        for event in control if not last else ():
            data += frame(ws.PING if isinstance(event, Ping) else ws.PONG, event.payload, key=key)
    expected = [*control * (len(parts) - 1), b"".join(parts)]
    masked = key is not None
    assert events([data + frame(ws.BINARY, b"z", key=key)], masked=masked) == [*expected, b"z"]
    if len(data) < 1000:
        assert events(each_byte(data), masked=masked) == expected


def test_a_fragment_that_continues_nothing() -> None:
    assert code_of(frame(ws.CONTINUATION, b"x")) == 1002
    assert code_of(frame(ws.CONTINUATION, b"x", fin=False)) == 1002
    assert code_of(frame(ws.BINARY, b"x") + frame(ws.CONTINUATION, b"x")) == 1002


def test_a_fragment_is_all_that_is_read_at_a_time() -> None:
    reader = FrameReader(masked=False, message_bytes_max=BYTES_MAX)
    part = frame(ws.CONTINUATION, fin=False)
    reader.feed(frame(ws.BINARY, b"x", fin=False) + 2 * part + frame(ws.CONTINUATION, b"y"))
    assert [reader.read() for _ in range(5)] == [FRAGMENT, FRAGMENT, FRAGMENT, b"xy", None]


def test_a_message_in_as_many_fragments_as_may_be_and_in_one_more() -> None:
    begin, part, last = frame(ws.BINARY, fin=False), frame(ws.CONTINUATION, fin=False), frame(ws.CONTINUATION, b"x")
    most = begin + (ws.FRAGMENTS_MAX - 2) * part + last
    assert events([most + most]) == [b"x", b"x"]
    assert code_of(begin + (ws.FRAGMENTS_MAX - 1) * part) == 1009


def test_a_message_within_a_message() -> None:
    assert code_of(frame(ws.BINARY, b"x", fin=False) + frame(ws.BINARY, b"y")) == 1002
    assert code_of(frame(ws.BINARY, b"x", fin=False) + frame(ws.BINARY, b"y", fin=False)) == 1002


# ---- what is not allowed -------------------------------------------------------------------------


@pytest.mark.parametrize("rsv", range(1, 8))
@pytest.mark.parametrize("opcode", [ws.CONTINUATION, ws.TEXT, ws.BINARY, ws.CLOSE, ws.PING, ws.PONG])
def test_reserved_bits(opcode: int, rsv: int) -> None:
    assert code_of(frame(opcode, rsv=rsv)) == 1002
    assert code_of(frame(ws.BINARY, fin=False) + frame(opcode, rsv=rsv)) == 1002


@pytest.mark.parametrize("fin", [True, False])
@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
def test_opcodes_of_the_future(opcode: int, fin: bool) -> None:
    assert code_of(frame(opcode, fin=fin)) == 1002
    assert code_of(frame(ws.BINARY, fin=False) + frame(opcode, fin=fin)) == 1002


@pytest.mark.parametrize("data", [b"text", b"", b"\xff\xfe"])
def test_text_is_not_understood(data: bytes) -> None:
    assert code_of(frame(ws.TEXT, data)) == 1003
    assert code_of(frame(ws.TEXT, data, fin=False)) == 1003


@pytest.mark.parametrize("opcode", [ws.CLOSE, ws.PING, ws.PONG])
def test_control_frames_are_short_and_whole(opcode: int) -> None:
    assert code_of(frame(opcode, b"\x03\xe8" + bytes(124))) == 1002
    assert code_of(frame(opcode, b"\x03\xe8" + bytes(70_000))) == 1002
    assert code_of(frame(opcode, b"", fin=False)) == 1002
    assert len(events([frame(opcode, b"\x03\xe8" + b"x" * 123)])) == 1


@pytest.mark.parametrize("opcode", [ws.BINARY, ws.PING])
@pytest.mark.parametrize("masked", [True, False])
def test_the_wrong_side_masks(opcode: int, masked: bool) -> None:
    assert code_of(frame(opcode, b"x", key=None if masked else KEY), masked=masked) == 1002
    assert code_of(frame(opcode, b"x", key=None if masked else bytes(4)), masked=masked) == 1002


@pytest.mark.parametrize("length", [0, 1, 125])
def test_lengths_that_take_too_many_bytes(length: int) -> None:
    assert code_of(struct.pack(">BBH", 0x82, 126, length) + bytes(length)) == 1002


@pytest.mark.parametrize("length", [0, 125, 126, 65535])
def test_long_lengths_that_take_too_many_bytes(length: int) -> None:
    assert code_of(struct.pack(">BBQ", 0x82, 127, length) + bytes(length)) == 1002


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1])
def test_a_length_with_its_highest_bit_set(length: int) -> None:
    assert code_of(struct.pack(">BBQ", 0x82, 127, length)) == 1002


@pytest.mark.parametrize("length", [BYTES_MAX + 1, 1 << 40, (1 << 63) - 1])
def test_what_is_too_large_is_known_from_its_header(length: int) -> None:
    assert code_of(struct.pack(">BBQ", 0x82, 127, length)) == 1009
    assert code_of(struct.pack(">BBQ", 0x02, 127, length)) == 1009


@pytest.mark.parametrize("bytes_max", [0, 1, 125, 126, 127, 65535, 65536])
def test_a_message_may_be_as_large_as_it_may(bytes_max: int) -> None:
    assert events([frame(ws.BINARY, bytes(bytes_max))], bytes_max=bytes_max) == [bytes(bytes_max)]
    assert code_of(frame(ws.BINARY, bytes(bytes_max + 1)), bytes_max=bytes_max) == 1009


def test_parts_that_are_too_large_together() -> None:
    begun = frame(ws.BINARY, bytes(60), fin=False)
    assert events([begun + frame(ws.CONTINUATION, bytes(40))], bytes_max=100) == [bytes(100)]
    header = frame(ws.CONTINUATION, bytes(41))[:2]
    assert code_of(begun + header, bytes_max=100) == 1009
    assert events([begun + frame(ws.PING, bytes(125))], bytes_max=60) == [Ping(bytes(125))]


def test_a_limit_may_be_raised_between_messages() -> None:
    reader = FrameReader(masked=False, message_bytes_max=1)
    reader.feed(frame(ws.BINARY, b"x") + frame(ws.BINARY, bytes(100)))
    assert reader.read() == b"x"
    reader.message_bytes_max = 100
    assert reader.read() == bytes(100)


# ---- close frames --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 3000, 3999, 4000, 4999])
def test_codes_that_may_be_sent(code: int) -> None:
    payload = struct.pack(">H", code)
    assert events([frame(ws.CLOSE, payload)]) == [Close(code, "")]
    reason = "ünïcode ✓"
    assert events([frame(ws.CLOSE, payload + reason.encode())]) == [Close(code, reason)]
    assert events([frame(ws.CLOSE, payload + b"x" * 123)]) == [Close(code, "x" * 123)]


@pytest.mark.parametrize("code", [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535])
def test_codes_that_nobody_may_send(code: int) -> None:
    assert code_of(frame(ws.CLOSE, struct.pack(">H", code))) == 1002


def test_a_close_frame_without_a_code() -> None:
    assert events([frame(ws.CLOSE)]) == [Close(None, "")]
    assert code_of(frame(ws.CLOSE, b"\x03")) == 1002


@pytest.mark.parametrize("reason", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\xce"])
def test_reasons_that_are_no_utf_8(reason: bytes) -> None:
    assert code_of(frame(ws.CLOSE, b"\x03\xe8" + reason)) == 1007


# ---- everything together -------------------------------------------------------------------------

MESSAGES = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.lists(st.binary(max_size=300), min_size=1, max_size=4)),
        st.tuples(st.sampled_from(["ping", "pong"]), st.binary(max_size=125)),
    ),
    max_size=8,
)


@given(
    said=MESSAGES,
    key=st.one_of(st.none(), st.just(bytes(4)), st.binary(min_size=4, max_size=4)),
    cuts=st.lists(st.integers(0, 3000), max_size=30),
)
@example(said=[("message", [b"x" * 70_000])], key=KEY, cuts=[1, 2, 13, 14, 15, 2000])
def test_any_messages_cut_up_in_any_way(said: list[tuple[str, Any]], key: bytes | None, cuts: list[int]) -> None:
    data, expected = b"", []
    for kind, what in said:
        if kind == "message":
            for number, part in enumerate(what):
                opcode = ws.CONTINUATION if number else ws.BINARY
                data += frame(opcode, part, fin=number == len(what) - 1, key=key)
            expected.append(b"".join(what))
        else:
            data += frame(ws.PING if kind == "ping" else ws.PONG, what, key=key)
            expected.append(Ping(what) if kind == "ping" else Pong(what))
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(at)]
    assert events(pieces, masked=key is not None) == expected


@given(data=st.binary(max_size=200), masked=st.booleans(), cut=st.integers(0, 200))
def test_junk_is_read_the_same_however_it_comes(data: bytes, masked: bool, cut: int) -> None:
    def outcome(pieces: list[bytes]) -> tuple[list[Any], int | None]:
        reader, found = FrameReader(masked=masked, message_bytes_max=100), []
        try:
            for piece in pieces:
                reader.feed(piece)
                while (event := reader.read()) is not None:
                    found.append(bytes(event) if isinstance(event, memoryview | bytearray) else event)
        except WebSocketError as error:
            return found, error.code
        return found, None

    whole = outcome([data])
    assert outcome([data[:cut], data[cut:]]) == whole
    assert outcome(each_byte(data)) == whole
