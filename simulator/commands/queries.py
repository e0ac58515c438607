"""`python -m simulator queries`: figures 10 and 11 and table 3 without machines (§7.2).

TPC-H-like queries with the durations of recorded runs, on simulated daemons: a virtual cluster has as many slots as the
paper's, so that nothing needs to be stretched. What comes out is what a load run records, and has the same report.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadgen.tpch import PAPER_QUERIES, PLACES, PROFILE, REPLICAS, Profile, TpchLike, read_profile
from simulator.cluster import Cluster
from simulator.commands.field_options import FlagCommand, made, options_of
from simulator.network import Delay
from simulator.policies import ROOMS, Settings
from simulator.simulate import Result, simulate
from sparrow_py.daemon.options import given as stated
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidOption
from sparrow_py.profiles import DEFAULT, PROFILES, completed, in_words

if TYPE_CHECKING:
    from loadgen.recorded import Point, Run

TITLE = "Figures 10 and 11, table 3: TPC-H-like queries, by placement"
POLICIES = {
    "sparrow": "sparrow", "batch": "batch", "per-task": "per-task", "random": "random", "central": "central-daemon",
}  # fmt: skip
"""What the simulator calls the daemons' placements: its own `central` has neither delay nor task-level constraints."""
SPARROW = "sparrow"
"""The placement that profiles are about."""
POINTS_MAX = 1000
JOBS_MAX = 1_000_000


@dataclass(frozen=True)
class QueriesPoint:
    """A simulation of queries: those of the workload, on the cluster, under a placement (a key of `POLICIES`)."""

    cluster: Cluster
    workload: TpchLike
    placement: str
    settings: Settings
    seed: int

    @property
    def way(self) -> str:
        """How tasks are placed, for people; nothing but Sparrow depends on the profile."""
        profile = self.settings.profile
        return f"{self.placement} ({profile})" if self.placement == SPARROW and profile else self.placement

    def simulate(self) -> Result:
        """Simulate it."""
        cluster = self.cluster
        jobs = self.workload.as_trace(self.seed, cluster.nodes, cluster.slots)
        return simulate(cluster, jobs, POLICIES[self.placement], self.settings, seed=self.seed)

    def described(self) -> dict[str, Any]:
        """The settings that reproduce it, as a load run has them."""
        from loadgen.recorded import SIMULATED

        workload, cluster = self.workload, self.cluster
        changed = {name: value for name, value in asdict(self.settings).items() if value != getattr(Settings(), name)}
        return {
            "placement": self.placement,
            "load": workload.load,
            "probe_ratio": self.settings.probe_ratio,
            "nodes": cluster.nodes,
            "slots": cluster.slots,
            "schedulers": 1 if self.placement == "central" else cluster.schedulers,
            "execution": SIMULATED,
            "stretch": workload.stretch,
            "jobs": workload.jobs,
            "users": workload.users,
            "data": workload.data,
            "rtt_ms": 2 * cluster.delay.one_way_ms,
            "seed": self.seed,
            "profile": self.settings.profile,
            "recorded": {"source": workload.profile.source, "queries": sorted(workload.profile.queries)},
            **changed,
        }


def recorded_run(number: int, point: QueriesPoint, result: Result) -> tuple[Point, Any, Any, Any]:
    """What a load run would have recorded of the simulation: its point, and the rows of its three tables."""
    from loadgen.audit import Audit
    from loadgen.measures import figures
    from loadgen.recorded import Point
    from loadgen.tables import events_table, jobs_table, tasks_table

    records = [_as_recorded(record) for record in result.records]
    jobs = [record.job for record in result.records]
    # Virtual schedulers write no audit log: a job's tasks could start when it arrived in the workload.
    audit = Audit(arrived_s={record.job_id: record.due_s for record in records})
    of_jobs = jobs_table(number, jobs, records, 0.0, audit)
    of_tasks = tasks_table(number, jobs, records, 0.0, audit)
    counts = {"jobs": len(jobs), "tasks": len(of_tasks), **_counts(result)}
    slots = point.cluster.nodes * point.cluster.slots
    found = Point(
        point=number,
        label=f"{point.way}, load {point.workload.load:g}, stretch {point.workload.stretch:g}, {len(jobs)} jobs",
        settings=point.described(),
        counts=counts,
        lasted_s=round(max(record.ended_s for record in records), 6),
        figures=figures(of_jobs, of_tasks, slots=slots, counts=counts),
    )
    return found, of_jobs, of_tasks, events_table(number, 0.0, audit)


def _counts(result: Result) -> dict[str, int]:
    """The schedulers' counts, as load runs name them."""
    counts = dict(result.counts)
    counts["cancelled_reservations"] = counts.pop("reservations_cancelled", 0)
    counts.pop("core_events", None)
    return counts


def _as_recorded(record: Any) -> Any:
    """A simulated job as load runs record jobs."""
    from loadgen.job_records import STATUSES, JobRecord

    job = record.job
    found = JobRecord(job, f"j{job.number}", job.arrival_s)
    found.submitted_s = job.arrival_s
    found.task_status = bytearray([STATUSES.index("finished")]) * len(job.durations_s)
    found.attempts = type(found.attempts)("i", [1]) * len(job.durations_s)
    found.node = [f"n{node}" for node in record.nodes]
    found.started_s = record.started_s
    found.service_s = job.durations_s
    found.end()
    return found


# ---- the command -----------------------------------------------------------------------------


def _numbers(name: str, text: str, kind: type) -> list[Any]:
    """Numbers separated by commas."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InvalidOption(name, text, "a number, or several separated by commas") from None


def _points(values: dict[str, Any], given: Mapping[str, Any]) -> list[QueriesPoint]:
    """The points of these values, of which the user has `given` some."""
    delay = Delay(one_way_ms=values["rtt_ms"] / 2)
    cluster = made(Cluster, values, delay=delay)
    recorded = read_profile(Path(values["recorded"]))
    names = list(recorded.queries) if values["queries"] == "all" else values["queries"].split(",")
    profile = recorded.only(names)
    _check_size(cluster, profile)
    varied = itertools.product(
        _numbers("stretch", values["stretch"], float),
        _numbers("load", values["load"], float),
        _numbers("jobs", values["jobs"], int),
        _ways(values, given),
    )
    points = [
        QueriesPoint(
            cluster,
            TpchLike(
                profile=profile, users=values["users"], load=load, jobs=jobs, stretch=stretch, data=values["data"]
            ),
            placement,
            settings,
            values["seed"],
        )
        for stretch, load, jobs, (placement, settings) in varied
    ]
    for point in points:
        if point.workload.jobs > JOBS_MAX:
            raise InvalidOption("jobs", point.workload.jobs, f"a whole number from 1 to {JOBS_MAX}")
    if len(points) > POINTS_MAX:
        raise InvalidOption("jobs", f"{len(points)} points", f"at most {POINTS_MAX} points in a run")
    return points


def _ways(values: dict[str, Any], given: Mapping[str, Any]) -> list[tuple[str, Settings]]:
    """Each placement with the settings of each profile; with those of the first where it is none of Sparrow's, in which
    nothing depends on the profile."""
    placements, profiles = values["placement"].split(","), values["profile"].split(",")
    for placement in placements:
        if placement not in POLICIES:
            raise InvalidOption("placement", placement, ", ".join(POLICIES))
    by_profile = [made(Settings, values | completed(name, ROOMS, given)) for name in profiles]
    return [
        (placement, settings)
        for placement in placements
        for settings in (by_profile if placement == SPARROW else by_profile[:1])
    ]


def _check_size(cluster: Cluster, profile: Profile) -> None:
    """`InvalidOption` if the cluster cannot have the replicas, or run a stage at once."""
    if cluster.nodes < REPLICAS:
        raise InvalidOption("nodes", cluster.nodes, f"at least {REPLICAS}, one for each replica of a partition")
    widest, slots = profile.widest(), cluster.nodes * cluster.slots
    if slots < widest:
        found = f"{cluster.nodes} × {cluster.slots} = {slots} slots"
        raise InvalidOption("nodes", found, f"at least {widest} slots, for a stage of {widest} tasks to run at once")


def _simulated(points: Sequence[QueriesPoint]) -> Iterator[tuple[Point, Any, Any, Any]]:
    for number, point in enumerate(points):
        yield recorded_run(number, point, point.simulate())


@click.pass_context
def _queries(ctx: click.Context, /, report: str | None, as_json: bool, **values: Any) -> None:
    points = _points(values, stated(ctx, values))
    try:
        from loadgen import output
    except ImportError:
        raise InvalidOption("queries", "queries", f"nothing without {install_command('loadgen')}") from None
    done = []
    for recorded in _simulated(points):
        done.append(recorded if report else (recorded[0], None, None, None))
        if as_json:
            click.echo(output.as_json(recorded[0], None))
    if not as_json:
        output.show([point for point, *_ in done])
    if report:
        _write(report, done)


def _write(directory: str, done: list[tuple[Point, Any, Any, Any]]) -> None:
    import pyarrow

    from loadgen.recorded import Header, Run, write_run
    from loadgen.report import write_report

    profiles = in_words(point.settings["profile"] or "of its own" for point, *_ in done)
    header = Header(
        title=f"{TITLE}; {profiles}",
        command="python -m simulator " + shlex.join(sys.argv[1:]),
        points=[point for point, *_ in done],
    )
    tables = (pyarrow.concat_tables([row[place] for row in done]) for place in (1, 2, 3))
    run: Run = Run(header, *tables)
    write_run(directory, run)
    click.echo(f"wrote {write_report(directory)}", err=True)


queries_command = FlagCommand(
    "queries",
    callback=_queries,
    params=[
        click.Option(["--nodes"], type=int, default=100, help="Node monitors."),
        click.Option(["--slots"], type=int, default=8, help="Tasks that each runs at a time."),
        click.Option(["--schedulers"], type=int, default=10, help="Schedulers; of central ones one."),
        click.Option(["--rtt-ms"], type=float, default=1.0, help="Round trip of the network, in ms."),
        click.Option(
            ["--placement"], default="sparrow,random",
            help=f"{', '.join(POLICIES)}; several, separated by commas, meet the same queries.",
        ),
        click.Option(["--load"], default="0.65", help="Work that arrives over what the slots can do; or several."),
        click.Option(["--jobs"], default="4000",
            help="How many queries; or several, to see whether figures stay. 4000 take about 25 s for each placement, "
            "and others in proportion.",
        ),
        click.Option(
            ["--stretch"], default="1", help="Tasks take so many times as long as recorded; or several."
        ),
        click.Option(["--users"], type=int, default=10, help="Each launches random permutations of the queries."),
        click.Option(["--queries"], default=",".join(PAPER_QUERIES), metavar="Q,…", help="Which of them, or all."),
        click.Option(
            ["--data"], type=click.Choice(PLACES), default="striped",
            help="How partitions lie on the nodes: each node with as many as any other, or at random.",
        ),
        click.Option(
            ["--recorded"], default=str(PROFILE), metavar="FILE", help="Recorded queries.", show_default=False
        ),
        click.Option(
            ["--profile"], default=DEFAULT, help=f"Settings of the daemons: {', '.join(PROFILES)}; or both, by a comma."
        ),
        *options_of(Settings, {"probe_ratio": "d: reservations (probes) per task, from 1."}),
        click.Option(["--seed"], type=int, default=1, help="The same seed gives the same run."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object a point instead of a table."),
        click.Option(["--report"], metavar="DIR", help="Write what was recorded, and a report, into this directory."),
    ],
    help="Simulate TPC-H-like queries with recorded durations, of ten users, and make the report of a load run.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)  # fmt: skip
