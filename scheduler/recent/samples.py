"""Percentiles of many values of which some are kept: every one at first, then every second, every fourth, and so on."""

from __future__ import annotations

SAMPLES_MAX = 200
"""Values that are kept of a span of time."""


class Samples:
    """Values that come one by one, under numbers that only grow."""

    __slots__ = ("_stride", "next", "values")

    def __init__(self) -> None:
        self.values: list[float] = []
        self._stride = 1
        self.next = 0
        """The first number whose value is to be added: it may cost something to have."""

    def add(self, number: int, value: float) -> None:
        """Keep it."""
        self.values.append(value)
        if len(self.values) == SAMPLES_MAX:
            del self.values[1::2]
            self._stride *= 2
        self.next = number + self._stride

    def percentiles(self, parts: tuple[float, ...]) -> list[float]:
        """By nearest rank, the values below which such parts of all lie; empty if there are none."""
        ordered = sorted(self.values)
        if not ordered:
            return []
        return [ordered[max(0, min(len(ordered) - 1, round(part * len(ordered) + 0.5) - 1))] for part in parts]
