"""`sparrow dataflow`: `run` runs a Python file that makes a Dataflow, and says where and how."""

from __future__ import annotations

import builtins
import os
import sys
import traceback
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from frontends.cli.connection import connection_options
from frontends.cli.stopping import exit_on_signals
from frontends.dataflow.errors import SettingsConflict
from frontends.dataflow.run_settings import PARTITIONS_MAX, PLANES, WORKERS_MAX, RunSettings, put_in_force
from sparrow_py.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from frontends.dataflow.timeline import Timeline
    from sparrow_py.access.credentials import Access

FAILED_EXIT = 1
WITHOUT_WORKERS = "inline"


class _FileCommand(click.Command):
    """A command before whose file's own options stands `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = f"No such option: {error.option_name}; options of FILE itself go after --"
            raise click.NoSuchOption(error.option_name, message, error.possibilities, error.ctx) from None


@click.group(short_help="Run programs over partitioned arrays.")
def dataflow() -> None:
    """Run programs over partitioned arrays (docs/dataflow.md).

    \b
    Examples:
      sparrow dataflow run examples/dataflow/kmeans.py --plane local --workers 2
    """


@dataflow.command(cls=_FileCommand, short_help="Run a Python file that makes a Dataflow.")
@connection_options
@click.option("--plane", type=click.Choice(PLANES), help="Who decides which task runs where. Default: inline.")
@click.option("--workers", type=click.IntRange(1, WORKERS_MAX), metavar="N", help="Workers wanted. Default: 1.")
@click.option(
    "--partitions",
    type=click.IntRange(1, PARTITIONS_MAX),
    metavar="N",
    help="Partitions of datasets. Default: 4 a worker.",
)
@click.option("--snapshot-dir", metavar="DIR", help="Where snapshots are kept, one a minute. Default: none are made.")
@click.option("--progress/--no-progress", default=None, help="Show on a terminal how the program does (default).")
@click.option("--timeline", metavar="HTML", help="Write a page that shows which stage ran when.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARG...]")
def run(file: str, argv: tuple[str, ...], schedulers: list[str], access: Access, **options: Any) -> int:
    """Run FILE as `python FILE ARG...` does, and say of the Dataflows that it makes what it leaves open.

    A Dataflow of the file has the plane, workers, partitions and so on that are stated here, unless
    the file states its own. If both state one and they differ, that is an error.

    A plane with workers needs a cluster: that of --scheduler or SPARROW_SCHEDULER; else one is
    started on this machine, with a slot for each core and each worker, and stopped at the end.

    Exits with what FILE exits with: 1 for an exception, whose traceback is shown, 2 for a mistake
    in the options, 130 after Ctrl-C.

    \b
    Examples:
      sparrow dataflow run kmeans.py --plane local --workers 2
      sparrow dataflow run kmeans.py --timeline out.html -- --points 100000 --check
      sparrow dataflow run -s 10.0.0.1:20503 --plane local --workers 16 water.py
    """
    code = compiled(file)
    exit_on_signals()
    with ExitStack() as stack:
        settings = RunSettings(**{name: options[name] for name in ("plane", "workers", "partitions", "snapshot_dir")})
        settings.progress = options["progress"]
        settings.cluster = _clusters(stack, schedulers, access)
        source = click.get_current_context().get_parameter_source("schedulers")
        if source is ParameterSource.COMMANDLINE:
            settings.cluster_stated = ",".join(schedulers)
            if options["plane"] == WITHOUT_WORKERS:
                raise click.UsageError(f"--scheduler is for planes with workers; plane {WITHOUT_WORKERS} has none")
        if options["timeline"] is not None:
            settings.timeline = stack.enter_context(_timeline(options["timeline"], file))
        failed = _run(code, file, argv, settings)
        if not failed and not settings.dataflows:
            raise click.UsageError(f"{file} has run and made no Dataflow")
    return failed


def compiled(file: str) -> CodeType:
    """The file's code."""
    try:
        return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        reason = f"it is no Python{where}: {error.msg}"
    except ValueError as error:
        reason = f"it is no Python: {error}"
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    raise click.BadParameter(f"{file!r}: {reason}", click.get_current_context(silent=True), param_hint="'FILE'")


def _run(code: CodeType, file: str, argv: Sequence[str], settings: RunSettings) -> int:
    """Run the file as the main module; the exit code if it raises an exception, which is shown as Python shows it."""
    with put_in_force(settings), _as_main(file, argv) as names:
        try:
            exec(code, names)
        except SettingsConflict as error:
            line = next((line for frame, line in traceback.walk_tb(error.__traceback__) if _is_of(frame, code)), 0)
            raise click.UsageError(f"{file}, line {line}: {error}") from None
        except Exception as error:
            traceback.print_exception(type(error), error, _from(code, error.__traceback__))
            return FAILED_EXIT
    return 0


def _is_of(frame: Any, code: CodeType) -> bool:
    return bool(frame.f_code.co_filename == code.co_filename)


def _from(code: CodeType, trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the file."""
    while trace is not None and not _is_of(trace.tb_frame, code):
        trace = trace.tb_next
    return trace


@contextmanager
def _as_main(file: str, argv: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The names of a main module for the file; meanwhile `sys` is as if Python had been started with it."""
    module = ModuleType("__main__")
    module.__dict__.update(__file__=file, __builtins__=builtins)
    before, arguments, path = sys.modules["__main__"], sys.argv, sys.path[:]
    sys.modules["__main__"] = module
    sys.argv = [file, *argv]
    sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        yield module.__dict__
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before, arguments, path


def _clusters(stack: ExitStack, schedulers: Sequence[str], access: Access) -> Callable[[int], Any]:
    """What makes the cluster, for the first Dataflow that needs one; it ends with the stack."""
    made: list[Any] = []

    def make(workers: int) -> Any:
        from sparrow_py import Client, LocalCluster

        if not made:
            if schedulers:
                cluster: Any = Client(list(schedulers), token=access.token or None, tls=access.tls)
            else:
                cluster = LocalCluster(slots=max(workers, os.cpu_count() or 1))
            made.append(stack.enter_context(cluster))
        return made[0]

    return make


@contextmanager
def _timeline(path: str, file: str) -> Iterator[Timeline]:
    """What records a timeline, and writes its page to the path at the end, whatever the end is."""
    from frontends.dataflow.timeline import Timeline

    timeline = Timeline(file)
    try:
        with Path(path).open("a", encoding="utf-8"):
            """Who cannot write there is to know now, and not when the program has run."""
    except OSError as error:
        raise click.BadParameter(
            f"{path!r}: {error.strerror}; name a file that can be written", param_hint="'--timeline'"
        ) from None
    try:
        yield timeline
    finally:
        try:
            Path(path).write_text(timeline.page(), "utf-8")
        except OSError as error:
            click.echo(f"sparrow: the timeline is not written to {path}: {error.strerror}", err=True)
        else:
            click.echo(f"sparrow: timeline of {counted(timeline.tasks, 'task')}: {path}", err=True)
