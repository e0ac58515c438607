"""The faults of a plan as they come: each is inflicted when it is due, and mended when it has lasted.

A fault whose target is not there, as another has ended it, is left out. Nothing here waits: the player calls `step`.
"""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psutil

from benchmarks.chaos import clocks
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.evidence import Happened, happened
from benchmarks.chaos.plan import Fault, Kind


class Faults:
    """Of a round. `happened` is what was done."""

    def __init__(self, cluster: Cluster) -> None:
        self.happened: list[Happened] = []
        self.skipped = 0
        """Faults that met nobody."""
        self._cluster = cluster
        self._order = itertools.count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._draining: set[str] = set()
        """Daemons that are to be started again when they have ended."""
        for fault in cluster.plan.faults:
            self._at(fault.at_s, partial(self._inflict, fault))

    @property
    def over(self) -> bool:
        """Whether all have come and are mended."""
        return not self._due and not self._draining

    def step(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= time.monotonic_ns():
            heapq.heappop(self._due)[2]()
        for name in [name for name in self._draining if not self._cluster.runs(name)]:
            self._draining.discard(name)
            self._cluster.launch(name)

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self._cluster.began_ns + int(at_s * 1e9), next(self._order), action))

    def _inflict(self, fault: Fault) -> None:
        for target in fault.targets:
            if not self._cluster.runs(target) or target in self._draining:
                self.skipped += 1
            else:
                _INFLICT[fault.kind](self, fault, target)

    def _then(self, fault: Fault, target: str, mend: Callable[[], None]) -> None:
        def mended() -> None:
            mend()
            self.happened.append(happened(fault.kind, target, mended=True))

        self._at(fault.at_s + fault.lasts_s, mended)

    # ---- kinds -------------------------------------------------------------------------------

    def _clock(self, fault: Fault, target: str) -> None:
        clocks.jump(self._cluster.clock(target), fault.by_s)
        self.happened.append(happened(fault.kind, target, detail=f"{fault.by_s:+g} s"))

    def _kill(self, fault: Fault, target: str) -> None:
        self.happened.append(happened(fault.kind, target))  # First: what comes of it may be seen at once.
        self._cluster.processes[target].kill()
        if fault.back:
            self._then(fault, target, partial(self._cluster.launch, target))

    def _drain(self, fault: Fault, target: str) -> None:
        self.happened.append(happened(fault.kind, target))
        self._cluster.processes[target].signal(signal.SIGTERM)
        self._draining.add(target)

    def _stop(self, fault: Fault, target: str) -> None:
        """The process alone; its executors go on."""
        self._stand_still(fault, target, [self._cluster.processes[target].pid])

    def _stop_machine(self, fault: Fault, target: str) -> None:
        process = self._cluster.processes[target]
        self._stand_still(fault, target, [process.pid, *(child.pid for child in process.children())])

    def _stand_still(self, fault: Fault, target: str, pids: list[int]) -> None:
        self.happened.append(happened(fault.kind, target))
        for pid in pids:
            _signal(pid, signal.SIGSTOP)

        def go_on() -> None:
            for pid in reversed(pids):
                _signal(pid, signal.SIGCONT)

        self._then(fault, target, go_on)

    def _worker(self, fault: Fault, target: str) -> None:
        """One of the processes that the node monitor has started."""
        workers = self._cluster.processes[target].children()
        if not workers:
            self.skipped += 1
            return
        worker = workers[int(fault.pick * len(workers))]
        detail = f"{worker.pid} {_command_of(worker)}"
        if fault.kind is Kind.STOP_WORKER:
            self._stand_still(fault, target, [worker.pid])
        else:
            self.happened.append(happened(fault.kind, target, detail=detail))
            _signal(worker.pid, signal.SIGKILL)


def _command_of(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()[1:4])
    return ""


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


_INFLICT: dict[Kind, Callable[[Faults, Fault, str], None]] = {
    Kind.KILL_SCHEDULER: Faults._kill,
    Kind.KILL_NODE: Faults._kill,
    Kind.KILL_PAIR: Faults._kill,
    Kind.KILL_ALL: Faults._kill,
    Kind.KILL_CLIENT: Faults._kill,
    Kind.KILL_WORKER: Faults._worker,
    Kind.STOP_SCHEDULER: Faults._stop,
    Kind.STOP_NODE: Faults._stop,
    Kind.STOP_CLIENT: Faults._stop,
    Kind.STOP_MACHINE: Faults._stop_machine,
    Kind.STOP_WORKER: Faults._worker,
    Kind.DRAIN_SCHEDULER: Faults._drain,
    Kind.DRAIN_NODE: Faults._drain,
    Kind.CLOCK: Faults._clock,
}
