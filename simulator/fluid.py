"""Links whose capacity transfers share as fluids do: max-min fair, as TCP does in the long run.

Each transfer uses some links. Those with a rate of their own (UDP in a higher service class) take it first, less where
a link has not enough for all of them; what is left of each link is shared by the others in equal parts, and a transfer
that is held back by one link leaves its part of another to those that can use it (progressive filling).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Link = Hashable
NOTHING_LEFT = 1e-9
"""Of a transfer's amount: a part as small as that is rounding."""


def fair_rates(capacities: Mapping[Link, float], uses: Sequence[Sequence[Link]]) -> list[float]:
    """The max-min fair rate of each transfer by the links that it uses, of which each has at least one.

    The link with the least for each of its transfers holds these back; they leave the other links, and so on.
    """
    left = dict(capacities)
    users: dict[Link, list[int]] = {}
    for transfer, links in enumerate(uses):
        for link in links:
            users.setdefault(link, []).append(transfer)
    open_users = {link: len(transfers) for link, transfers in users.items()}
    rates = [-1.0] * len(uses)
    while open_users:
        tightest = min(open_users, key=lambda link: left[link] / open_users[link])
        rate = max(0.0, left[tightest] / open_users[tightest])
        for transfer in users[tightest]:
            if rates[transfer] < 0:
                rates[transfer] = rate
                for link in uses[transfer]:
                    left[link] -= rate
                    open_users[link] -= 1
                    if open_users[link] == 0:
                        del open_users[link]
    return rates


def first_served(capacities: Mapping[Link, float], wanted: Sequence[tuple[float, Sequence[Link]]]) -> list[float]:
    """The rates of transfers of a higher class: what each wants, or its share of that where a link has too little."""
    demand = dict.fromkeys(capacities, 0.0)
    for rate, links in wanted:
        for link in links:
            demand[link] += rate
    shares = {link: min(1.0, capacities[link] / amount) for link, amount in demand.items() if amount > 0}
    return [rate * min((shares.get(link, 1.0) for link in links), default=1.0) for rate, links in wanted]


@dataclass
class Fluid:
    """Links and what passes them, in virtual time: amounts and capacities in the same unit, times in seconds."""

    capacities: Mapping[Link, float]
    now_s: float = 0.0
    background: Sequence[tuple[float, Sequence[Link]]] = ()
    """Rate and links of what is served first, and never ends."""
    used: dict[Link, float] = field(default_factory=dict, init=False)
    """By link: what passes it each second, background and transfers."""
    _left: dict[Link, float] = field(default_factory=dict, init=False)
    """By link: what the background leaves."""
    _links: dict[Hashable, Sequence[Link]] = field(default_factory=dict, init=False)
    _amounts: dict[Hashable, float] = field(default_factory=dict, init=False)
    _sizes: dict[Hashable, float] = field(default_factory=dict, init=False)
    _rates: dict[Hashable, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for link, capacity in self.capacities.items():
            if not capacity > 0:
                raise ValueError(f"the capacity of link {link} is {capacity}; allowed are numbers above 0")
        self._left = dict(self.capacities)
        for rate, (_, links) in zip(first_served(self.capacities, self.background), self.background, strict=True):
            for link in links:
                self._left[link] = max(0.0, self._left[link] - rate)
        self._share()

    def add(self, transfers: Mapping[Hashable, tuple[float, Sequence[Link]]]) -> None:
        """Begin some, each of so much along these links. Their names are none of those under way."""
        for transfer, (amount, links) in transfers.items():
            if transfer in self._links:
                raise ValueError(f"there are two transfers {transfer}")
            if not amount > 0 or not links:
                raise ValueError(f"transfer {transfer}: amount {amount}, {len(links)} links; allowed are above 0")
            self._links[transfer] = links
            self._amounts[transfer] = self._sizes[transfer] = amount
        self._share()

    def next_end_s(self) -> float | None:
        """When the next transfer ends if none begins before; None if none will."""
        ends = [amount / self._rates[name] for name, amount in self._amounts.items() if self._rates[name] > 0]
        return self.now_s + min(ends) if ends else None

    def advance(self, until_s: float) -> list[Hashable]:
        """Go on to a time not beyond `next_end_s`: what ends there, in the order in which it began."""
        passed_s, self.now_s = until_s - self.now_s, until_s
        ended = []
        for transfer, rate in self._rates.items():
            self._amounts[transfer] -= rate * passed_s
            if self._amounts[transfer] <= NOTHING_LEFT * self._sizes[transfer]:
                ended.append(transfer)
        for transfer in ended:
            del self._links[transfer], self._amounts[transfer], self._sizes[transfer]
        if ended:
            self._share()
        return ended

    def _share(self) -> None:
        names = list(self._links)
        self._rates = dict(zip(names, fair_rates(self._left, list(self._links.values())), strict=True))
        self.used = {link: capacity - self._left[link] for link, capacity in self.capacities.items()}
        for name, rate in self._rates.items():
            for link in self._links[name]:
                self.used[link] += rate
