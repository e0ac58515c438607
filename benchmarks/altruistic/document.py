"""docs/altruistic-figures.md, from results."""

from __future__ import annotations

from pathlib import Path

from benchmarks.altruistic.catalogue import FIGURES
from benchmarks.altruistic.tables import rows_of, targets_of
from benchmarks.paper.results import read

HEAD = """# Figures of altruistic scheduling

Simulated, with the allocator of the altruistic plane; the median over seeds, and the lowest and highest. `factor` is a
job's completion time under DRF over its own; `below_0.8` the part of jobs that take more than 1.25 times as long as
under DRF; `jain` Jain's index of dominant usage over entitlement in windows of 60 s; `late` the part of jobs whose
target moved back. Written by `python -m benchmarks.altruistic document`; docs/altruistic.md says what was decided where
the paper leaves something open.
"""


def written(path: Path) -> str:
    """The document; figures without any result are left out."""
    results = list(read(path).values())
    parts = [HEAD]
    for name, figure in FIGURES.items():
        cases = figure.cases(False)
        rows = rows_of(figure, cases, results)
        if not rows:
            continue
        columns = list(rows[0])
        parts.append(f"## {name}: {figure.title}\n\nThe paper: {figure.paper}.\n")
        lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
        parts.append("\n".join(lines) + "\n")
        targets = targets_of(figure, cases, results)
        parts += [f"- {target.text}: {target.ours}, {target.verdict}\n" for target in targets]
    return "\n".join(parts)
