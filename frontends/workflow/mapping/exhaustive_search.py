"""The thesis's search over all ways to divide a workflow into jobs (§3.5.2.1), to compare with: figure 4.12.

It keeps the cheapest way to have each of the 2**N sets of units done, and finds it from each way to divide the set into
what was done before and a last job. This finds what `partition.partitioned` finds, in a time that grows as 3**N.
"""

from __future__ import annotations

from frontends.workflow.errors import TooLarge
from frontends.workflow.mapping.costs import JobCosts
from frontends.workflow.mapping.downset_search import START, Label, Labels

UNITS_MAX = 20
"""Units of a workflow that is searched: more would take hours, and gigabytes."""


def exhaustive(costs: JobCosts) -> Label | None:
    """The cheapest way; None if no engines can run the workflow. `TooLarge` beyond `UNITS_MAX` units."""
    graph = costs.graph
    if len(graph) > UNITS_MAX:
        raise TooLarge("operators of a workflow that is searched exhaustively", len(graph), UNITS_MAX)
    empty = Labels(costs)
    empty.kept.append(START)
    best: list[Labels | None] = [empty]
    for units in range(1, graph.all + 1):
        found = Labels(costs) if graph.is_downset(units) else None
        best.append(found)
        job = units
        while job:
            before = best[units ^ job]
            if found is not None and before is not None:
                found.extend(before, job)
            job = job - 1 & units
    last = best[graph.all]
    return last.best if last is not None else None
