"""What is known of tasks that have run: how long those of an app and a stage take (paper 004, §5.1 and §6.3.2)."""

from __future__ import annotations

from collections import OrderedDict

PROFILES_MAX = 10_000
"""Stages that are remembered; those that were not heard of for longest go."""
WEIGHT = 0.2
"""What the latest task counts for in the mean."""


class Profiles:
    """Means of measured times, the latest counting most."""

    def __init__(self, profiles_max: int = PROFILES_MAX) -> None:
        self._max = profiles_max
        self._means_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._means_s)

    def ran(self, app: str, stage: str, service_s: float) -> None:
        """A task of the stage has taken so long."""
        key, means_s = (app, stage), self._means_s
        before_s = means_s.get(key)
        means_s[key] = service_s if before_s is None else before_s + WEIGHT * (service_s - before_s)
        means_s.move_to_end(key)
        if len(means_s) > self._max:
            means_s.popitem(last=False)

    def duration_s(self, app: str, stage: str) -> float | None:
        """How long a task of the stage takes; None if none is remembered."""
        return self._means_s.get((app, stage))
