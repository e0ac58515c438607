"""Cores of the commanded planes in one process, wired by encoded frames, with the CPU time of each part.

Frames are encoded and decoded as on a link, so what is measured is all that a message costs but the system's calls.
`Pump` lets all happen at once; `Cluster` in virtual time, where each handler takes as long as it took here, and tasks
as long as the program says.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import STOP
from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.commanding_core import ALL_ON, CommandingCore, Switches
from frontends.dataflow.commands import (
    Answer,
    Commanded,
    Completed,
    Dispatch,
    Submit,
    Unknown,
)
from frontends.dataflow.control_messages import CONTROLLER, DRIVER
from frontends.dataflow.messages import Chunk, Marker
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.placement import initial
from frontends.dataflow.store import first_value
from frontends.dataflow.submissions import Submissions
from simulator.engine import Engine
from sparrow_py.daemon.process import GC_THRESHOLDS

POLL_NS = 1_000_000
DELAY_S = 100e-6
"""Of a frame between two processes, in virtual time."""


def _as_bytes(array: Any) -> Any:
    """Arrays, which are small in the programs here, within the frame."""
    return msgspec.msgpack.Ext(1, msgspec.msgpack.encode((array.dtype.str, array.shape, array.tobytes())))


def _as_array(code: int, data: memoryview) -> Any:
    dtype, shape, contents = msgspec.msgpack.decode(data, type=tuple[str, tuple[int, ...], bytes])
    return np.frombuffer(bytearray(contents), dtype).reshape(shape)


ENCODER = msgspec.msgpack.Encoder(enc_hook=_as_bytes)
DECODER = msgspec.msgpack.Decoder(Commanded | Chunk | Marker, ext_hook=_as_array)


@contextmanager
def as_in_a_daemon() -> Iterator[None]:
    """The collector of garbage as daemons and executors have it; as it was, afterwards."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@contextmanager
def without_collector() -> Iterator[None]:
    """No collection of garbage: with a thousand cores in one process it would cost what it costs in none of theirs."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Outbox:
    """Encodes what a core sends."""

    def __init__(self, pump: Pump, me: int) -> None:
        self.pump, self.me = pump, me

    def send(self, peer: int, message: Any) -> None:
        self.pump.put(self.me, peer, message)

    def report(self, message: Any) -> None:
        self.pump.put(self.me, CONTROLLER, message)


class Pump:
    """Runs the blocks of a Dataflow's program."""

    def __init__(
        self,
        df: Dataflow,
        workers: int,
        switches: Switches = ALL_ON,
        clock: Callable[[], int] = time.perf_counter_ns,
        poll: Callable[[int], int] = lambda now: now + POLL_NS,
    ) -> None:
        df._freeze()
        self.df = df
        self.definition = definition = df._definition
        self.cpu_ns: Counter[str] = Counter()
        """Of driver, controller, workers; and of all blocks before the one that runs, by number."""
        self.by_block: list[Counter[str]] = []
        self.messages: Counter[str] = Counter()
        """By kind; a frame of single tasks is as many as it has."""
        self.frames: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        at = initial(definition.group_partitions(), range(workers))
        self.controller = CommandingCore(
            definition, range(workers), PartitionMap(at), _Outbox(self, CONTROLLER), switches=switches
        )
        self.submissions = Submissions(
            definition, lambda message: self.put(DRIVER, CONTROLLER, message),
            is_templated=switches.controller_templates,
        )  # fmt: skip
        placed = PartitionMap(at)
        self.cores = [
            CommandedCore(definition, worker, placed, _Outbox(self, worker), clock=clock, poll=poll)
            for worker in range(workers)
        ]
        for (group, index), worker in at.items():
            members = definition.members(group)
            values = {dataset: first_value(definition.datasets[dataset], index) for dataset in members}
            self.cores[worker].hold((group, index), values)
        for core in self.cores:
            for copy in definition.copies():
                core.put_copy(copy, first_value(definition.datasets[copy], 0))
        self._queues: dict[int, list[tuple[int, bytes]]] = {}

    # ---- frames -----------------------------------------------------------------------------------

    def put(self, sender: int, peer: int, message: Any) -> None:
        frame = ENCODER.encode(message)
        kind = type(message).__name__
        self.frames[kind] += 1
        self.bytes[kind] += len(frame)
        match message:
            case Dispatch(commands=each) | Submit(tasks=each) | Completed(numbers=each):
                self.messages[kind] += len(each)
            case _:
                self.messages[kind] += 1
        self._carry(sender, peer, frame)

    def _carry(self, sender: int, peer: int, frame: bytes) -> None:
        self._queues.setdefault(peer, []).append((sender, frame))

    def timed(self, peer: int, work: Callable[[], None]) -> int:
        """Have a part work; its CPU time in ns."""
        then = time.thread_time_ns()
        work()
        spent = time.thread_time_ns() - then
        part = {DRIVER: "driver", CONTROLLER: "controller"}.get(peer, "workers")
        self.cpu_ns[part] += spent
        return spent

    def handle(self, peer: int, frames: list[tuple[int, bytes]]) -> None:
        """Let the controller or a worker take in frames, and do what is to be done."""
        core: Any = self.controller if peer == CONTROLLER else self.cores[peer]
        for sender, frame in frames:
            core.receive(sender, DECODER.decode(frame))
        core.step()

    def answered(self, frame: bytes) -> Answer | None:
        message = DECODER.decode(frame)
        assert isinstance(message, Answer | Unknown)
        return self.submissions.receive(message)

    # ---- blocks -----------------------------------------------------------------------------------

    def run(self, program: Callable[[], Any]) -> None:
        """Call the program; `by_block` has what each block took."""
        self.df._called(program, Calls(self._run_counted))

    def _run_counted(self, block: Block) -> bool:
        before = self.cpu_ns.copy()
        value = self.run_block(block)
        self.by_block.append(Counter({part: spent - before[part] for part, spent in self.cpu_ns.items()}))
        return value

    def run_block(self, block: Block) -> bool:
        self.timed(DRIVER, lambda: self.submissions.begin(block))
        while True:
            for peer in [CONTROLLER, *self._queues]:
                frames = self._queues.pop(peer, []) if peer != DRIVER else []
                if frames:
                    self.timed(peer, lambda peer=peer, frames=frames: self.handle(peer, frames))  # type: ignore[misc]
            for _, frame in self._queues.pop(DRIVER, ()):
                answer = self.answered(frame)
                if answer is not None:
                    return answer.value


class Cluster(Pump):
    """The same in virtual time: a controller, workers that do one thing at a time, links with a delay.

    A program's functions call `spend`, which takes time of the worker that runs them.
    """

    def __init__(self, df: Dataflow, workers: int, switches: Switches = ALL_ON) -> None:
        self.engine = Engine()
        self._answer: Answer | None = None
        self._spent_s = 0.0
        self._sent: list[tuple[int, int, bytes]] = []
        self._free_s: Counter[int] = Counter()
        """When each is done with what it does."""
        self._waiting: dict[int, list[tuple[int, bytes]]] = {}
        """Frames that came while it was not."""
        super().__init__(df, workers, switches, clock=lambda: 1, poll=lambda now: STOP)
        self.block_s: list[float] = []
        """How long each block took, in virtual time."""

    def spend(self, duration_s: float) -> None:
        self._spent_s += duration_s

    def _carry(self, sender: int, peer: int, frame: bytes) -> None:
        self._sent.append((sender, peer, frame))

    def run_block(self, block: Block) -> bool:
        engine, began_s, self._answer = self.engine, self.engine.now_s, None
        self._go_on(DRIVER, lambda: self.submissions.begin(block))
        while self._answer is None:
            at_s = engine.next_s()
            assert at_s is not None, "the block waits for ever"
            engine.run(at_s)
        self.block_s.append(engine.now_s - began_s)
        return self._answer.value

    def _go_on(self, peer: int, work: Callable[[], None]) -> None:
        """Work takes as long as it took; what it sends leaves at its end."""
        self._spent_s = 0.0
        spent_ns = self.timed(peer, work)
        done_s = self.engine.now_s + spent_ns / 1e9 + self._spent_s
        self._free_s[peer] = done_s  # type: ignore[assignment]
        sent, self._sent = self._sent, []
        for sender, receiver, frame in sent:
            self.engine.at(done_s + DELAY_S, self._arrive, (receiver, sender, frame))
        if peer != DRIVER:
            self.engine.at(done_s, self._look, peer)

    def _arrive(self, delivery: tuple[int, int, bytes]) -> None:
        peer, sender, frame = delivery
        if peer == DRIVER:
            self._answer = self.answered(frame)
            return
        self._waiting.setdefault(peer, []).append((sender, frame))
        if self._free_s[peer] <= self.engine.now_s:
            self._look(peer)

    def _look(self, peer: int) -> None:
        """Work if there is something to do."""
        if self._free_s[peer] > self.engine.now_s:
            return
        frames = self._waiting.pop(peer, [])
        if frames or (peer >= 0 and self.cores[peer]._run.queue):
            self._go_on(peer, lambda: self.handle(peer, frames))
