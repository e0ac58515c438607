"""Which of the tasks that a flow sends to a machine fit there, by resources that have several dimensions (§5.5).

A flow counts tasks, so arcs of tasks of different size do not see each other, and a machine may be sent more than it
has. The largest request goes first: small ones find another place more easily.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

Name = TypeVar("Name")

ROUNDING = 1e-9
"""Relative: resources are sums and differences of fractions."""


def copies(free: Mapping[str, float], demand: Mapping[str, float]) -> int | None:
    """How many tasks of this demand fit; None: any number."""
    counts = [
        int(free.get(name, 0.0) * (1 + ROUNDING) / amount + ROUNDING) for name, amount in demand.items() if amount > 0
    ]
    return max(0, min(counts)) if counts else None


def largest_part(free: Mapping[str, float], demand: Mapping[str, float]) -> float:
    """How large a request is: the part that it takes of the resource of which it takes most."""
    return max((amount / max(free.get(name, 0.0), ROUNDING) for name, amount in demand.items()), default=0.0)


def admit(
    free: Mapping[str, float], requests: Sequence[tuple[Name, Mapping[str, float]]], *, largest_first: bool = True
) -> tuple[list[Name], list[Name], dict[str, float]]:
    """Who is let in, who is turned away, and what is left of the resources."""
    sign = -1 if largest_first else 1
    ordered = sorted(requests, key=lambda request: sign * largest_part(free, request[1]))
    left = dict(free)
    admitted: list[Name] = []
    refused: list[Name] = []
    for name, demand in ordered:
        if copies(left, demand) == 0:
            refused.append(name)
            continue
        admitted.append(name)
        for resource, amount in demand.items():
            left[resource] = left.get(resource, 0.0) - amount
    return admitted, refused, left
