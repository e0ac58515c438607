"""The cluster under test: 2 schedulers, 3 node monitors, 2 executors started by hand, a client; a machine for each.

Executors share the machine of their node monitor. The cluster is used row after row: `repair` starts again what a row
has killed, with the name, the port and the directories that it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tests.faults import guest, network
from tests.faults.client_process import Submission, Told
from tests.faults.network import Loopback, Network
from tests.support.daemons import Daemon, clean_environment, gone, workers_of
from tests.support.waiting import wait_until

SCHEDULERS = ("scheduler-0", "scheduler-1")
NODES = ("node-0", "node-1", "node-2")
GUESTS = {"guest-0": "node-0", "guest-1": "node-1"}
"""External executors, and the node monitors that they attach to."""
CLIENT = "client"
MACHINES = {"scheduler-0": "s0", "scheduler-1": "s1", "node-0": "n0", "node-1": "n1", "node-2": "n2", CLIENT: "c"}
SLOTS = 2
"""Of each node."""
PLACES = {"python": SLOTS * len(NODES), guest.APP: len(GUESTS)}
"""Tasks of an app that run at a time."""
HEARTBEAT_S = 0.5
SUBMIT_TIMEOUT_S = 20.0
"""Of the client: longer than schedulers need to be found at new addresses, which takes 5 s and a dial."""
ANSWER_TIMEOUT_S = 5.0
DISK = "2m"
"""The file systems that are filled up: of each scheduler's audit log, and of the first node's large data."""
TOKEN = "a-secret-of-the-fault-matrix-of-32-characters-or-more"

SCHEDULER_FLAGS = ("--settling-s", "1", "--claim-timeout-s", "0.5", "--client-grace-s", "1")
NODE_FLAGS = ("--slots", str(SLOTS), "--blob-lease-s", "1", "--blob-retention-s", "1")


class Client:
    """The client's process, and what it was told."""

    def __init__(self, told: Path, schedulers: str, submit_timeout_s: float, within: list[str], log: Path) -> None:
        self.told_file = told
        command = [*within, sys.executable, "-m", "tests.faults.client_process"]
        arguments = [schedulers, str(told), str(submit_timeout_s), str(HEARTBEAT_S)]
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=clean_environment(SPARROW_TOKEN=TOKEN),
            )
        self._log = log

    def wait_until_ready(self) -> None:
        """Return once it is connected."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), f"the client did not start:\n{self._log.read_text()}"

    def submit(self, submission: Submission) -> None:
        """Have it submit a job; it does so when it runs."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(submission) + b"\n")
        self.process.stdin.flush()

    def told(self, job: str) -> list[Told]:
        """What it was told of the job so far."""
        lines = self.told_file.read_bytes().split(b"\n")[:-1] if self.told_file.exists() else []
        return [told for told in (msgspec.json.decode(line, type=Told) for line in lines) if told.job == job]

    def end(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


class Cluster:
    """See the module's docstring. Use it in a `with` block.

    `network` has the machines; `disks`: whether small file systems can be mounted.
    """

    def __init__(self, directory: Path, net: Network | Loopback, *, disks: bool) -> None:
        self.directory = directory
        self.network = net
        self.daemons: dict[str, Daemon] = {}
        self.guests: dict[str, subprocess.Popen[bytes]] = {}
        self.standing: set[str] = set()
        """Names of processes that were stopped (SIGSTOP): nobody may ask them anything."""
        self._hosts: dict[str, int] = {}
        """The process ids of the node monitors that external executors attached to."""
        self._ports: dict[str, int] = {}
        self._clients = 0
        self._client: Client | None = None
        self._submit_timeout_s = SUBMIT_TIMEOUT_S
        self._sources = directory / "schedulers"
        self._undo = contextlib.ExitStack()
        # A socket's path is short, and pytest's directories are not.
        self._sockets = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="sparrow-faults-")))
        self._undo.callback(self._end)
        try:
            if disks:
                for name in (*SCHEDULERS, NODES[0]):
                    self._undo.callback(network.mount(self.disk(name), DISK))
            for name in SCHEDULERS:
                self.start(name)
            self.repair()
        except BaseException:
            self._undo.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    # ---- processes ---------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client of now."""
        assert self._client is not None
        return self._client

    def disk(self, name: str) -> Path:
        """Where a scheduler's audit log and a node's large data lie."""
        return self.directory / f"{name}.disk"

    def pid(self, name: str) -> int:
        """The process id of a daemon, an external executor or the client."""
        return self._process(name).pid

    def alive(self, name: str) -> bool:
        """Whether it runs (or stands still)."""
        return self._process(name).poll() is None

    def _process(self, name: str) -> subprocess.Popen[bytes]:
        if name == CLIENT:
            return self.client.process
        return self.guests[name] if name in GUESTS else self.daemons[name].process

    def kill(self, name: str) -> None:
        """SIGKILL, and wait for its end."""
        process = self._process(name)
        process.kill()
        process.wait()
        self.standing.discard(name)

    def start(self, name: str, *, elsewhere: bool = False) -> None:
        """Start what is not there (any more): as it was, or elsewhere: on another port, or at another node."""
        if name == CLIENT:
            self._start_client()
        elif name in GUESTS:
            self._start_guest(name, NODES[1] if elsewhere else GUESTS[name])
        else:
            self._start_daemon(name, 0 if elsewhere else self._ports.get(name, 0))

    def _start_daemon(self, name: str, port: int) -> None:
        if name in self.daemons:
            self.daemons[name].end()
        machine = MACHINES[name]
        flags = ["--host", self.network.address(machine), "--heartbeat-s", str(HEARTBEAT_S)]
        self.disk(name).mkdir(mode=0o700, exist_ok=True)
        if name in SCHEDULERS:
            module = "scheduler"
            flags += [*SCHEDULER_FLAGS, "--audit-log", str(self.disk(name) / "audit.jsonl")]
        else:
            module = "node_monitor"
            flags += [*NODE_FLAGS, "--scheduler", self.sources, "--node-id", name]
            flags += ["--socket-dir", str(self._sockets / name), "--blob-dir", str(self.disk(name))]
            flags += ["--attach", guest.APP] if name in GUESTS.values() else []
        within = self.network.within(machine)
        log = self.directory / f"{name}.log"
        self.daemons[name] = Daemon(module, *flags, log=log, port=port, within=within, SPARROW_TOKEN=TOKEN)
        self._ports[name] = self.daemons[name].port
        if name in SCHEDULERS:
            self._write_sources()

    @property
    def sources(self) -> str:
        """Where schedulers are found."""
        return f"file:{self._sources}"

    def _write_sources(self) -> None:
        """In one step: a file that is half written names fewer schedulers."""
        names = [name for name in self.daemons if name in SCHEDULERS]
        new = self._sources.with_suffix(".new")
        new.write_text("".join(f"{self.network.address(MACHINES[name])}:{self._ports[name]}\n" for name in names))
        new.rename(self._sources)

    def _start_guest(self, name: str, node: str) -> None:
        command = [sys.executable, "-m", "tests.faults.guest", self.daemons[node].announcement["sockets"][0]]
        with (self.directory / f"{name}.log").open("ab") as log:
            self.guests[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=clean_environment())
        self._hosts[name] = self.pid(node)

    def _start_client(self) -> None:
        if self._client is not None:
            self._client.end()
        self._clients += 1
        told = self.directory / f"told-{self._clients}.jsonl"
        within = self.network.within(MACHINES[CLIENT])
        log = self.directory / "client.log"
        self._client = Client(told, self.sources, self._submit_timeout_s, within, log)
        if any(self.alive(name) for name in SCHEDULERS):
            self._client.wait_until_ready()

    def with_submit_timeout(self, seconds: float) -> None:
        """Have a client that offers its jobs for so long."""
        if seconds != self._submit_timeout_s:
            self._submit_timeout_s = seconds
            self._start_client()

    def repair(self) -> None:
        """Start again what is not there, and bring home what is elsewhere."""
        for name in (*SCHEDULERS, *NODES):
            if name not in self.daemons or not self.alive(name):
                self.start(name)
        for name, node in GUESTS.items():
            # One whose node monitor has died is about to end.
            if name in self.guests and self._hosts[name] != self.pid(node):
                self.kill(name)
            if name not in self.guests or not self.alive(name):
                self.start(name)
        if self._client is None or not self.alive(CLIENT):
            self.start(CLIENT)

    def workers(self, node: str) -> set[int]:
        """The process ids of the python workers of a node."""
        return workers_of(self.pid(node)) if self.alive(node) else set()

    def processes(self) -> set[int]:
        """The process ids of all that belongs to the cluster now."""
        return {self.pid(name) for name in (*self.daemons, *self.guests, CLIENT)}.union(*map(self.workers, NODES))

    def stop(self, names: Iterable[str]) -> None:
        """SIGSTOP."""
        for name in names:
            os.kill(self.pid(name), signal.SIGSTOP)
            self.standing.add(name)

    def go_on(self, names: Iterable[str]) -> None:
        """SIGCONT, to those that have not been killed since."""
        for name in names:
            if name in self.standing:
                os.kill(self.pid(name), signal.SIGCONT)
                self.standing.discard(name)

    # ---- what daemons say --------------------------------------------------------------------

    def serving(self, names: Iterable[str]) -> list[str]:
        """Those of the daemons that can be asked."""
        return [name for name in names if self.alive(name) and name not in self.standing]

    def ask(self, name: str, path: str) -> tuple[int, str]:
        """(status, body) of a daemon's answer, asked on its own machine; status 0 if it gives none."""
        connection = HTTPConnection(self.network.address(MACHINES[name]), self._ports[name])
        try:
            connection.sock = self.network.connect(MACHINES[name], self._ports[name], ANSWER_TIMEOUT_S)
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def ask_json(self, name: str, path: str, key: str) -> Any:
        """What a daemon's answer has under this key; None if it gives none."""
        status, body = self.ask(name, path)
        return json.loads(body)[key] if status == 200 else None

    def metric(self, name: str, metric: str) -> float | None:
        """The value of a daemon's metric; None if it does not answer."""
        status, body = self.ask(name, "/metrics")
        if status != 200:
            return None
        samples = [sample for family in text_string_to_metric_families(body) for sample in family.samples]
        return next(sample.value for sample in samples if sample.name == metric)

    def jobs(self, scheduler: str) -> set[str] | None:
        """Ids of the jobs that a scheduler has; None if it does not answer."""
        jobs = self.ask_json(scheduler, "/v1/jobs", "jobs")
        return None if jobs is None else {job["id"] for job in jobs}

    def nodes(self, scheduler: str) -> set[str] | None:
        """Ids of the node monitors that a scheduler is linked to; None if it does not answer."""
        nodes = self.ask_json(scheduler, "/v1/nodes", "nodes")
        return None if nodes is None else {node["id"] for node in nodes}

    def node(self, name: str) -> dict[str, Any] | None:
        """What a node monitor says of itself; None if it does not answer."""
        nodes = self.ask_json(name, "/v1/nodes", "nodes")
        return None if nodes is None else nodes[0]

    def schedulers_of(self, *jobs: str) -> list[str]:
        """The schedulers that have these jobs."""
        return [name for name in self.serving(SCHEDULERS) if (self.jobs(name) or set()) & set(jobs)]

    def wait_until_draining(self, name: str) -> None:
        """Return once a daemon that was sent SIGTERM says that it drains."""
        wait_until(lambda: "draining" in self.ask(name, "/readyz")[1], f"{name} to drain")

    def wait_until_gone(self, pids: Iterable[int]) -> None:
        """Return once these processes have ended."""
        for pid in pids:
            wait_until(lambda pid=pid: gone(pid), f"process {pid} to end")  # type: ignore[misc]

    def _end(self) -> None:
        self.go_on(list(self.standing))
        if self._client is not None:
            self._client.end()
        for process in self.guests.values():
            process.kill()
            process.wait()
        # Node monitors first: both ends of a link that close at once wait for each other.
        for name in reversed(self.daemons):
            self.daemons[name].end()
