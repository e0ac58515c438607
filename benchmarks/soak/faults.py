"""What the faults of a plan do to the cluster, and how each is mended; and the upgrades that go on meanwhile.

Every step is logged with its time. Only one scheduler at a time is out of order, of whatever: with the others clients
can go on, so whatever ends lost ends so for want of attempts and not of schedulers.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
import psutil

from benchmarks.soak.cluster import Cluster, Daemon
from benchmarks.soak.network import Wire
from benchmarks.soak.plan import Fault
from sparrow_py.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UPGRADES_AT_ONCE = 2
"""Node monitors that are upgraded at a time."""
BUSY_POLL_S = 0.05
Log = Callable[..., None]


class _NobodyMet(Exception):
    """All whom a fault could meet have one already."""


class Chaos:
    """Has faults happen to a cluster. `log` is told of each step."""

    def __init__(self, cluster: Cluster, log: Log) -> None:
        self._cluster = cluster
        self._log = log
        self._one_scheduler = asyncio.Lock()
        self._do: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "kill-node": self._kill_node,
            "kill-executor": self._kill_executor,
            "kill-client": self._kill_client,
            "kill-scheduler": self._kill_scheduler,
            "move-scheduler": self._move_scheduler,
            "stop-node-briefly": self._stop_node,
            "stop-node": self._stop_node,
            "stop-executor": self._stop_executor,
            "stop-scheduler-briefly": self._stop_scheduler,
            "stop-scheduler": self._stop_scheduler,
            "stall-wire-briefly": self._stall_wire,
            "stall-wire": self._stall_wire,
            "drop-wire": self._drop_wire,
            "isolate-node": self._isolate_node,
            "isolate-scheduler": self._isolate_scheduler,
            "isolate-client": self._isolate_client,
            "cordon-node": self._cordon_node,
        }
        self.counts: dict[str, int] = {}
        """Faults that happened, by kind."""
        self.skipped = 0
        """Faults that met nobody, as all whom they could meet had one already."""

    async def run(self, faults: Sequence[Fault], start_s: float) -> None:
        """All of them, each when its time has come; returns when all are mended."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as under_way:
            for fault in faults:
                await asyncio.sleep(max(0.0, start_s + fault.at_s - loop.time()))
                under_way.create_task(self._happen(fault))

    async def _happen(self, fault: Fault) -> None:
        with suppress(_NobodyMet):
            await self._do[fault.kind](fault)

    def heal(self) -> None:
        """Whatever is stopped or cut goes on: for a soak that ends before its faults are mended."""
        self._cluster.network.heal()
        for daemon in (*self._cluster.daemons, *self._cluster.clients):
            if daemon.up:
                daemon.signal(signal.SIGCONT)
                for executor in daemon.executors():
                    _signal(executor, signal.SIGCONT)

    # ---- whom it meets -----------------------------------------------------------------------

    @asynccontextmanager
    async def _victim(self, fault: Fault, daemons: Sequence[Daemon], *, dies: bool = False) -> AsyncIterator[Daemon]:
        """One that is up and has no other fault; raises `_NobodyMet` if there is none. dies: those to be spared are."""
        fit = [one for one in daemons if one.up and not one.busy and not (dies and one.veteran and one.upgraded)]
        if not fit:
            self.skipped += 1
            self._log("nobody for " + fault.kind)
            raise _NobodyMet
        daemon = fit[int(fault.pick * len(fit))]
        daemon.busy = True
        self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
        self._log(fault.kind, on=daemon.name, pid=daemon.pid, lasts_s=round(fault.lasts_s, 2))
        try:
            yield daemon
        finally:
            daemon.busy = False
            self._log(f"{fault.kind} is mended", on=daemon.name, pid=daemon.pid)

    @asynccontextmanager
    async def _scheduler(self, fault: Fault, *, dies: bool = False) -> AsyncIterator[Daemon]:
        async with self._one_scheduler, self._victim(fault, self._cluster.schedulers, dies=dies) as daemon:
            yield daemon

    # ---- deaths ------------------------------------------------------------------------------

    async def _kill_node(self, fault: Fault) -> None:
        await self._kill(fault, self._cluster.nodes)

    async def _kill_client(self, fault: Fault) -> None:
        await self._kill(fault, self._cluster.clients)

    async def _kill(self, fault: Fault, daemons: Sequence[Daemon]) -> None:
        async with self._victim(fault, daemons, dies=True) as daemon:
            await self._dies(daemon, fault)

    async def _kill_scheduler(self, fault: Fault) -> None:
        async with self._scheduler(fault, dies=True) as daemon:
            await self._dies(daemon, fault)

    async def _move_scheduler(self, fault: Fault) -> None:
        async with self._scheduler(fault, dies=True) as daemon:
            await self._dies(daemon, fault, move=True)

    async def _dies(self, daemon: Daemon, fault: Fault, *, move: bool = False) -> None:
        await daemon.kill()
        await asyncio.sleep(fault.lasts_s)
        await self._cluster.restart(daemon, move=move)

    async def _kill_executor(self, fault: Fault) -> None:
        async with self._victim(fault, self._with_executors()) as daemon:
            for executor in daemon.executors()[:1]:
                _signal(executor, signal.SIGKILL)

    def _with_executors(self) -> list[Daemon]:
        return [node for node in self._cluster.nodes if node.up and node.executors()]

    # ---- stops -------------------------------------------------------------------------------

    async def _stop_node(self, fault: Fault) -> None:
        """The machine stands still: node monitor and executors."""
        async with self._victim(fault, self._cluster.nodes) as daemon:
            executors = daemon.executors()
            daemon.signal(signal.SIGSTOP)
            for executor in executors:
                _signal(executor, signal.SIGSTOP)
            await asyncio.sleep(fault.lasts_s)
            for executor in executors:
                _signal(executor, signal.SIGCONT)
            daemon.signal(signal.SIGCONT)

    async def _stop_executor(self, fault: Fault) -> None:
        """Its tasks stand still, and their node monitor is well."""
        async with self._victim(fault, self._with_executors()) as daemon:
            executors = daemon.executors()
            for executor in executors:
                _signal(executor, signal.SIGSTOP)
            await asyncio.sleep(fault.lasts_s)
            for executor in executors:
                _signal(executor, signal.SIGCONT)

    async def _stop_scheduler(self, fault: Fault) -> None:
        async with self._scheduler(fault) as daemon:
            daemon.signal(signal.SIGSTOP)
            await asyncio.sleep(fault.lasts_s)
            daemon.signal(signal.SIGCONT)

    # ---- cuts --------------------------------------------------------------------------------

    async def _stall_wire(self, fault: Fault) -> None:
        """Between one node monitor and one scheduler: a connection that is half open."""
        async with self._victim(fault, self._cluster.nodes) as daemon:
            await self._stall(self._cluster.network.of(peer=daemon.name)[:1], fault.lasts_s)

    async def _drop_wire(self, fault: Fault) -> None:
        async with self._victim(fault, self._cluster.nodes) as daemon:
            for wire in self._cluster.network.of(peer=daemon.name)[-1:]:
                wire.drop()

    async def _isolate_node(self, fault: Fault) -> None:
        async with self._victim(fault, self._cluster.nodes) as daemon:
            await self._stall(self._cluster.network.of(peer=daemon.name), fault.lasts_s)

    async def _isolate_client(self, fault: Fault) -> None:
        async with self._victim(fault, self._cluster.clients) as daemon:
            await self._stall(self._cluster.network.of(peer=daemon.name), fault.lasts_s)

    async def _isolate_scheduler(self, fault: Fault) -> None:
        """It goes on, and nobody hears it: its jobs are claimed by others."""
        async with self._scheduler(fault) as daemon:
            await self._stall(self._cluster.network.of(scheduler=daemon.name), fault.lasts_s)

    @staticmethod
    async def _stall(wires: Sequence[Wire], seconds: float) -> None:
        for wire in wires:
            wire.stall()
        await asyncio.sleep(seconds)
        for wire in wires:
            wire.heal()

    # ---- operators ---------------------------------------------------------------------------

    async def _cordon_node(self, fault: Fault) -> None:
        async with self._victim(fault, self._cluster.nodes) as daemon:
            await _change_state(daemon, "cordoned")
            await asyncio.sleep(fault.lasts_s)
            await _change_state(daemon, "ready")

    async def upgrade(self, chosen: Sequence[Daemon]) -> None:
        """A rolling upgrade: each daemon in turn is drained by SIGTERM and started again."""
        some = asyncio.Semaphore(UPGRADES_AT_ONCE)
        self._log("a rolling upgrade begins", daemons=len(chosen))
        async with asyncio.TaskGroup() as under_way:
            for daemon in chosen:
                under_way.create_task(self._upgrade(daemon, some))
        self._log("the rolling upgrade is over")

    async def _upgrade(self, daemon: Daemon, some: asyncio.Semaphore) -> None:
        scheduler = daemon in self._cluster.schedulers
        async with self._one_scheduler if scheduler else some:
            while daemon.busy or not daemon.up:
                await asyncio.sleep(BUSY_POLL_S)
            daemon.busy = True
            self._log("upgrade", on=daemon.name, pid=daemon.pid)
            code = await daemon.drain()
            await self._cluster.restart(daemon)
            daemon.busy, daemon.upgraded = False, True
            self.counts["upgrade"] = self.counts.get("upgrade", 0) + 1
            self._log("upgraded", on=daemon.name, pid=daemon.pid, exit_code=code)
            if code:
                raise ClusterError(f"{daemon.name} ended with code {code} when it was drained")


def _signal(executor: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        executor.send_signal(number)


async def _change_state(daemon: Daemon, state: str) -> None:
    url = f"http://{daemon.address}/v1/nodes/state"
    async with aiohttp.ClientSession() as session, session.post(url, json={"state": state}) as answer:
        answer.raise_for_status()
