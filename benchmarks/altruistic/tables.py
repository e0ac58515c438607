"""From results to the rows of a figure: medians over seeds, with the lowest and the highest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np

from benchmarks.altruistic.catalogue import Case, Figure, Row
from benchmarks.altruistic.setups import BASE, WATCHED_EVERY_S
from benchmarks.flow.outcome import Target
from benchmarks.paper.results import Result, Results, key

SAME = 0.01
"""A job is slower if it takes so much longer."""
BELOW = 0.8
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)
ROWS_OF_TIME = 40

Seeds = dict[int, dict[str, float]]
"""Figures by seed."""
Found = dict[str, Seeds]
"""By row."""


def known(results: Iterable[Result]) -> Results:
    """By key."""
    return {key(result.run): result for result in results}


def found_of(case: Case, results: Results) -> Found:
    """What each scheduler has of the case, over the first of `over`; "a scheduler over another" beside the others. A
    case of which runs are missing has what there is."""
    found: Found = {}
    for base in case.over:
        for name in case.schedulers:
            row = name if base == case.over[0] else f"{name} over {base}"
            if row != name and name in (base, BASE):
                continue
            seeds = {seed: _of_seed(case, name, base, seed, results) for seed in range(case.seeds)}
            found[row] = {seed: each for seed, each in seeds.items() if each}
    return found


def _of_seed(case: Case, name: str, base: str, seed: int, results: Results) -> dict[str, float]:
    own, over, drf = (results.get(key(case.of(each, seed).settings)) for each in (name, base, BASE))
    if own is None:
        return {}
    took_s = np.array(own.samples["completion_s"])
    found = dict(own.figures) | {f"p{q}_s": float(np.percentile(took_s, q)) for q in PERCENTILES}
    if over is not None:
        rank = np.array(drf.samples["rank"]) if drf is not None else None
        found |= factors(np.array(over.samples["completion_s"]), took_s, rank)
    return found


def factors(
    base_s: np.ndarray[tuple[int], np.dtype[np.float64]],
    took_s: np.ndarray[tuple[int], np.dtype[np.float64]],
    rank: np.ndarray[tuple[int], np.dtype[np.float64]] | None,
) -> dict[str, float]:
    """Of times of each job under a scheduler, over those under another. rank: of jobs, by work."""
    factor = base_s / took_s
    found = {"factor_of_means": float(base_s.mean() / took_s.mean()), "factor": float(factor.mean())}
    found |= {f"factor_p{q}": float(np.percentile(factor, q)) for q in (25, 50, 75, 95)}
    below = factor < BELOW
    found |= {"slower": float((factor < 1 - SAME).mean()), "below_0.8": float(below.mean())}
    if rank is not None and below.any():
        found["small_below_0.8"] = float((rank[below] < len(rank) / 2).mean())
    return found | {"worst": float(factor.min())}


def rows_of(figure: Figure, cases: Sequence[Case], results: Iterable[Result]) -> list[Row]:
    """A row for each case and scheduler; or for each minute, of a figure over time."""
    have = known(results)
    if figure.over_time:
        return _rows_of_time(cases[0], have)
    rows: list[Row] = []
    for case in cases:
        for name, seeds in found_of(case, have).items():
            if not seeds:
                continue
            row: Row = {"workload": case.label, "scheduler": name, "seeds": len(seeds)}
            cells = {
                column: cell([each[column] for each in seeds.values() if column in each]) for column in figure.columns
            }
            paper = {"paper": case.paper.get(name) or case.paper.get(f"{name} over {case.over[0]}", "")}
            rows.append(row | cells | (paper if case.paper else {}))
    return rows


def _rows_of_time(case: Case, results: Results) -> list[Row]:
    """At most so many, as far apart as need be."""
    own = {name: results.get(key(case.of(name, 0).settings)) for name in case.schedulers}
    samples = {name: result.samples for name, result in own.items() if result is not None}
    longest = max((len(each.get("running", ())) for each in samples.values()), default=0)
    step = max(int(60 / WATCHED_EVERY_S), -(-longest // ROWS_OF_TIME))
    rows: list[Row] = []
    for place in range(0, longest, step):
        row: Row = {"after_s": round(place * WATCHED_EVERY_S)}
        for name, each in samples.items():
            running, lent = each["running"], each["lent"]
            row[name] = f"{running[place]:g}" if place < len(running) else "over"
            if name != BASE:
                row[f"{name}, lent"] = f"{lent[place]:g}" if place < len(lent) else ""
        rows.append(row)
    return rows


def cell(values: Sequence[float]) -> str:
    """The median, and in brackets the lowest and the highest."""
    if not values:
        return ""
    middle = median(values)
    digits = ".0f" if abs(middle) >= 100 else ".2f"
    if len(values) == 1:
        return f"{middle:{digits}}"
    return f"{middle:{digits}} ({min(values):{digits}} to {max(values):{digits}})"


def medians(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over seeds, of figures that all of them have."""
    names = [name for name in seeds[0] if all(name in each for each in seeds)]
    return {name: median(each[name] for each in seeds) for name in names}


def targets_of(figure: Figure, cases: Sequence[Case], results: Iterable[Result]) -> list[Target]:
    """What was aimed at, and what came out at the median over the seeds that all rows of a case have."""
    have = known(results)
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        rows = {name: seeds for name, seeds in found_of(case, have).items() if seeds}
        common = set.intersection(*(set(seeds) for seeds in rows.values())) if rows else set()
        if common:
            found |= {
                f"{case.label}/{name}": medians([seeds[seed] for seed in sorted(common)])
                for name, seeds in rows.items()
            }
    return figure.targets(found)
