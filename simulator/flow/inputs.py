"""Where the inputs of tasks lie, made up as Quincy's are: up to ten machines hold a part of a task's input each."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sparrow_py.errors import InvalidOption

PREFERRED_MAX = 10
LEAST_SHARE = 0.1
MEDIAN_BYTES, SIGMA = 6.65e9, 1.2
BYTES_MIN, BYTES_MAX = 5e8, 1.15e11


@dataclass(frozen=True, slots=True)
class Input:
    """Of a task."""

    size: int
    local: dict[str, int]
    """Bytes by machine."""


class Inputs:
    """A generator of its own, so that what tasks read does not depend on what happens."""

    def __init__(self, machines: list[str], seed: int) -> None:
        if not machines:
            raise InvalidOption("machines", 0, "at least one machine")
        self._machines = machines
        self._chance = random.Random(f"{seed} inputs")

    def draw(self) -> Input:
        """Of the next task."""
        chance = self._chance
        size = int(min(max(MEDIAN_BYTES * chance.lognormvariate(0, SIGMA), BYTES_MIN), BYTES_MAX))
        count = min(chance.randrange(PREFERRED_MAX + 1), len(self._machines))
        local = {}
        for _ in range(count):
            share = LEAST_SHARE + (1 - LEAST_SHARE) * chance.random()
            local[self._machines[chance.randrange(len(self._machines))]] = int(size * share)
        return Input(size, local)
