"""`python -m frontends.sql.record`: runs TPC-H queries, and writes how long each task of each stage took.

TPC-H-like traces are made from this profile:

    {"source": {"benchmark": "TPC-H", "scale": 1, "nodes": 2, "slots": 1, ...},
     "queries": {"q3": {"stages": [{"name": "scan", "after": [], "constrained": true,
                                    "durations_s": [[a number per task] per run]}, ...]}, ...}}

Durations are service times: the cluster runs few tasks at a time, so that they do not wait for each other's cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec

from frontends.sql.extra import needs_extra
from frontends.sql.tpch_queries import QUERIES, tpch_query
from sparrow_py import LocalCluster
from sparrow_py.daemon.command_group import exit_code, one_line
from sparrow_py.errors import SparrowError

with needs_extra():
    import duckdb

    from frontends.sql.frontend import Answer, SqlFrontend

RUNS_MAX = 1000
DIGITS = 5
"""Durations are written to 10 µs."""


class StageProfile(msgspec.Struct):
    """A stage. constrained: whether its tasks prefer nodes. durations_s: of each run, of each task."""

    name: str
    after: tuple[str, ...]
    constrained: bool
    durations_s: list[list[float]]


class QueryProfile(msgspec.Struct):
    """A query's stages, in an order in which they can run."""

    stages: list[StageProfile]


class Profile(msgspec.Struct):
    """What was recorded, and on what."""

    source: dict[str, str | int | float]
    queries: dict[str, QueryProfile]


def record(
    directory: str | Path,
    runs: int,
    *,
    nodes: int = 2,
    slots: int = 1,
    queries: Sequence[int] = tuple(range(1, QUERIES + 1)),
    note: str = "",
    say: Callable[[str], object] = lambda _: None,
) -> Profile:
    """Run the queries in turn, `runs` times, on a cluster of its own; one run more, the first, is not recorded.

    note: a remark on the machine, for the profile's readers.
    """
    profiles: dict[str, QueryProfile] = {}
    with LocalCluster(node_monitors=nodes, slots=slots) as cluster, SqlFrontend(cluster, directory) as frontend:
        say("loading")
        frontend.place(nodes)
        manifest = frontend.dataset.manifest
        for run in range(-1, runs):
            for number in queries:
                answer = frontend.run(tpch_query(number))
                if run >= 0:
                    _add_durations(profiles, f"q{number}", answer)
            say(f"run {run + 1} of {runs}")
    source: dict[str, str | int | float] = {
        "benchmark": "TPC-H",
        "scale": manifest.scale,
        "partitions": manifest.partitions,
        "nodes": nodes,
        "slots": slots,
        "replicas": nodes,
        "runs": runs,
        "engine": f"DuckDB {duckdb.__version__}, one thread per task",
        "note": note,
    }
    return Profile(source, profiles)


def _add_durations(profiles: dict[str, QueryProfile], name: str, answer: Answer) -> None:
    profile = profiles.get(name)
    if profile is None:
        stages = [StageProfile(stage.name, stage.after, stage.constrained, []) for stage in answer.stages]
        profile = profiles[name] = QueryProfile(stages)
    for stage, times in zip(profile.stages, answer.stages, strict=True):
        stage.durations_s.append([round(duration_s, DIGITS) for duration_s in times.service_s])


@click.command()
@click.option("--dir", "directory", required=True, metavar="DIR", help="The dataset.")
@click.option("--out", required=True, metavar="FILE", help="Where to write the profile.")
@click.option("--runs", type=click.IntRange(1, RUNS_MAX), default=10, show_default=True)
@click.option("--nodes", type=click.IntRange(1, 100), default=2, show_default=True, help="Nodes, which hold all data.")
@click.option("--slots", type=click.IntRange(1, 100), default=1, show_default=True, help="Slots of each node.")
@click.option("--query", "queries", type=click.IntRange(1, QUERIES), multiple=True, help="Only this; may be repeated.")
@click.option("--note", default="", help="A remark on the machine, kept in the profile.")
def main(directory: str, out: str, runs: int, nodes: int, slots: int, queries: tuple[int, ...], note: str) -> None:
    """Record the durations of the tasks of TPC-H queries."""
    chosen = queries or tuple(range(1, QUERIES + 1))
    try:
        profile = record(
            directory,
            runs,
            nodes=nodes,
            slots=slots,
            queries=chosen,
            note=note,
            say=lambda text: click.echo(text, err=True),
        )
    except SparrowError as error:
        click.echo(f"record: {one_line(error)}", err=True)
        sys.exit(exit_code(error))
    Path(out).write_bytes(_json_lines(profile))


def _json_lines(profile: Profile) -> bytes:
    """As JSON with a line for each stage."""
    source = msgspec.json.encode(profile.source)
    queries = []
    for name, query in profile.queries.items():
        stages = b",\n".join(b"   " + msgspec.json.encode(stage) for stage in query.stages)
        queries.append(b'  "' + name.encode() + b'": {"stages": [\n' + stages + b"\n  ]}")
    return b'{"source": ' + source + b',\n "queries": {\n' + b",\n".join(queries) + b"\n }}\n"


if __name__ == "__main__":
    main()
