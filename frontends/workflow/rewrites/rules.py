"""Rewrites of workflows: each is a pure function from DAG to DAG that changes no result, and can be switched off.

Loops that only count get their number of iterations, then come the eight of the released Musketeer (§3.3.1), then
columns that nobody reads are left out. What a rewrite gains is not known before the DAG is partitioned: it may keep
operators from being one job (figure 3.9). So `variants` has several rewritten DAGs, of which whoever maps a workflow
takes the one whose plan is cheapest (§3.6).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection

from frontends.workflow.ir.dag import Dag
from frontends.workflow.rewrites.applying import Step, rewritten
from frontends.workflow.rewrites.columns import columns_pruned
from frontends.workflow.rewrites.filters import (
    differences_towards_sources,
    filters_merged,
    filters_towards_sources,
    intersections_towards_sources,
)
from frontends.workflow.rewrites.joins import KnownRows, joins_by_history, nothing_known, projections_by_history
from frontends.workflow.rewrites.loops import loops_counted
from frontends.workflow.rewrites.orders import sorts_towards_results, unions_towards_results

ROUNDS_MAX = 10
"""How often all rewrites are applied in turn, at most: one may make room for another."""


class Rewrite(enum.Enum):
    """A rewrite; the value is the name by which it is switched off. They are applied in this order."""

    LOOPS_COUNTED = "count-loops"
    FILTERS_MERGED = "merge-filters"
    FILTERS_TOWARDS_SOURCES = "filters-first"
    INTERSECTIONS_TOWARDS_SOURCES = "intersections-first"
    DIFFERENCES_TOWARDS_SOURCES = "differences-first"
    SORTS_TOWARDS_RESULTS = "sorts-last"
    UNIONS_TOWARDS_RESULTS = "unions-last"
    JOINS_BY_HISTORY = "order-joins"
    PROJECTIONS_BY_HISTORY = "order-projections"
    COLUMNS_PRUNED = "prune-columns"


ALL = frozenset(Rewrite)
_STEPS: dict[Rewrite, Step] = {
    Rewrite.LOOPS_COUNTED: loops_counted,
    Rewrite.FILTERS_MERGED: filters_merged,
    Rewrite.FILTERS_TOWARDS_SOURCES: filters_towards_sources,
    Rewrite.INTERSECTIONS_TOWARDS_SOURCES: intersections_towards_sources,
    Rewrite.DIFFERENCES_TOWARDS_SOURCES: differences_towards_sources,
    Rewrite.SORTS_TOWARDS_RESULTS: sorts_towards_results,
    Rewrite.UNIONS_TOWARDS_RESULTS: unions_towards_results,
}
_BY_HISTORY: dict[Rewrite, Callable[[KnownRows], Step]] = {
    Rewrite.JOINS_BY_HISTORY: joins_by_history,
    Rewrite.PROJECTIONS_BY_HISTORY: projections_by_history,
}


def rewrite(dag: Dag, rule: Rewrite, known_rows: KnownRows = nothing_known) -> Dag:
    """The DAG after one rewrite, which is applied wherever it can be, in loops, too."""
    if rule is Rewrite.COLUMNS_PRUNED:
        return columns_pruned(dag)
    return rewritten(dag, _STEPS[rule] if rule in _STEPS else _BY_HISTORY[rule](known_rows))


def optimised(dag: Dag, rules: Collection[Rewrite] = ALL, known_rows: KnownRows = nothing_known) -> Dag:
    """The DAG after all these rewrites, again and again until they change nothing.

    It has the same results, of the same names and columns, and they hold the same rows. known_rows: what earlier runs
    have shown, for the rewrites that go by history, which without it change nothing.
    """
    for _ in range(ROUNDS_MAX):
        before = dag
        for rule in Rewrite:
            if rule in rules:
                dag = rewrite(dag, rule, known_rows)
        if dag == before:
            break
    return dag


def variants(dag: Dag, rules: Collection[Rewrite] = ALL, known_rows: KnownRows = nothing_known) -> tuple[Dag, ...]:
    """Different DAGs with the same results: with all these rewrites, with each of them off, and as it is written."""
    chosen = frozenset(rules)
    found = [optimised(dag, chosen, known_rows)]
    for off in Rewrite:
        if off in chosen:
            found.append(optimised(dag, chosen - {off}, known_rows))
    found.append(dag)
    return tuple(one for place, one in enumerate(found) if one not in found[:place])
