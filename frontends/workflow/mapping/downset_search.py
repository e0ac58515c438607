"""Shortest paths over downsets: the cheapest way to have a workflow's units done, job by job.

The first job of a plan on an engine may start cold, so that the cost of a job depends on those before it: a label has,
beside a cost, the engines that are started. A label is dropped if another is cheaper even when it has to start the
engines that the first has started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frontends.workflow.mapping.costs import JobCosts


@dataclass(frozen=True, slots=True)
class Label:
    """A way to have some units done: its cost, the engines that it has started as bits, and its last job."""

    cost: float
    started: int
    before: Label | None = None
    job: int = 0
    engine: int = 0

    def jobs(self) -> list[tuple[int, int]]:
        """The jobs in order: their units and engines."""
        found: list[tuple[int, int]] = []
        label: Label | None = self
        while label is not None and label.before is not None:
            found.append((label.job, label.engine))
            label = label.before
        return found[::-1]


START = Label(0.0, 0)


class Labels:
    """The labels of some units, none of which makes another needless."""

    __slots__ = ("_costs", "kept")

    def __init__(self, costs: JobCosts) -> None:
        self.kept: list[Label] = []
        self._costs = costs

    def extend(self, before: Labels, job: int) -> None:
        """Add the ways that have this job after those of `before`."""
        costs = self._costs
        for engine, run_cost in costs.options(job):
            cold, warm = costs.cold_starts[engine] + run_cost, costs.warm_starts[engine] + run_cost
            for label in before.kept:
                started = label.started >> engine & 1
                self._add(label, label.cost + (warm if started else cold), job, engine)

    def _add(self, before: Label, cost: float, job: int, engine: int) -> None:
        started = before.started | 1 << engine
        surcharge = self._costs.surcharge
        for one in self.kept:
            if one.cost + surcharge(started & ~one.started) <= cost:
                return
        self.kept = [one for one in self.kept if one.cost < cost + surcharge(one.started & ~started)]
        self.kept.append(Label(cost, started, before, job, engine))

    @property
    def best(self) -> Label | None:
        return min(self.kept, key=lambda label: label.cost, default=None)


def shortest(costs: JobCosts, downsets: Sequence[int], units_max: int | None = None) -> Label | None:
    """The cheapest order of jobs that passes through these downsets alone; None if no engines can run them.

    downsets: smaller ones first; the first is empty, the last has all units. units_max: of a job, but for one of all.
    """
    labels: list[Labels] = []
    sizes = [downset.bit_count() for downset in downsets]
    for place, downset in enumerate(downsets):
        found = Labels(costs)
        labels.append(found)
        if not downset:
            found.kept.append(START)
            continue
        for other in range(place):
            if downsets[other] & ~downset or not labels[other].kept:
                continue
            whole = other == 0 and place == len(downsets) - 1
            if units_max is not None and sizes[place] - sizes[other] > units_max and not whole:
                continue
            if downsets[other] != downset:
                found.extend(labels[other], downset & ~downsets[other])
    return labels[-1].best
