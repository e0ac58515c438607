"""`python -m loadgen trace`: write workloads as traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from loadgen.google_like import MACHINES, GoogleLike
from loadgen.google_trace import read_google_trace
from loadgen.jobs import WorkloadJob
from loadgen.openb_trace import read_openb_trace
from loadgen.tpch import PAPER_QUERIES, PLACES, PROFILE, TpchLike, read_profile
from loadgen.traces import as_json
from sparrow_py.counted import counted
from sparrow_py.errors import InvalidOption

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
OUT = click.Option(["--out"], required=True, metavar="FILE", help="Where the trace goes.")


def _write(out: str, jobs: Iterable[WorkloadJob]) -> int:
    """Write a trace, whole or not at all; how many jobs it has."""
    path = Path(out)
    part = path.with_name(path.name + ".part")
    count = 0
    try:
        with part.open("wb") as file:
            for job in jobs:
                file.write(as_json(job) + b"\n")
                count += 1
        part.replace(path)
    except OSError as error:
        raise InvalidOption("out", out, f"a file that can be written ({error.strerror})") from None
    return count


def _google_like(out: str, machines: int, speedup: float, seconds: float, seed: int) -> None:
    workload = GoogleLike(machines=machines, speedup=speedup, seconds=seconds)
    count = _write(out, workload.generate(seed, machines, 1))
    click.echo(f"{counted(count, 'job')}, {workload.tasks_per_s:.1f} tasks a second on average, in {out}", err=True)


def _reader(name: str, read: Callable[[str], Iterable[WorkloadJob]], source: str, text: str) -> click.Command:
    """The command that writes what is read of a trace in another format; `source` says what its argument is."""

    def write(out: str, path: str) -> None:
        click.echo(f"{counted(_write(out, read(path)), 'job')} in {out}", err=True)

    argument = click.Argument(["path"], metavar=source)
    return click.Command(name, callback=write, params=[OUT, argument], help=text, context_settings=CONTEXT)


def _tpch(out: str, recorded: str, queries: str, nodes: int, slots: int, seed: int, **values: Any) -> None:
    for name, value in (("nodes", nodes), ("slots", slots)):
        if not 1 <= value <= 1_000_000:
            raise InvalidOption(name, value, "a whole number from 1 to 1000000")
    profile = read_profile(Path(recorded))
    names = list(profile.queries) if queries == "all" else queries.split(",")
    workload = TpchLike(profile=profile.only(names), **values)
    _write(out, workload.generate(seed, nodes, slots))
    click.echo(f"{counted(workload.jobs, 'job')}, {workload.jobs_per_s(nodes, slots):.1f} a second, in {out}", err=True)


_tpch_command = click.Command(
    "tpch",
    callback=_tpch,
    params=[
        OUT,
        click.Option(["--users"], type=int, default=10, help="Each launches random permutations of the queries."),
        click.Option(["--load"], type=float, default=0.65, help="Work that arrives over what the slots can do."),
        click.Option(["--jobs"], type=int, default=1000, help="How many queries."),
        click.Option(["--stretch"], type=float, default=1.0, help="Tasks take so many times as long as recorded."),
        click.Option(["--nodes"], type=int, default=100, help="Nodes of the cluster that it is for."),
        click.Option(["--slots"], type=int, default=4, help="Slots of each of them."),
        click.Option(["--seed"], type=int, default=1, help="The same seed gives the same trace."),
        click.Option(["--queries"], default=",".join(PAPER_QUERIES), metavar="Q,…", help="Which of them, or all."),
        click.Option(
            ["--data"],
            type=click.Choice(PLACES),
            default="striped",
            help="How partitions lie on the nodes: each node with as many as any other, or at random.",
        ),
        click.Option(
            ["--recorded"], default=str(PROFILE), metavar="FILE", help="Recorded queries.", show_default=False
        ),
    ],
    help="TPC-H-like queries, with the stages and durations of recorded runs.",
    context_settings=CONTEXT,
)
_google_like_command = click.Command(
    "google-like",
    callback=_google_like,
    params=[
        OUT,
        click.Option(["--machines"], type=int, default=MACHINES, help="Of the cluster that it is for."),
        click.Option(["--speedup"], type=float, default=1.0, help="Tasks are so many times as short, and as many."),
        click.Option(["--seconds"], type=float, default=600.0, help="How long jobs arrive."),
        click.Option(["--seed"], type=int, default=1, help="The same seed gives the same trace."),
    ],
    help="Batch jobs like those of Google's cluster of 2011, from what is published of it; the services and tasks that "
    "run there when the trace begins are not in it.",
    context_settings=CONTEXT,
)
_google_command = _reader(
    "google",
    read_google_trace,
    "TASK_EVENTS",
    "The jobs of a trace in the format of Google's of 2011: the table task_events, a file or a directory of them.",
)
_openb_command = _reader(
    "openb",
    read_openb_trace,
    "PODS",
    "The pods of a trace in the format of Alibaba's of 2023 (openb_pod_list_*.csv).",
)
trace_command = click.Group(
    "trace",
    commands=[_tpch_command, _google_like_command, _google_command, _openb_command],
    help="Write a workload as a trace.",
)
