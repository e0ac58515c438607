"""The job log: GNU parallel's format, read and written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.command import joblog
from frontends.command.joblog import HEADER, Entry, JobLog
from sparrow_py.errors import InvalidRequest

TRUE = Entry(1, ":", 1.5, 0.25, 3, 0, 0, "true 'a b'")
OF_PARALLEL = (
    b"Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"
    b"2\t:\t1764299001.123\t     0.004\t0\t2\t3\t0\tsh -c exit\\ 3 2\n"
    b"1\t:\t1764299001.120\t     0.002\t0\t4\t0\t0\techo a\\ b\n"
)


def test_a_log_of_gnu_parallel_is_read() -> None:
    entries, size = joblog.parse(OF_PARALLEL, "log")
    assert size == len(OF_PARALLEL)
    assert entries[2] == Entry(2, ":", 1764299001.123, 0.004, 2, 3, 0, "sh -c exit\\ 3 2")
    assert joblog.is_command(entries[1].command, ["echo", "a b"])
    assert [entries[number].succeeded for number in (1, 2)] == [True, False]


def test_lines() -> None:
    assert joblog.line(TRUE) == "1\t:\t1.500\t     0.250\t0\t3\t0\t0\ttrue 'a b'\n"


@given(st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), min_size=1))
def test_any_command_is_one_line_and_comes_back(argv: list[str]) -> None:
    text = joblog.line(TRUE._replace(command=joblog.written(argv)))
    assert text.count("\n") == 1
    entries, _ = joblog.parse(f"{HEADER}\n{text}".encode(), "log")
    assert joblog.is_command(entries[1].command, argv)
    assert not joblog.is_command(entries[1].command, [*argv, "x"])


def test_writing_begins_anew_or_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("something else\n")
    for _ in range(2):
        with JobLog(str(path)) as log:
            log.add(TRUE)
    path.write_text(path.read_text() + "2\t:\t1.0")  # Killed while it wrote.
    entries, size = joblog.read(str(path))
    assert list(entries) == [1]
    with JobLog(str(path), size) as log:
        log.add(TRUE._replace(number=2))
    assert path.read_text() == f"{HEADER}\n{joblog.line(TRUE)}{joblog.line(TRUE._replace(number=2))}"
    assert joblog.read(str(tmp_path / "none")) == ({}, 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"#!/bin/sh\nexit\n", "joblog: line 1 of log: '#!/bin/sh' .* the header of a job log"),
        (b"text", "joblog: line 1 of log: "),
        (b"\xff\n", "joblog: line 1 of log: "),
        (HEADER.encode() + b"\n1\t:\t2\n", "joblog: line 2 of log: .* 9 columns"),
        (HEADER.encode() + b"\nx\t:\t1\t1\t0\t0\t0\t0\ttrue\n", "joblog: line 2 of log: "),
        (HEADER.encode() + b"\n0\t:\t1\t1\t0\t0\t0\t0\ttrue\n", "joblog: line 2 of log: 0 .* a Seq from 1"),
    ],
)
def test_what_is_no_log(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        joblog.parse(data, "log")


def test_files_that_cannot_be(tmp_path: Path) -> None:
    for what in (joblog.read, JobLog):
        with pytest.raises(InvalidRequest, match=r"joblog: .*directory"):
            what(str(tmp_path))


def test_a_link_is_followed_unless_anybody_can_have_made_it(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    tmp_path.chmod(0o1777)
    with pytest.raises(InvalidRequest, match="not a symbolic link"):
        JobLog(str(link))
    assert target.read_text() == "mine"
    tmp_path.chmod(0o755)
    with JobLog(str(link)):
        assert target.read_text() == f"{HEADER}\n"
