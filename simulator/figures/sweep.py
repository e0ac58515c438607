"""Many simulations: on all cores, with a progress bar, and none of them twice.

What has been computed stands in a results file, JSON lines: a header that says whose results these are, then one object
per point. A sweep that is run again takes from there what it finds. A line that was not finished when the sweep was
stopped is cut off.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar, cast

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from loadgen.traces import Trace
from simulator import results_file
from simulator.cluster import Cluster
from simulator.figures import idle_slots  # noqa: F401  (its policy is one that points may name)
from simulator.figures.measures import measures
from simulator.policies import Settings
from simulator.processes import side_by_side
from simulator.simulate import Workload, simulate
from sparrow_py.errors import InvalidOption

FORMAT = 1
"""Version of the results file."""

CODE = (
    "sparrow_py/**/*.py", "scheduler/**/*.py", "node_monitor/**/*.py", "loadgen/**/*.py",
    *(f"simulator/{module}.py" for module in (
        "cluster", "costs", "engine", "hosts", "idle_slots", "measures", "network", "policies", "records", "simulate",
    )),
)  # fmt: skip
"""The files that decide what a simulation gives."""

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One simulation, with the arguments of `simulate`."""

    cluster: Cluster
    workload: Workload
    policy: str
    settings: Settings = field(default_factory=Settings)
    seed: int = 1

    @functools.cached_property
    def key(self) -> str:
        """What tells it from other points, the same on every machine: a digest of everything that it depends on."""
        described = {
            "cluster": asdict(self.cluster),
            "workload": _description(self.workload),
            "policy": self.policy,
            "settings": asdict(self.settings),
            "seed": self.seed,
        }
        return hashlib.sha256(orjson.dumps(described, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _description(workload: Any) -> Any:
    if isinstance(workload, Trace):
        rows = [
            (
                job.arrival_s, job.user, list(job.durations_s), job.where, job.preferred, job.mean_s,
                [(stage.name, stage.after, stage.tasks) for stage in job.stages],
            )
            for job in workload.lines
        ]  # fmt: skip
        return {"trace": hashlib.sha256(orjson.dumps(rows)).hexdigest(), "stretch": workload.stretch}
    return asdict(workload)


def compute(point: Point) -> Figures:
    """Simulate a point."""
    return measures(simulate(point.cluster, point.workload, point.policy, point.settings, seed=point.seed))


class Keyed(Protocol):
    """A point of a sweep of any kind."""

    @property
    def key(self) -> str:
        """What tells it from other points, the same on every machine."""


AnyPoint = TypeVar("AnyPoint", bound=Keyed)


def run(
    name: str,
    points: Iterable[AnyPoint],
    results: Path,
    *,
    processes: int | None = None,
    label: str = "",
    work: Callable[[AnyPoint], Figures] | None = None,
) -> dict[str, Figures]:
    """The figures of each point by its key: from the file, or else computed, in so many processes (None: on all cores).

    label: what the progress bar is called, if not `name`. work: computes a point, if it is no simulation. Raises
    `InvalidOption` if the file has the results of another sweep than `name`, or of other code.
    """
    distinct = {point.key: point for point in points}
    with results_file.opened(results) as file:
        known = _read(file, name, results)
        missing = [point for key, point in distinct.items() if key not in known]
        at_a_time = processes or os.cpu_count() or 1
        for point, figures in _computed(label or name, missing, work or cast("Any", compute), at_a_time):
            known[point.key] = figures
            file.write(orjson.dumps({"key": point.key, "figures": figures}) + b"\n")
            file.flush()
    return {key: known[key] for key in distinct}


# ---- computing -------------------------------------------------------------------------------


def _computed(
    label: str, points: Sequence[AnyPoint], work: Callable[[AnyPoint], Figures], processes: int
) -> Iterator[tuple[AnyPoint, Figures]]:
    """Each point and its figures, in the order in which they are there."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), disable=not points) as progress:
        bar = progress.add_task(label, total=len(points))
        for done in side_by_side(work, points, min(processes, len(points))):
            progress.advance(bar)
            yield done


# ---- the results file ------------------------------------------------------------------------


def _read(file: IO[bytes], name: str, path: Path) -> dict[str, Figures]:
    """What the file has, by the points' keys; a new file gets its header."""
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    lines = whole.splitlines()
    if not lines:
        # Nothing but a header that was cut short is nothing; anything else is not ours to overwrite.
        header = _header(name)
        if not header.startswith(content):
            raise InvalidOption("results", str(path), f"results of the sweep {name!r}, with a header that says so")
        file.truncate(0)
        file.write(header)
        return {}
    _check_header(lines[0], name, path)
    known = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            row = orjson.loads(line)
            known[row["key"]] = row["figures"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise InvalidOption("results", f"{path}:{number}", "a result (delete the file to start anew)") from None
    file.truncate(len(whole))
    return known


def _header(name: str) -> bytes:
    return orjson.dumps({"format": FORMAT, "sweep": name, "code": code_digest()}) + b"\n"


def _check_header(line: bytes, name: str, path: Path) -> None:
    """Refuse what would mix results that do not belong together."""
    try:
        header = orjson.loads(line)
        found = {what: header[what] for what in ("format", "sweep", "code")}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise InvalidOption(
            "results", str(path), f"results of the sweep {name!r}: its first line is none of ours"
        ) from None
    wanted = {
        "format": (FORMAT, f"results in version {FORMAT} of the format"),
        "sweep": (name, f"results of the sweep {name!r}"),
        "code": (code_digest(), f"results of this code, {code_digest()}"),
    }
    for what, (value, allowed) in wanted.items():
        if found[what] != value:
            raise InvalidOption("results", str(path), f"{allowed}; its are of {found[what]!r}: delete it to start anew")


@functools.cache
def code_digest() -> str:
    """Of the code that decides what a simulation gives."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(path for pattern in CODE for path in root.glob(pattern)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
