"""`python -m loadgen trace`: write workloads as traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loadgen.tpch import PAPER_QUERIES, PLACES, PROFILE, TpchLike, read_profile
from loadgen.traces import as_json
from sparrow_py.errors import InvalidOption


def _tpch(out: str, recorded: str, queries: str, nodes: int, slots: int, seed: int, **values: Any) -> None:
    for name, value in (("nodes", nodes), ("slots", slots)):
        if not 1 <= value <= 1_000_000:
            raise InvalidOption(name, value, "a whole number from 1 to 1000000")
    profile = read_profile(Path(recorded))
    names = list(profile.queries) if queries == "all" else queries.split(",")
    workload = TpchLike(profile=profile.only(names), **values)
    path = Path(out)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            for job in workload.generate(seed, nodes, slots):
                file.write(as_json(job) + b"\n")
        part.replace(path)
    except OSError as error:
        raise InvalidOption("out", out, f"a file that can be written ({error.strerror})") from None
    click.echo(f"{workload.jobs:,} jobs, {workload.jobs_per_s(nodes, slots):.1f} a second, in {out}", err=True)


_tpch_command = click.Command(
    "tpch",
    callback=_tpch,
    params=[
        click.Option(["--out"], required=True, metavar="FILE", help="Where the trace goes."),
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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
trace_command = click.Group("trace", commands=[_tpch_command], help="Write a workload as a trace.")
