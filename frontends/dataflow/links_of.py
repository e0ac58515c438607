"""Links of one process of a program, for messages that may be said before there is a link."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from frontends.dataflow.commands import Commanded
from frontends.dataflow.control_messages import ControlMessage, Where
from frontends.dataflow.dialling import Address, this_node
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.local_core import HELD_MESSAGES_MAX
from frontends.dataflow.memory import Memory
from frontends.dataflow.messages import Message
from frontends.dataflow.transport import Links, Transport
from sparrow_py.wire.local_address import LOOPBACK, host_towards_port


def where_is(address: Address) -> Where:
    return address.node, address.unix_path, address.host, address.port


def address_of(where: Where) -> Address:
    return Address(*where)


def host_towards(where: Where) -> str:
    """The address of this machine that peers can dial who are where that one is."""
    node, _, host, port = where
    return LOOPBACK if node == this_node() or not host else host_towards_port(host, port or 1)


class Peers:
    """`links`, and what waits for links that others are to dial."""

    def __init__(self, me: int, key: bytes, memory: Memory, transport: str, allow_plaintext: bool) -> None:
        self.links = Links(
            me,
            key,
            memory,
            transport=cast("Transport", transport),
            allow_plaintext=allow_plaintext,
            messages=Message | ControlMessage | Commanded,
        )
        self._waiting: dict[int, deque[Any]] = {}

    def send(self, peer: int, message: Any) -> None:
        """Send, or keep until there is a link. What is sent to a peer whose link has ended is dropped."""
        if peer in self._waiting:
            self._keep(peer, message)
            return
        try:
            self.links.post(peer, message)
        except KeyError:
            self._waiting[peer] = deque()
            self._keep(peer, message)

    def _keep(self, peer: int, message: Any) -> None:
        waiting = self._waiting[peer]
        if len(waiting) >= HELD_MESSAGES_MAX:
            raise ProtocolError(f"more than {HELD_MESSAGES_MAX} messages wait for a link with peer {peer}")
        waiting.append(message)

    def send_waiting(self) -> None:
        """Send what waited for links that are there now."""
        if not self._waiting:
            return
        linked = self.links.peers()
        for peer in [peer for peer in self._waiting if peer in linked]:
            for message in self._waiting.pop(peer):
                self.links.post(peer, message)

    def forget(self) -> None:
        """Drop what waits: an epoch is over."""
        self._waiting.clear()
