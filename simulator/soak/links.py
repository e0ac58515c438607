"""Links that fail as TCP connections do.

A link delivers frames in order in each direction. It never loses one frame and delivers the next: if a frame is lost,
nothing after it arrives either, and each side finds that out on its own, by its heartbeat (a half-open link). A side
that closes a link sends that, too, behind what it sent before. Who was cut off dials again: that is a new link.

`duplicate` delivers frames twice, which no TCP connection does: a core must survive it all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from simulator import network
from simulator.engine import Engine

HEARTBEAT_SHARES = (0.5, 1.5)
"""A side finds a silent link dead after so much of the heartbeat: it pings once in one, and waits half of one."""


class Side(Protocol):
    """What a link needs of the process at an end of it."""

    name: str
    alive: bool

    def event(self, action: Callable[[], None]) -> None:
        """Something happens to the process."""

    def received(self, link: Link, frame: list[Any]) -> None:
        """A frame has come."""

    def down(self, link: Link) -> None:
        """The link is gone, as this side has found out."""


class FallibleNetwork(network.Network):
    """All pipes. latency_s: range of a frame's time on the way. split: each message goes in a frame of its own."""

    def __init__(self, engine: Engine, latency_s: tuple[float, float], rng: random.Random, split: bool) -> None:
        super().__init__(engine, network.Delay(), rng)
        self.engine = engine
        self.latency_range_s = latency_s
        self._split = split

    def latency_s(self) -> float:
        """One frame's time on the way."""
        low, high = self.latency_range_s
        return low if low == high else self._rng.uniform(low, high)

    def flush(self) -> None:
        """The turn ends: what was sent in it is under way, in one frame a pipe, or cut into several."""
        for pipe in self.unsent:
            assert isinstance(pipe, Pipe) and pipe.frame is not None
            for frame in [[message] for message in pipe.frame] if self._split else [pipe.frame]:
                pipe.dispatch(frame)
            pipe.frame = None
        self.unsent.clear()


class Pipe(network.Pipe):
    """One direction of a link."""

    __slots__ = ("_link", "_network", "_to", "duplicates", "in_flight", "severed", "vanishing")

    def __init__(self, link: Link, to: Side, network_: FallibleNetwork) -> None:
        super().__init__(to.received, link)
        self._link = link
        self._to = to
        self._network = network_
        self.in_flight = 0
        self.duplicates = 0
        """So many of the next frames are delivered twice."""
        self.vanishing = False
        """What is sent from now on is lost."""
        self.severed = False
        """What is under way is lost, too."""

    @property
    def empty(self) -> bool:
        """Whether nothing is to be sent, and nothing is under way."""
        return self.frame is None and not self.in_flight

    def send(self, message: Any) -> None:
        """At the end of this turn."""
        self._network.send(self, message)

    def hold(self, until_s: float) -> None:
        """What is sent from now on does not arrive before then."""
        self.free_at_s = max(self.free_at_s, until_s)

    def dispatch(self, frame: list[Any]) -> None:
        """The frame is under way."""
        if self.vanishing:
            return
        engine = self._network.engine
        self.free_at_s = max(self.free_at_s, engine.now_s + self._network.latency_s())
        copies = 2 if self.duplicates else 1
        if copies == 2:
            self.duplicates -= 1
            self._link.duplicated = True
        for _ in range(copies):
            self.in_flight += 1
            engine.at(self.free_at_s, self._arrived, frame)

    def _arrived(self, frame: list[Any]) -> None:
        self.in_flight -= 1
        if not self.severed:
            self._to.event(partial(self._received, frame))

    def _received(self, frame: list[Any]) -> None:
        if self._to in self._link.open:
            self.deliver(frame)

    def finish(self, after_s: float | None = None) -> None:
        """The other side sent its last: this one sees that after what was sent before, or by itself after so long."""
        engine, end = self._network.engine, partial(self._link.end, self._to)
        if after_s is None:
            self.free_at_s = max(self.free_at_s, engine.now_s + self._network.latency_s())
            engine.at(self.free_at_s, _call, partial(self._to.event, end))
        else:
            engine.at(engine.now_s + after_s, _call, partial(self._to.event, end))


def _call(action: Any) -> None:
    action()


class Link:
    """Between a scheduler and a node monitor or a client, which dialled it. A link that broke is never used again."""

    def __init__(self, scheduler: Side, peer: Side, network_: FallibleNetwork, heartbeat_s: float) -> None:
        self.scheduler = scheduler
        self.peer = peer
        self.known_as = peer.name
        """What the scheduler calls the peer."""
        self.received = 0
        """Messages that the peer has handled, if it is a client that says so."""
        self.last_counted: list[Any] = []
        """The last frame of them."""
        self.open: set[Side] = {scheduler, peer}
        """The sides that believe in it."""
        self.alive = True
        """Whether nothing has happened to it yet by which anything may have been lost."""
        self.duplicated = False
        """Whether a frame was delivered twice."""
        self.since_s = network_.engine.now_s
        self.until_s = float("inf")
        self.held_until_s = 0.0
        """It is slower than any heartbeat or time limit allows for until then."""
        self.redial_after_s: float | None = 0.05
        """When the peer dials again once it has seen that the link is gone; None: somebody else sees to that."""
        self.to_scheduler = Pipe(self, scheduler, network_)
        self.to_peer = Pipe(self, peer, network_)
        self._network = network_
        self._heartbeat_s = heartbeat_s

    @property
    def name(self) -> str:
        """Who is at its ends."""
        return f"{self.scheduler.name}–{self.peer.name}"

    @property
    def empty(self) -> bool:
        """Whether nothing is under way."""
        return self.to_scheduler.empty and self.to_peer.empty

    @property
    def pipes(self) -> tuple[Pipe, Pipe]:
        """Both directions."""
        return self.to_scheduler, self.to_peer

    def detection_s(self) -> float:
        """How long a side takes to find by its heartbeat that the other is silent."""
        return self._heartbeat_s * self._network._rng.uniform(*HEARTBEAT_SHARES)

    # ---- how it ends -------------------------------------------------------------------------

    def ceased(self) -> None:
        """From now on something sent over it may be lost."""
        if self.alive:
            self.alive, self.until_s = False, self._network.engine.now_s

    def end(self, side: Side) -> None:
        """The side sees that the other has closed it, or is silent."""
        if side in self.open:
            self.close(side)
            side.down(self)

    def close(self, side: Side) -> None:
        """The side closes it; the other is sent that."""
        self.ceased()
        self.open.discard(side)
        pipe = self.to_peer if side is self.scheduler else self.to_scheduler
        other = self.peer if side is self.scheduler else self.scheduler
        if other in self.open:
            pipe.finish(self.detection_s() if pipe.vanishing else None)

    def cut(self) -> None:
        """A connection reset: nothing of what is under way arrives, and both sides see it at once."""
        self._sever()
        for pipe in self.pipes:
            pipe.finish(self._network.latency_s())

    def go_silent(self, *, forwards: bool = True, backwards: bool = True) -> None:
        """A frame is lost, to the scheduler (forwards) or from it, and so all after it; heartbeats find it out."""
        self.ceased()
        self.to_scheduler.vanishing = self.to_scheduler.vanishing or forwards
        self.to_peer.vanishing = self.to_peer.vanishing or backwards
        for pipe in self.pipes:
            pipe.finish(self.detection_s())

    def died(self, side: Side, *, flushed: bool, silent: bool) -> None:
        """The side's process is gone. flushed: what it has sent arrives. silent: its whole machine is gone."""
        self.ceased()
        self.open.discard(side)
        pipe = self.to_peer if side is self.scheduler else self.to_scheduler
        pipe.severed = not flushed
        if silent:
            pipe.vanishing = True
            pipe.finish(self.detection_s())
        elif flushed:
            pipe.finish()
        else:
            pipe.finish(self._network.latency_s())

    def _sever(self) -> None:
        self.ceased()
        for pipe in self.pipes:
            pipe.severed = pipe.vanishing = True

    # ---- how it slows down -------------------------------------------------------------------

    def hold(self, seconds: float) -> None:
        """What is sent from now on arrives late, if it arrives."""
        until_s = self._network.engine.now_s + seconds
        self.held_until_s = max(self.held_until_s, until_s)
        for pipe in self.pipes:
            pipe.hold(until_s)

    def silent_for(self, side: Side, seconds: float) -> None:
        """The side hears nothing for so long: if its heartbeat is shorter, it closes the link."""
        after_s = self.detection_s()
        if after_s < seconds:
            pipe = self.to_scheduler if side is self.scheduler else self.to_peer
            pipe.finish(after_s)
