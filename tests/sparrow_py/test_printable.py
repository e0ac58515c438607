"""Others' text in logs and on terminals."""

import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from frontends.cli.tables import print_table
from sparrow_py.daemon.command_group import one_line
from sparrow_py.errors import LinkError
from sparrow_py.logs.printable import LogFormatter, printable

FORGED = "\n2030-01-01 INFO sparrow: all is well\x1b[2K\u202e\x9b1A"


@given(st.text())
def test_what_is_printable_stays_and_all_else_is_escaped(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


def test_escapes() -> None:
    assert printable("a\r\nb\x1b[1mü\u2028\ud800") == r"a\r\nb\x1b[1mü\u2028\ud800"


def record(message: str, *, error: bool = False) -> list[str]:
    """The lines of a log record."""
    info = None
    if error:
        try:
            raise LinkError(message)
        except LinkError:
            info = sys.exc_info()
    made = logging.LogRecord("sparrow", logging.INFO, "", 0, "said: %s", (message,), info)
    return LogFormatter("%(levelname)s %(message)s").format(made).split("\n")


def test_a_record_is_a_line() -> None:
    (line,) = record(FORGED)
    assert line.startswith("INFO said: \\n2030")
    assert line.isprintable()


def test_lines_of_a_traceback_are_indented() -> None:
    first, *lines = record(FORGED, error=True)
    assert first.startswith("INFO said: ")
    assert len(lines) > 3
    assert all(line.startswith("  ") and line.isprintable() for line in lines)


def test_errors_and_tables_move_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line(LinkError(FORGED)).isprintable()
    print_table((f"[/b]{FORGED}",), [[FORGED], ["[red]x"]], Console(width=200))
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 3
    assert all(line.isprintable() for line in printed.split("\n"))
    assert "[red]x" in printed
    assert printed.startswith("[/b]")
