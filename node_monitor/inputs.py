"""Large data that attempts here need and that are at other nodes: they are fetched, and the attempts wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from node_monitor.attempts import WAITS, Attempt
from node_monitor.executors.executor_state import ExecutorState
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.wire import messages as m


class Blobs(Protocol):
    """Large data at this node; an owner keeps what it has pinned."""

    def file(self, hash_: str) -> x.File | None:
        """The file with these bytes, or None."""

    def file_for(self, hash_: str, account: str) -> x.File | None:
        """The same, which executors of this account may read from now on."""

    def adopt(self, file: x.File, owner: int) -> BlobRef:
        """Keep an executor's result, which is here under its own hash, as long as the owner is there."""

    def pin(self, hash_: str, owner: int) -> None:
        """Keep it as long as the owner is there."""

    def unpin(self, owner: int) -> None:
        """The owner is gone."""


class Inputs:
    """What is under way, and which attempts wait for it."""

    __slots__ = ("_blobs", "_fetch", "fetching", "tried")

    def __init__(self, blobs: Blobs, fetch: Callable[[BlobRef, str], None]) -> None:
        self._blobs = blobs
        self._fetch = fetch
        self.fetching: dict[str, list[Attempt]] = {}
        """Hash of large data under way to the attempts that wait for it."""
        self.tried: dict[str, set[tuple[str, ...]]] = {}
        """Hash of large data under way to the nodes where it was sought."""

    def wait(self, attempt: Attempt) -> None:
        """Keep what the attempt needs, and have fetched what of that is not here: then it waits."""
        missing = set()
        for ref in _large(attempt):
            if self._blobs.file(ref.hash) is None:
                missing.add(ref.hash)
                waiting = self.fetching.setdefault(ref.hash, [])
                waiting.append(attempt)
                if len(waiting) == 1:
                    self.tried[ref.hash] = {ref.at}
                    self._fetch(ref, attempt.job.owner[0])
            else:
                self._blobs.pin(ref.hash, attempt.job.number)
        if missing:
            attempt.becomes(WAITS)
            attempt.missing = frozenset(missing)

    def sought_elsewhere(self, hash_: str) -> bool:
        """The data could not be had: whether they are sought at another node, of which word has come meanwhile."""
        refs = (ref for attempt in self.fetching.get(hash_, ()) for ref in _large(attempt))
        other = next((ref for ref in refs if ref.hash == hash_ and ref.at not in self.tried[hash_]), None)
        if other is None:
            return False
        self.tried[hash_].add(other.at)
        self._fetch(other, self.fetching[hash_][0].job.owner[0])
        return True

    def take_waiting(self, hash_: str) -> list[Attempt]:
        """The attempts that waited for these data, which they do no more."""
        self.tried.pop(hash_, None)
        waited = self.fetching.pop(hash_, [])
        for attempt in waited:
            attempt.missing -= {hash_}
        return waited

    def keep(self, attempt: Attempt, hash_: str) -> None:
        """These data are here, for the attempt's job."""
        self._blobs.pin(hash_, attempt.job.number)

    def wait_no_more(self, attempt: Attempt) -> None:
        """The attempt ends, and waits for nothing any more."""
        for hash_ in attempt.missing:
            waiting = self.fetching[hash_]
            waiting.remove(attempt)
            if not waiting:
                del self.fetching[hash_]

    def local(self, data: m.Data, executor: ExecutorState) -> x.Data:
        """The data, which are here, as the executor is given them."""
        if isinstance(data, bytes):
            return data
        file = self._blobs.file_for(data.hash, executor.app.plan.account)
        assert file is not None, f"{data.hash} is not here"
        return file

    def problem(self) -> str | None:
        """What does not hold, if anything."""
        for hash_, waiting in self.fetching.items():
            if not waiting or any(one.state is not WAITS or hash_ not in one.missing for one in waiting):
                return f"{hash_} is fetched for attempts that do not wait for it"
        return None


def _large(attempt: Attempt) -> list[BlobRef]:
    """What the attempt needs that does not travel with messages, each once."""
    common = attempt.common.data if attempt.common is not None else b""
    wanted = (common, attempt.payload, *attempt.job.inputs_of(attempt.inputs))
    return list({data.hash: data for data in wanted if isinstance(data, BlobRef)}.values())
