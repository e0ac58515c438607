"""What all processes of a simulated cluster share: time, a network, chance, options, and what is recorded of them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from simulator.engine import Engine
from simulator.soak.clocks import HostClock
from simulator.soak.job_log import JobLog, Start
from simulator.soak.links import FallibleNetwork, Link, Side
from sparrow_py.job import BlobRef

START_S = 1000.0
"""When a world begins."""


class Surroundings(ABC):
    """See `World` for the arguments."""

    def __init__(
        self,
        seed: int,
        *,
        latency: tuple[float, float],
        split: bool,
        checks: bool,
        results_differ: bool,
        executor_start_s: float,
        executor_start_fails: float,
        warm: Iterable[str],
        submit_timeout_s: float,
        frame_bytes_max: int,
        heartbeat_s: float,
        receipts: bool,
        clock: Callable[[], HostClock],
        scheduler: dict[str, Any],
        node: dict[str, Any],
        resources: dict[str, float],
        racks: Sequence[str],
        waiting_share: float,
        nested_share: float,
    ) -> None:
        self.resources = resources
        self.rng = random.Random(seed)
        self.engine = Engine(START_S)
        self.network = FallibleNetwork(self.engine, latency, self.rng, split)
        self.split = split
        self.checks = checks
        self.results_differ = results_differ
        self.executor_start_s = executor_start_s
        self.executor_start_fails = executor_start_fails
        self.warm = list(warm)
        self.submit_timeout_s = submit_timeout_s
        self.frame_bytes_max = frame_bytes_max
        self.heartbeat_s = heartbeat_s
        self.receipts = receipts
        self.clock = clock
        self.racks = racks
        """Of the nodes, in turn; empty for one that has none."""
        self.waiting_share = waiting_share
        self.waiting_rng = random.Random(f"{seed} who waits")
        """Of its own, so that what else a seed means is the same with and without such tasks."""
        self.nested_share = nested_share
        self.nested_rng = random.Random(f"{seed} who submits tasks of its own")
        """Of its own for the same reason."""
        self.scheduler_options = SchedulerOptions(**{"history_len_max": 400, **scheduler})
        self.node_options = NodeMonitorOptions(**{"history_len_max": 400, "idle_workers_max": 1, **node})
        self.sent: list[tuple[str, str, Any]] = []
        """All messages between schedulers and their peers, in the order of sending: (from, to, message)."""
        self.starts: list[Start] = []
        self.logs: dict[str, JobLog] = {}
        self.all_links: list[Link] = []
        """Those that broke included."""
        self.service_s: dict[tuple[str, str], float] = {}
        """Slot-seconds of ended runs by (node, user); without those in which they waited and had no slot."""
        self.touched: dict[Any, None] = {}
        """Hosts to which something happened in this turn."""
        self.stalls: list[tuple[object, float, float]] = []
        """(host, from, until) of all stalls."""
        self.leapt_s = 0.0
        """Seconds by which clocks leapt, all together."""
        self.counts: Counter[str] = Counter()
        """What happened how often, for reports."""
        self.faults: list[tuple[float, str, str, float]] = []
        """(when, kind, whom it befell, how long it lasts) of what went wrong by a schedule."""
        self.all_hosts: list[Any] = []
        """The dead included."""
        self._partitions: list[tuple[frozenset[str], float]] = []
        self._numbers = 0

    # ---- time --------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds, by the clock of the engine, which no host has."""
        return self.engine.now_s

    @property
    def events(self) -> int:
        """Events that have happened."""
        return self.engine.events

    def number(self) -> int:
        """The next of 1, 2, 3, …"""
        self._numbers += 1
        return self._numbers

    def latency_s(self) -> float:
        """One frame's time on the way."""
        return self.network.latency_s()

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Do it then."""
        self.engine.at(at_s, _call, action)

    # ---- the network -------------------------------------------------------------------------

    def parted(self, one: str, another: str) -> bool:
        """Whether a partition is between them."""
        self._partitions = [entry for entry in self._partitions if entry[1] > self.now]
        return any((one in group) != (another in group) for group, _ in self._partitions)

    @abstractmethod
    def dial_later(self, scheduler: Side, peer: Side, after_s: float) -> None:
        """The peer dials after so long."""

    @abstractmethod
    def cancel(self, log: JobLog, *, running: bool = False) -> None:
        """The user, or the task that submitted it, cancels the job."""

    @abstractmethod
    def given(self) -> Iterable[tuple[dict[str, str], Start]]:
        """What executors have been given and have not ended, each with its node's attributes."""

    @abstractmethod
    def sources_of(self, ref: BlobRef, reader: str) -> list[str]:
        """Names of the nodes from which this one can read large data."""


def _call(action: Callable[[], None]) -> None:
    action()
