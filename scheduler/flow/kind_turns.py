"""Which kinds of tasks have their machines in the network: so many of each user, in turns if a user has more.

A kind costs the network nodes, and an arc for each of its machines, in every round. So a user has so many of them there
at a time; tasks of others wait outside, in the order in which their kinds came, and cost nothing. A kind leaves when no
task is of it any more, or, while others of its user wait, when it has been there for some rounds: so none starves
behind kinds whose tasks find no place. A part of the room is kept for users who have few kinds there.

A gang starts only if all its kinds are in the network. So when the turn comes to one of them, they come in one after
the other, and those that are there stay until the last one is: then the turn of all begins. Of all users one at a time
gets the room for that from those who have most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from scheduler.flow.kind_gangs import KindGangs

KINDS_PER_USER_MAX = 512
"""Of one user in the network at a time."""
PIPES_PER_USER_MAX = 500_000
"""Machines of all kinds of one user, those that may go anywhere left out. One kind is let in whatever it has."""
USERS_AT_MOST = 8
"""So many users can have so many kinds each."""
KINDS_MAX = USERS_AT_MOST * KINDS_PER_USER_MAX
"""Of all users."""
PIPES_MAX = USERS_AT_MOST * PIPES_PER_USER_MAX
"""Machines of the kinds of all users."""
KINDS_FEW = KINDS_MAX // 64
"""Users with fewer kinds there have few."""
KEPT_SHARE = 4
"""One part in so many of the room is kept for users who have few."""
TURN_ROUNDS = 16
"""So long a kind stays in the network while others of its user wait."""
GATHER_ROUNDS_MAX = 4 * TURN_ROUNDS
"""So long kinds of a gang wait inside for the others. Then other kinds of the user come first."""
LET_IN_MAX = 256
"""Kinds that are let in before a round: each takes the time to look up its machines."""


class KindTurns:
    """See the module's docstring. A kind that several users have counts as that of the one by whose turn it came in."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, None]] = {}
        """By user: kinds that wait, the first ones first."""
        self._inside: dict[str, dict[str, int]] = {}
        """By user: kinds in the network, and since which round, the oldest first."""
        self._counted_for: dict[str, str] = {}
        """By kind in the network: the user."""
        self._users: dict[str, dict[str, None]] = {}
        """By kind: all users who have tasks of it."""
        self._pipes: dict[str, int] = {}
        """By kind in the network."""
        self._pipes_of: dict[str, int] = {}
        """By user."""
        self._gangs = KindGangs()
        self._gathering: dict[str, tuple[Hashable, int]] = {}
        """By user: the gang whose kinds come in one after the other, and since which round, the oldest first."""
        self._ahead = ""
        """The user whose gang gets room from those who have most; "" if none."""
        self._all_pipes = 0
        self._round = 0

    @property
    def any_waits(self) -> bool:
        """Whether some kinds are left outside."""
        return bool(self._waiting)

    def waits(self, kind: str) -> bool:
        """Whether the kind is outside."""
        return kind in self._users and kind not in self._counted_for

    def inside(self, user: str) -> int:
        """How many kinds of the user are in the network."""
        return len(self._inside.get(user, ()))

    def wanted(self, user: str, kind: str, gang: Hashable | None = None) -> None:
        """The user has tasks of the kind, and the user's gang has, if one is named."""
        if gang is not None:
            self._gangs.add(gang, kind)
        self._users.setdefault(kind, {})[user] = None
        if kind not in self._counted_for:
            self._waiting.setdefault(user, {})[kind] = None

    def unwanted(self, user: str, kind: str) -> bool:
        """The user has no tasks of the kind any more. Whether nobody has."""
        users = self._users.get(kind)
        if users is None:
            return True
        users.pop(user, None)
        self._wait_no_more(user, kind)
        if self._counted_for.get(kind) == user:
            since = self._inside[user][kind]
            pipes = self._leave(kind)
            if users:  # It stays, as another's.
                self._enter(next(iter(users)), kind, pipes, since)
        if users:
            return False
        del self._users[kind]
        return True

    def leaves_gang(self, gang: Hashable, kind: str) -> None:
        """The gang has no tasks of the kind any more."""
        self._gangs.remove(gang, kind)

    def weigh(self, kind: str, pipes: int) -> None:
        """A kind in the network has so many machines of its own now."""
        change = pipes - self._pipes[kind]
        self._pipes[kind] = pipes
        self._pipes_of[self._counted_for[kind]] += change
        self._all_pipes += change

    def take_turns(self, machines_of: Callable[[str], int]) -> tuple[list[str], list[str]]:
        """Before a round: kinds that come in, and that go out. `machines_of` says how many machines of its own a kind
        has, and is asked of those that come in."""
        self._round += 1
        if not self._waiting:
            return [], []
        self._gather()
        gone = self._end_turns()
        came: list[str] = []
        queue = deque(self._waiting)
        while queue and len(came) < LET_IN_MAX:
            user = queue.popleft()
            if not self._has_room(user):
                continue
            kind = next(iter(self._waiting[user]))
            for one in list(self._users[kind]):
                self._wait_no_more(one, kind)
            self._enter(user, kind, machines_of(kind), self._round)
            came.append(kind)
            queue = deque(one for one in queue if one in self._waiting)
            if user in self._waiting:
                self._waiting[user] = self._waiting.pop(user)  # Others are first in the next round.
                queue.append(user)
        back = set(came).intersection(gone)
        return [kind for kind in came if kind not in back], [kind for kind in gone if kind not in back]

    # ---- who has room ------------------------------------------------------------------------

    def _has_room(self, user: str) -> bool:
        kinds, pipes = self.inside(user), self._pipes_of.get(user, 0)
        if kinds >= KINDS_PER_USER_MAX or (kinds and pipes >= PIPES_PER_USER_MAX):
            return False
        return self._is_room_for_all(has_few=kinds < KINDS_FEW or user == self._ahead)

    def _is_room_for_all(self, *, has_few: bool) -> bool:
        kept = 0 if has_few else 1
        return len(self._counted_for) < KINDS_MAX - kept * (
            KINDS_MAX // KEPT_SHARE
        ) and self._all_pipes < PIPES_MAX - kept * (PIPES_MAX // KEPT_SHARE)

    # ---- gangs -------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Of users whose next kind is a gang's, the other ones of the gang that wait are next, and those that are
        inside stay."""
        for user, waiting in list(self._waiting.items()):
            gang = self._gangs.gang_of(next(iter(waiting)), KINDS_PER_USER_MAX)
            if gang is None:
                self._gathering.pop(user, None)
                continue
            if self._gathering.get(user, (None, 0))[0] != gang:
                self._gathering[user] = gang, self._round
            kinds = self._gangs.kinds(gang)
            own = {kind: None for kind in kinds if kind in waiting}
            if self._gathering[user][1] <= self._round - GATHER_ROUNDS_MAX:
                self._waiting[user] = {kind: None for kind in waiting if kind not in own} | own
                del self._gathering[user]
                continue
            self._waiting[user] = own | waiting
            for kind in kinds:
                if kind in self._counted_for:
                    inside = self._inside[self._counted_for[kind]]
                    del inside[kind]
                    inside[kind] = self._round
        if self._ahead not in self._gathering:
            self._ahead = next(iter(self._gathering), "")

    def _lacking_for_gang(self) -> int:
        """How many kinds of the gang that is ahead have no room although its user has not too many."""
        if not self._ahead or self._has_room(self._ahead) or self.inside(self._ahead) >= KINDS_PER_USER_MAX:
            return 0
        gang, _since = self._gathering[self._ahead]
        return sum(kind not in self._counted_for for kind in self._gangs.kinds(gang))

    # ---- turns -------------------------------------------------------------------------------

    def _end_turns(self) -> list[str]:
        """Kinds leave that were there for long enough, as many as wait: first of users whose own kinds wait, then, if
        there is no room for users with few, or for a gang, of those who have most."""
        gone: list[str] = []
        lacking = 0
        for user, kinds in list(self._waiting.items()):
            if self._has_room(user):
                continue
            left = self._end_turns_of(user, min(len(kinds), LET_IN_MAX))
            gone += left
            if not left and self.inside(user) < KINDS_FEW:
                lacking += min(len(kinds), KINDS_FEW - self.inside(user))
        gone += self._end_turns_of_largest(min(lacking, LET_IN_MAX), "")
        gone += self._end_turns_of_largest(min(self._lacking_for_gang(), LET_IN_MAX), self._ahead)
        for kind in gone:
            for user in self._users[kind]:
                self._waiting.setdefault(user, {})[kind] = None
        return gone

    def _end_turns_of_largest(self, most: int, spared: str) -> list[str]:
        """So many kinds leave at most, one at a time of the user who has most, but for one user."""
        gone: list[str] = []
        for _ in range(most):
            user = max((user for user in self._inside if user != spared), key=self.inside, default="")
            left = self._end_turns_of(user, 1) if self.inside(user) > KINDS_FEW else []
            if not left:
                break
            gone += left
        return gone

    def _end_turns_of(self, user: str, most: int) -> list[str]:
        kinds: list[str] = []
        for kind, since in self._inside.get(user, {}).items():
            if len(kinds) >= most or since > self._round - TURN_ROUNDS:
                break
            kinds.append(kind)
        for kind in kinds:
            self._leave(kind)
        return kinds

    def _enter(self, user: str, kind: str, pipes: int, since: int) -> None:
        self._inside.setdefault(user, {})[kind] = since
        self._counted_for[kind] = user
        self._pipes[kind] = pipes
        self._pipes_of[user] = self._pipes_of.get(user, 0) + pipes
        self._all_pipes += pipes

    def _leave(self, kind: str) -> int:
        """How many machines of its own it had."""
        user, pipes = self._counted_for.pop(kind), self._pipes.pop(kind)
        del self._inside[user][kind]
        self._pipes_of[user] -= pipes
        self._all_pipes -= pipes
        if not self._inside[user]:
            del self._inside[user], self._pipes_of[user]
        return pipes

    def _wait_no_more(self, user: str, kind: str) -> None:
        kinds = self._waiting.get(user)
        if kinds is not None:
            kinds.pop(kind, None)
            if not kinds:
                del self._waiting[user]
                self._gathering.pop(user, None)
