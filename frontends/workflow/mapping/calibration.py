"""The rates of engines on this machine: what is measured for them, how they follow, and the file of them (§3.5.1).

For each engine a job without work is measured (scan and write), one that writes nothing (scan and drop), one for each
operator, and a loop (PageRank) of few and of many iterations, at several sizes. The time of each is a line over the
bytes that are read: where it begins is the start of the job, and its slope the time of a byte. Slopes give the rates:
that of the dropped scan PULL (and LOAD, of an engine that says how long it loads), that of the written one more PUSH,
that of an operator beside them PROCESS; where that line begins is what the operator takes of itself. The loops of many
iterations and of few differ by some iterations, and by nothing else. An engine that takes nothing but loops has what
they take beside their iterations as start, PULL and PUSH. Who measures is an argument, so nothing here runs.

Until then, and for engines that were not measured, `Rates` are defaults, which say that they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from frontends.workflow.ir.dag import Dag, Leaf, While
from frontends.workflow.ir.reading import read
from frontends.workflow.mapping.rates import Rates, default_rates
from frontends.workflow.mapping.sizes import TableSize, body_sizes, relation_sizes
from sparrow_py.errors import InvalidOption, InvalidRequest

FIELD = "calibration"
"""What errors call the file."""
VERSION = 2
"""Files of version 1 have other bytes, of files and not in memory, so nothing of them counts."""
CALIBRATION_BYTES_MAX = 2**20
"""Of the file."""
SIZES_ROWS = (20_000, 200_000, 1_000_000)
"""Rows of the tables with which engines are measured."""
LEAST_S = 0.001
"""Times below this are no more exact than it."""
RATE_MAX = 1e15
"""Bytes a second of what takes no time that could be measured."""

TABLES = """t = SCAN 't' (k INTEGER, g INTEGER, x DOUBLE, s STRING)
u = SCAN 'u' (k INTEGER, g INTEGER, x DOUBLE, s STRING)
few = VALUES (c DOUBLE) ROWS (({0.25}), ({0.5}), ({0.75}), ({1.0}))
"""
"""Of the jobs of `JOBS`. k: different in each row; g: of few values; x: multiples of 1/8; s: short texts. `u` has as
many rows as `t` and the same k, in another order."""
NOTHING_WRITTEN = "SCAN"
WRITTEN = "WRITE"
JOBS: dict[str, str] = {
    NOTHING_WRITTEN: "r = SELECT t WHERE {k + g < 0 OR x + k < 0 OR s = 'none'}",
    WRITTEN: "r = PROJECT t TO (k = {k}, g = {g}, x = {x}, s = {s})",
    "SELECT": "r = SELECT t WHERE {x > 0.5 AND s <> 'none'}",
    "PROJECT": "r = PROJECT t TO (k = {k}, y = {x * 2 + k})",
    "ARITHMETIC": "r = ARITHMETIC t SET x = {x * 2}",
    "JOIN": "r = JOIN INNER t, u ON (k = k) TO (k = LEFT k, x = LEFT x, y = RIGHT x)",
    "CROSS JOIN": "r = CROSS JOIN t, few TO (k = LEFT k, x = LEFT x, c = RIGHT c)",
    "UNION": "r = UNION t, u",
    "INTERSECT": "r = INTERSECT t, u",
    "DIFFERENCE": "r = DIFFERENCE t, u",
    "DISTINCT": "r = DISTINCT t",
    "AGGREGATE": "r = AGGREGATE t BY (g) TO (n = COUNT, total = SUM x)",
    "SORT": "r = SORT t BY (x, k)",
    "TOP": "r = TOP 100 t BY (x, k)",
}
"""The jobs that are measured, by operator; an engine leaves out those that it cannot express. What statistics of a file
say of a column decides none of them, so that all of the file is read."""
LOOP = """edges = SCAN 'edges' (source INTEGER, target INTEGER, degree INTEGER)
ranks = SCAN 'ranks' (id INTEGER, rank DOUBLE)
loop = WHILE (edges, ranks) CARRY (ranks = damped) AT MOST {iterations} DO
  edges = INPUT (source INTEGER, target INTEGER, degree INTEGER)
  ranks = INPUT (id INTEGER, rank DOUBLE)
  sent = JOIN INNER edges, ranks ON (source = id) TO (target = LEFT target, degree = LEFT degree, rank = RIGHT rank)
  shared = ARITHMETIC sent SET rank = {{rank / degree}}
  messages = PROJECT shared TO (id = {{target}}, rank = {{rank}})
  gathered = AGGREGATE messages BY (id) TO (rank = SUM rank)
  damped = ARITHMETIC gathered SET rank = {{rank * 0.85 + 0.15}}
  RESULTS damped
END
r = LOOP RESULT loop OF ranks (id INTEGER, rank DOUBLE)
RESULTS r
"""
"""PageRank: a loop that engines of graphs take, too. Tables have a row for each edge, and for each vertex."""
ITERATIONS = (2, 12)
"""Of the loop that is measured."""
EDGES_PER_VERTEX = 8
"""Rows of `edges` for each of `ranks`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run of a job. load_s: of the seconds, those in which the engine brought what it read into its own form."""

    seconds: float
    cpu_seconds: float
    bytes_in: int
    bytes_out: int
    load_s: float = 0.0


Measure = Callable[[Dag, int, bool], Measured | None]
"""Runs a job on the engine over tables of so many rows (edges, of the loop), cold or warm, several times if need be;
None if the engine cannot express it."""


def calibration_job(name: str) -> Dag:
    """The job of `JOBS`, with the tables that it reads."""
    dag = read(f"{TABLES}{JOBS[name]}\nRESULTS r", f"<calibration of {name}>")
    needed = {*dag.results, *dag.ancestors(dag.results)}
    return Dag(tuple(one for one in dag.operators if one.name in needed), dag.results)


def calibration_loop(iterations: int) -> Dag:
    """The loop, of so many iterations."""
    return read(LOOP.format(iterations=iterations), "<calibration of WHILE>")


def measured_rates(measure: Measure, sizes_rows: Sequence[int] = SIZES_ROWS) -> Rates:
    """The rates of an engine.

    `InvalidRequest` unless it can run the jobs without work, or the loops, at two sizes at least.
    """
    if len(set(sizes_rows)) < 2:
        raise InvalidRequest("sizes_rows", tuple(sizes_rows), "at least two different numbers of rows")
    loops = _loops(measure, sizes_rows)
    dropped, written = (_runs(measure, calibration_job(name), sizes_rows) for name in (NOTHING_WRITTEN, WRITTEN))
    if dropped and written:
        rates = _with_operators(measure, sizes_rows, _of_files(measure, dropped, written, min(sizes_rows)))
        return _with_iterations(rates, loops)
    if len({one.rows for one in loops}) < 2:
        raise InvalidRequest.told(
            "calibration", "the engine can run neither a job without work nor a loop, so nothing is measured"
        )
    return _of_loops(measure, loops, min(sizes_rows))


def _of_files(measure: Measure, dropped: Sequence[Measured], written: Sequence[Measured], rows: int) -> Rates:
    """Starts, and what reading and writing takes. rows: with which it starts cold."""
    start_s, read_s = _line([(one.bytes_in, one.seconds) for one in dropped])
    load_s = min(read_s, _through_zero([(one.bytes_in, one.load_s) for one in dropped]))
    write_s = _through_zero([(one.bytes_out, one.seconds - start_s - read_s * one.bytes_in) for one in written])
    cold = measure(calibration_job(NOTHING_WRITTEN), rows, True)
    runs = [*dropped, *written]
    return Rates(
        start_cold_s=start_s if cold is None else max(start_s, cold.seconds - read_s * cold.bytes_in),
        start_warm_s=start_s,
        pull_bytes_per_s=_rate(read_s - load_s),
        load_bytes_per_s=1.0 / load_s if load_s else math.inf,
        push_bytes_per_s=_rate(write_s),
        process_other_bytes_per_s=_rate(read_s),
        cpus=_cpus(runs),
        measured=True,
    )


def _with_operators(measure: Measure, sizes_rows: Sequence[int], rates: Rates) -> Rates:
    """With what each operator takes beside starting, reading and writing."""
    process, fixed = {}, {}
    for name in JOBS:
        if name in (NOTHING_WRITTEN, WRITTEN):
            continue
        runs = _runs(measure, calibration_job(name), sizes_rows)
        if runs:
            fixed[name], slope_s = _line([(one.bytes_in, one.seconds - _around(rates, one)) for one in runs])
            process[name] = _rate(slope_s)
    other = min(process.values(), default=rates.process_other_bytes_per_s)
    return replace(rates, process_bytes_per_s=process, process_other_bytes_per_s=other, operator_s=fixed)


def _around(rates: Rates, run: Measured) -> float:
    """Seconds of a run in which it starts, reads and writes."""
    read_s = 1.0 / rates.pull_bytes_per_s + 1.0 / rates.load_bytes_per_s
    return rates.start_warm_s + read_s * run.bytes_in + run.bytes_out / rates.push_bytes_per_s


@dataclass(frozen=True, slots=True)
class _Loop:
    """Loops over tables of so many rows: the run of few iterations, and what one more takes."""

    rows: int
    few: Measured
    iteration_s: float

    def volumes(self) -> list[tuple[str, float]]:
        """The keywords of the body's operators, and what each reads, as plans assume it."""
        dag = calibration_loop(ITERATIONS[0])
        tables = {"edges": TableSize(self.rows), "ranks": TableSize(vertices(self.rows))}
        (loop,) = dag.of_type(While)
        sizes = body_sizes(loop, relation_sizes(dag, tables))
        return [
            (one.keyword, sum(sizes[name].bytes.likely for name in one.inputs))
            for one in loop.body.operators
            if not isinstance(one, Leaf)
        ]


def vertices(edges: int) -> int:
    """How many vertices the graph of so many edges has."""
    return max(1, edges // EDGES_PER_VERTEX)


def _loops(measure: Measure, sizes_rows: Iterable[int]) -> list[_Loop]:
    few, many = ITERATIONS
    found = []
    for rows in sizes_rows:
        runs = [measure(calibration_loop(iterations), rows, False) for iterations in ITERATIONS]
        if runs[0] is not None and runs[1] is not None:
            found.append(_Loop(rows, runs[0], max(0.0, (runs[1].seconds - runs[0].seconds) / (many - few))))
    return found


def _with_iterations(rates: Rates, loops: Sequence[_Loop]) -> Rates:
    """With what an iteration takes, for each operator and to what operators take outside of loops."""
    if len(loops) < 2:
        return rates
    points = []
    for one in loops:
        volumes = one.volumes()
        outside_s = sum(bytes_in / rates.process(keyword) for keyword, bytes_in in volumes)
        points.append((outside_s / len(volumes), one.iteration_s / len(volumes)))
    operator_s, factor = _line(points)
    return replace(rates, iteration_operator_s=operator_s, iteration_factor=factor)


def _of_loops(measure: Measure, loops: Sequence[_Loop], rows: int) -> Rates:
    """Of an engine that takes nothing else. rows: with which it starts cold."""
    points = []
    for one in loops:
        volumes = one.volumes()
        points.append((sum(bytes_in for _, bytes_in in volumes) / len(volumes), one.iteration_s / len(volumes)))
    operator_s, process_s = _line(points)
    start_s, byte_s = _line(
        [(one.few.bytes_in + one.few.bytes_out, one.few.seconds - ITERATIONS[0] * one.iteration_s) for one in loops]
    )
    first = loops[0]
    cold = measure(calibration_loop(ITERATIONS[0]), rows, True)
    return Rates(
        start_cold_s=start_s if cold is None else max(start_s, start_s + cold.seconds - first.few.seconds),
        start_warm_s=start_s,
        pull_bytes_per_s=_rate(byte_s),
        push_bytes_per_s=_rate(byte_s),
        process_other_bytes_per_s=_rate(process_s),
        iteration_operator_s=operator_s,
        cpus=_cpus([one.few for one in loops]),
        measured=True,
    )


def _cpus(runs: Sequence[Measured]) -> float:
    seconds = sum(one.seconds for one in runs)
    return max(0.01, sum(one.cpu_seconds for one in runs) / seconds) if seconds else 1.0


def _runs(measure: Measure, job: Dag, sizes_rows: Iterable[int]) -> list[Measured]:
    found = (measure(job, rows, False) for rows in sizes_rows)
    return [one for one in found if one is not None]


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The line of least squares of relative errors, intercept and slope, neither below 0.

    Relative, as small jobs are to be told apart, too. Of a single point nobody knows an intercept.
    """
    if len({x for x, _ in points}) == 1:
        return 0.0, _through_zero(points)
    weights = [1.0 / max(abs(y), LEAST_S) ** 2 for _, y in points]
    total = sum(weights)
    mean_x = sum(weight * x for weight, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(weight * y for weight, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(weight * (x - mean_x) ** 2 for weight, (x, _) in zip(weights, points, strict=True))
    slope = sum(weight * (x - mean_x) * (y - mean_y) for weight, (x, y) in zip(weights, points, strict=True)) / spread
    if slope < 0:
        return max(0.0, mean_y), 0.0
    intercept = mean_y - slope * mean_x
    return (intercept, slope) if intercept >= 0 else (0.0, _through_zero(points))


def _through_zero(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line of least squares through zero, not below 0."""
    spread = sum(x * x for x, _ in points)
    return max(0.0, sum(x * y for x, y in points) / spread) if spread else 0.0


def _rate(seconds_per_byte: float) -> float:
    return min(RATE_MAX, 1.0 / seconds_per_byte) if seconds_per_byte else RATE_MAX


# ---- the file --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rates of engines. engines: of those that were measured."""

    engines: Mapping[str, Rates] = field(default_factory=dict)

    def rates(self, engine: str) -> Rates:
        """Measured ones, else defaults, whose `measured` is False."""
        return self.engines.get(engine) or default_rates(engine)

    def unmeasured(self, engines: Iterable[str]) -> tuple[str, ...]:
        """Those of the engines whose rates are defaults: whoever plans with them says so."""
        return tuple(engine for engine in engines if engine not in self.engines)

    def with_rates(self, engine: str, rates: Rates) -> Calibration:
        return Calibration({**self.engines, engine: rates})


class _KeptRates(msgspec.Struct, forbid_unknown_fields=True):
    start_cold_s: float
    start_warm_s: float
    pull_bytes_per_s: float
    push_bytes_per_s: float
    load_bytes_per_s: float | None
    process_bytes_per_s: dict[str, float]
    process_other_bytes_per_s: float
    operator_s: dict[str, float]
    iteration_operator_s: float
    iteration_factor: float
    cpus: float


class _Versioned(msgspec.Struct):
    version: int


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    engines: dict[str, _KeptRates]


def save(calibration: Calibration, path: Path) -> None:
    """Write the file anew: whoever reads it has all of it, or what was there before. `InvalidOption` if that fails."""
    kept = _Kept(VERSION, {name: _kept(rates) for name, rates in calibration.engines.items()})
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
        beside.replace(path)
    except OSError as error:
        raise InvalidOption(FIELD, str(path), f"a file that can be written ({error.strerror})") from None


def load(path: Path) -> Calibration:
    """What the file has; nothing measured if it is not there. `InvalidOption` if it is no calibration."""
    try:
        if path.stat().st_size > CALIBRATION_BYTES_MAX:
            raise InvalidOption(FIELD, str(path), f"a calibration of at most {CALIBRATION_BYTES_MAX:,} bytes")
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Versioned).version
        if version == 1:
            return Calibration()
        if version != VERSION:
            raise InvalidOption(FIELD, str(path), f"a calibration of version {VERSION}; this one is {version}")
        kept = msgspec.json.decode(content, type=_Kept)
        return Calibration({name: _rates(one) for name, one in kept.engines.items()})
    except InvalidOption:
        raise
    except FileNotFoundError:
        return Calibration()
    except OSError as error:
        raise InvalidOption(FIELD, str(path), f"a file that can be read ({error.strerror})") from None
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise InvalidOption(FIELD, str(path), f"a calibration, which `calibrate` writes anew ({error})") from None


def _kept(rates: Rates) -> _KeptRates:
    load = None if math.isinf(rates.load_bytes_per_s) else rates.load_bytes_per_s
    return _KeptRates(
        rates.start_cold_s, rates.start_warm_s, rates.pull_bytes_per_s, rates.push_bytes_per_s, load,
        dict(rates.process_bytes_per_s), rates.process_other_bytes_per_s, dict(rates.operator_s),
        rates.iteration_operator_s, rates.iteration_factor, rates.cpus,
    )  # fmt: skip


def _rates(kept: _KeptRates) -> Rates:
    return Rates(
        start_cold_s=kept.start_cold_s,
        start_warm_s=kept.start_warm_s,
        pull_bytes_per_s=kept.pull_bytes_per_s,
        push_bytes_per_s=kept.push_bytes_per_s,
        load_bytes_per_s=math.inf if kept.load_bytes_per_s is None else kept.load_bytes_per_s,
        process_bytes_per_s=kept.process_bytes_per_s,
        process_other_bytes_per_s=kept.process_other_bytes_per_s,
        operator_s=kept.operator_s,
        iteration_operator_s=kept.iteration_operator_s,
        iteration_factor=kept.iteration_factor,
        cpus=kept.cpus,
        measured=True,
    )
