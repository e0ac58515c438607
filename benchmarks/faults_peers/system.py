"""What a system must offer to be compared: its cluster, and its user's way to a job's results."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import psutil

from benchmarks.faults_peers.faults import Fault
from benchmarks.faults_peers.processes import Processes
from benchmarks.laboratory.network import Network
from sparrow_py.distribution import install_command

READY_TIMEOUT_S = 60.0
"""From the start of a cluster until it has all its workers."""
Outcome = tuple[int, BaseException | None]
"""A task's number, and the exception in place of its result."""


@dataclass(frozen=True)
class Setting:
    """How a cluster is set up: the system's defaults, or with what its documentation advises."""

    name: str = "default"
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of all its processes, the user's included."""
    options: Mapping[str, str] = field(default_factory=dict)
    """For the system's own `start`."""


@dataclass
class Cluster:
    """A cluster that has been started."""

    address: str
    """Where the user finds it."""
    scheduler: Callable[[], psutil.Process]
    """What is killed, in the faults of that name: of several, the one that has the job."""
    restart: Callable[[], object]
    """Start that again, as a supervisor would."""
    workers: Sequence[psutil.Process]
    """Of which the last is killed or cut off."""


class System(ABC):
    """One of the systems compared."""

    name: str
    packages: Sequence[str]
    """The distributions that it consists of, the one whose version counts first."""

    def missing(self) -> str:
        """What is not installed, with what to do about it; empty if it can run."""
        absent = [package for package in self.packages if _version(package) is None]
        return f"{', '.join(absent)} not installed: {install_command('peers')}" if absent else ""

    def version(self) -> str:
        """Of its first package."""
        return _version(self.packages[0]) or "not installed"

    def settings(self, fault: Fault) -> Sequence[Setting]:
        """The settings to compare under this fault, the default one first."""
        return [Setting()]

    @abstractmethod
    def start(self, processes: Processes, network: Network, setting: Setting) -> Cluster:
        """Start its processes; they may still be finding each other."""

    @abstractmethod
    def outcomes(self, address: str, warm_up: int, tasks: Sequence[tuple[int, str, str]]) -> Iterator[Outcome | None]:
        """In the user's process: run that many calls of `work.warm_up`, then a job with a call of `work.work` per task.

        Yields None once the job has been submitted, then the outcome of each task as the user learns of it. What the
        system raises in place of an outcome is raised.
        """


def wait_until(happened: Callable[[], bool], what: str) -> None:
    """Look again and again, for `READY_TIMEOUT_S`."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not happened():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {READY_TIMEOUT_S:g} s in vain for {what}")
        time.sleep(0.05)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
