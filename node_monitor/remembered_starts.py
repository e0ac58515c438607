"""Which tasks have started here, of jobs whose tasks may start once at most: for schedulers that claim them later."""

from __future__ import annotations

import math

from node_monitor.fences import Owner

STARTED_MAX = 100_000
"""Started tasks remembered, of jobs whose tasks may start once at most. Beyond that the user that has most forgets a
job, that which came first."""
STARTED_MIN = 200
FORGETFUL_USERS_MAX = 1000
"""Users of whom it is known since when their starts are remembered; of others as if they were all one."""


class _Started:
    """The tasks of a job that have started here."""

    __slots__ = ("since_s", "tasks")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        """When the first of them did."""
        self.tasks: set[int] = set()


class RememberedStarts:
    """Started tasks by (owner, job). `share` of the limits, for one of several nodes in a process."""

    __slots__ = ("_all_forgotten_s", "_by_user", "_counts", "_forgotten_s", "_max", "_total")

    def __init__(self, share: float = 1.0) -> None:
        self._by_user: dict[str, dict[tuple[Owner, str], _Started]] = {}
        """In the order of `since_s`."""
        self._counts: dict[str, int] = {}
        """Tasks in it, by user."""
        self._total = 0
        self._max = max(STARTED_MIN, int(STARTED_MAX * share))
        self._forgotten_s: dict[str, float] = {}
        """`since_s` of the last of each user's jobs whose starts were forgotten."""
        self._all_forgotten_s = -math.inf
        """The same of all other users."""

    def add(self, owner: Owner, job: str, task: int, now_s: float) -> None:
        """The task starts."""
        user, key = owner[0], (owner, job)
        jobs, counts = self._by_user.setdefault(user, {}), self._counts
        known = jobs.get(key)
        if known is None:
            known = jobs[key] = _Started(now_s)
        if task not in known.tasks:
            known.tasks.add(task)
            counts[user] = counts.get(user, 0) + 1
            self._total += 1
            if self._total > self._max:
                self._forget(max(counts, key=counts.__getitem__))

    def _forget(self, user: str) -> None:
        """Forget those of the user's first job."""
        jobs = self._by_user[user]
        forgotten = jobs.pop(next(iter(jobs)))
        self._counts[user] -= len(forgotten.tasks)
        self._total -= len(forgotten.tasks)
        if not jobs:
            del self._by_user[user], self._counts[user]
        self._forgotten_s.pop(user, None)
        self._forgotten_s[user] = forgotten.since_s
        if len(self._forgotten_s) > FORGETFUL_USERS_MAX:
            since_s = self._forgotten_s.pop(next(iter(self._forgotten_s)))
            self._all_forgotten_s = max(self._all_forgotten_s, since_s)

    def of(self, owner: Owner, job: str) -> list[int]:
        """The job's tasks that have started here, as far as they are remembered."""
        known = self._by_user.get(owner[0], {}).get((owner, job))
        return [] if known is None else sorted(known.tasks)

    def complete_since(self, user: str, submitted_s: float) -> bool:
        """Whether all starts are remembered of the user's jobs that were submitted then or later.

        A job is forgotten whole, and before all of its user's whose first task started later. So of one that was
        submitted after the first start of the last that was forgotten nothing has been.
        """
        return submitted_s > max(self._all_forgotten_s, self._forgotten_s.get(user, -math.inf))
