"""Dask (distributed): one scheduler, workers under nannies that start them again, a client that holds futures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.faults_peers.faults import SLOTS, WORKERS, Fault
from benchmarks.faults_peers.network import HEAD, WORKER_NAMES
from benchmarks.faults_peers.processes import Processes
from benchmarks.faults_peers.system import READY_TIMEOUT_S, Cluster, Outcome, Setting, System
from benchmarks.faults_peers.work import warm_up as warm_up_call
from benchmarks.faults_peers.work import work
from benchmarks.laboratory.network import Network


class Dask(System):
    """`dask scheduler`, and `dask worker` with its nanny, as they come."""

    name = "dask"
    packages = ("distributed", "dask")

    def settings(self, fault: Fault) -> Sequence[Setting]:
        """Who is silent for `worker-ttl` is given up, and so is a connection in which nothing moves."""
        soon = {"SCHEDULER__WORKER_TTL": "10s", "COMM__TIMEOUTS__TCP": "15s", "COMM__TIMEOUTS__CONNECT": "5s"}
        environment = {f"DASK_DISTRIBUTED__{name}": value for name, value in soon.items()}
        quick = Setting("worker-ttl 10 s, comm.timeouts.tcp 15 s and .connect 5 s", environment)
        return [Setting(), quick] if fault is Fault.NETWORK_CUT else [Setting()]

    def start(self, processes: Processes, network: Network, setting: Setting) -> Cluster:
        """A process with `SLOTS` threads per worker."""
        port = network.free_port(HEAD)
        address = f"tcp://{network.address(HEAD)}:{port}"
        command = [
            "dask",
            "scheduler",
            "--host",
            network.address(HEAD),
            "--port",
            str(port),
            "--dashboard-address",
            ":0",
        ]
        scheduler = processes.python("scheduler-0", command)
        worker = ["dask", "worker", address, "--nworkers", "1", "--nthreads", str(SLOTS)]
        worker += ["--local-directory", str(processes.directory)]
        workers = [
            processes.python(name, [*worker, "--host", network.address(name)], network.within(name))
            for name in WORKER_NAMES
        ]
        return Cluster(address, lambda: scheduler, lambda: processes.python("scheduler-0", command), workers)

    def outcomes(self, address: str, warm_up: int, tasks: Sequence[tuple[int, str, str]]) -> Iterator[Outcome | None]:
        """`Client.map` and `as_completed`; `pure=False` since each call is to run."""
        from distributed import Client, as_completed

        with Client(address, timeout=READY_TIMEOUT_S) as client:
            client.wait_for_workers(WORKERS, timeout=READY_TIMEOUT_S)
            client.gather(client.map(warm_up_call, range(warm_up), pure=False))
            futures = client.map(work, *zip(*tasks, strict=True), pure=False)
            numbers = {future: task[0] for future, task in zip(futures, tasks, strict=True)}
            yield None
            for future in as_completed(futures):
                try:
                    future.result()
                except Exception as error:
                    yield numbers[future], error
                else:
                    yield numbers[future], None
