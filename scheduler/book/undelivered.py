"""Outcomes of a job that its client may not have are kept here until the client says that it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.footprint import outcome_bytes

if TYPE_CHECKING:
    from sparrow_py.wire.messages import Outcome

Key = tuple[str, str, int]
"""The user, the job's id and its instance, by which the job is known again if its client comes back with it."""


class Undelivered:
    """The outcomes of one job. `Deliveries` alone changes them."""

    __slots__ = ("awaits_client", "bytes", "job_over", "kept_until_s", "key", "outcomes")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.outcomes: dict[int, Outcome] = {}
        """Outcomes by their task's number in the job."""
        self.bytes = 0
        """Bytes of them that count towards their user's `held_bytes_max`."""
        self.job_over = False
        """Whether no further outcome of the job will come."""
        self.awaits_client = False
        """Whether the job's client has vanished, and may yet come back."""
        self.kept_until_s = 0.0
        """Until when the outcomes are kept if the client has vanished, or was refused when it came back."""

    def add(self, outcome: Outcome) -> int:
        """Keep the outcome; returns its size."""
        size = outcome_bytes(outcome)
        self.outcomes[outcome.task] = outcome
        self.bytes += size
        return size

    def remove(self, task: int, size: int) -> int:
        """The client has this task's outcome, of this size; returns how many bytes less are kept, 0 if it was not."""
        if self.outcomes.pop(task, None) is None:
            return 0
        self.bytes -= size
        return size

    def clear(self) -> int:
        """Keep no outcome any longer; returns the size of those that were kept."""
        size, self.bytes = self.bytes, 0
        self.outcomes = {}
        return size
