"""Finds a node monitor that takes a large input, and goes on looking while nodes and schedulers come and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from sparrow_py.access.credentials import Access
from sparrow_py.errors import AccessDenied, LinkError, NoScheduler, Refused
from sparrow_py.job import BlobRef
from sparrow_py.wire import blobs

ASK_TIMEOUT_S = 10.0
"""How long a scheduler has to name some node monitors."""
NODES_AT_ONCE = 3
"""Node monitors that a scheduler names at a time."""
RETRY_MAX_S = 1.0
"""The longest wait before a scheduler is asked for others."""


class Uploading:
    """The uploads of one client.

    schedulers: gives the HTTP addresses of the schedulers that it has links to. access: gives what it shows them."""

    def __init__(
        self, session: aiohttp.ClientSession, schedulers: Callable[[], list[str]], access: Callable[[], Access]
    ) -> None:
        self._session = session
        self._schedulers = schedulers
        self._access = access

    async def upload(self, data: bytes, hash_: str, is_late: Callable[[], bool]) -> BlobRef:
        """Give large data to some node monitor. A try that is under way when it `is_late` is the last.

        Then, or at once if to try again cannot help, `NoScheduler`, `Refused` or `LinkError` says why none took it.
        """
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_random_exponential(multiplier=0.05, max=RETRY_MAX_S),
            stop=lambda _: is_late(),
            reraise=True,
        ):
            with attempt:
                # In a task of its own: aiohttp takes the end of its own writer for the caller's cancellation if the
                # caller's task has ever been cancelled, as one is in whose TaskGroup another failed.
                return await asyncio.create_task(self._offer(data, hash_, is_late))
        raise AssertionError("it is tried until some node has it, or none will")

    async def _offer(self, data: bytes, hash_: str, is_late: Callable[[], bool]) -> BlobRef:
        """To some nodes, one after the other."""
        refusals: list[Refused | LinkError] = []
        for address in await self._some_nodes():
            try:
                return await blobs.upload(self._session, address, self._access(), data, hash_)
            except (Refused, LinkError) as refusal:
                refusals.append(refusal)
            if is_late():
                break
        raise next(filter(_may_pass, refusals), refusals[-1])

    async def _some_nodes(self) -> list[str]:
        """HTTP addresses of a few node monitors, at random; `NoScheduler` if no scheduler knows any."""
        schedulers = self._schedulers()
        for address in random.sample(schedulers, len(schedulers)):
            nodes = await self._nodes_of(address)
            if nodes:  # Else it has just started, and another may know some.
                return nodes
        raise NoScheduler("no scheduler could say where to upload a large input")

    async def _nodes_of(self, scheduler: str) -> list[str]:
        access = self._access()
        url = access.url(scheduler, f"/v1/nodes?sample={NODES_AT_ONCE}")
        asked = self._session.get(url, headers=access.headers(), ssl=access.ssl, allow_redirects=False)
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S), asked as response:
                return [str(node["address"]) for node in (await response.json())["nodes"]]
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError):
            return []


def _may_pass(error: BaseException) -> bool:
    """Whether another try may end otherwise: not if the data are larger than a node may keep, or access is denied."""
    if isinstance(error, Refused):
        return error.retry_after_s is not None
    return isinstance(error, NoScheduler | LinkError) and not isinstance(error, AccessDenied)
