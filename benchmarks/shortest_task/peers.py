"""Dask and Ray: how their clusters are started, and how their clients submit. Their packages are imported when used."""

from __future__ import annotations

import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from benchmarks.faults_peers.on_dask import Dask
from benchmarks.faults_peers.on_ray import QUIET, Ray
from benchmarks.faults_peers.processes import Processes
from benchmarks.faults_peers.system import System, wait_until
from benchmarks.shortest_task.tasks import sleep

READY_TIMEOUT_S = 60.0
HOST = "127.0.0.1"
NODES_PER_PROCESS = 13
"""Workers of Dask that share a process, as our node monitors do."""
SAY_READY = "Ray runtime started"

Submit = Callable[[float, int, Callable[[], None]], None]
"""(duration in seconds, tasks, done): start a job; `done` is called once for each task that has ended."""


class Peer(ABC):
    """A system to compare with. system: what says whether it is installed."""

    name: str
    system: System

    @abstractmethod
    def start(self, processes: Processes, nodes: int, slots: int) -> str:
        """Start a cluster; returns its address."""

    @abstractmethod
    def client(self, address: str, slots: int) -> contextlib.AbstractContextManager[Submit]:
        """In the user's process, once the cluster has so many slots in all."""


class DaskPeer(Peer):
    """`dask scheduler`, and its workers, several to a process."""

    name = "dask"
    system = Dask()

    def start(self, processes: Processes, nodes: int, slots: int) -> str:
        port = free_port()
        address = f"tcp://{HOST}:{port}"
        scheduler = ["dask", "scheduler", "--host", HOST, "--port", str(port), "--dashboard-address", ":0"]
        processes.python("scheduler", scheduler)
        for first in range(0, nodes, NODES_PER_PROCESS):
            count = min(NODES_PER_PROCESS, nodes - first)
            workers = ["benchmarks.shortest_task.dask_workers", address, str(count), str(slots)]
            processes.python(f"workers-{first}", workers)
        return address

    @contextlib.contextmanager
    def client(self, address: str, slots: int) -> Iterator[Submit]:
        from distributed import Client

        with Client(address, timeout=READY_TIMEOUT_S) as client:
            wait_until(lambda: sum(client.nthreads().values()) >= slots, f"{slots} slots of Dask")

            def submit(duration_s: float, tasks: int, done: Callable[[], None]) -> None:
                for future in client.map(sleep, [duration_s] * tasks, pure=False):
                    future.add_done_callback(lambda _: done())

            yield submit


class RayPeer(Peer):
    """`ray start --head` with all slots: nodes of their own would each take processes that two cores do not have."""

    name = "ray"
    system = Ray()

    def start(self, processes: Processes, nodes: int, slots: int) -> str:
        port = free_port()
        head = ["ray.scripts.scripts", "start", "--head", "--node-ip-address", HOST, "--port", str(port), *QUIET]
        head += ["--num-cpus", str(nodes * slots), "--include-dashboard", "false"]
        processes.python("head", [*head, "--temp-dir", str(processes.directory / "r")])
        wait_until(lambda: SAY_READY in processes.said("head"), "Ray's head node")
        return f"{HOST}:{port}"

    @contextlib.contextmanager
    def client(self, address: str, slots: int) -> Iterator[Submit]:
        import ray

        ray.init(address, _node_ip_address=HOST, log_to_driver=False)
        remote = ray.remote(sleep)

        def submit(duration_s: float, tasks: int, done: Callable[[], None]) -> None:
            for _ in range(tasks):
                remote.remote(duration_s).future().add_done_callback(lambda _: done())

        try:
            yield submit
        finally:
            ray.shutdown()


PEERS: dict[str, Peer] = {peer.name: peer for peer in (DaskPeer(), RayPeer())}


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
