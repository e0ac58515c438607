"""The policy that places the task first that is expected to be done first: shortest job first.

Where tasks go is as under load spreading. What differs is the price of waiting: each halving of the expected duration
makes it dearer by `octave_cost`, so of too many tasks those wait that last longest. A task of unknown duration counts
as one that lasts `LONGEST_S`. Waiting has its price by the second, too, the same for all: a task that has waited
`octave_cost / waiting_cost_per_s` seconds counts as one of half the duration, so none waits for ever.

Policies of this kind are what the thesis means its interface for (paper 004, §5.1); it has none of its own for this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.policy import AGE_S_MAX, Task, TaskCosts
from scheduler.flow.problem import ProblemError

SHORTEST_S = 0.001
LONGEST_S = float(AGE_S_MAX)


@dataclass
class ShortestJob(LoadSpreading):
    """See the module's docstring."""

    octave_cost: int = 100
    """What it costs more to have a task wait that lasts half as long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.octave_cost <= self.waiting_cost:
            raise ProblemError(f"octave_cost is {self.octave_cost}; allowed are 0 to waiting_cost, {self.waiting_cost}")

    def task(self, task: Task) -> TaskCosts:
        """As with load spreading, but the shorter the task, the dearer it is to have it wait."""
        costs = super().task(task)
        return replace(costs, waiting=costs.waiting + self.price(task.duration_s))

    def price(self, duration_s: float | None) -> int:
        """What waiting costs beyond what it costs all; a task whose duration is not known counts as the longest."""
        if duration_s is None or math.isnan(duration_s):
            return 0
        return int(self.octave_cost * math.log2(LONGEST_S / min(max(duration_s, SHORTEST_S), LONGEST_S)))
