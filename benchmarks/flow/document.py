"""docs/flow-figures.md, from results."""

# ruff: noqa: E501  (a paragraph of a document is one line)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.flow.catalogue import FIGURES
from benchmarks.flow.outcome import Figure
from benchmarks.flow.results import FigureResult

BUSY = 1.5
"""Load beyond which wall times are not representative."""

BEGINNING = """\
# Figures of the flow plane

What paper 004 (I. C. Gog's thesis, chapters 2, 5 and 6) shows of its solvers and of its scheduler, measured here. Written by `python -m benchmarks.flow document` from `benchmarks/flow/results.jsonl`; all else of flow networks is in [flow.md](flow.md).

```sh
python -m benchmarks.flow figure 5.5                # a minute at most; tables
python -m benchmarks.flow figure 5.5 6.2 --full     # the paper's scale, half an hour at most each
python -m benchmarks.flow figure --json --results benchmarks/flow/results.jsonl --out-dir figures
python -m benchmarks.flow nodes --full              # CPU time and memory of a scheduler with 2,000 node monitors
python -m benchmarks.flow mixed                     # sampled jobs beside long tasks that policy flow placed
python -m benchmarks.flow workload                  # the made-up workload beside what is published of Google's
python -m benchmarks.flow document                  # this page
```

**How to read it.** Times of solvers are CPU seconds of the solver's thread: other work on the machine makes them some tens of per cent longer, not many times. A solve beyond 120 s (`--quick`: 10 s) is stopped and marked, and larger ones are not tried. Counted work (arcs or nodes looked at) does not depend on the machine. Figures 6.2 to 6.5 are simulated in virtual time: a round costs what a formula says of its counted work, so equal seeds give equal bytes; the formula's constants are CPU times, in `benchmarks/flow/costs.json`. `python -m benchmarks.flow calibrate --full` measures them (ten to fifteen minutes on quiet cores): the same rounds are played several times, the median of each counts, and constants are fitted by the factor that they are off; it says by which factor held-out solves are off. Those of now are of two cores, one of them mostly quiet, fitted from 150 to 12,500 machines: cost scaling off by 1.2 in the median and by 1.5 in the 90th percentile, rounds without their solves by 1.4 and 2.2, relaxation by 1.04 and 6 (its solves are short: 298 of them took 0.4 s). Wall times are told only where two solvers race, and mean something on quiet cores alone.

Unless a figure's notes say otherwise, the cluster is that of the thesis (with `--quick` it is smaller): 12,500 machines of 12 slots, 90 % full, Quincy's policy, every running task in the graph. Data are made up: Google's trace is 41 GB; `loadgen/google_like.py` makes jobs with its published statistics (`python -m loadgen trace google-like`), and `python -m loadgen trace google` reads the real one.
"""


def text(results: Sequence[FigureResult]) -> str:
    """The whole document."""
    latest = {(result.figure, result.scale): result for result in results}
    parts = [BEGINNING, _summary(latest)]
    for figure in FIGURES.values():
        parts += [_section(figure, result) for result in latest.values() if result.figure == figure.name]
    lacking = [name for name in FIGURES if name not in {figure for figure, _ in latest}]
    if lacking:
        parts.append(f"## Not measured yet\n\n{', '.join(lacking)}.\n")
    return "\n".join(parts)


def _summary(latest: dict[tuple[str, str], FigureResult]) -> str:
    rows = [
        [result.figure, result.scale, target.text, target.ours, target.verdict]
        for figure in FIGURES
        for result in latest.values()
        if result.figure == figure
        for target in result.targets
    ]
    return "## All targets\n\n" + markdown_table(["figure", "scale", "target", "ours", "verdict"], rows)


def _section(figure: Figure, result: FigureResult) -> str:
    lines = [f"## {figure.name}: {figure.title} ({result.scale})", "", f"Paper: {figure.paper}.", ""]
    columns = list(result.rows[0]) if result.rows else []
    lines.append(
        markdown_table(columns, [[markdown_cell(row.get(column, "")) for column in columns] for row in result.rows])
    )
    lines += [f"- {note}" for note in result.notes]
    busy = f", on a machine busy with other things (load {result.load:g} on {result.cores} cores)"
    if figure.wall and result.load > BUSY:
        lines.append("- **Wall times are not representative**: the machine was busy with other things.")
    lines.append(
        f"- Commit {result.commit}, {result.date}, {result.took_s:g} s, {result.cpu_s:g} s of CPU"
        + (busy if result.load > BUSY else "") + "."
    )  # fmt: skip
    return "\n".join([*lines, ""])


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def markdown_cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
