"""A link to the scheduler in this process, in place of links that are dialled."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from sparrow_py.wire import messages as m
from sparrow_py.wire.dialling import REDIAL_MAX_S, REDIAL_MIN_S, LinkUser
from sparrow_py.wire.local_pair import LocalEnd, LocalPair


class AttachableScheduler(Protocol):
    """A scheduler that runs on this loop."""

    name: str

    def attach_node(self, node_id: str, node: m.NodeInfo, pair: LocalPair) -> m.Welcome:
        """Take a node monitor in: the scheduler's end of the pair is its own from now on."""


class Attaching:
    """The link of a node monitor to the scheduler of its process. What has cut it is logged, and it is made again."""

    def __init__(self, scheduler: AttachableScheduler, node_id: str, node: m.NodeInfo, user: LinkUser) -> None:
        self.links: dict[str, LocalEnd] = {}
        self._scheduler = scheduler
        self._node_id = node_id
        self._node = node
        self._user = user
        self._end: LocalEnd | None = None
        self._cuts = 0
        self._again: asyncio.TimerHandle | None = None
        self._stopping = False

    def start(self) -> None:
        """Attach."""
        self._again = None
        pair = LocalPair(self._scheduler.name, self._node_id)
        end = pair.dialler
        self._end = end
        self.links[end.peer] = end
        # A copy, as one that comes over a socket is: what the node monitor has changes.
        node = msgspec.msgpack.decode(msgspec.msgpack.encode(self._node), type=m.NodeInfo)
        welcome = self._scheduler.attach_node(self._node_id, node, pair)
        self._user.scheduler_up(end.peer, welcome)
        end.owner = self
        end.deliver()

    def said(self, batch: list[Any]) -> None:
        """See `local_pair.Owner`."""
        self._user.scheduler_said(self._scheduler.name, batch)

    def gone(self, reason: str) -> None:
        """See `local_pair.Owner`."""
        del self.links[self._scheduler.name]
        self._end = None
        self._user.scheduler_down(self._scheduler.name, reason)
        if not self._stopping:
            delay_s = min(REDIAL_MIN_S * 2 ** min(self._cuts, 20), REDIAL_MAX_S)
            self._cuts += 1
            self._again = asyncio.get_running_loop().call_later(delay_s, self.start)

    def deliver(self) -> None:
        """An event of the node monitor is over."""
        if self._end is not None:
            self._end.deliver()

    def renew(self) -> None:
        """The token is another, which nobody in this process asks for."""

    def give_up(self, reason: str) -> None:
        """This process stood still for longer than its peers wait; the scheduler stood still with it, and goes on."""

    async def stop(self, reason: str) -> None:
        """Close the link, and make none again."""
        self._stopping = True
        if self._again is not None:
            self._again.cancel()
        if self._end is not None:
            await self._end.aclose(reason)
