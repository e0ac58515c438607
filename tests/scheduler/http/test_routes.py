"""The scheduler's routes in this process: submissions are counted, and bodies have to come in time."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.http import routes
from scheduler.http.job import TASK_BYTES
from scheduler.options import SchedulerOptions
from scheduler.plane import RoundFigures, WhyWaiting
from scheduler.solving import Solving
from sparrow_py.daemon.version import version
from sparrow_py.http import http_api
from sparrow_py.limits.seats import Seats
from sparrow_py.wire import messages as m
from tests.support.http_jobs import WAITING_JOB, post, refusal, until
from tests.support.most_free_slots import LedMostFreeSlots, MostFreeSlots
from tests.support.waiting import TIMEOUT_S


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
    async with http.post("/v1/jobs", json=WAITING_JOB) as response:
        assert response.status == 503
        assert "SUBMISSIONS_MAX = 1" in await refusal(response)
    sent.set()
    async with await slow as response:
        assert response.status == 202
    await post(http)


async def test_a_job_of_more_tasks_than_have_room_is_refused_before_it_is_read(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read five million takes a gigabyte and 15 s."""
    monkeypatch.setattr(routes, "INLINE_BODY_BYTES_MAX", 0)
    monkeypatch.setattr(scheduler.http_jobs.kept.bytes, "share", 3 * TASK_BYTES)
    monkeypatch.setattr(routes, "read_submission", None)
    async with http.post("/v1/jobs", json={"app": "app", "tasks": [{}] * 4}) as response:
        assert response.status == 413
        assert "tasks: 4 tasks; at most 3 of a user have room" in await refusal(response)


async def test_a_body_that_does_not_come_in_time(http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "BODY_TIMEOUT_S", 0.0)

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with http.post("/v1/jobs", data=body(), headers={"Content-Type": "application/json"}) as response:
        assert response.status == 408
        assert "within 0 s" in await refusal(response)


async def test_an_order_to_lead_says_what_comes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.core.plane_of", lambda options, history: LedMostFreeSlots)
    monkeypatch.setattr("scheduler.planes.warm_up_of", lambda options: None)
    daemon = SchedulerDaemon(SchedulerOptions(port=0, policy="flow"))
    await daemon.start()
    async with aiohttp.ClientSession(f"http://{daemon.address}") as http:
        async with http.post("/v1/lead") as response:
            assert (response.status, await response.json()) == (202, {"plane": "flow", "epoch": 1, "leads": False})
        async with http.get("/readyz") as response:
            assert (response.status, "no node monitor is connected" in await response.text()) == (503, True)
        daemon.core.node_up("n", m.NodeInfo(1, {}, {}, {}), daemon.clock())
        async with http.get("/readyz") as response:
            assert "0 of 1 node has accepted it with epoch 1" in await response.text()
        daemon.core.receive_from_node("n", m.Leading("flow", 1, daemon.name, True), daemon.clock())
        async with http.post("/v1/lead") as response:
            assert (response.status, await response.json()) == (200, {"plane": "flow", "epoch": 1, "leads": True})
    await daemon.stop()


async def test_a_scheduler_says_what_it_is_and_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.core.plane_of", lambda options, history: LedMostFreeSlots)
    monkeypatch.setattr("scheduler.planes.warm_up_of", lambda options: None)
    daemon = SchedulerDaemon(SchedulerOptions(port=0, policy="flow", standby_of="any", takeover_s=0.0))
    await daemon.start()
    seen: list[dict[str, Any]] = []
    async with aiohttp.ClientSession(f"http://{daemon.address}") as http:

        async def look() -> None:
            async with http.get("/v1/scheduler") as response:
                assert response.status == 200
                seen.append(await response.json())

        await look()
        daemon.core.node_up("n", m.NodeInfo(3, {}, {}, {}), daemon.clock())
        daemon.core.receive_from_node("n", m.Leading("flow", 4, "other", True, "10.0.0.1:1"), daemon.clock())
        await look()
        async with http.post("/v1/jobs", json={**WAITING_JOB, "policy": "auto", "expected_duration_s": 60}) as response:
            assert response.status == 503
            assert "another scheduler does (other at 10.0.0.1:1, epoch 4)" in await refusal(response)
        daemon.core.receive_from_node("n", m.Leading("flow", 4, "other", False, "10.0.0.1:1"), daemon.clock())
        daemon.core.tick(daemon.clock())
        daemon.core.receive_from_node("n", m.Leading("flow", 5, daemon.name, True), daemon.clock())
        await post(http)
        await look()
        async with http.get("/v1/jobs") as response:
            assert [job["policy"] for job in (await response.json())["jobs"]] == ["flow"]
    await daemon.stop()
    own = {"name": daemon.name, "address": daemon.address, "policy": "flow", "placement": ""}
    own |= {"version": version(), "protocol": m.PROTOCOL_VERSION}
    why = "it does not lead plane flow: another scheduler does (other at 10.0.0.1:1, epoch 4)"
    other = {"name": "other", "address": "10.0.0.1:1", "epoch": 4}
    idle = {**own, "takes_jobs": False, "leads": False, "epoch": 0, "jobs": 0}
    starting = {"lead_state": "asking", "why_not": "no node monitor is connected", "leader": None}
    standby = {"lead_state": "standing_by", "why_not": why, "leader": other}
    leads = {"takes_jobs": True, "why_not": "", "leads": True, "lead_state": "leading", "epoch": 5, "leader": None}
    assert seen == [
        {**idle, **starting, "nodes": 0, "slots": 0},
        {**idle, **standby, "nodes": 1, "slots": 3},
        {**own, **leads, "nodes": 1, "slots": 3, "jobs": 1},
    ]


async def test_how_many_slots_are_wanted(scheduler: SchedulerDaemon, http: aiohttp.ClientSession) -> None:
    async def demand() -> dict[str, int]:
        async with http.get("/v1/demand") as response:
            assert response.status == 200
            found: dict[str, int] = await response.json()
            return found

    nothing = {"slots_wanted": 0, "running": 0, "waiting": 0, "slots": 0}
    before = await demand()
    assert before == nothing | {"slots": before["slots"]}
    async with http.post("/v1/jobs", json=WAITING_JOB | {"tasks": [{}, {}, {}]}) as response:
        assert response.status == 202
    assert await demand() == before | {"slots_wanted": 3, "waiting": 3}
    scheduler.core.node_up("n", m.NodeInfo(2, {}, {}, {}), scheduler.clock())
    # Another node would not run them, either, if it is as this one is.
    assert await demand() == before | {"slots": before["slots"] + 2}
    scheduler.core.node_up("n2", m.NodeInfo(2, {}, {}, {"app": ""}), scheduler.clock())
    assert await demand() == before | {"slots_wanted": 3, "waiting": 3, "slots": before["slots"] + 4}
    job = next(iter(scheduler.core.jobs.values()))
    job.stages[0].waits_for.add(1)
    assert (await demand())["waiting"] == 0
    job.stages[0].waits_for.clear()


async def test_a_scheduler_that_samples_has_no_leader(scheduler: SchedulerDaemon, http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/scheduler") as response:
        found = await response.json()
    assert (found["policy"], found["placement"], found["leads"], found["leader"]) == ("sparrow", "sparrow", None, None)
    assert (found["takes_jobs"], found["name"]) == (not scheduler.why_not_ready(), scheduler.name)


async def test_a_job_of_a_deposed_scheduler_ends_lost_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes it to another."""
    monkeypatch.setattr("scheduler.core.plane_of", lambda options, history: LedMostFreeSlots)
    monkeypatch.setattr("scheduler.planes.warm_up_of", lambda options: None)
    daemon = SchedulerDaemon(SchedulerOptions(port=0, policy="flow", settling_s=0.0))
    await daemon.start()
    daemon.core.node_up("n", m.NodeInfo(1, {}, {}, {}), daemon.clock())
    daemon.core.lead(daemon.clock())
    daemon.core.receive_from_node("n", m.Leading("flow", 1, daemon.name, True), daemon.clock())
    async with aiohttp.ClientSession(f"http://{daemon.address}") as http:
        job = {**WAITING_JOB, "job_id": "j", "policy": "flow"}
        async with http.post("/v1/jobs", json=job) as response:
            assert response.status == 202, await response.text()
        daemon.core.receive_from_node("n", m.Leading("flow", 2, "other", True), daemon.clock())
        async with http.get("/v1/jobs/j/results") as response:
            (line,) = (await response.text()).splitlines()
            assert '"lost"' in line and "leads its plane no more" in line
        async with http.post("/v1/jobs", json=job | {"job_id": "k"}) as response:
            assert (response.status, "another scheduler does" in await response.text()) == (503, True)
    await daemon.stop()


async def test_one_job_of_a_user_is_explained_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told, begun = threading.Event(), asyncio.Event()
    monkeypatch.setattr(routes, "BUSY_RETRY_S", 0.01)

    async def compute(_: object, work: Callable[[], WhyWaiting]) -> WhyWaiting:
        begun.set()
        assert await asyncio.to_thread(told.wait, TIMEOUT_S)
        return work()

    monkeypatch.setattr(Solving, "compute", compute)
    monkeypatch.setattr("scheduler.core.plane_of", lambda options, history: MostFreeSlots)
    monkeypatch.setattr(MostFreeSlots, "rounds", RoundFigures())
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    await daemon.start()
    async with aiohttp.ClientSession(f"http://{daemon.address}") as http:
        for job, user in (("j", "ada"), ("k", "ada")):
            async with http.post("/v1/jobs", json={**WAITING_JOB, "job_id": job, "user": user}) as response:
                assert response.status == 202, await response.text()
        first = asyncio.ensure_future(http.get("/v1/jobs/j/explain"))
        await begun.wait()
        async with http.get("/v1/jobs/k/explain") as response:
            assert response.status == 503 and int(response.headers["Retry-After"]) >= 1
            assert "at most 1 of EXPLAINED_MAX = 4 jobs are explained for one user" in await response.text()
        told.set()
        async with await first as response:
            (stage,) = (await response.json())["stages"]
            assert response.status == 200 and stage["waiting"] == 1
        async with http.get("/v1/jobs/k/explain") as response:
            assert response.status == 200 and (await response.json())["more_stages"] == 0
    await daemon.stop()
