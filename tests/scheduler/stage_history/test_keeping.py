"""A scheduler's history of stages and its file: written by a thread, and what becomes of locks and errors."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from scheduler.altruistic.known_stages import StageKey
from scheduler.altruistic.runs import DURATION, Figure, Figures, Run
from scheduler.stage_history.file import StageHistoryFile
from scheduler.stage_history.keeping import KeptStageHistory
from sparrow_py.errors import InvalidOption


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stages.sqlite"


@asynccontextmanager
async def kept(path: Path, flush_s: float = 0.0, lock_timeout_s: float = 0.0) -> AsyncIterator[KeptStageHistory]:
    keeping = KeptStageHistory(str(path), flush_s, lock_timeout_s)
    try:
        yield keeping
    finally:
        await keeping.close()


def ran(keeping: KeptStageHistory, stage: str, duration_s: float = 2.0) -> None:
    run = Run()
    run.finished(duration_s, {})
    keeping.history.ended(key_of(stage), run, tasks=1)


def key_of(stage: str) -> StageKey:
    return StageKey("ada", "python", "nightly", stage)


def read(path: Path) -> dict[str, Figure]:
    with closing(StageHistoryFile(str(path))) as file:
        return {key.stage: figures[DURATION] for key, figures in file.read()}


async def until_idle(keeping: KeptStageHistory) -> None:
    """Until there is nothing to write, and nothing being written."""
    while keeping._timer is not None or (keeping._writing is not None and not keeping._writing.done()):
        await asyncio.sleep(0)


async def test_a_scheduler_knows_what_it_had_written_before(path: Path) -> None:
    async with kept(path, flush_s=3600.0) as keeping:
        ran(keeping, "map", 2.0)
        ran(keeping, "reduce", 3.0)
    async with kept(path) as keeping:
        assert keeping.history.of(key_of("map")) == {DURATION: Figure(1, 2.0)}
        assert keeping.history.of(key_of("reduce")) == {DURATION: Figure(1, 3.0)}
    assert read(path) == {"map": Figure(1, 2.0), "reduce": Figure(1, 3.0)}


async def test_news_is_written_without_being_asked(path: Path) -> None:
    async with kept(path) as keeping:
        for number in range(3):
            ran(keeping, "map")
            await until_idle(keeping)
            assert read(path) == {"map": Figure(number + 1, 2.0)}


async def test_a_standby_has_a_file_of_its_own(tmp_path: Path) -> None:
    async with kept(tmp_path / "leader") as leader, kept(tmp_path / "standby") as standby:
        ran(leader, "map")
        await until_idle(leader)
        assert standby.history.of(key_of("map")) == {} and read(tmp_path / "standby") == {}


async def test_while_the_file_is_locked_news_is_put_together(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with kept(path) as keeping:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                ran(keeping, "map")
                while not caplog.records:  # It has tried.
                    await asyncio.sleep(0)
            assert keeping.history.of(key_of("map")) == {DURATION: Figure(3, 2.0)}, "the loop goes on"
            other.execute("COMMIT")
        await until_idle(keeping)
        assert read(path) == {"map": Figure(3, 2.0)}
    assert [record.getMessage() for record in caplog.records] == [
        f"the stage history {path} is locked, and is written later"
    ]


async def test_the_loop_goes_on_while_a_lock_is_waited_for(path: Path) -> None:
    """Whoever has the lock gives it back from this very loop."""
    async with kept(path, lock_timeout_s=100.0) as keeping:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ran(keeping, "map")
            while keeping._writing is None:
                await asyncio.sleep(0)
            ran(keeping, "map")
            other.execute("COMMIT")
        await until_idle(keeping)
    assert read(path) == {"map": Figure(2, 2.0)}


async def test_a_scheduler_that_ends_does_not_wait_for_a_lock(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        async with kept(path, flush_s=3600.0) as keeping:
            ran(keeping, "map")
            other.execute("BEGIN IMMEDIATE")
    assert caplog.messages[-1] == f"the stage history {path} stays locked, and lacks what ran last (stages: 1)"
    assert read(path) == {}


@pytest.mark.parametrize("how", ["disk I/O error", "database disk image is malformed"])
async def test_after_an_error_nothing_is_written_and_the_log_says_so_once(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    tried = []

    def fail(self: StageHistoryFile, news: Iterable[tuple[StageKey, Figures]]) -> None:
        tried.append(dict(news))
        raise sqlite3.OperationalError(how)

    async with kept(path) as keeping:
        monkeypatch.setattr(StageHistoryFile, "add", fail)
        for number in range(3):
            ran(keeping, f"stage{number}")
            await until_idle(keeping)
        assert len(keeping.history) == 3, "it lives on with what it has in memory"
    assert len(tried) == 1
    assert caplog.messages == [f"the stage history {path} is written no more: {how}"]


async def test_a_table_that_another_program_has_dropped_is_such_an_error(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(path) as keeping:
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TABLE stages")
        ran(keeping, "map")
        await until_idle(keeping)
    assert caplog.messages == [f"the stage history {path} is written no more: no such table: stages"]


def test_a_file_that_cannot_be_used_is_refused_at_the_start(path: Path) -> None:
    path.write_bytes(b"something else, and long enough for a header " * 100)
    with pytest.raises(InvalidOption, match="stage_history"):
        KeptStageHistory(str(path))
