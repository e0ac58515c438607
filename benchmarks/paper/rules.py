"""How a number of ours is judged beside the paper's: by bands that are stated before it is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

REPRODUCED, DIRECTION, NOT_REPRODUCED = "reproduced", "direction only", "not reproduced"
NOT_HERE, NOT_RUN, INVALID = "not here", "not run", "no measurement"


@dataclass(frozen=True)
class Band:
    """Numbers from `low` to `high`."""

    low: float = -math.inf
    high: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"at most {_number(self.high)}"
        return (
            f"at least {_number(self.low)}" if self.high == math.inf else f"{_number(self.low)} to {_number(self.high)}"
        )


def _number(bound: float) -> str:
    return f"{bound:,.0f}" if abs(bound) >= 1000 else f"{bound:.4g}"


@dataclass(frozen=True)
class Rule:
    """reproduced: the numbers that are what the paper says. direction: those that only point the same way."""

    reproduced: Band
    direction: Band | None = None

    def verdict(self, value: float) -> str:
        """Of a number."""
        if value in self.reproduced:
            return REPRODUCED
        return DIRECTION if self.direction is not None and value in self.direction else NOT_REPRODUCED

    def __str__(self) -> str:
        return str(self.reproduced) if self.direction is None else f"{self.reproduced}; direction: {self.direction}"


PASSES = Rule(Band(1, 1))
"""Of a test."""


def near(value: float, share: float, direction: Band | None = None) -> Rule:
    """Within this share of the paper's value."""
    return Rule(Band(round(value * (1 - share), 6), round(value * (1 + share), 6)), direction)


def at_most(value: float, direction: float | None = None) -> Rule:
    """Not more than the paper says."""
    return Rule(Band(high=value), None if direction is None else Band(high=direction))


def at_least(value: float, direction: float | None = None) -> Rule:
    """Not less than the paper says."""
    return Rule(Band(low=value), None if direction is None else Band(low=direction))
