"""Where a peer is dialled: its sockets, and a thread that greets whoever connects.

The thread is apart from the one that runs tasks, so that a peer is greeted while a task runs. It hands over connections
whose other side has the program's key; others it closes, and says why in the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from frontends.dataflow.handshake import Acceptor, HandshakeError, Purpose, Verdict
from sparrow_py.access.mutual_proof import NONCE_BYTES
from sparrow_py.access.unix_addresses import UNIX_PATH_BYTES_MAX
from sparrow_py.logs.sparing_log import SparingLog

HANDSHAKE_TIMEOUT_S = 30.0
"""Of both sides. A stage may keep the interpreter's lock from the thread for some seconds."""
GREETED_MAX = 256
"""Connections whose handshake is not over. Beyond that the one that came first is closed."""
UNPAIRED_MAX = 1_024
"""Connections for buffers whose connection for messages has not come yet."""
LISTEN_BACKLOG = 4_096
FULL_PAUSE_S = 0.1
"""After which new connections are looked at again, when there were no descriptors left for them."""

refusals = SparingLog(logging.getLogger("sparrow.dataflow"))


@dataclass(eq=False, slots=True)
class Connection:
    """A connection of a peer that has the program's key."""

    peer: int
    messages: socket.socket
    buffers: socket.socket | None
    """None over a Unix socket, where buffers lie in shared memory."""


@dataclass(eq=False, slots=True)
class _Greeted:
    """A connection whose handshake is not over."""

    socket: socket.socket
    acceptor: Acceptor
    until_s: float
    came: bytes = b""
    to_send: bytes = b""


@dataclass(slots=True)
class Door:
    """`opened` is called in the thread when a connection is in `connections`."""

    me: int
    key: bytes
    linked: set[int]
    """Peers that have a link. The door adds those it lets in."""
    opened: Callable[[], None]
    connections: deque[Connection] = field(default_factory=deque, init=False)
    timeout_s: float = HANDSHAKE_TIMEOUT_S
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector, init=False)
    _greeted: dict[socket.socket, _Greeted] = field(default_factory=dict, init=False)
    _unpaired: dict[tuple[int, bytes], socket.socket] = field(default_factory=dict, init=False)
    _listening: list[socket.socket] = field(default_factory=list, init=False)
    _path: Path | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _bell: tuple[int, int] = field(default=(-1, -1), init=False)

    # ---- opening and closing ----------------------------------------------------------------------

    def listen_unix(self, directory: str) -> str:
        """The path of a socket there; empty if there can be none."""
        path = Path(directory) / f"peer{self.me}-{secrets.token_hex(4)}"
        if len(str(path).encode()) > UNIX_PATH_BYTES_MAX:
            return ""
        with contextlib.ExitStack() as undo:
            listening = undo.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(str(path))
            undo.callback(path.unlink)
            path.chmod(0o600)
            self._listen(listening)
            undo.pop_all()
        self._path = path
        return str(path)

    def listen_tcp(self, host: str) -> tuple[str, int]:
        """The host and port of a socket there."""
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as undo:
            listening = undo.enter_context(socket.socket(family))
            listening.bind(address)
            self._listen(listening)
            undo.pop_all()
        return host, listening.getsockname()[1]

    def _listen(self, listening: socket.socket) -> None:
        listening.listen(LISTEN_BACKLOG)
        listening.setblocking(False)
        self._listening.append(listening)

    def open(self) -> None:
        """Start the thread; all sockets are there."""
        self._bell = os.pipe()
        for listening in self._listening:
            self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(self._bell[0], selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="dataflow-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            os.write(self._bell[1], b"x")
            self._thread.join()
            for end in self._bell:
                os.close(end)
            self._thread = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        waiting = [connection.messages for connection in self.connections]
        waiting += [connection.buffers for connection in self.connections if connection.buffers is not None]
        for each in [*self._listening, *self._greeted, *self._unpaired.values(), *waiting]:
            each.close()
        self.connections.clear()
        self._greeted.clear()
        self._unpaired.clear()
        self._listening.clear()
        self._selector.close()

    def descriptors(self) -> list[int]:
        """Those that keep a peer's connection open, or tell of one."""
        waiting = [connection.messages for connection in list(self.connections)]
        sockets = [*self._listening, *list(self._greeted), *list(self._unpaired.values()), *waiting]
        return [each.fileno() for each in sockets] + [*self._bell]

    # ---- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        paused_until_s = 0.0
        while True:
            now_s = time.monotonic()
            if paused_until_s and now_s >= paused_until_s:
                paused_until_s = 0.0
                for listening in self._listening:
                    self._selector.register(listening, selectors.EVENT_READ)
            for key, _ in self._selector.select(self._timeout_s(now_s, paused_until_s)):
                if key.fd == self._bell[0]:
                    return
                assert isinstance(key.fileobj, socket.socket)
                greeted = self._greeted.get(key.fileobj)
                if greeted is not None:
                    self._go_on(greeted)
                elif not self._accept(key.fileobj) and not paused_until_s:
                    paused_until_s = time.monotonic() + FULL_PAUSE_S
                    for listening in self._listening:
                        self._selector.unregister(listening)
            self._end_late(time.monotonic())

    def _timeout_s(self, now_s: float, paused_until_s: float) -> float | None:
        times = [paused_until_s] if paused_until_s else []
        if self._greeted:
            times.append(next(iter(self._greeted.values())).until_s)  # They came in this order.
        return max(0.0, min(times) - now_s) if times else None

    def _end_late(self, now_s: float) -> None:
        while self._greeted:
            first = next(iter(self._greeted.values()))
            if first.until_s > now_s and len(self._greeted) <= GREETED_MAX:
                return
            self._refuse(first, "its handshake took too long, or too many others waited")

    def _accept(self, listening: socket.socket) -> bool:
        """Greet one who connects; False if there are no descriptors left."""
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            return True
        except OSError:
            return False
        accepted.setblocking(False)
        acceptor = Acceptor(self.key, self.me, secrets.token_bytes(NONCE_BYTES))
        self._greeted[accepted] = _Greeted(accepted, acceptor, time.monotonic() + self.timeout_s)
        self._selector.register(accepted, selectors.EVENT_READ)
        return True

    def _go_on(self, greeted: _Greeted) -> None:
        acceptor = greeted.acceptor
        try:
            came = greeted.socket.recv(acceptor.wanted - len(greeted.came))
            if not came:
                raise HandshakeError("it closed the connection before the handshake was over")
            greeted.came += came
            if len(greeted.came) < acceptor.wanted:
                return
            data, greeted.came = greeted.came, b""
            answer = acceptor.receive(data)
            if answer:
                greeted.socket.send(answer)  # A hundred bytes, the first on this connection: they fit.
            if acceptor.proved:
                self._decide(greeted)
        except BlockingIOError:
            return
        except (HandshakeError, OSError) as error:
            self._refuse(greeted, str(error))

    def _decide(self, greeted: _Greeted) -> None:
        acceptor = greeted.acceptor
        for_messages = acceptor.purpose is Purpose.MESSAGES
        verdict, said = acceptor.verdict(linked=for_messages and acceptor.peer in self.linked)
        if verdict is not Verdict.WELCOME:
            greeted.socket.send(said)
            raise HandshakeError(f"its link would be refused: {verdict.name}")
        greeted.socket.send(said)  # Before anybody may write to the socket.
        self._forget(greeted)
        pair = (acceptor.peer, acceptor.pair)
        if for_messages:
            self.linked.add(acceptor.peer)
            self.connections.append(Connection(acceptor.peer, greeted.socket, self._unpaired.pop(pair, None)))
            self.opened()
            return
        if len(self._unpaired) >= UNPAIRED_MAX:
            self._unpaired.pop(next(iter(self._unpaired))).close()
        self._unpaired[pair] = greeted.socket

    def _forget(self, greeted: _Greeted) -> None:
        del self._greeted[greeted.socket]
        self._selector.unregister(greeted.socket)

    def _refuse(self, greeted: _Greeted, reason: str) -> None:
        refusals.warning("a connection to %s was refused: %s", self.me, reason)
        self._forget(greeted)
        greeted.socket.close()
