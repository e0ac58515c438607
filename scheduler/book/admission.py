"""Admission: how many unplaced tasks, and how many bytes, a user may have at this scheduler (guarantee 6)."""

from __future__ import annotations

from dataclasses import dataclass

RETRY_AFTER_MIN_S = 0.1
RETRY_AFTER_MAX_S = 30.0
RETRY_AFTER_UNKNOWN_S = 1.0
"""Retry-after while no placing rate is known, or nothing was placed lately: soon enough to measure one."""
RATE_WINDOW_S = 1.0
"""The placing rate, from which retry-after is estimated, is measured over windows of this length."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job is not taken, when to try again (None: never), and which of its fields is at fault."""

    reason: str
    retry_after_s: float | None = None
    field: str = ""


class Admission:
    """Counts unplaced tasks per user; memory is bounded by the number of users with such tasks."""

    def __init__(self, unplaced_tasks_max: int, held_bytes_max: int = 1 << 62) -> None:
        self.unplaced_tasks_max = unplaced_tasks_max
        self.held_bytes_max = held_bytes_max
        self.unplaced: dict[str, int] = {}
        self.held_bytes: dict[str, int] = {}
        """Bytes that jobs which have not ended make this scheduler hold, by user (see `footprint`)."""
        self._placed = 0
        self._window_start_s = 0.0
        self._rate_per_s = 0.0

    def admit(self, user: str, tasks: int, now_s: float, *, bytes_too: bool = True) -> Refusal | None:
        """Count the tasks in, or say why not; with `bytes_too`, also if too many bytes are held already."""
        limit = self.unplaced_tasks_max
        if tasks > limit:
            return Refusal(f"the job has {tasks} tasks; at most unplaced_tasks_max = {limit} may be unplaced", None)
        self._measure(now_s)
        held = self.unplaced.get(user, 0)
        excess = held + tasks - limit
        if excess > 0:
            wait_s = excess / self._rate_per_s if self._rate_per_s else RETRY_AFTER_UNKNOWN_S
            return Refusal(
                f"user {user} has {held} unplaced tasks and the job {tasks}; at most unplaced_tasks_max = {limit} fit",
                min(max(wait_s, RETRY_AFTER_MIN_S), RETRY_AFTER_MAX_S),
            )
        if bytes_too and tasks and self.held_bytes.get(user, 0) >= self.held_bytes_max:
            return Refusal(self.over_bytes(user), RETRY_AFTER_UNKNOWN_S)
        if tasks:
            self.unplaced[user] = held + tasks
        return None

    def over_bytes(self, user: str) -> str:
        """That the user's jobs are too many bytes, in words."""
        return (
            f"the jobs of user {user} take {self.held_bytes.get(user, 0)} bytes; "
            f"at most held_bytes_max = {self.held_bytes_max} are held"
        )

    def holds(self, user: str, change: int) -> bool:
        """So many bytes more are held (or less); False if that is too many."""
        held = self.held_bytes.get(user, 0) + change
        if held > 0:
            self.held_bytes[user] = held
        else:
            self.held_bytes.pop(user, None)
        return held <= self.held_bytes_max

    def placed(self, user: str, tasks: int = 1) -> None:
        """So many tasks of the user were placed."""
        self._placed += tasks
        self.withdrawn(user, tasks)

    def returned(self, user: str) -> None:
        """A placed task is unplaced again; it was admitted before, so it is not refused."""
        self.unplaced[user] = self.unplaced.get(user, 0) + 1

    def withdrawn(self, user: str, tasks: int) -> None:
        """So many unplaced tasks are unplaced no more."""
        left = self.unplaced.get(user, 0) - tasks
        if left > 0:
            self.unplaced[user] = left
        else:
            self.unplaced.pop(user, None)

    def _measure(self, now_s: float) -> None:
        elapsed_s = now_s - self._window_start_s
        if elapsed_s >= RATE_WINDOW_S:
            # What was measured over a long time says little of now.
            self._rate_per_s = self._placed / elapsed_s if elapsed_s <= RETRY_AFTER_MAX_S else 0.0
            self._placed, self._window_start_s = 0, now_s
