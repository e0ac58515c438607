"""Large data in a simulated cluster: only names and sizes, no bytes."""

from __future__ import annotations

from collections.abc import Hashable

from node_monitor.blobs.lack_of_room import LackOfRoom
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef


class FakeBlobs:
    """The blob store of a node: has what `add` was told of, and takes every result."""

    def __init__(self, address: str = "here:1") -> None:
        self.address = address
        self.files: dict[str, x.File] = {}
        self.pins: dict[Hashable, set[str]] = {}
        """By owner."""

    def add(self, ref: BlobRef) -> None:
        """It has come from another node."""
        self.files[ref.hash] = x.File(f"/blobs/{ref.hash}", ref.size, ref.hash)

    def file(self, hash_: str) -> x.File | None:
        """The file with these bytes, or None."""
        return self.files.get(hash_)

    def file_for(self, hash_: str, account: str) -> x.File | None:
        """The same: there are no accounts."""
        return self.file(hash_)

    def adopt(self, file: x.File, owner: int) -> BlobRef:
        """Keep an executor's result."""
        self.files[file.hash] = file
        self.pin(file.hash, owner, "")
        return BlobRef(file.hash, file.size, (self.address,))

    def lack_of_room(self, size: int, in_all: int, user: str) -> LackOfRoom | None:
        """There is room for everything."""
        return None

    def pin(self, hash_: str, owner: Hashable, user: str) -> LackOfRoom | None:
        """Keep it as long as the owner is there."""
        assert hash_ in self.files
        self.pins.setdefault(owner, set()).add(hash_)
        return None

    def touch(self, hash_: str, user: str) -> bool:
        """There are no leases."""
        return hash_ in self.files

    def unpin(self, owner: Hashable) -> None:
        """The owner is gone."""
        self.pins.pop(owner, None)
