"""docs/performance.md, of what was recorded: the same bytes for the same results, and nothing is run for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.flow.document import markdown_cell, markdown_table
from benchmarks.peers.outcome import number
from benchmarks.performance.catalogue import BENCHMARKS
from benchmarks.performance.figures import Aim, Found, Line, found
from benchmarks.performance.lines import LINES
from benchmarks.performance.results import Recorded

PAGE = (Path(__file__).parent / "page.md").read_text("utf-8")
"""The words. A line `[[name]]` stands for a table."""
RUNS_MAX = 5
"""So many runs of a benchmark are told of, the newest."""
NOT_MEASURED = "not measured"
HOPS = {"A process each": "hops", "Scheduler and node monitor in one process": "hops-one"}

Runs = dict[str, list[Recorded]]
"""By benchmark, the newest first."""


def text(results: Iterable[Recorded], lines: Sequence[Line] = LINES, page: str = PAGE) -> str:
    """The whole page."""
    runs = newest(results)
    for name, made in {"ours": _ours(lines, runs), "hops": _hops(runs), "runs": _runs(runs)}.items():
        page = page.replace(f"[[{name}]]\n", made)
    return page


def newest(results: Iterable[Recorded]) -> Runs:
    """Of each benchmark its last runs."""
    runs: Runs = {}
    for result in results:
        runs.setdefault(result.benchmark, []).insert(0, result)
    return {name: of[:RUNS_MAX] for name, of in runs.items()}


# ---- the table of figures --------------------------------------------------------------------


def _ours(lines: Sequence[Line], runs: Runs) -> str:
    rows, before = [], ""
    for line in lines:
        command = f"`{BENCHMARKS[line.benchmark].command}`" if line.benchmark != before else ""
        before = line.benchmark
        rows.append([line.what, command, *cells(line, runs.get(line.benchmark, []))])
    return markdown_table(["what", "command", "newest run", "all runs", "aim"], rows)


def cells(line: Line, runs: Sequence[Recorded]) -> tuple[str, str, str]:
    """The newest run's numbers, those of all runs from least to most, and what is aimed at."""
    of_runs = _found(line, runs)
    if not of_runs:
        return NOT_MEASURED, "", "; ".join(aim_text(line, aim) for aim in line.aims)
    several = f"{_numbers(line, of_runs)}, {len(of_runs)} runs" if len(of_runs) > 1 else ""
    aims = "; ".join(f"{aim_text(line, aim)}: {_verdict(aim, of_runs)}" for aim in line.aims)
    return _numbers(line, of_runs[:1]), several, aims


def _found(line: Line, runs: Sequence[Recorded]) -> list[Found]:
    """From the newest run back to the first that has no such row: what is older has another shape."""
    of_runs = []
    for run in runs:
        try:
            of_runs.append(found(line, run))
        except LookupError:
            break
    return of_runs


def _numbers(line: Line, of_runs: Sequence[Found]) -> str:
    def shown(of: Callable[[Found], dict[str, float]]) -> str:
        numbers = {column: span([of(one)[column] for one in of_runs]) for column in line.columns}
        figures = [(" / ".join(numbers[c] for c in figure.columns), figure.unit) for figure in line.figures]
        return ", ".join(with_unit(words, unit) for words, unit in figures)

    beside = [f"{name}: {shown(lambda one, name=name: one.beside[name])}" for name in line.beside]  # type: ignore[misc]
    return shown(lambda one: one.ours) + (f" ({'; '.join(beside)})" if beside else "")


def span(values: Sequence[float]) -> str:
    """From the least to the most, or the one number that both are."""
    least, most = number(min(values)), number(max(values))
    return least if least == most else f"{least}–{most}"


def with_unit(words: str, unit: str) -> str:
    """`500/s`, `0.5 ms`."""
    return words + unit if unit.startswith("/") else f"{words} {unit}".rstrip()


def aim_text(line: Line, aim: Aim) -> str:
    """`p50 at most 0.5 ms`, `at least 4 × process pool`."""
    bound = f"{number(aim.bound)} × {aim.times}" if aim.times else with_unit(number(aim.bound), line.unit(aim.column))
    return f"{aim.label} {'at least' if aim.at_least else 'at most'} {bound}".lstrip()


def _verdict(aim: Aim, of_runs: Sequence[Found]) -> str:
    """An aim that one of the runs missed is not met."""
    misses = sum(not one.meets(aim) for one in of_runs)
    said = "met" if not misses else "**missed**"
    if 0 < misses < len(of_runs):
        said += f" in {misses} of {len(of_runs)} runs"
    return said + (f" ({span([one.ratio(aim) for one in of_runs])} ×)" if aim.times else "")


# ---- the hops of a call, and what ran --------------------------------------------------------


def _hops(runs: Runs) -> str:
    parts = []
    for title, name in HOPS.items():
        parts.append(f"**{title}** (`{BENCHMARKS[name].command}`)\n")
        if name not in runs:
            parts.append(f"{NOT_MEASURED}\n")
            continue
        last = runs[name][0]
        parts += [_table(rows) for rows in last.tables.values()]
        parts.append(" ".join(last.details.get("notes", [])) + "\n")
        if len(runs[name]) > 1:
            sums = span([run.value for run in runs[name]])
            parts.append(
                f"The sum in the last {len(runs[name])} runs, of which the tables show the newest: {sums} µs.\n"
            )
    return "\n".join(parts)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """As the benchmark printed it, but for columns in which nothing stands."""
    columns = [column for column in rows[0] if any(row[column] != "" for row in rows)]
    return markdown_table(columns, [[markdown_cell(row[column]) for column in columns] for row in rows])


def _runs(runs: Runs) -> str:
    columns = ["benchmark", "runs", "newest, commit", "repetitions in it", "took", "load when it ended", "on"]
    rows = []
    for name in BENCHMARKS:
        if name not in runs:
            rows.append([name, NOT_MEASURED, *[""] * (len(columns) - 2)])
            continue
        last, details = runs[name][0], runs[name][0].details
        load = details.get("load_average_1_min")
        rows.append([
            name, str(len(runs[name])), f"{last.date}, {last.commit}", str(len(details.get("repetitions", [])) or ""),
            f"{last.took_s:.0f} s", "" if load is None else f"{load:.1f}",
            f"{details['cores']} cores, Python {details['python']}",
        ])  # fmt: skip
    took_min = sum(of[0].took_s for of in runs.values()) / 60
    return markdown_table(columns, rows) + f"\nThe newest runs took {number(took_min)} minutes together.\n"
