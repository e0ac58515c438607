"""`sparrow sql`: queries over a TPC-H dataset; `generate` makes one, `place` has the nodes hold it."""

from __future__ import annotations

import csv
import statistics
import sys
from contextlib import ExitStack
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from frontends.cli.connection import connection_options
from frontends.cli.ranges import NumberRange
from frontends.cli.tables import json_text, print_table
from frontends.sql.extra import needs_extra
from frontends.sql.tpch import PARTITIONS, REPLICAS
from frontends.sql.tpch_queries import QUERIES, tpch_query

if TYPE_CHECKING:
    from frontends.sql.frontend import Answer, SqlFrontend
    from frontends.sql.plan import Plan
    from sparrow_py.access.credentials import Access

STAGE_COLUMNS = ("STAGE", "TASKS", "NODES", "RESPONSE MS", "SERVICE P50 MS", "SERVICE MAX MS", "ATTEMPTS")
data_option = click.option(
    "--data", "directory", metavar="DIR", required=True, help="The dataset, as `sparrow sql generate` has made it."
)


class _QueryByDefault(click.Group):
    """What is no subcommand is a query."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            args = ["query", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_QueryByDefault,
    short_help="Run SQL over a TPC-H dataset.",
    context_settings={"ignore_unknown_options": True},
)
def sql() -> None:
    """Run SQL over a TPC-H dataset that the nodes hold in memory.

    \b
    Examples:
      sparrow sql generate --scale 0.1 --dir /data/tpch
      sparrow sql place --data /data/tpch -s 10.0.0.1:20503
      sparrow sql "select count(*) from lineitem" --data /data/tpch -s 10.0.0.1:20503
      sparrow sql --tpch 3 --stages --data /data/tpch
    """


@sql.command(short_help="Run a query (may be left out).")
@connection_options
@data_option
@click.option("--tpch", type=click.IntRange(1, QUERIES), metavar="N", help="Query N of TPC-H instead of SQL.")
@click.option("--csv", "style", flag_value="csv", help="Print CSV, with a line of column names.")
@click.option("--json", "style", flag_value="json", help="Print a JSON list of objects.")
@click.option("--stages", is_flag=True, help="Print the time of each stage, on stderr.")
@click.option("--explain", is_flag=True, help="Print the stages and what their tasks run, and run nothing.")
@click.option("--timeout-s", type=NumberRange(min=0, min_open=True), help="Stop the query after this time.")
@click.argument("text", required=False, metavar="[SQL]")
def query(
    text: str | None, schedulers: list[str], access: Access, directory: str, tpch: int | None, **options: Any
) -> None:
    """Run a query, and print its result as a table.

    Without schedulers it brings its own cluster of one node, which loads the data first.
    """
    if (text is None) == (tpch is None):
        raise click.UsageError("give either SQL or --tpch N")
    wanted = tpch_query(tpch) if tpch is not None else text or ""
    plan = _compiled(directory, wanted)  # An invalid query fails before a cluster is started.
    if options["explain"]:
        _explain(plan)
        return
    with ExitStack() as stack:
        frontend = _frontend(stack, schedulers, access, directory)
        try:
            answer = frontend.run(wanted, options["timeout_s"])
        except TimeoutError as error:
            raise click.ClickException(str(error)) from None
    print_answer(answer, options["style"])
    if options["stages"]:
        print_stages(answer)


@sql.command(short_help="Make a TPC-H dataset.")
@click.option("--scale", type=float, required=True, help="Scale factor; 1 is 6 million items, 0.7 GB on disk.")
@click.option("--dir", "directory", metavar="DIR", required=True, help="Directory to make; all nodes must see it.")
@click.option("--name", default="tpch", show_default=True, help="What nodes call it.")
@click.option("--partitions", type=int, default=PARTITIONS, show_default=True)
def generate(scale: float, directory: str, name: str, partitions: int) -> None:
    """Make a TPC-H dataset as Parquet files: the denormalised table and orders in partitions, the others whole."""
    with needs_extra():
        from frontends.sql.generate import generate as make

    made = make(
        directory, scale, name=name, partitions=partitions, say=lambda text: click.echo(f"sparrow: {text}", err=True)
    )
    rows = made.manifest.rows
    print_table(("TABLE", "ROWS"), [(table, rows[table]) for table in sorted(rows, key=lambda table: -rows[table])])


@sql.command(short_help="Have the nodes hold a dataset.")
@connection_options
@data_option
@click.option("--replicas", type=int, default=REPLICAS, show_default=True, help="Nodes that hold each partition.")
def place(schedulers: list[str], access: Access, directory: str, replicas: int) -> None:
    """Have each partition held by --replicas nodes, or by all if there are fewer.

    Nodes keep the partitions that they hold. After nodes were lost or added, the same command loads what is missing.
    """
    if not schedulers:
        raise click.UsageError("name the schedulers with --scheduler")
    with ExitStack() as stack:
        frontend = _frontend(stack, schedulers, access, directory)
        added = frontend.place(replicas)
        rows = [(node.id, len(node.partitions), len(added.get(node.id, ()))) for node in frontend.nodes()]
    print_table(("NODE", "PARTITIONS", "LOADED NOW"), rows)


def _frontend(stack: ExitStack, schedulers: list[str], access: Access, directory: str) -> SqlFrontend:
    """A frontend that ends with the stack; without schedulers on a cluster of its own that holds the data."""
    with needs_extra():
        from frontends.sql.frontend import SqlFrontend
    if schedulers:
        return stack.enter_context(SqlFrontend(schedulers, directory, token=access.token or None, tls=access.tls))
    from sparrow_py import LocalCluster

    cluster = stack.enter_context(LocalCluster())
    frontend = stack.enter_context(SqlFrontend(cluster, directory))
    frontend.place(1)
    return frontend


def _compiled(directory: str, text: str) -> Plan:
    with needs_extra():
        from frontends.sql.compiler import compile_query
        from frontends.sql.dataset import Dataset
    return compile_query(text, Dataset(directory).statistics)


def _explain(plan: Plan) -> None:
    for stage in plan.stages:
        tasks = "a task per partition" if stage.partitioned else f"tasks: {stage.tasks}"
        after = f", after {', '.join(stage.after)}" if stage.after else ""
        click.echo(f"{stage.name} ({tasks}{after})\n  {stage.sql}")


def print_answer(answer: Answer, style: str | None) -> None:
    """Print the result as a table, or in the style asked for."""
    names = answer.table.column_names
    rows = list(zip(*(column.to_pylist() for column in answer.table.columns), strict=True))
    if style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    elif style == "json":
        click.echo(json_text([dict(zip(names, row, strict=True)) for row in rows], _json_value))
    else:
        print_table(names, [[value if isinstance(value, int) else _cell(value) for value in row] for row in rows])


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


def _json_value(value: object) -> object:
    """A value of a type that JSON lacks: decimals become numbers, dates and others text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def print_stages(answer: Answer) -> None:
    """Print, on stderr, how each stage went."""
    from rich.console import Console

    rows = [
        (
            stage.name,
            len(stage.service_s),
            len(set(stage.nodes)),
            f"{stage.response_s * 1e3:.1f}",
            f"{statistics.median(stage.service_s) * 1e3:.1f}",
            f"{max(stage.service_s) * 1e3:.1f}",
            stage.attempts,
        )
        for stage in answer.stages
    ]
    print_table(STAGE_COLUMNS, rows, Console(stderr=True, width=200))
    click.echo(f"response: {answer.response_s * 1e3:.1f} ms", err=True)
