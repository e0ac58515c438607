"""What one must say of a system so that it is compared."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, ClassVar

from benchmarks.peers.tasks import nap


class Peer(ABC):
    """A system, one of our own or another.

    packages: distributions that it consists of, the one whose version counts first. programs: what must be on the PATH,
    each with what brings it. lacks: case by case why the peer has no part in it. ours: of this project. pool: schedules
    in its user's process, for that one alone. shown_only: nothing that is to be beaten.
    """

    name: ClassVar[str]
    packages: ClassVar[Sequence[str]] = ()
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({})
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType({})
    ours: ClassVar[bool] = False
    pool: ClassVar[bool] = False
    shown_only: ClassVar[bool] = False

    def why_not(self) -> str:
        """Why it cannot run here, with what to do about it; empty if it can."""
        absent = [package for package in self.packages if _version(package) is None]
        if absent:
            from sparrow_py.distribution import install_command  # Users of other systems do not import ours.

            return f"{', '.join(absent)} not installed: {install_command('peers')}"
        for program, from_where in self.programs.items():
            if shutil.which(program) is None:
                return f"no {program} on the PATH: {from_where}"
        return ""

    @property
    def address(self) -> str:
        """`module:class`."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def version(self) -> str:
        """Of its first package; empty where that says nothing."""
        return (_version(self.packages[0]) or "") if self.packages else ""


class Tool(Peer):
    """A command line that runs `true` for each line of its standard input, so many at once, and then ends."""

    @abstractmethod
    def command(self, at_once: int) -> list[str]:
        """The command line."""


class Library(Peer):
    """What a Python program starts, gives calls to, and stops. All of it runs in the user's process and below it.

    futures_as_arguments: whether a call may take futures of other calls. scheduler: the system of
    `benchmarks.faults_peers` that is asked what a killed scheduler does; empty where the program is the scheduler.
    """

    futures_as_arguments: ClassVar[bool] = False
    scheduler: ClassVar[str] = ""

    @abstractmethod
    def start(self, slots: int) -> None:
        """Start with so many workers of one task at a time."""

    @abstractmethod
    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """One call; returns its future, or what stands for one."""

    @abstractmethod
    def stop(self) -> None:
        """End all that was started."""

    def result(self, future: Any) -> Any:
        """Wait for one result; the call's exception is raised."""
        return future.result()

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """All results, in order."""
        return [self.result(future) for future in futures]

    def map(self, function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        """A call for each value, by the quickest way that makes each call a task of its own."""
        return self.gather([self.submit(function, value) for value in values])

    def put(self, value: Any) -> Any:
        """What stands for a large value in the arguments of several calls; by default the value itself."""
        return value

    def job(self, duration_s: float, tasks: int, done: Callable[[], None]) -> None:
        """So many tasks that sleep; `done` is called once for each that has ended, whichever thread notices."""
        for number in range(tasks):
            self.submit(nap, duration_s, number).add_done_callback(lambda _: done())

    def pass_time(self, duration_s: float) -> None:
        """Wait; who needs the program's thread to learn of results uses it meanwhile."""
        time.sleep(duration_s)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
