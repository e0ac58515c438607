"""Seats for what is in hand: users take turns, and no user takes another's."""

import asyncio
import logging

import pytest

from sparrow_py.limits.seats import NoSeat, Seats
from tests.support.waiting import TIMEOUT_S


def seats(limit: int) -> Seats:
    return Seats("SEATS_MAX", limit, "seats are taken")


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
