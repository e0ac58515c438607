"""Peers of a program in one process, for tests of their links."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import Any

from frontends.dataflow.dialling import Transport
from frontends.dataflow.memory import Memory
from frontends.dataflow.messages import Arrived, Chunk
from frontends.dataflow.transport import Links

KEY = secrets.token_bytes(32)
WAIT_S = 20.0
PUMP_S = 0.001


class Peer:
    """Links with the memory that they use."""

    def __init__(self, me: int, transport: Transport = "auto", key: bytes = KEY, **options: Any) -> None:
        self.me, self.transport = me, transport
        self.memory = Memory()
        self.links = Links(me, key, self.memory, transport=transport, **options)

    def messages(self, count: int, sender: Peer | None = None) -> list[tuple[int, Any]]:
        """The next so many messages, with their senders. `sender` is named where its sockets cannot take all at once:
        it lives in this thread, too."""
        came: list[tuple[int, Any]] = []
        until_s = time.monotonic() + WAIT_S
        while len(came) < count:
            assert time.monotonic() < until_s, f"only {len(came)} came; lost: {self.links.lost()}"
            self.links.wait(WAIT_S if sender is None else PUMP_S)
            came += self.links.receive()
            if sender is not None:
                assert not sender.links.receive()
        assert len(came) == count, came
        return came

    def message(self, sender: Peer | None = None) -> Any:
        return self.messages(1, sender)[0][1]

    def lost(self) -> list[tuple[int, str]]:
        """Who is lost next."""
        for _ in range(100):
            self.links.wait(WAIT_S)
            self.links.receive()
            if lost := self.links.lost():
                return lost
        raise AssertionError("nobody is lost")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - pathlib would follow them


def open_memory() -> int:
    """Descriptors of memory."""
    links = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    return sum(link.startswith("/memfd:sparrow-dataflow") for link in links)


def marked(number: int) -> Arrived:
    return Arrived(1, 2, number, 4)


def chunk(*values: Any) -> Chunk:
    return Chunk(1, 2, 3, 4, 5, 6, 7, 8, 9, 0, list(values))
