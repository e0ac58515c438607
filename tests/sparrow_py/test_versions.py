"""Peers of two neighbouring protocol versions: what they agree on, and that neither sends what the other cannot read.

What the version before looked like is in tests/data, recorded by that version itself (`tests.support.record_frames`).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import handshake
from sparrow_py.wire import messages as m
from tests.support.record_frames import DIRECTIONS, EXECUTOR_DIRECTIONS
from tests.support.wire import agree, examples, members_of, plain, recorded_lines, recorded_schema

BEFORE = f"protocol-v{m.PROTOCOL_VERSION_OLDEST}"
EXECUTORS_BEFORE = f"executor-protocol-v{x.EXECUTOR_PROTOCOL_VERSION_OLDEST}"
SCHEMA = recorded_schema(BEFORE)
EXECUTOR_SCHEMA = recorded_schema(EXECUTORS_BEFORE)
TODAY = [(direction, kind) for direction, union in DIRECTIONS.items() for kind in members_of(union)]


def name_of(line: Any) -> str:
    if isinstance(line, dict):
        return "-".join(line[key] for key in ("direction", "message", "variant", "encoding"))
    return getattr(line, "__name__", str(line))


# ---- frames ----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", recorded_lines(BEFORE, "frames.jsonl"), ids=name_of)
def test_a_frame_of_the_version_before_says_the_same_today(line: dict[str, Any]) -> None:
    (message,) = m.FrameDecoder(DIRECTIONS[line["direction"]])(bytes.fromhex(line["frame"]))
    assert type(message).__name__ == line["message"]
    assert agree(line["fields"], plain(message)), plain(message)


@pytest.mark.parametrize("line", recorded_lines(EXECUTORS_BEFORE, "frames.jsonl"), ids=name_of)
def test_an_executors_frame_of_the_version_before_says_the_same_today(line: dict[str, Any]) -> None:
    direction = {"FromExecutor": x.FROM_EXECUTOR, "ToExecutor": x.TO_EXECUTOR}[line["direction"]]
    body = bytes.fromhex(line["frame"])
    splitter = x.FrameSplitter(direction)
    (message,) = splitter.feed(x.HEADER.pack(len(body)) + body)
    assert splitter.encoding.name == line["encoding"]
    assert type(message).__name__ == line["message"]
    assert agree(line["fields"], plain(message)), plain(message)


@pytest.mark.parametrize("direction", sorted(DIRECTIONS))
def test_what_came_after_the_version_before_is_marked(direction: str) -> None:
    """Whoever adds a message to a union must say which version brings it."""
    new = {kind.__name__ for kind in members_of(DIRECTIONS[direction]) if m.SINCE.get(kind, 0)}
    assert {kind.__name__ for kind in members_of(DIRECTIONS[direction])} == SCHEMA.directions[direction] | new
    assert not SCHEMA.directions[direction] & new
    assert all(m.PROTOCOL_VERSION_OLDEST < version <= m.PROTOCOL_VERSION for version in m.SINCE.values())


@pytest.mark.parametrize(("direction", "kind"), TODAY, ids=name_of)
@pytest.mark.parametrize("variant", ["bare", "full"])
def test_what_is_sent_today_is_read_by_the_version_before(direction: str, kind: type, variant: str) -> None:
    message = examples(kind)[variant]
    frame = bytearray(msgspec.msgpack.encode([message]))
    if m.SINCE.get(kind, 0) > m.PROTOCOL_VERSION_OLDEST:
        with pytest.raises(msgspec.ValidationError):
            SCHEMA.decode(direction, bytes(frame))
        return
    (read,) = SCHEMA.decode(direction, bytes(frame))
    assert agree(plain(read), plain(message)), plain(read)


def test_executors_are_spoken_to_as_the_version_before_was() -> None:
    assert set(x.SINCE.values()) == {x.EXECUTOR_PROTOCOL_VERSION}
    for direction, union in EXECUTOR_DIRECTIONS.items():
        known = [kind for kind in members_of(union) if kind not in x.SINCE]
        assert {kind.__name__ for kind in known} == EXECUTOR_SCHEMA.directions[direction]
        for kind in known:
            for message in examples(kind).values():
                (read,) = EXECUTOR_SCHEMA.decode(direction, msgspec.msgpack.encode([message]))
                assert agree(plain(read), plain(message)), plain(read)


# ---- what is agreed on -----------------------------------------------------------------------


def hello(oldest: int, newest: int = 0, role: str = "client") -> m.Hello:
    return m.Hello(oldest, role, "", "ann", "", newest=newest)


@pytest.mark.parametrize(
    ("oldest", "newest", "common"),
    [(3, 0, 3), (3, 3, 3), (3, 4, 4), (4, 0, 4), (4, 5, 4), (3, 9, 4)],
    ids=["yesterday's", "yesterday's, in full", "ours", "ours alone", "tomorrow's", "one with a long memory"],
)
def test_the_newest_version_that_both_speak(oldest: int, newest: int, common: int) -> None:
    assert handshake.common_version(hello(oldest, newest)) == common


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (hello(5, 6), "protocol versions 5 to 6 are not spoken here; versions 3 to 4 are: upgrade the scheduler first"),
        (hello(2, 0), "protocol version 2 is not spoken here; versions 3 to 4 are: upgrade the client first"),
        (hello(-1, 0, "node"), "protocol versions -1 to 0 are not .* are: upgrade the node monitor first"),
        (hello(6, 1), "protocol version 6 is not spoken here; versions 3 to 4 are: upgrade the scheduler first"),
    ],
)
def test_versions_that_are_two_apart_are_told_who_is_behind(said: m.Hello, told: str) -> None:
    with pytest.raises(LinkError, match=told):
        handshake.common_version(said)


def test_an_executor_of_another_version_is_told_who_is_behind() -> None:
    for version in range(x.EXECUTOR_PROTOCOL_VERSION_OLDEST, x.EXECUTOR_PROTOCOL_VERSION + 1):
        x.check_version(version)
    newer, older = x.EXECUTOR_PROTOCOL_VERSION + 1, x.EXECUTOR_PROTOCOL_VERSION_OLDEST - 1
    with pytest.raises(LinkError, match=rf"executor protocol version {newer} is not .*: upgrade the node monitor"):
        x.check_version(newer)
    with pytest.raises(LinkError, match=rf"executor protocol version {older} is not .*: upgrade the executor"):
        x.check_version(older)


def test_no_protocol_overlaps_with_more_than_the_version_before() -> None:
    """What is older than that is neither recorded nor tested."""
    assert m.PROTOCOL_VERSION - 1 == m.PROTOCOL_VERSION_OLDEST
    assert x.EXECUTOR_PROTOCOL_VERSION - x.EXECUTOR_PROTOCOL_VERSION_OLDEST in (0, 1)
