"""A process of a simulated cluster: it may die, stall, and have a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from simulator.soak.broken import Broken
from simulator.soak.clocks import HostClock
from simulator.soak.links import Link
from simulator.soak.surroundings import Surroundings
from sparrow_py.errors import InvalidRequest, LinkError


class Host:
    """A process with a core."""

    core: Any

    def __init__(self, world: Surroundings, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.clock: HostClock = world.clock()
        self.links: dict[str, Link] = {}
        """Those that stand as far as this host knows, by what it calls the other side."""
        self.stalled_until_s = 0.0
        self.backlog: list[Callable[[], None]] = []
        """What has come while it was stalled."""
        self._wake_at_s = inf
        world.all_hosts.append(self)

    @property
    def now_s(self) -> float:
        """By its own clock."""
        return self.clock.read_s(self.world.engine.now_s)

    def event(self, action: Callable[[], None]) -> None:
        """Something happens to the process; while that is stalled it waits."""
        if not self.alive:
            return
        if self.stalled:
            self.backlog.append(action)
            return
        self.world.touched[self] = None
        self.act(action)

    # ---- stalls ------------------------------------------------------------------------------

    @property
    def stalled(self) -> bool:
        """Whether it does nothing now, as after SIGSTOP."""
        return self.world.engine.now_s < self.stalled_until_s or bool(self.backlog)

    def go_on(self, _: None = None) -> None:
        """The stall is over, unless a longer one has begun: everything that came meanwhile happens."""
        if not self.alive or self.world.engine.now_s < self.stalled_until_s:
            return
        backlog, self.backlog = self.backlog, []
        self.world.touched[self] = None
        for action in backlog:
            if self.alive:
                self.act(action)

    def act(self, action: Callable[[], None]) -> None:
        """Do what was to happen, now."""
        action()

    # ---- time --------------------------------------------------------------------------------

    def arm(self) -> None:
        """Be woken when the core's deadline comes."""
        deadline_s = self.core.next_deadline_s() if self.alive else None
        if deadline_s is None:
            return
        at_s = max(self.clock.true_s(deadline_s), self.world.engine.now_s)
        if at_s < self._wake_at_s:
            self._wake_at_s = at_s
            self.world.engine.at(at_s, self._wake, at_s)

    def _wake(self, at_s: float) -> None:
        if at_s != self._wake_at_s:
            return  # It was armed for an earlier time since.
        self._wake_at_s = inf
        self.event(self._tick)

    def _tick(self) -> None:
        deadline_s = self.core.next_deadline_s()
        if deadline_s is None:
            return
        if self.clock.true_s(deadline_s) <= self.world.engine.now_s:
            self.clock.at_least(deadline_s)
        if deadline_s <= self.now_s:
            self.core.tick(self.now_s)

    def clock_leaps(self, seconds: float, rate: float) -> None:
        """Its clock goes ahead, and then runs at another rate."""
        self.clock.leap(self.world.engine.now_s, seconds, rate)
        self._wake_at_s = inf
        self.world.touched[self] = None

    # ---- links -------------------------------------------------------------------------------

    def received(self, link: Link, frame: list[Any]) -> None:
        """A frame has come; what the core rejects ends the link."""
        try:
            for message in frame:
                self._receive(link, message)
        except (LinkError, InvalidRequest) as error:
            if not link.duplicated:
                raise Broken(
                    f"{self.name} rejects what an honest peer sent: {error}", getattr(message, "job", "")
                ) from error
            self.world.counts["links cut for what came twice"] += 1
            self._reject(link)
            link.end(self)

    def _receive(self, link: Link, message: Any) -> None:
        raise NotImplementedError

    def _reject(self, link: Link) -> None:
        """The link is about to end, as its peer sent what may not be sent."""

    def down(self, link: Link) -> None:
        """The link is gone, as this host has found out."""
        raise NotImplementedError
