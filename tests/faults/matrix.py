"""Which fault hits what, and when: all combinations that mean something, and a few of them that have all pairs.

Whatever is left out has its reason in `why_not`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Target(StrEnum):
    """What is hit."""

    NODE_MONITOR = "node_monitor"
    SCHEDULER = "scheduler"
    EXECUTOR = "executor"
    CLIENT = "client"
    EXTERNAL_EXECUTOR = "external_executor"
    ALL_SCHEDULERS = "all_schedulers"


class Fault(StrEnum):
    """What happens to it."""

    SIGKILL = "sigkill"
    STOP_SHORT = "stop_short"
    STOP_LONG = "stop_long"
    RESTART = "restart"
    RESTART_ELSEWHERE = "restart_elsewhere"
    CUT = "network_cut"
    HALF_OPEN = "half_open"
    DISK_FULL = "disk_full"
    OUT_OF_FILES = "out_of_files"
    OUT_OF_MEMORY = "out_of_memory"


class Moment(StrEnum):
    """When."""

    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    FINISHING = "finishing"
    SUBMITTING = "submitting"
    DRAINING = "draining"


MEANING: dict[Target | Fault | Moment, str] = {
    Target.NODE_MONITOR: "one of three node monitors; for the network: its machine",
    Target.SCHEDULER: "the scheduler that has the job, one of two",
    Target.EXECUTOR: "a Python worker, one that runs a task if any does",
    Target.CLIENT: "the process that submitted the jobs",
    Target.EXTERNAL_EXECUTOR: "an executor that was started by hand and attached, one of two",
    Target.ALL_SCHEDULERS: "both schedulers at once",
    Fault.SIGKILL: "killed, and not started again",
    Fault.STOP_SHORT: "SIGSTOP, and SIGCONT after less than its peers wait for a sign of life",
    Fault.STOP_LONG: "SIGSTOP, and SIGCONT when its peers have given it up",
    Fault.RESTART: "killed and started again where it was",
    Fault.RESTART_ELSEWHERE: "killed and started again on another port; an external executor: at another node",
    Fault.CUT: "its machine is cut off, silently, until its peers have given it up",
    Fault.HALF_OPEN: "its machine loses power and comes back: its peers' connections are open on their side alone",
    Fault.DISK_FULL: "no byte is left where it writes: a node's large data, a scheduler's audit log",
    Fault.OUT_OF_FILES: "it may open no file or socket (RLIMIT_NOFILE), for 2 s or until the jobs have ended",
    Fault.OUT_OF_MEMORY: "one of its tasks allocates more than it may (RLIMIT_AS)",
    Moment.IDLE: "nothing to do; the jobs come when the fault is there",
    Moment.QUEUED: "all slots run others' tasks, the jobs' tasks wait",
    Moment.RUNNING: "all tasks of the jobs run",
    Moment.FINISHING: "all tasks have ended, and who is to be told has not read it yet",
    Moment.SUBMITTING: "some of the job's tasks have arrived, others not",
    Moment.DRAINING: "it drains with tasks running (of an executor: its node; of a client: its scheduler)",
}

_UNIX_SOCKET = "an executor speaks to its node monitor over a Unix socket: no network, and never half open"
_WHY_NOT: dict[tuple[Target, Fault], str] = {
    (Target.EXECUTOR, Fault.RESTART): "its node monitor does that itself: sigkill",
    (Target.EXECUTOR, Fault.RESTART_ELSEWHERE): "its node monitor starts it, and nobody else does",
    (Target.EXECUTOR, Fault.CUT): _UNIX_SOCKET,
    (Target.EXECUTOR, Fault.HALF_OPEN): _UNIX_SOCKET,
    (Target.EXECUTOR, Fault.DISK_FULL): "it writes where its node's large data lie: node_monitor",
    (Target.EXTERNAL_EXECUTOR, Fault.CUT): _UNIX_SOCKET,
    (Target.EXTERNAL_EXECUTOR, Fault.HALF_OPEN): _UNIX_SOCKET,
    (Target.EXTERNAL_EXECUTOR, Fault.DISK_FULL): "it writes where its node's large data lie: node_monitor",
    (Target.CLIENT, Fault.RESTART_ELSEWHERE): "a client listens nowhere, so it has no address",
    (Target.CLIENT, Fault.DISK_FULL): "a client writes nothing to a disk",
}
_NO_TASK = {
    Moment.IDLE: "no task runs that could run out of memory; the first that comes is the row submitting",
    Moment.FINISHING: "the tasks have ended: none of them can run out of memory any more",
}
_RUN_TASKS = (Target.EXECUTOR, Target.EXTERNAL_EXECUTOR)


def why_not(target: Target, fault: Fault, moment: Moment) -> str:
    """Why this combination is left out; empty if it is not."""
    if fault is Fault.OUT_OF_MEMORY:
        return _NO_TASK.get(moment, "") if target in _RUN_TASKS else "only executors run tasks"
    return _WHY_NOT.get((target, fault), "")


@dataclass(frozen=True)
class Row:
    """A combination."""

    target: Target
    fault: Fault
    moment: Moment

    @property
    def id(self) -> str:
        """Its name."""
        return f"{self.target}-{self.fault}-{self.moment}"

    @property
    def needs_network(self) -> bool:
        """Whether machines must be cut off from each other."""
        return self.fault in (Fault.CUT, Fault.HALF_OPEN)

    @property
    def needs_disk(self) -> bool:
        """Whether a disk must be filled."""
        return self.fault is Fault.DISK_FULL

    @property
    def leaves_no_scheduler(self) -> bool:
        """Whether none comes back: schedulers that drain end when their clients have given them up."""
        drained = self.moment is Moment.DRAINING and self.fault in (Fault.STOP_LONG, Fault.CUT)
        return self.target is Target.ALL_SCHEDULERS and (self.fault is Fault.SIGKILL or drained)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The pairs that it has."""
        return frozenset(itertools.combinations((self.target, self.fault, self.moment), 2))


def all_rows() -> list[Row]:
    """All combinations that mean something, in the order in which they are played.

    What is hit changes from row to row: a link that does not stand for 5 s, several times in a row, is dialled again
    more and more slowly.
    """
    rows = (Row(target, fault, moment) for fault, moment, target in itertools.product(Fault, Moment, Target))
    return [row for row in rows if not why_not(row.target, row.fault, row.moment)]


_COST = {Fault.RESTART_ELSEWHERE: 6.0, Fault.RESTART: 2.0, Fault.HALF_OPEN: 2.0, Fault.CUT: 2.0, Fault.STOP_LONG: 2.0}
"""How much longer rows take than others, about."""


def pairwise(rows: Iterable[Row]) -> list[Row]:
    """Some of the rows, among which is every pair (of target and fault, fault and moment, moment and target) that any
    row has. Greedy: always the one with the most new pairs for its time, the first of several.

    allpairspy does not promise that under constraints, and does not know what a row costs.
    """
    left = list(rows)
    uncovered = frozenset[tuple[str, str]]().union(*(row.pairs for row in left))
    chosen = []
    while uncovered:
        best = max(left, key=lambda row: len(row.pairs & uncovered) / _COST.get(row.fault, 1.0))
        chosen.append(best)
        left.remove(best)
        uncovered -= best.pairs
    return sorted(chosen, key=all_rows().index)
