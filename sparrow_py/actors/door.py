"""Where a client is dialled by its actors and by those who call them from tasks: one socket, on the client's own loop.

Whoever dials proves that it has the key of an actor (`greeting`) before anything else that it says is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from sparrow_py.access.mutual_proof import NONCE_BYTES, ProofError
from sparrow_py.access.secret_files import check_tls_files
from sparrow_py.actors.greeting import Acceptor
from sparrow_py.actors.messages import FROM_DIALLER, Splitter, ToDialler, frame_of
from sparrow_py.actors.places import keep_alive
from sparrow_py.actors.returned import forget_address, note_address
from sparrow_py.auth import TLS
from sparrow_py.errors import InvalidOption, InvalidRequest, LinkError
from sparrow_py.limits import open_files
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.processes.process_bound import let_go

HANDSHAKE_TIMEOUT_S = 10.0
UNPROVED_MAX = 64
"""Connections that have proved nothing yet; beyond that the one that came first is closed."""
CONNECTIONS_MAX = 4_096
"""Connections that have; half of the files that the process may have open, if that is less."""
BACKLOG_BYTES_MAX = 256 << 20
"""Of what waits for one that does not read; beyond that it is cut off."""
LISTEN_BACKLOG = 1_024
TLS_HANDSHAKE_TIMEOUT_S = 5.0
"""A connection whose TLS handshake is not over by then is closed: nothing counts it before."""
CLOSING_S = 1.0
"""For which the end waits for connections to end in order."""

refusals = SparingLog(logging.getLogger("sparrow.actors"))


class Peer(Protocol):
    """What a connection is told, once it has proved that it has the key of an actor."""

    def said(self, message: Any) -> None:
        """A message has come; `LinkError` ends the connection."""

    def gone(self, reason: str) -> None:
        """The connection has ended."""


class Door:
    """key_of: the key of an actor. entered: who is told what a connection for this actor says."""

    def __init__(
        self,
        host: str,
        tls: TLS | None,
        key_of: Callable[[int], bytes | None],
        entered: Callable[[int, Guest], Peer],
    ) -> None:
        """Listens at once, and lets nobody in before the loop goes on. `InvalidRequest` for a host that is not ours."""
        context, self.certificate = (None, b"") if tls is None else _shown(tls)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, 0), family=family, backlog=LISTEN_BACKLOG)
        except OSError as error:
            raise InvalidRequest("advertise", host, f"an address of this machine ({error})") from None
        keep_alive(self._socket)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        note_address(self.host, self.port)
        self.key_of, self.entered = key_of, entered
        self.unproved: dict[Guest, None] = {}
        """In the order in which they came."""
        self.pushed_out: set[Guest] = set()
        """Unproved ones that made room for others, until their connections have ended: a turn of the loop later."""
        self.guests: set[Guest] = set()
        self.connections_max = min(CONNECTIONS_MAX, open_files.budget().clients)
        self._serving = asyncio.get_running_loop().create_task(self._serve(context))

    async def _serve(self, context: ssl.SSLContext | None) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(
            lambda: Guest(self), sock=self._socket, ssl=context, backlog=UNPROVED_MAX,
            ssl_handshake_timeout=None if context is None else TLS_HANDSHAKE_TIMEOUT_S,
        )  # fmt: skip
        # asyncio accepts as many in one turn as it is told may wait, and each takes a file: so more wait than that.
        self._socket.listen(LISTEN_BACKLOG)
        return server

    def close(self) -> None:
        """Let nobody in any more; who is in goes by itself."""
        forget_address(self.host, self.port)
        if self._serving.done() and not self._serving.cancelled() and self._serving.exception() is None:
            self._serving.result().close()
        else:
            self._serving.cancel()
            self._socket.close()
        for guest in list(self.unproved):
            guest.cut_off("the client was closed")

    def close_all(self, reason: str) -> None:
        """End all connections once what was sent has left."""
        for guest in list(self.guests):
            guest.close(reason)

    async def wait_closed(self) -> None:
        """Return when all connections have ended; those that take longer are cut off."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._empty()
        for guest in self._all():
            guest.abort()
        await self._empty()

    async def _empty(self) -> None:
        while left := self._all():
            await asyncio.wait([left[0].lost])

    def _all(self) -> list[Guest]:
        return [*self.unproved, *self.pushed_out, *self.guests]

    def forked(self) -> None:
        """In a child of the process: let go of the parent's connections."""
        let_go([self._socket.fileno(), *(guest.descriptor for guest in self._all())])

    def made_room(self) -> bool:
        """Whether one more may come in."""
        while len(self.unproved) > UNPROVED_MAX:
            first = next(iter(self.unproved))
            del self.unproved[first]  # More may come before it has ended: these push out the next ones.
            self.pushed_out.add(first)
            first.cut_off(f"more than {UNPROVED_MAX} others have proved nothing either")
        return len(self.guests) < self.connections_max


class Guest(asyncio.Protocol):
    """A connection that came."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._acceptor = Acceptor(door.key_of, secrets.token_bytes(NONCE_BYTES))
        self._came = bytearray()
        self._splitter: Splitter | None = None
        self._peer: Peer | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._why = ""
        self.descriptor = -1
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the connection has ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        made = transport.get_extra_info("socket")
        self.descriptor = -1 if made is None else made.fileno()
        self._door.unproved[self] = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_TIMEOUT_S, self.cut_off, "it proved nothing in time")
        if not self._door.made_room():
            self.cut_off(f"there are {self._door.connections_max} connections already")

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        if self._why:
            return
        try:
            if self._splitter is None:
                self._greet(data)
            else:
                self._hear(self._splitter, data)
        except (ProofError, LinkError) as error:
            self.cut_off(str(error))

    def _greet(self, data: bytes) -> None:
        came, acceptor = self._came, self._acceptor
        came += data
        while not acceptor.proved:
            wanted = acceptor.wanted
            if len(came) < wanted:
                return
            answer = acceptor.receive(bytes(came[:wanted]))
            del came[:wanted]
            if answer and self._transport is not None:
                self._transport.write(answer)
        self._is_proved()
        self._splitter = Splitter(FROM_DIALLER)
        self._hear(self._splitter, bytes(came))

    def _is_proved(self) -> None:
        self._leave_the_unproved()
        self._door.guests.add(self)
        self._peer = self._door.entered(self._acceptor.actor, self)

    def _leave_the_unproved(self) -> None:
        self._door.unproved.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hear(self, splitter: Splitter, data: bytes) -> None:
        for message in splitter.feed(data):
            assert self._peer is not None
            self._peer.said(message)

    def send(self, message: ToDialler) -> None:
        """Send a message, if the connection stands."""
        transport = self._transport
        if transport is None or self._why:
            return
        transport.write(bytes(frame_of(message)))
        if transport.get_write_buffer_size() > BACKLOG_BYTES_MAX:
            self.cut_off(f"it reads too slowly: {BACKLOG_BYTES_MAX} bytes wait for it")

    def cut_off(self, reason: str) -> None:
        """End the connection at once."""
        if self._why:
            return
        self._why = reason
        self.abort()

    def abort(self) -> None:
        """End the connection at once, though it may be ending."""
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str) -> None:
        """End the connection once what was sent has left."""
        if not self._why:
            self._why = reason
            if self._transport is not None:
                self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Of asyncio."""
        reason = self._why or ("the connection was closed" if error is None else f"the connection broke: {error}")
        if self._peer is None and self._why:
            refusals.warning("a connection to the actors of this client was refused: %s", reason)
        self._why = reason
        self._leave_the_unproved()
        self._door.pushed_out.discard(self)
        self._door.guests.discard(self)
        self._transport, peer, self._peer = None, self._peer, None
        if not self.lost.done():
            self.lost.set_result(None)
        if peer is not None:
            peer.gone(reason)


def _shown(tls: TLS) -> tuple[ssl.SSLContext, bytes]:
    """What connections are encrypted with, and the SHA-256 of the certificate that is shown; `InvalidOption` if a file
    will not do. Whoever dials shows none: it proves that it has the key."""
    check_tls_files(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(tls.cert, tls.key)
        first = Path(tls.cert).read_text().partition("-----END CERTIFICATE-----")
        certificate = ssl.PEM_cert_to_DER_cert("-----BEGIN" + "".join(first[:2]).partition("-----BEGIN")[2])
    except (OSError, ValueError) as error:
        raise InvalidOption("tls_cert", tls.cert, f"a certificate (PEM) and its key ({error})") from None
    return context, hashlib.sha256(certificate).digest()
