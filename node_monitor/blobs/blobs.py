"""Which large inputs and results ("blobs") a node keeps: the bookkeeping, and every decision which of them may stay.

Inputs and results above a size do not go through schedulers; they lie at node monitors, named by the SHA-256 of their
bytes. Every blob is a file in the node's blob directory from the start: the page cache keeps those in memory that are
used, and the memory of daemons does not grow with them. `blob_store` has the files.

Pure: no clock, no I/O. The caller states the time in seconds; time that goes back counts as standing still.

A blob is
    pinned   if it is needed here (a job's input, a result that was not acknowledged): it stays;
    leased   if it was pinned or used within `lease_s` (a client is about to fetch a result): it stays;
    spare    if it is a copy, fetched from another node for tasks that needed it, and none does any more; or else
    lapsed:  it goes when room is needed, spare ones before the others, the least recently used first, or once unused
             for `retention_s`.
Blobs that are pinned, leased or on their way count to the user who brought them; one user leaves a share for others
(`shares`). A lapsed or spare blob is held again for whoever uses it, and only within that user's share.

Leased and lapsed blobs are kept in the order of their last use, and so are spare ones: as time goes on, the
first of the leased ones becomes the last of the lapsed ones. Every operation is O(1) amortised.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from sparrow_py.errors import InvariantViolated
from sparrow_py.limits.shares import Shares

BLOBS_MAX = 100_000
"""Most blobs at one node, however small they are: each is a file."""


class _Blob:
    """A blob that is here."""

    __slots__ = ("is_copy", "owners", "size", "used_s", "user")

    def __init__(self, size: int, user: str) -> None:
        self.size = size
        self.user = user
        """The user to whom the blob counts while it is held."""
        self.used_s = 0.0
        self.owners: set[Hashable] = set()
        self.is_copy = False
        """Whether it was fetched from another node, and nobody has been told that it is here, too."""


class BlobTable:
    """The blobs of one node, at most `bytes_max` bytes of them, those on their way included."""

    def __init__(self, bytes_max: int, retention_s: float, lease_s: float, count_max: int = BLOBS_MAX) -> None:
        self.bytes_max = bytes_max
        self.count_max = count_max
        self.bytes_used = 0
        """Bytes of the blobs that are here."""
        self.bytes_reserved = 0
        """Bytes that are set aside for blobs on their way."""
        self._lease_s = lease_s
        self._keep_s = max(lease_s, retention_s)
        self._now_s = 0.0
        self._reservations = 0
        self._held_bytes = Shares("blob_bytes_max", bytes_max, "bytes are kept at a node", lends=True)
        self._held_count = Shares("BLOBS_MAX", count_max, "blobs are kept at a node", lends=True)
        self._blobs: dict[str, _Blob] = {}
        self._leased: OrderedDict[str, _Blob] = OrderedDict()
        self._lapsed: OrderedDict[str, _Blob] = OrderedDict()
        self._spare: OrderedDict[str, _Blob] = OrderedDict()
        self._pins: dict[Hashable, dict[str, None]] = {}
        """Owner to the hashes of its pinned blobs; a dict keeps their order."""

    def __contains__(self, hash: str) -> bool:
        return hash in self._blobs

    def __len__(self) -> int:
        return len(self._blobs)

    def size(self, hash: str) -> int | None:
        """Bytes of the blob; None if it is not here."""
        blob = self._blobs.get(hash)
        return None if blob is None else blob.size

    def holds(self, hash: str, now_s: float) -> bool:
        """Whether the blob is here, and pinned or leased."""
        self._advance(now_s)
        return hash in self._blobs and hash not in self._lapsed and hash not in self._spare

    # ---- room --------------------------------------------------------------------------------

    @property
    def bytes_held(self) -> int:
        """Bytes that eviction cannot free: of pinned and leased blobs, and of those on their way."""
        return self._held_bytes.total

    def is_needed(self, now_s: float) -> bool:
        """Whether any blob is pinned or leased, or on its way."""
        self._advance(now_s)
        return self.bytes_held > 0

    def fits(self, size: int, now_s: float, user: str = "") -> bool:
        """Whether there is room for so many bytes of the user's, perhaps after some blobs are evicted."""
        self._advance(now_s)
        return not (self._held_bytes.why_not(user, size) or self._held_count.why_not(user))

    def may_ever_fit(self, size: int, user: str = "") -> bool:
        """Whether the user may have so many bytes here, if nobody else needs room."""
        return size <= self._held_bytes.most_of(user)

    def refusal(self, size: int, what: str = "blob", user: str = "") -> str:
        """Why so many bytes do not fit."""
        why_not = self._held_bytes.why_not(user, size)
        if not why_not:
            return f"{self._held_count.why_not(user)}; {self._held_count.total} are in use"
        return f"the {what} is {size} bytes; {why_not}; {self.bytes_held} are in use"

    def reserve(self, size: int, now_s: float, user: str = "") -> list[str] | None:
        """Set room aside for a blob on its way; returns the blobs that were evicted for it, None if there is no room.

        Each blob on its way has its own room, even if several have the same hash. `release` gives the room back, just
        before `add` takes it for good.
        """
        evicted = self._make_room(size, now_s, user)
        if evicted is not None:
            self.bytes_reserved += size
            self._reservations += 1
            self._hold(size, user)
        return evicted

    def release(self, size: int, user: str = "") -> None:
        """Give back the room that `reserve` has set aside."""
        self.bytes_reserved -= size
        self._reservations -= 1
        self._let_go(size, user)

    def add(self, hash: str, size: int, now_s: float, user: str = "", *, is_copy: bool = False) -> list[str] | None:
        """A blob has come, and is leased; returns the blobs that were evicted for it, None if there is no room (see
        `refusal`). `is_copy`: from another node, for tasks that will pin it, and to make room once none does any more.

        A blob that was here already is touched, unless a copy came. Whether the user may have so much, `fits` and
        `reserve` say.
        """
        if hash in self._blobs:
            if not is_copy:
                self.touch(hash, now_s, user)
            return []
        evicted = self._make_room(size, now_s)
        if evicted is not None:
            self.bytes_used += size
            self._blobs[hash] = blob = _Blob(size, user)
            blob.is_copy = is_copy
            self._hold(size, user)
            self._lease(hash, blob)
        return evicted

    def _hold(self, size: int, user: str) -> None:
        self._held_bytes.take(user, size)
        self._held_count.take(user)

    def _let_go(self, size: int, user: str) -> None:
        self._held_bytes.give_back(user, size)
        self._held_count.give_back(user)

    def _make_room(self, size: int, now_s: float, user: str = "") -> list[str] | None:
        if not self.fits(size, now_s, user):
            return None
        evicted = []
        while (
            self.bytes_used + self.bytes_reserved + size > self.bytes_max
            or len(self._blobs) + self._reservations >= self.count_max
        ):
            evicted.append(self._drop_oldest(self._spare or self._lapsed))
        return evicted

    # ---- use ---------------------------------------------------------------------------------

    def pin(self, hash: str, owner: Hashable, user: str = "") -> bool:
        """Keep the blob for the user until `unpin(owner)`; False if it is not here, or has lapsed and the user may not
        hold so much more (see `refusal`). To pin it twice for one owner is as once."""
        blob = self._blobs.get(hash)
        if blob is None:
            return False
        if not blob.owners:
            if not self._may_hold(hash, blob, user):
                return False
            self._take(hash, blob, user)
        blob.owners.add(owner)
        self._pins.setdefault(owner, {})[hash] = None
        return True

    def unpin(self, owner: Hashable, now_s: float) -> None:
        """The owner needs none of its blobs any more: those that no other owner has pinned are leased from now on, but
        for copies, which are spare."""
        self._advance(now_s)
        for hash in self._pins.pop(owner, ()):
            blob = self._blobs[hash]
            blob.owners.discard(owner)
            if blob.owners:
                continue
            if blob.is_copy:
                blob.used_s = self._now_s
                self._spare[hash] = blob
                self._let_go(blob.size, blob.user)
            else:
                self._lease(hash, blob)

    def touch(self, hash: str, now_s: float, user: str = "") -> bool:
        """The user, who knows that the blob is here, has used it: its lease begins anew. Returns whether it is held.

        Nobody is charged for what another user does: a lease that counts to somebody else stays as it is, and a blob
        that has lapsed is held for this user from now on, if it may hold so much more.
        """
        self._advance(now_s)
        blob = self._blobs.get(hash)
        if blob is None:
            return False
        is_held = bool(blob.owners) or (hash in self._leased and user not in ("", blob.user))
        if not is_held:
            if not self._may_hold(hash, blob, user):
                return False
            self._take(hash, blob, user)
            self._lease(hash, blob)
        blob.is_copy = False
        return True

    def discard(self, hash: str) -> None:
        """The blob is gone, even if it is pinned: somebody has deleted its file."""
        blob = self._blobs.pop(hash, None)
        if blob is None:
            return
        self.bytes_used -= blob.size
        if self._lapsed.pop(hash, None) is None and self._spare.pop(hash, None) is None:
            self._leased.pop(hash, None)
            self._let_go(blob.size, blob.user)
        for owner in blob.owners:
            pinned = self._pins[owner]
            del pinned[hash]
            if not pinned:
                del self._pins[owner]

    # ---- time --------------------------------------------------------------------------------

    def expire(self, now_s: float) -> list[str]:
        """Drop blobs that are neither pinned nor leased and were not used for `retention_s`; returns their hashes."""
        self._advance(now_s)
        expired = []
        for order in (self._lapsed, self._spare):
            while order and next(iter(order.values())).used_s + self._keep_s <= self._now_s:
                expired.append(self._drop_oldest(order))
        return expired

    def next_deadline_s(self) -> float | None:
        """When `expire` may have something to do; None if not before another event."""
        # All that lapsed were last used before all that are leased.
        firsts = [next(iter(order.values())) for order in (self._lapsed or self._leased, self._spare) if order]
        return min([blob.used_s for blob in firsts]) + self._keep_s if firsts else None

    def _advance(self, now_s: float) -> None:
        """Leases end as time goes on."""
        self._now_s = max(self._now_s, now_s)
        while self._leased:
            hash, blob = next(iter(self._leased.items()))
            if blob.used_s + self._lease_s > self._now_s:
                break
            del self._leased[hash]
            self._lapsed[hash] = blob
            self._let_go(blob.size, blob.user)

    # ---- the three orders --------------------------------------------------------------------

    def _lease(self, hash: str, blob: _Blob) -> None:
        blob.used_s = self._now_s
        self._leased[hash] = blob

    def _may_hold(self, hash: str, blob: _Blob, user: str) -> bool:
        """Whether the blob, which nobody has pinned, is held, or may be again for this user."""
        user = user or blob.user
        return hash in self._leased or not (self._held_bytes.why_not(user, blob.size) or self._held_count.why_not(user))

    def _take(self, hash: str, blob: _Blob, user: str) -> None:
        """Take a blob without pins out of the order that it is in; the blob is held from now on."""
        if self._leased.pop(hash, None) is None:
            if self._lapsed.pop(hash, None) is None:
                del self._spare[hash]
            blob.user = user or blob.user
            self._hold(blob.size, blob.user)

    def _drop_oldest(self, order: OrderedDict[str, _Blob]) -> str:
        hash, blob = order.popitem(last=False)
        del self._blobs[hash]
        self.bytes_used -= blob.size
        return hash

    # ---- checks ------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolated` if the table contradicts itself. O(blobs and pins)."""
        pinned = {hash: blob.owners for hash, blob in self._blobs.items() if blob.owners}
        by_owner = {(hash, owner) for owner, hashes in self._pins.items() for hash in hashes}
        by_use = [*self._lapsed.items(), *self._leased.items()]
        idle = [*by_use, *self._spare.items()]
        uses_s, spare_s = [blob.used_s for _, blob in by_use], [blob.used_s for blob in self._spare.values()]
        not_held = [*self._lapsed.values(), *self._spare.values()]
        checks = {
            "bytes_used is not the sum of the blobs": self.bytes_used == sum(b.size for b in self._blobs.values()),
            "the held bytes are not those that have not lapsed": self.bytes_held
            == self.bytes_used + self.bytes_reserved - sum(blob.size for blob in not_held),
            "the held are not those that have not lapsed": self._held_count.total
            == len(self._blobs) + self._reservations - len(not_held),
            "more bytes than bytes_max": self.bytes_used + self.bytes_reserved <= self.bytes_max,
            "more blobs than count_max": len(self._blobs) + self._reservations <= self.count_max,
            "something was released that was not reserved": min(self.bytes_reserved, self._reservations) >= 0,
            "a blob is not in just one state": sorted([*pinned, *(hash for hash, _ in idle)]) == sorted(self._blobs),
            "an idle blob is another than the one here": all(self._blobs.get(hash) is blob for hash, blob in idle),
            "pins and owners differ": by_owner == {(hash, owner) for hash in pinned for owner in pinned[hash]},
            "an owner without pins is kept": all(self._pins.values()),
            "idle blobs are not in order of their last use": uses_s == sorted(uses_s) and spare_s == sorted(spare_s),
            "what is no copy is spare": all(blob.is_copy for blob in self._spare.values()),
            "a lease lapsed early": all(b.used_s + self._lease_s <= self._now_s for b in self._lapsed.values()),
        }
        for problem, holds in checks.items():
            if not holds:
                raise InvariantViolated(problem, [f"{len(self._blobs)} blobs, {self.bytes_used} bytes"])
