"""Seats for what is in hand: requests, uploads, readers and links. One user has a share of them (`shares`).

Who finds none may wait for its turn. A user's own turns come in order, and users take turns, so that whoever has a
thousand waiting is no more in another's way than who has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator

from sparrow_py.limits.shares import Shares
from sparrow_py.logs.line_interval import LineInterval

log = logging.getLogger("sparrow.seats")


class NoSeat(Exception):
    """All seats that the user may have are taken; the message says which."""


class Seats(Shares):
    """The seats of one kind. Its methods run on one loop."""

    def __init__(self, name: str, limit: int, what: str) -> None:
        super().__init__(name, limit, what)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By user, the next one's first."""
        self._refusals = LineInterval()

    def check(self, user: str) -> None:
        """`NoSeat` unless there is one for the user. It is logged, once in a while."""
        why_not = self.why_not(user)
        if why_not:
            raise self._refused(why_not)

    @contextlib.asynccontextmanager
    async def taken(self, user: str, patience_s: float | None = None) -> AsyncIterator[None]:
        """A seat until the block ends, for which the user waits. `NoSeat` if none is there after `patience_s`
        seconds; None: it waits for as long as it takes."""
        await self._take_turn(user, patience_s)
        try:
            yield
        finally:
            self.give_back(user)

    async def _take_turn(self, user: str, patience_s: float | None) -> None:
        if user not in self._waiting and not self.why_not(user):
            self.take(user)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            async with asyncio.timeout(patience_s):
                await turn
        except BaseException as error:
            if turn.cancelled():
                self._forget(user, turn)
            else:  # Its turn came in the same moment.
                self.give_back(user)
            if isinstance(error, TimeoutError):
                raise self._refused(self.why_not(user) or f"{self.name}: others were waiting") from None
            raise

    def _forget(self, user: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[user]
        turns.remove(turn)
        if not turns:
            del self._waiting[user]

    def give_back(self, user: str, amount: int = 1) -> None:
        """Give seats back; the one who has waited longest, of a user that may have a seat, goes on."""
        super().give_back(user, amount)
        for waiting, turns in self._waiting.items():
            turn = next((turn for turn in turns if not turn.done()), None)
            if turn is None or self.why_not(waiting):
                continue
            turns.remove(turn)
            del self._waiting[waiting]
            if turns:
                self._waiting[waiting] = turns  # Behind the others.
            self.take(waiting)
            turn.set_result(None)
            return

    def _refused(self, why_not: str) -> NoSeat:
        times = self._refusals.happened(asyncio.get_running_loop().time())
        if times:
            log.warning("%d times refused: %s", times, why_not)
        return NoSeat(why_not)
