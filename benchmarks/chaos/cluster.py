"""The daemons and clients of a round."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import node_monitor.__main__
import node_monitor.daemon
import scheduler.__main__
import scheduler.daemon
from benchmarks.chaos import clocks, plan
from benchmarks.chaos.client import User
from benchmarks.chaos.plan import GPUS, Plan, zone_of
from benchmarks.chaos.processes import Process
from benchmarks.soak import checks

# Imported before daemons are forked, rather than by each.
PRELOADED = (node_monitor.daemon, scheduler.daemon)

ANSWER_TIMEOUT_S = 5.0
LINKED_WITHIN_S = 30.0
POLL_S = 0.02
DRAIN_TIMEOUT_S = 5.0
BLOB_LEASE_S = 5.0
BLOB_RETENTION_S = 5.0
KEPT = ("sparrow_node_monitor_blobs",)
"""Large data goes when its time is over, which a round does not wait for."""
SCHEDULER_FLAGS = (
    *("--settling-s", "0.5", "--claim-timeout-s", "0.5", "--client-grace-s", "0.7"),
    *("--drain-timeout-s", str(DRAIN_TIMEOUT_S)),
)
NODE_FLAGS = (
    *("--drain-timeout-s", str(DRAIN_TIMEOUT_S), "--enable-command"),
    *("--resource", f"gpu={GPUS}", "--blob-lease-s", str(BLOB_LEASE_S), "--blob-retention-s", str(BLOB_RETENTION_S)),
)


class Cluster:
    """All of a round's processes, by name. `directory` has to have a short path, as sockets are in it."""

    def __init__(self, round_: Plan, directory: Path) -> None:
        self.plan = round_
        self.directory = directory
        self.processes: dict[str, Process] = {}
        self.lives: dict[str, int] = {}
        """How many processes each has been before the present one."""
        self._ports: dict[str, int] = {}
        self.schedulers = [plan.scheduler(number) for number in range(round_.schedulers)]
        self.nodes = [plan.node(number) for number in range(len(round_.slots))]
        self.users = list(round_.users)
        self.began_ns = 0
        for name in ("logs", "tmp", "runs", "told", "cwd", "clocks"):
            (directory / name).mkdir(parents=True)
        for name in (*self.schedulers, *self.nodes, *self.users):
            clocks.new(self.clock(name))

    @property
    def daemons(self) -> list[str]:
        """Schedulers and node monitors."""
        return [*self.schedulers, *self.nodes]

    def clock(self, name: str) -> Path:
        """The file of a process's clock."""
        return self.directory / "clocks" / name

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """All daemons, linked."""
        for names in (self.schedulers, self.nodes):
            for name in names:
                self.launch(name)
            for name in names:
                address = self.processes[name].announcement()["address"]
                self._ports[name] = int(address.rpartition(":")[2])
        deadline_s = time.monotonic() + LINKED_WITHIN_S
        while any(len(self.get(name, "/v1/nodes", "nodes") or ()) < len(self.nodes) for name in self.schedulers):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"node monitors are not linked after {LINKED_WITHIN_S:g} s")
            time.sleep(POLL_S)

    def start_clients(self) -> None:
        """The users' programs; the round begins."""
        self.began_ns = time.monotonic_ns()
        for name in self.users:
            self.launch(name)

    def launch(self, name: str) -> None:
        """Start a process, or start it again: a daemon with the port that it had."""
        life = self.lives[name] = self.lives.get(name, -1) + 1
        cwd = self.directory / "cwd" / f"{name}+{life}"
        cwd.mkdir()
        log = self.directory / "logs" / f"{name}.log"
        self.processes[name] = Process(self._main(name, life), log=log, cwd=cwd, environment=self._environment(name))

    def _environment(self, name: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARROW_")}
        path = dict.fromkeys([str(clocks.HOOK), *(str(Path(entry or ".").absolute()) for entry in sys.path)])
        own = {"TMPDIR": str(self.directory / "tmp"), clocks.VARIABLE: str(self.clock(name))}
        return kept | own | {"PYTHONPATH": os.pathsep.join(path)}

    def _main(self, name: str, life: int) -> Callable[[], object]:
        if name in self.users:
            return User(self.plan, name, life, self.directory, self.addresses, self.began_ns).run
        own = ["--port", str(self._ports.get(name, 0)), "--exit-on-stdin-eof"]
        own += ["--heartbeat-s", str(self.plan.heartbeat_s)]
        if name in self.schedulers:
            weights = [f"--user-weight={user}={weight}" for user, weight in self.plan.users.items()]
            first = [f"--user-priority={self.plan.first}=10"] if self.plan.first else []
            flags = [*own, *SCHEDULER_FLAGS, "--placement", self.plan.placement, *weights, *first]
            return partial(scheduler.__main__.main, flags)
        slots = self.plan.slots[self.nodes.index(name)]
        flags = [*own, *NODE_FLAGS, "--node-id", name, "--slots", str(slots), "--queue", self.plan.queue]
        flags += ["--scheduler", ",".join(self.addresses), "--attr", f"zone={zone_of(name)}"]
        return partial(node_monitor.__main__.main, flags)

    @property
    def addresses(self) -> list[str]:
        """Of the schedulers."""
        return [self.address(name) for name in self.schedulers]

    def address(self, name: str) -> str:
        """Of a daemon."""
        return f"127.0.0.1:{self._ports[name]}"

    def runs(self, name: str) -> bool:
        """Whether the process has not ended."""
        return name in self.processes and self.processes[name].runs

    # ---- what daemons say --------------------------------------------------------------------

    def ask(self, name: str, path: str) -> str | None:
        """The body of a daemon's answer; None if it gives none."""
        connection = HTTPConnection(self.address(name), timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
            return body if response.status == 200 else None
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    def get(self, name: str, path: str, key: str) -> Any:
        """What a daemon's JSON has under this key; None if it gives none."""
        body = self.ask(name, path)
        return None if body is None else json.loads(body)[key]

    def left(self) -> Iterator[str]:
        """What daemons have that they should not have when nothing is to do."""
        for name in filter(self.runs, self.daemons):
            metrics, nodes = self.ask(name, "/metrics"), self.get(name, "/v1/nodes", "nodes")
            jobs = self.get(name, "/v1/jobs", "jobs") if name in self.schedulers else []
            if metrics is None or nodes is None or jobs is None:
                yield f"{name} does not answer"
            elif name in self.schedulers:
                yield from checks.left_at_scheduler(name, metrics, jobs, nodes)
            else:
                yield from checks.left_at_node(name, metrics, nodes, None, KEPT)

    # ---- the end -----------------------------------------------------------------------------

    def drain(self, timeout_s: float) -> Iterator[str]:
        """SIGTERM to node monitors, then to schedulers; what did not end as it should."""
        for names in (self.nodes, self.schedulers):
            running = [name for name in names if self.runs(name)]
            for name in running:
                self.processes[name].signal(signal.SIGTERM)
            deadline_s = time.monotonic() + timeout_s
            for name in running:
                while self.runs(name) and time.monotonic() < deadline_s:
                    time.sleep(POLL_S)
                if self.runs(name):
                    yield f"{name} has not ended {timeout_s:g} s after SIGTERM"
                elif self.processes[name].code:
                    yield f"{name} ended with code {self.processes[name].code} after SIGTERM"

    def destroy(self) -> None:
        """End whatever is left, whether it runs or stands still."""
        for process in self.processes.values():
            for child in process.children():
                with contextlib.suppress(Exception):
                    child.kill()
            process.kill()
