"""What was measured of a machine, whoever measured it."""

from __future__ import annotations

from typing import NamedTuple


class Measured(NamedTuple):
    """What was measured on the node's machine, as far as it can be: CPUs in use, bytes in use, received and sent."""

    cpu: float | None = None
    memory_bytes: int | None = None
    net_in_bytes_per_s: float | None = None
    net_out_bytes_per_s: float | None = None

    def divided(self, count: int) -> Measured:
        """The part of one of so many nodes of this machine."""
        memory_bytes = None if self.memory_bytes is None else self.memory_bytes // count
        parts = (None if value is None else value / count for value in (self.cpu, *self[2:]))
        cpu, received, sent = parts
        return Measured(cpu, memory_bytes, received, sent)
