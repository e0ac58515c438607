"""What users share: shares, seats and what is kept; no user takes another's part."""

import asyncio
import logging
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.limits.latest_of_users import Kept
from sparrow_py.limits.seats import NoSeat, Seats
from sparrow_py.limits.shares import SHARE, Shares, share_of
from sparrow_py.logs.seldom import WARN_INTERVAL_S, Seldom
from tests.support.waiting import TIMEOUT_S


def seats(limit: int) -> Seats:
    return Seats("SEATS_MAX", limit, "seats are taken")


# ---- shares --------------------------------------------------------------------------------------


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


# ---- seats ---------------------------------------------------------------------------------------


async def test_whoever_has_a_thousand_waiting_is_in_nobodys_way() -> None:
    here, order = seats(8), []

    async def sit(user: str, until: asyncio.Event) -> None:
        async with here.taken(user):
            order.append(user)
            await until.wait()

    never, now = asyncio.Event(), asyncio.Event()
    now.set()
    hog = [asyncio.create_task(sit("mallory", never)) for _ in range(1000)]
    await asyncio.sleep(0)
    await sit("ada", now)
    assert order == ["mallory", "mallory", "ada"] and here.total == 2
    for task in hog:
        task.cancel()
    await asyncio.gather(*hog, return_exceptions=True)
    assert (here.total, here._waiting) == (0, {})


async def test_turns_come_in_order_and_users_take_turns() -> None:
    here, order = seats(1), []

    async def sit(name: str) -> None:
        async with here.taken(name[0]):
            order.append(name)

    async with here.taken("x"):
        tasks = [asyncio.create_task(sit(name)) for name in ("a1", "a2", "a3", "b1", "b2")]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["a1", "b1", "a2", "b2", "a3"]


async def test_patience_ends_with_the_reason_which_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    here = seats(4)
    async with here.taken("ada"):
        for _ in range(3):
            with pytest.raises(NoSeat, match="at most 1 of SEATS_MAX = 4"):
                async with here.taken("ada", patience_s=0):
                    raise AssertionError
        with pytest.raises(NoSeat, match="here ada"):
            here.check("ada")
    here.check("ada")
    assert (here.total, here._waiting) == (0, {})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_turn_that_comes_as_its_waiter_goes_is_the_next_ones(cancelled_first: bool) -> None:
    here, sits = seats(1), asyncio.Event()

    async def sit(user: str) -> None:
        async with here.taken(user):
            sits.set()
            await asyncio.Event().wait()

    async with here.taken("ada"):
        waits, next_one = [asyncio.create_task(sit(user)) for user in ("ada", "bob")]
        await asyncio.sleep(0)
        if cancelled_first:
            waits.cancel()
    waits.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        await sits.wait()
        await asyncio.gather(waits, return_exceptions=True)
    assert waits.cancelled() and (here.total, here.of("bob"), here._waiting) == (1, 1, {})
    next_one.cancel()


def test_what_happens_all_the_time_is_said_once_in_a_while() -> None:
    seldom = Seldom()
    assert [seldom.happened(1.0) for _ in range(3)] == [1, 0, 0]
    assert seldom.happened(1.0 + WARN_INTERVAL_S) == 3


# ---- what is kept --------------------------------------------------------------------------------


def test_a_user_alone_keeps_its_latest() -> None:
    kept: Kept[int] = Kept(1000)
    for number in range(1001):
        kept.add("mallory", number)
    assert list(kept.of("mallory")) == list(range(11, 1001))  # A hundredth goes at a time.
    assert list(kept.of("ada")) == []


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 40)), max_size=200))
def test_nobody_with_little_loses_it_to_others(items: list[tuple[str, int]]) -> None:
    kept: Kept[int] = Kept(100)
    kept.add("ada", -1, 5)
    for number, (user, size) in enumerate(items):
        kept.add(user, number, size)
        assert kept._size == sum(of_user.size for of_user in kept._users.values()) <= 100
        assert list(kept.of(user)) == sorted(kept.of(user))
    assert list(kept.of("ada")) == [-1]  # With nine users the average is more than that.


def test_users_share_who_take_it_all() -> None:
    kept: Kept[int] = Kept(100 * SHARE)
    for number in range(1000):
        for user in "abcdefghij":
            kept.add(user, number)
    counts = [len(list(kept.of(user))) for user in "abcdefghij"]
    assert sum(counts) <= 100 * SHARE and min(counts) >= 35
