"""What was measured, as it is kept: one line of JSON for each run of the command; and ratios with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.habits.gnu_parallel import OURS as SPARROW_RUN
from benchmarks.habits.turns import OURS
from benchmarks.report import ROOT
from simulator import results_file

RESULTS = ROOT / "benchmarks/peers/results.jsonl"
DOCUMENT = ROOT / "docs/peers.md"
DIGITS = 6


class PeerResult(msgspec.Struct):
    """Of one peer in one case. values and cpu_ms (a task) have one number a turn; why: why there are no values; note:
    what must be known beside them."""

    values: list[float] = []
    cpu_ms: list[float] = []
    p95: list[float] = []
    why: str = ""
    note: str = ""


class CaseResult(msgspec.Struct):
    """Of one case. round_trip_ms: of a process pool just before, a measure of how fast the machine was. idle_cores:
    what all systems together took while they waited for their turns."""

    title: str
    unit: str
    took_s: float
    round_trip_ms: float
    peers: dict[str, PeerResult]
    idle_cores: float | None = None


class Run(msgspec.Struct):
    """Of one run of the command."""

    date: str
    commit: str
    quick: bool
    cores: int
    python: str
    memory_gb: int
    load: float
    versions: dict[str, str]
    left_out: dict[str, str]
    cases: dict[str, CaseResult]


class Spread(msgspec.Struct, frozen=True):
    """Median, least and most of some numbers."""

    median: float
    least: float
    most: float

    def text(self) -> str:
        """`0.35 (0.31–0.4)`; of one number, that alone."""
        if self.least == self.most:
            return number(self.median)
        return f"{number(self.median)} ({number(self.least)}–{number(self.most)})"


def spread(values: Sequence[float]) -> Spread | None:
    """None of no numbers."""
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def ratios(case: CaseResult, name: str) -> Spread | None:
    """Our value over this peer's, turn by turn: below 1 where we are quicker. None if one of the two has none."""
    ours = case.peers.get(ours_in(case))
    theirs = case.peers.get(name)
    if ours is None or theirs is None:
        return None
    return spread([mine / other for mine, other in zip(ours.values, theirs.values, strict=False) if other])


def ours_in(case: CaseResult) -> str:
    """The peer that ratios are of: the library of ours, or the tool."""
    return OURS if OURS in case.peers else SPARROW_RUN


def best(results: Mapping[str, PeerResult]) -> str | None:
    """Who has the smallest median."""
    medians = {name: statistics.median(result.values) for name, result in results.items() if result.values}
    return min(medians, key=medians.__getitem__) if medians else None


POOL_TIMES_MAX = 2.0
"""What ours may take of the time of the best pool in the user's process."""


def against(case: CaseResult, others: Container[str], ours: Container[str]) -> tuple[str, str, float] | None:
    """Of these others the best, of ours the best, and the ratio of our median to theirs. None if one is missing."""
    best_other = best({name: result for name, result in case.peers.items() if name in others})
    best_ours = best({name: result for name, result in case.peers.items() if name in ours})
    if best_other is None or best_ours is None:
        return None
    mine, other = (statistics.median(case.peers[name].values) for name in (best_ours, best_other))
    return best_other, best_ours, mine / other


def number(value: float) -> str:
    """Three figures."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def rounded(values: Sequence[float]) -> list[float]:
    """Six figures: no clock says more."""
    return [float(f"{value:.{DIGITS}g}") for value in values]


def add(path: Path, run: Run) -> None:
    """Append a run."""
    with results_file.opened(path) as file:
        file.write(msgspec.json.encode(run) + b"\n")


def read(path: Path) -> list[Run]:
    """All runs, the oldest first."""
    return [msgspec.json.decode(line, type=Run) for line in path.read_bytes().splitlines()] if path.exists() else []
