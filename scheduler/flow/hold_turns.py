"""When slots may be kept free for a gang of a user, so that gangs that do not start cannot keep a cluster idle.

Slots are kept for a gang for so long at most. If it has not started by then that was in vain: nobody's gang has slots
kept for as long again, and the same user's for longer each time. So others have the slots for half of the time at
least, and soon for nearly all of it. What counts is how long slots were kept for gangs of a user in all, so it helps
nobody to withdraw a gang just before its time is over, or to come with another one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

HOLD_MIN_S = 1.0
"""Slots are kept for so long at least, however short a gang has to wait for that."""
PAUSE_HOLDS_MAX = 32
"""The longest pause of a user, in times for which slots are kept at most. The first is one, each next one twice the one
before."""
FORGOTTEN_AFTER_HOLDS = 64
"""After a pause: a user for whose gangs no slots were kept for so many such times begins anew."""
USERS_MAX = 1000
"""Users that are remembered: those for whose gangs slots were kept last."""


@dataclass(slots=True)
class _User:
    """For whose gangs slots were kept, and have not started."""

    spent_s: float = 0.0
    """For so long, since the last pause."""
    tasks_max: int = 0
    """Of the largest of these gangs."""
    pause_s: float = 0.0
    not_before_s: float = -math.inf
    last_s: float = 0.0
    """When slots were kept last."""


class HoldTurns:
    """See the module's docstring."""

    def __init__(self, hold_s: float) -> None:
        self.hold_s = max(hold_s, HOLD_MIN_S)
        """Slots are kept for so long at most."""
        self._users: dict[str, _User] = {}
        """Those for whose gangs slots were kept last come last."""
        self._not_before_s = -math.inf
        """For anybody."""

    def __len__(self) -> int:
        return len(self._users)

    def may_hold(self, user: str, now_s: float) -> bool:
        """Whether slots may be kept for a gang of the user."""
        known = self._users.get(user)
        if known is not None and now_s >= self._forgotten_at_s(known):
            del self._users[user]
            known = None
        return now_s >= self._not_before_s and (known is None or now_s >= known.not_before_s)

    def held(self, user: str, tasks: int, for_s: float, now_s: float) -> None:
        """Slots were kept until now, for so long, for a gang of so many tasks of the user, which has not started."""
        known = self._users.pop(user, None) or _User()
        self._users[user] = known
        if len(self._users) > USERS_MAX:
            del self._users[next(iter(self._users))]
        known.spent_s += for_s
        known.tasks_max = max(known.tasks_max, tasks)
        known.last_s = now_s
        if known.spent_s >= self.hold_s:
            known.spent_s = 0.0
            known.pause_s = min(2 * known.pause_s or self.hold_s, PAUSE_HOLDS_MAX * self.hold_s)
            known.not_before_s = now_s + known.pause_s
            self._not_before_s = now_s + self.hold_s

    def started(self, user: str, tasks: int) -> None:
        """A gang of so many tasks has started where slots were kept for it. One that is smaller than those that did not
        start shows nothing."""
        known = self._users.get(user)
        if known is not None and tasks >= known.tasks_max:
            del self._users[user]

    def _forgotten_at_s(self, known: _User) -> float:
        return max(known.last_s, known.not_before_s) + FORGOTTEN_AFTER_HOLDS * self.hold_s
