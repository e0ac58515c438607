"""The links of a peer of a program (driver, controller, worker) with others: messages, with their arrays beside them.

On one machine a link is a Unix socket. Arrays up to 16 KiB travel within messages; larger ones are copied once, into
memory that both sides have mapped, and the piece is the receiver's until its array is gone. The arrays of a partition
that moves and lie in files of their own (`Memory.empty`) change hands without a copy. Between machines a link is a TCP
connection with a second one for large buffers. `handshake` says how a link begins, `frames` what travels.

Messages of a link arrive in the order in which they were sent, but for partitions that move: a large one over TCP holds
up nothing that was sent after it.
Of two peers one dials; a second link between them is refused. A link that ends is in `lost`, with the reason; what is
sent to it afterwards is dropped.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from frontends.dataflow.dialling import Address, Transport, connect, this_node
from frontends.dataflow.door import Connection, Door
from frontends.dataflow.encoding import Decoder, Encoder
from frontends.dataflow.errors import LinkRefused, ProtocolError, peer_name
from frontends.dataflow.handshake import check_key
from frontends.dataflow.link import Link, LinkEnded
from frontends.dataflow.memory import Memory
from frontends.dataflow.messages import Message
from sparrow_py.processes.process_bound import let_go
from sparrow_py.wire.local_address import is_loopback

__all__ = ["Address", "Links", "Transport"]

POLLING_NS = 20_000
"""For which `wait` looks at the sockets again and again before it blocks: a round trip is often shorter than the time
to wake a process."""
FRUITLESS_MAX = 8
"""Waits in a row that polling did not shorten. Then `UNPOLLED` waits block at once: whoever is to send may need the
core that polls, or send seldom."""
UNPOLLED = 24
QUEUED_BYTES_MAX = 256 << 20
"""Of a link, that its socket has not taken. Beyond that a sender waits, and reads meanwhile."""
INBOX_BYTES_MAX = 1 << 30
STALLED_S = 60.0
"""After which a link ends whose other side takes nothing of a full queue."""
CLOSING_S = 1.0
"""For which `close` sends what is queued."""
EVENTS_MAX = 64
_LOOK_S = 0.1
_READ, _WRITE = int(select.EPOLLIN), int(select.EPOLLOUT)


class Links:
    """Of one peer. `send`, `post` and `flush` may be called in any thread, all else in one."""

    def __init__(
        self,
        me: int,
        key: bytes,
        memory: Memory,
        *,
        transport: Transport = "auto",
        allow_plaintext: bool = False,
        messages: Any = Message,
        stalled_s: float = STALLED_S,
    ) -> None:
        """`key` is the program's, of at least 16 bytes. `allow_plaintext`: TCP connections may leave this machine.
        `messages` is the union of the structs that may come."""
        self.me, self._key = me, check_key(key)
        self._memory, self._transport, self._allow_plaintext = memory, transport, allow_plaintext
        self._stalled_s = stalled_s
        self._encoder, self._decoder = Encoder(), Decoder(messages)
        self._links: dict[int, Link] = {}
        self._by_descriptor: dict[int, Link] = {}
        self._ended: set[int] = set()
        """Peers that had a link."""
        self._linked: set[int] = set()
        """Peers that have one; shared with the door."""
        self._inbox: list[tuple[int, Any]] = []
        self._lost: list[tuple[int, str]] = []
        self._unread_bytes = 0
        self._is_waiting = True
        """Whether nobody does anything but wait for messages here."""
        self.in_haste = False
        """Whether partitions that move do not give way to what is done here; from any thread."""
        self._fruitless = 0
        """Waits in a row that polling did not shorten, and then those that do not poll."""
        self._unsent: deque[Link] = deque()
        """Links to which something was posted, or whose memory is to be given back; from any thread."""
        self._moved: deque[Link] = deque()
        """Links of which large buffers have come or gone; from any thread."""
        self._lock = threading.RLock()
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, _READ)
        self._door: Door | None = None

    # ---- links begin ------------------------------------------------------------------------------

    def listen(self, directory: str | Path, host: str = "127.0.0.1") -> Address:
        """Be dialled by a Unix socket in this directory, which only this account may enter, and by TCP at this host.
        Where plain text is refused, a host beyond this machine has no TCP socket."""
        assert self._door is None, "listens already"
        door = Door(self.me, self._key, self._linked, self._ring)
        path, named, port = "", "", 0
        try:
            if self._transport != "tcp":
                path = door.listen_unix(str(directory))
            if self._transport != "unix" and (self._allow_plaintext or is_loopback(host)):
                named, port = door.listen_tcp(host)
            door.open()
        except BaseException:
            door.close()
            raise
        self._door = door
        return Address(this_node(), path, named, port)

    def dial(self, peer: int, address: Address) -> None:
        """Link with a peer that listens there. `LinkRefused` names the address tried, and why there is no link."""
        if peer in self._linked:
            raise LinkRefused(peer, str(address), "there is a link with it already")
        connection = connect(
            self._key,
            self.me,
            peer,
            address,
            transport=self._transport,
            allow_plaintext=self._allow_plaintext,
        )
        with self._lock:
            self._linked.add(peer)
            self._begin(connection)

    def _begin(self, connection: Connection) -> Link:
        link = Link(
            connection, self._memory, self._encoder, self._decoder, self._deliver, self._unsent.append, self._has_moved,
            lambda: not (self._is_waiting or self.in_haste),
        )  # fmt: skip
        self._links[link.peer] = self._by_descriptor[link.socket.fileno()] = link
        self._watch(link)
        return link

    def _let_in(self) -> None:
        """Take the connections of peers that the door has greeted, and what they have sent since."""
        while self._door is not None and self._door.connections:
            self._read(self._begin(self._door.connections.popleft()))

    def peers(self) -> list[int]:
        """Those with a link."""
        return list(self._links)

    # ---- sending ----------------------------------------------------------------------------------

    def send(self, peer: int, message: msgspec.Struct) -> None:
        """Send a message at once, and what was posted before it. Waits only while more than `QUEUED_BYTES_MAX` are
        queued for the peer. `KeyError` if there never was a link with it."""
        with self._lock:
            link = self._links.get(peer) or self._link(peer)
            if link is None:
                return
            try:
                link.post(message)
                link.flush()
                if link.wants_to_write:
                    self._watch(link)
            finally:
                self._see_whether_torn(link)
        if link.queued_bytes > QUEUED_BYTES_MAX:
            self._wait_for_room(link)

    def post(self, peer: int, message: msgspec.Struct) -> None:
        """As `send`, but the message goes with the next one that is sent to the peer, or at the next `flush`,
        `receive` or `wait`. Many small messages to a peer then cost one system call."""
        with self._lock:
            link = self._links.get(peer) or self._link(peer)
            if link is None:
                return
            try:
                if link.post(message):
                    self._unsent.append(link)
            finally:
                self._see_whether_torn(link)
        if link.queued_bytes > QUEUED_BYTES_MAX:
            self._wait_for_room(link)

    def flush(self) -> None:
        """Send what was posted."""
        if self._unsent:
            with self._lock:
                while self._unsent:
                    link = self._unsent.popleft()
                    if self._links.get(link.peer) is link:
                        self._flush(link)

    def _link(self, peer: int) -> Link | None:
        """None if it ended."""
        link = self._links.get(peer)
        if link is None and peer not in self._ended:
            self._let_in()
            link = self._links.get(peer)
            if link is None:
                raise KeyError(f"no link with {peer_name(peer)}")
        return link

    def _flush(self, link: Link) -> None:
        try:
            link.flush()
            self._watch(link)
        finally:
            self._see_whether_torn(link)

    def _see_whether_torn(self, link: Link) -> None:
        if link.is_torn:
            self._end(link, "a call that sent by it was interrupted")
            self._ring()

    def _watch(self, link: Link) -> None:
        """Have the kernel say when there is room in the socket, if that is needed."""
        wanted = (_READ if link.wants_to_read else 0) | (_WRITE if link.wants_to_write else 0)
        if wanted == link.watched:
            return
        if not wanted:  # The kernel would tell of an end of the connection all the same.
            self._epoll.unregister(link.socket.fileno())
        elif link.watched:
            self._epoll.modify(link.socket.fileno(), wanted)
        else:
            self._epoll.register(link.socket.fileno(), wanted)
        link.watched = wanted

    def _wait_for_room(self, link: Link) -> None:
        """Until half of what may be queued is gone. Whoever sends to us may be in the same place, so we read."""
        least, until_s = link.queued_bytes, time.monotonic() + self._stalled_s
        self._is_waiting = True
        while link.queued_bytes > QUEUED_BYTES_MAX // 2 and self._links.get(link.peer) is link:
            events = self._epoll.poll(_LOOK_S, EVENTS_MAX)
            with self._lock:
                self._handle(events, read=self._unread_bytes <= INBOX_BYTES_MAX)
                now_s = time.monotonic()
                if link.queued_bytes < least:
                    least, until_s = link.queued_bytes, now_s + self._stalled_s
                elif now_s > until_s:
                    self._end(
                        link, f"it took nothing for {self._stalled_s:g} s, and {link.queued_bytes:,} bytes are queued"
                    )
        self._is_waiting = False
        self._ring()  # For whoever waits at `fileno`: something may have come.

    # ---- receiving --------------------------------------------------------------------------------

    def receive(self) -> list[tuple[int, Any]]:
        """Messages that have come, with their senders; never waits."""
        self.flush()
        events = [] if self._inbox else self._epoll.poll(0, EVENTS_MAX)
        with self._lock:
            if events:
                self._handle(events)
            came, self._inbox = self._inbox, []
            self._unread_bytes = 0
        return came

    def wait(self, timeout_s: float) -> None:
        """Until `receive` or `lost` has something, or the time is over."""
        self.flush()
        now = time.perf_counter_ns()
        end = now + int(timeout_s * 1e9)
        polling_end = min(end, now + POLLING_NS) if self._may_poll() else now
        poll = self._epoll.poll
        self._is_waiting = True
        while not self._inbox and not self._lost:
            events = poll(0, EVENTS_MAX)
            if not events:
                now = time.perf_counter_ns()
                if now >= end:
                    break
                if now < polling_end:
                    continue
                self.flush()
                events = poll((end - now) / 1e9, EVENTS_MAX)
            elif now < polling_end:
                self._fruitless = 0
            with self._lock:
                self._handle(events)
        self._is_waiting = False

    def _may_poll(self) -> bool:
        """Whether a wait that begins may poll; it counts as fruitless until something comes."""
        self._fruitless += 1
        if self._fruitless > FRUITLESS_MAX + UNPOLLED:
            self._fruitless = 1
        return self._fruitless <= FRUITLESS_MAX

    def lost(self) -> list[tuple[int, str]]:
        """Peers whose link has ended since the last look, and why."""
        lost, self._lost = self._lost, []
        return lost

    def fileno(self) -> int:
        """For an outer selector: readable when `receive` may have something."""
        return self._epoll.fileno()

    def _handle(self, events: list[tuple[int, int]], *, read: bool = True) -> None:
        for descriptor, event in events:
            link = self._by_descriptor.get(descriptor)
            if link is None:
                if descriptor == self._bell:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._bell)
                    self._let_in()
                    self._take_moved()
                continue
            if event & _WRITE:
                self._flush(link)
            if read and event & ~_WRITE:
                self._read(link)

    def _read(self, link: Link) -> None:
        self._take(link, link.read)

    def _take(self, link: Link, take: Callable[[], int]) -> None:
        """Have the link take what has come; it may end by that."""
        try:
            self._unread_bytes += take()
        except LinkEnded as end:
            self._end(link, str(end))
        except (ProtocolError, MemoryError, OSError) as error:
            link.say_farewell(str(error))
            self._end(link, str(error))
        else:
            if not link.wants_to_read:
                self._watch(link)

    def _deliver(self, peer: int, messages: list[Any]) -> None:
        inbox = self._inbox
        for message in messages:
            inbox.append((peer, message))

    def _take_moved(self) -> None:
        while self._moved:
            link = self._moved.popleft()
            if self._links.get(link.peer) is link:
                self._take(link, link.take_moved)

    def _has_moved(self, link: Link) -> None:
        """In any thread: large buffers of the link have come or gone."""
        self._moved.append(link)
        self._ring()

    def _ring(self) -> None:
        """In any thread: have `wait`, or whoever waits at `fileno`, look."""
        os.eventfd_write(self._bell, 1)

    # ---- links end --------------------------------------------------------------------------------

    def _end(self, link: Link, reason: str) -> None:
        if self._links.get(link.peer) is not link:
            return
        del self._links[link.peer], self._by_descriptor[link.socket.fileno()]
        if link.watched:
            self._epoll.unregister(link.socket.fileno())
        link.close()
        self._linked.discard(link.peer)
        self._ended.add(link.peer)
        self._lost.append((link.peer, reason))

    def end(self, peer: int, reason: str) -> None:
        """End the link with a peer, which is told the reason. What was sent to it may be lost."""
        with self._lock:
            link = self._links.get(peer)
            if link is not None:
                link.say_farewell(reason)
                self._end(link, reason)

    def close(self, within_s: float = CLOSING_S) -> None:
        """End all links, when what was sent has gone, or the time is over."""
        if self._epoll.closed:
            return
        until_s = time.monotonic() + within_s
        self.in_haste = True
        self.flush()
        while self._has_unsent() and time.monotonic() < until_s:
            self._look()
        far = [link for link in self._links.values() if not link.local]
        for link in far:
            link.finish()
        while time.monotonic() < until_s and any(self._links.get(link.peer) is link for link in far):
            self._look()  # TCP drops what is on its way if a socket is closed that has not been read to the end.
        if self._door is not None:
            self._door.close()
            self._door = None
        with self._lock:
            for link in list(self._links.values()):
                self._end(link, "the link was closed here")
            self._lost.clear()
            self._inbox.clear()
            self._moved.clear()  # Its links keep what was to be sent.
            self._epoll.close()
            os.close(self._bell)

    def forked(self) -> None:
        """This is a copy in a forked child: let go of what belongs to the parent. Nothing goes or comes here."""
        self._lock = threading.RLock()  # Another thread of the parent may have held it.
        links = list(self._links.values())
        descriptors = [descriptor for link in links for descriptor in link.descriptors()]
        if self._door is not None:
            descriptors += self._door.descriptors()
        if not self._epoll.closed:
            descriptors += [self._epoll.fileno(), self._bell]
        let_go(descriptors)

    def _has_unsent(self) -> bool:
        return any(link.has_unsent for link in self._links.values())

    def _look(self) -> None:
        events = self._epoll.poll(_LOOK_S, EVENTS_MAX)
        with self._lock:
            self._handle(events)
