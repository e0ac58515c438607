"""A scheduler in this process, and a client of its HTTP."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from tests.support.waiting import TIMEOUT_S


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
