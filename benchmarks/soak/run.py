"""One soak, from the first process to the last: load, faults, upgrades, and then nothing may be left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from benchmarks.leftovers import living_children
from benchmarks.soak import checks, functions
from benchmarks.soak.cluster import Cluster, Daemon, Shape, runs
from benchmarks.soak.faults import Chaos
from benchmarks.soak.jobs import MEDIUM_BYTES, UPLOAD_BYTES
from benchmarks.soak.plan import draw
from benchmarks.soak.watch import Kept, Watch
from frontends.synthetic.tasks import noop_job
from node_monitor.blobs.blob_store import UPLOADS_AT_ONCE_MAX
from node_monitor.remembered_outcomes import LARGE_OUTCOME_BYTES_MAX, OUTCOMES_MAX
from sparrow_py import AsyncClient, CallOptions
from sparrow_py.access.credentials import OPEN
from sparrow_py.client import blobs
from sparrow_py.errors import SparrowError
from sparrow_py.job import BlobRef
from sparrow_py.processes.process_control import adopt_orphans

SAMPLE_S = 2.0
FILL_TASKS = 2
"""Of a job that fills memories: as many as a job of the soak has at a node, about."""
FILL_JOBS = 250
FILL_ATTEMPTS = 5
FILL_UPLOADS = 5
"""How often it is given as many uploads as it takes at a time."""
FILL_ROUNDS = OUTCOMES_MAX // (FILL_TASKS * FILL_JOBS)
FIRST_UPGRADE = 0.05
SECOND_UPGRADE = 0.6
"""Shares of the time after which upgrades begin: the first of all, the second without veterans."""
CLIENTS_END_TIMEOUT_S = 180.0
"""Jobs that were under way when the faults were over have so long to end."""
QUIET_TIMEOUT_S = 60.0
"""Then reservations, slots and large data have so long to be given back, beside the retention time of the latter."""
QUIET_POLL_S = 0.5
ORPHANS_TIMEOUT_S = 15.0


@dataclass
class Soaked:
    """What a soak has shown."""

    tally: checks.Tally
    faults: dict[str, int]
    skipped: int
    kept: list[Kept]
    peaks_mb: dict[str, float]
    lasted_s: float
    quiet_after_s: float
    violations: list[str] = field(default_factory=list)


class Soak:
    """See `run`. Everything is logged to `events.jsonl` in its directory, samples of memory to `samples.jsonl`."""

    def __init__(self, shape: Shape, seconds: float, seed: int, gap_s: float, directory: Path) -> None:
        self._shape = shape
        self._seconds = seconds
        self._directory = directory
        self._faults = draw(seed, seconds, gap_s, shape.heartbeat_s)
        self._cluster = Cluster(shape, directory, seed)
        self._events = (directory / "events.jsonl").open("w", buffering=1)
        self._began_s = time.monotonic()
        self._chaos = Chaos(self._cluster, self._log)
        self._watch = Watch()
        self._violations: list[str] = []

    def _log(self, event: str, **what: Any) -> None:
        at_s = round(time.monotonic() - self._began_s, 3)
        self._events.write(json.dumps({"at_s": at_s, "event": event, **what}) + "\n")

    async def run(self) -> Soaked:
        """The whole of it."""
        cluster = self._cluster
        adopt_orphans()  # So that none can hide.
        strangers = {child.pid for child in psutil.Process().children()}
        try:
            await cluster.start()
            await cluster.start_clients()
            self._log("all are up", pids={daemon.name: daemon.pid for daemon in (*cluster.daemons, *cluster.clients)})
            await self._load()
            quiet_after_s = await self._calm_down()
            self._log("draining")
            self._violations += await cluster.stop()
        except BaseException as error:
            self._log("the soak fails", why=repr(error))
            raise
        finally:
            self._chaos.heal()
            await cluster.destroy()
            await self._check_orphans(strangers)
        return self._judge(quiet_after_s)

    # ---- load and faults ---------------------------------------------------------------------

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        start_s, self._began_s = loop.time(), time.monotonic()
        watching = asyncio.ensure_future(self._sample())
        try:
            async with asyncio.TaskGroup() as under_way:
                under_way.create_task(self._chaos.run(self._faults, start_s))
                under_way.create_task(self._upgrades())
        finally:
            watching.cancel()

    async def _upgrades(self) -> None:
        await asyncio.sleep(FIRST_UPGRADE * self._seconds)
        veterans = [daemon for daemon in self._cluster.daemons if daemon.veteran]
        others = [daemon for daemon in self._cluster.daemons if not daemon.veteran]
        await self._chaos.upgrade(veterans)
        async with asyncio.TaskGroup() as under_way:
            under_way.create_task(self._chaos.upgrade(others))
            for node in self._cluster.nodes:
                if node.veteran:
                    under_way.create_task(self._fill(node))
        if veterans:
            await asyncio.sleep(max(0.0, self._began_s + SECOND_UPGRADE * self._seconds - time.monotonic()))
            await self._chaos.upgrade(others)

    async def _fill(self, node: Daemon) -> None:
        """Have a node monitor remember as many outcomes as it ever will, and take as many uploads at a time."""
        for attempt in range(FILL_ATTEMPTS):
            try:
                await self._fill_outcomes(node)
                break
            except SparrowError as error:  # It shares the faults of all.
                self._log("filling fails", on=node.name, why=str(error), attempt=attempt)
        for first in range(0, FILL_UPLOADS * UPLOADS_AT_ONCE_MAX, UPLOADS_AT_ONCE_MAX):
            inputs = [functions.pattern(first + number, UPLOAD_BYTES) for number in range(UPLOADS_AT_ONCE_MAX)]
            async with aiohttp.ClientSession() as session:
                pending = [blobs.upload(session, node.address, OPEN, data, blobs.sha256_hex(data)) for data in inputs]
                refs = await asyncio.gather(*pending, return_exceptions=True)
                downloads = [blobs.download(session, ref, OPEN) for ref in refs if isinstance(ref, BlobRef)]
                await asyncio.gather(*downloads, return_exceptions=True)
            self._log("uploads", on=node.name, taken=len(downloads))
        self._log("its memory is full", on=node.name)

    async def _fill_outcomes(self, node: Daemon) -> None:
        where = (f"name == {node.name}",)
        addresses = [scheduler.address for scheduler in self._cluster.schedulers if scheduler.up]
        async with AsyncClient(addresses, user="filler", heartbeat_s=self._shape.heartbeat_s) as client:
            for _ in range(FILL_ROUNDS):
                jobs = [noop_job(FILL_TASKS, where=where, wait_for_nodes_s=60) for _ in range(FILL_JOBS)]
                await asyncio.gather(*(client.submit_job(job).report() for job in jobs))
            if runs(int(node.name.rpartition("-")[2])) == "python":
                sizes = [(0, MEDIUM_BYTES)] * (LARGE_OUTCOME_BYTES_MAX // MEDIUM_BYTES + 1)
                options = CallOptions(where=where, wait_for_nodes_s=60)
                await client.submit_calls(functions.pattern, sizes, options=options).report()

    async def _sample(self) -> None:
        with (self._directory / "samples.jsonl").open("w", buffering=1) as file:
            while True:
                at_s = time.monotonic() - self._began_s
                self._watch.look((*self._cluster.daemons, *self._cluster.clients), at_s)
                latest = {
                    name: (seen[-1].pid, seen[-1].rss_bytes, seen[-1].descriptors)
                    for name, seen in self._watch.samples.items()
                    if seen[-1].at_s == at_s
                }
                file.write(json.dumps({"at_s": round(at_s, 1), "pid, rss, descriptors": latest}) + "\n")
                await asyncio.sleep(SAMPLE_S)

    # ---- the end -----------------------------------------------------------------------------

    async def _calm_down(self) -> float:
        """The clients finish what they have, and the cluster gives back what it holds; how long that took."""
        began_s = time.monotonic()
        self._log("the faults are over; clients finish")
        await asyncio.gather(*(self._end_client(client) for client in self._cluster.clients))
        self._log("the clients are done")
        left = ["it was not looked"]
        timeout_s = QUIET_TIMEOUT_S + 2 * self._shape.retention_s
        deadline_s = time.monotonic() + timeout_s
        while left and time.monotonic() < deadline_s:
            await asyncio.sleep(QUIET_POLL_S)
            left = await self._left()
        self._violations += [f"left after {timeout_s:g} s: {what}" for what in left]
        self._log("nothing is left" if not left else "something is left", what=left)
        return time.monotonic() - began_s

    async def _end_client(self, client: Daemon) -> None:
        assert client.process is not None and client.process.stdin is not None
        client.process.stdin.close()
        try:
            async with asyncio.timeout(CLIENTS_END_TIMEOUT_S):
                code = await client.ended()
        except TimeoutError:
            self._violations.append(f"{client.name} has not ended after {CLIENTS_END_TIMEOUT_S:g} s")
            await client.kill()
        else:
            if code:
                self._violations.append(f"{client.name} ended with code {code}")

    async def _left(self) -> list[str]:
        async with aiohttp.ClientSession() as session:

            async def get(daemon: Daemon, path: str) -> Any:
                async with session.get(f"http://{daemon.address}{path}") as answer:
                    return await (answer.json() if path.startswith("/v1") else answer.text())

            async def at_scheduler(daemon: Daemon) -> list[str]:
                jobs, nodes = await get(daemon, "/v1/jobs"), await get(daemon, "/v1/nodes")
                left = checks.left_at_scheduler(
                    daemon.name, await get(daemon, "/metrics"), jobs["jobs"], nodes["nodes"]
                )
                missing = len(self._cluster.nodes) - len(nodes["nodes"])
                return [*left, *([f"{daemon.name}: {missing} node monitors are not linked"] if missing else [])]

            async def at_node(daemon: Daemon) -> list[str]:
                nodes, metrics = await get(daemon, "/v1/nodes"), await get(daemon, "/metrics")
                return checks.left_at_node(daemon.name, metrics, nodes["nodes"], len(self._cluster.schedulers))

            async def ask(daemon: Daemon, how: Callable[[Daemon], Awaitable[list[str]]]) -> list[str]:
                try:
                    return await how(daemon)
                except (aiohttp.ClientError, OSError) as error:
                    return [f"{daemon.name} does not answer: {error!r}"]

            found = [
                *[await ask(scheduler, at_scheduler) for scheduler in self._cluster.schedulers],
                *[await ask(node, at_node) for node in self._cluster.nodes],
            ]
        return [what for whats in found for what in whats]

    async def _check_orphans(self, strangers: set[int]) -> None:
        """Processes that have lost their parents are ours now; there must be none that still runs."""
        deadline_s = time.monotonic() + ORPHANS_TIMEOUT_S
        while (orphans := living_children(strangers)) and time.monotonic() < deadline_s:
            await asyncio.sleep(QUIET_POLL_S)
        for orphan in orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._violations.append(f"a process is left: {orphan.pid} {' '.join(orphan.cmdline())[:200]}")
                orphan.kill()
        living_children(strangers)  # Reaps them.

    def _judge(self, quiet_after_s: float) -> Soaked:
        records = [checks.read_jsonl(path) for path in sorted((self._directory / "records").iterdir())]
        tally = checks.tally(records, checks.read_starts(self._cluster.starts))
        veterans = [one.name for one in (*self._cluster.daemons, *self._cluster.clients) if one.veteran]
        kept = [kept for name in veterans if (kept := self._watch.kept(name, self._seconds))]
        for one in kept:
            self._violations += one.violations()
        for name in set(veterans) - {one.name for one in kept}:
            self._violations.append(f"{name} was to live through the last half, and be looked at, and was not")
        for log in sorted((self._directory / "logs").iterdir()):
            self._violations += checks.tracebacks(log)
        self._violations += [f"a file is left: {path}" for path in sorted(self._cluster.tmp.iterdir())]
        shutil.rmtree(self._cluster.tmp)
        kinds = {"schedulers": self._cluster.schedulers, "node monitors": self._cluster.nodes}
        kinds["clients"] = self._cluster.clients
        return Soaked(
            tally,
            dict(sorted(self._chaos.counts.items())),
            self._chaos.skipped,
            kept,
            {kind: self._watch.peak_mb(daemon.name for daemon in daemons) for kind, daemons in kinds.items()},
            self._seconds,
            quiet_after_s,
            [*tally.violations, *self._violations],
        )
