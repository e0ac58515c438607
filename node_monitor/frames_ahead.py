"""How much clients within tasks may have on its way to a scheduler: so a task that says much waits, and not others.

A node's link carries what all of the node's tasks say, and what the node itself says. What a scheduler has not looked
at yet would be before that. So of each user only so much is on its way to a scheduler, until that says that it has
looked at it (`messages.TaskHeard`); clients beyond that are read no further.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

FRAMES_MAX = 256
"""Frames of a user's clients on their way to a scheduler."""
BYTES_MAX = 1 << 20
"""And their bytes: the frame that exceeds them is the last."""


class UserAhead:
    """What one user's clients have on its way to one scheduler."""

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether no further frame may leave."""
        return self.frames >= FRAMES_MAX or self.bytes >= BYTES_MAX

    def changed(self) -> Coroutine[Any, Any, None]:
        """To be awaited: until there may be room, or nobody is to wait any more. Who calls this is in line at once, and
        not when the waiting begins: what is heard in between counts."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return _done(waiting)

    def wake_next(self) -> None:
        """Have who has waited longest look again: others have their turn with the next frame that is heard."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def wake_all(self) -> None:
        """Have all who wait look again."""
        while self._waiting:
            self.wake_next()


async def _done(waiting: asyncio.Future[None]) -> None:
    await waiting


class FramesAhead:
    """What clients of one node have on its way to schedulers."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, str], UserAhead] = {}
        """By the names of the scheduler and of the user; those with nothing left out."""
        self._clients: dict[tuple[str, int], tuple[str, deque[int]]] = {}
        """The user and the sizes of a client's frames, by the scheduler and the client's number, be it gone or not."""

    def full(self, scheduler: str, user: str) -> UserAhead | None:
        """What the user has to wait for; None if a frame may leave."""
        ahead = self._users.get((scheduler, user))
        return ahead if ahead is not None and ahead.is_full else None

    def sent(self, scheduler: str, user: str, client: int, size: int) -> None:
        """A frame of so many bytes has left."""
        ahead = self._users.setdefault((scheduler, user), UserAhead())
        ahead.frames += 1
        ahead.bytes += size
        self._clients.setdefault((scheduler, client), (user, deque()))[1].append(size)

    def heard(self, scheduler: str, client: int, frames: int) -> None:
        """The scheduler has looked at so many frames of the client."""
        user, sizes = self._clients.get((scheduler, client), ("", deque()))
        ahead = self._users.get((scheduler, user))
        if ahead is None:
            return
        for _ in range(min(frames, len(sizes))):
            ahead.frames -= 1
            ahead.bytes -= sizes.popleft()
        if not sizes:
            del self._clients[scheduler, client]
        if not ahead.frames:
            del self._users[scheduler, user]
            ahead.wake_all()
        elif not ahead.is_full:
            ahead.wake_next()

    def look_again(self, scheduler: str, user: str) -> None:
        """A client of the user's is gone: it is not to wait."""
        ahead = self._users.get((scheduler, user))
        if ahead is not None:
            ahead.wake_all()

    def scheduler_down(self, scheduler: str) -> None:
        """Nothing is on its way there any more."""
        for key in [key for key in self._clients if key[0] == scheduler]:
            del self._clients[key]
        for name, user in [key for key in self._users if key[0] == scheduler]:
            self._users.pop((name, user)).wake_all()
