"""What rounds cost here: CPU times of rounds against their counted work, for the formula of virtual time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.flow.clusters import compile_all
from benchmarks.flow.outcome import Row, Scale
from benchmarks.flow.timed import timed
from benchmarks.report import progress
from scheduler.flow.cluster_network import Placed
from scheduler.flow.problem import Solution
from scheduler.flow.solvers.cost_scaling import Scaling
from scheduler.flow.solvers.relaxation import Round
from scheduler.flow.solvers.stopping import StopFlag
from simulator.flow.costs import FlowCosts
from simulator.flow.counted_race import CountedRace, Solvers
from simulator.flow.inputs import Inputs
from simulator.flow.plane import FlowCluster, SimulatedPlane, SimulatedTask
from sparrow_py.errors import InvalidOption

COSTS = Path(__file__).with_name("costs.json")
MACHINES = {Scale.TINY: (20,), Scale.QUICK: (150, 1_250), Scale.FULL: (150, 1_250, 12_500)}
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
REWEIGHTED = 10
LEAST_S = 1e-5
"""Shorter times weigh no more than this."""

Reals = NDArray[np.float64]


class TimedRace(CountedRace):
    """Notes CPU times."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cpu_s = 0.0
        self.relaxed: list[tuple[float, float]] = []
        """Seconds, steps."""
        self.scaled: list[tuple[float, float, float, float]] = []
        """Seconds, arcs, arcs filled, steps."""

    def relax(self, stop: StopFlag | None) -> Round:
        took_s, done = timed(lambda: super(TimedRace, self).relax(stop))
        self.cpu_s += took_s
        self.relaxed.append((took_s, done.steps))
        return done

    def scale(self, start: Solution | None, stop: StopFlag | None) -> Scaling:
        took_s, done = timed(lambda: super(TimedRace, self).scale(start, stop))
        arcs = len(done.network.tail)
        self.cpu_s += took_s
        self.scaled.append((took_s, arcs, arcs * done.fills, done.work))
        return done


class TimedPlane(SimulatedPlane):
    """Notes CPU times of rounds without their solves."""

    def __init__(self, cluster: FlowCluster) -> None:
        super().__init__(cluster)
        self.timed_race = TimedRace(self.network.graph, cluster.solvers, cluster.costs)
        self.race = self.network.race = self.timed_race  # type: ignore[assignment]
        self.noted: list[tuple[float, float, float, float, float]] = []
        """Seconds, nodes, tasks that came, tasks told to run, tasks that went or machines that changed."""

    def _solve(self) -> tuple[Placed, float]:
        tasks, run, gone = len(self._new), len(self._run), len(self._gone) + len(self._changed_machines)
        before_s = self.timed_race.cpu_s
        took_s, (placed, virtual_s) = timed(super()._solve)
        self.noted.append((took_s - (self.timed_race.cpu_s - before_s), placed.nodes, tasks, run, gone))
        return placed, virtual_s


def calibrated(scale: Scale) -> tuple[FlowCosts, list[Row]]:
    """The constants, and how well they foretell what was measured."""
    compile_all()
    rounds, relaxed, scaled = [], [], []
    for machines in scale.of(MACHINES):
        for solvers in (Solvers.RELAXATION, Solvers.WARM, Solvers.COLD):
            for keeps in (True, False):
                if solvers is not Solvers.RELAXATION and not keeps:
                    continue
                progress(f"{machines:,} machines, {solvers}, {'all tasks' if keeps else 'waiting tasks'}")
                plane = _played(scale, machines, solvers, keeps)
                rounds += plane.noted[4:]
                relaxed += plane.timed_race.relaxed[2:]
                scaled += plane.timed_race.scaled[2:]
    of_round = fitted(rounds)
    of_relaxation = fitted([(seconds, steps) for seconds, steps in relaxed])
    of_scaling = fitted(scaled, constant=False)
    costs = FlowCosts(
        round_us=_rounded(1e6 * of_round[0]),
        node_ns=_rounded(1e9 * of_round[1]),
        task_us=_rounded(1e6 * of_round[2]),
        run_us=_rounded(1e6 * of_round[3]),
        gone_us=_rounded(1e6 * of_round[4]),
        relaxation_us=_rounded(1e6 * of_relaxation[0]),
        step_ns=_rounded(1e9 * of_relaxation[1]),
        scaling_arc_ns=_rounded(1e9 * of_scaling[0]),
        filled_arc_ns=_rounded(1e9 * of_scaling[1]),
        scaling_step_ns=_rounded(1e9 * of_scaling[2]),
    )
    return costs, [
        _foretold("rounds without solves", rounds, of_round),
        _foretold("relaxation", relaxed, of_relaxation),
        _foretold("cost scaling", scaled, of_scaling, constant=False),
    ]


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


def fitted(rows: Sequence[Sequence[float]], *, constant: bool = True) -> list[float]:
    """Seconds of each row foretold by a constant and its counts: constants from 0, by least squares, where an error
    weighs the less the longer a row is foretold to take. So the sums of all rows agree."""
    table = np.array(rows, np.float64)
    seconds, counts = table[:, 0], _counts(table, constant)
    weight = np.ones(len(table))
    for _ in range(REWEIGHTED):
        found = _least_squares(counts * weight[:, None], seconds * weight)
        weight = 1 / np.sqrt(np.maximum(counts @ found, LEAST_S))
    return [float(value) for value in found]


def _counts(table: Reals, constant: bool) -> Reals:
    return np.column_stack([np.ones(len(table)), table[:, 1:]]) if constant else table[:, 1:]


def _least_squares(counts: Reals, seconds: Reals) -> Reals:
    """Constants from 0: the most negative ones are left out, one after the other."""
    found = np.zeros(counts.shape[1])
    kept = np.flatnonzero(counts.any(axis=0))
    while len(kept):
        values = np.linalg.lstsq(counts[:, kept], seconds, rcond=None)[0]
        if (values >= 0).all():
            found[kept] = values
            break
        kept = np.delete(kept, int(values.argmin()))
    return found


def _foretold(what: str, rows: Sequence[Sequence[float]], constants: Sequence[float], *, constant: bool = True) -> Row:
    table = np.array(rows, np.float64)
    told: Reals = _counts(table, constant) @ np.array(constants)
    off = np.abs(told - table[:, 0]) / np.maximum(table[:, 0], 1e-6)
    return {
        "what": what,
        "measured": len(table),
        "seconds": float(table[:, 0].sum()),
        "seconds foretold": float(told.sum()),
        "off by, median %": 100 * float(np.median(off)),
        "off by, p90 %": 100 * float(np.percentile(off, 90)),
    }


def write_costs(costs: FlowCosts, path: Path) -> None:
    """For the simulated figures."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(costs), indent=1) + b"\n")


def read_costs(path: Path = COSTS) -> FlowCosts:
    """As they were measured last."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=FlowCosts)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidOption("costs", str(path), f"a file of calibrate's ({error})") from None
