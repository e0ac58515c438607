"""What users share: so much of something in all, and of that no more than a share for one user. Pure.

Every limit that users could use up for each other is counted here: connections, links, bodies that are read, readers
of results, jobs and bytes that are kept. A user has a share of each (`SHARE`), so that it takes at least so many users
to keep another one out. `seats` adds waiting for one's turn.
"""

from __future__ import annotations

SHARE = 4
"""One user has at most one in so many, and at least one."""


class Shares:
    """`limit` of something, at most `share` of it for one user.

    `name` is what the limit is called where it is set, `what` what is counted, as in "at most 16 bodies are read".

    With `lends` a user may go beyond its share as long as one share stays free, so that a user alone is not held to a
    quarter of what the operator has set aside. Against one such user every other one still has its share; several of
    them together can keep others out.

    The empty user is the cluster itself, which has no share but all of it.
    """

    def __init__(self, name: str, limit: int, what: str, *, lends: bool = False) -> None:
        self.name = name
        self.limit = limit
        self.share = share_of(limit)
        self.total = 0
        self._what = what
        self._lends = lends
        self._held: dict[str, int] = {}
        """By user; those that have none are not in it."""

    def of(self, user: str) -> int:
        """How much the user has."""
        return self._held.get(user, 0)

    def why_not(self, user: str, amount: int = 1) -> str:
        """Why the user cannot have so much more; empty if it can."""
        total = self.total + amount
        if total > self.limit:
            return f"at most {self.name} = {self.limit} {self._what}"
        if not user or self.of(user) + amount <= self.share or (self._lends and total <= self.limit - self.share):
            return ""
        if not self._lends:
            return f"at most {self.share} of {self.name} = {self.limit} {self._what} for one user; here {user}"
        return (
            f"at most {self.name} = {self.limit} {self._what}: user {user} has {self.of(user)} of them, others "
            f"{self.total - self.of(user)}, and beyond {self.share} of its own a user leaves {self.share} free"
        )

    def most_of(self, user: str) -> int:
        """How much the user may have when nobody else has anything."""
        if not user:
            return self.limit
        return max(self.share, self.limit - self.share) if self._lends else self.share

    def take(self, user: str, amount: int = 1) -> None:
        """The user has so much more, whether that is too much or not."""
        self._set(user, self.of(user) + amount)
        self.total += amount

    def give_back(self, user: str, amount: int = 1) -> None:
        """The user has so much less."""
        self._set(user, self.of(user) - amount)
        self.total -= amount

    def _set(self, user: str, held: int) -> None:
        if held:
            self._held[user] = held
        else:
            self._held.pop(user, None)

    def greatest(self) -> str:
        """The user that has most; there must be one. O(users), for when all is taken, which takes several of them."""
        return max(self._held, key=self._held.__getitem__)


def share_of(limit: int) -> int:
    """One user's share of a limit."""
    return max(1, limit // SHARE)
