"""Cores of the commanded planes wired by encoded frames in one thread, with the CPU time of each part.

Frames are encoded and decoded as on a link, so what is measured is all that a message costs but the system's calls.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from frontends.dataflow import Dataflow
from frontends.dataflow.calls import Block
from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.commanding_core import ALL_ON, CommandingCore, Switches
from frontends.dataflow.commands import (
    CONTROLLER,
    DRIVER,
    Answer,
    Commanded,
    Completed,
    Dispatch,
    Submit,
    Unknown,
)
from frontends.dataflow.messages import Chunk, Marker
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.placement import initial
from frontends.dataflow.store import first_value
from frontends.dataflow.submissions import Submissions

POLL_NS = 1_000_000


def _plain(value: Any) -> Any:
    """Arrays, and numbers of numpy, as numbers: those of the programs here are as small."""
    return value.tolist()


ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
DECODER = msgspec.msgpack.Decoder(Commanded | Chunk | Marker)


class _Outbox:
    """Encodes what a core sends."""

    def __init__(self, pump: Pump, me: int) -> None:
        self.pump, self.me = pump, me

    def send(self, peer: int, message: Any) -> None:
        self.pump.put(self.me, peer, message)

    def report(self, message: Any) -> None:
        self.pump.put(self.me, CONTROLLER, message)


class Pump:
    """Runs blocks as a Dataflow's runner does. `cpu_ns` is by part: driver, controller, workers."""

    def __init__(
        self, df: Dataflow, workers: int, switches: Switches = ALL_ON, *, placed: Mapping[tuple[int, int], int] = {}
    ) -> None:
        df._freeze()
        self.definition = definition = df._definition
        self.queues: dict[int, list[tuple[int, bytes]]] = {}
        self.cpu_ns: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        """Through the controller, by kind; a frame of single tasks is as many as it has."""
        self.frames: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        at = placed or initial(definition.group_partitions(), range(workers))
        self.controller = CommandingCore(
            definition, range(workers), PartitionMap(at), _Outbox(self, CONTROLLER), switches=switches
        )
        self.submissions = Submissions(
            definition, lambda message: self.put(DRIVER, CONTROLLER, message),
            is_templated=switches.controller_templates,
        )  # fmt: skip
        self.cores = [
            CommandedCore(
                definition, worker, PartitionMap(at), _Outbox(self, worker),
                clock=time.perf_counter_ns, poll=lambda now: now + POLL_NS,
            )
            for worker in range(workers)
        ]  # fmt: skip
        for (group, index), worker in at.items():
            values = {
                dataset: first_value(definition.datasets[dataset], index)
                for dataset in definition.members(group)
            }  # fmt: skip
            self.cores[worker].hold((group, index), values)
        for core in self.cores:
            for copy in definition.copies():
                core.put_copy(copy, first_value(definition.datasets[copy], 0))

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
        self.queues.setdefault(peer, []).append((sender, frame))

    def _timed(self, part: str, work: Callable[[], None]) -> None:
        then = time.thread_time_ns()
        work()
        self.cpu_ns[part] += time.thread_time_ns() - then

    def load(self) -> None: ...

    def run_block(self, block: Block) -> bool:
        self._timed("driver", lambda: self.submissions.begin(block))
        while True:
            if self.queues.get(CONTROLLER):
                self._timed("controller", self._control)
            for worker in [worker for worker, queue in self.queues.items() if worker >= 0 and queue]:
                self._timed("workers", lambda worker=worker: self._work(worker))  # type: ignore[misc]
            for _, frame in self.queues.pop(DRIVER, ()):
                message = DECODER.decode(frame)
                assert isinstance(message, Answer | Unknown)
                answer = self.submissions.receive(message)
                if answer is not None:
                    return answer.value

    def _control(self) -> None:
        for sender, frame in self.queues.pop(CONTROLLER):
            self.controller.receive(sender, DECODER.decode(frame))
        self.controller.step()

    def _work(self, worker: int) -> None:
        core = self.cores[worker]
        for sender, frame in self.queues.pop(worker):
            core.receive(sender, DECODER.decode(frame))
        core.step()
