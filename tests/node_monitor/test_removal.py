"""Directories in which tasks have put what they liked are removed, and nothing else is."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_monitor.host import removal
from node_monitor.host.removal import Remover, remove_tree
from sparrow_py.logs.line_interval import LineInterval
from tests.support.waiting import TIMEOUT_S

DEEP = 1200
"""More than the levels that Python may call itself."""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests could not remove was not said in this one."""
    monkeypatch.setattr(removal, "_seldom", LineInterval())


def nest(path: Path, depth: int, name: str = "d" * 100) -> None:
    """So many directories in each other, with a file in each; the innermost has a path that no call would take."""
    path.mkdir()
    directory = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
        os.mkdir(name, dir_fd=directory)
        inner = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: a disk takes its time for thousands of names."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_directories_in_each_other_by_the_thousand_are_removed_with_a_few_descriptors(memory: Path) -> None:
    nest(memory / "tree", DEEP)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 8, hard))
    try:
        remove_tree(str(memory / "tree"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(memory.iterdir()) == []


def test_what_there_can_be_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "file").touch()
    tree = tmp_path / "tree"
    for wide in range(20):
        (tree / str(wide) / "a" / "b").mkdir(parents=True)
        (tree / str(wide) / "c").mkdir()
        (tree / str(wide) / "link").symlink_to(outside)
        (tree / str(wide) / "a" / "link").symlink_to(outside / "inner")
        os.mkfifo(tree / str(wide) / "a" / "pipe")
    (tree / "link").symlink_to(outside)
    (tree / "broken").symlink_to("nowhere")
    (tree / "loop").symlink_to("loop")
    (tree / "0" / "c").chmod(0)
    (tree / "1" / "a").chmod(0o500)
    (tree / os.fsdecode(b"\xff\n")).touch()
    remove_tree(str(tree))
    assert not tree.exists()
    assert (outside / "inner" / "file").exists()


@pytest.mark.parametrize("kind", ["link", "file", "nothing"])
def test_what_is_no_directory_goes_itself(tmp_path: Path, kind: str) -> None:
    (tmp_path / "outside").mkdir()
    path = tmp_path / "tree"
    if kind == "link":
        path.symlink_to(tmp_path / "outside")
    elif kind == "file":
        path.touch()
    remove_tree(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["outside"]


def test_one_file_may_be_kept(tmp_path: Path) -> None:
    (tmp_path / "a" / "lock").mkdir(parents=True)
    (tmp_path / "lock").touch()
    remove_tree(str(tmp_path), keep="lock")
    assert [entry.name for entry in tmp_path.iterdir()] == ["lock"]


def test_a_link_that_takes_a_directorys_place_while_it_is_removed_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "file").touch()
    victim = tmp_path / "tree" / "victim"
    (victim / "deeper").mkdir(parents=True)
    opened = removal._opened

    def swap_and_open(name: str, parent: int | None = None) -> int | None:
        if name == "victim":
            victim.rename(tmp_path / "gone")
            victim.symlink_to(outside)
        return opened(name, parent)

    monkeypatch.setattr(removal, "_opened", swap_and_open)
    remove_tree(str(tmp_path / "tree"))
    assert {path.name for path in outside.iterdir()} == {"inner", "file"}
    assert not (tmp_path / "tree").exists()


def test_what_cannot_be_removed_is_said_once_in_a_while_and_all_else_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unlink = os.unlink

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == "stays":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    for number in range(3):
        tree = tmp_path / str(number)
        (tree / "a" / "b" / "c").mkdir(parents=True)
        (tree / "a" / "b" / "stays").touch()
        (tree / "z").touch()
        remove_tree(str(tree))
        assert [path.name for path in tree.rglob("*") if path.is_file()] == ["stays"]
        assert not (tree / "z").exists()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 1
    assert "cannot be removed" in lines[0]


def test_there_is_only_so_much_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(10):
        (tmp_path / str(number)).touch()
    remove_tree(str(tmp_path), timeout_s=0.0)
    assert 0 < len(list(tmp_path.iterdir())) < 10
    assert "it takes longer than 0 s" in caplog.text


# ---- in a thread -----------------------------------------------------------------------------


async def test_a_large_directory_is_removed_beside_small_ones_and_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "ENTRIES_PER_TURN", 10)
    threads, gone = set(), []
    emptied = removal._emptied

    def watched(top: int, keep: str) -> object:
        threads.add(threading.get_ident())
        yield from emptied(top, keep)
        gone.append(top)

    large, small = tmp_path / "large", tmp_path / "small"
    for path, count in ((large, 200), (small, 5)):
        path.mkdir()
        for number in range(count):
            (path / str(number)).touch()
    remover = Remover()
    order: list[str] = []

    def noting(path: str, keep: str = "") -> object:
        yield from removals(path, keep)
        order.append(Path(path).name)

    removals = removal.removal
    monkeypatch.setattr(removal, "removal", noting)
    monkeypatch.setattr(removal, "_emptied", watched)
    remover.remove(str(large))
    remover.remove(str(small))
    async with asyncio.timeout(TIMEOUT_S):
        await remover.done()
    assert list(tmp_path.iterdir()) == []
    assert order == ["small", "large"]
    assert threading.get_ident() not in threads


async def test_a_remover_that_is_stopped_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "ENTRIES_PER_TURN", 10)
    for number in range(100):
        (tmp_path / str(number)).touch()
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    remover = Remover()
    remover.remove(str(tmp_path))
    await asyncio.sleep(0)
    await remover.stop()
    assert 0 < len(list(tmp_path.iterdir())) < 100
    assert len(list(Path("/proc/self/fd").iterdir())) == in_use


async def test_what_is_old_is_swept_and_what_is_new_stays(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    shared = tmp_path / "shared"
    (shared / "directory").mkdir(parents=True)
    for name in ("old", "new"):
        (shared / name).touch()
    (shared / "link").symlink_to(tmp_path / "outside")
    for name in ("old", "link", "directory"):
        os.utime(shared / name, (0, 0), follow_symlinks=False)
    os.utime(tmp_path / "outside" / "file", (0, 0))
    remover = Remover()
    remover.sweep(str(shared), 3600.0)
    await remover.done()
    assert {path.name for path in shared.iterdir()} == {"new", "directory"}
    assert (tmp_path / "outside" / "file").exists()
