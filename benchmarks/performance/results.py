"""What benchmarks printed, as JSON lines: one for each run of a benchmark, with commit and date."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.flow.results import add_line, read_lines
from benchmarks.paper.measuring import commit_of_code
from benchmarks.report import ROOT

RESULTS = ROOT / "benchmarks/performance/results.jsonl"
DOCUMENT = ROOT / "docs/performance.md"
NOT_KEPT = ("system",)
"""Of `details`: what would say whose machine it was."""


class Printed(msgspec.Struct, frozen=True):
    """The object that a benchmark prints with `--json` (`report.Report`)."""

    name: str
    value: float
    unit: str
    details: dict[str, Any]


class Recorded(Printed, frozen=True, kw_only=True):
    """The same with what ran. benchmark: the name in `catalogue.BENCHMARKS`; took_s: wall time of its command."""

    benchmark: str
    commit: str
    date: str
    took_s: float

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Its tables by their titles; none if it has none."""
        found: dict[str, list[dict[str, Any]]] = self.details.get("tables", {})
        return found


def printed(output: str | bytes) -> Printed:
    """What a benchmark printed; `msgspec.MsgspecError` if that is no such object."""
    return msgspec.json.decode(output, type=Printed)


def recorded(benchmark: str, found: Printed, took_s: float) -> Recorded:
    """With the working tree's commit and today's date, to six figures: no clock says more."""
    details = {name: _rounded(value) for name, value in found.details.items() if name not in NOT_KEPT}
    return Recorded(
        name=found.name,
        value=_rounded(found.value),
        unit=found.unit,
        details=details,
        benchmark=benchmark,
        commit=commit_of_code((RESULTS, DOCUMENT)),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        took_s=round(took_s, 1),
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return value


def add(path: Path, result: Recorded) -> None:
    """Append a result."""
    add_line(path, result)


def read(path: Path) -> list[Recorded]:
    """All results in a file, in their order; none if there is no file. `InvalidOption` with a line that is none."""
    return read_lines(path, Recorded)
