"""Which tasks of a graph make a stage: pure, and of any graph.

A job has stages, and a stage begins once those before it have ended. Tasks that need the same tasks, and are needed by
the same, begin and are waited for together anyway: they are one stage, and nothing is lost. If that makes more stages
than a job may have, all tasks of the same depth are one.
"""

from __future__ import annotations

import graphlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

from sparrow_py.errors import InvalidRequest, shown
from sparrow_py.job import INPUTS_MAX, STAGE_EDGES_MAX, STAGES_MAX

Key = TypeVar("Key", bound=Hashable)
LEVELS_MAX = 400
"""Stages of a job that are levels: each may name all before it, and so many names a job may have."""


def planned_stages(inputs: Mapping[Key, Collection[Key]]) -> list[list[Key]]:
    """The stages of a job, each after those that it needs; of a graph that is too deep, those that come first.

    `inputs`: of each task, the tasks whose results it needs. Raises `InvalidRequest` for tasks that need themselves, a
    task that is not in the graph, or too many.
    """
    order = _in_order(inputs)
    alike = _alike(inputs, order)
    if len(alike) <= STAGES_MAX and _edges(inputs, alike) <= STAGE_EDGES_MAX:
        return alike
    return _levels(inputs, order)[:LEVELS_MAX]


def _in_order(inputs: Mapping[Key, Collection[Key]]) -> list[Key]:
    """The tasks, each after those that it needs."""
    for key, needed in inputs.items():
        if len(needed) > INPUTS_MAX:
            allowed = f"at most {INPUTS_MAX}: combine them in several steps (split_every, or larger chunks)"
            raise InvalidRequest(f"results that the Dask task {shown(key)} needs", len(needed), allowed)
        for other in needed:
            if other not in inputs:
                raise InvalidRequest(f"what the Dask task {shown(key)} needs", other, "keys of the graph")
    try:
        return list(graphlib.TopologicalSorter(inputs).static_order())
    except graphlib.CycleError as error:
        circle = " needs ".join(shown(key) for key in reversed(error.args[1]))
        raise InvalidRequest("the Dask graph", circle, "tasks that do not need themselves") from None


def _alike(inputs: Mapping[Key, Collection[Key]], order: list[Key]) -> list[list[Key]]:
    """Tasks that need the same, and are needed by the same. If one of two such groups needs a task of the other it
    needs all of them, so that groups need each other in no circle, as tasks do not."""
    needed_by: defaultdict[Key, set[Key]] = defaultdict(set)
    for key in order:
        for other in inputs[key]:
            needed_by[other].add(key)
    groups: defaultdict[tuple[frozenset[Key], frozenset[Key]], list[Key]] = defaultdict(list)
    for key in order:
        groups[frozenset(inputs[key]), frozenset(needed_by[key])].append(key)
    return list(groups.values())


def _edges(inputs: Mapping[Key, Collection[Key]], groups: list[list[Key]]) -> int:
    """How often a group needs another, if the tasks of each need the same."""
    number = {key: index for index, group in enumerate(groups) for key in group}
    return sum(len({number[other] for other in inputs[group[0]]}) for group in groups)


def _levels(inputs: Mapping[Key, Collection[Key]], order: list[Key]) -> list[list[Key]]:
    """The tasks by depth: those that need none first."""
    depths: dict[Key, int] = {}
    levels: defaultdict[int, list[Key]] = defaultdict(list)
    for key in order:
        depth = depths[key] = 1 + max((depths[other] for other in inputs[key]), default=-1)
        levels[depth].append(key)
    return [levels[depth] for depth in range(len(levels))]
