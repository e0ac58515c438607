"""Is it the node that tasks die of, or are it the tasks?

An executor that dies while it runs a task says little: a task may well end its process. But if tasks of several jobs
die here one after the other and none ends as it should, it may be the node: a library that is broken, say, or memory
that is. Then reservations are refused for a while, which doubles until a task ends here; so such a node takes few
attempts from each job, and comes back by itself.

One user's jobs may all be of a kind that kills executors. They must not keep a node from others, so as long as all
that died were of one user, only that user is refused. That is looked at anew after each refusal: who had a task die
before, and none since, is not refused for what another's tasks do. And a single job says nothing, however many of its
tasks die: those get as many attempts as it allows (`max_attempts`), end `lost`, and are not started again.
"""

from __future__ import annotations

SUSPICIOUS_JOBS = 3
"""Jobs whose tasks died here, with none that ended as it should in between, from which on the node is suspected."""
AVOIDED_FIRST_S = 1.0
AVOIDED_MAX_S = 10.0
"""Reservations are refused for so long at first, and at most: who mends their tasks waits no longer for it to show."""


class Suspicion:
    """Of the executors of one app."""

    __slots__ = ("_times", "_until_s", "_users", "jobs")

    def __init__(self) -> None:
        self.jobs: set[tuple[str, int, str]] = set()
        """Those that died since the last success: no more than `SUSPICIOUS_JOBS`, and `_users` than two."""
        self._users: set[str] = set()
        """Whose those were that died since the last refusal was over."""
        self._times = 0
        self._until_s = 0.0

    def __bool__(self) -> bool:
        """Whether anybody was refused since the last success."""
        return self._times > 0

    def died(self, user: str, instance: int, job: str, now_s: float) -> float | None:
        """A task of this job died with its executor. When the node will not be avoided any more, if it is from now."""
        if len(self.jobs) < SUSPICIOUS_JOBS:
            self.jobs.add((user, instance, job))
        if self._times and now_s >= self._until_s:
            self._users.clear()
        if len(self._users) < 2:
            self._users.add(user)
        if len(self.jobs) < SUSPICIOUS_JOBS or now_s < self._until_s:
            return None
        self._until_s = now_s + min(AVOIDED_FIRST_S * 2 ** min(self._times, 20), AVOIDED_MAX_S)
        self._times += 1
        return self._until_s

    def cleared(self) -> None:
        """A task ended as it should: what died was at fault itself."""
        if self.jobs:
            self.jobs.clear()
            self._users.clear()
            self._times = 0
            self._until_s = 0.0

    def refuses(self, user: str, now_s: float) -> bool:
        """Whether this user's tasks should not come here now."""
        return now_s < self._until_s and (len(self._users) > 1 or user in self._users)
