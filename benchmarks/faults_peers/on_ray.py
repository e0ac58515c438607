"""Ray: a head node without slots, two nodes with them, and a driver that is attached to the first of these.

On loopback each node has an address of its own. Where the network is cut the driver is attached to the head node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise

import psutil

from benchmarks.faults_peers.faults import SLOTS, WORKERS, Fault
from benchmarks.faults_peers.network import HEAD, WORKER_NAMES
from benchmarks.faults_peers.processes import Processes
from benchmarks.faults_peers.redis_server import redis_missing, start_redis
from benchmarks.faults_peers.system import Cluster, Outcome, Setting, System, wait_until
from benchmarks.faults_peers.work import warm_up as warm_up_call
from benchmarks.faults_peers.work import work
from benchmarks.laboratory.network import Network

QUIET = ["--block", "--disable-usage-stats", "--object-store-memory", str(100 << 20)]
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
DRIVER_AT = "FAULTS_PEERS_RAY_NODE"


class Ray(System):
    """`ray start --head` and `ray start --address`, one for each node."""

    name = "ray"
    packages = ("ray",)

    def settings(self, fault: Fault) -> Sequence[Setting]:
        """A head node that keeps its state in Redis, and quicker health checks."""
        default = Setting()
        if fault is Fault.SCHEDULER_RESTARTED and not redis_missing():
            return [default, Setting("GCS state in Redis", options={"redis": "yes"})]
        if fault is Fault.NETWORK_CUT:
            return [default, Setting("health checks every 1 s, 3 may fail", HEALTH)]
        return [default]

    def start(self, processes: Processes, network: Network, setting: Setting) -> Cluster:
        """The head has no slots, so that it is no worker."""
        host, port = network.address(HEAD), network.free_port(HEAD)
        address = f"{host}:{port}"
        environment = {}
        if "redis" in setting.options:
            environment["RAY_REDIS_ADDRESS"] = start_redis(processes, network).address
        head = ["ray.scripts.scripts", "start", "--head", "--node-ip-address", host, "--port", str(port), *QUIET]
        head += ["--num-cpus", "0", "--include-dashboard", "false", "--temp-dir", str(processes.directory / "r")]

        def start_head() -> psutil.Process:
            return processes.python("scheduler-0", head, environment=environment)

        scheduler = start_head()
        node = ["ray.scripts.scripts", "start", "--address", address, "--num-cpus", str(SLOTS), *QUIET]
        workers = []
        for before, name in pairwise(["scheduler-0", *WORKER_NAMES]):
            # One after the other: two nodes that start at the same time on one machine may get in each other's way.
            _wait_for_node(processes, before)
            command = [*node, "--node-ip-address", network.address(name)]
            workers.append(processes.python(name, command, network.within(name)))
        driver_at = HEAD if network.within(HEAD) else WORKER_NAMES[0]
        processes.environment[DRIVER_AT] = network.address(driver_at)
        return Cluster(address, lambda: scheduler, start_head, workers)

    def outcomes(self, address: str, warm_up: int, tasks: Sequence[tuple[int, str, str]]) -> Iterator[Outcome | None]:
        """Remote functions with Ray's own `max_retries`, and `ray.wait` for one after the other."""
        import ray

        def nodes() -> int:
            return sum(node["Alive"] and "CPU" in node["Resources"] for node in ray.nodes())

        ray.init(address, _node_ip_address=os.environ[DRIVER_AT], log_to_driver=False)
        wait_until(lambda: nodes() == WORKERS, f"{WORKERS} nodes")
        ray.get([ray.remote(warm_up_call).remote(number) for number in range(warm_up)])
        remote = ray.remote(work)
        numbers = {remote.remote(*task): task[0] for task in tasks}
        yield None
        pending = list(numbers)
        while pending:
            done, pending = ray.wait(pending)
            for reference in done:
                try:
                    ray.get(reference)
                except Exception as error:
                    yield numbers[reference], error
                else:
                    yield numbers[reference], None


def _wait_for_node(processes: Processes, name: str) -> None:
    wait_until(lambda: "Ray runtime started" in processes.said(name), f"Ray's {name}")
