"""Who is told that a cluster can do no more; and what is told of a machine that is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparrow_py.embedded.breaking import Breaking
from sparrow_py.errors import ClusterError
from sparrow_py.remote.launched import LOG_LINES_MAX, LOG_TAIL_BYTES, Launched, last_lines_of


def test_all_are_told_once_and_who_comes_later_gets_the_error() -> None:
    breaking, told = Breaking(), list[tuple[str, ClusterError]]()
    breaking.tell(lambda error: told.append(("ada", error)))
    take_back = breaking.tell(lambda error: told.append(("bob", error)))
    take_back()
    first = ClusterError("gone")
    breaking.broken(first)
    breaking.broken(ClusterError("gone again"))
    assert told == [("ada", first)]
    assert breaking.error is first
    with pytest.raises(ClusterError, match=r"^gone$"):
        breaking.tell(lambda _: None)


@pytest.mark.parametrize("text", ["", "one\n", "\n".join(map(str, range(1000))), "x" * 2 * LOG_TAIL_BYTES, "\x1b[2J\n"])
def test_the_end_of_a_log_is_a_few_printable_lines(tmp_path: Path, text: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    lines = last_lines_of(log)
    assert len(lines) <= LOG_LINES_MAX
    assert all(line.isprintable() and len(line) <= LOG_TAIL_BYTES for line in lines)
    assert not text.strip() or lines[-1][-1] == text.rstrip()[-1]


def test_no_log_no_lines(tmp_path: Path) -> None:
    assert last_lines_of(tmp_path / "none") == []


@pytest.mark.processes
def test_the_last_words_are_its_exit_status_and_the_end_of_its_log(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-I", "-S", "-c", "import sys; sys.exit('no route')"]
        one = Launched("ant", command, "t" * 32, log, {})
        one.process.wait()
    assert one.last_words() == f"{sys.executable} (ant) exited with code 1; its log ends with:\nno route"
    one.end()
