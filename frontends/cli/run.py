"""`sparrow run`: a command for each line of input, for each combination of values, or for each number."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from frontends.cli.connection import connection_options
from frontends.cli.output import Output
from frontends.cli.ranges import NumberRange
from frontends.cli.run_job import Log, follow, open_client
from frontends.cli.run_plan import Plan, job_of, plan_of, shown
from frontends.cli.stopping import exit_on_signals
from frontends.command import joblog
from frontends.command.halt import Halt, Halting, parse_halt
from sparrow_py.daemon.command_group import write_no_more
from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.job import MAX_ATTEMPTS_DEFAULT, MAX_ATTEMPTS_MAX, PROBE_RATIO_DEFAULT, JobSpec
from sparrow_py.session.letting_go import RETENTION_S

if TYPE_CHECKING:
    from sparrow_py import Client
    from sparrow_py.access.credentials import Access

ARRAY_MAX = 10_000_000
STOP_ON_FAILURE = "soon,fail=1"
"""What `--stop-on-failure` is as a `--halt`, but for the exit code."""
CONTRADICTING = (
    ("timeout", "task_timeout_s"), ("retries", "max_attempts"), ("halt", "keep_going"), ("resume", "resume_failed"),
    ("detach", "halt"), ("detach", "keep_going"), ("detach", "log_path"), ("detach", "progress"),
)  # fmt: skip
"""Options of which one at most may be given, by the names of their parameters."""

PLACED_TOGETHER = ("gang", "max_per_node", "max_per_rack")
"""Options that say something of a job's tasks together."""


class NotRun(click.ClickException):
    """An error that is not a task's. As with GNU parallel, the exit code is then not a number of failed tasks."""

    exit_code = 255


@click.command(
    short_help="Run a command for each line of input or value, or N times.",
    # Options after the command are the command's.
    context_settings={"allow_interspersed_args": False},
)
@connection_options
@click.option("--array", type=click.IntRange(0, ARRAY_MAX), metavar="N", help="N tasks instead of one per line.")
@click.option(
    "-j",
    "--slots",
    type=click.IntRange(min=1),
    help="Tasks at once, without schedulers or with --halt. Default: cores.",
)
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
@click.option("-0", "--null", is_flag=True, help="Values in standard input and in files end with NUL, not newline.")
@click.option("--tag", is_flag=True, help="Begin each line of output with the values and a tab.")
@click.option("--shell", is_flag=True, help="COMMAND is text for sh; values come to it in variables, not as text.")
@click.option("--joblog", "log_path", metavar="FILE", help="Write how each command ended, as GNU parallel does.")
@click.option("--resume", is_flag=True, help="Leave out the inputs that are in the --joblog.")
@click.option("--resume-failed", is_flag=True, help="Leave out those that are in the --joblog as successful.")
@click.option("--timeout", metavar="DURATION", help="As --task-timeout: seconds, or with s, m, h or d after it.")
@click.option(
    "--retries", type=click.IntRange(1, MAX_ATTEMPTS_MAX), metavar="N", help="Starts of a command in all, if it fails."
)
@click.option(
    "--halt", metavar="WHEN", help="When to stop before the end: never, soon,fail=1, now,success=3, soon,fail=20%, …"
)
@click.option("--detach", is_flag=True, help="Leave the job to the cluster, and print its id for `sparrow attach`.")
@click.option(
    "--retention",
    "retention_s",
    type=NumberRange(min=0),
    default=RETENTION_S,
    show_default=True,
    metavar="SECONDS",
    help="With --detach: how long its output is kept after its end.",
)
@click.option("--dry-run", "--dryrun", "dry_run", is_flag=True, help="Print the commands, and run none.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]... [::: VALUE...]")
@click.pass_context
def run(
    context: click.Context,
    /,
    argv: tuple[str, ...],
    schedulers: list[str],
    access: Access,
    slots: int | None,
    **options: Any,
) -> int:
    """Run COMMAND once for each line of standard input, for each VALUE, or N times with --array N.

    {} in its arguments stands for the line; without any placeholder the line is appended. With
    --array {} stands for 0 … N-1, which is also in SPARROW_ARRAY_INDEX. There is no shell; use
    --shell for one. The environment is the node's PATH, HOME, LANG and TZ, and what --env adds.

    Values after ::: take the place of lines; after :::: come files whose lines they are, - being
    standard input. Several of these are combined, each value with each; :::+ and ::::+ go with the
    source before, value by value. Of a value {.} is what comes before the extension, {/} the file
    name, {//} the directory, {/.} the file name before the extension; {1}, {2.}, {-1/} are of the
    first, second and last source. {#} is the number of the input, {%} that of the slot, from 1.

    Without schedulers the tasks run on this machine, as many at once as it has cores.

    Exits with the number of tasks that failed, 101 if that is more than 100; 255 if the tasks
    could not be run at all, 2 for a mistake in the options, 130 after Ctrl-C.

    \b
    Examples:
      ls *.png | sparrow run -- convert {} {.}.jpg
      find . -name '*.log' -print0 | sparrow run -0 -- gzip -9
      sparrow run --array 100 -- ./simulate --seed {}
      sparrow run --joblog log --resume -- ./train --rate {1} --seed {2} ::: 0.1 0.01 ::: 1 2 3
      sparrow run --shell -- 'sort {} | uniq -c > {.}.counts' ::: *.txt
      sparrow run -s 10.0.0.1:20503 --detach -- ./train ::: a b c
      sparrow run -s 10.0.0.1:20503 --where 'gpu exists' --demand cpu=4 --array 8 -- ./train {}
    """
    check_options(context, options)
    halt = halt_of(options)
    if schedulers and slots is not None and halt is None:
        raise click.UsageError(
            "--slots is for the embedded cluster, and for --halt; nodes with schedulers have their own"
        )
    if options["detach"] and not schedulers:
        raise click.UsageError("--detach needs --scheduler: without, the job ends with this command")
    exit_on_signals()
    logged, kept_bytes = logged_before(options)
    plan = plan_of(argv, options, logged)
    job = job_of(plan, options)
    if options["dry_run"]:
        return print_commands(plan)
    if not plan.tasks:
        if options["detach"]:  # Whoever takes what is printed for an id is told why there is none.
            click.echo("sparrow: there are no inputs: no job was submitted", err=True)
        return 0
    if options["detach"]:
        return detach(job, schedulers, access, options["retention_s"])
    output = output_of(plan, options)
    halting = None if halt is None else Halting(halt, len(plan.tasks))
    try:
        with ExitStack() as stack:
            log = opened_log(options["log_path"], kept_bytes, plan, stack, here=not schedulers)
            client = stack.enter_context(open_client(schedulers, access, slots, stack, job.policy))
            at_once = at_once_of(client, halt, slots, options, here=not schedulers)
            follow(client, job, output, halting, log, at_once)
    except InvalidRequest:
        raise
    except SparrowError as error:
        raise NotRun(str(error)) from None
    if summary := output.summary():
        click.echo(f"sparrow: {summary}", err=True)
    return output.exit_code if halting is None or options["halt"] is None else halting.exit_code(output.exit_code)


def detach(job: JobSpec, schedulers: list[str], access: Access, retention_s: float) -> int:
    """Leave the job to the cluster, and print its id; the exit code."""
    try:
        with ExitStack() as stack:
            client = stack.enter_context(open_client(schedulers, access, None, stack))
            job_id = client.detach(client.submit_job(job), retention_s=retention_s)
    except InvalidRequest:
        raise
    except SparrowError as error:
        raise NotRun(str(error)) from None
    try:
        click.echo(job_id)
    except OSError as error:  # Nobody else knows the id.
        write_no_more()
        raise click.ClickException(
            f"the job runs, but its id {job_id} could not be written: {error.strerror}"
        ) from None
    return 0


def check_options(context: click.Context, options: dict[str, Any]) -> None:
    """Raise `UsageError` for options that contradict each other, or that need another."""
    flags = {one.name: "/".join([one.opts[-1], *one.secondary_opts]) for one in context.command.params}
    given = {name for name in flags if name and context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for one, other in CONTRADICTING:
        if {one, other} <= given:
            raise click.UsageError(f"{flags[one]} and {flags[other]} contradict each other; give one of them")
    for name in ("resume", "resume_failed"):
        if options[name] and options["log_path"] is None:
            raise click.UsageError(f"{flags[name]} needs --joblog FILE, the log of the run that is to go on")


def halt_of(options: dict[str, Any]) -> Halt | None:
    """When to stop before the end, as the options say; None for never."""
    if options["halt"] is not None:
        return parse_halt(options["halt"])
    return None if options["keep_going"] else parse_halt(STOP_ON_FAILURE)


def at_once_of(
    client: Client, halt: Halt | None, slots: int | None, options: dict[str, Any], *, here: bool
) -> int | None:
    """How many tasks may be submitted at a time; None: all, as nothing ends the run early, or nobody said how many may
    run, or the scheduler has to see the tasks together."""
    if halt is None or any(options[name] for name in PLACED_TOGETHER):
        return None
    if slots is None and here:
        return max(1, sum(node.slots for node in client.nodes()))
    return slots


def logged_before(options: dict[str, Any]) -> tuple[dict[int, joblog.Entry], int]:
    """What an earlier run has logged that is not to run again, by number; and how many bytes of its log stay."""
    if not options["resume"] and not options["resume_failed"]:
        return {}, 0
    entries, kept_bytes = joblog.read(options["log_path"])
    if options["resume_failed"]:
        entries = {number: entry for number, entry in entries.items() if entry.succeeded}
    return entries, kept_bytes


def opened_log(path: str | None, kept_bytes: int, plan: Plan, stack: ExitStack, *, here: bool) -> Log | None:
    """The log to write to, which `stack` closes; None if there is to be none."""
    if path is None:
        return None
    return Log(stack.enter_context(joblog.JobLog(path, kept_bytes)), plan.numbers, plan.tasks, here=here)


def print_commands(plan: Plan) -> int:
    """Print each command as a shell would take it; the exit code."""
    for task in plan.tasks:
        click.echo(shlex.join(shown(task)))
    return 0


def output_of(plan: Plan, options: dict[str, Any]) -> Output:
    """Where the output of these tasks goes. Notes count tasks from 0, those included that an earlier run has logged."""
    return Output(
        plan.labels,
        ordered=options["ordered"],
        progress=shows_progress(options["progress"]),
        tag=options["tag"],
        numbers=[number - 1 for number in plan.numbers],
    )


def shows_progress(asked: bool | None) -> bool:
    """Whether to show progress: as `asked`; if None, where the progress cannot get between lines of output."""
    return asked if asked is not None else sys.stderr.isatty() and not sys.stdout.isatty()
