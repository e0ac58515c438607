"""The simulated network: links that keep the order of what is sent over them, as TCP does.

A frame is everything that was sent over a link in one turn (one event of the engine), as in the daemons. A network
whose delay is fixed delivers in the order of sending, through the engine's lane; where delays are drawn, frames of
different links overtake each other and those of one link do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.engine import Engine
from sparrow_py.errors import InvalidOption

KINDS = ("fixed", "uniform", "exponential")
Receive = Callable[[Any, list[Any]], None]
"""Is told who sent the frame, and the frame."""


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a frame is under way.

    kind: "fixed" is always the mean; "uniform" is from half the mean to one and a half; "exponential" is half the mean
        and an exponential rest.
    one_way_ms: the mean, in milliseconds.
    """

    kind: str = "fixed"
    one_way_ms: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidOption("delay", self.kind, ", ".join(KINDS))
        if not 0 <= self.one_way_ms <= 1e6:
            raise InvalidOption("rtt_ms", 2 * self.one_way_ms, "a number from 0")

    def draw_s(self, rng: random.Random) -> float:
        """One delay in seconds, drawn from `rng`."""
        mean_s = self.one_way_ms / 1000
        if self.kind == "fixed":
            return mean_s
        if self.kind == "uniform":
            return mean_s * rng.uniform(0.5, 1.5)
        return mean_s * (0.5 + rng.expovariate(2.0))


class Pipe:
    """One direction of a link. Whoever sends puts its message into `frame`, or calls `send`."""

    __slots__ = ("frame", "free_at_s", "receive", "sender")

    def __init__(self, receive: Receive, sender: Any) -> None:
        self.receive = receive
        self.sender = sender
        """As the receiver knows it."""
        self.frame: list[Any] | None = None
        """What was sent in this turn."""
        self.free_at_s = 0.0
        """When the last frame arrives: the next one does not before it."""

    def deliver(self, frame: list[Any]) -> None:
        """The frame has come."""
        self.receive(self.sender, frame)


class Network:
    """All pipes; `unsent` are those with a frame to send at the end of this turn."""

    def __init__(self, engine: Engine, delay: Delay, rng: random.Random) -> None:
        self.unsent: list[Pipe] = []
        self._engine = engine
        self._delay = delay
        self._rng = rng
        self._fixed_s = delay.one_way_ms / 1000 if delay.kind == "fixed" else None
        engine.end_of_turn = self.flush

    def send(self, pipe: Pipe, message: Any) -> None:
        """Send over the pipe."""
        frame = pipe.frame
        if frame is None:
            pipe.frame = [message]
            self.unsent.append(pipe)
        else:
            frame.append(message)

    def flush(self) -> None:
        """The turn ends: what was sent in it is under way."""
        unsent = self.unsent
        if not unsent:
            return
        engine = self._engine
        now_s = engine.now_s
        if self._fixed_s is not None:
            at_s, added, lane = now_s + self._fixed_s, engine.added, engine.lane
            for pipe in unsent:
                added += 1
                lane.append((at_s, added, pipe.receive, pipe.sender, pipe.frame))  # type: ignore[arg-type]
                pipe.frame = None
            engine.added = added
        else:
            for pipe in unsent:
                pipe.free_at_s = max(pipe.free_at_s, now_s + self._delay.draw_s(self._rng))
                engine.at(pipe.free_at_s, pipe.deliver, pipe.frame)
                pipe.frame = None
        unsent.clear()
