"""The file of what runs of stages have shown: reopened, shared, bounded; damaged, locked, closed; killed writers."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.altruistic.known_stages import KnownStages, StageKey
from scheduler.altruistic.runs import DURATION, Figure, Figures, followed
from scheduler.stage_history.file import DamagedFileError, StageHistoryFile
from sparrow_py.errors import InvalidOption
from tests.support.unprivileged import NOBODY, ROOT, open_folder

__all__ = ["open_folder"]

KEY = StageKey("ada", "python", "nightly", "map")
ONCE: Figures = {DURATION: Figure(1, 12.5), "cpu": Figure(1, 0.75)}


def key_of(user: str, stage: object) -> StageKey:
    return StageKey(user, "python", "nightly", str(stage))


def added(path: Path, *stages: tuple[StageKey, Figures]) -> None:
    with closing(StageHistoryFile(str(path))) as file:
        file.add(stages)


def read(path: Path) -> list[tuple[StageKey, Figures]]:
    with closing(StageHistoryFile(str(path))) as file:
        return file.read()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stages.sqlite"


def test_what_was_added_is_read_again(path: Path) -> None:
    other = StageKey("eve", "command", "straße \N{SNOWMAN}", ""), {DURATION: Figure(7, 0.1)}
    added(path, (KEY, ONCE), other)
    assert read(path) == [(KEY, ONCE), other]


def test_others_may_not_read_the_names_of_stages(path: Path) -> None:
    with closing(StageHistoryFile(str(path))) as file:
        file.add([(KEY, ONCE)])
        assert {one.stat().st_mode & 0o7 for one in path.parent.iterdir()} == {0}


def test_runs_are_added_to_those_that_are_there(path: Path) -> None:
    later = {DURATION: Figure(2, 20.0), "memory_bytes": Figure(1, 1e9)}
    added(path, (KEY, ONCE))
    added(path, (KEY, later))
    assert read(path) == [(KEY, followed(ONCE, later))]


def test_stages_that_ran_last_are_read_last(path: Path) -> None:
    for stages in ("ab", "c", "a"):
        added(path, *((key_of("ada", stage), ONCE) for stage in stages))
    assert [key.stage for key, _ in read(path)] == ["b", "c", "a"]


BATCHES = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=8), max_size=6)
"""Users and stages that have run."""


@settings(max_examples=20)
@given(BATCHES, st.integers(1, 6), st.integers(1, 4))
def test_a_file_is_bounded_as_memory_is(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int]]], stages_max: int, per_user_max: int
) -> None:
    path = tmp_path_factory.mktemp("bounded") / "stages.sqlite"
    with closing(StageHistoryFile(str(path), stages_max, per_user_max)) as file:
        for batch in batches:
            before = {key for key, _ in file.read()}
            news = KnownStages()
            for user, stage in batch:
                news.ran(key_of(user, stage), ONCE)
            file.add(news)
            kept = [key for key, _ in file.read()]
            everything = before | {key for key, _ in news}
            sizes = {user: sum(key.user == user for key in kept) for user in "abc"}
            assert max(sizes.values()) <= per_user_max and len(kept) <= stages_max
            for user, size in sizes.items():
                wanted = min(sum(key.user == user for key in everything), per_user_max)
                assert size == wanted or (len(kept) == stages_max and size >= max(sizes.values()) - 1)
                ran = [str(stage) for who, stage in batch if who == user]
                last = list(dict.fromkeys(reversed(ran)))[::-1][-size:] if size else []
                assert [key.stage for key in kept if key.user == user][size - len(last) :] == last


@pytest.mark.parametrize("stages", [2_000, pytest.param(50_000, marks=pytest.mark.rest)])
def test_ever_new_stages_do_not_make_the_file_grow(path: Path, stages: int) -> None:
    sizes = set()
    with closing(StageHistoryFile(str(path), stages_max=400, per_user_max=100)) as file:
        for first in range(0, stages, 500):
            file.add((key_of(f"user{number % 10}", f"{number:07}"), ONCE) for number in range(first, first + 500))
            sizes.add(path.stat().st_size)
        assert len(file.read()) == 400
    assert path.stat().st_size <= 256 << 10 and max(sizes) <= 256 << 10


def test_nothing_of_a_batch_is_there_if_the_rest_cannot_be_written(path: Path) -> None:
    def news() -> Iterator[tuple[StageKey, Figures]]:
        yield key_of("ada", "first"), ONCE
        raise InterruptedError

    with closing(StageHistoryFile(str(path))) as file:
        with pytest.raises(InterruptedError):
            file.add(news())
        file.add([(KEY, ONCE)])
    assert read(path) == [(KEY, ONCE)]


# ---- several schedulers, and their ends ------------------------------------------------------


def test_schedulers_that_share_a_file_add_up_what_they_have_seen(path: Path) -> None:
    """They all find it new at the same time."""
    barrier = threading.Barrier(3)
    failed: list[BaseException] = []

    def runs() -> None:
        try:
            barrier.wait()
            with closing(StageHistoryFile(str(path), lock_timeout_s=60.0)) as file:
                for _ in range(10):
                    file.add([(KEY, ONCE)])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=runs) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((key, figures),) = read(path)
    assert failed == [] and key == KEY and figures[DURATION] == (30, pytest.approx(12.5))


WRITER = """
import itertools, sys
from scheduler.altruistic.known_stages import StageKey
from scheduler.altruistic.runs import DURATION, Figure
from scheduler.stage_history.file import StageHistoryFile

file = StageHistoryFile(sys.argv[1])
for number in itertools.count(1):
    file.add([(StageKey("ada", "python", "nightly", "map"), {DURATION: Figure(1, 12.5), "cpu": Figure(1, 0.75)})])
    print(number, flush=True)
"""


@pytest.mark.processes
def test_what_a_writer_that_is_killed_has_written_is_there(path: Path) -> None:
    written = 0
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=ROOT, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(5):
                assert writer.stdout.readline()
            writer.kill()
            written += 5 + len(writer.stdout.readlines())
        ((key, figures),) = read(path)
        assert key == KEY and figures[DURATION].value == pytest.approx(12.5)
        assert figures[DURATION].samples in (written, written + 1), "the last one may not have been told"
        written = figures[DURATION].samples


# ---- files that cannot be used ---------------------------------------------------------------


def refused(path: Path, match: str) -> None:
    """And the file is as it was before."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(InvalidOption, match=rf"^stage_history: '.*{path.name}'.* is not valid; allowed: {match}"):
        StageHistoryFile(str(path), lock_timeout_s=0.0).read()
    assert (path.read_bytes() if path.is_file() else None) == before


DAMAGED = r"a file that is not damaged \(.*\). Move it away, with stages.sqlite-wal and .*: a new one is made"


def test_a_file_that_is_no_database_is_damaged(path: Path) -> None:
    path.write_bytes(b"something else, and long enough for a header " * 100)
    refused(path, DAMAGED)


def test_a_file_whose_end_is_missing_is_damaged(path: Path) -> None:
    added(path, *((key_of("ada", number), ONCE) for number in range(300)))
    os.truncate(path, path.stat().st_size // 2)
    refused(path, DAMAGED)


def test_a_file_with_a_page_of_nonsense_is_damaged(path: Path) -> None:
    added(path, *((key_of("ada", number), ONCE) for number in range(300)))
    with path.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(os.urandom(4096))
    refused(path, DAMAGED)


@pytest.mark.parametrize(
    "figures",
    [
        "no JSON", "[]", "{}", b"{}", '{"cpu": [1, 1.0]}', '{"duration_s": [1, -1.0]}', '{"duration_s": [1, 1e10]}',
        '{"duration_s": [0, 1.0]}', '{"duration_s": [1, 1.0], "cpu": [1, 1e300]}', '{"duration_s": [1, null]}',
        '{"duration_s": [1, 1.0]' + "".join(f', "r{number}": [1, 1.0]' for number in range(99)) + "}",
    ],
)  # fmt: skip
def test_a_row_that_no_scheduler_writes_is_damage(path: Path, figures: object) -> None:
    with closing(StageHistoryFile(str(path))) as file:
        file.add([(KEY, ONCE)])
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE stages SET figures = ?", (figures,))
        with pytest.raises(DamagedFileError):
            file.add([(KEY, ONCE)])
    refused(path, DAMAGED)


def test_another_programs_file_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE letters (text TEXT)")
    refused(path, "a file that a scheduler made; this one is another program's")


def test_a_file_of_another_version_is_left_alone(path: Path) -> None:
    added(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("PRAGMA user_version = 2")
    refused(path, "a file of version 1; this one is of version 2")


def test_a_file_that_stays_locked_is_refused(path: Path) -> None:
    added(path, (KEY, ONCE))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused(path, r"a file that no other program keeps locked \(database is locked\)")
    assert read(path) == [(KEY, ONCE)]


def test_a_file_that_is_locked_for_a_moment_is_waited_for(path: Path) -> None:
    added(path, (KEY, ONCE))
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.05, other.execute, ("COMMIT",))
        release.start()
        with closing(StageHistoryFile(str(path), lock_timeout_s=60.0)) as file:
            assert file.read() == [(KEY, ONCE)]
        release.join()


def test_a_directory_or_a_file_in_none_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, r"a file that can be read and written, .*\(Is a directory\)")
    refused(
        tmp_path / "none" / "stages.sqlite", r"a file .*in a directory that is there .*\(No such file or directory\)"
    )
    assert not (tmp_path / "none").exists()


@contextmanager
def not_as_root() -> Iterator[None]:
    """Root may write where nobody may."""
    ours = os.geteuid()
    if ours == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(ours)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_directory_that_may_not_be_written_is_named(open_folder: Path, is_there: bool) -> None:
    path = open_folder / "stages.sqlite"
    if is_there:
        added(path, (KEY, ONCE))
        path.chmod(0o666)
    open_folder.chmod(0o555)
    try:
        with not_as_root():
            refused(path, "a file that .*, in a directory that is there and can be written")
    finally:
        open_folder.chmod(0o755)
