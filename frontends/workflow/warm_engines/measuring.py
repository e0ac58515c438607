"""Measures the engines of this machine, for `sparrow workflow calibrate`: real jobs in real processes (§3.5.1)."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frontends.workflow.engines.base import Engine
from frontends.workflow.ir.dag import Dag, Scan
from frontends.workflow.mapping.calibration import SIZES_ROWS, Calibration, Measured, measured_rates, vertices
from frontends.workflow.running.errors import WorkflowFailed
from frontends.workflow.running.execution import Cause
from frontends.workflow.running.tasks import Failed, Made, Script
from frontends.workflow.table_files import size_of
from frontends.workflow.warm_engines.engine_processes import EngineProcess, Kind
from sparrow_py.errors import InvalidRequest

REPEATS = 5
"""Runs of each job, of which the fastest counts: what else the machine does makes runs slower, never faster."""
TOO_SLOW_S = 5.0
"""An engine whose job takes longer than this at one size is not measured at larger ones, and runs it no more often once
its runs have taken as long."""
GROUPS = 1_000
"""Different values of the column g."""
TEXTS = 10_000
"""Different values of the column s."""
SEEDS = {"t": 1, "u": 2, "edges": 3}
HUBS = 3.0
"""How uneven edges are: an end is the vertex of number V * x ** HUBS of V, where x is even between 0 and 1."""


def calibrated(
    engines: Iterable[Engine],
    before: Calibration,
    threads: int,
    sizes_rows: Sequence[int] = SIZES_ROWS,
    say: Callable[[str], object] = lambda text: None,
    *,
    has_schedulers: bool = False,
) -> Calibration:
    """The calibration with these engines measured anew. An engine that cannot be is left as it was, and `say` told.

    has_schedulers: whether MapReduce may use the cluster that the environment names, which has to be there; else, as on
    nodes, each of its jobs brings its own, whose start is then part of the job's.
    """
    with tempfile.TemporaryDirectory(prefix="workflow-calibration-") as directory:
        tables = Tables(Path(directory))
        for engine in engines:
            say(f"measuring {engine.name} {engine.version()}")
            with _Bench(engine, threads, tables, has_schedulers=has_schedulers) as bench:
                try:
                    rates = measured_rates(bench.measure, sizes_rows)
                except (InvalidRequest, WorkflowFailed) as error:
                    say(f"{engine.name} is left out: {error}")
                    continue
            before = before.with_rates(engine.name, rates)
    return before


@dataclasses.dataclass
class Tables:
    """The tables of calibration jobs, made when they are first asked for."""

    directory: Path

    def file(self, name: str, rows: int) -> Path:
        """The Parquet file of a table of the calibration jobs; rows: of `t` and `u`, and edges of graphs."""
        path = self.directory / f"{name}-{rows}.parquet"
        if not path.exists():
            pq.write_table(_MAKERS[name](rows), path)
        return path


def _table(rows: int, seed: int) -> pa.Table:
    order = pc.sort_indices(pc.random(rows, initializer=seed)).cast(pa.int64())
    chosen = [pc.random(rows, initializer=seed + place * 10) for place in range(1, 4)]
    groups = pc.cast(pc.floor(pc.multiply(chosen[0], GROUPS)), pa.int64())
    eighths = pc.divide(pc.floor(pc.multiply(chosen[1], 8_000.0)), 8_000.0)
    texts = pc.binary_join_element_wise(
        "text ", pc.cast(pc.cast(pc.floor(pc.multiply(chosen[2], TEXTS)), pa.int64()), pa.string()), ""
    )
    return pa.table({"k": order, "g": groups, "x": eighths, "s": texts})


def _edges(rows: int) -> pa.Table:
    """Edges of which few vertices have many. Each vertex has an edge."""
    count = vertices(rows)
    every = pa.array(range(count), pa.int64())
    ends = [
        pa.concat_arrays([every, _uneven(rows - count, count, SEEDS["edges"] + place)]).take(
            pc.sort_indices(pc.random(rows, initializer=SEEDS["edges"] + 10 + place))
        )
        for place in range(2)
    ]
    edges = pa.table({"source": ends[0], "target": ends[1]})
    degrees = edges.group_by("source").aggregate([("target", "count")]).rename_columns(["source", "degree"])
    return edges.join(degrees, "source").select(["source", "target", "degree"])


def _uneven(rows: int, count: int, seed: int) -> pa.Array:
    """Numbers below count."""
    return pc.cast(pc.floor(pc.multiply(pc.power(pc.random(rows, initializer=seed), HUBS), float(count))), pa.int64())


def _ranks(edges: int) -> pa.Table:
    ids = pa.array(range(vertices(edges)), pa.int64())
    return pa.table({"id": ids, "rank": pc.cast(pc.add(pc.multiply(ids, 0), 1), pa.float64())})


_MAKERS: Mapping[str, Callable[[int], pa.Table]] = {
    "t": lambda rows: _table(rows, SEEDS["t"]),
    "u": lambda rows: _table(rows, SEEDS["u"]),
    "edges": _edges,
    "ranks": _ranks,
}


class _Bench:
    """Runs jobs of one engine, in a process that is kept between them."""

    def __init__(self, engine: Engine, threads: int, tables: Tables, *, has_schedulers: bool) -> None:
        self._engine, self._kind, self._tables = engine, Kind("", engine.name, threads), tables
        self._has_schedulers = has_schedulers
        self._process: EngineProcess | None = None
        self._slow_rows: dict[Dag, int] = {}

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def measure(self, job: Dag, rows: int, cold: bool) -> Measured | None:
        """As `calibration.Measure` has it."""
        if self._engine.inexpressible(job) is not None or rows > self._slow_rows.get(job, rows):
            return None
        if cold:
            self._end()
            return self._once(job, rows)
        if self._process is None:
            self._once(job, rows)
        runs = [self._once(job, rows)]
        if runs[0].seconds > TOO_SLOW_S:
            self._slow_rows[job] = rows
        while len(runs) < REPEATS and sum(one.seconds for one in runs) < TOO_SLOW_S:
            runs.append(self._once(job, rows))
        return min(runs, key=lambda one: one.seconds)

    def _once(self, job: Dag, rows: int) -> Measured:
        """A run; its seconds are with the start of a process, if there is none."""
        inputs = {scan.name: self._tables.file(scan.table, rows) for scan in job.of_type(Scan)}
        outputs = {name: self._tables.directory / f"out-{place}.parquet" for place, name in enumerate(job.results)}
        script = Script(
            self._engine.name,
            self._engine.generate(job),
            {name: str(path) for name, path in inputs.items()},
            {name: str(path) for name, path in outputs.items()},
            "",
            "",
            self._kind.threads,
        )
        started_s = time.perf_counter()
        answer = self._run(script)
        if isinstance(answer, Failed):
            self._end()
            raise WorkflowFailed(f"a calibration job of {self._engine.name}: {answer.reason}")
        return Measured(
            time.perf_counter() - started_s,
            answer.cpu_s,
            sum(size_of(path).bytes or 0 for path in inputs.values()),
            sum(size_of(path).bytes or 0 for path in outputs.values()),
        )

    def _run(self, script: Script) -> Made | Failed:
        if self._process is None:
            self._process = EngineProcess(self._kind, has_schedulers=self._has_schedulers)
            failure = self._process.await_warm()
            if failure is not None:
                return failure
        answer = self._process.run(script)
        return answer if isinstance(answer, Made | Failed) else Failed(Cause.DIED.value, "no answer")
