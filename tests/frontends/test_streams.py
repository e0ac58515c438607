"""The streams of a worker's tasks."""

import io
import sys

import pytest

from frontends.python.streams import CAPTURED_BYTES_MAX, TaskStreams


def test_an_object_that_keeps_the_stream_writes_to_the_output_of_the_running_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beneath = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", beneath)
    streams = TaskStreams()
    kept = streams.stdout
    with streams.captured() as first:
        assert sys.stdout is kept
        print("first", file=kept)
    print("beneath", file=kept)
    with streams.captured() as second:
        kept.buffer.write(b"second\n")
        print("error", file=sys.stderr)
    assert sys.stdout is beneath
    assert (first.texts(100), second.texts(100)) == (("first\n", ""), ("second\n", "error\n"))
    assert first.texts(2) == ("fi", "")
    beneath.seek(0)
    assert beneath.read() == "beneath\n"


def test_capturing_takes_no_more_memory_than_what_is_kept() -> None:
    with TaskStreams().captured() as captured:
        for _ in range(100):
            sys.stdout.write("ä" * (CAPTURED_BYTES_MAX // 4))
        assert sys.stdout.writable()
    assert sum(len(kept.kept) for kept in captured._kept) == CAPTURED_BYTES_MAX
    assert captured.texts(1 << 30)[0] == "ä" * (CAPTURED_BYTES_MAX // 2)


def test_characters_without_an_encoding_are_escaped_and_a_closed_stream_is_no_error() -> None:
    with TaskStreams().captured() as captured:
        print("\udcff")
        sys.stdout.buffer.close()
    assert captured.texts(100) == ("\\udcff\n", "")


def test_flush_tells_whether_anything_was_written() -> None:
    streams = TaskStreams()
    assert not streams.flush()
    streams.stderr.write("")
    assert (streams.flush(), streams.flush()) == (True, False)
