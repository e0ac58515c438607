"""The knowledge base: how long tasks of a user's app and stage take, and what they use (paper 004, §5.1 and §6.3.2).

Durations and CPUs are means in which the latest task counts most. Memory and bandwidth are what tasks come up to: a
larger figure counts at once, smaller ones bit by bit, so that one quiet task does not make all look small.

What is known is each user's own: whoever calls a stage as another user does teaches that one's tasks nothing. A user
has room for so many stages, and of all users the one that has most makes room for a new one; of a user's stages those
go that were not heard of for longest.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

PROFILES_MAX = 10_000
"""Stages that are remembered."""
PROFILES_PER_USER_MAX = 1_000
WEIGHT = 0.2
"""What the latest task counts for in a mean."""
FALL = 0.05
"""What a task counts for that used less than others came up to."""
CPU, MEMORY, NET = "cpu", "memory_bytes", "net_bytes_per_s"
"""What tasks use, by the names that resources of nodes have: CPUs, memory, bandwidth."""
FIGURES = 2
"""Significant figures of what tasks are expected to use: so a machine changes only if something did."""

Stage = tuple[str, str]
"""An app, and a stage's name."""


@dataclass(slots=True)
class Profile:
    """Of a stage's tasks so far."""

    duration_s: float | None = None
    uses: dict[str, float] = field(default_factory=dict)
    """By resource; what was never measured is not there."""

    def ran(self, service_s: float) -> None:
        """A task took so long."""
        before_s = self.duration_s
        self.duration_s = service_s if before_s is None else before_s + WEIGHT * (service_s - before_s)

    def used(self, resource: str, amount: float) -> None:
        """A task used so much."""
        before = self.uses.get(resource)
        if before is None or (resource != CPU and amount > before):
            self.uses[resource] = amount
        else:
            self.uses[resource] = before + (WEIGHT if resource == CPU else FALL) * (amount - before)


class Profiles:
    """See the module's docstring."""

    def __init__(self, profiles_max: int = PROFILES_MAX, per_user_max: int = PROFILES_PER_USER_MAX) -> None:
        self._max = profiles_max
        self._per_user_max = per_user_max
        self._users: dict[str, OrderedDict[Stage, Profile]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def ran(self, user: str, app: str, stage: str, service_s: float) -> None:
        """A task of the stage has taken so long."""
        self._profile(user, (app, stage)).ran(service_s)

    def used(self, user: str, app: str, stage: str, used: Mapping[str, float | None]) -> None:
        """A task of the stage has used so much, by resource; what is no number from 0 counts as not known."""
        known = {name: float(amount) for name, amount in used.items() if amount is not None and 0 <= amount < math.inf}
        if known:
            profile = self._profile(user, (app, stage))
            for name, amount in known.items():
                profile.used(name, amount)

    def duration_s(self, user: str, app: str, stage: str) -> float | None:
        """How long a task of the stage takes; None if none is remembered."""
        profile = self._known(user, (app, stage))
        return None if profile is None else profile.duration_s

    def expected(self, user: str, app: str, stage: str, demand: Mapping[str, float]) -> dict[str, float]:
        """What a task of the stage is expected to use: what it demands or, if that is more, what others came up to."""
        found = dict(demand)
        profile = self._known(user, (app, stage))
        if profile is not None:
            for name, amount in profile.uses.items():
                if amount > found.get(name, 0.0):
                    found[name] = float(f"{amount:.{FIGURES}g}")
        return found

    def _known(self, user: str, stage: Stage) -> Profile | None:
        stages = self._users.get(user)
        return None if stages is None else stages.get(stage)

    def _profile(self, user: str, stage: Stage) -> Profile:
        """The stage's, heard of just now."""
        stages = self._users.setdefault(user, OrderedDict())
        profile = stages.get(stage)
        if profile is None:
            profile = stages[stage] = Profile()
            self._count += 1
            if len(stages) > self._per_user_max:
                self._forget_oldest(user)
            elif self._count > self._max:
                self._forget_oldest(max(self._users, key=lambda name: len(self._users[name])))
        else:
            stages.move_to_end(stage)
        return profile

    def _forget_oldest(self, user: str) -> None:
        stages = self._users[user]
        stages.popitem(last=False)
        self._count -= 1
        if not stages:
            del self._users[user]
