"""Has the veterans among the node monitors remember as much as they ever will, before their memory is judged."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence

import aiohttp

from benchmarks.laboratory.cluster import Cluster
from benchmarks.laboratory.kinds import INPUT_BYTES, MEDIUM_BYTES
from benchmarks.soak.plan import zone
from frontends.synthetic.tasks import noop_job
from node_monitor.blobs.blob_store import UPLOADS_AT_ONCE_MAX
from node_monitor.remembered_outcomes import LARGE_OUTCOME_BYTES_MAX, OUTCOMES_MAX
from sparrow_py import AsyncClient, CallOptions
from sparrow_py.access.credentials import OPEN
from sparrow_py.errors import SparrowError
from sparrow_py.job import BlobRef
from sparrow_py.wire import blobs

TASKS = 2
"""Of a job that fills memories: as many as a job of the soak has at a node, about."""
JOBS = 250
ROUNDS = OUTCOMES_MAX // (TASKS * JOBS)
ATTEMPTS = 5
UPLOADS = 5
"""How often it is given as many uploads as it takes at a time."""


class Filling:
    """Of these node monitors, each once it has been upgraded."""

    def __init__(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        self._cluster = cluster
        self._to_fill = list(nodes)
        self._filled_s = dict.fromkeys(nodes, float("inf"))

    def is_over_by(self, at_s: float) -> bool:
        """Whether all were full by that time, in seconds since the load began."""
        return all(filled_s <= at_s for filled_s in self._filled_s.values())

    def step(self) -> None:
        """Begin with those that are there for good now."""
        for name in [name for name in self._to_fill if self._cluster.lives[name] and self._cluster.ready(name)]:
            self._to_fill.remove(name)
            threading.Thread(target=lambda name=name: asyncio.run(self._fill(name)), daemon=True).start()

    async def _fill(self, name: str) -> None:
        for _ in range(ATTEMPTS):
            try:
                await self._fill_outcomes(name)
                break
            except SparrowError:  # It shares the faults of all.
                continue
        address = self._cluster.address(name)
        for _ in range(UPLOADS):
            inputs = [os.urandom(INPUT_BYTES) for _ in range(UPLOADS_AT_ONCE_MAX)]
            async with aiohttp.ClientSession() as session:
                pending = [blobs.upload(session, address, OPEN, data, blobs.sha256_hex(data)) for data in inputs]
                refs = await asyncio.gather(*pending, return_exceptions=True)
                downloads = [blobs.download(session, ref, OPEN) for ref in refs if isinstance(ref, BlobRef)]
                await asyncio.gather(*downloads, return_exceptions=True)
        self._filled_s[name] = time.monotonic() - self._cluster.began_ns / 1e9

    async def _fill_outcomes(self, name: str) -> None:
        where = (f"name == {name}",)
        cluster = self._cluster
        addresses = [cluster.address(one) for one in cluster.schedulers if cluster.ready(one)]
        async with AsyncClient(addresses, user="filler", heartbeat_s=cluster.shape.heartbeat_s) as client:
            for _ in range(ROUNDS):
                jobs = [noop_job(TASKS, where=where, wait_for_nodes_s=60) for _ in range(JOBS)]
                await asyncio.gather(*(client.submit_job(job).report() for job in jobs))
            if zone(cluster.nodes.index(name)) == "python":
                sizes = [(MEDIUM_BYTES,)] * (LARGE_OUTCOME_BYTES_MAX // MEDIUM_BYTES + 1)
                options = CallOptions(where=where, wait_for_nodes_s=60)
                await client.submit_calls(os.urandom, sizes, options=options).report()
