"""The list of faults: what each is called, whom it hits, how it is done, and how it is undone.

A *way* does something to one process and says how that is undone. A `Kind` names a way and whom it hits (`WAYS`).
`Faults` plays a plan: each fault is inflicted when it is due and undone when it has lasted; nothing here waits. A fault
whose target is not there, or is out of order already, is left out and counted.
"""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
import psutil

from benchmarks.laboratory import clocks
from benchmarks.laboratory.cluster import Cluster
from benchmarks.laboratory.processes import send
from benchmarks.laboratory.wires import Wires

DEAD_AFTER = 1.5
"""A peer that is silent for so many heartbeats is taken for dead."""
RETRY_S = 0.05
UPGRADES_AT_ONCE = 2
"""Node monitors that are upgraded at a time; of schedulers it is one."""


class Kind(StrEnum):
    """Kinds of faults. `machine`: a node monitor with all its executors. `pair`: a scheduler and a node monitor.
    `all`: every scheduler and node monitor. `wire`: between one node monitor and one scheduler."""

    KILL_SCHEDULER = "kill-scheduler"
    KILL_NODE = "kill-node"
    KILL_WORKER = "kill-worker"
    KILL_CLIENT = "kill-client"
    KILL_PAIR = "kill-pair"
    KILL_ALL = "kill-all"
    MOVE_SCHEDULER = "move-scheduler"
    STOP_SCHEDULER = "stop-scheduler"
    STOP_NODE = "stop-node"
    STOP_MACHINE = "stop-machine"
    STOP_WORKER = "stop-worker"
    STOP_CLIENT = "stop-client"
    DRAIN_SCHEDULER = "drain-scheduler"
    DRAIN_NODE = "drain-node"
    CLOCK = "clock"
    STALL_WIRE = "stall-wire"
    DROP_WIRE = "drop-wire"
    ISOLATE_NODE = "isolate-node"
    ISOLATE_SCHEDULER = "isolate-scheduler"
    ISOLATE_CLIENT = "isolate-client"
    CORDON_NODE = "cordon-node"
    UPGRADE = "upgrade"
    SHORTAGE = "shortage"
    """Of files, memory or room on a disk."""


OF_SCHEDULERS = (
    *(Kind.KILL_SCHEDULER, Kind.STOP_SCHEDULER, Kind.DRAIN_SCHEDULER, Kind.KILL_PAIR, Kind.KILL_ALL),
    *(Kind.MOVE_SCHEDULER, Kind.ISOLATE_SCHEDULER, Kind.UPGRADE),
)
OF_NODES = (
    *(Kind.KILL_NODE, Kind.STOP_NODE, Kind.STOP_MACHINE, Kind.DRAIN_NODE, Kind.KILL_PAIR, Kind.KILL_ALL),
    *(Kind.STALL_WIRE, Kind.DROP_WIRE, Kind.ISOLATE_NODE, Kind.UPGRADE, Kind.SHORTAGE),
)
STANDSTILLS = (Kind.STOP_NODE, Kind.STOP_MACHINE, Kind.ISOLATE_NODE, Kind.STALL_WIRE)
OF_WORKERS = (Kind.KILL_WORKER, Kind.STOP_WORKER)
DEATHS = (Kind.KILL_SCHEDULER, Kind.MOVE_SCHEDULER, Kind.KILL_NODE, Kind.KILL_CLIENT)
LEAVES_FILES = (Kind.KILL_NODE, Kind.KILL_PAIR, Kind.KILL_ALL)
"""A node monitor that is killed leaves files, which go when the next starts."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that fails. lasts_s: until it is mended. back: whether what was killed is started again.

    pick: which worker or wire, from 0 to 1. by_s: of a clock, how far it jumps.
    """

    at_s: float
    kind: Kind
    targets: tuple[str, ...]
    lasts_s: float = 0.0
    back: bool = True
    pick: float = 0.0
    by_s: float = 0.0


class Happened(msgspec.Struct, frozen=True):
    """A fault that was inflicted, or its mending. at_ns: CLOCK_MONOTONIC."""

    at_ns: int
    kind: Kind
    target: str
    mended: bool = False
    detail: str = ""


def happened(kind: Kind, target: str, *, mended: bool = False, detail: str = "") -> Happened:
    """Now."""
    return Happened(time.monotonic_ns(), kind, target, mended, detail)


# ---- ways: what is done to a process; each returns how that is undone ------------------------

Undo = Callable[[], None]


class NobodyMet(Exception):
    """There is nothing that the fault could hit."""


def kill(cluster: Cluster, name: str, *, elsewhere: bool = False) -> Undo:
    """Undone by starting it again, where it was or elsewhere: on another port."""
    cluster.kill(name)
    return partial(cluster.launch, name, elsewhere=elsewhere)


def stop(cluster: Cluster, name: str) -> Undo:
    """The process alone stands still; its executors go on."""
    cluster.stop([name])
    return partial(cluster.go_on, [name])


def stop_machine(cluster: Cluster, name: str) -> Undo:
    """The process and all that it has started stand still."""
    children = [child.pid for child in cluster.processes[name].children()]
    undo = stop(cluster, name)
    undo_children = stop_pids(children)

    def go_on() -> None:
        undo_children()
        undo()

    return go_on


def stop_pids(pids: Sequence[int]) -> Undo:
    """These processes stand still."""
    for pid in pids:
        send(pid, signal.SIGSTOP)

    def go_on() -> None:
        for pid in reversed(pids):
            send(pid, signal.SIGCONT)

    return go_on


def cut(cluster: Cluster, name: str, peer: str = "") -> Undo:
    """It and all others, or this peer, do not reach each other, and are not told. Needs a network that can be cut."""
    cluster.network.cut(name, peer)
    return partial(cluster.network.heal, name, peer)


def cordon(cluster: Cluster, name: str) -> Undo:
    """A node monitor takes nothing new."""
    cluster.ask(name, "/v1/nodes/state", {"state": "cordoned"})

    def uncordon() -> None:
        cluster.ask(name, "/v1/nodes/state", {"state": "ready"})

    return uncordon


def fill(path: Path) -> Undo:
    """No byte is left on the disk of this file, which is new. Needs a small file system."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path.unlink


def take_files(pid: int) -> Undo:
    """The process can open no file or socket any more. Needs Linux."""
    process = psutil.Process(pid)
    limit = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (_lowest_free_descriptor(pid), limit[1]))

    def give_back() -> None:
        with suppress(psutil.NoSuchProcess):
            process.rlimit(psutil.RLIMIT_NOFILE, limit)

    return give_back


def _lowest_free_descriptor(pid: int) -> int:
    """What the process would be given next: the kernel hands out the lowest that is free."""
    taken = {int(path.name) for path in Path("/proc", str(pid), "fd").iterdir()}
    return next(number for number in range(len(taken) + 1) if number not in taken)


# ---- kinds -----------------------------------------------------------------------------------

Way = Callable[[Cluster, Fault, str], tuple[Undo | None, str]]
"""Does it to this target; how it is undone, if it is, and what is to be said of it."""


def _kill(cluster: Cluster, fault: Fault, target: str) -> tuple[Undo | None, str]:
    undo = kill(cluster, target, elsewhere=fault.kind is Kind.MOVE_SCHEDULER)
    return undo if fault.back else None, ""


def _drain(cluster: Cluster, fault: Fault, target: str) -> tuple[Undo | None, str]:
    """It is started again when it has ended: see `Faults`."""
    cluster.processes[target].signal(signal.SIGTERM)
    return None, ""


def _clock(cluster: Cluster, fault: Fault, target: str) -> tuple[Undo | None, str]:
    clocks.jump(cluster.clock(target), fault.by_s)
    return None, f"{fault.by_s:+g} s"


def _worker(cluster: Cluster, fault: Fault, target: str) -> tuple[Undo | None, str]:
    """One of the processes that the node monitor has started."""
    workers = cluster.processes[target].children()
    if not workers:
        raise NobodyMet
    worker = workers[int(fault.pick * len(workers))]
    detail = f"{worker.pid} {_command_of(worker)}"
    if fault.kind is Kind.STOP_WORKER:
        return stop_pids([worker.pid]), detail
    send(worker.pid, signal.SIGKILL)
    return None, detail


def _wire(cluster: Cluster, fault: Fault, target: str) -> tuple[Undo | None, str]:
    scheduler = cluster.schedulers[int(fault.pick * len(cluster.schedulers))]
    if fault.kind is Kind.STALL_WIRE:
        return cut(cluster, target, scheduler), scheduler
    assert isinstance(cluster.network, Wires)
    cluster.network.reset(target, scheduler)
    return None, scheduler


def _command_of(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()[1:4])
    return ""


def _of(way: Callable[[Cluster, str], Undo]) -> Way:
    return lambda cluster, fault, target: (way(cluster, target), "")


WAYS: dict[Kind, Way] = {
    **dict.fromkeys((Kind.KILL_SCHEDULER, Kind.KILL_NODE, Kind.KILL_CLIENT, Kind.KILL_PAIR, Kind.KILL_ALL), _kill),
    Kind.MOVE_SCHEDULER: _kill,
    **dict.fromkeys((Kind.KILL_WORKER, Kind.STOP_WORKER), _worker),
    **dict.fromkeys((Kind.STOP_SCHEDULER, Kind.STOP_NODE, Kind.STOP_CLIENT), _of(stop)),
    Kind.STOP_MACHINE: _of(stop_machine),
    **dict.fromkeys((Kind.DRAIN_SCHEDULER, Kind.DRAIN_NODE, Kind.UPGRADE), _drain),
    Kind.CLOCK: _clock,
    **dict.fromkeys((Kind.STALL_WIRE, Kind.DROP_WIRE), _wire),
    **dict.fromkeys((Kind.ISOLATE_NODE, Kind.ISOLATE_SCHEDULER, Kind.ISOLATE_CLIENT), _of(cut)),
    Kind.CORDON_NODE: _of(cordon),
}


# ---- a plan's faults as they come ------------------------------------------------------------


class Faults:
    """Of a cluster. `happened` is what was done.

    alone: only one scheduler at a time is out of order; a fault of another waits. veterans: who does not die any more
    after an upgrade (programs, which are not upgraded: never).
    """

    def __init__(
        self, cluster: Cluster, faults: Iterable[Fault], *, alone: bool = False, veterans: Collection[str] = ()
    ) -> None:
        self.happened: list[Happened] = []
        self.skipped = 0
        """Faults that met nobody."""
        self.troubles: list[str] = []
        self._cluster = cluster
        self._alone = alone
        self._veterans = veterans
        self._spared = {name for name in veterans if name in cluster.programs}
        self._order = itertools.count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._out: Counter[str] = Counter()
        """Who is out of order now: how many faults each has."""
        self._draining: dict[str, Fault] = {}
        """Daemons that are to be started again when they have ended."""
        for fault in faults:
            self._at(cluster.began_ns + int(fault.at_s * 1e9), partial(self._inflict, fault))

    @property
    def over(self) -> bool:
        """Whether all have come and are mended."""
        return not self._due and not self._draining

    @property
    def counts(self) -> Counter[str]:
        """How often each kind happened."""
        return Counter(one.kind.value for one in self.happened if not one.mended)

    def step(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= time.monotonic_ns():
            heapq.heappop(self._due)[2]()
        for name in [name for name in self._draining if not self._cluster.runs(name)]:
            self._come_back(self._draining.pop(name), name)

    def _come_back(self, fault: Fault, name: str) -> None:
        """After a drain."""
        if fault.kind is Kind.UPGRADE:
            if code := self._cluster.processes[name].code:
                self.troubles.append(f"{name} ended with code {code} when it was drained")
            if name in self._veterans:
                self._spared.add(name)
        self._cluster.launch(name)
        self._mended(fault, name)

    def _at(self, at_ns: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_ns, next(self._order), action))

    def _inflict(self, fault: Fault) -> None:
        for target in fault.targets:
            if self._has_to_wait(fault, target):
                one = msgspec.structs.replace(fault, targets=(target,))
                self._at(time.monotonic_ns() + int(RETRY_S * 1e9), partial(self._inflict, one))
            elif self._meets(fault, target):
                self._hit(fault, target)
            else:
                self.skipped += 1

    def _has_to_wait(self, fault: Fault, target: str) -> bool:
        scheduler = target in self._cluster.schedulers
        if fault.kind is Kind.UPGRADE:
            at_once, others = (1, self._cluster.schedulers) if scheduler else (UPGRADES_AT_ONCE, self._cluster.nodes)
            full = sum(name in others for name in self._draining) >= at_once
            if full or self._out[target] or not self._cluster.ready(target):
                return True
        return self._alone and scheduler and any(map(self._is_out, self._cluster.schedulers))

    def _is_out(self, name: str) -> bool:
        """Whether it is out of order, or has yet to work again."""
        return self._out[name] > 0 or (self._cluster.runs(name) and not self._cluster.ready(name))

    def _meets(self, fault: Fault, target: str) -> bool:
        """Whether the target is there, and is not to be spared."""
        spared = fault.kind in DEATHS and target in self._spared
        return self._cluster.runs(target) and target not in self._draining and not spared

    def _hit(self, fault: Fault, target: str) -> None:
        before = happened(fault.kind, target)  # What comes of it may be seen at once.
        try:
            undo, detail = WAYS[fault.kind](self._cluster, fault, target)
        except NobodyMet:
            self.skipped += 1
            return
        self.happened.append(msgspec.structs.replace(before, detail=detail))
        if WAYS[fault.kind] is _drain:
            self._out[target] += 1
            self._draining[target] = fault
        elif undo is not None:
            self._out[target] += 1
            until_ns = before.at_ns + int(fault.lasts_s * 1e9)
            self._at(until_ns, partial(self._undo, fault, target, undo))

    def _undo(self, fault: Fault, target: str, undo: Undo) -> None:
        undo()
        self._mended(fault, target)

    def _mended(self, fault: Fault, target: str) -> None:
        self._out[target] -= 1
        self.happened.append(happened(fault.kind, target, mended=True))
