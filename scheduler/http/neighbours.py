"""The other schedulers of the cluster. Schedulers do not know each other; nodes know those that they are linked to.

So a scheduler whose viewer wants to know asks some of its nodes over HTTP, and then each scheduler that they name what
it is. All of these have shown that they are of the cluster, or are dialled by who has. It is asked for when somebody
looks, once in a while, and of nodes that cannot be reached from here nothing is known.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from scheduler.http.views import SchedulerDetail

if TYPE_CHECKING:
    from scheduler.book.nodes import Node
    from sparrow_py.access.credentials import Credentials

NODES_ASKED_MAX = 3
"""Nodes that are asked, drawn at random."""
SCHEDULERS_MAX = 32
"""Schedulers that are asked what they are."""
FRESH_S = 20.0
"""For how long an answer is given again."""
TIMEOUT_S = 3.0
"""Of each request."""
ANSWER_BYTES_MAX = 4 << 20
"""Of an answer to one: a process may host a thousand nodes."""


class Neighbour(msgspec.Struct):
    """Another scheduler, as nodes dial it. `answer`: takes jobs, why it does not, or that it does not answer."""

    address: str
    name: str
    policy: str
    answer: str
    nodes: int | None
    slots: int | None
    jobs: int | None


class NeighbourList(msgspec.Struct):
    """Other schedulers."""

    schedulers: list[Neighbour]


class _NodeStatus(msgspec.Struct):
    scheduler_addresses: list[str] = []  # Nodes of a version before do not say.


class _NodeList(msgspec.Struct):
    nodes: list[_NodeStatus]


class Neighbours:
    """See the module's docstring. name: this scheduler's, which is left out. nodes: those that are connected."""

    def __init__(
        self, name: str, credentials: Credentials, nodes: Callable[[], Sequence[Node]], clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._credentials = credentials
        self._nodes = nodes
        self._clock = clock
        self._known = NeighbourList([])
        self._asked_s = -FRESH_S
        self._asking = asyncio.Lock()

    async def known(self) -> NeighbourList:
        """Those that are known, asked for anew if that was not done just now."""
        async with self._asking:
            if self._clock() - self._asked_s >= FRESH_S:
                self._known = NeighbourList(await self._ask())
                self._asked_s = self._clock()
        return self._known

    async def _ask(self) -> list[Neighbour]:
        access = self._credentials.access
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(headers=access.headers(), timeout=timeout) as session:
            monitors = {node.info.address for node in self._nodes() if node.info.address}
            asked = random.sample(sorted(monitors), min(NODES_ASKED_MAX, len(monitors)))
            lists = await asyncio.gather(*[self._get(session, one, "/v1/nodes", _NodeList) for one in asked])
            named = {
                one for found in lists if found is not None for node in found.nodes for one in node.scheduler_addresses
            }
            dialled = sorted(one for one in named if "/" not in one)[:SCHEDULERS_MAX]  # Not the paths of Unix sockets.
            found = await asyncio.gather(
                *[self._get(session, one, "/v1/scheduler", SchedulerDetail) for one in dialled]
            )
        pairs = zip(dialled, found, strict=True)
        return [_neighbour(address, detail) for address, detail in pairs if detail is None or detail.name != self._name]

    async def _get(self, session: aiohttp.ClientSession, address: str, path: str, kind: type[Any]) -> Any:
        access = self._credentials.access
        try:
            async with session.get(access.url(address, path), ssl=access.ssl, allow_redirects=False) as response:
                if response.status != 200:
                    return None
                body = await _whole(response.content)
                return None if body is None else msgspec.json.decode(body, type=kind)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):  # Or what it says is no such answer.
            return None


async def _whole(content: aiohttp.StreamReader) -> bytes | None:
    """The answer to its end; None if that is more than `ANSWER_BYTES_MAX`."""
    body = bytearray()
    async for part in content.iter_any():
        body += part
        if len(body) > ANSWER_BYTES_MAX:
            return None
    return bytes(body)


def _neighbour(address: str, detail: SchedulerDetail | None) -> Neighbour:
    if detail is None:
        return Neighbour(address, "", "", "does not answer", None, None, None)
    answer = "takes jobs" if detail.takes_jobs else detail.why_not
    return Neighbour(address, detail.name, detail.policy, answer, detail.nodes, detail.slots, detail.jobs)
