"""Readers of results: they are counted, go away, or do not read."""

import asyncio
import contextlib
import itertools
from collections import Counter
from typing import cast

import aiohttp
import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.http import readers, result_lines
from scheduler.http.job import BareLine, HttpJob
from scheduler.http.result_lines import BARE_LINES_MAX, lines_from
from sparrow_py.job import TaskStatus
from sparrow_py.limits.seats import Seats
from sparrow_py.wire import messages as m
from tests.support.http_jobs import JOB_RESULTS, post, refusal, until


async def test_readers_are_counted(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler.readers, "seats", Seats("READERS_MAX", 1, "readers"))
    monkeypatch.setattr(readers, "READER_CHECK_S", 0.001)
    monkeypatch.setattr(readers, "BUSY_RETRY_S", 0.0)
    await post(http)
    async with http.get(JOB_RESULTS) as reader, http.get(JOB_RESULTS) as other:
        assert (reader.status, other.status, other.headers["Retry-After"]) == (200, 503, "1")
        assert "READERS_MAX = 1" in await refusal(other)
    await until(lambda: scheduler.readers.seats.total == 0)  # It is seen that a reader goes, though nothing comes.
    async with http.get(JOB_RESULTS) as reader:
        assert reader.status == 200


async def test_a_reader_that_does_not_read_is_cut_off_when_the_lines_go(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession
) -> None:
    await post(http)
    host, _, port = scheduler.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(f"GET {JOB_RESULTS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await until(lambda: scheduler.readers.seats.total == 1)
    job = scheduler.http_jobs.kept.get("j")
    assert job is not None
    job.lines += [b"x" * (1 << 20)] * 64  # More than sockets buffer.
    job.tell()
    scheduler.http_jobs.close()
    await until(lambda: scheduler.readers.seats.total == 0)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1 << 30)
    writer.close()


async def test_results_reach_readers_of_this_process(scheduler: SchedulerDaemon, http: aiohttp.ClientSession) -> None:
    await post(http)
    async with http.get(JOB_RESULTS) as response:
        scheduler.to_client("http#1", m.Outcome("j", 0, TaskStatus.FINISHED, b'"done"', "", 1, "n", None, None, None))
        assert b'"result":"done"' in await response.content.readline()
        scheduler.to_client("http#1", m.JobEnded("j"))
        assert await response.read() == b""


async def test_readers_of_one_user_get_a_batch_in_a_turn_of_the_loop(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast they read, and however many they are: else nobody else would have a turn."""
    monkeypatch.setattr(result_lines, "BATCH_BYTES", 1000)
    await post(http)
    job = scheduler.http_jobs.kept.get("j")
    assert job is not None
    job.lines += [b"x" * 99 + b"\n"] * 300
    loop, turn, batches = asyncio.get_running_loop(), itertools.count(), Counter[int]()
    now = next(turn)

    def count() -> None:
        nonlocal now, ticking
        now = next(turn)
        ticking = loop.call_soon(count)

    def counted(job: HttpJob, position: int) -> tuple[bytes, int]:
        batches[now] += 1
        return lines_from(job, position)

    ticking = loop.call_soon(count)
    monkeypatch.setattr(readers, "lines_from", counted)
    async with contextlib.AsyncExitStack() as stack:
        reading = [await stack.enter_async_context(http.get(JOB_RESULTS)) for _ in range(5)]
        read = await asyncio.gather(*(response.content.readexactly(300 * 100) for response in reading))
    ticking.cancel()
    assert read == [b"".join(cast("list[bytes]", job.lines))] * 5
    assert batches.total() >= 5 * 30 and max(batches.values()) == 1


async def test_few_bare_lines_are_made_at_a_time(scheduler: SchedulerDaemon, http: aiohttp.ClientSession) -> None:
    await post(http)
    job = scheduler.http_jobs.kept.get("j")
    assert job is not None
    job.lines += [BareLine(0, TaskStatus.CANCELLED, 0)] * 1000
    assert lines_from(job, 0)[1] == lines_from(job, 100)[1] - 100 == BARE_LINES_MAX
