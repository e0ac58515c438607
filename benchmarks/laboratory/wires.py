"""A network that can fail, without privileges: a TCP proxy for each pair of a peer and a scheduler that it dials.

A `Wire` that is stalled passes nothing on and says nothing, as a cable that was pulled; new connections hang too.
One that is dropped resets its connections, as a firewall that forgot them. What a stalled wire holds back arrives
when it is healed, or never, if both sides have hung up meanwhile. Large data do not go over wires.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from benchmarks.laboratory.network import LOOPBACK, Network
from sparrow_py.session.event_loop import new_event_loop

T = TypeVar("T")
CHUNK_BYTES = 1 << 16


class Wire:
    """A port that leads to a scheduler, for one peer of it."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self._server: asyncio.Server | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.address = f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    def stall(self) -> None:
        """Pass nothing on, in either direction, until `heal`."""
        self._flows.clear()

    def heal(self) -> None:
        """Pass everything on again, and dial for those that came meanwhile."""
        self._flows.set()

    def drop(self) -> None:
        """Reset all connections; new ones are welcome."""
        for end in self._ends:
            end.transport.abort()

    async def close(self) -> None:
        """Listen no more, and reset what there is."""
        if self._server is not None:
            self._server.close()
        self.drop()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, from_peer: asyncio.StreamReader, to_peer: asyncio.StreamWriter) -> None:
        """A connection of the peer, from its beginning to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._ends.add(to_peer)
        try:
            await self._flows.wait()
            host, _, port = self.target.rpartition(":")
            from_target, to_target = await asyncio.open_connection(host, int(port))
            self._ends.add(to_target)
            await asyncio.gather(self._pass(from_peer, to_target), self._pass(from_target, to_peer))
        except OSError:  # Nobody listens there, and the peer is told so.
            to_peer.transport.abort()
        finally:
            self._connections.discard(task)
            self._ends.discard(to_peer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From one end to the other, its end included, and no faster than is read there."""
        try:
            while data := await self._hear(reader):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
            await self._flows.wait()
        except ConnectionError:
            pass
        finally:
            self._ends.discard(writer)
            writer.close()

    @staticmethod
    async def _hear(reader: asyncio.StreamReader) -> bytes:
        """Nothing at the end, however it comes."""
        try:
            return await reader.read(CHUNK_BYTES)
        except ConnectionError:
            return b""


class Wires(Network):
    """A wire from each peer to each scheduler. Its loop runs in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._wires: dict[tuple[str, str], Wire] = {}
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def ways(self, peer: str, schedulers: Mapping[str, str]) -> Iterable[str]:
        """Through wires, which are laid anew where a scheduler has moved."""
        return self._wait(self._lay(peer, schedulers))

    async def _lay(self, peer: str, schedulers: Mapping[str, str]) -> list[str]:
        for name, address in schedulers.items():
            wire = self._wires.get((peer, name))
            if wire is None or wire.target != address:
                if wire is not None:
                    await wire.close()
                self._wires[peer, name] = wire = Wire(address)
                await wire.open()
        return [wire.address for (one, _), wire in self._wires.items() if one == peer]

    def cut(self, machine: str, peer: str = "") -> None:
        """Stall all wires of the machine, or the one between the two."""
        self._each(machine, peer, Wire.stall)

    def heal(self, machine: str, peer: str = "") -> None:
        """And pass on what they held back."""
        self._each(machine, peer, Wire.heal)

    def reset(self, machine: str, peer: str = "") -> None:
        """Reset all connections over these wires; new ones are welcome."""
        self._each(machine, peer, Wire.drop)

    def _each(self, machine: str, peer: str, do: Callable[[Wire], None]) -> None:
        async def do_all() -> None:
            for ends, wire in self._wires.items():
                if machine in ends and (not peer or peer in ends):
                    do(wire)

        self._wait(do_all())

    def close(self) -> None:
        """End all wires, and the thread."""

        async def close_all() -> None:
            for wire in self._wires.values():
                await wire.close()
            self._wires.clear()

        self._wait(close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
