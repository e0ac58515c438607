"""The nodes of a cluster, as its schedulers list them over HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import aiohttp
import msgspec

from sparrow_py.access.credentials import Access
from sparrow_py.counted import counted
from sparrow_py.errors import LinkError, NoScheduler, SparrowError, shown
from sparrow_py.job import check_number, check_whole
from sparrow_py.wire.messages import READY

NODES_PATH = "/v1/nodes"
NODES_MAX = 10_000
"""A scheduler lists so many at most."""
LOOK_MIN_S, LOOK_MAX_S = 0.005, 0.25
"""How long it takes until schedulers are asked again while nodes are waited for: at first, and after some seconds."""
LOOK_GROWTH = 1.1
LOOK_TIMEOUT_S = 10.0
"""How long a scheduler may take to answer."""
ANSWER_MIN_S = 1.0
"""So long it may take even if nodes are not waited for that long: to look once is promised."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node that is connected.

    Parameters
    ----------
    id: its name, as in `TaskReport.node` and `TaskSpec.preferred`.
    state: "ready"; "cordoned", which gets no further tasks; or "draining", which ends once it has none.
    slots: tasks that it runs at a time.
    busy, reservations: tasks that it has, and reservations queued there, of the schedulers that were asked. Tasks that
        wait for tasks of their own are among them, and have no slot meanwhile.
    apps: the apps that it runs, and the runtime that the executors of each state ("3.11" for python, else "").
    attributes: what `where` speaks of.
    resources: what tasks may demand in all, by name: `cpu` in CPUs, `memory_bytes`, or what the node names.
    address: host:port of its HTTP.
    launched: tasks that these schedulers have sent there since it has come: a number that changes tells of tasks that
        came and went between two looks.
    """

    id: str
    slots: int
    state: str = READY
    busy: int = 0
    reservations: int = 0
    apps: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    resources: dict[str, float] = field(default_factory=dict)
    address: str = ""
    launched: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether it takes tasks."""
        return self.state == READY


NODE_COLUMNS = ("node", "state", "slots", "busy", "reservations", "apps")
"""What `node_row` has, for people."""


def node_row(node: NodeStatus) -> tuple[str | int, ...]:
    """A node's `NODE_COLUMNS`."""
    return node.id, node.state, node.slots, node.busy, node.reservations, ", ".join(node.apps)


def ready_slots(nodes: Iterable[NodeStatus], app: str) -> int:
    """How many tasks of the app these nodes run at a time, as far as they take any."""
    return sum(node.slots for node in nodes if node.is_ready and app in node.apps)


Listing = Sequence[NodeStatus]
"""The nodes that one scheduler has."""


@dataclass(frozen=True, slots=True)
class _Body:
    nodes: list[NodeStatus]


_decode = msgspec.json.Decoder(_Body).decode


def decode_listing(body: bytes | str, address: str) -> Listing:
    """What the scheduler at this address answered; `LinkError` if it is no list of nodes."""
    try:
        return _decode(body).nodes
    except msgspec.MsgspecError as error:
        raise LinkError(f"what answers at {address} is not a scheduler: {error}") from None


def merged(listings: Iterable[Listing]) -> list[NodeStatus]:
    """Each node once, by id. Schedulers count only what is their own there, so these counts are added."""
    found: dict[str, NodeStatus] = {}
    for node in (node for listing in listings for node in listing):
        known = found.get(node.id)
        found[node.id] = node if known is None else replace(
            known, busy=known.busy + node.busy, reservations=known.reservations + node.reservations,
            launched=known.launched + node.launched,
        )  # fmt: skip
    return [found[name] for name in sorted(found)]


async def ask_all(
    session: aiohttp.ClientSession, addresses: Sequence[str], access: Access, timeout_s: float = LOOK_TIMEOUT_S
) -> list[Listing]:
    """What the schedulers at these addresses answer, as far as they do; `SparrowError` if none does."""
    asked = (_ask(session, address, access, timeout_s) for address in addresses)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    listings = [answer for answer in answers if not isinstance(answer, BaseException)]
    if listings:
        return listings
    raise next(
        (error for error in answers if isinstance(error, BaseException)), NoScheduler("no scheduler is connected")
    )


async def _ask(session: aiohttp.ClientSession, address: str, access: Access, timeout_s: float) -> Listing:
    asked = session.get(
        access.url(address, NODES_PATH), headers=access.headers(), ssl=access.ssl, allow_redirects=False
    )
    try:
        async with asyncio.timeout(timeout_s), asked as response:
            status, body = response.status, await response.read()
    except TimeoutError:
        raise NoScheduler(f"scheduler {address} did not answer within {timeout_s:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise NoScheduler(f"no scheduler answers at {address}: {error}") from None
    if status != 200:
        raise SparrowError(f"scheduler {address} refused to list its nodes ({status}): {shown(body)}")
    return decode_listing(body, address)


def check_timeout(timeout_s: object) -> None:
    """`InvalidRequest` unless nodes may be waited for for so long: a number of seconds, or None, for ever."""
    if timeout_s is not None:
        check_number("timeout_s", timeout_s, 0, math.inf)


class Awaited:
    """Nodes that are waited for: until each scheduler has so many that are ready, as any of them may get the next job.

    `timeout_s`: for how long; None: for ever.
    """

    def __init__(self, count: int, timeout_s: float | None) -> None:
        check_whole("count", count, 0, NODES_MAX)
        check_timeout(timeout_s)
        self._look_s = LOOK_MIN_S
        self._count = count
        self._timeout_s = timeout_s
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def ask_timeout_s(self) -> float:
        """How long a scheduler may take that is asked now."""
        left_s = LOOK_TIMEOUT_S if self._deadline_s is None else self._deadline_s - time.monotonic()
        return min(LOOK_TIMEOUT_S, max(left_s, ANSWER_MIN_S))

    def pause_s(self) -> float:
        """How long to wait before they are asked again."""
        self._look_s = min(self._look_s * LOOK_GROWTH, LOOK_MAX_S)
        return self._look_s

    def are_there(self, listings: Sequence[Listing]) -> bool:
        """Whether they are; `TimeoutError` if they are not, and it is late."""
        least = min((sum(node.is_ready for node in listing) for listing in listings), default=0)
        if least >= self._count:
            return True
        if self._deadline_s is not None and time.monotonic() >= self._deadline_s:
            few = f"{least:,} of {counted(self._count, 'node', 'are')} ready" if listings else "no scheduler answers"
            raise TimeoutError(f"{few} after {self._timeout_s:g} s")
        return False
