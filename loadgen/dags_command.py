"""`python -m loadgen dags`: workloads of DAG jobs for the altruistic scheduler, and how they are beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from loadgen.dags.alibaba import JOBS_MAX as ALIBABA_JOBS_MAX
from loadgen.dags.alibaba import read_alibaba
from loadgen.dags.arriving import MEAN_S, as_of, as_poisson, at_once
from loadgen.dags.dag_figures import DagFigures, beside_paper, figures
from loadgen.dags.dag_files import read_dags, write_dags
from loadgen.dags.dag_job import DagJob
from loadgen.dags.generators import WORKLOADS
from loadgen.dags.map_reduce import LABEL as MAP_REDUCE
from loadgen.dags.map_reduce import MapReduceMix
from loadgen.dags.paper_tables import TABLE, TPCH, Spread
from loadgen.dags.resources import MACHINES, RESOURCES
from loadgen.dags.tpch_jobs import SCALES, STRETCH, TpchJobs
from loadgen.dags.tpch_profile import PROFILE, as_json, read_tpch_dags
from sparrow_py.counted import counted
from sparrow_py.errors import InvalidOption

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
ONCE, POISSON = "once", "poisson"
KINDS = (*WORKLOADS, TPCH, MAP_REDUCE)
JOBS = 250
"""Of a run of the paper (§5.1)."""


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise InvalidOption(name, text, "numbers with commas between them") from None


def _arrivals(arrivals: str, seed: int, jobs: int, mean_s: float) -> list[float]:
    if jobs < 1:
        raise InvalidOption("jobs", jobs, "a whole number from 1")
    if arrivals == ONCE:
        return at_once(jobs)
    return as_poisson(seed, jobs, mean_s) if arrivals == POISSON else as_of(read_dags(arrivals), jobs)


def _generate(
    workload: str, out: str, jobs: int, seed: int, arrivals: str, mean_s: float, users: int, scales: str,
    stretch: float, recorded: str, map_only: float,
) -> None:  # fmt: skip
    times = _arrivals(arrivals, seed, jobs, mean_s)
    made: Iterator[DagJob]
    if workload == TPCH:
        profile = read_tpch_dags(Path(recorded))
        tpch = TpchJobs(profile=profile, scales=_numbers("scales", scales), stretch=stretch, users=users)
        made = tpch.generate(seed, times)
    elif workload == MAP_REDUCE:
        made = MapReduceMix(map_only=map_only, users=users).generate(seed, times)
    else:
        made = replace(WORKLOADS[workload], users=users).generate(seed, times)
    click.echo(f"{counted(write_dags(out, made), 'job')} in {out}", err=True)


def _alibaba(path: str, out: str, jobs: int) -> None:
    found, left_out = read_alibaba(path, jobs)
    click.echo(f"{counted(write_dags(out, found), 'job')} in {out}", err=True)
    for reason, count in sorted(left_out.items()):
        click.echo(f"left out: {counted(count, 'job')} {reason}", err=True)


def _describe(file: str, like: str | None) -> None:
    jobs = list(read_dags(file))
    if not jobs:
        raise InvalidOption("workload", file, "a file with at least one job")
    workload = like or jobs[0].name.rpartition("-")[0]
    for line in description(figures(jobs), workload):
        click.echo(line)


def description(found: DagFigures, workload: str) -> list[str]:
    """What people read of a workload: its figures, those of the paper's tables beside these."""
    lines = [f"| {counted(found.jobs, 'job')} | ours | the paper's |", "|---|---|---|"]
    for name, ours, theirs in beside_paper(found, workload):
        lines.append(f"| {name} | {_shown(name, ours)} | {'' if theirs is None else _shown(name, theirs)} |")
    lines += ["", "| | p50 | p95 |", "|---|---|---|"]
    lines += [
        f"| tasks of a job | {found.tasks.p50:,.0f} | {found.tasks.p95:,.0f} |",
        f"| seconds of a task | {found.duration_s.p50:.3g} | {found.duration_s.p95:.3g} |",
        f"| seconds of a job, alone | {found.critical_path_s.p50:.4g} | {found.critical_path_s.p95:.4g} |",
    ]
    lines += [f"| {resource} of a task, of a machine | {_shares(share)} |" for resource, share in found.share.items()]
    lines += [
        "",
        f"| of {counted(found.all_tasks, 'task')} | demanded most, of the work | load of {MACHINES} machines |",
    ]
    lines += ["|---|---|---|"]
    for resource, part in found.dominant.items():
        load = "at once" if found.load is None else f"{found.load[resource]:.2f}"
        lines.append(f"| {resource} | {part:.0%} | {load} |")
    lines += ["", f"| median of a task | of the work | seconds | {' | '.join(RESOURCES)} |"]
    lines += ["|---" * (3 + len(RESOURCES)) + "|"]
    for kind, one in found.kinds.items():
        amounts = " | ".join(f"{one.demand[resource]:.3g}" for resource in RESOURCES)
        lines.append(f"| {kind or 'task'} | {one.part:.0%} | {one.duration_s:.3g} | {amounts} |")
    return lines


def _shown(name: str, value: float) -> str:
    return f"{value:.0%}" if name.startswith("input_work") else f"{value:.4g}"


def _shares(share: Spread) -> str:
    return f"{share.p50:.1%} | {share.p95:.1%}"


def _record(out: str, scales: str, runs: int, queries: Sequence[int], note: str) -> None:
    from frontends.sql.extra import needs_extra

    with needs_extra():
        from loadgen.dags.tpch_recording import record

    both = _numbers("scales", scales)
    if len(both) != 2:
        raise InvalidOption("scales", scales, "two numbers with a comma between them")
    if not 1 <= runs <= 1000:
        raise InvalidOption("runs", runs, "a whole number from 1 to 1000")
    chosen = {"queries": queries} if queries else {}
    made = record((both[0], both[1]), runs=runs, note=note, say=lambda text: click.echo(text, err=True), **chosen)
    try:
        Path(out).write_bytes(as_json(made))
    except OSError as error:
        raise InvalidOption("out", out, f"a file that can be written ({error.strerror})") from None


OUT = click.Option(["--out"], required=True, metavar="FILE", help="Where the workload goes: a job a line, as JSON.")
_generate_command = click.Command(
    "generate",
    callback=_generate,
    params=[
        click.Argument(["workload"], type=click.Choice(KINDS)),
        OUT,
        click.Option(["--jobs"], type=int, default=JOBS, help="How many."),
        click.Option(["--seed"], type=int, default=1, help="The same seed gives the same bytes."),
        click.Option(
            ["--arrivals"],
            default=POISSON,
            metavar="WHEN",
            help=f"{ONCE}, {POISSON}, or a file with a workload: when its first jobs do.",
        ),
        click.Option(["--mean-s"], type=float, default=MEAN_S, help=f"Between two arrivals of {POISSON}."),
        click.Option(["--users"], type=int, default=1, help="Who submit jobs in turn."),
        click.Option(
            ["--scales"],
            default=",".join(f"{scale:g}" for scale in SCALES),
            metavar="S,…",
            help="Scale factors of the data, of tpch.",
        ),
        click.Option(
            ["--stretch"], type=float, default=STRETCH, help="How many times the measured CPU time tasks take, of tpch."
        ),
        click.Option(
            ["--recorded"], default=str(PROFILE), metavar="FILE", show_default=False, help="Measured queries, of tpch."
        ),
        click.Option(
            ["--map-only"],
            type=float,
            default=MapReduceMix.map_only,
            help=f"The part of the jobs that do not reduce, of {MAP_REDUCE}.",
        ),
    ],
    help="Make up jobs like those of a workload of paper 002.",
    context_settings=CONTEXT,
)
_alibaba_command = click.Command(
    "alibaba",
    callback=_alibaba,
    params=[
        click.Argument(["path"], metavar="BATCH_TASK"),
        OUT,
        click.Option(["--jobs"], type=int, default=ALIBABA_JOBS_MAX, help="At most, from the table's beginning."),
    ],
    help="The jobs of a trace in the format of Alibaba's of 2018: the table batch_task, a file or a directory of them.",
    context_settings=CONTEXT,
)
_describe_command = click.Command(
    "describe",
    callback=_describe,
    params=[
        click.Argument(["file"], metavar="FILE"),
        click.Option(
            ["--like"], type=click.Choice(tuple(TABLE)), default=None, help="The paper's workload to put beside."
        ),
    ],
    help="Print a workload's figures beside those of the paper's tables 1 and 2.",
    context_settings=CONTEXT,
)
_record_command = click.Command(
    "record",
    callback=_record,
    params=[
        click.Option(["--out"], required=True, metavar="FILE", help="Where the profile goes."),
        click.Option(["--scales"], default="0.05,0.5", metavar="S,S", help="Scale factors of the data."),
        click.Option(["--runs"], type=int, default=3, help="Of each query; the least CPU time counts."),
        click.Option(
            ["--query", "queries"], type=click.IntRange(1, 22), multiple=True, help="Only this; may be repeated."
        ),
        click.Option(["--note"], default="", help="A remark on the machine, kept in the profile."),
    ],
    help="Measure the stages of TPC-H's queries with DuckDB, for the workload tpch. It needs the extra sql.",
    context_settings=CONTEXT,
)
dags_command = click.Group(
    "dags",
    commands=[_generate_command, _alibaba_command, _describe_command, _record_command],
    help="Workloads of DAG jobs for the altruistic scheduler.",
)
