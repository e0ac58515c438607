"""Cores of workers that spawn their tasks themselves, in one process, wired by frames, with the CPU time of each.

Messages are encoded and decoded as on a link, so what is measured is all that a message costs but the system's calls.
`LocalPump` lets all happen at once; `LocalInTime` in virtual time, as `pump.Cluster` does for commanded workers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from benchmarks.dataflow.pump import DELAY_S, POLL_NS
from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import STOP
from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.encoding import Bytes, Decoder, Encoder
from frontends.dataflow.inline import InlineRunner
from frontends.dataflow.local_core import LocalCore
from frontends.dataflow.messages import Message
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.placement import initial
from frontends.dataflow.stages import DatasetKind
from frontends.dataflow.store import first_value
from frontends.dataflow.values import copied
from simulator.engine import Engine

Frame = tuple[int, bytes, list[Bytes]]
"""Sender, the message, and the large arrays beside it."""


class _Outbox:
    """Encodes what a worker sends."""

    def __init__(self, pump: LocalPump, me: int) -> None:
        self.pump, self.me = pump, me

    def send(self, worker: int, message: Message) -> None:
        self.pump.put(self.me, worker, message)

    def report(self, message: Message) -> None:
        self.pump.reports[type(message).__name__] += 1

    def flush(self) -> None:
        """Each message is a frame of its own."""


class LocalPump:
    """Runs a Dataflow's program on `workers` cores.

    The program is called once, in this process; what its own calls cost is counted for each worker, as each would call
    it. All cores share one map of the partitions, as nothing moves here: a thousand maps of ten thousand partitions
    would be a measurement of memory. `played` names the workers whose cores there are, if not all: others send nothing
    that these wait for, and what they are sent is encoded and dropped.
    """

    def __init__(
        self,
        df: Dataflow,
        workers: int,
        clock: Callable[[], int] = time.perf_counter_ns,
        poll: Callable[[int], int] = lambda now: now + POLL_NS,
        played: Collection[int] | None = None,
    ) -> None:
        df._freeze()
        self.df, self.definition = df, df._definition
        self.cpu_ns = np.zeros(workers)
        """Of each worker, its calls of the program included."""
        self.frames: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        """By kind, arrays beside messages included."""
        self.reports: Counter[str] = Counter()
        """Messages to the controller."""
        self._tasks_before = 0
        self._blocks: list[Block] = []
        self._next = [0] * workers
        """The block that each begins next."""
        self._encoder, self._decoder = Encoder(), Decoder(Message)
        self._queues: dict[int, list[Frame]] = {}
        placed = PartitionMap(initial(self.definition.group_partitions(), range(workers)))
        self.cores = {
            worker: LocalCore(
                self.definition, worker, range(workers), placed, _Outbox(self, worker), clock=clock, poll=poll
            )
            for worker in (range(workers) if played is None else played)
        }
        for slot in placed:
            core = self.cores.get(placed[slot].worker)
            if core is not None:
                members = self.definition.members(slot[0])
                core.hold(slot, {member: first_value(self.definition.datasets[member], slot[1]) for member in members})
        for copy in self.definition.copies():
            value = first_value(self.definition.datasets[copy], 0)
            for core in self.cores.values():
                core.put_copy(copy, copied(value))

    @property
    def tasks_run(self) -> int:
        return sum(core.tasks_run for core in self.cores.values()) - self._tasks_before

    def value(self, dataset: int) -> list[Any]:
        """The partitions of a dataset; of a replicated one the first worker's copy."""
        spec = self.definition.datasets[dataset]
        if spec.kind is DatasetKind.REPLICATED:
            return [self.cores[0].store.value((dataset, 0))]
        group = self.definition.groups[dataset]
        placed = self.cores[0].placed
        slots = [(group, index) for index in range(spec.partitions)]
        return [self.cores[placed[slot].worker].store.value((dataset, slot[1])) for slot in slots]

    def put(self, sender: int, worker: int, message: Message) -> None:
        out = bytearray()
        buffers = self._encoder.append(message, out)
        kind = type(message).__name__
        self.frames[kind] += 1
        self.bytes[kind] += len(out) + sum(buffer.nbytes for buffer in buffers)
        if worker in self.cores:
            self._carry(worker, (sender, bytes(out), buffers))

    def _carry(self, worker: int, frame: Frame) -> None:
        self._queues.setdefault(worker, []).append(frame)

    def receive(self, worker: int, frames: list[Frame]) -> None:
        for sender, frame, buffers in frames:
            # A link's receiver has memory of its own.
            self.cores[worker].receive(sender, self._decoder.message(frame, [buffer.copy() for buffer in buffers]))

    def timed(self, worker: int, work: Callable[[], Any]) -> int:
        """Have a worker work; its CPU time in ns."""
        then = time.thread_time_ns()
        work()
        spent = time.thread_time_ns() - then
        self.cpu_ns[worker] += spent
        return spent

    # ---- the program ------------------------------------------------------------------------------

    def run(
        self, program: Callable[[], Any], uncounted_blocks: int = 0, says: Callable[[Block], bool] | None = None
    ) -> None:
        """Have each worker go through the program's blocks, as far as it can without the others.

        CPU time and messages of the first blocks, which derive graphs, are forgotten.
        """
        blocks, calling_ns = blocks_of(self.df, program, says)
        self._play(blocks[:uncounted_blocks])
        self.cpu_ns[:] = 0
        for counted in (self.frames, self.bytes, self.reports):
            counted.clear()
        self._tasks_before = sum(core.tasks_run for core in self.cores.values())
        self._play(blocks[uncounted_blocks:])
        self.cpu_ns += sum(calling_ns[uncounted_blocks:])

    def _play(self, blocks: list[Block]) -> None:
        self._blocks += blocks
        for worker in self.cores:
            self.timed(worker, lambda worker=worker: self._turn(worker, []))  # type: ignore[misc]
        while self._queues:
            for worker in list(self._queues):
                frames = self._queues.pop(worker)
                self.timed(worker, lambda worker=worker, frames=frames: self._turn(worker, frames))  # type: ignore[misc]
        assert all(self._next[worker] == len(self._blocks) for worker in self.cores), "a worker waits for ever"

    def _turn(self, worker: int, frames: list[Frame]) -> None:
        self.receive(worker, frames)
        while self._ends_block(worker):
            pass

    def _ends_block(self, worker: int) -> bool:
        """Let a worker go on, with the next block if the one before is over; whether it came to a block's end."""
        core = self.cores[worker]
        if core.finished:
            if self._next[worker] == len(self._blocks):
                return False
            core.begin(self._blocks[self._next[worker]])
            self._next[worker] += 1
        core.step()
        if not core.is_done():
            return False
        core.finish()
        return True


class LocalInTime(LocalPump):
    """The same in virtual time: each worker does one thing at a time, links have a delay, tasks `spend` time."""

    def __init__(self, df: Dataflow, workers: int) -> None:
        self.engine = Engine()
        self._spent_s = 0.0
        self._sent: list[tuple[int, Frame]] = []
        self._free_s = [0.0] * workers
        """When each is done with what it does."""
        super().__init__(df, workers, clock=lambda: 1, poll=lambda now: STOP)
        self._has_ended = False
        """Whether a block ended in the turn."""
        self.over_s: list[float] = []
        """When each block was over at the worker that ended it last."""

    def spend(self, duration_s: float) -> None:
        self._spent_s += duration_s

    def _play(self, blocks: list[Block]) -> None:
        """As each goes through them by itself, signals may not depend on virtual time."""
        self._blocks += blocks
        self.over_s += [0.0] * len(blocks)
        for worker in self.cores:
            self.engine.at(self.engine.now_s, self._look, worker)
        self.engine.run()
        assert all(self._next[worker] == len(self._blocks) for worker in self.cores), "a worker waits for ever"

    def _carry(self, worker: int, frame: Frame) -> None:
        self._sent.append((worker, frame))

    def _arrive(self, delivery: tuple[int, Frame]) -> None:
        worker, frame = delivery
        self._queues.setdefault(worker, []).append(frame)
        self._look(worker)

    def _look(self, worker: int) -> None:
        """Work if there is something to do; what is sent leaves at the end of it."""
        core, now_s = self.cores[worker], self.engine.now_s
        if self._free_s[worker] > now_s:
            return
        frames = self._queues.pop(worker, [])
        may_begin = core.finished and self._next[worker] < len(self._blocks)
        if not (frames or may_begin or core.has_work):
            return
        self._spent_s = 0.0
        spent_ns = self.timed(worker, lambda: self._turn(worker, frames))
        done_s = self._free_s[worker] = now_s + spent_ns / 1e9 + self._spent_s
        for receiver, frame in self._sent:
            self.engine.at(done_s + DELAY_S, self._arrive, (receiver, frame))
        self._sent = []
        if self._has_ended:
            number = self._next[worker] - 1
            self.over_s[number] = max(self.over_s[number], done_s)
        self.engine.at(done_s, self._look, worker)

    def _turn(self, worker: int, frames: list[Frame]) -> None:
        self.receive(worker, frames)
        self._has_ended = self._ends_block(worker)


def blocks_of(
    df: Dataflow, program: Callable[[], Any], says: Callable[[Block], bool] | None = None
) -> tuple[list[Block], list[int]]:
    """The blocks that a program calls, and CPU time of the calls of each in ns.

    Each is run once in this process, unless `says` tells what its signal would say.
    """
    df._freeze()
    if says is None:
        runner = InlineRunner(df._definition)
        runner.load()
        says = runner.run_block
    blocks: list[Block] = []
    calling_ns: list[int] = []
    then = time.thread_time_ns()

    def run_block(block: Block) -> bool:
        nonlocal then
        calling_ns.append(time.thread_time_ns() - then)
        blocks.append(block)
        said = says(block)
        then = time.thread_time_ns()
        return said

    df._called(program, Calls(run_block))
    return blocks, calling_ns
