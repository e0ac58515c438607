"""Outcomes of a job that its client may not have: they are kept here until it says that it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.footprint import outcome_bytes

if TYPE_CHECKING:
    from sparrow_py.wire.messages import Outcome

Key = tuple[str, str, int]
"""The user, the job's id and its instance: what the job is known by if its client comes back with it."""


class Undelivered:
    """See the module's docstring. `Deliveries` alone changes it."""

    __slots__ = ("awaits_client", "bytes", "job_over", "key", "outcomes")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.outcomes: dict[int, Outcome] = {}
        """By task, by the job's count."""
        self.bytes = 0
        """What they count for in their user's `held_bytes_max`."""
        self.job_over = False
        """Whether no further outcome of the job will come."""
        self.awaits_client = False
        """Whether the job's client has vanished, and may yet come back."""

    def add(self, outcome: Outcome) -> int:
        """Keep the outcome; returns what it counts for."""
        size = outcome_bytes(outcome)
        self.outcomes[outcome.task] = outcome
        self.bytes += size
        return size

    def remove(self, task: int, size: int) -> int:
        """The client has the outcome of this task, which counted for so much; returns that, 0 if it was not kept."""
        if self.outcomes.pop(task, None) is None:
            return 0
        self.bytes -= size
        return size

    def clear(self) -> int:
        """Keep none of them any longer; returns what they counted for."""
        size, self.bytes = self.bytes, 0
        self.outcomes = {}
        return size
