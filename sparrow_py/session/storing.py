"""The values that a client has stored in its cluster (`StoredValue`): where they are, and what is said of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from weakref import WeakValueDictionary

from sparrow_py.errors import InvalidRequest, LinkError, Refused
from sparrow_py.job import BlobRef, JobSpec
from sparrow_py.stored_values import CallSpec, StoredValue
from sparrow_py.wire import blobs

BROADCAST_AT_ONCE = 8
"""Nodes that a value is given to at the same time."""
BROADCAST_NODES_MAX = 64
"""Nodes that a broadcast value is given to, at random; others fetch it from these."""


class Storing:
    """The stored values of one client.

    upload: gives data, whose hash comes with them, to some node. upload_to: the same, to the node at this address.
    addresses: of the nodes that are connected.
    """

    def __init__(
        self,
        upload: Callable[[bytes, str], Awaitable[BlobRef]],
        upload_to: Callable[[str, bytes, str], Awaitable[BlobRef]],
        addresses: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self._upload = upload
        self._upload_to = upload_to
        self._addresses = addresses
        self._values: WeakValueDictionary[str, StoredValue] = WeakValueDictionary()
        """By their hash."""

    async def store(self, content: bytes, *, broadcast: bool) -> StoredValue:
        """Give the encoded value to some node, or with `broadcast` to each; errors are those of uploads."""
        hash_ = await blobs.sha256_hex_aside(content)
        known = self._values.get(hash_)
        if known is not None and not broadcast:
            return known
        ref = await (self._broadcast(content, hash_) if broadcast else self._upload(content, hash_))
        if known is None:
            known = self._values.setdefault(hash_, StoredValue(ref, content, self))
        known.blob = ref
        return known

    async def _broadcast(self, content: bytes, hash_: str) -> BlobRef:
        first = await self._upload(content, hash_)  # This one waits for room and for nodes to come; the rest need not.
        others = [address for address in await self._addresses() if address not in first.at]
        chosen = random.sample(others, min(len(others), BROADCAST_NODES_MAX - 1))
        at_once = asyncio.Semaphore(BROADCAST_AT_ONCE)

        async def give(address: str) -> tuple[str, ...]:
            async with at_once:
                try:
                    return (await self._upload_to(address, content, hash_)).at
                except (Refused, LinkError):
                    return ()  # It fetches the value when a task needs it.

        there = await asyncio.gather(*map(give, chosen))
        return BlobRef(hash_, first.size, (*first.at, *(address for at in there for address in at)))

    def content_of(self, value: object) -> bytes:
        """The encoded value; `InvalidRequest` if it is none that this client has stored."""
        if not isinstance(value, StoredValue):
            raise InvalidRequest("value", value, "what put has returned")
        self.check_own(value, "value")
        return value.content

    def uploads(self, spec: JobSpec) -> dict[str, bytes]:
        """What a job needs of the stored values, by its hash, to be uploaded again if nodes are lost; `InvalidRequest`
        for values of another client."""
        uploads = {}
        for value in _values_of(spec):
            self.check_own(value, "arguments")
            uploads[value.hash] = value.content
        return uploads

    def check_own(self, value: StoredValue, field: str) -> None:
        """`InvalidRequest` if the value is another client's."""
        if value.owner is not self:
            raise InvalidRequest(field, value, "values that this very client has stored (put)")

    def uploaded_again(self, ref: BlobRef) -> None:
        """This is where the data are from now on, if they are a stored value."""
        value = self._values.get(ref.hash)
        if value is not None:
            value.blob = ref


def _values_of(spec: JobSpec) -> Iterator[StoredValue]:
    for stage in spec.as_stages():
        for task in stage.tasks:
            if isinstance(task, CallSpec):
                yield from task.values
