"""Large data: a result of 100 MB to its client, and an input of 100 MB that tasks on 8 nodes need.

(a) One call returns `SIZE` bytes: from submission until the client has them, whole and checked. The call itself and
    pickling are in it. (b) One job of 8 calls of `len` on 8 node monitors of one slot each, which all get the same
    `SIZE` bytes as their function's argument: from submission until the last result; the client's upload and
    unpickling are in it. Copies are counted by what node monitors say they received: uploads and fetches.
`value` is (a). Everything is on one machine: its disk cache and its cores are what is measured.
"""

from __future__ import annotations

import time

from benchmarks.report import Report, Row, command, median_rows, rss_mb
from sparrow_py import Client, LocalCluster
from sparrow_py.embedded.daemon_process import Daemon
from sparrow_py.wire.http_get import http_get_text

SIZE = 100_000_000
NODES = 8
COUNTERS = ("uploaded_bytes", "fetched_bytes", "served_bytes")


def counters(process: Daemon) -> dict[str, float]:
    """What a node monitor has counted of large data so far."""
    lines = http_get_text(process.address, "/metrics").splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(values[f"sparrow_node_monitor_blob_{name}_total"]) for name in COUNTERS}


def length_of(data: bytes, _: int) -> int:
    """Use the input."""
    return len(data)


def result_row() -> Row:
    """(a)."""
    with LocalCluster(1, 1, slots=1, processes="separate") as cluster, Client(cluster) as client:
        client.submit(len, b"").result()
        scheduler = cluster.scheduler_processes[0].pid
        before_mb = rss_mb([scheduler])
        started_s = time.perf_counter()
        assert len(client.submit(bytes, SIZE).result()) == SIZE
        return row(
            "(a) result to its client", time.perf_counter() - started_s, cluster, rss_mb([scheduler]) - before_mb
        )


def input_row() -> Row:
    """(b)."""
    data = bytes(SIZE)
    with LocalCluster(1, NODES, slots=1) as cluster, Client(cluster) as client:
        client.submit_calls(len, [(b"",)] * 4 * NODES).results()
        scheduler = cluster.scheduler_processes[0].pid
        before_mb = rss_mb([scheduler])
        started_s = time.perf_counter()
        # As common bytes, like a broadcast variable: pickled, hashed and uploaded once.
        job = client.submit_calls(lambda number: length_of(data, number), [(number,) for number in range(NODES)])
        assert job.results() == [SIZE] * NODES
        seconds = time.perf_counter() - started_s
        nodes = {task.node for task in job.report().tasks}
        used = {"nodes used": len(nodes)}
        return row("(b) input of 8 tasks", seconds, cluster, rss_mb([scheduler]) - before_mb) | used


def row(what: str, seconds: float, cluster: LocalCluster, scheduler_grew_mb: float) -> Row:
    """A row of the table."""
    counted = [counters(process) for process in cluster.node_processes]
    copies = {name: sum(one[name] for one in counted) / SIZE for name in COUNTERS}
    return {
        "": what,
        "seconds": seconds,
        "MB/s": SIZE / 1e6 / seconds,
        "copies uploaded": copies["uploaded_bytes"],
        "copies fetched": copies["fetched_bytes"],
        "copies served": copies["served_bytes"],
        "scheduler grew MB": scheduler_grew_mb,
        "nodes used": 1,
    }


def measure(repeat: int) -> Report:
    """Both rows, `repeat` times."""
    repetitions = [[result_row(), input_row()] for _ in range(repeat)]
    rows = median_rows(repetitions)
    return Report(
        "blobs",
        rows[0]["MB/s"],
        "MB/s of a 100 MB result from submission until its client has it",
        {f"{SIZE / 1e6:g} MB": rows},
        list(repetitions),
    )


main = command("blobs", measure, repeat=3, help="A large result to its client, a large input to eight nodes.")

if __name__ == "__main__":
    main()
