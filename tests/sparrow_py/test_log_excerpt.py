"""What is shown of the log of a daemon that ended."""

import pytest

from sparrow_py.embedded.daemon_process import last_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("one\ntwo\n", "one\ntwo\n"),
        ("first\nsecond\nthird\n", "third\n"),
        ("first\n123456789\n", "123456789\n"),
        ("first\n1234567890123456\n", "890123456\n"),
    ],
)
def test_it_begins_with_a_whole_line_unless_one_alone_is_too_long(text: str, shown: str) -> None:
    assert last_lines(text, 10) == shown
