"""The scheduler's HTTP in this process: its limits on requests, and readers that go away or do not read."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.http import routes
from scheduler.options import SchedulerOptions
from sparrow_py.http import http_api
from sparrow_py.job import TaskStatus
from sparrow_py.limits.seats import Seats
from sparrow_py.wire import messages as m
from tests.support.waiting import TIMEOUT_S

JOB = {"job_id": "j", "app": "app", "tasks": [{}], "wait_for_nodes_s": 1000}
RESULTS = "/v1/jobs/j/results"


@pytest.fixture
async def scheduler() -> AsyncIterator[SchedulerDaemon]:
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    await daemon.start()
    yield daemon
    await daemon.stop()


@pytest.fixture
async def http(scheduler: SchedulerDaemon) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(f"http://{scheduler.address}", timeout=timeout) as session:
        yield session


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def post(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/jobs", json=JOB) as response:
        assert response.status == 202


async def refusal(response: aiohttp.ClientResponse) -> str:
    return str((await response.json())["error"]["message"])


async def test_readers_are_counted(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler.http_jobs, "readers", Seats("READERS_MAX", 1, "readers"))
    monkeypatch.setattr(routes, "READER_CHECK_S", 0.001)
    monkeypatch.setattr(routes, "BUSY_RETRY_S", 0.0)
    await post(http)
    async with http.get(RESULTS) as reader, http.get(RESULTS) as other:
        assert (reader.status, other.status, other.headers["Retry-After"]) == (200, 503, "1")
        assert "READERS_MAX = 1" in await refusal(other)
    await until(lambda: scheduler.http_jobs.readers.total == 0)  # It is seen that a reader goes, though nothing comes.
    async with http.get(RESULTS) as reader:
        assert reader.status == 200


async def test_submissions_are_counted(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler.http_jobs, "submissions", Seats("SUBMISSIONS_MAX", 1, "submissions"))
    monkeypatch.setattr(routes, "BUSY_RETRY_S", 0.0)
    sent = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"app": "app"'
        await sent.wait()
        yield b', "wait_for_nodes_s": 9}'

    headers = {"Content-Type": "application/json"}
    slow = asyncio.ensure_future(http.post("/v1/jobs", data=body(), headers=headers))
    await until(lambda: scheduler.http_jobs.submissions.total == 1)
    async with http.post("/v1/jobs", json=JOB) as response:
        assert response.status == 503
        assert "SUBMISSIONS_MAX = 1" in await refusal(response)
    sent.set()
    async with await slow as response:
        assert response.status == 202
    await post(http)


async def test_a_body_that_does_not_come_in_time(http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "BODY_TIMEOUT_S", 0.0)

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with http.post("/v1/jobs", data=body(), headers={"Content-Type": "application/json"}) as response:
        assert response.status == 408
        assert "within 0 s" in await refusal(response)


async def test_a_reader_that_does_not_read_is_cut_off_when_the_lines_go(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession
) -> None:
    await post(http)
    host, _, port = scheduler.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(f"GET {RESULTS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await until(lambda: scheduler.http_jobs.readers.total == 1)
    job = scheduler.http_jobs.get("j")
    assert job is not None
    job.lines += [b"x" * (1 << 20)] * 64  # More than sockets buffer.
    job.tell()
    scheduler.http_jobs.close()
    await until(lambda: scheduler.http_jobs.readers.total == 0)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1 << 30)
    writer.close()


async def test_results_reach_readers_of_this_process(scheduler: SchedulerDaemon, http: aiohttp.ClientSession) -> None:
    await post(http)
    async with http.get(RESULTS) as response:
        scheduler.to_client("http#1", m.Outcome("j", 0, TaskStatus.FINISHED, b'"done"', "", 1, "n", None, None, None))
        assert b'"result":"done"' in await response.content.readline()
        scheduler.to_client("http#1", m.JobEnded("j"))
        assert await response.read() == b""
