"""Outcomes of a job that its client may not have are kept here until the client says that it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.footprint import job_bytes, outcome_bytes
from sparrow_py.job import BlobRef

if TYPE_CHECKING:
    from sparrow_py.wire.messages import Outcome, SubmitJob

Key = tuple[str, str, int]
"""The user, the job's id and its instance, by which the job is known again if its client comes back with it."""


class Detached:
    """What is kept besides its outcomes of a job that its client has let go of."""

    __slots__ = ("born_s", "by", "bytes", "client", "is_timed", "retention_s", "submission")

    def __init__(self, submission: SubmitJob, retention_s: float, born_s: float) -> None:
        self.submission = submission
        """The job as it came, without what its stages have in common."""
        self.retention_s = retention_s
        """How long it is kept after its end while nobody is attached."""
        self.born_s = born_s
        """When its user submitted it."""
        self.client = ""
        """Who is attached; empty if nobody is."""
        self.by = 0
        """What that client has drawn for it."""
        self.is_timed = False
        """Whether a timer will look whether its time is over."""
        self.bytes = job_bytes(submission)


class Undelivered:
    """The outcomes of one job. `Deliveries` alone changes them."""

    __slots__ = ("awaits_client", "bytes", "detached", "job_over", "kept_until_s", "key", "large", "outcomes")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.outcomes: dict[int, Outcome] = {}
        """Outcomes by their task's number in the job."""
        self.large: set[int] = set()
        """Those of these tasks whose results lie at nodes."""
        self.bytes = 0
        """What counts of this towards the user's `held_bytes_max`."""
        self.job_over = False
        """Whether no further outcome of the job will come."""
        self.awaits_client = False
        """Whether the job's client has vanished, and may yet come back; or has let go of it, and nobody is attached."""
        self.kept_until_s = 0.0
        """Until when the outcomes are kept if nobody is there to have them, or the client was refused when it came
        back."""
        self.detached: Detached | None = None
        """Of a job that its client has let go of."""

    @property
    def is_for_anybody(self) -> bool:
        """Whether the job's client has let go of it, and nobody is attached."""
        return self.detached is not None and not self.detached.client

    def add(self, outcome: Outcome) -> int:
        """Keep the outcome; returns its size."""
        size = outcome_bytes(outcome)
        self.outcomes[outcome.task] = outcome
        if type(outcome.result) is BlobRef:
            self.large.add(outcome.task)
        self.bytes += size
        return size

    def remove(self, task: int, size: int) -> int:
        """The client has this task's outcome, of this size; returns how many bytes less are kept, 0 if it was not."""
        if self.outcomes.pop(task, None) is None:
            return 0
        self.large.discard(task)
        self.bytes -= size
        return size

    def detach(self, detached: Detached) -> int:
        """The job's client lets go of it; returns how many bytes more are kept."""
        self.detached = detached
        self.bytes += detached.bytes
        return detached.bytes

    def take_back(self) -> int:
        """The job's client has come back with it, if it had let go of it; returns how many bytes less are kept."""
        detached, self.detached = self.detached, None
        size = 0 if detached is None else detached.bytes
        self.bytes -= size
        return size

    def clear(self) -> int:
        """Keep nothing any longer; returns the size of what was kept."""
        size, self.bytes = self.bytes, 0
        self.outcomes, self.large = {}, set()
        return size
