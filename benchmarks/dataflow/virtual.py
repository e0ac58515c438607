"""Plane `local` in virtual time: the cores of controller and workers, links with a delay, tasks as long as stated.

All that decides where partitions are is the real thing: times of tasks as workers report them, the looks of the
controller at these, orders, moves. The cores themselves take no time, nor does anything else on the machine, so that
figures are the same on busy cores and on quiet ones.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import STOP, Slot
from frontends.dataflow.calls import Block, Calls, rolled
from frontends.dataflow.control_messages import CONTROLLER, Beat, Hello, Peer, Runs, Settings, Shipped
from frontends.dataflow.controller import TICK_S
from frontends.dataflow.controller_core import ControllerCore
from frontends.dataflow.controller_effects import Send
from frontends.dataflow.local_core import LocalCore
from frontends.dataflow.messages import Partition
from frontends.dataflow.worker import BEAT_EVERY_S, REPORT_EVERY_S
from frontends.dataflow.worker_core import WorkerCore, layout_of
from simulator.engine import Engine

DELAY_S = 100e-6
"""Of a message."""
BYTES_PER_S = 1.25e9
"""At which partitions move: 10 Gbit/s, as in the paper."""
Cost = Callable[[int, int], float]
"""Seconds that the task of a partition takes at a worker: (worker, partition)."""


class _FirstBlock(Exception):
    def __init__(self, block: Block) -> None:
        self.block = block


def _stop(block: Block) -> bool:
    raise _FirstBlock(block)


class _Worker:
    """A core, and how far its own time is: tasks take time, and what they send leaves when they end."""

    def __init__(self, cluster: VirtualCluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.now_s = cluster.engine.now_s
        self.waiting: list[tuple[int, Any]] = []
        self.block = cluster.first_block
        self.block_ends_s: list[float] = []
        self.reported_s = self.beaten_s = 0.0
        self.core = WorkerCore(
            number, self, lambda data: cluster.definition, clock=lambda: int(self.now_s * 1e9), poll=lambda now: STOP
        )

    def send(self, peer: int, message: Any) -> None:
        self.cluster.carry(self.now_s, self.number, peer, message)

    def flush(self) -> None:
        """Nothing waits."""

    def arrive(self, message: tuple[int, Any]) -> None:
        self.waiting.append(message)
        self.look()

    def look(self, _: object = None) -> None:
        """Take what has come and do one thing more, if the one before is over."""
        engine = self.cluster.engine
        if self.now_s > engine.now_s:
            return  # It looks again when the task is over.
        self.now_s = engine.now_s
        waiting, self.waiting = self.waiting, []
        for sender, message in waiting:
            self.core.receive(sender, message)
        self._report()
        if self._goes_on():
            engine.at(self.now_s, self.look)

    def _report(self) -> None:
        if self.now_s >= self.beaten_s + BEAT_EVERY_S:
            self.beaten_s = self.now_s
            self.send(CONTROLLER, Beat(self.number))
        if self.now_s >= self.reported_s + REPORT_EVERY_S:
            self.reported_s = self.now_s
            self.core.report_used()

    def _goes_on(self) -> bool:
        """Run a task, or come to the next block; whether there was anything to do."""
        if self.core.wants_load:
            self.core.load()
            return True
        core = self.core.core
        if core is None:
            return False
        assert isinstance(core, LocalCore)
        if core.is_done():
            core.finish()
            self.block_ends_s.append(self.now_s)
            before = self.block
            self.block = before._replace(
                number=before.number + 1,
                first_call=before.first_call + len(before.stages),
                hash_before=rolled(before.hash_before, before.stages),
            )
            return True
        if core.finished:
            core.begin(self.block)
            return True
        has_work = core.has_work
        if has_work or core.giving:
            self.cluster.runs = self
            core.step()
        return has_work


class VirtualCluster:
    """Runs an endless loop over partitions, whose tasks take `cost_s`; `size_bytes`: of a partition that moves."""

    def __init__(self, workers: int, partitions: int, cost_s: Cost, size_bytes: int = 0) -> None:
        self.engine, self.size_bytes = Engine(), size_bytes
        self.runs: _Worker | None = None
        df = Dataflow(plane="inline", partitions=partitions, progress=False)
        self.dataset = df.partition(np.arange(partitions))
        total = df.single(np.zeros(1, int))

        def spend(x: Any) -> None:
            assert self.runs is not None
            self.runs.now_s += cost_s(self.runs.number, int(x[0]))

        work = df.stage(writes=[self.dataset], name="work")(_Shared(spend))
        add = df.reduce(self.dataset, into=total)
        more = df.signal(on=total, name="more")(lambda total: True)

        def program() -> None:
            work()
            add()
            more()

        df._freeze()
        self.definition = df._definition
        try:
            df._called(program, Calls(_stop))
        except _FirstBlock as first:
            self.first_block = first.block
        self.controller = ControllerCore(Settings(workers, workers, workers, 10.0, None, "", 0, 0, []), Random(0))
        self.workers = [_Worker(self, number) for number in range(workers)]
        shipped = Shipped(0, layout_of(self.definition), b"", b"")
        self._tell(lambda: self.controller.run(Runs([shipped], True), 0.0))
        for number in range(workers):
            hello = Hello(number, ("", "", "", 0), "")
            self._tell(lambda number=number, hello=hello: self.controller.hello(number, hello, 0.0))  # type: ignore[misc]
        self.engine.at(TICK_S, self._tick)

    def carry(self, at_s: float, sender: int, peer: int, message: Any) -> None:
        size_bytes = self.size_bytes if isinstance(message, Partition) else 0
        arrives_s = at_s + DELAY_S + size_bytes / BYTES_PER_S
        if peer == CONTROLLER:
            self.engine.at(arrives_s, self._hear, (sender, message))
        elif peer >= 0:
            self.engine.at(arrives_s, self.workers[peer].arrive, (sender, message))

    def _hear(self, message: tuple[int, Any]) -> None:
        self._tell(lambda: self.controller.receive(*message, self.engine.now_s))

    def _tick(self, _: object) -> None:
        self._tell(lambda: self.controller.tick(self.engine.now_s))
        self.engine.at(self.engine.now_s + TICK_S, self._tick)

    def _tell(self, event: Callable[[], None]) -> None:
        event()
        for effect in self.controller.take_effects():
            if isinstance(effect, Send) and not isinstance(effect.message, Peer):
                self.carry(self.engine.now_s, CONTROLLER, effect.worker, effect.message)

    def run(self, until_s: float) -> None:
        self.engine.run(until_s)

    @property
    def moves(self) -> int:
        return self.controller.moves

    def iteration_s(self, from_s: float, until_s: float) -> float:
        """The mean time of the iterations that end within these times."""
        ends_s = [end_s for end_s in self.workers[0].block_ends_s if from_s <= end_s < until_s]
        return (ends_s[-1] - ends_s[0]) / (len(ends_s) - 1)

    def held(self) -> dict[int, list[Slot]]:
        """Where partitions are, by the controller's map."""
        return {worker.number: self.controller.placed.held_by(worker.number) for worker in self.workers}


class _Shared:
    """A function that is not copied with the stage that it is of."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._function = function

    def __call__(self, x: Any) -> None:
        self._function(x)

    def __deepcopy__(self, memo: object) -> _Shared:
        return self
