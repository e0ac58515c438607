"""Numbers of ours: which runs they need at a scale and under a profile, and how they are computed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.paper.results import Results, key
from benchmarks.paper.runs import (
    NONE,
    BenchmarkRun,
    FigurePoint,
    LivePoint,
    Run,
    Shape,
    SimulatedPreset,
    SimulatedQueries,
    TestRun,
)
from simulator.figures.catalogue import POLICY_NAMES, QUICK, Scale
from simulator.figures.intervals import Interval, interval
from sparrow_py.profiles import DEFAULT, PAPER


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large everything is run. figures: of simulated figures. preset: of presets that are simulated; live: of those
    that run. queries: how many are simulated. text: how the document calls the simulated figures' size."""

    name: str
    figures: Scale
    preset: Shape
    live: Shape
    queries: int
    seeds: int

    @property
    def text(self) -> str:
        """Of figures."""
        return f"{self.figures.nodes:,} nodes"


OTHER_POLICIES = {name for policy, name in POLICY_NAMES.items() if policy != "sparrow"}
"""Curves of figures that are not Sparrow's, and so of no profile."""

PAPER_SHAPE = Shape(nodes=100, slots=4, schedulers=10)
SIZES = {
    size.name: size
    for size in (
        Size(
            name="quick",
            figures=QUICK,
            preset=Shape(nodes=100, slots=4, schedulers=10, seconds=3),
            live=Shape(nodes=25, slots=4, schedulers=4, seconds=6),
            queries=300,
            seeds=2,
        ),
        Size(
            name="middle",
            figures=Scale(nodes=1000, jobs=3000, seeds=3, few_points=True),
            preset=PAPER_SHAPE,
            live=PAPER_SHAPE,
            queries=2000,
            seeds=3,
        ),
        Size(name="full", figures=Scale(), preset=PAPER_SHAPE, live=PAPER_SHAPE, queries=4000, seeds=3),
    )
}  # fmt: skip
"""By name, from the smallest to the paper's."""


class Spec(Protocol):
    """What is measured, apart from scale, profile and seed."""

    def runs(self, size: Size, profile: str) -> tuple[Run, ...]:
        """One for each seed; none where there is nothing to run at this scale."""

    def command(self, size: Size, profile: str) -> str:
        """What is typed to see it alone; empty for this package's own command."""

    def where(self, size: Size) -> str:
        """The cluster, in few words."""


@dataclass(frozen=True)
class OfFigure:
    """Points of a figure. profile: empty for the one that is asked for."""

    figure: str
    group: str
    curve: str
    x: float
    profile: str = ""

    def runs(self, size: Size, profile: str) -> tuple[Run, ...]:
        """One for each seed."""
        profile = NONE if self.curve in OTHER_POLICIES else self.profile or profile
        return tuple(
            FigurePoint(
                figure=self.figure, group=self.group, curve=self.curve, x=self.x, scale=size.figures, seed=seed,
                profile=profile,
            )
            for seed in range(1, size.figures.seeds + 1)
        )  # fmt: skip

    def command(self, size: Size, profile: str) -> str:
        """This package's own."""
        return ""

    def where(self, size: Size) -> str:
        """The number of nodes."""
        return f"simulated, {size.figures.nodes:,} {'cores' if self.figure in ('3', '4', '7') else 'nodes'}"


@dataclass(frozen=True)
class OfSimulatedPreset:
    """A preset of the load generator, simulated."""

    preset: str
    load: float
    probe_ratio: float = 2.0
    policy: str = "sparrow"

    def runs(self, size: Size, profile: str) -> tuple[Run, ...]:
        """One for each seed."""
        return tuple(
            SimulatedPreset(
                preset=self.preset, shape=size.preset, load=self.load, probe_ratio=self.probe_ratio,
                policy=self.policy, seed=seed, profile=profile,
            )
            for seed in range(1, size.seeds + 1)
        )  # fmt: skip

    def command(self, size: Size, profile: str) -> str:
        """This package's own."""
        return ""

    def where(self, size: Size) -> str:
        """The cluster."""
        return f"simulated, {size.preset.nodes} × {size.preset.slots} slots"


@dataclass(frozen=True)
class OfSimulatedQueries:
    """Recorded queries on simulated daemons. Placements besides Sparrow have one profile."""

    load: float
    stretch: float
    placement: str = "sparrow"

    def runs(self, size: Size, profile: str) -> tuple[Run, ...]:
        """One for each seed."""
        return tuple(
            SimulatedQueries(
                shape=PAPER_SHAPE, load=self.load, stretch=self.stretch, jobs=size.queries, placement=self.placement,
                seed=seed, profile=profile if self.placement == "sparrow" else NONE,
            )
            for seed in range(1, size.seeds + 1)
        )  # fmt: skip

    def command(self, size: Size, profile: str) -> str:
        """This package's own."""
        return ""

    def where(self, size: Size) -> str:
        """The cluster."""
        return f"simulated, {PAPER_SHAPE.nodes} × {PAPER_SHAPE.slots} slots, {size.queries:,} queries"


@dataclass(frozen=True)
class OfLive:
    """A preset of the load generator, live."""

    preset: str
    load: float
    probe_ratio: float = 2.0
    placement: str = "sparrow"
    duration_ms: float | None = None
    profile: str = ""

    def point(self, size: Size, profile: str) -> LivePoint:
        """The one run."""
        shape = size.live
        if self.placement == "central":
            shape = Shape(nodes=shape.nodes, slots=shape.slots, schedulers=1, seconds=shape.seconds)
        return LivePoint(
            preset=self.preset, shape=shape, load=self.load, probe_ratio=self.probe_ratio, placement=self.placement,
            duration_ms=self.duration_ms, profile=self.profile or profile,
        )  # fmt: skip

    def runs(self, size: Size, profile: str) -> tuple[Run, ...]:
        """One."""
        return (self.point(size, profile),)

    def command(self, size: Size, profile: str) -> str:
        """The load generator's."""
        return "python -m " + " ".join(self.point(size, profile).words)

    def where(self, size: Size) -> str:
        """The cluster."""
        return f"live, {size.live.nodes} × {size.live.slots} slots"


@dataclass(frozen=True)
class OfBenchmark:
    """A benchmark. by_profile: whether it takes `--profile`; one that does not runs the daemons' defaults. live:
    whether it runs daemons."""

    words: tuple[str, ...]
    seconds: float
    by_profile: bool = False
    live: bool = True

    def _words(self, profile: str) -> tuple[str, ...]:
        return (*self.words, "--profile", profile) if self.by_profile else self.words

    def runs(self, size: Size, profile: str) -> tuple[Run, ...]:
        """One."""
        if not self.by_profile and profile != DEFAULT:
            return ()
        return (
            BenchmarkRun(words=self._words(profile), seconds=self.seconds, profile=profile, live=self.live),
        )  # fmt: skip

    def command(self, size: Size, profile: str) -> str:
        """Its own."""
        return "python -m " + " ".join(self._words(profile))

    def where(self, size: Size) -> str:
        """One machine."""
        return "live" if self.live else "simulated"


@dataclass(frozen=True)
class OfTests:
    """Tests, which say themselves under which profile."""

    tests: tuple[str, ...]

    def runs(self, size: Size, profile: str) -> tuple[Run, ...]:
        """One; it stands in the column of the profile `paper`."""
        return (TestRun(tests=self.tests),) if profile == PAPER else ()

    def command(self, size: Size, profile: str) -> str:
        """pytest's."""
        return "python -m pytest " + " ".join(self.tests)

    def where(self, size: Size) -> str:
        """No cluster."""
        return "test"


@dataclass(frozen=True)
class Measure:
    """A figure of what is measured."""

    spec: Spec
    name: str = "value"


@dataclass(frozen=True)
class Quantity:
    """A number computed of measures, seed by seed; of none: of nothing but the paper's formulas."""

    of: tuple[Measure, ...]
    combine: Callable[..., float] = field(compare=False)

    def runs(self, size: Size, profile: str) -> Iterator[Run]:
        """All that it needs; none where a part of it is not run under this profile."""
        parts = [measure.spec.runs(size, profile) for measure in self.of]
        if all(parts):
            for runs in parts:
                yield from runs

    def value(self, size: Size, profile: str, results: Results) -> Interval | None:
        """Over the seeds that have all results; None if none has. A measure of which there is one run, beside others
        of which there are several, stands beside each of them."""
        if not self.of:
            value = self.combine()
            return Interval(value, value, value)
        found = [self._combined(*row) for row in self._by_seed(size, profile, results) if None not in row]
        return interval(known) if (known := [value for value in found if value is not None]) else None

    def _by_seed(self, size: Size, profile: str, results: Results) -> list[tuple[float | None, ...]]:
        """What each seed gave for each measure."""
        columns = [list(_values(measure, measure.spec.runs(size, profile), results)) for measure in self.of]
        seeds = max(map(len, columns), default=0)
        columns = [column * seeds if len(column) == 1 else column for column in columns]
        return list(zip(*columns, strict=True)) if all(columns) else []

    def _combined(self, *measured: float | None) -> float | None:
        """None where it is divided by nothing: there is no such ratio."""
        try:
            return self.combine(*measured)
        except ZeroDivisionError:
            return None

    def seeds(self, size: Size, profile: str, results: Results) -> tuple[int, int]:
        """How many seeds have all results, and how many there are at this scale."""
        rows = self._by_seed(size, profile, results)
        return sum(None not in row for row in rows), len(rows)

    def why_invalid(self, size: Size, profile: str, results: Results) -> str:
        """Why what there is is no measurement."""
        found = [results.get(key(run.settings)) for run in self.runs(size, profile)]
        return next((result.why_invalid for result in found if result is not None and result.why_invalid), "")


def _values(measure: Measure, runs: tuple[Run, ...], results: Results) -> Iterator[float | None]:
    for run in runs:
        result = results.get(key(run.settings))
        yield None if result is None else result.figures.get(measure.name)


def value(measure: Measure, times: float = 1.0) -> Quantity:
    """A figure as it is, times a factor."""
    return Quantity((measure,), lambda found: found * times)


def ratio(above: Measure, below: Measure) -> Quantity:
    """How many times as much the one has as the other."""
    return Quantity((above, below), lambda a, b: a / b)


def excess(above: Measure, below: Measure) -> Quantity:
    """By how many percent the one is above the other."""
    return Quantity((above, below), lambda a, b: 100 * (a / b - 1))


def formula(compute: Callable[[], float]) -> Quantity:
    """What a formula gives."""
    return Quantity((), compute)


def passes(*tests: str) -> Quantity:
    """1 if these tests pass."""
    return Quantity((Measure(OfTests(tests)),), lambda passed: passed)
