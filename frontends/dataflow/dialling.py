"""How a peer is dialled: by which of its addresses, and how the handshake goes there."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from frontends.dataflow.door import HANDSHAKE_TIMEOUT_S, Connection
from frontends.dataflow.errors import LinkRefused, PlaintextRefused
from frontends.dataflow.handshake import PAIR_BYTES, Dialler, HandshakeError, Purpose
from sparrow_py.access.mutual_proof import NONCE_BYTES
from sparrow_py.wire.local_address import is_loopback

Transport: TypeAlias = Literal["auto", "unix", "tcp"]


class Address(msgspec.Struct, frozen=True):
    """Where a peer listens."""

    node: str
    """Equal for peers on one machine and in one network namespace."""
    unix_path: str
    """Empty if there is no Unix socket."""
    host: str
    """Empty if there is no TCP socket."""
    port: int

    def __str__(self) -> str:
        parts = [self.unix_path] if self.unix_path else []
        parts += [f"{self.host}:{self.port}"] if self.host else []
        return " or ".join(parts) or "no address"


def this_node() -> str:
    """Names the machine, since it was booted, and the network namespace of this process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"


def connect(
    key: bytes,
    me: int,
    peer: int,
    address: Address,
    *,
    transport: Transport,
    allow_plaintext: bool,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
) -> Connection:
    """A connection to the peer; `LinkRefused` names the address tried."""
    near = address.unix_path and address.node == this_node()
    if transport == "unix" or (transport == "auto" and near):
        try:
            return _over_unix(key, me, peer, address.unix_path, timeout_s)
        except LinkRefused as refused:
            unreachable = isinstance(refused.__cause__, (FileNotFoundError, PermissionError))
            if transport == "unix" or not (unreachable and address.host):
                raise  # Another mount namespace or account on the same machine can do with TCP.
    if not address.host:
        raise LinkRefused(peer, str(address), "it listens to no TCP socket, and its Unix socket is on another machine")
    if not allow_plaintext and not is_loopback(address.host):
        raise PlaintextRefused(
            peer,
            f"{address.host}:{address.port}",
            "links of programs over arrays are not encrypted, and those of this cluster are; allow_plaintext=True "
            "sends arrays in plain text between machines",
        )
    return _over_tcp(key, me, peer, address, timeout_s)


def _over_unix(key: bytes, me: int, peer: int, path: str, timeout_s: float) -> Connection:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(timeout_s)
        made.connect(path)
        _shake_hands(made, Dialler(key, me, peer, Purpose.MESSAGES, bytes(PAIR_BYTES), _nonce()))
    except (OSError, HandshakeError) as error:
        made.close()
        raise LinkRefused(peer, path, _reason(error)) from error
    return Connection(peer, made, None)


def _over_tcp(key: bytes, me: int, peer: int, address: Address, timeout_s: float) -> Connection:
    """Two connections, that for buffers first: so the peer has both when messages may come."""
    pair = secrets.token_bytes(PAIR_BYTES)
    with contextlib.ExitStack() as undo:
        made = []
        for purpose in (Purpose.BUFFERS, Purpose.MESSAGES):
            try:
                each = undo.enter_context(socket.create_connection((address.host, address.port), timeout_s))
                _shake_hands(each, Dialler(key, me, peer, purpose, pair, _nonce()))
            except (OSError, HandshakeError) as error:
                raise LinkRefused(peer, f"{address.host}:{address.port}", _reason(error)) from error
            made.append(each)
        undo.pop_all()
    return Connection(peer, made[1], made[0])


def _nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)


def _shake_hands(connection: socket.socket, dialler: Dialler) -> None:
    connection.sendall(dialler.introduction)
    while not dialler.done:
        answer = dialler.receive(_exactly(connection, dialler.wanted))
        if answer:
            connection.sendall(answer)


def _exactly(connection: socket.socket, count: int) -> bytes:
    came = b""
    while len(came) < count:
        more = connection.recv(count - len(came))
        if not more:
            raise HandshakeError("it closed the connection during the handshake")
        came += more
    return came
