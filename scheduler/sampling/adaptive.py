"""How many reservations a task is worth at the present load: a probe ratio d that rises with the time that tasks wait.

Most probes of a batch meet a free slot when the cluster is half empty, and few do when it is nearly full: on average
1 - ρ of them at load ρ. So more of them pay when tasks wait, and only cost messages when none does. Tarcil (Delimitrou,
Sanchez and Kozyrakis, SoCC 2015) chooses the size of its samples by load for that reason. A scheduler of many does not
know the load of the cluster, but it sees what comes of it:

    f = min(1, (w - w0) / s)        d = d_job + f · max(0, d_max - d_job)

w is the mean time from a stage's first reservation until a task of it is bound, s the mean time that tasks run, both
moving averages over about the last 1 / `GAIN` tasks; w0 is the shortest wait seen, which is the network's and not the
queues'. So d is the job's own while tasks start at once, and d_max once they wait for as long as they run.

Pure: no clock, no randomness, no I/O. Times are seconds.
"""

from __future__ import annotations

import math

GAIN = 0.01
"""Share of the newest task in the averages."""


class AdaptiveRatio:
    """What a scheduler has seen of waiting and running, and the probe ratio that follows from it."""

    __slots__ = ("_least_s", "_ran_s", "_waited_s", "ratio_max")

    def __init__(self, ratio_max: float) -> None:
        self.ratio_max = ratio_max
        """d_max; below a job's own d it changes nothing."""
        self._waited_s = 0.0
        self._ran_s: float | None = None
        self._least_s = math.inf

    def waited(self, wait_s: float, tasks: int) -> None:
        """So many tasks were bound so long after their stage's first reservation."""
        self._least_s = min(self._least_s, wait_s)
        self._waited_s += (1 - (1 - GAIN) ** tasks) * (wait_s - self._least_s - self._waited_s)

    def started_at_once(self, tasks: int) -> None:
        """So many tasks were sent to free slots, without having waited."""
        self._waited_s *= (1 - GAIN) ** tasks

    def ran(self, service_s: float) -> None:
        """A task ran for so long."""
        if self._ran_s is None:
            self._ran_s = service_s
        else:
            self._ran_s += GAIN * (service_s - self._ran_s)

    @property
    def waiting(self) -> float:
        """f: 0 if tasks start at once, 1 if they wait for as long as they run, or longer."""
        if self._waited_s <= 0 or self._ran_s is None:
            return 0.0
        return 1.0 if self._waited_s >= self._ran_s else self._waited_s / self._ran_s

    def ratio(self, own: float) -> float:
        """The probe ratio of a job whose own is this, if it probes now."""
        if self.ratio_max <= own:
            return own
        return min(self.ratio_max, own + self.waiting * (self.ratio_max - own))  # Rounding may take the sum beyond.
