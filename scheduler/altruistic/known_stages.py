"""Which stages are remembered. It is each user's own what is known: who calls a stage as another user does teaches that
one's nothing. A user has room for so many stages, and of all users the one that has most makes room for a new one; of a
user's stages those go that have not run for longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from scheduler.altruistic.runs import Figures, followed

STAGES_MAX = 10_000
"""Stages that are remembered."""
STAGES_PER_USER_MAX = 1_000


class StageKey(NamedTuple):
    """What a stage is known by from run to run."""

    user: str
    app: str
    job: str
    """The job's name."""
    stage: str


def stage_key(user: str, app: str, job: str, stage: str) -> StageKey | None:
    """None if neither the job nor the stage has a name: calls of anything would be taken for the same stage."""
    return StageKey(user, app, job, stage) if job or stage else None


class KnownStages:
    """Stages with what their runs have shown. Every operation takes constant time, however many stages and users."""

    def __init__(self, stages_max: int = STAGES_MAX, per_user_max: int = STAGES_PER_USER_MAX) -> None:
        self._max = stages_max
        self._per_user_max = per_user_max
        self._users: dict[str, OrderedDict[StageKey, Figures]] = {}
        """Of each user: the stages that ran last come last."""
        self._by_size: dict[int, OrderedDict[str, None]] = {}
        """Users who have so many stages; those who have had them for longest first."""
        self._most = 0
        """Stages of the user who has most."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[StageKey, Figures]]:
        """Of each user the stages that ran first come first."""
        for stages in self._users.values():
            yield from stages.items()

    def of(self, key: StageKey) -> Figures | None:
        """What is known of a stage."""
        stages = self._users.get(key.user)
        return None if stages is None else stages.get(key)

    def ran(self, key: StageKey, later: Figures) -> None:
        """A stage has run, once or several times, and has shown this."""
        stages = self._users.setdefault(key.user, OrderedDict())
        earlier = stages.get(key)
        if earlier is not None:
            stages[key] = followed(earlier, later)
            stages.move_to_end(key)
            return
        stages[key] = later
        self._resized(key.user, 1)
        if len(stages) > self._per_user_max:
            self._forget_oldest(key.user)
        elif self._count > self._max:
            self._forget_oldest(next(iter(self._by_size[self._most])))

    def _forget_oldest(self, user: str) -> None:
        self._users[user].popitem(last=False)
        self._resized(user, -1)

    def _resized(self, user: str, by: int) -> None:
        """A user has one stage more or less than before."""
        self._count += by
        now = len(self._users[user])
        if now - by:
            same = self._by_size[now - by]
            del same[user]
            if not same:
                del self._by_size[now - by]
        if now:
            self._by_size.setdefault(now, OrderedDict())[user] = None
        else:
            del self._users[user]
        if now > self._most or self._most not in self._by_size:
            self._most = now
