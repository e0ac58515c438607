"""The files that a load run writes to its directory, with their columns and units.

`points.json` has a `Header`; `jobs.parquet`, `tasks.parquet` and `events.parquet` have the columns of `JOBS`, `TASKS`
and `EVENTS`. Times that end in `_s` are seconds since their point began; service, response and ideal are spans.

    run = Run(Header(title="…", command="…", points=[Point(…)]), table(JOBS, rows), table(TASKS, rows), table(EVENTS))
    write_run(directory, run)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrow_py.errors import InvalidOption
from sparrow_py.profiles import DEFAULT

VERSION = 1
"""Version of the files' format: raised with each change that an older reader would misread."""

POINTS_MAX = 1000
"""Points of a run."""

HEADER_FILE = "points.json"

MEASURED_STATUS = "finished"
"""The status of jobs and tasks whose times count."""

EXECUTED = "queries executed"
REPLAYED = "recorded durations, replayed as sleeps"
SPUN = "recorded durations, replayed as computation"
SIMULATED = "recorded durations, on simulated daemons"
"""What tasks of queries did: the setting `execution` of a point."""

JOBS = pa.schema(
    {
        "point": pa.int32(),
        "job": pa.int64(),  # Its number in the workload.
        "label": pa.string(),  # The kind of job, a query's name, say; "" where all jobs are alike.
        "user": pa.string(),
        "tasks": pa.int32(),
        "stages": pa.int32(),
        "after": pa.list_(pa.list_(pa.int32())),  # For each stage, the numbers of the stages that it waits for.
        "measured": pa.bool_(),  # False: warm-up or cool-down.
        "status": pa.string(),  # finished, failed, cancelled, lost, refused
        "due_s": pa.float64(),  # The job's arrival in the workload.
        "submitted_s": pa.float64(),  # The generator submitted the job.
        "ended_s": pa.float64(),  # The last task's end.
        "response_s": pa.float64(),  # ended_s − due_s: a late generator does not make the system look better.
        "ideal_s": pa.float64(),  # `measures.ideal_s` for the service times that occurred.
    }
)
"""A row for each job. NaN where a time is not known."""

TASKS = pa.schema(
    {
        "point": pa.int32(),
        "job": pa.int64(),
        "stage": pa.int32(),  # Its place in the job's `after`.
        "stage_name": pa.string(),
        "task": pa.int32(),  # Its number in the stage.
        "constrained": pa.bool_(),
        "status": pa.string(),
        "node": pa.string(),
        "scheduler": pa.string(),
        "attempts": pa.int32(),
        "arrived_s": pa.float64(),  # Its job arrived at a scheduler.
        "reserved_s": pa.float64(),  # The first reservation for it was queued.
        "asked_s": pa.float64(),  # The getTask that the task answered came.
        "launched_s": pa.float64(),  # The scheduler sent the task.
        "started_s": pa.float64(),  # The task began to run.
        "finished_s": pa.float64(),  # The task ended.
        "service_s": pa.float64(),
    }
)
"""A row for each task: the events of the paper's audit log. NaN where a time is not known."""

EVENTS = pa.schema(
    {
        "point": pa.int32(),
        "at_s": pa.float64(),
        "kind": pa.string(),  # noop, cancelled
        "count": pa.int32(),
        "user": pa.string(),
    }
)
"""A row for each event at a scheduler that is not of a single task."""

FILES = {"jobs": JOBS, "tasks": TASKS, "events": EVENTS}
"""The tables of a run, each in the file NAME.parquet."""


class Settings(msgspec.Struct):
    """The settings that every point has; further ones that are needed to reproduce the point stand beside them."""

    placement: str
    """sparrow, batch, per-task, random or central."""
    load: float
    probe_ratio: float
    nodes: int
    slots: int
    """Slots of each node."""
    duration_ms: float | None = None
    """Duration of each task, where all are alike."""
    profile: str = DEFAULT
    """Of the daemons (`sparrow_py.profiles`); it concerns the placement sparrow."""
    policy: str = ""
    """That jobs stated."""
    tasks_sleep: bool = False
    """Whether tasks slept for the workload's durations, and did no work."""
    execution: str = ""
    """Of queries: `EXECUTED`, `REPLAYED`, `SPUN` or `SIMULATED`."""
    stretch: float = 1.0
    """How many times as long as recorded the tasks of queries took, or arrivals of a trace were apart."""


class Point(msgspec.Struct, kw_only=True):
    """One run of the workload against a fresh cluster.

    point: its number, which the tables have in their column of that name. label: for people. settings: see `Settings`.
    late: how late the generator submitted jobs, p50_ms, p99_ms and max_ms. why_invalid: why the point is not a
    measurement, if it is not. counts: of the whole point: jobs, tasks, noops, asks, reservations,
    cancelled_reservations, retries, refused_jobs. cpu_s: CPU time of the schedulers, node_monitors and generators.
    figures: as `measures.figures` returns them.
    """

    point: int
    settings: dict[str, Any]
    label: str = ""
    valid: bool = True
    why_invalid: str = ""
    late: dict[str, float | None] = {}
    counts: dict[str, int] = {}
    cpu_s: dict[str, float] = {}
    lasted_s: float | None = None
    figures: dict[str, Any] = {}

    def known_settings(self) -> Settings:
        """The settings that every point has; `msgspec.ValidationError` if one is missing or of another type."""
        return msgspec.convert(self.settings, Settings)


class SimulatedPoint(msgspec.Struct):
    """The simulator's result for the settings of one point."""

    load: float
    probe_ratio: float
    p50: float
    """Median response time of jobs in ms."""
    p5: float | None = None
    p95: float | None = None
    placement: str = "sparrow"
    profile: str = DEFAULT

    def is_of(self, settings: Settings) -> bool:
        """Whether it is placed as such a point is."""
        return (self.placement, self.profile) == (settings.placement, settings.profile)


class Simulated(msgspec.Struct):
    """The simulator's results for the same settings. command: the command that prints them."""

    points: list[SimulatedPoint]
    command: str = ""


class Header(msgspec.Struct, kw_only=True):
    """The content of `points.json`. command: the command that was run, and that repeats the run."""

    version: int = VERSION
    title: str
    command: str
    preset: str | None = None
    simulated: Simulated | None = None
    points: list[Point]


@dataclass(frozen=True)
class Run:
    """A load run: its header, and the tables with the columns of `JOBS`, `TASKS` and `EVENTS`."""

    header: Header
    jobs: pa.Table
    tasks: pa.Table
    events: pa.Table

    def of(self, point: int) -> Run:
        """The records of one point."""
        tables = (self.jobs, self.tasks, self.events)
        return Run(self.header, *(table.filter(pc.equal(table["point"], point)) for table in tables))


def table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]] = ()) -> pa.Table:
    """A table of these columns, from rows that have all of them."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def write_run(directory: str | Path, run: Run) -> None:
    """Write the run's files; `InvalidOption` if the directory cannot be written to or the run does not fit together.

    The directory is made if it is not there. The header is written last: a directory that has one is complete.
    """
    where = Path(directory)
    _check(where, run)
    header = where / HEADER_FILE
    try:
        where.mkdir(parents=True, exist_ok=True)
        header.unlink(missing_ok=True)
        for name in FILES:
            pq.write_table(getattr(run, name), where / f"{name}.parquet")
        header.write_bytes(msgspec.json.format(msgspec.json.encode(run.header)) + b"\n")
    except OSError as error:
        raise InvalidOption("directory", str(where), f"a directory that can be written to ({error.strerror})") from None


def read_run(directory: str | Path) -> Run:
    """The run that `write_run` wrote there; `InvalidOption` names a file or column that is missing or wrong."""
    where = Path(directory)
    if not where.is_dir():
        raise InvalidOption("directory", str(where), "a directory that a load run wrote")
    header = _read_header(where / HEADER_FILE)
    run = Run(header, *(_read_table(where / f"{name}.parquet", schema) for name, schema in FILES.items()))
    _check(where, run)
    return run


def _read_header(path: Path) -> Header:
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != VERSION:
            raise InvalidOption(f"{path} version", version, f"{VERSION}; run the load again with this release")
        return msgspec.json.decode(data, type=Header)
    except OSError as error:
        raise InvalidOption("directory", str(path.parent), f"one with a {path.name} ({error.strerror})") from None
    except msgspec.MsgspecError as error:
        raise InvalidOption(str(path), "its content", f"the header of a load run ({error})") from None


class _Versioned(msgspec.Struct):
    version: int


def _read_table(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return pq.read_table(path, partitioning=None).replace_schema_metadata()
    except OSError as error:
        raise InvalidOption("directory", str(path.parent), f"one with a readable {path.name} ({error})") from None
    except pa.ArrowException as error:
        raise InvalidOption(str(path), "its content", f"a Parquet file ({error})") from None


def _check(where: Path, run: Run) -> None:
    """Check that the tables have their columns, the settings their fields, and that all points are known."""
    for name, schema in FILES.items():
        _check_columns(str(where / f"{name}.parquet"), getattr(run, name).schema, schema)
    path = str(where / HEADER_FILE)
    points = run.header.points
    if not 1 <= len(points) <= POINTS_MAX:
        raise InvalidOption(f"{path} points", f"{len(points)} points", f"1 to {POINTS_MAX} points")
    known = {point.point for point in points}
    if len(known) != len(points):
        raise InvalidOption(f"{path} points", [point.point for point in points], "a number of its own for each point")
    for point in points:
        try:
            point.known_settings()
        except msgspec.ValidationError as error:
            raise InvalidOption(f"{path} settings of point {point.point}", point.settings, str(error)) from None
    for name, schema in FILES.items():
        _check_known(str(where / f"{name}.parquet"), getattr(run, name), schema)
        foreign = set(getattr(run, name)["point"].unique().to_pylist()) - known
        if foreign:
            raise InvalidOption(str(where / f"{name}.parquet"), sorted(foreign, key=str), f"points that {path} has")


def _check_columns(path: str, found: pa.Schema, wanted: pa.Schema) -> None:
    for name in [*wanted.names, *found.names]:
        if found.names.count(name) != 1:
            raise InvalidOption(f"{path} column", name, f"each column once; {found.names.count(name)} have this name")
        if name not in wanted.names:
            raise InvalidOption(f"{path} column", name, f"the columns {', '.join(wanted.names)}")
        if not found.field(name).type.equals(wanted.field(name).type):
            raise InvalidOption(f"{path} column {name}", str(found.field(name).type), str(wanted.field(name).type))


def _check_known(path: str, table: pa.Table, schema: pa.Schema) -> None:
    """Check that only times are unknown."""
    for name in schema.names:
        if table[name].null_count and not pa.types.is_floating(schema.field(name).type):
            raise InvalidOption(f"{path} column {name}", None, "a value in each row")
