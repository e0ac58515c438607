"""HyperQueue: server and worker in a Python program, by its Python API.

`python -m benchmarks.peers.systems.hyperqueue_local AT_ONCE` runs `true` for each line of its input.
"""

from __future__ import annotations

import sys
import tempfile

from benchmarks.peers.peer import Tool


class HyperQueue(Tool):
    """Its tasks are programs; what a Python function returns does not come back, so it is none of the libraries."""

    name = "hyperqueue"
    shown_only = True
    packages = ("hyperqueue",)

    def command(self, at_once: int) -> list[str]:
        """The program below."""
        return [sys.executable, "-m", __name__, str(at_once)]


def main() -> None:
    """One job with a task for each line."""
    import hyperqueue
    from hyperqueue.cluster import LocalCluster, WorkerConfig

    workers = WorkerConfig(cores=int(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="hq-") as directory, LocalCluster(directory, workers) as cluster:
        job = hyperqueue.Job(directory)
        for _ in sys.stdin:
            job.program(["true"], stdout=None, stderr=None)
        client = cluster.client()
        client.wait_for_jobs([client.submit(job)])  # Raises if a task has failed.


if __name__ == "__main__":
    main()
