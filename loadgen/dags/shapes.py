"""Random DAGs with a given number of stages, of barriers, and of stages on the longest path."""

from __future__ import annotations

import random
from dataclasses import dataclass

BRANCHES = 0.15
"""The part of the paths to a barrier that begin at a stage which others read, too, not at input of their own."""

Parents = tuple[tuple[int, ...], ...]
"""Of each stage, numbers of stages before it."""


@dataclass(slots=True)
class _Stage:
    level: int
    parents: list[int]


def fitting(stages: int, barriers: int, depth: int) -> tuple[int, int, int]:
    """The same, brought to what `draw` can give: the longest path has room for all barriers, and a second parent of
    each lies beside it."""
    stages = max(1, stages)
    barriers = max(0, min(barriers, (stages - 1) // 2))
    return stages, barriers, max(barriers + 1, min(depth, stages - barriers))


def draw(rng: random.Random, stages: int, barriers: int, depth: int) -> Parents:
    """A DAG. The longest path is laid first. Then paths are laid that end in a barrier: each makes one of the stages a
    barrier until there are enough, and ends in one that there is afterwards. Without barriers, paths end in results
    of their own."""
    stages, barriers, depth = fitting(stages, barriers, depth)
    made = [_Stage(level, [level - 1] if level else []) for level in range(depth)]
    ends: list[int] = []
    while len(made) < stages:
        left = stages - len(made)
        if not barriers:
            _add_result(rng, made, left, depth)
            continue
        wanted = barriers - len(ends)
        if wanted:
            end = _new_barrier(rng, made, ends)
            ends.append(end)
        else:
            end = rng.choice(ends)
        _add_path(rng, made, end, left - max(0, wanted - 1))
    return _in_order(made)


def _new_barrier(rng: random.Random, made: list[_Stage], ends: list[int]) -> int:
    """A stage with one parent: of the longest path alone there are enough."""
    return rng.choice([number for number, stage in enumerate(made) if stage.parents and number not in ends])


def _add_path(rng: random.Random, made: list[_Stage], end: int, most: int) -> None:
    """A path of stages, at most so many, whose last one the stage `end` waits for."""
    level = made[end].level
    length = rng.randint(1, min(level, most))
    first = level - length
    parents = _branch(rng, made, first)
    for offset in range(length):
        made.append(_Stage(first + offset, parents))
        parents = [len(made) - 1]
    made[end].parents += parents


def _branch(rng: random.Random, made: list[_Stage], level: int) -> list[int]:
    """What a path reads first: mostly input of its own, else a stage above it."""
    if not level or rng.random() >= BRANCHES:
        return []
    return [rng.choice([number for number, stage in enumerate(made) if stage.level == level - 1])]


def _add_result(rng: random.Random, made: list[_Stage], left: int, depth: int) -> None:
    """A path to a result of its own, from input of its own or from a stage that there is."""
    length = rng.randint(1, min(left, max(1, depth - 1)))
    above = [number for number, stage in enumerate(made) if stage.level + length < depth]
    parents = [rng.choice(above)] if above and rng.random() < 0.5 else []
    level = made[parents[0]].level + 1 if parents else 0
    for offset in range(length):
        made.append(_Stage(level + offset, parents))
        parents = [len(made) - 1]


def _in_order(made: list[_Stage]) -> Parents:
    """Stages by their levels: parents are on lower ones."""
    order = sorted(range(len(made)), key=lambda number: made[number].level)
    place = {number: index for index, number in enumerate(order)}
    return tuple(tuple(sorted(place[parent] for parent in made[number].parents)) for number in order)
