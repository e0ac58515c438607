"""Where an actor's owner listens, and how it is dialled from tasks: the calls of this module block."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sparrow_py.access.mutual_proof import CHALLENGE_BYTES, NONCE_BYTES, ProofError
from sparrow_py.actors.greeting import Dialler
from sparrow_py.actors.messages import TO_DIALLER, FromDialler, Splitter, frame_of
from sparrow_py.errors import LinkError

DIAL_TIMEOUT_S = 30.0
"""Of the connection and its handshake: the owner's loop may be busy for some seconds."""
RECEIVE_BYTES = 1 << 16
PARTING_S = 30.0
"""For which an actor that ends waits until its owner has read what it has said last."""
_KEPT_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A machine that has lost its power or its network says nothing: after 20 s without a word it is asked for 30 s."""


class Place(NamedTuple):
    """Of one actor. Whoever has it can call the actor: it travels within pickled handles alone, to the user's tasks.

    certificate: SHA-256 of the one that the owner shows; empty: the connection is not encrypted.
    """

    host: str
    port: int
    actor: int
    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return f"<actor {self.actor} at {self.host}:{self.port}>"


def keep_alive(connection: socket.socket) -> None:
    """Have the connection end if the other machine is gone; of a listening socket, each that comes."""
    for level, option, value in _KEPT_ALIVE:
        connection.setsockopt(level, option, value)


class Line:
    """A connection to an actor's owner, from the actor or from a task that calls it."""

    def __init__(self, place: Place, first: FromDialler) -> None:
        """Dial and say who this is. `LinkError` names the address that was tried."""
        try:
            self._socket = _dialled(place, first)
        except (OSError, ProofError) as error:
            raise LinkError(
                f"the client that owns the actor cannot be reached from here at {place.host}:{place.port}: {error} "
                "(actor's `advertise` says at which address it is dialled)"
            ) from error
        self._splitter = Splitter(TO_DIALLER)

    def send(self, message: FromDialler) -> None:
        """Send a message; `OSError` if the owner is gone."""
        self._socket.sendall(frame_of(message))

    def receive(self) -> list[Any]:
        """The next messages; waits for them, or for as long as `wait_no_longer_than` said, and has none then.
        `EOFError` or `OSError` if the owner is gone."""
        while True:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                return []
            if not data:
                raise EOFError
            messages = self._splitter.feed(data)
            if messages:
                return messages

    def has_news(self, within_s: float) -> bool:
        """Whether `receive` has something to read, or to raise, within that time. Another thread may send meanwhile."""
        made = self._socket
        if isinstance(made, ssl.SSLSocket) and made.pending():
            return True
        poll = select.poll()
        poll.register(made, select.POLLIN)
        return bool(poll.poll(within_s * 1e3))

    def wait_no_longer_than(self, timeout_s: float | None) -> None:
        """How long `receive` and `send` wait."""
        self._socket.settimeout(timeout_s)

    def part(self) -> None:
        """Wait until the owner has read all that was sent, and has ended the connection; for `PARTING_S` at most.

        What it sends meanwhile is dropped. To close a connection on which something lies unread resets it, and what
        has not left by then is lost.
        """
        until_s = time.monotonic() + PARTING_S
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while (left_s := until_s - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                if not self._socket.recv(RECEIVE_BYTES):
                    return

    def hang_up(self) -> None:
        """End the connection; whoever receives on it wakes, and is to close it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection."""
        self.hang_up()
        self._socket.close()


def _dialled(place: Place, first: FromDialler) -> socket.socket:
    made = socket.create_connection((place.host, place.port), DIAL_TIMEOUT_S)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(made)
        if place.certificate:
            made = _encrypted(made, place.certificate)
        dialler = Dialler(place.key, place.actor, secrets.token_bytes(NONCE_BYTES))
        made.sendall(dialler.introduction)
        made.sendall(dialler.challenged(_exactly(made.recv, CHALLENGE_BYTES)) + frame_of(first))
        made.settimeout(None)
    except BaseException:
        made.close()
        raise
    return made


def _encrypted(plain: socket.socket, certificate: bytes) -> socket.socket:
    """Over TLS, with whoever shows this very certificate: a task has no files that say which authority to trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    secured = context.wrap_socket(plain)
    shown = secured.getpeercert(binary_form=True)
    if shown is None or hashlib.sha256(shown).digest() != certificate:
        secured.close()
        raise ProofError("whoever listens there shows another certificate")
    return secured


def _exactly(receive: Callable[[int], bytes], count: int) -> bytes:
    came = b""
    while len(came) < count:
        more = receive(count - len(came))
        if not more:
            raise ProofError("it closed the connection during the handshake")
        came += more
    return came
