"""`sparrow workflow`: runs and explains workflows, measures engines, shows which there are and what history knows."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontends.cli.connection import connection_options
from frontends.cli.ranges import NumberRange
from frontends.cli.stopping import exit_on_signals
from frontends.cli.tables import json_text, print_table
from frontends.workflow.extra import needs_extra
from sparrow_py.counted import counted
from sparrow_py.daemon.command_group import ERROR_EXIT, USAGE_EXIT
from sparrow_py.logs.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from frontends.workflow.api import Answer, Explained, Workflow
    from frontends.workflow.engines.base import Engine
    from frontends.workflow.errors import InvalidWorkflow
    from frontends.workflow.table_files import Unopened
    from sparrow_py.access.credentials import Access

LANGUAGES = ("hive", "beer", "gas", "lindi", "ir")
ROWS_PRINTED_MAX = 200
"""Rows of a result that are printed as a table; CSV and JSON have all."""
CALIBRATION_ROWS_MIN = 1_000
"""Of the tables with which engines are measured: smaller ones take no time that could be told from a start's."""
FILE_SUFFIXES = (".parquet", ".csv", ".tsv", ".tbl")
PICTURES = ("html", "dot")
"""Options that name a file into which the plan is written."""


class WorkflowGroup(click.Group):
    """Commands whose errors point at a place in the text of a workflow, on lines of their own."""

    def invoke(self, ctx: click.Context) -> Any:
        """What the command returns; `USAGE_EXIT` for a workflow that cannot be, of which stderr says why and where."""
        with needs_extra():
            from frontends.workflow.errors import InvalidWorkflow
        try:
            return super().invoke(ctx)
        except InvalidWorkflow as error:
            first, *pointed = error.lines
            click.echo("\n".join((f"sparrow: {printable(first + _hint(error))}", *pointed)), err=True)
            return USAGE_EXIT


@click.group(cls=WorkflowGroup, short_help="Run workflows on the engines that do them fastest.")
def workflow() -> None:
    """Run a workflow, written once, on the engine or the mix of engines that does it fastest (docs/workflow.md).

    \b
    Examples:
      sparrow workflow run dearest.hql --data sales=sales.parquet
      sparrow workflow explain pagerank.gas --data edges=edges.parquet --data vertices=vertices.parquet --code
      sparrow workflow run -s 10.0.0.1:20503 --store /shared/workflows --out result.parquet netflix.beer --data /data
    """


def _planned(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of what plans a workflow."""
    for option in reversed(
        (
            click.option(
                "--data", "data", metavar="NAME=PATH", multiple=True,
                help="A table: a Parquet or CSV file; or DIR: each such file in it, by its name.",
            ),
            click.option("--language", type=click.Choice(LANGUAGES), help="Default: by suffix."),
            click.option("--strict-hive", is_flag=True, help="HiveQL without the forms of the thesis's listings."),
            click.option("--engine", "engines", metavar="NAME", multiple=True, help="Use these engines alone."),
            click.option("--off", metavar="RULE", multiple=True, help="Switch a rule off; a wrong name lists them."),
            click.option("--cpu-bias", type=NumberRange(0, 1), default=0.0, show_default=True,
                         help="How far CPU seconds count in the place of seconds."),
            click.option("--history", metavar="FILE", help="Default: that of this user."),
            click.option("--no-history", is_flag=True, help="Neither use nor write a history."),
            click.option("--html", metavar="FILE", help="Write the plan as a page."),
            click.option("--dot", metavar="FILE", help="Write the plan as DOT, for Graphviz."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@workflow.command(short_help="Run a workflow.")
@connection_options
@_planned
@click.option("--out", metavar="PATH", help="A Parquet file for one result, a directory for several. Default: print.")
@click.option("--csv", "style", flag_value="csv", help="Print CSV.")
@click.option("--json", "style", flag_value="json", help="Print JSON, a list of objects for each result.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and run nothing.")
@click.option("--resume", is_flag=True, help="Go on with an interrupted run of this workflow on these tables.")
@click.option("--store", metavar="DIR", help="Directory between jobs, which all nodes must see.")
@click.option("--store-bytes-max", type=click.IntRange(min=1), metavar="BYTES", help="Of one run. Default: 64 GiB.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="CPUs of each job. Default: a node's.")
@click.option(
    "--memory-bytes-max", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Of each job's process."
)
@click.option("--where", metavar="PREDICATE", multiple=True, help="Only nodes with such an attribute.")
@click.option(
    "--task-timeout", "task_timeout_s", type=NumberRange(0, min_open=True), metavar="SECONDS",
    help="Stop a job that runs longer; another engine gets what it was to do.",
)  # fmt: skip
@click.option("--progress/--no-progress", default=True, help="Say on stderr how the jobs go (default).")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def run(file: str, schedulers: list[str], access: Access, **options: Any) -> int:
    """Run the workflow in FILE.

    Relations that no statement reads are its results. Without schedulers the command brings its own cluster.
    """
    exit_on_signals()
    with needs_extra():
        from frontends.workflow.api import WARM_OPTIONS
        from frontends.workflow.running.errors import WorkflowFailed
        from frontends.workflow.running.run import check_out
        from frontends.workflow.table_files import given_tables
    _check_pictures(options)
    made = _workflow(file, options)
    tables = given_tables(named_tables(options["data"]))
    dag = made.dag(tables)  # A workflow that cannot be fails before a cluster is started.
    out = _out(options["out"], dag.results)
    check_out(dag, tables, out)
    if options["dry_run"]:
        explained = made.explain(
            schedulers or None, tables=tables, token=access.token or None, tls=access.tls, where=options["where"],
            **_planning(options),
        )  # fmt: skip
        click.echo(explained.text(), nl=False)
        _write_pictures(explained, options, file)
        return 0
    with ExitStack() as stack:
        cluster: Any = list(schedulers)
        if not schedulers:
            from sparrow_py import LocalCluster

            cluster = stack.enter_context(LocalCluster(node_options=WARM_OPTIONS, forward_output=False))
        try:
            answer = made.run(
                cluster,
                tables=tables,
                out=out,
                observers=[_Progress()] if options["progress"] else [],
                token=access.token or None,
                tls=access.tls,
                **_planning(options),
                **{
                    name: options[name]
                    for name in (
                        "resume", "store", "store_bytes_max", "threads", "memory_bytes_max", "where", "task_timeout_s",
                    )
                },
            )  # fmt: skip
        except WorkflowFailed as error:
            lines = [f"sparrow: the workflow failed: {error.reason}", *(f"  before: {one}" for one in error.earlier)]
            if error.resumable:
                lines.append("with --resume it goes on after the jobs that are done")
            click.echo("\n".join(map(printable, lines)), err=True)
            return ERROR_EXIT
    if options["progress"]:
        click.echo(f"sparrow: jobs: {len(answer.jobs)}, in {answer.seconds:.2f} s", err=True)
    if out is None:
        _print_results(answer.tables, options["style"])
    _write_pictures(answer, options, file)
    return 0


@workflow.command(short_help="Show the plan of a workflow.")
@connection_options
@_planned
@click.option("--code", is_flag=True, help="Print the script of each job, too.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def explain(file: str, schedulers: list[str], access: Access, code: bool, **options: Any) -> None:
    """Show the jobs of the workflow in FILE, their engines, costs, bounds and runners-up, and run nothing.

    Without schedulers the engines are those that are installed here.
    """
    _check_pictures(options)
    made = _workflow(file, options)
    tables = named_tables(options["data"])
    explained = made.explain(
        list(schedulers) or None, tables=tables, token=access.token or None, tls=access.tls, **_planning(options)
    )
    click.echo(explained.text(), nl=False)
    if code:
        for title, script in explained.code():
            click.echo(f"\n# ---- {title}\n\n{script}", nl=False)
    _write_pictures(explained, options, file)


@workflow.command(short_help="Measure the engines of this machine.")
@click.option("--engine", "engines", metavar="NAME", multiple=True, help="Only these. Default: all that are installed.")
@click.option(
    "--rows", type=click.IntRange(min=CALIBRATION_ROWS_MIN), multiple=True, metavar="N",
    help=f"Sizes of tables, two at least, from {CALIBRATION_ROWS_MIN:,}. Default: 20,000, 200,000 and 1,000,000.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True)
@click.option("--calibration", metavar="FILE", help="Default: that of this user.")
def calibrate(engines: tuple[str, ...], rows: tuple[int, ...], threads: int, calibration: str | None) -> None:
    """Measure start-up, reading, writing and each operator, at three sizes, so that plans go by this machine.

    Engines that are not measured keep what is known of them.
    """
    with needs_extra():
        from frontends.workflow.engines import engine as engine_of
        from frontends.workflow.engines import installed
        from frontends.workflow.mapping import calibration as calibrations
        from frontends.workflow.user_files import calibration_path
        from frontends.workflow.warm_engines.measuring import calibrated
    if len(set(rows)) == 1:
        raise click.BadParameter(f"{rows[0]}: two different numbers at least", param_hint="--rows")
    chosen = [engine_of(name) for name in engines] or list(installed())
    for one in chosen:
        one.check_installed()
    path = Path(calibration) if calibration else calibration_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    made = calibrated(
        chosen,
        calibrations.load(path),
        threads,
        rows or calibrations.SIZES_ROWS,
        lambda text: click.echo(f"sparrow: {text}", err=True),
    )
    calibrations.save(made, path)
    mib = 2.0**20
    print_table(
        ("ENGINE", "COLD S", "WARM S", "PULL MB/S", "PUSH MB/S", "JOIN MB/S", "CPUS"),
        [
            (
                name,
                f"{one.start_cold_s:.2f}",
                f"{one.start_warm_s:.3f}",
                f"{one.pull_bytes_per_s / mib:,.0f}",
                f"{one.push_bytes_per_s / mib:,.0f}",
                f"{one.process('JOIN') / mib:,.0f}",
                f"{one.cpus:.1f}",
            )
            for name, one in sorted(made.engines.items())
        ],
    )


@workflow.command(short_help="Show the engines.")
@connection_options
def engines(schedulers: list[str], access: Access) -> None:
    """Show which engines are installed here, or with schedulers which their nodes have."""
    with needs_extra():
        from frontends.workflow.api import offered_engines
        from frontends.workflow.engines import engines as all_engines
    if schedulers:
        found = offered_engines(list(schedulers), access.token or None, access.tls)
        print_table(
            ("ENGINE", "VERSIONS", "NODES", "CPUS", "WARM"),
            [
                (one.engine, ", ".join(one.versions), len(one.nodes), one.cpus, "yes" if one.warm else "no")
                for one in found.values()
            ],
        )
        return
    print_table(
        ("ENGINE", "VERSION", "TO INSTALL"),
        [(name, one.version() or "-", _to_install(one)) for name, one in all_engines().items()],
    )


@workflow.command(short_help="Show or forget what earlier runs have shown.")
@click.option("--history", metavar="FILE", help="Default: that of this user.")
@click.option("--clear", is_flag=True, help="Forget everything.")
def history(history: str | None, clear: bool) -> None:
    """Show how many sizes of relations and times of jobs earlier runs have left, from which plans are made."""
    with needs_extra():
        from frontends.workflow.running.planning import history_at
        from frontends.workflow.user_files import history_path
    path = Path(history) if history else history_path()
    with history_at(path) as file:
        if clear:
            file.clear()
        counts = file.counts()
    click.echo(
        f"{path}: sizes of {counted(counts['relations'], 'relation')}, times of {counted(counts['runs'], 'job')}"
    )


def _to_install(engine: Engine) -> str:
    """What the engine lacks here; empty if nothing."""
    packages, program = engine.missing_packages(), engine.missing_program()
    parts = [f"{', '.join(packages)} (extra {engine.extra})"] if packages else []
    return "; ".join([*parts, *([program] if program else [])])


def _hint(error: InvalidWorkflow) -> str:
    """What an option does about the error; empty if none does."""
    from frontends.workflow.errors import UnknownRelation

    if isinstance(error, UnknownRelation) and not error.known:
        return f"; give the table's file: --data {error.name}=PATH"
    return ""


# ---- parts ---------------------------------------------------------------------------------------


def _workflow(file: str, options: dict[str, Any]) -> Workflow:
    with needs_extra():
        from frontends.workflow.api import Workflow as Made
    return Made.from_file(file, options["language"], strict=options["strict_hive"])


def _planning(options: dict[str, Any]) -> dict[str, Any]:
    """The options that planning takes, by the names of `RunOptions`."""
    found = {"engines": options["engines"], "off": options["off"], "cpu_bias": options["cpu_bias"]}
    if options["no_history"]:
        found["history"] = None
    elif options["history"]:
        found["history"] = options["history"]
    return found


def named_tables(data: Sequence[str]) -> dict[str, str | Unopened]:
    """{table: file} of `NAME=PATH` and `DIR`; an error for one that is neither, or names a table again."""
    from frontends.workflow.table_files import Unopened

    found: dict[str, str | Unopened] = {}
    named: list[tuple[str, str | Unopened]]
    for text in data:
        name, equals, path = text.partition("=")
        if equals and name and path:
            named = [(name, path)]
        elif Path(text).is_dir():
            named = [
                (one.stem, Unopened(one)) for one in sorted(Path(text).iterdir()) if one.suffix.lower() in FILE_SUFFIXES
            ]
        else:
            raise click.BadParameter(
                f"{text!r}: NAME=PATH, or a directory of Parquet or CSV files", param_hint="--data"
            )
        for one, file in named:
            if one in found:
                raise click.BadParameter(
                    f"{str(file)!r}: the table {one} is there already, {str(found[one])!r}", param_hint="--data"
                )
            found[one] = file
    return found


def _out(out: str | None, results: tuple[str, ...]) -> dict[str, Path] | None:
    """A file for each result: the one that is named, or in the directory that is."""
    if out is None:
        return None
    if out == "-":
        raise click.BadParameter("'-': a file; without --out the results are printed", param_hint="--out")
    path = Path(out)
    if len(results) == 1 and not path.is_dir():
        _check_parent(out, "--out")
        return {results[0]: path}
    if path.is_file():
        names = ", ".join(results)
        raise click.BadParameter(f"{out!r}: a directory for the {len(results)} results {names}", param_hint="--out")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{out!r}: {error.strerror}", param_hint="--out") from None
    return {name: path / f"{name.replace('/', '_')}.parquet" for name in results}


def _check_pictures(options: dict[str, Any]) -> None:
    """An error for a file of the plan that cannot be, before anything runs."""
    for name in PICTURES:
        path = options[name]
        if not path:
            continue
        if Path(path).is_dir():
            raise click.BadParameter(f"{path!r}: a file is needed, and this is a directory", param_hint=f"--{name}")
        _check_parent(path, f"--{name}")


def _check_parent(path: str, option: str) -> None:
    parent = Path(path).parent
    if not parent.is_dir():
        raise click.BadParameter(f"{path!r}: there is no directory {parent}", param_hint=option)


def _write_pictures(what: Answer | Explained, options: dict[str, Any], file: str) -> None:
    """The files of the plan: last, as the results are worth more than these."""
    for name in PICTURES:
        if options[name]:
            text = what.html(Path(file).name) if name == "html" else what.dot()
            try:
                Path(options[name]).write_text(text, "utf-8")
            except OSError as error:
                raise click.ClickException(f"--{name} {options[name]!r}: {error.strerror or error}") from None


def _print_results(tables: dict[str, pa.Table] | Any, style: str | None) -> None:
    if style == "json":
        rows = {name: table.to_pylist() for name, table in tables.items()}
        shown: Any = next(iter(rows.values())) if len(rows) == 1 else rows
        click.echo(json_text(shown, str))
        return
    for name, table in tables.items():
        if len(tables) > 1:
            click.echo(f"{name}:")
        if style == "csv":
            import csv
            import sys

            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(table.column_names)
            writer.writerows(list(row.values()) for row in table.to_pylist())
            continue
        head = table.slice(0, ROWS_PRINTED_MAX)
        print_table(table.column_names, [[_cell(value) for value in row.values()] for row in head.to_pylist()])
        if table.num_rows > ROWS_PRINTED_MAX:
            click.echo(
                f"… {counted(table.num_rows - ROWS_PRINTED_MAX, 'more row')}; --out writes all of them", err=True
            )


def _cell(value: object) -> str | int:
    return "NULL" if value is None else value if isinstance(value, int) and not isinstance(value, bool) else str(value)


class _Progress:
    """Says on stderr which job runs, and how it went."""

    def started(self, job: Any) -> None:
        click.echo(f"sparrow: job {job.number} on {job.engine}: {', '.join(job.dag.results)}", err=True)

    def finished(self, job: Any, end: Any) -> None:
        rows = ", ".join(f"{name} has {counted(one.rows, 'row')}" for name, one in end.made.items())
        click.echo(f"sparrow: job {job.number} done in {end.wall_s:.2f} s: {rows}", err=True)

    def failed(self, failed: Any) -> None:
        click.echo(f"sparrow: {failed}", err=True)
