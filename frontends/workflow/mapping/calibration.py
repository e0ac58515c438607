"""The rates of engines on this machine: what is measured for them, how they follow, and the file of them (§3.5.1).

For each engine a job without work is measured (scan and write), one that writes nothing (scan and drop), and one for
each operator, at several sizes. The time of each is a line over the bytes that are read: where it begins is the start
of the job, and its slope the time of a byte. Slopes give the rates: that of the dropped scan PULL (and LOAD, of an
engine that says how long it loads), that of the written one more PUSH, that of an operator beside them PROCESS. Who
measures is an argument, so nothing here runs.

Until then, and for engines that were not measured, `Rates` are defaults, which say that they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.mapping.rates import Rates, default_rates
from sparrow_py.errors import InvalidOption, InvalidRequest

FIELD = "calibration"
"""What errors call the file."""
VERSION = 1
CALIBRATION_BYTES_MAX = 2**20
"""Of the file."""
SIZES_ROWS = (20_000, 200_000, 1_000_000)
"""Rows of the tables with which engines are measured."""
RATE_MAX = 1e15
"""Bytes a second of what takes no time that could be measured."""

TABLES = """t = SCAN 't' (k INTEGER, g INTEGER, x DOUBLE, s STRING)
u = SCAN 'u' (k INTEGER, g INTEGER, x DOUBLE, s STRING)
"""
"""Of all calibration jobs. k: different in each row; g: of few values; x: multiples of 1/8; s: short texts. `u` has as
many rows as `t` and the same k, in another order."""
NOTHING_WRITTEN = "SCAN"
WRITTEN = "WRITE"
JOBS: dict[str, str] = {
    NOTHING_WRITTEN: "r = SELECT t WHERE {k < 0}",
    WRITTEN: "r = PROJECT t TO (k = {k}, g = {g}, x = {x}, s = {s})",
    "SELECT": "r = SELECT t WHERE {x > 0.5 AND s <> 'none'}",
    "PROJECT": "r = PROJECT t TO (k = {k}, y = {x * 2 + k})",
    "ARITHMETIC": "r = ARITHMETIC t SET x = {x * 2}",
    "JOIN": "r = JOIN INNER t, u ON (k = k) TO (k = LEFT k, x = LEFT x, y = RIGHT x)",
    "UNION": "r = UNION t, u",
    "INTERSECT": "r = INTERSECT t, u",
    "DIFFERENCE": "r = DIFFERENCE t, u",
    "DISTINCT": "r = DISTINCT t",
    "AGGREGATE": "r = AGGREGATE t BY (g) TO (n = COUNT, total = SUM x)",
    "SORT": "r = SORT t BY (x, k)",
    "TOP": "r = TOP 100 t BY (x, k)",
}
"""The jobs that are measured, by operator; an engine leaves out those that it cannot express."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run of a job. load_s: of the seconds, those in which the engine brought what it read into its own form."""

    seconds: float
    cpu_seconds: float
    bytes_in: int
    bytes_out: int
    load_s: float = 0.0


Measure = Callable[[Dag, int, bool], Measured | None]
"""Runs a job on the engine over tables of so many rows, cold or warm, several times if need be; None if the engine
cannot express it."""


def calibration_job(name: str) -> Dag:
    """The job of `JOBS`, with the tables that it reads."""
    dag = read(f"{TABLES}{JOBS[name]}\nRESULTS r", f"<calibration of {name}>")
    needed = {*dag.results, *dag.ancestors(dag.results)}
    return Dag(tuple(one for one in dag.operators if one.name in needed), dag.results)


def measured_rates(measure: Measure, sizes_rows: Sequence[int] = SIZES_ROWS) -> Rates:
    """The rates of an engine. `InvalidRequest` unless it can run the jobs without work at two sizes at least."""
    if len(set(sizes_rows)) < 2:
        raise InvalidRequest("sizes_rows", tuple(sizes_rows), "at least two different numbers of rows")
    dropped, written = (_runs(measure, name, sizes_rows) for name in (NOTHING_WRITTEN, WRITTEN))
    if not dropped or not written:
        raise InvalidRequest.told("calibration", "the engine cannot run a job without work, so nothing is measured")
    start_s, read_s = _line([(one.bytes_in, one.seconds) for one in dropped])
    load_s = min(read_s, _through_zero([(one.bytes_in, one.load_s) for one in dropped]))
    write_s = _through_zero([(one.bytes_out, one.seconds - start_s - read_s * one.bytes_in) for one in written])
    cold = measure(calibration_job(NOTHING_WRITTEN), min(sizes_rows), True)
    cold_s = start_s if cold is None else max(start_s, cold.seconds - read_s * cold.bytes_in)
    process = {}
    for name in JOBS:
        if name in (NOTHING_WRITTEN, WRITTEN):
            continue
        runs = _runs(measure, name, sizes_rows)
        beyond = [
            (one.bytes_in, one.seconds - start_s - read_s * one.bytes_in - write_s * one.bytes_out) for one in runs
        ]
        if beyond:
            process[name] = _rate(_through_zero(beyond))
    seconds = sum(one.seconds for one in (*dropped, *written))
    return Rates(
        start_cold_s=cold_s,
        start_warm_s=start_s,
        pull_bytes_per_s=_rate(read_s - load_s),
        load_bytes_per_s=1.0 / load_s if load_s else math.inf,
        push_bytes_per_s=_rate(write_s),
        process_bytes_per_s=process,
        process_other_bytes_per_s=min(process.values(), default=_rate(read_s)),
        cpus=max(0.01, sum(one.cpu_seconds for one in (*dropped, *written)) / seconds) if seconds else 1.0,
        measured=True,
    )


def _runs(measure: Measure, name: str, sizes_rows: Iterable[int]) -> list[Measured]:
    job = calibration_job(name)
    found = (measure(job, rows, False) for rows in sizes_rows)
    return [one for one in found if one is not None]


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The line of least squares, intercept and slope, neither below 0."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    slope = max(0.0, slope)
    return max(0.0, mean_y - slope * mean_x), slope


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
    cpus: float


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
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        if kept.version != VERSION:
            raise InvalidOption(FIELD, str(path), f"a calibration of version {VERSION}; this one is {kept.version}")
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
        dict(rates.process_bytes_per_s), rates.process_other_bytes_per_s, rates.cpus,
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
        cpus=kept.cpus,
        measured=True,
    )
