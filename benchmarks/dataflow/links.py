"""Messages and arrays between two processes of this machine: links of a dataflow program beside a process pool.

A round trip is a small message and the same one back; with an array, the array there and a small message back when its
first element was read. CPU time is that of both processes. Runs of all rows are interleaved; medians are shown.
"""

from __future__ import annotations

import multiprocessing
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Any

import numpy as np

from frontends.dataflow.dialling import Address, Transport
from frontends.dataflow.encoding import Encoder
from frontends.dataflow.frames import BATCH_PREFIX, HEADER
from frontends.dataflow.memory import Memory
from frontends.dataflow.messages import Arrived, Chunk, Message, Partition, Replica
from frontends.dataflow.transport import Links

SMALL_BYTES = 55
"""Of a frame with one message."""
SIZES = (16 << 10, 64 << 10, 1 << 20, 16 << 20)
RUN_BYTES = 32 << 20
"""Of arrays in a run of a row."""
RUN_TRIPS = (2, 1_000)
"""At least and at most, in a run of a row."""
BATCH = 100
WAIT_S = 30.0
STUDY_US = {
    ("unix", SMALL_BYTES): 7.2,
    ("unix", 16 << 10): 26.0,
    ("unix", 64 << 10): 17.0,
    ("unix", 1 << 20): 97.0,
    ("unix", 16 << 20): 1_899.0,
    ("unix, handed over", 1 << 20): 91.0,
    ("unix, handed over", 16 << 20): 117.0,
}
"""What prototypes of a few lines took on such a machine when it was quiet."""
_ANSWER, _STOP, _CPU = Arrived(0, 0, 0, 0), Arrived(1, 0, 0, 0), Arrived(2, 0, 0, 0)


# ---- the other process ------------------------------------------------------------------------------


def _answer(message: Message) -> Message:
    match message:
        case Chunk():
            assert message.chunks[0][0] == 1
            return _ANSWER
        case Partition():
            assert message.values[0][0] == 1
            return _ANSWER
        case Arrived(epoch=2):
            return Replica(0, 0, 0, 0, 0, 0, time.process_time())
        case _:
            return message


def _answer_all(transport: Transport, key: bytes, directory: str, pipe: Connection) -> None:
    """Answer whatever comes until the other side says stop."""
    links = Links(0, key, Memory(), transport=transport)
    pipe.send(links.listen(directory))
    while True:
        links.wait(WAIT_S)
        for peer, message in links.receive():
            if message == _STOP:
                links.close(0)
                return
            answer = _answer(message)
            del message  # Its memory goes back with the answer.
            links.post(peer, answer)
        links.flush()


def _read(array: np.ndarray[Any, Any]) -> float:
    return float(array[0])


def _echo(data: bytes) -> bytes:
    return data


# ---- this process -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way:
    """How something travels."""

    name: str
    prepare: Callable[[int], Any]
    """What is sent, by its size."""
    trip: Callable[[Any], None]
    other_cpu_s: Callable[[], float]


class LinkedProcess:
    """Another process with a link to this one."""

    def __init__(self, transport: Transport, directory: str) -> None:
        key = secrets.token_bytes(32)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_answer_all, args=(transport, key, directory, theirs))
        self._process.start()
        address = ours.recv()
        assert isinstance(address, Address)
        self.memory = Memory()
        self.links = Links(1, key, self.memory, transport=transport)
        self.links.dial(0, address)

    def ask(self, message: Message) -> Any:
        self.links.send(0, message)
        return self.answers(1)[-1]

    def answers(self, count: int) -> list[Any]:
        came: list[Any] = []
        while len(came) < count:
            self.links.wait(WAIT_S)
            came += [message for _, message in self.links.receive()]
            assert not self.links.lost()
        return came

    def trip(self, message: Message) -> None:
        self.ask(message)

    def batch(self, message: Message) -> None:
        """So many messages in a frame, and as many back."""
        for _ in range(BATCH):
            self.links.post(0, message)
        self.answers(BATCH)

    def cpu_s(self) -> float:
        return float(self.ask(_CPU).value)

    def close(self) -> None:
        self.links.send(0, _STOP)
        self._process.join()
        self.links.close(0)


def small_message() -> Replica:
    """A message whose frame has `SMALL_BYTES`."""
    empty = bytearray()
    Encoder().append(Replica(1, 2, 1 << 40, 4, 5, 6, b""), empty)
    return Replica(1, 2, 1 << 40, 4, 5, 6, bytes(SMALL_BYTES - HEADER.size - BATCH_PREFIX.size - len(empty)))


def _chunk(size: int) -> Message:
    return small_message() if size == SMALL_BYTES else Chunk(1, 2, 3, 4, 5, 6, 7, 8, 9, 0, [np.ones(size // 8)])


@contextmanager
def ways() -> Iterator[list[Way]]:
    """All that are compared, with their processes."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        unix, tcp = LinkedProcess("unix", directory), LinkedProcess("tcp", directory)
        stack.callback(unix.close)
        stack.callback(tcp.close)
        pool = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))

        def handed_over(size: int) -> Callable[[], Message]:
            def message() -> Message:
                array = unix.memory.empty(size // 8)
                array[:] = 1
                return Partition(1, 2, 3, 4, {0: array}, {}, [])

            return message

        def through_pool(value: Any) -> None:
            pool.submit(_echo if isinstance(value, bytes) else _read, value).result()

        yield [
            Way("unix", _chunk, unix.trip, unix.cpu_s),
            Way("unix, handed over", handed_over, unix.trip, unix.cpu_s),
            Way(f"unix, {BATCH} at once", _chunk, unix.batch, unix.cpu_s),
            Way("tcp", _chunk, tcp.trip, tcp.cpu_s),
            Way(
                "process pool",
                lambda size: bytes(SMALL_BYTES) if size == SMALL_BYTES else np.ones(size // 8),
                through_pool,
                lambda: pool.submit(time.process_time).result(),
            ),
        ]


def measured(way: Way, size: int) -> tuple[list[float], float]:
    """Times of round trips, and CPU time of both processes for one; µs."""
    trips = min(max(RUN_BYTES // size, RUN_TRIPS[0]), RUN_TRIPS[1])
    prepared = way.prepare(size)
    each = []
    others, ours = way.other_cpu_s(), 0.0
    for _ in range(trips):
        what = prepared() if callable(prepared) else prepared
        ours_before, then = time.process_time(), time.perf_counter()
        way.trip(what)
        each.append((time.perf_counter() - then) * 1e6)
        ours += time.process_time() - ours_before
        del what
    return each, (ours + way.other_cpu_s() - others) / trips * 1e6


def rows(repeat: int = 10) -> list[dict[str, object]]:
    """A row for each way and size."""
    times: dict[tuple[str, int], list[float]] = {}
    cpu: dict[tuple[str, int], list[float]] = {}
    with ways() as all_ways:
        plan = [(way, size) for size in (SMALL_BYTES, *SIZES) for way in all_ways if _goes(way.name, size)]
        for _ in range(repeat):
            for way, size in plan:
                each, cpu_us = measured(way, size)
                times.setdefault((way.name, size), []).extend(each)
                cpu.setdefault((way.name, size), []).append(cpu_us)
    return [
        {
            "way": name,
            "bytes": size,
            "median_us": round(median(each), 1),
            "p10_us": round(quantiles(each, n=10)[0], 1),
            "cpu_us": round(median(cpu[name, size]), 1),
            "prototype_us": STUDY_US.get((name, size)),
        }
        for (name, size), each in times.items()
    ]


def _goes(name: str, size: int) -> bool:
    """Small arrays are not handed over, and large ones not sent a hundred at once."""
    if "handed" in name:
        return size > SIZES[0]
    return size == SMALL_BYTES or "at once" not in name
