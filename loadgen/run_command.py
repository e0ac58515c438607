"""`python -m loadgen run`: replay a workload or a preset against live daemons, and record every task's outcome."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import Console

from loadgen import output
from loadgen.live_view import LiveView
from loadgen.plans import DEFAULT_CLUSTER, Asked, plans
from loadgen.point import APPS, PointPlan, PointResult, run_point
from loadgen.policies import PEERS, STATED
from loadgen.presets import PRESETS
from loadgen.queries import Measured
from loadgen.recorded import HEADER_FILE, Header, Run, Simulated, write_run
from loadgen.simulated import simulated
from loadgen.targets import PLACEMENTS, SCHEDULERS_MAX
from sparrow_py.errors import ClusterError, InvalidOption, InvalidRequest
from sparrow_py.profiles import DEFAULT, PROFILES, in_words


class Several(click.ParamType[Any]):
    """Values separated by commas."""

    def __init__(self, name: str, of: Callable[[str], Any]) -> None:
        self.name = name
        self._of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As a tuple."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(self._of(part.strip()) for part in str(value).split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is not {self.name}, or several separated by commas", param, ctx)


NUMBERS = Several("a number", float)
WORDS = Several("text", str)
FLAGS = {
    "loads": "--load",
    "probe_ratios": "--probe-ratio",
    "durations_ms": "--duration",
    "placements": "--placement",
    "profiles": "--profile",
    "policies": "--policy",
}


def _several(name: str, kind: Several, metavar: str, help_text: str) -> click.Option:
    return click.Option(
        [FLAGS[name], name], type=kind, multiple=True, metavar=metavar, help=f"{help_text} Several give several points."
    )


def _defaults(name: str) -> str:
    """The size of clusters that are started, in words."""
    usual, own = getattr(DEFAULT_CLUSTER, name), getattr(PRESETS["queries"], name)
    return f"{usual}, with --preset queries {own}"


def _options() -> list[click.Parameter]:
    own = Asked(preset="fig9")
    return [
        click.Argument(["file"], required=False),
        click.Option(["--preset"], metavar="NAME", help=f"An experiment of the paper: {', '.join(PRESETS)}."),
        click.Option(["--report"], metavar="DIR", help="Write what was recorded, and a report, into this directory."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object a point instead of a table."),
        _several("loads", NUMBERS, "LOAD", "Work that arrives over what the slots can do."),
        _several("probe_ratios", NUMBERS, "D", "Reservations (probes) per task."),
        _several("durations_ms", NUMBERS, "MS", "How long tasks take, in milliseconds."),
        _several("placements", WORDS, "NAME", f"How schedulers place tasks: {', '.join(PLACEMENTS)}."),
        _several("profiles", WORDS, "NAME", f"Settings of the daemons: {', '.join(PROFILES)}.  [default: {DEFAULT}]"),
        _several(
            "policies", WORDS, "NAME",
            f"What jobs state as their policy: {', '.join(STATED)}; or which scheduler the altruistic plane has: "
            f"{', '.join(PEERS)}.",
        ),
        click.Option(
            ["--nodes"], type=int, help=f"Node monitors of the cluster that is started. Default: {_defaults('nodes')}."
        ),
        click.Option(["--slots"], type=int, help=f"Tasks that each runs at a time. Default: {_defaults('slots')}."),
        click.Option(
            ["--schedulers"], type=int, help=f"Schedulers; of central ones one. Default: {_defaults('schedulers')}."
        ),
        click.Option(
            ["--scheduler"], type=WORDS, multiple=True, metavar="HOST:PORT",
            help="Schedulers of a cluster that runs already, to use instead of starting one. Repeat, or use commas.",
        ),
        click.Option(["--generators"], type=int, default=own.generators, help="Processes that submit jobs."),
        click.Option(["--seed"], type=int, default=own.seed, help="The same seed gives the same jobs."),
        click.Option(["--jobs"], type=int, help="So many jobs arrive."),
        click.Option(["--seconds"], type=float, help="Jobs arrive for so long. Default: the preset's or the file's."),
        click.Option(
            ["--data"], metavar="DIR",
            help="Of --preset queries: the data set, from `sparrow sql generate`, that all nodes see at this path.",
        ),
        click.Option(
            ["--app"], type=click.Choice(APPS), default=own.app,
            help="sleep: tasks only occupy a slot; spin: they use a CPU for as long.",
        ),
        click.Option(
            ["--wait-max-s"], type=float, default=own.wait_max_s,
            help="Seconds that jobs may take to end after the last has arrived; then they are cancelled.",
        ),
    ]  # fmt: skip


class _RunCommand(click.Command):
    def invoke(self, ctx: click.Context) -> Any:
        """Run; an error about a field names its flag."""
        try:
            return super().invoke(ctx)
        except InvalidRequest as error:
            name = error.field.replace("_", "-")
            if any(f"--{name}" in parameter.opts for parameter in self.params):
                raise type(error)(f"--{name}", error.value, error.allowed) from None
            raise


def _run(report: str | None, as_json: bool, **values: Any) -> None:
    for name in (*FLAGS, "scheduler"):
        values[name] = tuple(value for given in values[name] for value in given)
    if len(values["scheduler"]) > SCHEDULERS_MAX:
        raise InvalidOption("scheduler", f"{len(values['scheduler'])} of them", f"at most {SCHEDULERS_MAX}")
    asked = Asked(**values)
    todo = plans(asked)
    directory = None if report is None else _writable(report)
    results: list[PointResult] = []
    measured: Measured = {}
    try:
        with LiveView(len(todo)) as view:
            for number, plan in enumerate(todo):
                view.begin(plan.label)
                result = run_point(number, plan, view.show, measured)
                view.end()
                results.append(result)
                if as_json:
                    click.echo(output.as_json(result.point, asked.preset))
    finally:
        if directory is not None and results:  # Points that were measured before an error are worth keeping.
            _write(directory, asked, todo[: len(results)], results)
    if not as_json:
        output.show([result.point for result in results])


def _writable(report: str) -> Path:
    """The directory for the report, made if it is not there."""
    directory = Path(report)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        foreign = any(directory.iterdir()) and not (directory / HEADER_FILE).exists()
    except OSError as error:
        raise InvalidOption("report", report, f"a directory that can be written to ({error.strerror})") from None
    if foreign:
        raise InvalidOption("report", report, "an empty or new directory, or one with an earlier report")
    return directory


def _write(directory: Path, asked: Asked, done: list[PointPlan], results: list[PointResult]) -> None:
    header = Header(
        title=_title(asked, results),
        command=command_line(),
        preset=asked.preset,
        simulated=_simulated(asked, done),
        points=[result.point for result in results],
    )
    tables = {
        name: pa.concat_tables([getattr(result, name) for result in results]) for name in ("jobs", "tasks", "events")
    }
    write_run(directory, Run(header, **tables))
    click.echo(f"recorded in {_report(directory)}", err=True)


def _title(asked: Asked, results: list[PointResult]) -> str:
    """The title, and which profiles were run."""
    return f"{asked.title}; {in_words(result.point.settings['profile'] for result in results)}"


def _report(directory: Path) -> Path:
    """The page made from the records, or the directory where no page can be made."""
    try:
        from loadgen.report import write_report
    except ImportError as error:
        click.echo(f"no report.html: {error}", err=True)
        return directory
    return Path(write_report(directory))


def _simulated(asked: Asked, done: list[PointPlan]) -> Simulated | None:
    """The simulator's results for these points; None if it cannot simulate them."""
    if asked.preset is None or not PRESETS[asked.preset].simulated or asked.scheduler or not done:
        return None
    click.echo("asking the simulator for the same settings", err=True)
    try:
        return simulated(done)
    except ClusterError as error:
        Console(stderr=True).print(f"without the simulator's curve: {error}", markup=False)
        return None


def command_line() -> str:
    """The command that the user typed."""
    return "python -m loadgen " + shlex.join(sys.argv[1:])


run_command = _RunCommand(
    "run",
    callback=_run,
    params=_options(),
    help="Replay the workload in FILE, or a preset, against live daemons.\n\n"
    "FILE is a trace, a job a line, or a mix of users in TOML (docs/loadgen.md). "
    "Jobs are submitted when they are due, whether or not earlier jobs have ended.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
