"""A network that can fail, without privileges: a TCP proxy for each pair of a peer and a scheduler that it dials.

A `Wire` that is stalled passes nothing on and says nothing, as a cable that was pulled; new connections hang too.
One that is dropped resets its connections, as a firewall that forgot them. What a stalled wire holds back arrives
when it is healed, or never, if both sides have hung up meanwhile. Large data do not go over wires.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar, cast

from benchmarks.laboratory.network import LOOPBACK, Network
from sparrow_py.session.event_loop import new_event_loop

T = TypeVar("T")


class Wire:
    """A port that leads to a scheduler, for one peer of it."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.stalled = False
        self._server: asyncio.Server | None = None
        self._pipes: set[_Pipe] = set()
        self._dials: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Near(self), LOOPBACK, 0)
        self.address = f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    def stall(self) -> None:
        """Pass nothing on, in either direction, until `heal`."""
        self.stalled = True
        for pipe in self._pipes:
            pipe.update()

    def heal(self) -> None:
        """Pass everything on again, and dial for those that came meanwhile."""
        self.stalled = False
        for pipe in list(self._pipes):
            pipe.update()
            if isinstance(pipe, _Near) and pipe.other is None:
                self.dial(pipe)

    def drop(self) -> None:
        """Reset all connections; new ones are welcome."""
        for pipe in list(self._pipes):
            pipe.abort()

    async def close(self) -> None:
        """Listen no more, and reset what there is."""
        if self._server is not None:
            self._server.close()
        self.drop()
        for dial in list(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)

    # ---- of the pipes ------------------------------------------------------------------------

    def opened(self, pipe: _Pipe) -> None:
        """One more end of a connection."""
        self._pipes.add(pipe)

    def closed(self, pipe: _Pipe) -> None:
        """One less."""
        self._pipes.discard(pipe)

    def dial(self, near: _Near) -> None:
        """Connect this peer's connection to the scheduler."""
        if not self.stalled:
            task = asyncio.ensure_future(self._dial(near))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)

    async def _dial(self, near: _Near) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            await asyncio.get_running_loop().create_connection(lambda: _Pipe(self, near), host, int(port))
        except OSError:  # Nobody listens there, and the peer is told so.
            near.abort()


class _Pipe(asyncio.Protocol):
    """One end of a proxied connection: what it hears, it has the other end say."""

    def __init__(self, wire: Wire, other: _Pipe | None = None) -> None:
        self.other = other
        self._wire = wire
        self._transport: asyncio.Transport | None = None
        self._choked = False
        """Whether the other end's buffer is full."""
        self._early = bytearray()
        """What was heard before there was another end: a transport reads on until it is told not to, and a little."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._wire.opened(self)
        if self.other is not None:
            self.other.other = self
            self._transport.write(self.other._early)
            self.other._early = bytearray()
            self.other.update()
        self.update()

    def update(self) -> None:
        """Read only while what is read can be passed on."""
        if self._transport is None or self._transport.is_closing():
            return
        # uvloop raises where asyncio does nothing: one that is not reading is told so twice.
        with contextlib.suppress(RuntimeError):
            if self._wire.stalled or self._choked or self.other is None:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        elif self.other._transport is not None and not self.other._transport.is_closing():
            self.other._transport.write(data)

    def pause_writing(self) -> None:
        self._choke(True)

    def resume_writing(self) -> None:
        self._choke(False)

    def _choke(self, choked: bool) -> None:
        if self.other is not None:
            self.other._choked = choked
            self.other.update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.closed(self)
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()


class _Near(_Pipe):
    """The end at the peer that dialled."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wire.dial(self)


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
