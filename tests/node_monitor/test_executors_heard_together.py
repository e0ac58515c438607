"""What several executors say in one turn of a node monitor's loop is one event, and one frame to their scheduler."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node_monitor.daemon import NodeMonitorDaemon
from node_monitor.options import NodeMonitorOptions
from sparrow_py.daemon.options import parse
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.node_monitor.test_standing_still import Dialled, scheduler
from tests.support.recorder import reserve
from tests.support.waiting import TIMEOUT_S


class Guest:
    """An executor that attaches itself."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._socket.setblocking(False)
        self._splitter = x.FrameSplitter(x.TO_EXECUTOR)
        self.say(x.ExecutorHello(x.EXECUTOR_PROTOCOL_VERSION, "", "guest", 1, "", 1))

    def say(self, message: x.ExecutorMessage) -> None:
        self._socket.sendall(x.encode_frame([message]))

    async def given(self) -> x.Run:
        """The next run that it is given."""
        loop = asyncio.get_running_loop()
        while True:
            for message in self._splitter.feed(await loop.sock_recv(self._socket, 1 << 16)):
                if type(message) is x.Run:
                    return message

    def end(self, run: x.Run) -> None:
        """Say that the run has ended."""
        self.say(x.Done(run.run, TaskStatus.FINISHED, b"", "", 0.0, 0.0))

    def hang_up(self) -> None:
        self._socket.close()


class Node:
    """A node monitor of three guests, and its scheduler."""

    def __init__(self, daemon: NodeMonitorDaemon, link: Dialled, guests: list[Guest]) -> None:
        self.daemon = daemon
        self.link = link
        self.guests = guests
        self.tasks = 0

    @property
    def executors(self) -> int:
        return len(self.daemon.nodes[0].core.executors) - len(("noop", "sleep"))

    def connection_with(self, run: x.Run) -> Any:
        """The node monitor's end of the connection to the executor that has the run."""
        (node,) = self.daemon.nodes
        (executor,) = (name for name, state in node.core.executors.items() if run.run in state.running)
        return node.pool._connections[executor]

    async def give(self, tasks: int) -> list[tuple[Guest, x.Run]]:
        """Have so many guests run a task: the guests and what they were given."""
        waiting = {asyncio.ensure_future(guest.given()): guest for guest in self.guests}
        for _ in range(tasks):
            self.tasks += 1
            number, job = self.tasks, f"j{self.tasks}"
            launch = m.Launch(0, job, 0, 0, number, b"", (), number)
            await self.link.say(m.Common(job, 0, b""), launch, reserve(number, job=job, app="guest"))
        given: list[tuple[Guest, x.Run]] = []
        while len(given) < tasks:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            given += [(waiting.pop(future), future.result()) for future in done]
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return given

    async def heard(self, reports: int) -> list[m.Message]:
        """All that the scheduler hears until it was told of the ends of so many tasks, and that the node is idle.

        An Idle of before the first end may come late.
        """
        heard: list[m.Message] = []
        while sum(type(message) is m.Report for message in heard) < reports or type(heard[-1]) is not m.Idle:
            message = await self.link.heard.get()
            if heard or type(message) is not m.Idle:
                heard.append(message)
        return heard


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with scheduler() as (address, dialled), asyncio.timeout(TIMEOUT_S):
        flags = [
            "--port",
            "0",
            "--scheduler",
            address,
            "--node-id",
            "n",
            "--slots",
            "3",
            "--attach",
            "guest",
            "--warm",
            "noop",
        ]
        daemon = NodeMonitorDaemon(parse(NodeMonitorOptions, flags))
        await daemon.start()
        guests: list[Guest] = []
        try:
            link = await dialled.get()
            for _ in range(3):
                guests.append(Guest(daemon.nodes[0].pool.socket_path))
                await asyncio.sleep(0)
            node = Node(daemon, link, guests)
            while node.executors < len(guests):
                await asyncio.sleep(0)
            yield node
        finally:
            for guest in guests:
                guest.hang_up()
            await daemon.stop()


def kinds(messages: list[m.Message]) -> list[Any]:
    return [type(message) for message in messages]


async def test_ends_of_one_turn_are_one_event(node: Node) -> None:
    for tasks in (3, 2, 1, 3):
        given = await node.give(tasks)
        while not node.link.heard.empty():
            node.link.heard.get_nowait()
        for guest, run in given:  # All before the node monitor's loop has its turn.
            guest.end(run)
        heard = await node.heard(tasks)
        assert kinds(heard) == [m.Report] * tasks + [m.Idle]
        assert isinstance(heard[-1], m.Idle) and heard[-1].free == 3


async def test_an_end_is_told_though_another_executor_goes_in_the_same_turn(node: Node) -> None:
    ((guest, run),) = await node.give(1)
    while not node.link.heard.empty():
        node.link.heard.get_nowait()
    for other in [other for other in node.guests if other is not guest]:
        other.hang_up()
        node.guests.remove(other)
    guest.end(run)
    assert m.Report in kinds(await node.heard(1))
    while node.executors > 1:
        await asyncio.sleep(0)
    await node.give(1)


async def test_an_end_is_told_though_another_executor_is_not_read(node: Node) -> None:
    """What it has said lies in its socket, and is not heard in this turn or the next."""
    (guest, run), (other, unheard) = await node.give(2)
    while not node.link.heard.empty():
        node.link.heard.get_nowait()
    connection = node.connection_with(unheard)
    connection.pause()
    other.end(unheard)
    guest.end(run)
    assert kinds(await node.heard(1)) == [m.Report, m.Idle]
    connection.resume(lambda: None)
    assert kinds(await node.heard(1)) == [m.Report, m.Idle]
