"""Which epoch of a job may launch tasks here: fences keep out schedulers that had the job before."""

from __future__ import annotations

Owner = tuple[str, int]
"""A job's user and instance: ids of jobs may be used again, and one user knows nothing of another's."""
FENCES_MAX = 100_000
"""Claimed jobs remembered; beyond that the oldest is forgotten of the user that has most."""


class Fences:
    """The highest epoch that claimed each job."""

    __slots__ = ("_by_user", "epochs")

    def __init__(self) -> None:
        self.epochs: dict[tuple[Owner, str], int] = {}
        self._by_user: dict[str, dict[tuple[Owner, str], None]] = {}
        """The jobs by user, the one that was claimed first at the front."""

    def raise_to(self, owner: Owner, job: str, epoch: int) -> None:
        """Lower epochs of the job may launch nothing more."""
        self.epochs[owner, job] = epoch
        claimed = self._by_user.setdefault(owner[0], {})
        claimed.pop((owner, job), None)
        claimed[owner, job] = None
        if len(self.epochs) > FENCES_MAX:
            claimed = max(self._by_user.values(), key=len)
            oldest = next(iter(claimed))
            del claimed[oldest], self.epochs[oldest]

    def epoch(self, owner: Owner, job: str) -> int:
        """The highest epoch that claimed the job; 0 if none has."""
        return self.epochs.get((owner, job), 0)
