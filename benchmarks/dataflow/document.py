"""docs/dataflow-figures.md, from results."""

# ruff: noqa: E501  (a paragraph of a document is one line)

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.dataflow.catalogue import Figure
from benchmarks.dataflow.showing import alike
from benchmarks.flow.document import BUSY, markdown_cell, markdown_table
from benchmarks.flow.results import FigureResult

BUSY_CORES = "busy cores"
BEGINNING = """\
# Figures of programs over arrays

What the papers on Canary and on execution templates show, measured here beside their numbers. Written by `python -m benchmarks.dataflow document` from `benchmarks/dataflow/results.jsonl`; how such programs are written and run is in [dataflow.md](dataflow.md).

```sh
python -m benchmarks.dataflow canary                     # all figures of Canary
python -m benchmarks.dataflow canary fig5 --quick        # one of them, in less than a minute
python -m benchmarks.dataflow templates table4 fig7 --json
python -m benchmarks.dataflow compiled                   # tasks of compiled stages
python -m benchmarks.dataflow links                      # round trips between processes
python -m benchmarks.dataflow fig12                      # water, here and by hand for MPI (extra peers)
python -m benchmarks.dataflow peers                      # Ray, Dask, joblib, MPI, a process pool (extra peers)
python -m benchmarks.dataflow templates fig10 --results benchmarks/dataflow/results.jsonl
python -m benchmarks.dataflow document                   # this page
```

**How to read it.** The papers have up to 100 machines of 8 or 18 cores, in C++. One machine of two cores cannot show their tasks a second, so figures tell CPU time a task, counted messages, and ratios within one run; thousands of workers are played by the pure cores of controller and workers, partly in virtual time, in which scheduling takes the CPU time that it took here. Counts and ratios of CPU times hold on a busy machine; wall and virtual times, and small differences of CPU times, do not: where the machine was busy, they are marked so, and their verdicts wait for quiet cores.

**Left out.** Spark, GraphX and Naiad (a Java machine, a cluster; what the papers say of them stands beside). EC2, NUMA's slow half (figure 7 of Canary rests on it), 10 Gb networks. PhysBAM: the example water in its place. Canary's figures 1 to 3 and the templates' 1 to 6 and 11 are drawings of designs, a picture, or measure C++ against Scala.
"""


def text(figures: Mapping[str, Figure], results: Sequence[FigureResult], beginning: str = BEGINNING) -> str:
    """The whole document: of each figure the latest result, of the full size if there is one."""
    latest: dict[str, FigureResult] = {}
    for result in sorted(results, key=lambda result: result.scale == "full"):
        latest[result.figure] = result
    shown = {name: latest[name] for name in figures if name in latest}
    parts = [beginning, _summary(figures, shown)]
    parts += [_section(figures[name], result) for name, result in shown.items()]
    lacking = [name for name in figures if name not in shown]
    if lacking:
        parts.append(f"## Not measured yet\n\n{', '.join(lacking)}.\n")
    return "\n".join(parts)


def is_busy(figure: Figure, result: FigureResult) -> bool:
    """Whether its times say little."""
    return figure.is_timed and result.load > BUSY


def _summary(figures: Mapping[str, Figure], shown: Mapping[str, FigureResult]) -> str:
    rows = [
        [name, target.text, target.ours, target.verdict + f" ({BUSY_CORES})" * is_busy(figures[name], result)]
        for name, result in shown.items()
        for target in result.targets
    ]
    return "## All targets\n\n" + markdown_table(["figure", "target", "ours", "verdict"], rows)


def _section(figure: Figure, result: FigureResult) -> str:
    lines = [f"## {result.figure}: {figure.title}", ""]
    if figure.paper:
        lines += [f"Paper: {figure.paper}.", ""]
    for rows in alike(result.rows):
        columns = list(rows[0])
        lines.append(markdown_table(columns, [[_cell(row[column]) for column in columns] for row in rows]))
    lines += [f"- {note}" for note in result.notes]
    if is_busy(figure, result):
        lines.append(f"- **{BUSY_CORES}**: other programs ran meanwhile; times are not representative.")
    size = "" if result.scale == "full" else " (`--quick`)"
    lines.append(
        f"- Commit {result.commit}, {result.date}{size}, {result.took_s:g} s, {result.cpu_s:g} s of CPU, load "
        f"{result.load:g} on {result.cores} cores."
    )
    return "\n".join([*lines, ""])


def _cell(value: object) -> str:
    return "" if value is None else markdown_cell(value)
