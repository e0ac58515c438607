"""`sparrow run`: a command for each line of input, or for each number."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from frontends.cli.connection import connection_options
from frontends.cli.output import Ended, Output
from frontends.cli.starting import told_if_slow
from frontends.cli.stopping import exit_on_sigterm
from frontends.command.tasks import CommandTask, command_job, decode_result
from sparrow_py.errors import InvalidRequest, SparrowError, TaskCancelled, TaskError, TaskFailed
from sparrow_py.job import MAX_ATTEMPTS_DEFAULT, PROBE_RATIO_DEFAULT, JobSpec
from sparrow_py.wire.messages import LED, SPARROW

if TYPE_CHECKING:
    from sparrow_py import Client
    from sparrow_py.access.credentials import Access
    from sparrow_py.futures.task_future import TaskFuture

PLACEHOLDER = "{}"
INDEX_VARIABLE = "SPARROW_ARRAY_INDEX"
ARRAY_MAX = 10_000_000
JOB_FIELDS = (
    "prefetch", "probe_ratio", "max_attempts", "priority", "expected_duration_s", "preemptible", "gang",
    "max_per_node", "max_per_rack", "where", "task_timeout_s",
)  # fmt: skip
"""Options that are fields of `JobSpec`."""


class NotRun(click.ClickException):
    """An error that is not a task's. As with GNU parallel, the exit code is then not a number of failed tasks."""

    exit_code = 255


@click.command(
    short_help="Run a command for each line of input, or N times.",
    # Options after the command are the command's.
    context_settings={"allow_interspersed_args": False},
)
@connection_options
@click.option("--array", type=click.IntRange(0, ARRAY_MAX), metavar="N", help="N tasks instead of one per line.")
@click.option("-j", "--slots", type=click.IntRange(min=1), help="Tasks at once, without schedulers. Default: cores.")
@click.option("--workdir", metavar="DIR", help="Directory to run in, which the nodes must have. Default: this one.")
@click.option(
    "-e", "--env", "variables", metavar="NAME[=VALUE]", multiple=True, help="Environment variable for the commands."
)
@click.option("--ordered/--unordered", default=True, help="Output in the order of input (default), or as it comes.")
@click.option("--progress/--no-progress", default=None, help="Default: when only stderr is a terminal.")
@click.option("--keep-going/--stop-on-failure", default=True, help="Whether to go on when a task failed (default).")
@click.option("--name", default="", help="Name of the job, for `sparrow jobs`. Default: the command's.")
@click.option("--prefetch", type=int, default=0, show_default=True, help="Tasks a node may hold per slot, ahead.")
@click.option(
    "--probe-ratio", type=float, default=PROBE_RATIO_DEFAULT, show_default=True, help="Reservations per task."
)
@click.option(
    "--max-attempts", type=int, default=MAX_ATTEMPTS_DEFAULT, show_default=True, help="Starts, if nodes are lost."
)
@click.option(
    "--priority", type=int, metavar="N", help="Higher goes first. Default, and the highest allowed: the user's own."
)
@click.option(
    "--policy",
    type=click.Choice(["sparrow", "flow", "altruistic", "auto"]),
    help="Schedulers of which policy may have the job; auto: flow for tasks that last, if there is one. "
    "Default: sparrow, or what is connected if no scheduler samples.",
)
@click.option(
    "--expected-duration", "expected_duration_s", type=float, metavar="SECONDS", help="What a task is expected to take."
)
@click.option(
    "--where",
    metavar="PREDICATE",
    multiple=True,
    help="Only nodes with such an attribute: 'zone == eu', 'zone in eu, us', 'gpu exists', 'memory_gb >= 16'.",
)
@click.option(
    "--demand",
    "demands",
    metavar="NAME=AMOUNT",
    multiple=True,
    help="What each task takes of its node: cpu or others.",
)
@click.option("--task-timeout", "task_timeout_s", type=float, metavar="SECONDS", help="Stop a task that runs longer.")
@click.option("--preemptible", is_flag=True, help="Let tasks be stopped for others and start again (policy flow).")
@click.option("--gang", is_flag=True, help="Start all tasks at once, or none (policy flow).")
@click.option("--max-per-node", type=int, metavar="N", help="Tasks on a node at a time (policy flow).")
@click.option("--max-per-rack", type=int, metavar="N", help="Tasks in a rack at a time (policy flow).")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]...")
def run(argv: tuple[str, ...], schedulers: list[str], access: Access, slots: int | None, **options: Any) -> int:
    """Run COMMAND once for each line of standard input, or N times with --array N.

    {} in its arguments stands for the line; without any {} the line is appended. With --array
    {} stands for 0 … N-1, which is also in SPARROW_ARRAY_INDEX. There is no shell; use sh -c for one.
    The environment is the node's PATH, HOME, LANG and TZ, and what --env adds.

    Without schedulers the tasks run on this machine, as many at once as it has cores.

    Exits with the number of tasks that failed, 101 if that is more than 100; 255 if the tasks
    could not be run at all, 2 for a mistake in the options, 130 after Ctrl-C.

    \b
    Examples:
      ls *.png | sparrow run -- convert {} {}.jpg
      find . -name '*.log' | sparrow run -- gzip -9
      sparrow run --array 100 -- ./simulate --seed {}
      seq 1000 | sparrow run -s 10.0.0.1:20503 --workdir /tmp -- sh -c 'echo $(( $1 * $1 ))' sh {}
      sparrow run -s 10.0.0.1:20503 --where 'gpu exists' --demand cpu=4 --array 8 -- ./train {}
    """
    if schedulers and slots is not None:
        raise click.UsageError("--slots is for the embedded cluster; nodes with schedulers have their own")
    exit_on_sigterm()
    lines = None if options["array"] is not None else read_lines()
    job = job_of(argv, lines, options)
    if not job.tasks:
        return 0
    labels = lines if lines is not None else [str(index) for index in range(len(job.tasks))]
    output = Output(labels, ordered=options["ordered"], progress=shows_progress(options["progress"]))
    try:
        with ExitStack() as stack:
            client = stack.enter_context(open_client(schedulers, access, slots, stack, job.policy))
            follow(client, job, output, keep_going=options["keep_going"])
    except InvalidRequest:
        raise
    except SparrowError as error:
        raise NotRun(str(error)) from None
    if summary := output.summary():
        click.echo(f"sparrow: {summary}", err=True)
    return output.exit_code


def read_lines() -> list[str]:
    """The lines of standard input, without their ends."""
    if sys.stdin.isatty():
        click.echo("sparrow: reading the lines from the terminal; Ctrl-D ends them", err=True)
    data = sys.stdin.buffer.read().split(b"\n")
    if not data[-1]:
        data.pop()
    lines = []
    for number, line in enumerate(data, 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            raise InvalidRequest(f"line {number} of the input", line, "UTF-8") from None
    return lines


def job_of(argv: Sequence[str], lines: list[str] | None, options: dict[str, Any]) -> JobSpec:
    """The job: a task for each line or, if `lines` is None, for each number below `array`."""
    env = variables_of(options["variables"])
    cwd = os.path.abspath(options["workdir"] or ".")  # noqa: PTH100 - Path.resolve would follow links
    if lines is not None:
        template = argv if any(PLACEHOLDER in argument for argument in argv) else (*argv, PLACEHOLDER)
        tasks = [CommandTask(filled(template, line), env=env, cwd=cwd) for line in lines]
    else:
        indices = map(str, range(options["array"]))
        tasks = [CommandTask(filled(argv, i), env={**env, INDEX_VARIABLE: i}, cwd=cwd) for i in indices]
    job = command_job(
        tasks,
        name=options["name"] or name_of(argv),
        policy=options["policy"] or "",
        demand=demand_of(options["demands"]) or None,
        **{name: options[name] for name in JOB_FIELDS},
    )
    job.validate()
    return job


def filled(argv: Sequence[str], text: str) -> list[str]:
    """The arguments with `text` for each placeholder."""
    return [argument.replace(PLACEHOLDER, text) for argument in argv]


def name_of(argv: Sequence[str]) -> str:
    """A name for the job: that of the command, if it can be one."""
    name = os.path.basename(argv[0])  # noqa: PTH119 - an argument, not a path of ours
    return name if name.isprintable() and len(name.encode("utf-8", "replace")) <= 64 else ""


def variables_of(settings: Sequence[str]) -> dict[str, str]:
    """The variables that the settings name: `NAME=VALUE`, or `NAME` with its value in this process."""
    variables = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not (equals or name in os.environ):
            raise InvalidRequest("env", setting, "NAME=VALUE, or the NAME of a variable that is set here")
        variables[name] = value if equals else os.environ[name]
    return variables


def demand_of(settings: Sequence[str]) -> dict[str, float]:
    """Amounts by resource: `NAME=AMOUNT` each."""
    demand: dict[str, float] = {}
    for setting in settings:
        name, _, amount = setting.partition("=")
        try:
            demand[name] = float(amount)
        except ValueError:
            raise InvalidRequest("demand", setting, "NAME=AMOUNT, a number above 0") from None
    return demand


def shows_progress(asked: bool | None) -> bool:
    """Whether to show progress: as `asked`; if None, where the progress cannot get between lines of output."""
    return asked if asked is not None else sys.stderr.isatty() and not sys.stdout.isatty()


def open_client(schedulers: list[str], access: Access, slots: int | None, stack: ExitStack, policy: str = "") -> Client:
    """A client of these schedulers, or of a cluster of its own for jobs of this policy, which `stack` stops."""
    from sparrow_py import Client, LocalCluster

    if schedulers:
        return Client(schedulers, token=access.token or None, tls=access.tls)
    policies = (policy,) if policy in LED else (SPARROW,)
    with told_if_slow(policies):
        cluster = LocalCluster(slots=slots, enable_command=True, forward_output=False, policies=policies)
    return Client(stack.enter_context(cluster))


def follow(client: Client, spec: JobSpec, output: Output, *, keep_going: bool) -> None:
    """Run the job and write its output; on an interrupt, cancel the tasks that have not started."""
    job = client.submit_job(spec)
    try:
        for future in job:
            ended = outcome(future)
            output.add(ended)
            if ended.error and not ended.cancelled and not keep_going:
                keep_going = True  # The job is cancelled once only.
                job.cancel()
    except BaseException:
        job.cancel()
        raise
    finally:
        output.close()


def outcome(future: TaskFuture) -> Ended:
    """How the task of this future, which is done, ended."""
    task = future.task
    try:
        return Ended(task, decode_result(future.result()))
    except (TaskCancelled, CancelledError):
        return Ended(task, None, "cancelled", cancelled=True)
    except TaskFailed as error:
        return Ended(task, decode_result(error.result) if error.result else None, _reason(future, error))
    except TaskError as error:
        return Ended(task, None, _reason(future, error))


def _reason(future: TaskFuture, error: TaskError) -> str:
    """Why the task did not finish, without the number that `Output` gives it in any case."""
    return (future.report and future.report.error) or str(error)
