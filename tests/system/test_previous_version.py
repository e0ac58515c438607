"""Daemons and clients of today with peers of the protocol's previous version, which play what that version recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from frontends.synthetic.tasks import encode_duration
from sparrow_py import AsyncClient, JobSpec, StageSpec, TaskSpec, TaskStatus
from sparrow_py import messages as m
from tests.support.daemons import Daemon, get_json
from tests.support.previous import PlayedScheduler, Recording, dial

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
                nap = encode_duration(0.001)
                first = StageSpec([nap, nap], name="first", app="sleep", common=b"of all")
                last = TaskSpec(nap, inputs=["first"])
                second = StageSpec([last], name="second", app="sleep", after=["first"])
                job = client.submit_job(JobSpec(stages=[first, second], job_id="finishes"))
                assert await job.results() == [b"", b"", b""]
                assert (await job.report()).tasks[0].node == "node"
                long = JobSpec([encode_duration(1000.0)], app="sleep", job_id="stopped", report_placed=True)
                stopped = client.submit_job(long)
                stopped.cancel(running=True)
                assert (await stopped.report()).count(TaskStatus.CANCELLED) == 1
            await played
        finally:
            await asyncio.to_thread(node_monitor.__exit__)
