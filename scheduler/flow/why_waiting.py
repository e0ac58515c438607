"""What the network of the last round says: why a task waits; and the problem itself, for `python -m scheduler.flow`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.flow import dimacs
from scheduler.plane import PlaceCost, WhyWaiting

if TYPE_CHECKING:
    from scheduler.flow.cluster_changes import Network

PLACES_MAX = 10
"""The cheapest places that are named."""


def explained(network: Network, name: str, task: int, reasons: list[str]) -> WhyWaiting:
    """What each place would cost the task of this name, and what is in the way there. `task`: its number."""
    try:
        explanation = network.explain(name)
    except KeyError:  # It was offered after the last round.
        return WhyWaiting([*reasons, "the next round weighs it"])
    if explanation.outside:  # It has no ways, and no price of waiting.
        return WhyWaiting([*reasons, f"task {task} is weighed nowhere: {explanation.outside}"], task)
    if explanation.machine is not None:
        reasons = [*reasons, f"task {task} is about to start at {explanation.machine}"]
    ways = [way for way in explanation.ways if way.to]
    if not ways:
        reasons = [*reasons, "no machine is within its reach"]
    places = [PlaceCost(way.to, way.cost, way.limit) for way in ways[:PLACES_MAX]]
    return WhyWaiting(reasons, task, explanation.waiting, places)


def written(network: Network) -> str:
    """The problem, in DIMACS' format."""
    return "".join(dimacs.write(network.dump()))
