"""What is known of a process that ended: its exit code in words, and the end of what it wrote."""

import os
import subprocess
import sys

import pytest

from sparrow_py.processes.process_ends import KEPT_BYTES, LINES_MAX, Tail, exit_reason
from tests.support.waiting import TIMEOUT_S


def written(*chunks: bytes, to: int | None = None) -> list[str]:
    """The last lines of a process that wrote this, and ended."""
    tail = Tail(to)
    for chunk in chunks:
        os.write(tail.descriptor, chunk)
    tail.close_ours()
    return tail.lines(TIMEOUT_S)


def test_the_last_lines_are_kept_and_cannot_move_a_cursor() -> None:
    assert written(b"one\n\ntw", b"o  \n\x1b[31mthree\xff") == ["one", "two", "\\x1b[31mthree\N{REPLACEMENT CHARACTER}"]
    assert written() == []


def test_no_more_is_kept_than_may() -> None:
    lines = written(*(b"%d\n" % number for number in range(100)))
    assert lines == [str(number) for number in range(100 - LINES_MAX, 100)]
    assert written(b"x" * 60_000, b"the end") == ["x" * (KEPT_BYTES - 7) + "the end"]


def test_everything_is_passed_on() -> None:
    source, sink = os.pipe()
    text = b"a line of text\n" * 1000
    try:
        written(text, to=sink)
        os.close(sink)
        with os.fdopen(source, "rb") as read:
            assert read.read() == text
    finally:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.close(source)


@pytest.mark.processes
def test_who_else_holds_the_descriptor_is_not_waited_for() -> None:
    """A process may leave others behind that write there."""
    tail = Tail()
    held = os.dup(tail.descriptor)
    with subprocess.Popen([sys.executable, "-S", "-c", "import os; os.write(2, b'gone')"], stderr=tail.descriptor):
        tail.close_ours()
    assert tail.lines(TIMEOUT_S) == ["gone"]
    os.close(held)


@pytest.mark.parametrize(("code", "words"), [(3, "exited with code 3"), (-9, "was killed by SIGKILL"), (-99, "99")])
def test_exit_codes_in_words(code: int, words: str) -> None:
    assert words in exit_reason(code)
