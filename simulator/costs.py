"""Costs of daemons: each is a process that does one thing at a time, so that frames wait while it works.

Without costs the simulator's daemons decide in no time. With costs each scheduler and each node monitor is a single
server (first come, first served). A frame that arrives wakes its process if that does nothing. The process reads the
frame for as long as that costs, then the core decides, and each frame that it sends leaves once it has been written.
The end of a task arrives at its node monitor as a frame of one message from an executor. Timers and clients cost
nothing: there may be a client for each job.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.engine import Engine
from simulator.network import Delay, Network, Receive
from sparrow_py.job import check_number

COST_US_MAX = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Microseconds that a process spends: wake_us when a frame arrives while it does nothing, frame_us for each frame
    that it reads or writes, message_us for each message in a frame, the decision about the message included."""

    wake_us: float = 0.0
    frame_us: float = 0.0
    message_us: float = 0.0

    def __post_init__(self) -> None:
        for name in ("wake_us", "frame_us", "message_us"):
            check_number(name, getattr(self, name), 0, COST_US_MAX)

    def of_s(self, messages: int) -> float:
        """Seconds that a frame of so many messages costs a process that is awake."""
        return (self.frame_us + messages * self.message_us) / 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """The costs of each scheduler and of each node monitor."""

    scheduler: Cost = field(default_factory=Cost)
    node_monitor: Cost = field(default_factory=Cost)


class Process:
    """A single server before a host. busy_s: seconds that it has worked so far."""

    __slots__ = ("_busy", "_cost", "_engine", "_network", "_waiting", "busy_s", "frames", "messages")

    def __init__(self, cost: Cost, engine: Engine, network: CostlyNetwork) -> None:
        self._cost = cost
        self._engine = engine
        self._network = network
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...], int]] = deque()
        self._busy = False
        self.busy_s = 0.0
        self.frames = 0
        """Frames that were read or written."""
        self.messages = 0
        """Messages in those frames."""

    def reads(self, receive: Receive) -> Receive:
        """A receiver that hands frames to the host's, each when the process has read it."""

        def arrive(sender: Any, frame: list[Any]) -> None:
            self._comes(receive, (sender, frame), len(frame))

        return arrive

    def hears(self, event: Callable[[Any], None]) -> Callable[[Any], None]:
        """As `reads`, for an event within the machine, which costs as much as a frame of one message."""

        def happen(argument: Any) -> None:
            self._comes(event, (argument,), 1)

        return happen

    def _comes(self, act: Callable[..., None], arguments: tuple[Any, ...], messages: int) -> None:
        if self._busy:
            self._waiting.append((act, arguments, messages))
        else:
            self._busy = True
            wake_s = self._cost.wake_us / 1e6
            self.busy_s += wake_s
            self._read(self._engine.now_s + wake_s, act, arguments, messages)

    def _read(self, from_s: float, act: Callable[..., None], arguments: tuple[Any, ...], messages: int) -> None:
        self._engine.at(from_s + self.spends(messages), self._act, (act, arguments))

    def _act(self, call: tuple[Callable[..., None], tuple[Any, ...]]) -> None:
        """A frame has been read: the host decides. This process writes the frames that the host sends in this turn."""
        act, arguments = call
        self._network.writes = self
        act(*arguments)

    def spends(self, messages: int) -> float:
        """Count a frame of so many messages that is read or written; returns how many seconds that takes."""
        cost_s = self._cost.of_s(messages)
        self.frames += 1
        self.messages += messages
        self.busy_s += cost_s
        return cost_s

    def written(self, at_s: float) -> None:
        """At that time all frames of this turn are written, and the process is free for the next."""
        self._engine.at(at_s, self._next)

    def _next(self, _: None) -> None:
        if self._waiting:
            self._read(self._engine.now_s, *self._waiting.popleft())
        else:
            self._busy = False


class CostlyNetwork(Network):
    """The network between processes that take time: a frame sets out when it has been written.

    writes: the process whose host acts in this turn; None if that costs nothing.
    """

    def __init__(self, engine: Engine, delay: Delay, rng: random.Random) -> None:
        super().__init__(engine, delay, rng)
        self.writes: Process | None = None

    def flush(self) -> None:
        process, self.writes = self.writes, None
        engine = self._engine
        left_s = engine.now_s
        for pipe in self.unsent:
            assert pipe.frame is not None
            if process is not None:
                left_s += process.spends(len(pipe.frame))
            pipe.free_at_s = max(pipe.free_at_s, left_s + self._delay.draw_s(self._rng))
            engine.at(pipe.free_at_s, pipe.deliver, pipe.frame)
            pipe.frame = None
        self.unsent.clear()
        if process is not None:
            process.written(left_s)


class Processes:
    """The processes of a simulated cluster."""

    def __init__(self, costs: Costs, engine: Engine, network: CostlyNetwork) -> None:
        self._costs = costs
        self._engine = engine
        self._network = network
        self.schedulers: list[Process] = []
        self.node_monitors: list[Process] = []

    def scheduler(self) -> Process:
        """The process of one more scheduler."""
        process = Process(self._costs.scheduler, self._engine, self._network)
        self.schedulers.append(process)
        return process

    def node_monitor(self) -> Process:
        """The process of one more node monitor."""
        process = Process(self._costs.node_monitor, self._engine, self._network)
        self.node_monitors.append(process)
        return process

    def counts(self) -> dict[str, int]:
        """For each kind: the work, frames and messages of all processes together, and the work of the busiest."""
        counts = {}
        for kind, processes in (("scheduler", self.schedulers), ("node_monitor", self.node_monitors)):
            counts[f"{kind}_busy_us"] = round(1e6 * sum(process.busy_s for process in processes))
            counts[f"{kind}_busiest_us"] = round(1e6 * max(process.busy_s for process in processes))
            counts[f"{kind}_frames"] = sum(process.frames for process in processes)
            counts[f"{kind}_messages"] = sum(process.messages for process in processes)
        return counts
