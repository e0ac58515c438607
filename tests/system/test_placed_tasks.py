"""Tasks that a plane places and preempts, on a real node monitor that a sampling scheduler uses as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from sparrow_py import AsyncClient
from sparrow_py.wire import messages as m
from tests.support.daemons import Daemon, http
from tests.support.most_free_slots import InLanes
from tests.support.tasks import hold, square, started
from tests.support.waiting import TIMEOUT_S


class Leads(InLanes):
    """The plane that places: it pushes tasks to the lanes of nodes while it leads."""

    name = m.FLOW
    has_leader = True
    counts_slots = True

    def pump(self, now_s: float) -> None:
        if self.book.leads():
            super().pump(now_s)


class Rig:
    """A scheduler of this process that places tasks, a sampling one, and a node monitor of both with two slots."""

    def __init__(self, placing: SchedulerDaemon, sampling: str, node: Daemon) -> None:
        self.placing = placing
        self.sampling = sampling
        self.node = node
        self.plane: Any = placing.core.plane

    def lane(self) -> dict[str, int]:
        """As the node monitor's HTTP says."""
        status, body = http(self.node.address, "/v1/nodes")
        assert status == 200
        return json.loads(body)["nodes"][0]["lane"]

    def preempt(self, task: int) -> None:
        """The plane has a task make room."""
        (job,) = self.placing.core.jobs.values()
        job.preemptible = True
        attempt = job.attempts[job.stages[0].attempts[task]]
        self.plane.book.preempt(attempt)
        self.placing.update_timers()


async def until(condition: Callable[[], object]) -> None:
    """Whatever is to happen in this process too."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def rig_of(daemons: ExitStack, logs: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr("scheduler.core.plane_of", lambda options, history: Leads)
    monkeypatch.setattr("scheduler.planes.warm_up_of", lambda options: None)
    placing = SchedulerDaemon(SchedulerOptions(port=0, policy=m.FLOW, settling_s=0.0))
    await placing.start()
    sampling = daemons.enter_context(Daemon("scheduler", log=logs / "scheduler"))
    both = ("--scheduler", placing.address, "--scheduler", sampling.address)
    starting = asyncio.to_thread(
        Daemon, "node_monitor", *both, "--node-id", "n", "--slots", "2", "--lane-timeout-s", "0.2", log=logs / "node"
    )
    node = daemons.enter_context(await starting)
    await until(lambda: placing.core.leads and http(node.address, "/readyz")[0] == 200)
    rig = Rig(placing, sampling.address, node)
    await until(lambda: rig.lane()["slots"] == 1)  # The sampling one is linked, too.
    return rig


async def test_placed_tasks_share_a_node_with_sampled_ones_and_make_room_and_schedulers_hear_of_it(
    daemons: ExitStack, tmp_path: Path, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await rig_of(daemons, tmp_path, monkeypatch)
    try:
        assert await asyncio.to_thread(rig.lane) == {"slots": 1, "held": 0, "waiting": 0, "handed_back": 0}
        node = rig.placing.core.nodes["n"]
        await until(lambda: node.load is not None and node.load.cpu is not None)
        assert node.load is not None and node.load.memory_bytes and node.load.free == node.info.resources
        assert (node.load.lane_free, node.load.lane_slots) == (1, 1)
        async with AsyncClient(rig.placing.address) as placing, AsyncClient(rig.sampling) as sampling:
            job = placing.submit_calls(hold, [(gate, "first"), (gate, "second")])
            first, second = job.futures
            await until(lambda: started(gate, "first"))
            # Of the two slots placed tasks may hold one: what finds none is handed back, and placed again.
            await until(lambda: rig.placing.core.counters.handed_back >= 1)
            await until(lambda: node.load is not None and node.load.lane_free == 0)
            assert (await asyncio.to_thread(rig.lane))["held"] == 1 and not started(gate, "second")
            assert await sampling.submit(square, 3) == 9

            rig.preempt(0)
            await until(lambda: rig.placing.core.counters.preempted == 1)
            (preemption,) = rig.plane.preemptions
            assert preemption[:2] == (0, "n") and preemption[2] > 0
            gate.touch()
            assert await asyncio.wait_for(asyncio.gather(first, second), TIMEOUT_S) == ["first", "second"]
            report = await job.report()
            assert [one.attempts for one in report.tasks] == [1, 1], "a start that made room does not count"
            await until(lambda: node.load is not None and node.load.lane_free == 1)
    finally:
        await rig.placing.stop()
