"""Which blobs stay and which go: examples, and a table driven at random beside a plain model of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node_monitor.blobs import blobs
from node_monitor.blobs.blobs import BlobTable
from sparrow_py.errors import InvariantViolated

LEASE_S, RETENTION_S = 10.0, 60.0


@pytest.fixture
def table() -> BlobTable:
    """Room for 100 bytes."""
    return BlobTable(100, RETENTION_S, LEASE_S)


def test_a_blob_is_here_once_it_was_added(table: BlobTable) -> None:
    assert table.size("a") is None
    assert "a" not in table
    assert table.add("a", 40, 0.0) == []
    assert (table.size("a"), "a" in table, table.bytes_used, len(table)) == (40, True, 40, 1)


def test_adding_what_is_here_only_touches_it(table: BlobTable) -> None:
    table.add("a", 40, 0.0)
    table.add("b", 40, 1.0)
    assert table.add("a", 999, 2.0) == []
    assert table.bytes_used == 80
    assert table.add("c", 60, 20.0) == ["b"]


def test_the_least_recently_used_goes_first_and_no_more_than_needed(table: BlobTable) -> None:
    for number, hash in enumerate("abcd"):
        table.add(hash, 25, float(number))
    table.touch("a", 4.0)
    assert table.add("e", 26, 50.0) == ["b", "c"]
    assert table.bytes_used == 76


def test_a_leased_blob_stays_until_its_lease_ends(table: BlobTable) -> None:
    table.add("a", 60, 0.0)
    assert table.add("b", 60, LEASE_S - 0.001) is None
    assert table.add("b", 60, LEASE_S) == ["a"]


def test_a_refusal_evicts_nothing_and_says_what_is_in_use(table: BlobTable) -> None:
    table.add("old", 30, 0.0)
    table.add("pinned", 60, 0.0)
    table.pin("pinned", "job")
    assert table.add("big", 41, 50.0) is None
    assert "old" in table
    assert table.refusal(41) == (
        "the blob is 41 bytes; at most blob_bytes_max = 100 bytes are kept at a node; 60 are in use"
    )
    assert table.refusal(41, "result").startswith("the result is 41 bytes")
    assert table.add("just", 40, 50.0) == ["old"]


def test_a_pinned_blob_is_neither_evicted_nor_expired(table: BlobTable) -> None:
    table.add("a", 60, 0.0)
    assert table.pin("a", "job 1")
    assert table.pin("a", "job 2")
    table.unpin("job 1", 1.0)
    assert table.add("b", 60, 1e6) is None
    assert table.expire(1e6) == []
    assert table.next_deadline_s() is None


def test_the_last_pin_that_goes_leaves_a_lease(table: BlobTable) -> None:
    table.add("a", 60, 0.0)
    table.pin("a", "job")
    table.pin("a", "job")  # as once
    table.unpin("job", 1000.0)
    assert table.add("b", 60, 1000.0 + LEASE_S - 0.001) is None
    assert table.add("b", 60, 1000.0 + LEASE_S) == ["a"]


def test_what_is_not_here_cannot_be_pinned_and_the_rest_does_not_care(table: BlobTable) -> None:
    assert not table.pin("a", "job")
    table.unpin("job", 0.0)
    table.touch("a", 0.0)
    table.discard("a")
    table.check_invariants()


def test_an_owner_pins_many(table: BlobTable) -> None:
    for hash in "abc":
        table.add(hash, 30, 0.0)
        table.pin(hash, ("node", "scheduler", "job"))
    table.unpin(("node", "scheduler", "job"), 5.0)
    assert table.expire(5.0 + RETENTION_S) == ["a", "b", "c"]


def test_what_is_unused_for_the_retention_time_expires(table: BlobTable) -> None:
    table.add("a", 10, 0.0)
    table.add("b", 10, 5.0)
    assert table.next_deadline_s() == RETENTION_S
    assert table.expire(RETENTION_S - 0.001) == []
    assert table.expire(RETENTION_S) == ["a"]
    assert table.next_deadline_s() == RETENTION_S + 5.0
    table.touch("b", 63.0)
    assert table.next_deadline_s() == RETENTION_S + 63.0


def test_a_lease_outlasts_a_shorter_retention() -> None:
    table = BlobTable(100, retention_s=1.0, lease_s=10.0)
    table.add("a", 1, 0.0)
    assert table.expire(9.0) == []
    assert table.expire(10.0) == ["a"]


def test_uploads_at_the_same_time_each_have_their_room(table: BlobTable) -> None:
    assert table.reserve(60, 0.0) == []
    assert table.reserve(60, 0.0) is None
    assert table.refusal(60).endswith("60 are in use")
    assert not table.fits(41, 0.0)
    assert table.fits(40, 0.0)
    table.release(60)
    assert table.add("a", 60, 0.0) == []
    assert table.bytes_reserved == 0


def test_room_is_reserved_by_evicting(table: BlobTable) -> None:
    table.add("a", 60, 0.0)
    assert table.reserve(60, 50.0) == ["a"]


def test_the_number_of_blobs_is_limited_too() -> None:
    table = BlobTable(100, RETENTION_S, LEASE_S, count_max=2)
    table.add("a", 0, 0.0)
    assert table.reserve(0, 0.0) == []
    assert table.add("b", 0, 0.0) is None
    assert table.refusal(0) == "at most BLOBS_MAX = 2 blobs are kept at a node; 2 are in use"
    assert table.add("b", 0, LEASE_S) == ["a"]
    assert blobs.BLOBS_MAX >= 1000


def test_what_somebody_deleted_is_forgotten_with_its_pins(table: BlobTable) -> None:
    table.add("a", 60, 0.0)
    table.add("b", 10, 0.0)
    table.pin("a", "job")
    table.discard("a")
    table.discard("b")
    table.check_invariants()
    assert table.bytes_used == 0
    table.add("a", 60, 0.0)
    table.unpin("job", 0.0)  # of which nothing is left
    table.check_invariants()


def test_time_that_goes_back_stands_still(table: BlobTable) -> None:
    table.add("a", 60, 100.0)
    table.add("b", 10, 50.0)
    table.check_invariants()
    assert table.expire(50.0 + RETENTION_S) == []
    assert table.expire(100.0 + RETENTION_S) == ["a", "b"]


def test_a_broken_table_says_so(table: BlobTable) -> None:
    table.add("a", 60, 0.0)
    table.bytes_used = 1
    with pytest.raises(InvariantViolated, match="bytes_used"):
        table.check_invariants()


def test_the_module_is_pure() -> None:
    source = blobs.__file__
    assert source is not None
    with open(source) as file:  # noqa: PTH123
        imports = {line.split()[1] for line in file if line.startswith(("import ", "from "))}
    assert imports == {"__future__", "collections", "collections.abc", "sparrow_py.errors", "sparrow_py.limits.shares"}


# ---- users --------------------------------------------------------------------------------------


def test_one_user_leaves_a_share_for_others_until_its_blobs_lapse(table: BlobTable) -> None:
    for number in range(75):
        assert table.fits(1, 0.0, "mallory")
        table.add(f"{number}", 1, 0.0, "mallory")
    assert not table.fits(1, 0.0, "mallory") and table.reserve(1, 0.0, "mallory") is None
    assert table.refusal(1, "blob", "mallory") == (
        "the blob is 1 bytes; at most blob_bytes_max = 100 bytes are kept at a node: user mallory has 75 of them, "
        "others 0, and beyond 25 of its own a user leaves 25 free; 75 are in use"
    )
    assert table.reserve(25, 0.0, "ada") == []
    assert not table.fits(1, 0.0, "bob")
    assert table.fits(25, LEASE_S, "mallory") and not table.fits(60, LEASE_S, "mallory")


def test_what_was_reserved_fits_though_others_have_come(table: BlobTable) -> None:
    assert table.reserve(70, 0.0, "mallory") == []
    table.add("a", 25, 0.0, "ada")
    table.release(70, "mallory")
    assert table.add("m", 70, 0.0, "mallory") == []
    table.check_invariants()


def test_users_are_told_apart_in_how_many_blobs_they_keep() -> None:
    table = BlobTable(100, RETENTION_S, LEASE_S, count_max=8)
    for number in range(6):
        table.add(f"{number}", 0, 0.0, "mallory")
    assert not table.fits(0, 0.0, "mallory") and table.fits(0, 0.0, "ada")


def test_a_user_holds_lapsed_blobs_again_only_within_its_share(table: BlobTable) -> None:
    for number in range(80):
        table.add(f"{number}", 1, 0.0, "mallory")
    held = [table.touch(f"{number}", LEASE_S, "mallory") for number in range(40)]
    held += [table.pin(f"{number}", "job", "mallory") for number in range(40, 80)]
    assert held.count(True) == table.bytes_held == 75
    assert table.fits(25, LEASE_S, "ada") and table.reserve(25, LEASE_S, "ada") is not None
    table.check_invariants()


def test_what_one_user_does_with_anothers_blobs_is_not_charged_to_the_other(table: BlobTable) -> None:
    table.add("a", 60, 0.0, "ada")
    assert table.touch("a", LEASE_S / 2, "bob")
    assert not table.holds("a", LEASE_S)
    assert table.touch("a", LEASE_S, "bob") and table.bytes_held == 60
    assert not table.fits(25, LEASE_S, "bob") and table.fits(25, LEASE_S, "ada")
    table.check_invariants()


# ---- copies for tasks ---------------------------------------------------------------------------


def copies(table: BlobTable, *names: str) -> None:
    """Copies of 25 bytes each that a task needs no more."""
    for name in names:
        table.add(name, 25, 0.0, "ada", is_copy=True)
        table.pin(name, "attempt", "ada")
    table.unpin("attempt", 0.0)


def test_a_copy_that_no_task_needs_any_more_is_nobodys_and_makes_room_at_once_the_oldest_first(
    table: BlobTable,
) -> None:
    copies(table, "a", "b", "c")
    assert table.bytes_held == 0 and not table.holds("a", 0.0) and "a" in table
    assert table.add("d", 60, 0.0, "bob") == ["a", "b"]
    table.check_invariants()


def test_copies_make_room_before_what_came_from_outside_even_if_that_was_used_earlier(table: BlobTable) -> None:
    table.add("told", 25, 0.0)
    table.add("later", 25, 0.0)
    assert not table.fits(51, 0.0)
    copies(table, "a", "b")
    assert table.add("new", 60, LEASE_S) == ["a", "b", "told"]


def test_a_copy_is_kept_for_each_task_that_needs_it_and_expires_when_none_has_for_long(table: BlobTable) -> None:
    copies(table, "a")
    assert table.pin("a", "next", "bob") and table.bytes_held == 25
    assert table.expire(10 * RETENTION_S) == []
    table.unpin("next", 10 * RETENTION_S)
    assert table.next_deadline_s() == 11 * RETENTION_S
    assert table.expire(11 * RETENTION_S) == ["a"]


@pytest.mark.parametrize("pinned", [False, True])
def test_a_copy_of_which_a_client_knows_is_leased_like_others(table: BlobTable, pinned: bool) -> None:
    """A client has given the same bytes to this node, which did not read them."""
    copies(table, "a")
    if pinned:
        table.pin("a", "next", "ada")
    assert table.touch("a", 1.0, "ada")
    table.unpin("next", 1.0)
    assert table.holds("a", 1.0) and not table.holds("a", 1.0 + LEASE_S)
    table.check_invariants()


def test_a_copy_that_its_user_may_not_hold_stays_a_copy(table: BlobTable) -> None:
    copies(table, "a")
    table.add("b", 70, 0.0, "ada")
    assert not table.touch("a", 0.0, "ada")
    table.check_invariants()
    assert table.add("c", 5, 0.0, "bob") == [] and table.add("d", 5, 0.0, "bob") == ["a"]


def test_a_copy_that_comes_once_more_does_not_renew_a_lease(table: BlobTable) -> None:
    table.add("a", 25, 0.0)
    table.add("a", 25, LEASE_S / 2, is_copy=True)
    assert not table.holds("a", LEASE_S)


def test_whether_a_user_may_ever_have_so_much_depends_on_nobody_else(table: BlobTable) -> None:
    table.add("a", 60, 0.0)
    assert table.may_ever_fit(75, "ada") and not table.may_ever_fit(76, "ada")
    assert table.may_ever_fit(100) and not table.may_ever_fit(101)


# ---- beside a model ----------------------------------------------------------------------------

HASHES = st.sampled_from("abcdefgh")
USERS = st.sampled_from(["", "ada", "bob"])
OWNERS = st.sampled_from(["j1", "j2", ("n", "s", "j3")])
SIZES = st.integers(0, 60)


@dataclass
class Kept:
    """A blob of the model. `order`: of its last use."""

    size: int
    used_s: float
    order: int
    owners: set[Hashable] = field(default_factory=set)
    is_copy: bool = False
    is_spare: bool = False


class TableBesideModel(RuleBasedStateMachine):
    """The model is a list of blobs that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.table = BlobTable(100, RETENTION_S, LEASE_S, count_max=5)
        self.now_s = 0.0
        self.blobs: dict[str, Kept] = {}
        self.uses = 0
        self.reserved: list[tuple[int, str]] = []

    def use(self, hash: str, size: int, *, is_copy: bool = False, is_spare: bool = False) -> None:
        self.uses += 1
        self.blobs[hash] = Kept(size, self.now_s, self.uses, is_copy=is_copy, is_spare=is_spare)

    def by_use(self, *, is_spare: bool) -> list[str]:
        """What may go, least recently used first."""
        found = [
            (blob.order, hash)
            for hash, blob in self.blobs.items()
            if not blob.owners and blob.is_spare is is_spare and (blob.is_spare or blob.used_s + LEASE_S <= self.now_s)
        ]
        return [hash for _, hash in sorted(found)]

    def not_held(self) -> list[str]:
        """In the order in which they go."""
        return self.by_use(is_spare=True) + self.by_use(is_spare=False)

    def fits(self, size: int) -> bool:
        used = sum(blob.size for blob in self.blobs.values()) + sum(size for size, _ in self.reserved)
        return used + size <= 100 and len(self.blobs) + len(self.reserved) < 5

    def make_room(self, size: int) -> list[str] | None:
        before, evicted = dict(self.blobs), []
        for hash in self.not_held():
            if self.fits(size):
                break
            del self.blobs[hash]
            evicted.append(hash)
        if not self.fits(size):
            self.blobs = before
            return None
        return evicted

    def may_hold(self, hash: str, user: str = "") -> bool:
        """Whether what is here is held, or may be again for this user."""
        charged = user or self.table._blobs[hash].user
        return hash not in self.not_held() or self.table.fits(self.blobs[hash].size, self.now_s, charged)

    def used_again(self, hash: str, user: str) -> bool:
        """What is here is about to be touched; returns whether it is held then."""
        blob = self.blobs[hash]
        is_leased = hash not in self.not_held()
        if blob.owners or (is_leased and user not in ("", self.table._blobs[hash].user)):
            blob.is_copy = False
            return True
        if not self.may_hold(hash, user):
            return False
        self.use(hash, blob.size)
        return True

    def came(self, hash: str, size: int, user: str, is_copy: bool) -> None:
        """There is room for what is about to be added."""
        if hash not in self.blobs:
            self.use(hash, size, is_copy=is_copy)
        elif not is_copy:
            self.used_again(hash, user)

    @rule(seconds=st.sampled_from((0.0, 1.0, LEASE_S, 25.0, RETENTION_S)))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(hash=HASHES, size=SIZES, user=USERS, is_copy=st.booleans())
    def add(self, hash: str, size: int, user: str, is_copy: bool) -> None:
        expected = [] if hash in self.blobs else self.make_room(size)
        if expected is not None:
            self.came(hash, size, user, is_copy)
        assert self.table.add(hash, size, self.now_s, user, is_copy=is_copy) == expected

    @rule(size=SIZES, user=USERS)
    def reserve(self, size: int, user: str) -> None:
        expected = self.make_room(size) if self.table.fits(size, self.now_s, user) or not user else None
        if expected is not None:
            self.reserved.append((size, user))
        assert self.table.reserve(size, self.now_s, user) == expected

    @precondition(lambda self: self.reserved)
    @rule(hash=HASHES, is_copy=st.booleans())
    def arrive(self, hash: str, is_copy: bool) -> None:
        """What was reserved has come: it always fits."""
        size, user = self.reserved.pop()
        self.table.release(size, user)
        self.came(hash, size, user, is_copy)
        assert self.table.add(hash, size, self.now_s, user, is_copy=is_copy) == []

    @rule(hash=HASHES, owner=OWNERS, user=USERS)
    def pin(self, hash: str, owner: Hashable, user: str) -> None:
        expected = hash in self.blobs and self.may_hold(hash, user)
        assert self.table.pin(hash, owner, user) == expected
        if expected:
            self.blobs[hash].owners.add(owner)

    @rule(owner=OWNERS)
    def unpin(self, owner: Hashable) -> None:
        before = {hash for hash, blob in self.blobs.items() if blob.owners == {owner}}
        # In the order in which they were pinned, which the model leaves open: both ends up equal in time only.
        self.table.unpin(owner, self.now_s)
        for hash in [hash for hash in (*self.table._leased, *self.table._spare) if hash in before]:
            blob = self.blobs[hash]
            self.use(hash, blob.size, is_copy=blob.is_copy, is_spare=blob.is_copy)
        for blob in self.blobs.values():
            blob.owners.discard(owner)

    @rule(hash=HASHES, user=USERS)
    def touch(self, hash: str, user: str) -> None:
        expected = hash in self.blobs and self.used_again(hash, user)
        assert self.table.touch(hash, self.now_s, user) == expected

    @rule(hash=HASHES)
    def discard(self, hash: str) -> None:
        self.table.discard(hash)
        self.blobs.pop(hash, None)

    @rule()
    def expire(self) -> None:
        idle = self.by_use(is_spare=False) + self.by_use(is_spare=True)
        expected = [hash for hash in idle if self.blobs[hash].used_s + RETENTION_S <= self.now_s]
        deadline_s = self.table.next_deadline_s()
        assert (deadline_s is not None and deadline_s <= self.now_s) == bool(expected)
        assert self.table.expire(self.now_s) == expected
        for hash in expected:
            del self.blobs[hash]

    @invariant()
    def same(self) -> None:
        self.table.check_invariants()
        assert {hash for hash in "abcdefgh" if self.table.holds(hash, self.now_s)} == {*self.blobs} - {*self.not_held()}
        assert {hash: self.table.size(hash) for hash in self.blobs} == {h: b.size for h, b in self.blobs.items()}
        assert len(self.table) == len(self.blobs)
        idle_s = [blob.used_s for blob in self.blobs.values() if not blob.owners]
        assert self.table.next_deadline_s() == (min(idle_s) + RETENTION_S if idle_s else None)


TestTableBesideModel = TableBesideModel.TestCase
TestTableBesideModel.settings = settings(max_examples=80, stateful_step_count=40)
