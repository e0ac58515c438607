"""Large data that attempts here need and that are at other nodes: they are fetched, and the attempts wait for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from node_monitor.attempts import ENDED, WAITS, Attempt
from node_monitor.blobs.lack_of_room import LackOfRoom
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

    def lack_of_room(self, size: int, in_all: int, user: str) -> LackOfRoom | None:
        """Why the user's further inputs of a task, so many bytes, cannot be kept now beside those that are here, of
        `in_all` bytes together; None if they can."""

    def pin(self, hash_: str, owner: Hashable, user: str) -> LackOfRoom | None:
        """Keep it for the user as long as the owner is there; if that cannot be, why not."""

    def touch(self, hash_: str, user: str) -> bool:
        """The user has use for it: its lease begins anew. False if it is not here, or cannot be held."""

    def unpin(self, owner: Hashable) -> None:
        """The owner is gone."""


SOURCES_MAX = 100
"""Places that are remembered of large data under way; attempts that name yet another wait for those."""


Place = tuple[int, tuple[str, ...]]
"""How many bytes the data are said to be, and at which nodes. A request with a wrong size is refused there, which is no
answer for an attempt that states another."""


class _Search:
    """Large data that are asked for, from the first request until the last answer."""

    __slots__ = ("asked", "given_up", "requests", "sources", "untried", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Attempt] = []
        """The attempts that wait for the data. All may have left: answers are still to come."""
        self.requests = 0
        """Those that have no answer yet."""
        self.given_up = 0
        """Of these, those that nobody waited for any more: their answers come first."""
        self.asked: set[Place] = set()
        """Where these ask, or asked: an answer does not say whose it is."""
        self.sources: set[Place] = set()
        """Where the data are said to be; each attempt names a place."""
        self.untried: list[BlobRef] = []
        """Those of them where the data have not been sought, the one that was named first at the front."""

    def learn(self, ref: BlobRef) -> None:
        """The data are said to be there."""
        place = ref.size, ref.at
        if place not in self.sources and len(self.sources) < SOURCES_MAX:
            self.sources.add(place)
            self.untried.append(ref)

    def learn_news(self, hash_: str) -> None:
        """Schedulers may have sent other places meanwhile, as the data have been produced again."""
        for attempt in self.waiting:
            for ref in _large(attempt):
                if ref.hash == hash_:
                    self.learn(ref)


class Inputs:
    """What is under way, and which attempts wait for it."""

    __slots__ = ("_blobs", "_fetch", "_give_up", "fetching", "holding")

    def __init__(
        self, blobs: Blobs, fetch: Callable[[BlobRef, str], None], give_up: Callable[[str, int, str], None]
    ) -> None:
        """fetch: requests data for a user. give_up: nobody waits any more for what was requested, by hash, size and
        user: the answer may come at once."""
        self._blobs = blobs
        self._fetch = fetch
        self._give_up = give_up
        self.fetching: dict[tuple[str, str], _Search] = {}
        """By user and hash: where one user says that data are, and what becomes of that, does not concern another."""
        self.holding: set[Attempt] = set()
        """Attempts for which large data are kept: not for their jobs, as what some tasks of a job needed would leave no
        room for what others need."""

    def renew(self, user: str, hashes: Iterable[str]) -> None:
        """The user has use for these data as far as they are here: results of a job that is kept for it."""
        for hash_ in hashes:
            self._blobs.touch(hash_, user)

    def wait(self, attempt: Attempt) -> LackOfRoom | None:
        """Keep what the attempt needs, and have fetched what of that is not here: then it waits. Or say why there is no
        room for that."""
        user, large = attempt.charge.ticket.user, _large(attempt)
        missing = [ref for ref in large if self._blobs.file(ref.hash) is None]
        to_come = sum(ref.size for ref in missing if (user, ref.hash) not in self.fetching)
        if no_room := self._blobs.lack_of_room(to_come, sum(ref.size for ref in large), user) if missing else None:
            return no_room
        self.holding.add(attempt)
        for ref in large:
            if ref not in missing and (no_room := self._blobs.pin(ref.hash, attempt, user)):
                return no_room
        for ref in missing:
            self._wait_for(ref, attempt)
        if missing:
            attempt.becomes(WAITS)
            attempt.missing = frozenset(ref.hash for ref in missing)
            attempt.fetches = sum(ref.size for ref in missing), attempt.given_at_s
        return None

    def _wait_for(self, ref: BlobRef, attempt: Attempt) -> None:
        key = attempt.charge.ticket.user, ref.hash
        search = self.fetching.get(key)
        if search is None:
            search = self.fetching[key] = _Search()
        first = not search.waiting
        search.waiting.append(attempt)
        if first:
            search.sources.add((ref.size, ref.at))
            self._request(search, ref)
        else:
            search.learn(ref)

    def _request(self, search: _Search, ref: BlobRef) -> None:
        search.requests += 1
        search.asked.add((ref.size, ref.at))
        self._fetch(ref, search.waiting[0].charge.ticket.user)

    def answered(self, user: str, hash_: str, *, came: bool) -> list[Attempt]:
        """A request of the user's has its answer. Returns the attempts that wait for these data no more, as they came
        or cannot be had: as long as attempts wait, the data are sought wherever one of them, or one that has left,
        said."""
        search = self.fetching.get((user, hash_))
        if search is None:
            return []
        search.requests -= 1
        if not search.requests:
            search.asked.clear()
        if search.given_up:
            search.given_up -= 1
            if not came and search.waiting:
                return []  # Others were asked since then.
        if not came and search.waiting:
            search.learn_news(hash_)
            if search.untried:
                self._request(search, search.untried.pop(0))
                return []
            if search.requests and len(search.asked) > 1:
                return []
        waited, search.waiting = search.waiting, []
        if not search.requests:
            del self.fetching[user, hash_]
        for attempt in waited:
            attempt.missing -= {hash_}
        return waited

    def keep(self, attempt: Attempt, hash_: str) -> LackOfRoom | None:
        """These data are here, for the attempt; or there is no room for them, and why."""
        return self._blobs.pin(hash_, attempt, attempt.charge.ticket.user)

    def release(self, attempt: Attempt) -> None:
        """The attempt ends: nothing is kept for it any more."""
        if attempt in self.holding:
            self.holding.remove(attempt)
            self._blobs.unpin(attempt)

    def wait_no_more(self, attempt: Attempt) -> None:
        """The attempt ends, and waits for nothing any more. The places that it named stay known to others; if there are
        none, what was requested for it is given up."""
        user = attempt.charge.ticket.user
        for hash_ in attempt.missing:
            search = self.fetching[user, hash_]
            search.waiting.remove(attempt)
            if not search.waiting and search.given_up < search.requests:
                search.given_up = search.requests
                for size in {size for size, _ in search.asked}:
                    self._give_up(hash_, size, user)

    def local(self, data: m.Data, executor: ExecutorState) -> x.Data:
        """The data, which are here, as the executor is given them."""
        if isinstance(data, bytes):
            return data
        file = self._blobs.file_for(data.hash, executor.app.plan.account)
        assert file is not None, f"{data.hash} is not here"
        return file

    @staticmethod
    def needed(attempt: Attempt) -> tuple[str, ...]:
        """The hashes of all large data that the attempt needs."""
        return tuple(ref.hash for ref in _large(attempt))

    def problem(self) -> str | None:
        """What does not hold, if anything."""
        if any(attempt.state is ENDED for attempt in self.holding):
            return "large data are kept for attempts that have ended"
        for (_, hash_), search in self.fetching.items():
            if search.requests < 1:
                return f"{hash_} is waited for, but nobody was asked for it"
            if any(one.state is not WAITS or hash_ not in one.missing for one in search.waiting):
                return f"{hash_} is fetched for attempts that do not wait for it"
        return None


def _large(attempt: Attempt) -> list[BlobRef]:
    """What the attempt needs that does not travel with messages, each once."""
    common = attempt.common.data if attempt.common is not None else b""
    wanted = (common, attempt.payload, *attempt.job.inputs_of(attempt.inputs))
    return list({data.hash: data for data in wanted if isinstance(data, BlobRef)}.values())
