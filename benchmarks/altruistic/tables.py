"""From results to the rows of a figure: medians over seeds, with the lowest and the highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.altruistic.catalogue import Case, Figure, Row, medians
from benchmarks.flow.outcome import Target
from benchmarks.paper.results import Result, key

Found = Mapping[str, Mapping[str, list[dict[str, float]]]]
"""By label, then scheduler: figures by seed."""


def by_scheduler(cases: Sequence[Case], results: Sequence[Result]) -> Found:
    """What each scheduler has of each case; a case of which runs are missing has what there is."""
    known = {key(result.run): result for result in results}
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for case in cases:
        of_case = found.setdefault(case.label, {name: [] for name in case.run.schedulers})
        for run in case.runs():
            result = known.get(key(run.settings))
            if result is None:
                continue
            for name in case.run.schedulers:
                begin = name + "."
                of_case[name].append(
                    {each[len(begin):]: value for each, value in result.figures.items() if each.startswith(begin)}
                )  # fmt: skip
    return found


def rows_of(figure: Figure, cases: Sequence[Case], results: Sequence[Result]) -> list[Row]:
    """A row for each case and scheduler."""
    rows: list[Row] = []
    for label, schedulers in by_scheduler(cases, results).items():
        for name, seeds in schedulers.items():
            if seeds:
                row: Row = {"workload": label, "scheduler": name, "seeds": len(seeds)}
                rows.append(
                    row
                    | {column: _cell([seed[column] for seed in seeds if column in seed]) for column in figure.columns}
                )
    return rows


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = median(values)
    digits = ".0f" if abs(middle) >= 100 else ".2f"
    if len(values) == 1:
        return f"{middle:{digits}}"
    return f"{middle:{digits}} ({min(values):{digits}} to {max(values):{digits}})"


def targets_of(figure: Figure, cases: Sequence[Case], results: Sequence[Result]) -> list[Target]:
    """What was aimed at, and what came out at the median."""
    found = by_scheduler(cases, results)
    flat = {
        f"{label}/{name}": medians(seeds) for label, names in found.items() for name, seeds in names.items() if seeds
    }
    return figure.targets(flat)
