"""A real scheduler with nodes that only pretend, in this process: tasks take as long as they are told, and no CPU."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from sparrow_py.job import FAILED, FINISHED
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import node_info


class _Open:
    """A link that stays open."""

    closing = False
    closed_because = ""
    version = m.PROTOCOL_VERSION
    unsent: tuple[bytes, ...] = ()

    def close(self, reason: str = "") -> None:
        """Nobody is told."""

    async def aclose(self, reason: str = "") -> None:
        """As `close`."""


class PretendedNode:
    """Runs tasks by the loop's clock, as many at a time as it has slots, in the order of their reservations."""

    def __init__(
        self, name: str, slots: int, service_s: Callable[[int], float], said: Callable[[str, Any], None]
    ) -> None:
        self.name = name
        self._free = slots
        self._service_s = service_s
        self._say = said
        self._queue: deque[int] = deque()
        self._asks = itertools.count(1)
        self.fails: Callable[[int], bool] = lambda task: False

    def hears(self, message: Any) -> None:
        """The scheduler says that."""
        if isinstance(message, m.Reserve):
            self._queue.extend([message.ticket] * message.count)
        elif isinstance(message, m.CancelReservations):
            self._queue = deque(ticket for ticket in self._queue if ticket != message.ticket)
        elif isinstance(message, m.NoTask):
            self._free += message.count
        elif isinstance(message, m.Launch):
            service_s = self._service_s(message.task)
            asyncio.get_running_loop().call_later(service_s, self._end, message, service_s)
        self._ask()

    def _ask(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            ask = m.GetTasks(next(self._asks), self._queue.popleft(), 1)
            asyncio.get_running_loop().call_soon(self._say, self.name, ask)

    def _end(self, launch: m.Launch, service_s: float) -> None:
        self._free += 1
        status = FAILED if self.fails(launch.task) else FINISHED
        ended = (launch.job, launch.task, launch.attempt, status, b"", "" if status is FINISHED else "it failed")
        self._say(self.name, (*ended, service_s))
        self._ask()


class PretendedCluster(SchedulerDaemon):
    """See the module's docstring. service_s: for how long a task of this number runs."""

    def __init__(
        self, nodes: int = 3, slots: int = 4, service_s: Callable[[int], float] = lambda task: 0.0, **options: Any
    ) -> None:
        super().__init__(SchedulerOptions(**{"port": 0, **options}))
        self._pretended = {
            name: PretendedNode(name, slots, service_s, self._hear)
            for name in (f"node-{number:04}:20504" for number in range(nodes))
        }
        self._slots = slots

    async def start(self) -> dict[str, Any]:
        announced = await super().start()
        for name in self._pretended:
            info = node_info(self._slots, address="127.0.0.1:1")  # Where nobody answers.
            self._node_came(name, info, _Open())  # type: ignore[arg-type]
        return announced

    def to_node(self, node_id: str, message: m.Message) -> None:
        node = self._pretended.get(node_id)
        if node is not None:
            node.hears(message)

    def _hear(self, node: str, said: Any) -> None:
        if node not in self.core.nodes:
            return
        if isinstance(said, tuple):
            *ended, service_s = said
            said = m.Report(*ended, self.clock() - service_s, service_s)
        self._node_said(node, _Open(), [said])  # type: ignore[arg-type]

    def submit(self, tasks: int, *, job: str, user: str = "ada", fails: bool = False, **fields: Any) -> None:
        """A client submits a job; of one that fails each third task does."""
        client = f"{user}#pretended"
        for node in self._pretended.values() if fails else ():
            node.fails = lambda task: task % 3 == 2
        self.core.receive_from_client(client, user, submission(job, tasks, **fields), self.clock())
        self.core.receive_from_client(client, user, m.AddTasks(job, 0, [b""] * tasks, None), self.clock())
        self.update_timers()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for that."""
        async with asyncio.timeout(30):
            while not happened():
                await asyncio.sleep(0.001)
