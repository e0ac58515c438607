"""Clusters that workloads are replayed against: one that is started for a point, or one that runs already."""

from __future__ import annotations

import abc
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from loadgen.policies import ALTRUISTIC
from sparrow_py.cluster import LocalCluster
from sparrow_py.counted import counted
from sparrow_py.errors import ClusterError, InvalidOption, InvalidRequest
from sparrow_py.profiles import DEFAULT, NODE_MONITOR, SCHEDULER, check_values, settings
from sparrow_py.wire.addresses import check_address
from sparrow_py.wire.http_get import http_get_json, http_get_text

PLACEMENTS = ("sparrow", "batch", "per-task", "random", "central")
SPARROW = "sparrow"
"""The placement that profiles are about."""
CENTRAL = "central"
"""The placement of which a cluster has one scheduler."""
NODES_MAX = 10_000
SCHEDULERS_MAX = 1000
SLOTS_MAX = 1 << 16
LINK_TIMEOUT_S = 60.0
AUDIT_BYTES_MAX = 64 << 30
"""Larger than any point's audit log: a log that is cut off is no record of a point."""
COUNTERS = {
    "noops": "noops",
    "asks": "asks",
    "reservations": "reservations",
    "cancelled_reservations": "reservations_cancelled",
    "pushes": "pushes",
    "pushes_handed_back": "pushes_handed_back",
    "retries": "retries",
}
"""The names of a point's counts, and the schedulers' metrics that they come from."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A cluster to start. nodes: the number of node monitors, which run in as many processes as there are cores, or in
    fewer, so that all have the same number. slots: of each node. profile: of its daemons. options: those that profiles
    set, with other values. unplaced_tasks_max: the schedulers' limit for a user; None: their default. weights: of
    users. sql_data: the directory of a data set that all users may query; empty: no directory is named. leads: the
    policy of a scheduler that is started besides, and leads; empty: none; that of policy altruistic is alone.
    altruistic_policy: which scheduler that one is, with its settings; empty: its default."""

    nodes: int = 100
    slots: int = 4
    schedulers: int = 10
    placement: str = "sparrow"
    profile: str = DEFAULT
    options: tuple[tuple[str, Any], ...] = ()
    unplaced_tasks_max: int | None = None
    weights: tuple[tuple[str, float], ...] = ()
    sql_data: str = ""
    leads: str = ""
    altruistic_policy: str = ""

    def __post_init__(self) -> None:
        for name, most in (("nodes", NODES_MAX), ("slots", SLOTS_MAX), ("schedulers", SCHEDULERS_MAX)):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidOption(name, getattr(self, name), f"a whole number from 1 to {most}")
        known = settings(self.profile, SCHEDULER, NODE_MONITOR)
        for name, _ in self.options:
            if name not in known:
                raise InvalidOption("options", name, ", ".join(known))
        check_values(self.profile, (SCHEDULER, NODE_MONITOR), dict(self.options))
        if self.placement not in PLACEMENTS:
            raise InvalidOption("placement", self.placement, ", ".join(PLACEMENTS))
        if self.placement == CENTRAL and self.schedulers != 1:
            raise InvalidOption(
                "schedulers", self.schedulers, "1 with placement central: it takes all slots for its own"
            )
        if self.leads == ALTRUISTIC and self.schedulers != 1:
            raise InvalidOption("schedulers", self.schedulers, "1 with policy altruistic, which one scheduler leads")
        if self.altruistic_policy and self.leads != ALTRUISTIC:
            raise InvalidOption("altruistic_policy", self.altruistic_policy, "empty without a scheduler that has it")
        if self.leads and self.placement == CENTRAL:
            raise InvalidOption(
                "placement", self.placement, f"any but central beside a scheduler of policy {self.leads}"
            )


class Target(abc.ABC):
    """A cluster. A context manager; `audit_logs` are complete once it has been left.

    nodes: the ids of its node monitors. slots: of each of them. profile: of its schedulers.
    """

    addresses: list[str]
    nodes: tuple[str, ...]
    slots: int
    profile: str

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop the cluster, if it was started here."""

    @abc.abstractmethod
    def cpu_s(self) -> dict[str, float]:
        """CPU time used so far, by kind of daemon; empty if it cannot be known."""

    @abc.abstractmethod
    def waited_s(self) -> list[float] | None:
        """How long each scheduler has waited for a CPU so far; None if it cannot be known."""

    @abc.abstractmethod
    def audit_logs(self) -> dict[str, Path]:
        """The audit log of each scheduler, by its address; empty if there are none."""


class LocalTarget(Target):
    """A cluster of this shape on this machine, with audit logs in `directory`."""

    def __init__(self, shape: Shape, directory: Path) -> None:
        self.slots, self.profile = shape.slots, shape.profile
        self._directory = directory
        processes = node_processes(shape.nodes)
        self._cluster = LocalCluster(
            shape.schedulers,
            processes,
            slots=shape.slots,
            processes="separate",  # What each of the daemons uses is told apart.
            scheduler_options=_scheduler_flags(shape, directory),
            node_options=_node_flags(shape, shape.nodes // processes),
            log_dir=directory / "logs",
            forward_output=False,
            profile=shape.profile,
            policies=_policies(shape),
        )
        self.addresses = list(self._cluster.addresses)
        try:
            self.nodes = wait_for_nodes(self.addresses, shape.nodes)
        except BaseException:
            self._cluster.stop()
            raise

    def stop(self) -> None:
        """End its processes, and so complete the audit logs."""
        self._cluster.stop()

    def cpu_s(self) -> dict[str, float]:
        """User and system time of the processes, and of executors that node monitors started."""
        schedulers = [process.pid for process in self._cluster.scheduler_processes]
        nodes = [process.pid for process in self._cluster.node_processes]
        return {"schedulers": _cpu_s(schedulers), "node_monitors": _cpu_s(nodes)}

    def waited_s(self) -> list[float] | None:
        """As Linux counts it, of each process's first thread, which decides; None elsewhere."""
        try:
            return [_waited_s(process.pid) for process in self._cluster.scheduler_processes]
        except OSError:
            return None

    def audit_logs(self) -> dict[str, Path]:
        """The audit log of each scheduler, by its address."""
        return {address: self._directory / f"audit-{address.rpartition(':')[2]}.jsonl" for address in self.addresses}


class ExistingTarget(Target):
    """A cluster that runs already, by its schedulers' addresses. Its nodes must all have the same number of slots, and
    its schedulers one profile."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = [_checked_address(address) for address in addresses]
        listed = http_get_json(self.addresses[0], "/v1/nodes")["nodes"]
        slots = {int(node["slots"]) for node in listed}
        if len(slots) != 1:
            found = f"nodes of {', '.join(map(str, sorted(slots)))} slots" if slots else "no node monitors"
            raise InvalidOption(
                "scheduler", addresses[0], f"a cluster of nodes with the same number of slots, not {found}"
            )
        self.slots = slots.pop()
        self.profile = _profile_of(self.addresses)
        self.nodes = in_order(node["id"] for node in listed)

    def stop(self) -> None:
        """Do nothing: the cluster goes on."""

    def cpu_s(self) -> dict[str, float]:
        """Empty: the cluster's processes may be on any machine."""
        return {}

    def waited_s(self) -> list[float] | None:
        """None, for the same reason."""
        return None

    def audit_logs(self) -> dict[str, Path]:
        """Empty: audit logs of this cluster are its operator's."""
        return {}


def _checked_address(address: str) -> str:
    try:
        return check_address(address)
    except InvalidRequest as error:
        raise InvalidOption("scheduler", error.value, "host:port") from None


def _profile_of(addresses: Sequence[str]) -> str:
    """The profile that these schedulers have, by their metrics."""
    found = set()
    for address in addresses:
        info = re.search(r'^sparrow_scheduler_info\{.*?profile="([^"]*)"', http_get_text(address, "/metrics"), re.M)
        found.add(info[1] if info else DEFAULT)
    if len(found) != 1:
        raise InvalidOption(
            "scheduler", ",".join(addresses), f"schedulers of one profile, not of {' and '.join(sorted(found))}"
        )
    return found.pop()


def node_processes(nodes: int) -> int:
    """The number of processes for these node monitors: at most that of the cores, and all with equally many nodes."""
    return next(count for count in range(min(os.cpu_count() or 1, nodes), 0, -1) if nodes % count == 0)


def _policies(shape: Shape) -> tuple[str, ...]:
    """Those of its schedulers. Jobs of policy altruistic go to the one that leads, and a scheduler that samples would
    refuse its options."""
    if shape.leads == ALTRUISTIC:
        return (ALTRUISTIC,)
    return ("sparrow", shape.leads) if shape.leads else ("sparrow",)


def _node_flags(shape: Shape, nodes: int) -> list[str]:
    flags = ["--warm", "noop", "--count", str(nodes), *option_flags(shape, NODE_MONITOR)]
    return [*flags, "--sql-data", shape.sql_data] if shape.sql_data else flags


def _scheduler_flags(shape: Shape, directory: Path) -> list[str]:
    flags = option_flags(shape, SCHEDULER)
    flags += ["--audit-log", f"{directory}/audit-{{port}}.jsonl", "--audit-log-bytes-max", str(AUDIT_BYTES_MAX)]
    if shape.placement != "sparrow":
        flags += ["--placement", shape.placement]
    if shape.unplaced_tasks_max is not None:
        flags += ["--unplaced-tasks-max", str(shape.unplaced_tasks_max)]
    if shape.altruistic_policy:
        flags += ["--altruistic-policy", shape.altruistic_policy]
    for user, weight in shape.weights:
        flags += ["--user-weight", f"{user}={weight:g}"]
    return flags


def option_flags(shape: Shape, room: str) -> list[str]:
    """The flags of the shape's options for daemons of this room."""
    flags = []
    for name, value in shape.options:
        if name in settings(shape.profile, room):
            flag = name.replace("_", "-")
            flags += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", f"{value}"]
    return flags


def wait_for_nodes(addresses: Sequence[str], count: int) -> tuple[str, ...]:
    """The ids of the node monitors, once `count` of them are linked to each scheduler."""
    deadline_s = time.monotonic() + LINK_TIMEOUT_S
    for address in addresses:
        while len(nodes := http_get_json(address, "/v1/nodes")["nodes"]) < count:
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"{len(nodes):,} of {counted(count, 'node monitor')} reached {address} in {LINK_TIMEOUT_S:g} s"
                )
            time.sleep(0.1)
    return in_order(node["id"] for node in nodes)


def in_order(names: Any) -> tuple[str, ...]:
    """Names in the order that people expect: node-2 before node-10."""
    return tuple(sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in _split(name)]))


def _split(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


def _cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds of processes and of their descendants."""
    processes = [psutil.Process(pid) for pid in pids]
    below = [child for process in processes for child in process.children(recursive=True)]
    times = [process.cpu_times() for process in {process.pid: process for process in [*processes, *below]}.values()]
    return float(sum(each.user + each.system for each in times))


def _waited_s(pid: int) -> float:
    """How long the process's first thread was ready to run, and had no CPU."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def counters(addresses: Sequence[str]) -> dict[str, int]:
    """The counts of all schedulers so far, added up, under the names of `COUNTERS`."""
    found = dict.fromkeys(COUNTERS, 0)
    for address in addresses:
        text = http_get_text(address, "/metrics")
        for name, metric in COUNTERS.items():
            value = re.search(rf"^sparrow_scheduler_{metric}_total ([0-9.e+]+)$", text, re.M)
            found[name] += int(float(value[1])) if value else 0
    return found
