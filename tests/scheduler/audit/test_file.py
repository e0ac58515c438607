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


async def write(file: AuditFile, *lines: Line) -> None:
    """Have the lines written now."""
    for line in lines:
        file.add(line)
    file._flush()
    assert file._writing is not None
    await asyncio.wait([file._writing])


async def test_a_file_that_cannot_be_rotated_says_so_once_and_keeps_to_twice_its_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, older = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    older.mkdir()
    file = AuditFile(str(path), bytes_max=300, flush_s=3600.0)
    for number in range(20):
        await write(file, ended(float(number), "x" * 30))
    assert "misses lines" not in caplog.text
    assert caplog.text.count("the audit log cannot be rotated: [Errno 21] Is a directory") == 1
    await write(file, *[ended(float(number), "x" * 30) for number in range(20)])
    assert 500 < path.stat().st_size <= 600
    older.rmdir()
    await write(file, ended(20.0, "again"))
    older.unlink()
    older.mkdir()
    for number in range(21, 30):
        await write(file, ended(float(number), "x" * 30))
    assert caplog.text.count("the audit log cannot be rotated") == 2
    await file.close()
    assert file.lines_lost > 10


async def test_lines_missing_as_a_file_could_not_be_rotated_are_counted(tmp_path: Path) -> None:
    path, older = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    older.mkdir()
    file = AuditFile(str(path), bytes_max=300, flush_s=3600.0)
    for number in range(20):
        await write(file, ended(float(number), "x" * 30))
    older.rmdir()
    await write(file, ended(20.0, "again"))
    await file.close()
    lines = [*lines_of(older), *lines_of(path)]
    dropped = sum(line["lines"] for line in of(lines, "dropped"))
    assert dropped == file.lines_lost > 0
    assert len(of(lines, "job_ended")) + dropped == 21


async def test_a_file_whose_successor_could_not_be_opened_is_begun_anew_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), bytes_max=100, flush_s=3600.0)
    await write(file, ended(0.0, "x" * 60))

    def none_left(*_: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", none_left)
        await write(file, ended(1.0, "second"))
    await write(file, ended(2.0, "third"))
    await file.close()
    assert [line["at_s"] for line in lines_of(tmp_path / "audit.jsonl.1")] == [0.0, 1.0]
    assert [line["at_s"] for line in lines_of(path)] == [2.0]
    assert caplog.text.count("cannot be rotated: [Errno 24]") == 1


async def test_a_line_that_was_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"event":"x')
    for number in range(2):
        file = AuditFile(str(path), 1 << 20)
        file.add(ended(float(number), "job"))
        await file.close()
    torn, *whole = path.read_text().splitlines()
    assert torn == '{"event":"x'
    assert [json.loads(line)["at_s"] for line in whole] == [0.0, 1.0]


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

    monkeypatch.setattr(os, "write", write_as_far_as_there_is_room)
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


async def test_a_disk_without_room_for_both_files_loses_older_lines_and_no_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, older = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    really_write = os.write

    def write_to_a_small_disk(descriptor: int, data: memoryview) -> int:
        room = 1800 - sum(file.stat().st_size for file in (path, older) if file.exists())
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really_write(descriptor, data[:room])

    monkeypatch.setattr(os, "write", write_to_a_small_disk)
    file = AuditFile(str(path), bytes_max=1000, flush_s=3600.0)
    for number in range(100):
        await write(file, ended(float(number), "x" * 30))
    await file.close()
    kept = [line["at_s"] for line in (*lines_of(older), *lines_of(path))]
    assert kept == [float(number) for number in range(100 - len(kept), 100)] and len(kept) >= 10
    assert file.lines_lost == 0
    assert "misses lines" not in caplog.text
    assert caplog.text.count(f"its older lines, {older}, were deleted") == 1


async def test_much_that_comes_at_once_is_more_than_one_file(tmp_path: Path) -> None:
    path, older = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    file = AuditFile(str(path), bytes_max=300, flush_s=3600.0)
    await write(file, *[ended(float(number), "x" * 30) for number in range(50)])
    await file.close()
    kept = [line["at_s"] for line in (*lines_of(older), *lines_of(path))]
    assert kept == [float(number) for number in range(50 - len(kept), 50)]
    assert 300 <= older.stat().st_size < 400 and path.stat().st_size < 400


async def test_a_disk_that_others_fill_leaves_older_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, older = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    older.write_text('{"event":"job_ended","at_s":0.0,"job":"kept"}\n')
    file = AuditFile(str(path), bytes_max=1000, flush_s=3600.0)

    def write_nothing(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    await write(file, ended(1.0, "first"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_nothing)
        await write(file, ended(2.0, "lost"))
    await file.close()
    assert lines_of(older)[0]["job"] == "kept"
    assert file.lines_lost == 1


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
