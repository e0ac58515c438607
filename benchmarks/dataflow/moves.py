"""Iterations of two workers over TCP while a partition of 128 MB moves from one to the other, and without.

Each of two processes runs tasks of a fixed work and looks at its link between them, as a worker does; an iteration ends
with a message to the other process and one from there. Runs with and without a move are interleaved. CPU time is that
of both processes, with the threads that move the partition; on busy cores wall times say little, and CPU times more.
"""

from __future__ import annotations

import gc
import multiprocessing
import secrets
import tempfile
import time
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from frontends.dataflow.dialling import Address
from frontends.dataflow.memory import Memory
from frontends.dataflow.messages import Arrived, Partition
from frontends.dataflow.transport import Links

TASKS = 10
"""Of an iteration, at each of both."""
AROUND = 10
"""Iterations from the begin of the move on that are looked at together."""
WAIT_S = 30.0
Times = list[tuple[float, float]]
"""Wall and CPU seconds of each iteration."""


class Plan(NamedTuple):
    """What a run has. An iteration takes 50 ms, as in the paper (§5.4)."""

    moved_bytes: int = 128 << 20
    iterations: int = 20
    move_at: int = 5
    """The iteration at whose begin the partition leaves. The first ones are left out, as memory is new then."""
    task_rounds: int = 125
    """Of a task's work: some 5 ms in all."""


PLAN = Plan()


def _work(array: np.ndarray[Any, Any], rounds: int) -> None:
    """What a task computes."""
    for _ in range(rounds):
        np.sqrt(array, out=array)
        array += 1.0


class _Half:
    """One of the two workers."""

    def __init__(self, me: int, key: bytes) -> None:
        self.me, self.peer = me, 1 - me
        self.memory = Memory()
        self.links = Links(me, key, self.memory, transport="tcp")
        self.came = 0
        """Iterations that the other side has ended."""
        self.arrived_at = -1
        """The iteration in which the partition came."""
        self.array = np.ones(32_768)

    def _look(self, iteration: int, wait_s: float) -> None:
        self.links.wait(wait_s)
        for _, message in self.links.receive():
            if isinstance(message, Partition):
                self.arrived_at = iteration
            else:
                self.came += 1
        assert not self.links.lost()

    def run(self, plan: Plan, *, moves: bool) -> Times:
        """Seconds of each iteration. The partition goes from 1 to 0."""
        self.came, self.arrived_at = 0, -1
        times: Times = []
        partition = None
        if moves and self.me == 1:
            array = self.memory.empty(plan.moved_bytes // 8)
            array[:] = 1.0
            partition = Partition(1, 2, 3, 4, {0: array}, {}, [])
            del array
        for iteration in range(plan.iterations):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            if iteration == plan.move_at and partition is not None:
                self.links.send(self.peer, partition)
                partition = None
            for _ in range(TASKS):
                _work(self.array, plan.task_rounds)
                self._look(iteration, 0.0)
            self.links.send(self.peer, Arrived(0, 0, iteration, 0))
            while self.came <= iteration:
                self._look(iteration, WAIT_S)
            times.append((time.perf_counter() - wall_s, time.process_time() - cpu_s))
        while moves and self.me == 0 and self.arrived_at < 0:
            self._look(plan.iterations, WAIT_S)
        gc.collect()
        return times


def _other(key: bytes, plan: Plan, pipe: Connection) -> None:
    half = _Half(1, key)
    address = pipe.recv()
    assert isinstance(address, Address)
    half.links.dial(0, address)
    pipe.send(True)
    while (moves := pipe.recv()) is not None:
        pipe.send(half.run(plan, moves=moves))
    half.links.close(0)


def measured(repeat: int, plan: Plan) -> tuple[list[tuple[Times, int]], list[Times]]:
    """Runs with a move, each with the iteration in which the partition was there, and runs without; of both halves the
    longer wall time and the sum of CPU times."""
    key = secrets.token_bytes(32)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        process = context.Process(target=_other, args=(key, plan, theirs))
        process.start()
        half = _Half(0, key)
        ours.send(half.links.listen(directory))
        until_s = time.monotonic() + WAIT_S
        while not half.links.peers() and time.monotonic() < until_s:
            half.links.wait(0.1)
            half.links.receive()
        assert ours.recv()
        moved: list[tuple[Times, int]] = []
        plain: list[Times] = []
        for number in range(2 * repeat):
            moves = number % 2 == 1
            ours.send(moves)
            mine = half.run(plan, moves=moves)
            both = [(max(one[0], other[0]), one[1] + other[1]) for one, other in zip(mine, ours.recv(), strict=True)]
            if moves:
                moved.append((both, half.arrived_at))
            else:
                plain.append(both)
        ours.send(None)
        process.join()
        half.links.close(1)
    return moved, plain


def rows(repeat: int = 5, plan: Plan = PLAN) -> list[dict[str, object]]:
    """A row for wall and one for CPU time: an iteration without a move, one during a move, and one of ten around it."""
    moved, plain = measured(repeat, plan)
    made: list[dict[str, object]] = []
    for column, clock in enumerate(("wall", "CPU of both")):
        usual = median(times[column] for run in plain for times in run[plan.move_at :])
        during, around, longest = [], [], []
        for run, arrived_at in moved:
            last = min(arrived_at, plan.iterations - 1)
            parts = [times[column] for times in run[plan.move_at : last + 1]]
            during.append(sum(parts) / len(parts))
            several = [times[column] for times in run[plan.move_at : plan.move_at + AROUND]]
            around.append(sum(several) / len(several))
            longest.append(max(parts))
        made.append(
            {
                "time": clock,
                "without (ms)": usual * 1e3,
                "iterations of a move": median(min(at, plan.iterations - 1) - plan.move_at + 1 for _, at in moved),
                "during (ms)": median(during) * 1e3,
                "during × without": median(during) / usual,
                f"{AROUND} from the move on × without": median(around) / usual,
                "longest × without": median(longest) / usual,
            }
        )
    return made
