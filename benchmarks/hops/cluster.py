"""A small cluster, and the processes through which a call passes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.functions import noop
from benchmarks.latency import CALL_SLOTS, wait_for_workers
from sparrow_py import Client, LocalCluster

WARM_UP_CALLS = 200


@contextmanager
def running_client(processes: str) -> Iterator[tuple[Client, dict[str, int]]]:
    """A client of a new cluster that has warmed up, and the process ids of what calls pass through, by role."""
    with LocalCluster(1, 1, slots=CALL_SLOTS, processes=processes) as cluster, Client(cluster) as client:
        wait_for_workers(client, CALL_SLOTS)
        for _ in range(WARM_UP_CALLS):
            client.submit(noop).result()
        scheduler, node_monitor = cluster.scheduler_processes[0].pid, cluster.node_processes[0].pid
        daemons = {"scheduler": scheduler, "node monitor": node_monitor}
        yield client, {"client": os.getpid()} | (daemons if scheduler != node_monitor else {"daemons": scheduler})
