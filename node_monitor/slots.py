"""A node's slots and resources: what is free of them.

A slot is free, or asks (it waits for the answer to a getTask), or is held by a busy place of an executor; it never runs
two tasks. A task that waits for other tasks holds none (`paused_tasks`). Whatever serves tasks takes its slots here:
the fair queue (`serving`), and the lane of placed tasks before it (`placed_tasks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node_monitor.queueing.tickets import Charge

ROUNDING = 1e-9
"""What is free is a sum of many fractions: so much of a resource may seem to be missing and is not."""


class Aside:
    """A slot, or none, and resources that are set aside."""

    __slots__ = ("resources", "slots")

    def __init__(self, slots: int, resources: dict[str, float]) -> None:
        self.slots = slots
        self.resources = resources


class Slots:
    """How many slots are free, and what of the node's resources no task with a demand takes."""

    __slots__ = ("_resources", "awaited", "count", "free", "free_resources", "moved", "placed")

    def __init__(self, count: int, resources: Mapping[str, float]) -> None:
        self.count = count
        self.free = count
        self._resources = dict(resources)
        self.free_resources = dict(resources)
        self.placed = 0
        """Slots that placed tasks hold."""
        self.awaited = 0
        """Tasks that have waited for others, and have the next slots that are free."""
        self.moved = False
        """Whether that, or what is free of resources, has changed since `Loads` has looked."""

    def fits(self, demand: dict[str, float] | None) -> bool:
        """Whether so much is free."""
        return not demand or all(
            self.free_resources.get(name, 0.0) >= amount - ROUNDING * self._resources.get(name, 0.0)
            for name, amount in demand.items()
        )

    def fits_beside(self, demand: dict[str, float] | None, given_back: dict[str, float] | None) -> bool:
        """Whether so much would be free if this were given back."""
        more = given_back or {}
        return all(
            self.free_resources.get(name, 0.0) + more.get(name, 0.0)
            >= amount - ROUNDING * self._resources.get(name, 0.0)
            for name, amount in (demand or {}).items()
        )

    def lacking(self, demand: dict[str, float] | None) -> str | None:
        """A resource of which less is free than that, and how much of it is demanded; None if there is none."""
        for name, amount in (demand or {}).items():
            if not self.fits({name: amount}):
                return f"{amount:g} {name}"
        return None

    def never_fits(self, demand: dict[str, float] | None) -> str | None:
        """Why so much will never be free here; None if it will."""
        for name, amount in (demand or {}).items():
            most = self._resources.get(name, 0.0)
            if amount > most:
                return f"it demands {amount:g} {name}, and the node has {most:g}"
        return None

    def unclaimed(self, demands: Iterable[Mapping[str, float]]) -> dict[str, float]:
        """What is free of each resource beside these demands, which have not taken any yet."""
        left = dict(self.free_resources)
        for demand in demands:
            for name, amount in demand.items():
                left[name] = left.get(name, 0.0) - amount
        return {name: min(max(left[name], 0.0), most) for name, most in self._resources.items()}

    @property
    def resources(self) -> Mapping[str, float]:
        """What the node has in all."""
        return self._resources

    def set_aside(self, demand: dict[str, float] | None, *, slot: bool) -> Aside:
        """Take what is free of the demand, and a slot if that is asked for, which must be free, until `give_back`."""
        aside = Aside(int(slot), {})
        self.free -= aside.slots
        for name, amount in (demand or {}).items():
            part = min(max(self.free_resources.get(name, 0.0), 0.0), amount)
            if part > 0:
                aside.resources[name] = part
                self.free_resources[name] -= part
        return aside

    def give_back(self, aside: Aside) -> None:
        """What was set aside is free again."""
        self.free += aside.slots
        for name, part in aside.resources.items():
            self.free_resources[name] += part

    def take_resources(self, charge: Charge) -> None:
        """What the task demands is not free any more, and its slot is held by a placed task if it is one."""
        self.moved = True
        self.placed += charge.ticket.placed
        for name, amount in (charge.ticket.demand or {}).items():
            if amount:
                self.free_resources[name] = self.free_resources.get(name, 0.0) - amount

    def return_resources(self, charge: Charge) -> None:
        """What the task demanded is free again, and its slot is not held by a placed task."""
        ticket = charge.ticket
        if not ticket.holds_more:  # As of every ask in vain.
            return
        self.moved = True
        self.placed -= ticket.placed
        for name, amount in (ticket.demand or {}).items():
            if amount:
                self.free_resources[name] += amount

    def free_for(self, count: int, demand: dict[str, float]) -> dict[str, float]:
        """What so many tasks may take for which slots ask: what is free and what is set aside for them."""
        return {name: self.free_resources.get(name, 0.0) + count * amount for name, amount in demand.items()}

    def problem(self, charges: Iterable[Charge], busy: int, asking: int, placed_waiting: int = 0) -> str | None:
        """What does not add up, if anything, with these charges outstanding and so many slots that are not free;
        placed_waiting: of the charges, those of placed tasks that hold none."""
        taken: dict[str, float] = {}
        placed = 0
        for charge in charges:
            placed += charge.ticket.placed
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
        placed -= placed_waiting
        if placed != self.placed:
            return f"placed tasks hold {placed} slots, counted as {self.placed}"
        return None
