"""The same work done in several ways, in turns: what counts is the ratio within a turn, as a machine's speed drifts."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.report import Row, cpu_s, progress

OURS = "sparrow"
"""The way that the others are compared with."""
Ways = Mapping[str, Callable[[], Any]]


def in_turns(work: str, ways: Ways, repeat: int, same: Callable[[Any, Any], bool]) -> tuple[list[Row], list[Any]]:
    """The table's rows for one piece of work, and the seconds of each turn by way.

    Each way runs once to get warm; then all run in each turn, another one first each time. `RuntimeError` if a way's
    result is not the `same` as ours.
    """
    expected = ways[OURS]()
    for name, run in ways.items():
        if not same(expected, run()):
            raise RuntimeError(f"{work}: the result of {name} is not that of {OURS}")
    names = list(ways)
    turns: list[dict[str, tuple[float, float]]] = []
    for number in range(repeat):
        progress(f"{work}: turn {number + 1} of {repeat}")
        first = number % len(names)
        turns.append({name: _timed(ways[name]) for name in names[first:] + names[:first]})
    rows = [_row(work, name, turns) for name in names]
    return rows, [{name: wall_s for name, (wall_s, _) in turn.items()} for turn in turns]


def _timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds of this process and all live ones below it: those of the other ways idle meanwhile."""
    cpu_before_s, began_s = cpu_s([os.getpid()], children=True), time.perf_counter()
    run()
    wall_s = time.perf_counter() - began_s
    return wall_s, cpu_s([os.getpid()], children=True) - cpu_before_s


def _row(work: str, name: str, turns: Sequence[Mapping[str, tuple[float, float]]]) -> Row:
    """Medians over the turns; the ratio is of the wall times within a turn."""
    return {
        "work": work,
        "way": name,
        "wall ms": 1000 * statistics.median(turn[name][0] for turn in turns),
        "CPU ms": 1000 * statistics.median(turn[name][1] for turn in turns),
        "ours / this": statistics.median(turn[OURS][0] / turn[name][0] for turn in turns),
    }


def geometric_mean_of_ratios(rows: Sequence[Row], way: str) -> float:
    """Of our wall time to that of this way, over all pieces of work."""
    return statistics.geometric_mean(row["ours / this"] for row in rows if row["way"] == way)
