"""Connections to the executors' socket that are nobody's: how many there may be, and for how long.

Whatever runs as an executor's user may connect, tasks included, and say nothing; or may have been told that its
connection ends, and not read that. So each user has its own share of such connections, and what was started and is
awaited goes before all else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sparrow_py.logs.line_interval import LineInterval

log = logging.getLogger("sparrow.node_monitor.executors")
MUTE_MAX = 64
"""Of one user. One more closes that which has waited longest, of those that nobody awaits."""
MUTE_TIMEOUT_S = 10.0
"""Seconds from a connection to its hello; and until what it was told last has been read, once it is to end."""


class Connection(Protocol):
    """What can be counted here."""

    def close(self) -> None:
        """Close it; `MuteConnections.gone` follows, or has been called."""


@dataclass(frozen=True, slots=True)
class _Mute:
    pid: int
    timer: asyncio.TimerHandle


class MuteConnections:
    """Those of one socket. `awaited` says whether a process that has connected is one whose hello is due."""

    def __init__(self, awaited: Callable[[int], bool]) -> None:
        self._awaited = awaited
        self._of_user: dict[int, dict[Connection, _Mute]] = {}
        """Oldest first."""
        self._closings = LineInterval()

    def __len__(self) -> int:
        return sum(map(len, self._of_user.values()))

    def came(self, connection: Connection, uid: int, pid: int) -> None:
        """A process of this user has connected; or has yet to read what its connection ends with."""
        loop = asyncio.get_running_loop()
        mute = self._of_user.setdefault(uid, {})
        timer = loop.call_later(MUTE_TIMEOUT_S, self._close, connection, uid, f"after {MUTE_TIMEOUT_S:g} s")
        mute[connection] = _Mute(pid, timer)
        if len(mute) > MUTE_MAX:
            self._close(self._least_wanted(mute), uid, f"for there are more than {MUTE_MAX} of user {uid}")

    def gone(self, connection: Connection, uid: int) -> None:
        """It has said hello, or has closed."""
        mute = self._of_user.get(uid, {})
        if connection in mute:
            mute.pop(connection).timer.cancel()
            if not mute:
                del self._of_user[uid]

    def _least_wanted(self, mute: dict[Connection, _Mute]) -> Connection:
        """The oldest that nobody awaits; the oldest if all are awaited."""
        return next((one for one, about in mute.items() if not self._awaited(about.pid)), next(iter(mute)))

    def _close(self, connection: Connection, uid: int, why: str) -> None:
        self.gone(connection, uid)
        connection.close()
        times = self._closings.happened(asyncio.get_running_loop().time())
        if times:
            log.warning("a connection without a hello, or with an end unread, is closed %s (%d such)", why, times)
