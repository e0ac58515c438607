"""The cluster of the matrix: 2 schedulers, 3 node monitors, 2 executors started by hand, a client; a machine for each.

Executors share the machine of their node monitor. The cluster is used row after row: `repair` starts again what a row
has killed, with the name, the port and the directories that it had.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.laboratory import cluster, told
from benchmarks.laboratory.cluster import Shape
from benchmarks.laboratory.evidence import Run, read_runs_of
from benchmarks.laboratory.jobs import Job
from benchmarks.laboratory.network import Network, mount
from benchmarks.laboratory.processes import python
from benchmarks.laboratory.program import Order
from benchmarks.laboratory.told import Told
from tests.faults import guest
from tests.support.daemons import gone, workers_of
from tests.support.waiting import wait_until

SCHEDULERS = ("scheduler-0", "scheduler-1")
NODES = ("node-0", "node-1", "node-2")
GUESTS = {"guest-0": "node-0", "guest-1": "node-1"}
"""External executors, and the node monitors that they attach to."""
CLIENT = "client"
MACHINES = (*SCHEDULERS, *NODES, CLIENT)
SLOTS = 2
"""Of each node."""
PLACES = {"python": SLOTS * len(NODES), guest.APP: len(GUESTS)}
"""Tasks of an app that run at a time."""
HEARTBEAT_S = 0.5
SUBMIT_TIMEOUT_S = 20.0
"""Of the client: longer than schedulers need to be found at new addresses, which takes 5 s and a dial."""
DISK = "2m"
"""The file systems that are filled up: of each scheduler's audit log, and of the first node's large data."""
TOKEN = "a-secret-of-the-fault-matrix-of-32-characters-or-more"

SCHEDULER_FLAGS = ("--settling-s", "1", "--claim-timeout-s", "0.5", "--client-grace-s", "1")
NODE_FLAGS = ("--blob-lease-s", "1", "--blob-retention-s", "1")


class Cluster(cluster.Cluster):
    """See the module's docstring. Use it in a `with` block. disks: whether small file systems can be mounted."""

    def __init__(self, directory: Path, network: Network, *, disks: bool) -> None:
        # A socket's path is short, and pytest's directories are not.
        self._sockets = Path(tempfile.mkdtemp(prefix="sparrow-faults-"))
        self._disks = directory / "disks"
        shape = Shape(
            schedulers=len(SCHEDULERS),
            slots=(SLOTS,) * len(NODES),
            heartbeat_s=HEARTBEAT_S,
            programs={CLIENT: _order(SUBMIT_TIMEOUT_S)},
            scheduler_flags=SCHEDULER_FLAGS,
            node_flags=NODE_FLAGS,
            flags={name: self._flags_of(name) for name in (*SCHEDULERS, *NODES)},
        )
        guests = {name: lambda name=name: self._guest(name) for name in GUESTS}  # type: ignore[misc]
        super().__init__(shape, directory, network, commands=guests, environment={"SPARROW_TOKEN": TOKEN})
        self._undo = contextlib.ExitStack()
        self._undo.callback(shutil.rmtree, self._sockets, ignore_errors=True)
        self._undo.callback(shutil.rmtree, self.tmp, ignore_errors=True)
        self._undo.callback(self.destroy)
        self._hosts: dict[str, int] = {}
        """The process ids of the node monitors that external executors attached to."""
        self._elsewhere: set[str] = set()
        """External executors that are to attach to another node."""
        try:
            for name in (*SCHEDULERS, *NODES):
                self.disk(name).mkdir(mode=0o700, parents=True)
                if disks and name in (*SCHEDULERS, NODES[0]):
                    self._undo.callback(mount(self.disk(name), DISK))
            self.start()
            self.repair()
        except BaseException:
            self._undo.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def disk(self, name: str) -> Path:
        """Where a scheduler's audit log and a node's large data lie."""
        return self._disks / name

    def _flags_of(self, name: str) -> tuple[str, ...]:
        if name in SCHEDULERS:
            return ("--audit-log", str(self.disk(name) / "audit.jsonl"))
        attach = ("--attach", guest.APP) if name in GUESTS.values() else ()
        return ("--socket-dir", str(self._sockets / name), "--blob-dir", str(self.disk(name)), *attach)

    # ---- processes ---------------------------------------------------------------------------

    def pid(self, name: str) -> int:
        """The process id of a daemon, an external executor or the client."""
        return self.processes[name].pid

    def launch(self, name: str, *, elsewhere: bool = False) -> None:
        """Start what is not there (any more): as it was, or elsewhere: on another port, or at another node."""
        if name in GUESTS:
            (self._elsewhere.add if elsewhere else self._elsewhere.discard)(name)
            super().launch(name)
            return
        super().launch(name, elsewhere=elsewhere)
        if name != CLIENT or any(map(self.runs, SCHEDULERS)):
            self.processes[name].announcement()
        self.settle()

    def _guest(self, name: str) -> list[str]:
        node = NODES[1] if name in self._elsewhere else GUESTS[name]
        self._hosts[name] = self.pid(node)
        return python("tests.faults.guest", self.processes[node].announcement()["sockets"][0])

    def with_submit_timeout(self, seconds: float) -> None:
        """Have a client that offers its jobs for so long."""
        if seconds != self.shape.programs[CLIENT].submit_timeout_s:
            self.shape.programs[CLIENT] = _order(seconds)
            self.kill(CLIENT)
            self.launch(CLIENT)

    def repair(self) -> None:
        """Start again what is not there, and bring home what is elsewhere."""
        for name in (*SCHEDULERS, *NODES):
            if not self.runs(name):
                self.launch(name)
        for name, node in GUESTS.items():
            # One whose node monitor has died is about to end.
            if self.runs(name) and self._hosts[name] != self.pid(node):
                self.kill(name)
            if not self.runs(name):
                self.launch(name)
        if not self.runs(CLIENT):
            self.launch(CLIENT)

    def workers(self, node: str) -> set[int]:
        """The process ids of the python workers of a node."""
        return workers_of(self.pid(node)) if self.runs(node) else set()

    def pids(self) -> set[int]:
        """The process ids of all that belongs to the cluster now."""
        return {self.pid(name) for name in self.names}.union(*map(self.workers, NODES))

    # ---- the client --------------------------------------------------------------------------

    def submit(self, job: Job) -> str:
        """Have the client submit a job, which it does when it runs; the name that the job has there."""
        self.processes[CLIENT].say(msgspec.json.encode(job))
        life = self.lives[CLIENT]
        return f"{job.name}~{life}" if life else job.name

    def told(self, job: str) -> list[Told]:
        """What the client was told of the job so far."""
        life = job.rpartition("~")[2] if "~" in job else "0"
        path = self.directory / "told" / f"{CLIENT}.{life}"
        return [line for line in told.read(path) if line.job == job] if path.exists() else []

    def runs_of(self, job: str) -> list[Run]:
        """What its tasks have written down so far."""
        directory = self.directory / "runs" / job
        return read_runs_of(directory) if directory.exists() else []

    # ---- what daemons say --------------------------------------------------------------------

    def jobs(self, scheduler: str) -> set[str]:
        """Ids of the jobs that a scheduler has; none if it does not answer."""
        return {job["id"] for job in self.ask_json(scheduler, "/v1/jobs", "jobs") or ()}

    def linked(self, scheduler: str) -> set[str]:
        """Ids of the node monitors that a scheduler is linked to; none if it does not answer."""
        return {node["id"] for node in self.ask_json(scheduler, "/v1/nodes", "nodes") or ()}

    def node(self, name: str) -> dict[str, Any] | None:
        """What a node monitor says of itself; None if it does not answer."""
        nodes = self.ask_json(name, "/v1/nodes", "nodes")
        return None if nodes is None else nodes[0]

    def schedulers_of(self, *jobs: str) -> list[str]:
        """The schedulers that have these jobs."""
        return [name for name in self.serving(SCHEDULERS) if self.jobs(name) & set(jobs)]

    def drain_one(self, name: str) -> None:
        """SIGTERM."""
        self.processes[name].signal(signal.SIGTERM)

    def wait_until_draining(self, name: str) -> None:
        """Return once a daemon that was sent SIGTERM says that it drains."""
        wait_until(lambda: "draining" in self.ask(name, "/readyz")[1], f"{name} to drain")

    def wait_until_gone(self, pids: Iterable[int]) -> None:
        """Return once these processes have ended."""
        for pid in pids:
            wait_until(lambda pid=pid: gone(pid), f"process {pid} to end")  # type: ignore[misc]


def _order(submit_timeout_s: float) -> Order:
    return Order(user="faults", submit_timeout_s=submit_timeout_s)
