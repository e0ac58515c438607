"""The cluster that is broken: schedulers, node monitors, users' programs and executors started by hand, by name.

Each finds the schedulers in a file of its own, which is written anew when one of them moves. What is started again has
the name, the port and the flags that it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.laboratory import clocks, program
from benchmarks.laboratory.names import node, scheduler
from benchmarks.laboratory.network import Network
from benchmarks.laboratory.processes import Process, clean_environment, python
from benchmarks.laboratory.program import Order

LINKED_WITHIN_S = 60.0
POLL_S = 0.02
STARTS_AT_ONCE = 8
"""Interpreters that start at the same time get in each other's way."""
SHOWN_MAX = 5
CLIENTS_GAUGE = "sparrow_scheduler_clients"
SCHEDULER_GAUGES = ("sparrow_scheduler_jobs", "sparrow_scheduler_unplaced_tasks", CLIENTS_GAUGE)
BLOBS_GAUGE = "sparrow_node_monitor_blobs"
NODE_GAUGES = ("sparrow_node_monitor_queued_reservations", BLOBS_GAUGE)

Commands = Mapping[str, Callable[[], Sequence[str]]]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster consists of. slots: of each node monitor. programs: of users, what each is to do.

    scheduler_flags, node_flags: of all of them; flags: of one process, besides.
    """

    schedulers: int
    slots: tuple[int, ...]
    heartbeat_s: float
    programs: dict[str, Order] = {}
    scheduler_flags: tuple[str, ...] = ()
    node_flags: tuple[str, ...] = ()
    flags: dict[str, tuple[str, ...]] = {}


class Cluster:
    """All processes of a shape, and of what is run besides (`commands`). forked: whether they are forked from this one.

    `directory` has what they write down, their logs and clocks; `tmp` is their temporary directory.
    """

    def __init__(
        self,
        shape: Shape,
        directory: Path,
        network: Network,
        *,
        forked: bool = False,
        commands: Commands | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.shape = shape
        self.directory = directory
        self.network = network
        self.tmp = Path(tempfile.mkdtemp(prefix="laboratory-"))  # With a short path, as sockets are in it.
        self.processes: dict[str, Process] = {}
        self.lives: dict[str, int] = {}
        """How many processes each has been before the present one."""
        self.standing: set[str] = set()
        """Those that were stopped (SIGSTOP): nobody may ask them anything."""
        self.schedulers = [scheduler(number) for number in range(shape.schedulers)]
        self.nodes = [node(number) for number in range(len(shape.slots))]
        self.programs = list(shape.programs)
        self.began_ns = 0
        """When the programs were started first."""
        self._forked = forked
        self._commands = dict(commands or {})
        self._more = dict(environment or {})
        self._ports: dict[str, int] = {}
        self._moved: set[str] = set()
        """Daemons that were started elsewhere, and have not said where."""
        for name in ("logs", "runs", "told", "cwd", "clocks", "addresses", "orders"):
            (directory / name).mkdir(parents=True)
        for name in (*self.daemons, *self.programs):
            clocks.new(self.clock(name))

    @property
    def daemons(self) -> list[str]:
        """Schedulers and node monitors."""
        return [*self.schedulers, *self.nodes]

    @property
    def names(self) -> list[str]:
        """All processes."""
        return [*self.daemons, *self._commands, *self.programs]

    def clock(self, name: str) -> Path:
        """The file of a process's clock."""
        return self.directory / "clocks" / name

    def sources(self, peer: str) -> str:
        """Where a process finds the schedulers."""
        return f"file:{self.directory / 'addresses' / peer}"

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """All daemons, linked."""
        for names in (self.schedulers, self.nodes):
            for first in range(0, len(names), STARTS_AT_ONCE):
                some = names[first : first + STARTS_AT_ONCE]
                for name in some:
                    self._launch(name)
                for name in some:
                    self._announced(name)
            if names is self.schedulers:
                self._tell_addresses()
        deadline_s = time.monotonic() + LINKED_WITHIN_S
        while any(len(self.ask_json(name, "/v1/nodes", "nodes") or ()) < len(self.nodes) for name in self.schedulers):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"node monitors are not linked after {LINKED_WITHIN_S:g} s")
            time.sleep(POLL_S)

    def start_programs(self) -> None:
        """The users' programs; the load begins."""
        self.began_ns = time.monotonic_ns()
        for name in self.programs:
            self._launch(name)

    def launch(self, name: str, *, elsewhere: bool = False) -> None:
        """Start a process again: a daemon with the port that it had, or with another (elsewhere; see `settle`)."""
        if elsewhere:
            del self._ports[name]
            self._moved.add(name)
        self._launch(name)

    def settle(self) -> None:
        """Tell all where those are that have moved and work by now."""
        for name in [name for name in self._moved if self.ready(name)]:
            self._moved.discard(name)
            self._announced(name)
            self._tell_addresses()

    def ready(self, name: str) -> bool:
        """Whether a process runs, and has said that it works."""
        return self.runs(name) and self.processes[name].announced()

    def _launch(self, name: str) -> None:
        life = self.lives[name] = self.lives.get(name, -1) + 1
        cwd = self.directory / "cwd" / f"{name}+{life}"
        cwd.mkdir()
        log = self.directory / "logs" / f"{name}.log"
        work = self._work(name, life)
        self.processes[name] = Process(work, log=log, cwd=cwd, environment=self._environment(name))
        self.standing.discard(name)

    def _announced(self, name: str) -> None:
        address = self.processes[name].announcement()["address"]
        self._ports[name] = int(address.rpartition(":")[2])

    def _environment(self, name: str) -> dict[str, str]:
        own = {"TMPDIR": str(self.tmp), "MALLOC_ARENA_MAX": "1"}
        environment = clean_environment(**own, **self._more)
        if name not in self._commands:
            environment[clocks.VARIABLE] = str(self.clock(name))
            environment["PYTHONPATH"] = os.pathsep.join([str(clocks.HOOK), environment["PYTHONPATH"]])
        return environment

    def _work(self, name: str, life: int) -> Sequence[str] | Callable[[], object]:
        if name in self._commands:
            return self._commands[name]()
        if name in self.programs:
            order = msgspec.structs.replace(
                self.shape.programs[name], program=name, life=life, directory=str(self.directory),
                schedulers=self.sources(name), began_ns=self.began_ns, heartbeat_s=self.shape.heartbeat_s,
            )  # fmt: skip
            if self._forked:
                return partial(program.run, order)
            path = self.directory / "orders" / f"{name}.{life}"
            path.write_bytes(msgspec.json.encode(order))
            return [*self.network.within(name), *python("benchmarks.laboratory.program", str(path))]
        module, flags = self._flags(name)
        if self._forked:
            return partial(_main_of(module), flags)
        return [*self.network.within(name), *python(module, *flags)]

    def _flags(self, name: str) -> tuple[str, list[str]]:
        own = ["--host", self.network.address(name), "--port", str(self._ports.get(name, 0)), "--exit-on-stdin-eof"]
        own += ["--heartbeat-s", str(self.shape.heartbeat_s), *self.shape.flags.get(name, ())]
        if name in self.schedulers:
            return "scheduler", [*own, *self.shape.scheduler_flags]
        slots = self.shape.slots[self.nodes.index(name)]
        own += ["--node-id", name, "--slots", str(slots), "--scheduler", self.sources(name)]
        return "node_monitor", [*own, *self.shape.node_flags]

    def _tell_addresses(self) -> None:
        """Write down for each peer where the schedulers are, in one step: a file that is half written names fewer."""
        addresses = {name: self.address(name) for name in self.schedulers if name in self._ports}
        for peer in (*self.nodes, *self.programs):
            path = self.directory / "addresses" / peer
            new = path.with_suffix(".new")
            new.write_text("".join(f"{address}\n" for address in self.network.ways(peer, addresses)))
            new.rename(path)

    def address(self, name: str) -> str:
        """Of a daemon."""
        return f"{self.network.address(name)}:{self._ports[name]}"

    def runs(self, name: str) -> bool:
        """Whether the process has not ended."""
        return name in self.processes and self.processes[name].runs

    def kill(self, name: str) -> None:
        """SIGKILL, and wait for its end."""
        self.processes[name].kill()
        self.standing.discard(name)

    def stop(self, names: Iterable[str]) -> None:
        """SIGSTOP."""
        for name in names:
            self.processes[name].signal(signal.SIGSTOP)
            self.standing.add(name)

    def go_on(self, names: Iterable[str]) -> None:
        """SIGCONT, to those that have not been killed since."""
        for name in names:
            if name in self.standing:
                self.processes[name].signal(signal.SIGCONT)
                self.standing.discard(name)

    # ---- what daemons say --------------------------------------------------------------------

    def serving(self, names: Iterable[str]) -> list[str]:
        """Those of the daemons that can be asked."""
        return [name for name in names if self.runs(name) and name not in self.standing]

    def ask(self, name: str, path: str, body: Any = None) -> tuple[int, str]:
        """(status, body) of a daemon's answer, asked on its own machine; status 0 if it gives none."""
        if name not in self._ports:
            return 0, "it has yet to say where it is"
        token = self._more.get("SPARROW_TOKEN", "")
        return self.network.ask(name, self._ports[name], path, body, token=token)

    def ask_json(self, name: str, path: str, key: str) -> Any:
        """What a daemon's answer has under this key; None if it gives none."""
        status, body = self.ask(name, path)
        return json.loads(body)[key] if status == 200 else None

    def metric(self, name: str, metric: str) -> float | None:
        """The value of a daemon's metric; None if it does not answer."""
        status, body = self.ask(name, "/metrics")
        return gauges(body).get(metric) if status == 200 else None

    def left(self, *, all_linked: bool = False, ignored: Collection[str] = ()) -> Iterator[str]:
        """What daemons have that they should not have when nothing is to do, or lack.

        all_linked: each node monitor has to be linked to each scheduler. ignored: gauges that may be what they are.
        """
        schedulers = [name for name in self.schedulers if self.runs(name)]
        for name in filter(self.runs, self.daemons):
            (status, metrics), nodes = self.ask(name, "/metrics"), self.ask_json(name, "/v1/nodes", "nodes")
            jobs = self.ask_json(name, "/v1/jobs", "jobs") if name in self.schedulers else []
            if status != 200 or nodes is None or jobs is None:
                yield f"{name} does not answer"
            elif name in self.nodes:
                yield from left_at_node(name, metrics, nodes, len(schedulers) if all_linked else None, ignored)
            else:
                yield from left_at_scheduler(name, metrics, jobs, nodes, ignored)
                missing = sum(map(self.runs, self.nodes)) - len(nodes)
                if all_linked and missing:
                    yield f"{name}: {missing} node monitors are not linked"

    # ---- the end -----------------------------------------------------------------------------

    def drain(self, timeout_s: float) -> Iterator[str]:
        """SIGTERM to node monitors, then to schedulers; what did not end as it should."""
        for names in (self.nodes, self.schedulers):
            running = [name for name in names if self.runs(name)]
            for name in running:
                self.processes[name].signal(signal.SIGTERM)
            deadline_s = time.monotonic() + timeout_s
            for name in running:
                if not self.processes[name].wait(max(0.0, deadline_s - time.monotonic())):
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


def _main_of(module: str) -> Callable[[list[str]], object]:
    """Imported before daemons are forked, rather than by each."""
    import_module(f"{module}.daemon")
    main: Callable[[list[str]], object] = import_module(f"{module}.__main__").main
    return main


# ---- what is left ----------------------------------------------------------------------------


def gauges(metrics: str) -> dict[str, float]:
    """The values without labels of a page of metrics."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", metrics, re.M)}


def left_at_scheduler(
    name: str, metrics: str, jobs: Sequence[Any], nodes: Sequence[dict[str, Any]], ignored: Collection[str] = ()
) -> list[str]:
    """What a scheduler has that it should not have when nothing is to do. ignored: gauges that may be what they are."""
    left = _gauges_left(name, metrics, SCHEDULER_GAUGES, ignored)
    if jobs:
        left.append(f"{name}: {len(jobs)} jobs: {jobs[:SHOWN_MAX]}")
    for one in nodes:
        if one["busy"] or one["reservations"]:
            left.append(f"{name}: {one['busy']} busy and {one['reservations']} reservations at {one['id']}")
    return left


def left_at_node(
    name: str, metrics: str, nodes: Sequence[dict[str, Any]], schedulers: int | None, ignored: Collection[str] = ()
) -> list[str]:
    """What a node monitor has that it should not have when nothing is to do, or lacks.

    schedulers: to how many it must be linked; None: to any number. ignored: gauges that may be what they are.
    """
    left = _gauges_left(name, metrics, NODE_GAUGES, ignored)
    for one in nodes:
        if one["free_slots"] != one["slots"]:
            left.append(f"{name}: {one['free_slots']} of {one['slots']} slots are free")
        if one["queued_by_user"]:
            left.append(f"{name}: reservations of {one['queued_by_user']}")
        if schedulers is not None and len(one["schedulers"]) != schedulers:
            left.append(f"{name}: linked to {len(one['schedulers'])} of {schedulers} schedulers")
    return left


def _gauges_left(name: str, metrics: str, known: Iterable[str], ignored: Collection[str]) -> list[str]:
    values = gauges(metrics)
    return [f"{name}: {gauge} is {values[gauge]:g}" for gauge in known if values[gauge] and gauge not in ignored]


def tracebacks(log: Path) -> list[str]:
    """The last lines of the tracebacks in a daemon's log: a daemon does not raise what it does not handle."""
    found, within = [], False
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("Traceback "):
            within = True
        elif within and line and not line[0].isspace():
            found.append(f"{log.stem}: {line}")
            within = False
    return found
