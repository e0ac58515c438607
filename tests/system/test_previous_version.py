"""Daemons and clients of today with peers of the protocol's previous version, which play what that version recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from sparrow_py import AsyncClient, NoScheduler
from sparrow_py.wire import messages as m
from tests.support.daemons import Daemon, get_json
from tests.support.previous import PlayedScheduler, Recording, dial
from tests.support.record_frames import two_jobs
from tests.support.waiting import ANSWER_S, wait_until

BEFORE = m.PROTOCOL_VERSION_OLDEST


async def test_a_scheduler_serves_a_client_and_a_node_monitor_of_the_version_before(tmp_path: Path) -> None:
    with await asyncio.to_thread(lambda: Daemon("scheduler", log=tmp_path / "log")) as scheduler:
        async with aiohttp.ClientSession() as session:
            recording = Recording(f"protocol-v{BEFORE}", "dialler")
            await dial(recording, session, scheduler.address)
            await recording.play()
        assert get_json(scheduler.address, "/v1/jobs")["jobs"] == []


async def test_a_client_and_a_node_monitor_have_a_scheduler_of_the_version_before(tmp_path: Path) -> None:
    recording = Recording(f"protocol-v{BEFORE}", "scheduler")
    async with PlayedScheduler(recording, BEFORE) as scheduler:
        played = asyncio.ensure_future(recording.play())
        flags = ["--scheduler", scheduler.address, "--slots", "1", "--node-id", "node"]
        node_monitor = await asyncio.to_thread(lambda: Daemon("node_monitor", *flags, log=tmp_path / "log"))
        try:
            async with AsyncClient(scheduler.address, user="ann") as client:
                await two_jobs(client, asyncio.sleep(0))
            await played
        finally:
            await asyncio.to_thread(node_monitor.__exit__)


@pytest.mark.rest
async def test_a_scheduler_that_is_two_versions_behind_is_named_once_and_not_at_each_dial(tmp_path: Path) -> None:
    recording = Recording(f"protocol-v{BEFORE}", "scheduler")
    why_not = f"protocol version {BEFORE} is not spoken here; {BEFORE - 1} is"
    async with PlayedScheduler(recording, BEFORE - 1) as scheduler:
        log = tmp_path / "log"
        flags = ["--scheduler", scheduler.address, "--slots", "1"]
        node_monitor = await asyncio.to_thread(lambda: Daemon("node_monitor", *flags, log=log))
        try:
            await asyncio.to_thread(wait_until, lambda: scheduler.refused >= 3, "the node monitor to dial thrice")
        finally:
            await asyncio.to_thread(node_monitor.__exit__)
        assert log.read_text().count(f"WARNING sparrow.links: scheduler {scheduler.address} refused the link") == 1
        assert log.read_text().count(why_not) == 1
        with pytest.raises(NoScheduler, match=why_not):
            await AsyncClient(scheduler.address, connect_timeout_s=ANSWER_S).__aenter__()
