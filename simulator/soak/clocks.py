"""The clocks of hosts, which need not agree: each has an offset and a rate against the time of the engine."""

from __future__ import annotations


class HostClock:
    """A host's own clock, which never goes back. `offset_s`: what it shows at 0; `rate`: its seconds a second."""

    __slots__ = ("_last_s", "offset_s", "rate")

    def __init__(self, offset_s: float = 0.0, rate: float = 1.0) -> None:
        self.offset_s = offset_s
        self.rate = rate
        self._last_s = float("-inf")

    def read_s(self, true_s: float) -> float:
        """What it shows at that time of the engine."""
        own_s = self.offset_s + self.rate * true_s
        self._last_s = max(self._last_s, own_s)
        return self._last_s

    def at_least(self, own_s: float) -> None:
        """A deadline of `own_s` is due: what rounding has left of the way to it has passed."""
        self._last_s = max(self._last_s, own_s)

    def true_s(self, own_s: float) -> float:
        """The time of the engine at which it shows `own_s`."""
        return (own_s - self.offset_s) / self.rate

    def leap(self, true_s: float, seconds: float, rate: float) -> None:
        """It leaps ahead, as that of a machine that was suspended, and goes on at another rate."""
        own_s = self.read_s(true_s) + seconds
        self.rate = rate
        self.offset_s = own_s - rate * true_s
