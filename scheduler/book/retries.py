"""Failures of a stage's tasks that are retried (`job.RetryPolicy`): how many there were, and how long tasks wait."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from sparrow_py.wire.messages import Retry

ERRORS_KEPT_MAX = 3
"""Errors of a task's earlier failures that are kept for its report: the last ones."""
ERROR_CHARS_MAX = 200
"""Characters that are kept of each."""


class Retries:
    """Those of one stage, by its count of tasks."""

    __slots__ = ("errors", "failures", "policy", "told_waiting")

    def __init__(self, policy: Retry) -> None:
        self.policy = policy
        self.failures: dict[int, int] = {}
        """How often tasks have failed and were to run again."""
        self.errors: dict[int, tuple[str, ...]] = {}
        """What the last of these failures said."""
        self.told_waiting: set[int] = set()
        """Tasks of which the client knows that they wait: it is to be told before they start."""

    def may_retry(self, task: int) -> bool:
        """Whether the task, which has failed once more, may run again."""
        return self.failures.get(task, 0) + 1 < self.policy.attempts

    def failed(self, task: int, error: str) -> None:
        """The task has failed, and is to run again."""
        self.failures[task] = self.failures.get(task, 0) + 1
        self.keep_error(task, error)

    def keep_error(self, task: int, error: str) -> None:
        """One of the task's failures said this."""
        self.errors[task] = (*self.errors.get(task, ()), error[:ERROR_CHARS_MAX])[-ERRORS_KEPT_MAX:]

    def delay_s(self, task: int, rng: random.Random) -> float:
        """How long the task waits after its last failure."""
        longest_s = delay_s(self.policy, self.failures[task])
        return longest_s * (1.0 - rng.uniform(0.0, self.policy.jitter))


def delay_s(policy: Retry, failures: int) -> float:
    """Seconds from the failure of this number (from 1) to the next start, if chance takes nothing off."""
    first_s = policy.first_delay_s
    try:
        grown_s = first_s * policy.factor ** (failures - 1)
    except OverflowError:
        grown_s = math.inf if first_s else 0.0
    return min(grown_s, policy.longest_delay_s)
