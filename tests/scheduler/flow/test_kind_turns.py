"""Which kinds of tasks are in the network: so many of each user, in turns."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow import kind_turns
from scheduler.flow.kind_turns import KindTurns


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four kinds a user, sixteen in all, twelve of them for anybody; turns of three rounds."""
    for name, value in (
        ("KINDS_PER_USER_MAX", 4), ("KINDS_MAX", 16), ("KINDS_FEW", 2), ("PIPES_PER_USER_MAX", 100),
        ("PIPES_MAX", 400), ("TURN_ROUNDS", 3), ("LET_IN_MAX", 8),
    ):  # fmt: skip
        monkeypatch.setattr(kind_turns, name, value)


def one(name: str) -> int:
    return 1


def test_of_a_user_so_many_are_let_in_in_the_order_in_which_they_came_and_the_next_as_soon_as_one_leaves() -> None:
    turns = KindTurns()
    for number in range(6):
        turns.wanted("ann", f"k{number}")
    assert turns.take_turns(one) == (["k0", "k1", "k2", "k3"], [])
    assert turns.take_turns(one) == ([], [])
    assert turns.waits("k4") and not turns.waits("k0") and turns.any_waits
    assert turns.unwanted("ann", "k2")
    assert turns.take_turns(one)[0] == ["k4"]


def test_kinds_of_others_come_in_whatever_one_user_has() -> None:
    turns = KindTurns()
    for number in range(100):
        turns.wanted("ann", f"a{number}")
    turns.take_turns(one)
    turns.wanted("bob", "b")
    assert turns.take_turns(one) == (["b"], [])
    for number in range(30):
        turns.wanted(f"u{number // 4}", f"u{number}")
    inside = set[str]()
    for _ in range(3):
        inside |= set(turns.take_turns(one)[0])
    turns.wanted("last", "k")  # Three quarters are taken by now; the rest is for those who have few.
    for _ in range(8):
        came, _gone = turns.take_turns(one)
        if "k" in came:
            break
    else:
        pytest.fail("a user with one kind was not let in")


def test_none_of_a_users_kinds_starves_behind_others_that_stay() -> None:
    turns = KindTurns()
    names = [f"k{number}" for number in range(11)]
    for name in names:
        turns.wanted("ann", name)
    rounds_inside: Counter[str] = Counter()
    inside: set[str] = set()
    for _ in range(60):
        came, gone = turns.take_turns(one)
        inside = inside - set(gone) | set(came)
        assert len(inside) <= 4
        rounds_inside.update(inside)
    assert min(rounds_inside[name] for name in names) >= 9


def test_kinds_of_many_machines_count_by_these_and_one_is_let_in_whatever_it_has() -> None:
    turns = KindTurns()
    for name in "abcd":
        turns.wanted("ann", name)
    assert turns.take_turns(lambda name: 60) == (["a", "b"], [])
    turns.wanted("bob", "large")
    assert turns.take_turns(lambda name: 150)[0] == ["large"]
    turns.weigh("a", 20)
    assert turns.take_turns(lambda name: 60)[0] == ["c"]


def test_a_kind_of_two_users_stays_for_the_other_one() -> None:
    turns = KindTurns()
    turns.wanted("ann", "k")
    turns.wanted("bob", "k")
    assert turns.take_turns(one) == (["k"], [])
    assert not turns.unwanted("ann", "k")
    assert (turns.inside("ann"), turns.inside("bob"), turns.waits("k")) == (0, 1, False)
    assert turns.unwanted("bob", "k")
    assert (turns.inside("bob"), turns.any_waits) == (0, False)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["wanted", "unwanted", "round", "round"]), st.integers(0, 3), st.integers(0, 9)),
    max_size=80,
)


@settings(max_examples=100, deadline=None)
@given(events=EVENTS)
def test_whatever_comes_and_goes_bounds_hold_and_everything_comes_in_in_the_end(
    events: list[tuple[str, int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        turns = KindTurns()
        wanted: dict[str, set[str]] = {}
        inside: set[str] = set()
        seen: set[str] = set()

        def take() -> None:
            came, gone = turns.take_turns(lambda name: int(name[1:]) * 12)
            assert inside.issuperset(gone) and not inside.intersection(came)
            inside.difference_update(gone)
            inside.update(came)
            seen.update(came)
            assert len(inside) <= 16
            assert all(turns.waits(name) == (name not in inside) for name in wanted)
            for user in "abcd":
                assert turns.inside(user) <= 4 + len(wanted)  # Kinds of others may become the user's.

        for what, user, kind in events:
            name = f"k{kind}"
            if what == "wanted":
                wanted.setdefault(name, set()).add("abcd"[user])
                turns.wanted("abcd"[user], name)
            elif what == "unwanted" and "abcd"[user] in wanted.get(name, ()):
                wanted[name].discard("abcd"[user])
                assert turns.unwanted("abcd"[user], name) == (not wanted[name])
                if not wanted[name]:
                    del wanted[name]
                    inside.discard(name)
            elif what == "round":
                take()
        seen.clear()
        seen.update(inside)
        for _ in range(40):
            take()
        assert seen.issuperset(wanted)
        for name, users in wanted.items():
            for user in list(users):
                turns.unwanted(user, name)
        new = {"_round": 0, "_gangs": None}
        assert vars(KindTurns()) | new == vars(turns) | new
