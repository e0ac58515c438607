"""What a scheduler knows of a job that its client brings back to it: counts of starts survive a link that broke.

The job comes with the next epoch, so no other scheduler had it meanwhile: what was counted here is the truth, but for
starts that are open. It goes through the claim as any other job does, since nodes may have ended what was open.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Carried:
    """From the job as it was to the job that supersedes it, until that is claimed."""

    unstarted: list[tuple[int, int]]
    """(first, count) of tasks, in order, of which no start was open."""
    starts: dict[int, int]
    """By the job's count of tasks: those that were counted."""
    failures: dict[int, int]
    """The same of failures that were retried, which are not among the starts."""
    untold: set[int] = field(init=False)
    """Those of both of which the client has not said that it knows so many."""

    def __post_init__(self) -> None:
        self.untold = {*self.starts, *self.failures}
