"""docs/altruistic-figures.md, from results: the same bytes for the same results, and nothing is run for it."""

# ruff: noqa: E501  (a paragraph of a document is one line)

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.altruistic.catalogue import FIGURES, FULL, MIDDLE, QUICK, Case, Figure, Row, Scale, runs_of
from benchmarks.altruistic.tables import rows_of, targets_of
from benchmarks.flow.document import markdown_cell, markdown_table
from benchmarks.flow.outcome import MISSED, Target
from benchmarks.paper.results import Results, key, read

SMALL = "small"
"""What a figure is called that has few jobs at any scale."""

HEAD = f"""\
# Figures of altruistic scheduling

What paper 002 (Carbyne) shows, simulated with the allocator of the altruistic plane, beside the paper's numbers. Written by `python -m benchmarks.altruistic document` from `benchmarks/altruistic/results.jsonl`; what was decided where the paper leaves something open is in [altruistic.md](altruistic.md), what the jobs are like in [altruistic-workloads.md](altruistic-workloads.md).

```sh
python -m benchmarks.altruistic figure 1 4 --quick   # a minute of CPU time at most
python -m benchmarks.altruistic figure table3        # at full scale: hours, as far as its runs are not recorded
python -m benchmarks.altruistic record --middle      # all runs of all figures, seed by seed; goes on where it was ended
python -m benchmarks.altruistic record --full        # the same at full scale
python -m benchmarks.altruistic document             # this page
```

**How to read it.** *Full* is {FULL.jobs} jobs on {FULL.machines} machines, as in the paper, unless a figure says otherwise. *Middle* is {MIDDLE.jobs} jobs on {MIDDLE.machines} machines, with fewer seeds: a quarter of the paper's cluster at the same load. *Quick* is {QUICK.jobs} jobs on {QUICK.machines} machines with one seed: **a quick table only shows that the figure can be played.** Each figure is shown at the largest scale of which all runs of the first seed are recorded. Cells are medians over seeds, with the lowest and the highest seed in brackets; `seeds` is how many of the planned ones are recorded. Targets are judged at medians over the seeds that all schedulers of the table have. One setting, the default, is `altruistic` everywhere; what comes after slashes is changed. `srtf`, the job with the least work left first, is the bound of all that look at one job after the other.

`factor` is a job's completion time under DRF (or the scheduler that is named) over its own, the mean over jobs; `factor_of_means` the same of mean completion times; `slower` the part of jobs that take more than 1 % longer; `below_0.8` that of jobs whose factor is below 0.8; `worst` the least factor; `jain` Jain's index of dominant usage over entitlement in windows of 60 s, of jobs there throughout; `late` the part of jobs whose target moved back.
"""


def written(path: Path) -> str:
    """The document; figures without any result are named at the end."""
    results = read(path)
    shown = {name: _shown(figure, results) for name, figure in FIGURES.items()}
    have = {name: found for name, found in shown.items() if found is not None}
    parts = [HEAD]
    if have:
        parts.append(_summary(have, results))
    parts += [_section(name, scale, cases, results) for name, (scale, cases) in have.items()]
    lacking = [name for name in FIGURES if name not in have]
    if lacking:
        parts.append(f"## Not measured yet\n\n{', '.join(lacking)}.\n")
    if have:
        parts.append(_measured(results))
    return "\n".join(parts)


def _shown(figure: Figure, results: Results) -> tuple[str, list[Case]] | None:
    """At the largest scale of which the first seed is there, or else anything. A figure that is small even then is
    called so."""
    for is_enough in (_has_first_seed, _has_any):
        for scale in (FULL, MIDDLE, QUICK):
            cases = figure.cases(scale)
            if is_enough(cases, results):
                return _name(cases, scale), cases
    return None


def _has_first_seed(cases: Sequence[Case], results: Results) -> bool:
    return all(key(run.settings) in results for case in cases for run in case.runs() if not run.seed)


def _has_any(cases: Sequence[Case], results: Results) -> bool:
    return any(key(run.settings) in results for case in cases for run in case.runs())


def _name(cases: Sequence[Case], scale: Scale) -> str:
    return scale.name if max(case.run.jobs for case in cases) >= scale.jobs else SMALL


def _summary(have: dict[str, tuple[str, list[Case]]], results: Results) -> str:
    rows = [
        [name, scale, target.text, target.ours, _verdict(target, scale)]
        for name, (scale, cases) in have.items()
        for target in targets_of(FIGURES[name], cases, results.values())
    ]
    counts = []
    for scale in (FULL, MIDDLE):
        runs = runs_of(tuple(FIGURES), scale, scale.seeds)
        recorded = sum(key(run.settings) in results for run in runs)
        counts.append(f"of the {len(runs)} runs of all figures at {scale.name} scale {recorded} are recorded")
    return (
        f"## All targets\n\n{'; '.join(counts).capitalize()}.\n\n"
        + markdown_table(["figure", "scale", "target", "ours", "verdict"], rows)
    )  # fmt: skip


def _verdict(target: Target, scale: str) -> str:
    """Of a few jobs it says little."""
    if scale == FULL.name:
        return target.verdict
    return f"{target.verdict} ({scale})" if scale == MIDDLE.name else f"{target.verdict} ({scale}: no verdict)"


def _section(name: str, scale: str, cases: Sequence[Case], results: Results) -> str:
    figure = FIGURES[name]
    rows = rows_of(figure, cases, results.values())
    lines = [f"## {name}: {figure.title} ({scale})", "", f"The paper: {figure.paper}.", ""]
    lines.append(_table(rows))
    if figure.notes:
        lines += [figure.notes, ""]
    targets = targets_of(figure, cases, results.values())
    lines += [f"- {target.text}: {target.ours}, {_verdict(target, scale)}" for target in targets]
    if scale in (FULL.name, MIDDLE.name) and figure.why and any(target.verdict == MISSED for target in targets):
        lines.append(f"- Why: {figure.why}")
    missing = _missing(cases, results)
    if missing:
        lines.append(f"- {missing} of {sum(len(case.runs()) for case in cases)} runs are not recorded yet.")
    return "\n".join([*lines, ""])


def _table(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return markdown_table(columns, [[markdown_cell(row.get(column, "")) for column in columns] for row in rows])


def _missing(cases: Sequence[Case], results: Results) -> int:
    return sum(key(run.settings) not in results for case in cases for run in case.runs())


def _measured(results: Results) -> str:
    """When, of which commits and on which machines."""
    kinds = Counter((each.date, each.commit, each.cores, each.memory_gb) for each in results.values())
    rows = [
        [date, f"`{commit}`", f"{cores} cores, {memory_gb} GB", str(count)]
        for (date, commit, cores, memory_gb), count in sorted(kinds.items())
    ]
    return "## Measured\n\n" + markdown_table(["date", "commit", "machine", "runs"], rows)
