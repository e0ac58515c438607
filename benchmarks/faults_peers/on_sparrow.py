"""Sparrow: schedulers that share nothing, and node monitors that dial each of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence

import psutil

from benchmarks.faults_peers.faults import SLOTS, WORKERS, Fault
from benchmarks.faults_peers.network import HEAD, WORKER_NAMES
from benchmarks.faults_peers.processes import Processes
from benchmarks.faults_peers.system import Cluster, Outcome, Setting, System, wait_until
from benchmarks.faults_peers.work import warm_up as warm_up_call
from benchmarks.faults_peers.work import work
from benchmarks.laboratory.network import Network
from sparrow_py import Client, ClusterError
from sparrow_py.wire.http_get import http_get_json

TOKEN = secrets.token_hex(32)


class Sparrow(System):
    """This project."""

    name = "sparrow"
    packages = ("sparrow-py",)

    def settings(self, fault: Fault) -> Sequence[Setting]:
        """Schedulers are as many as one starts; with a second one nobody need wait for the first."""
        one = Setting("one scheduler", {"SPARROW_TOKEN": TOKEN}, {"schedulers": "1"})
        two = Setting("two schedulers", {"SPARROW_TOKEN": TOKEN}, {"schedulers": "2"})
        return [one, two] if fault is Fault.SCHEDULER_KILLED else [one]

    def start(self, processes: Processes, network: Network, setting: Setting) -> Cluster:
        """All of them at once: node monitors dial until their schedulers are there."""
        ports = [network.free_port(HEAD) for _ in range(int(setting.options["schedulers"]))]
        addresses = ",".join(f"{network.address(HEAD)}:{port}" for port in ports)

        def scheduler(number: int) -> list[str]:
            return ["scheduler", "--host", network.address(HEAD), "--port", str(ports[number])]

        def busy() -> psutil.Process:
            return next(one for one, port in zip(schedulers, ports, strict=True) if _has_job(network, port))

        schedulers = [processes.python(f"scheduler-{n}", scheduler(n)) for n in range(len(ports))]
        node = ["node_monitor", "--port", "0", "--scheduler", addresses, "--slots", str(SLOTS)]
        workers = [
            processes.python(name, [*node, "--host", network.address(name), "--node-id", name], network.within(name))
            for name in WORKER_NAMES
        ]
        return Cluster(addresses, busy, lambda: processes.python("scheduler-0", scheduler(0)), workers)

    def outcomes(self, address: str, warm_up: int, tasks: Sequence[tuple[int, str, str]]) -> Iterator[Outcome | None]:
        """A client knows all schedulers, and gives its job to one of them."""
        addresses = address.split(",")
        for each in addresses:
            _wait_for_nodes(each)
        with Client(addresses) as client:
            client.submit_calls(warm_up_call, [(number,) for number in range(warm_up)]).results()
            job = client.submit_calls(work, tasks)
            yield None
            for future in job:
                yield future.task, future.exception()


def _has_job(network: Network, port: int) -> bool:
    status, body = network.ask(HEAD, port, "/v1/jobs", token=TOKEN)
    return status == 200 and any(not job.get("ended") for job in json.loads(body)["jobs"])


def _wait_for_nodes(address: str) -> None:
    def all_there() -> bool:
        try:
            return len(http_get_json(address, "/v1/nodes")["nodes"]) == WORKERS
        except ClusterError:
            return False  # It starts.

    wait_until(all_there, f"{WORKERS} node monitors at {address}")
