"""Generated sources are written once, where no one else may write, and the oldest go."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontends.dataflow import source_cache
from frontends.dataflow.source_cache import SUBFOLDER, cache_directory, keep


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's cache of its own."""
    monkeypatch.setenv(source_cache.CACHE_VARIABLE, str(tmp_path))
    cache_directory.cache_clear()
    yield tmp_path
    cache_directory.cache_clear()


def test_a_source_is_written_once_and_keeps_its_time(home: Path) -> None:
    path = keep("a = 1\n")
    os.utime(path, ns=(1, 1))
    assert keep("a = 1\n") == path and path.stat().st_mtime_ns == 1
    assert path.read_text() == "a = 1\n" and path.parent == home / SUBFOLDER
    assert keep("a = 2\n") != path
    assert sorted(path.parent.iterdir()) == sorted([path, keep("a = 2\n")])  # Nothing else is left there.


def test_only_the_user_may_read_and_write_the_directory(home: Path) -> None:
    assert stat.S_IMODE(keep("a = 1\n").parent.stat().st_mode) == 0o700


def test_a_directory_where_others_may_write_is_not_used(home: Path) -> None:
    shared = home / SUBFOLDER
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    path = keep("a = 1\n")
    assert shared not in path.parents and path.read_text() == "a = 1\n"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_cache_that_cannot_be_made_is_replaced_by_one_of_this_process(home: Path) -> None:
    (home / SUBFOLDER.parts[0]).write_text("a file")
    assert keep("a = 1\n").read_text() == "a = 1\n"


def test_the_oldest_sources_and_what_was_made_of_them_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_cache, "SOURCES_MAX", 3)
    paths = []
    for number in range(5):
        path = keep(f"a = {number}\n")
        made = path.parent / "__pycache__" / f"{path.stem}.call-1.py311.nbi"
        made.parent.mkdir(exist_ok=True)
        made.touch()
        os.utime(path, ns=(number, number))
        paths.append(path)
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    left = {made.name.partition(".")[0] for made in (paths[0].parent / "__pycache__").iterdir()}
    assert left == {path.stem for path in paths[2:]}
