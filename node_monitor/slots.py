"""A node's slots and resources: what is free of them.

A slot is free, or asks (it waits for the answer to a getTask), or is held by a busy place of an executor; it never runs
two tasks. Whatever serves tasks takes its slots here: the fair queue today (`serving`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node_monitor.queueing.tickets import Charge

ROUNDING = 1e-9
"""What is free is a sum of many fractions: so much of a resource may seem to be missing and is not."""


class Slots:
    """How many slots are free, and what of the node's resources no task with a demand takes."""

    __slots__ = ("_resources", "count", "free", "free_resources")

    def __init__(self, count: int, resources: Mapping[str, float]) -> None:
        self.count = count
        self.free = count
        self._resources = dict(resources)
        self.free_resources = dict(resources)

    def fits(self, demand: dict[str, float]) -> bool:
        """Whether so much is free."""
        return all(
            self.free_resources.get(name, 0.0) >= amount - ROUNDING * self._resources.get(name, 0.0)
            for name, amount in demand.items()
        )

    def take_resources(self, charge: Charge) -> None:
        """What the task demands is not free any more."""
        for name, amount in (charge.ticket.demand or {}).items():
            if amount:
                self.free_resources[name] = self.free_resources.get(name, 0.0) - amount

    def return_resources(self, charge: Charge) -> None:
        """What the task demanded is free again."""
        for name, amount in (charge.ticket.demand or {}).items():
            if amount:
                self.free_resources[name] += amount

    def free_for(self, count: int, demand: dict[str, float]) -> dict[str, float]:
        """What so many tasks may take for which slots ask: what is free and what is set aside for them."""
        return {name: self.free_resources.get(name, 0.0) + count * amount for name, amount in demand.items()}

    def problem(self, charges: Iterable[Charge], busy: int, asking: int) -> str | None:
        """What does not add up, if anything, with these charges outstanding and so many slots that are not free."""
        taken: dict[str, float] = {}
        for charge in charges:
            for name, amount in (charge.ticket.demand or {}).items():
                taken[name] = taken.get(name, 0.0) + amount
        for name, amount in self._resources.items():
            free = self.free_resources[name]
            if abs(free + taken.get(name, 0.0) - amount) > 1e-6 * amount or free < -1e-6 * amount:
                return f"{free} free and {taken.get(name, 0.0)} taken of {amount} {name}"
        if self.free + busy + asking != self.count:
            return f"{self.free} free + {busy} busy + {asking} asking slots are not {self.count}"
        if self.free < 0:
            return f"{self.free} free slots"
        return None
