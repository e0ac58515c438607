"""The latest of what users have brought about, as much of it as there is room for. Pure.

One user may have all of it. Where there is no room for more, those give way that have more than the average, with their
oldest: so whoever has little keeps it, whatever others bring about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
SHED = 100
"""One in so many goes at a time, so that it is seldom looked for who has most."""


class _OfUser(Generic[T]):
    """What is kept of one user, the oldest first, with the size of each."""

    __slots__ = ("items", "size")

    def __init__(self) -> None:
        self.items: deque[tuple[int, T]] = deque()
        self.size = 0


class Latest(Generic[T]):
    """Things of sizes that are together at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._users: dict[str, _OfUser[T]] = {}

    def add(self, user: str, item: T, size: int = 1) -> None:
        """Keep the user's item; what is older may go for it, and the item itself if it is larger than all may be."""
        kept = self._users.get(user)
        if kept is None:
            kept = self._users[user] = _OfUser()
        kept.items.append((size, item))
        kept.size += size
        self._size += size
        if self._size > self._limit:
            self._shed()

    def of(self, user: str) -> Iterator[T]:
        """The user's, the oldest first."""
        kept = self._users.get(user)
        return iter(()) if kept is None else (item for _, item in kept.items)

    def _shed(self) -> None:
        most = self._limit - self._limit // SHED
        while self._size > most:
            average = self._size / len(self._users)  # At least one has that, so each round ends with less.
            for user, kept in list(self._users.items()):
                items, size, surplus = kept.items, kept.size, self._size - most
                while items and size >= average and surplus > 0:  # For each item that is ever kept: so with locals.
                    dropped, _ = items.popleft()
                    size -= dropped
                    surplus -= dropped
                kept.size, self._size = size, most + surplus
                if not items:
                    del self._users[user]
