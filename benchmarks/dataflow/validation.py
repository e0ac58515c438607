"""How long it takes to look at the preconditions of a template (the paper's §4.3), and to make a patch."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from frontends.dataflow.objects import Objects
from frontends.dataflow.stages import DatasetKind, Definition, Filled
from frontends.dataflow.templates import Patch

OBJECTS = 1_000_000
DATASETS = 40
"""Of the paper's simulation: "over 40 different variables", "almost one million data objects"."""
WORKERS = 100
AIM_MS = 1.0
STALE = 1_000


def all_objects(count: int) -> tuple[Objects, dict[int, list[int]]]:
    """Objects of datasets that are evenly placed, and who has them."""
    definition = Definition()
    partitions = count // DATASETS
    for number in range(DATASETS):
        source = Filled(((1,),) * partitions, "<f8", 0.0)
        definition.add_dataset(f"d{number}", DatasetKind.PARTITIONED, partitions, source)
    owners = {group: [0] for group in (0,)}
    owners |= {group: [at * WORKERS // partitions for at in range(partitions)] for group in range(1, DATASETS + 1)}
    return Objects(definition, range(WORKERS), owners), owners


def timed_ms(work: Callable[[], Any], repeat: int) -> float:
    spent = []
    for _ in range(repeat):
        then = time.thread_time_ns()
        work()
        spent.append((time.thread_time_ns() - then) / 1e6)
    return median(spent)


def rows(repeat: int = 20, tasks: int = OBJECTS) -> list[dict[str, object]]:
    """Medians; `tasks` is the number of objects."""
    count = max(tasks, DATASETS)
    objects, owners = all_objects(count)
    needed = objects.needed(range(1, DATASETS + 1), ())
    made: list[dict[str, object]] = []

    def row(what: str, work: Callable[[], Any], aim: float | None = None) -> None:
        made.append({"what": what, "objects": count, "ms": round(timed_ms(work, repeat), 3), "aim_ms": aim})

    assert not objects.stale(needed)
    row("validated in the order of the objects", lambda: objects.stale(needed), AIM_MS)
    order = np.random.default_rng(1).permutation(len(objects.have))
    row("the same by index, for comparison", lambda: bool((objects.have[order] == objects.latest[order]).all()))
    stale_objects = np.arange(1, len(objects.have), max(len(objects.have) // STALE, 1))[:STALE]
    objects.latest[stale_objects] += 1
    stale = objects.stale(needed)
    row(f"validated, {len(stale.partitions)} stale", lambda: objects.stale(needed), AIM_MS)
    row(f"a patch of {len(stale.partitions)} copies", lambda: Patch.of(1, objects, owners, stale))
    patch = Patch.of(1, objects, owners, stale)
    row("whether a patch that is kept fits", lambda: patch.fits(objects, owners, stale))
    return made
