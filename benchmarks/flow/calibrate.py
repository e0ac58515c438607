"""What rounds cost here: CPU times of rounds against their counted work, for the formula of virtual time.

The same rounds are played several times over: what they count is the same each time, what they take is the median, of
each round by itself. Half of the times, held out, then say within which factor the formula foretells others.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.flow.clusters import compile_all
from benchmarks.flow.fit import Formula, Rows, fitted, how_well
from benchmarks.flow.outcome import Row, Scale
from benchmarks.flow.timed import timed
from benchmarks.report import progress
from scheduler.flow.cluster_network import Placed
from scheduler.flow.problem import Solution
from scheduler.flow.solvers.cost_scaling import Scaling
from scheduler.flow.solvers.relaxation import Round
from scheduler.flow.solvers.stopping import StopFlag
from simulator.flow.costs import FAR_ARCS, FlowCosts
from simulator.flow.counted_race import CountedRace, Solvers
from simulator.flow.inputs import Inputs
from simulator.flow.plane import FlowCluster, SimulatedPlane, SimulatedTask
from sparrow_py.errors import InvalidOption

COSTS = Path(__file__).with_name("costs.json")
PLAYS = {
    Scale.TINY: ((20, 2),),
    Scale.QUICK: ((150, 3), (1_250, 3)),
    Scale.FULL: ((150, 5), (1_250, 3), (5_000, 2), (12_500, 2)),
}
"""Machines, and how often each is played."""
JOBS = {
    Scale.TINY: (1, 5, 20),
    Scale.QUICK: (1, 10, 30, 100, 300),
    Scale.FULL: (1, 10, 30, 100, 300, 1_000, 3),
}
"""Tasks of the jobs that arrive, one after the other."""
FULLNESS = 0.9
LEFT_S, BETWEEN_S = 1.0, 3.0
BATCHED = FlowCosts(round_us=200_000.0)
"""What rounds cost while they are measured: so that some take many changes."""
PLAYED = (
    (Solvers.RELAXATION, True), (Solvers.RELAXATION, False), (Solvers.WARM, True), (Solvers.COLD, True),
    (Solvers.COLD, False),
)  # fmt: skip
"""Who solves, and whether all tasks are in the network or those alone that wait."""
FIRST_ROUNDS, FIRST_SOLVES = 4, 2
"""Not counted: those in which the cluster comes to be."""


class TimedRace(CountedRace):
    """Notes CPU times."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cpu_s = 0.0
        self.relaxed: list[tuple[float, ...]] = []
        """Seconds, visits, steps."""
        self.scaled: list[tuple[float, ...]] = []
        """Seconds, arcs, steps, steps weighed by how many arcs there are."""

    def relax(self, stop: StopFlag | None) -> Round:
        took_s, done = timed(lambda: super(TimedRace, self).relax(stop))
        self.cpu_s += took_s
        self.relaxed.append((took_s, done.visits, done.steps))
        return done

    def scale(self, start: Solution | None, stop: StopFlag | None) -> Scaling:
        took_s, done = timed(lambda: super(TimedRace, self).scale(start, stop))
        arcs = len(done.network.tail)
        self.cpu_s += took_s
        self.scaled.append((took_s, arcs, done.work, done.work * arcs / FAR_ARCS))
        return done


class TimedPlane(SimulatedPlane):
    """Notes CPU times of rounds without their solves."""

    def __init__(self, cluster: FlowCluster) -> None:
        super().__init__(cluster)
        self.timed_race = TimedRace(self.network.graph, cluster.solvers, cluster.costs)
        self.race = self.network.race = self.timed_race  # type: ignore[assignment]
        self.noted: list[tuple[float, ...]] = []
        """Seconds, nodes, tasks that came, tasks told to run, tasks that went or machines that changed."""

    def _solve(self) -> tuple[Placed, float]:
        tasks, run, gone = len(self._new), len(self._run), len(self._gone) + len(self._changed_machines)
        before_s = self.timed_race.cpu_s
        took_s, (placed, virtual_s) = timed(super()._solve)
        self.noted.append((took_s - (self.timed_race.cpu_s - before_s), placed.nodes, tasks, run, gone))
        return placed, virtual_s


@dataclass(slots=True)
class Measured:
    """Rows of seconds and counts: of rounds without their solves, and of solves."""

    rounds: list[Sequence[float]] = field(default_factory=list)
    relaxed: list[Sequence[float]] = field(default_factory=list)
    scaled: list[Sequence[float]] = field(default_factory=list)

    def add(self, planes: Sequence[TimedPlane]) -> None:
        """The same rounds, played several times."""
        self.rounds += medians([plane.noted[FIRST_ROUNDS:] for plane in planes])
        self.relaxed += medians([plane.timed_race.relaxed[FIRST_SOLVES:] for plane in planes])
        self.scaled += medians([plane.timed_race.scaled[FIRST_SOLVES:] for plane in planes])


def calibrated(scale: Scale) -> tuple[FlowCosts, list[Row]]:
    """The constants, and how well they foretell what was measured."""
    compile_all()
    return costs_of(measured(scale))


def measured(scale: Scale) -> Measured:
    """All that is played."""
    found = Measured()
    for machines, plays in scale.of(PLAYS):
        for solvers, keeps in PLAYED:
            progress(f"{machines:,} machines, {solvers}, {'all tasks' if keeps else 'waiting tasks'}, {plays} times")
            found.add([_played(scale, machines, solvers, keeps) for _ in range(plays)])
    return found


def medians(plays: Sequence[Rows]) -> list[Sequence[float]]:
    """Of rows that were played several times: the median of what each took, of two the lower one."""
    found: list[Sequence[float]] = []
    for same in zip(*plays, strict=True):
        counts = same[0][1:]
        assert all(row[1:] == counts for row in same), "equal seeds give equal rounds"
        found.append((statistics.median_low(row[0] for row in same), *counts))
    return found


def costs_of(found: Measured) -> tuple[FlowCosts, list[Row]]:
    """Constants that foretell what was measured."""
    rounds, relaxation, scaling = (fitted(rows) for rows in (found.rounds, found.relaxed, found.scaled))
    costs = FlowCosts(
        **_constants(rounds, "round_us", "node_ns", "task_us", "run_us", "gone_us"),
        **_constants(relaxation, "relaxation_us", "visit_ns", "step_ns"),
        **_constants(scaling, "scaling_us", "scaling_arc_ns", "scaling_step_ns", "far_step_ns"),
    )
    return costs, [
        how_well("rounds without solves", found.rounds, rounds),
        how_well("relaxation", found.relaxed, relaxation),
        how_well("cost scaling", found.scaled, scaling),
    ]


def _constants(formula: Formula, *names: str) -> dict[str, float]:
    unit = {"us": 1e6, "ns": 1e9}
    return {name: _rounded(unit[name[-2:]] * seconds) for name, seconds in zip(names, formula.seconds, strict=True)}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _played(scale: Scale, machines: int, solvers: Solvers, keeps: bool) -> TimedPlane:
    cluster = FlowCluster(machines=machines, solvers=solvers, keeps_running=keeps, costs=BATCHED)
    plane = TimedPlane(cluster)
    inputs, chance = Inputs(cluster.names(), 1), random.Random("calibrate")
    places = [name for name in cluster.names() for _ in range(cluster.slots)]
    chance.shuffle(places)
    plane.begin(
        (SimulatedTask(f"r{number}", f"r{number // 50}", float("inf"), input=inputs.draw()), place, 60.0)
        for number, place in enumerate(places[: int(FULLNESS * len(places))])
    )
    for number, count in enumerate(scale.of(JOBS)):
        plane.submit_at(
            BETWEEN_S * number,
            [
                SimulatedTask(f"j{number}.{task}", f"j{number}", LEFT_S * chance.random(), input=inputs.draw())
                for task in range(count)
            ],
        )
    plane.run(BETWEEN_S * len(scale.of(JOBS)))
    return plane


def write_costs(costs: FlowCosts, path: Path) -> None:
    """For the simulated figures."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(costs), indent=1) + b"\n")


def read_costs(path: Path = COSTS) -> FlowCosts:
    """As they were measured last."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=FlowCosts)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidOption("costs", str(path), f"a file of calibrate's ({error})") from None
