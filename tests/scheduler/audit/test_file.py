"""The audit log's file: rotation, slow and full disks."""

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.audit import file as file_module
from scheduler.audit.file import DROPPED_BEGINS, AuditFile
from scheduler.audit.lines import LINES, Dropped, Line
from scheduler.options import SchedulerOptions
from sparrow_py.errors import InvalidOption
from sparrow_py.wire import messages as m

Lines = list[dict[str, Any]]


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of(lines: Lines, *events: str) -> Lines:
    return [line for line in lines if line["event"] in events]


def ended(at_s: float, job: str) -> Line:
    return LINES[m.JobEnded]("", m.JobEnded(job), at_s)


async def test_a_full_file_is_renamed_over_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for number in range(4):
        file = AuditFile(str(path), bytes_max=150)
        file.add(ended(float(number), "x" * 30))
        await file.close()
    kept = [*lines_of(tmp_path / "audit.jsonl.1"), *lines_of(path)]
    assert [line["at_s"] for line in kept] == [0.0, 1.0, 2.0, 3.0]


async def test_lines_are_written_without_being_asked(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=0.0)
    file.add(ended(1.0, "job"))
    while not path.read_text():
        await asyncio.sleep(0)
    assert lines_of(path) == [{"event": "job_ended", "at_s": 1.0, "job": "job"}]
    await file.close()


async def test_what_does_not_fit_the_buffer_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "BUFFER_BYTES_MAX", 100)
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=3600.0)
    for number in range(10):
        file.add(ended(float(number), "x" * 60))
    file._flush()
    file.add(ended(10.0, "last"))
    await file.close()
    lines = lines_of(path)
    (dropped,) = of(lines, "dropped")
    assert len(of(lines, "job_ended")) + dropped["lines"] == 11
    assert lines[-1]["job"] == "last"


async def test_lines_missing_at_the_end_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "BUFFER_BYTES_MAX", 100)
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=3600.0)
    for number in range(10):
        file.add(ended(float(number), "x" * 60))
    await file.close()
    assert len(of(lines_of(path), "job_ended")) + of(lines_of(path), "dropped")[0]["lines"] == 10


async def test_a_full_disk_leaves_whole_lines_and_what_is_missing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=3600.0)
    write, room = os.write, 200

    def write_as_far_as_there_is_room(descriptor: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(file_module.os, "write", write_as_far_as_there_is_room)
    for number in range(10):
        file.add(ended(float(number), "x" * 30))
        file._flush()
        assert file._writing is not None
        await asyncio.wait([file._writing])
    assert caplog.text.count("the audit log misses lines: [Errno 28] No space left on device") == 1
    room = 1 << 20
    file.add(ended(10.0, "last"))
    await file.close()
    lines = lines_of(path)
    dropped = sum(line["lines"] for line in of(lines, "dropped"))
    assert len(of(lines, "job_ended")) + dropped == 11
    assert 0 < dropped < 10 and of(lines, "job_ended")[-1]["job"] == "last"


def test_a_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="audit_log"):
        AuditFile(str(tmp_path), 1 << 20)


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.jsonl"
    with pytest.raises(InvalidOption, match=r"audit_log: '.*jsonl' .*in a directory that is there \(No such file"):
        AuditFile(str(path), 1 << 20)
    assert not path.parent.exists()


def test_a_limit_that_cannot_be_is_named() -> None:
    with pytest.raises(InvalidOption, match="audit_log_bytes_max"):
        SchedulerOptions(audit_log_bytes_max=10)


def test_a_line_that_says_that_lines_are_missing_is_known_by_its_beginning() -> None:
    assert msgspec.json.encode(Dropped(1.0, 2)).startswith(DROPPED_BEGINS)
