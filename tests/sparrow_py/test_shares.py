"""Shares of what users share: no user takes another's part."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.limits.shares import Shares, share_of


def test_a_user_has_a_quarter_and_at_least_one() -> None:
    assert [share_of(limit) for limit in (1, 3, 4, 7, 8, 10_000)] == [1, 1, 1, 1, 2, 2500]


@given(st.lists(st.tuples(st.sampled_from(["", "ada", "bob", "eve"]), st.integers(0, 9), st.booleans())), st.booleans())
def test_who_asks_first_keeps_all_limits(wishes: list[tuple[str, int, bool]], lends: bool) -> None:
    shares, held = Shares("LIMIT", 40, "things", lends=lends), deque[tuple[str, int]]()
    for user, amount, gives_back in wishes:
        if gives_back and held:
            shares.give_back(*held.popleft())
        if shares.why_not(user, amount):
            continue
        shares.take(user, amount)
        held.append((user, amount))
        assert shares.total == sum(amount for _, amount in held) <= 40
        assert shares.of(user) == sum(amount for holder, amount in held if holder == user)
        if user:
            assert shares.of(user) <= 10 or (lends and shares.total <= 30)
    while held:
        shares.give_back(*held.pop())
    assert shares.total == 0 and not shares._held


def test_the_reason_names_the_limit_and_the_user() -> None:
    shares = Shares("LIMIT", 8, "things are there")
    shares.take("ada", 2)
    assert shares.why_not("ada") == "at most 2 of LIMIT = 8 things are there for one user; here ada"
    shares.take("", 6)
    assert shares.why_not("bob") == "at most LIMIT = 8 things are there"
    assert shares.greatest() == ""
    lent = Shares("LIMIT", 8, "things are there", lends=True)
    lent.take("ada", 6)
    assert lent.why_not("ada") == (
        "at most LIMIT = 8 things are there: user ada has 6 of them, others 0, and beyond 2 of its own a user leaves 2 "
        "free"
    )
