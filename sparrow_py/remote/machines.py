"""The machines of a remote cluster: the command that runs node monitors on each, and which of them run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparrow_py.remote.launched import Launched

RETRY_S = 30.0
"""A machine whose command has ended though nobody expected that is started again after so long at the earliest."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The command of this machine has ended. `expected`: its node monitors had been told to leave, or left in order."""

    machine: str
    last_words: str
    expected: bool


class Machines:
    """See the module's docstring. Its methods may be called from any thread.

    log_of: where what a machine's command says goes: a file, or None for this process's standard error.
    """

    def __init__(
        self,
        token: str,
        environment: Mapping[str, str],
        log_of: Callable[[str], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._environment = environment
        self._log_of = log_of
        self._clock = clock
        self._is_over = False
        self._commands: dict[str, Sequence[str]] = {}
        self._launched: dict[str, Launched] = {}
        """Those whose end has not been told."""
        self._leaving: set[str] = set()
        self._given_up: set[str] = set()
        self._lost_s: dict[str, float] = {}
        """When a machine's command ended that was not expected to."""
        self._lock = threading.Lock()

    def add(self, commands: Mapping[str, Sequence[str]]) -> None:
        """There are these machines, too."""
        self._commands |= commands

    def names(self) -> list[str]:
        """All that there are, whether or not their commands run."""
        return list(self._commands)

    def own_nodes(self) -> set[str]:
        """Those whose command was started, and of whose end nobody was told. Their nodes have the same names."""
        return set(self._launched)

    def room(self) -> int:
        """On how many further machines a node monitor can be started now."""
        return len(self.startable())

    def start_nodes(self, count: int) -> None:
        """Start node monitors on so many further machines, as far as there is room; `ClusterError` if that fails."""
        self.start(self.startable()[:count])

    def startable(self) -> list[str]:
        """Those whose command can be started now, those that were lost last."""
        now_s = self._clock()
        with self._lock:
            free = [name for name in self._commands if name not in self._launched]
            rested = [name for name in free if now_s - self._lost_s.get(name, -RETRY_S) >= RETRY_S]
            return sorted(rested, key=lambda name: name in self._lost_s)

    def start(self, names: Iterable[str]) -> None:
        """Start the commands of these machines; `ClusterError` if one cannot be run."""
        with self._lock:
            for name in names if not self._is_over else ():
                command = self._commands[name]
                self._launched[name] = Launched(name, command, self._token, self._log_of(name), self._environment)

    def expect_end(self, machine: str, *, expected: bool) -> None:
        """Its node monitors were told to leave; or they stay after all."""
        with self._lock:
            (self._leaving.add if expected else self._leaving.discard)(machine)

    def give_up(self, machine: str) -> None:
        """End a command whose node monitors have not come: that counts as a loss."""
        with self._lock:
            one = self._launched.get(machine)
            self._given_up.add(machine)
        if one is not None:
            one.end()

    def why_one_ended(self) -> str:
        """How one of the commands ended; empty if all run."""
        return next((why for one in list(self._launched.values()) if (why := one.why_ended())), "")

    def take_ended(self) -> list[Ended]:
        """The commands that have ended since this was asked."""
        with self._lock:
            over = [one for one in self._launched.values() if one.why_ended()]
            found = [self._ended(one) for one in over]
        for one in over:
            one.end()
        return found

    def _ended(self, one: Launched) -> Ended:
        name = one.machines
        del self._launched[name]
        expected = (name in self._leaving or one.process.returncode == 0) and name not in self._given_up
        self._leaving.discard(name)
        self._given_up.discard(name)
        if not expected:
            self._lost_s[name] = self._clock()
        return Ended(name, one.last_words(), expected)

    def end(self) -> None:
        """End all that run, and start none any more."""
        with self._lock:
            self._is_over = True
            launched = list(self._launched.values())
        for one in launched:
            one.end()
        for one in launched:
            one.wait_ended()
