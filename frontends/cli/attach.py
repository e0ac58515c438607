"""`sparrow attach`: the output of a job that `sparrow run --detach` has left to the cluster."""

from __future__ import annotations

from concurrent.futures import as_completed
from typing import TYPE_CHECKING, cast

import click

from frontends.cli.connection import DEFAULT_SCHEDULER, connection_options
from frontends.cli.output import Ended, Output
from frontends.cli.run import NotRun, shows_progress
from frontends.cli.run_job import outcome
from frontends.cli.stopping import exit_on_signals
from frontends.command.tasks import APP
from sparrow_py.access.credentials import Access
from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.job import TaskStatus

if TYPE_CHECKING:
    from sparrow_py import Client
    from sparrow_py.client import Job
    from sparrow_py.futures.task_future import TaskFuture


@click.command(short_help="Follow a job that was detached.")
@connection_options
@click.option("--ordered/--unordered", default=True, help="Output in the order of input (default), or as it comes.")
@click.option("--progress/--no-progress", default=None, help="Default: when only stderr is a terminal.")
@click.argument("job_id", metavar="JOB_ID")
def attach(schedulers: list[str], access: Access, job_id: str, ordered: bool, progress: bool | None) -> int:
    """Write the output of a job's commands as `sparrow run` would have, until it has ended.

    The job is one that `sparrow run --detach` has left to the cluster; its output is written once, to whoever
    attaches. Ctrl-C leaves the job running, and what has not been written to the next; so does a pipe whose reader has
    ended.

    Exits with the number of commands that failed, of those that were not written to an attach before, 101 if that is
    more than 100; 255 if there is no such job.

    \b
    Examples:
      sparrow attach 0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8
      sparrow attach "$(sparrow run --detach --array 100 -- ./simulate --seed {})"
    """
    from sparrow_py import Client

    exit_on_signals()
    try:
        with Client(schedulers or DEFAULT_SCHEDULER, token=access.token or None, tls=access.tls) as client:
            job = client.attach(job_id)
            other = next((app for task in range(len(job)) if (app := job.app_of(task)) != APP), None)
            if other is not None:
                client.detach(job)
                raise InvalidRequest("JOB_ID", job_id, f"a job of commands; this one is of the app {other}")
            output = Output([""] * len(job), ordered=ordered, progress=shows_progress(progress))
            try:
                for future in as_completed(job.futures):  # Not of the job: Ctrl-C would stop that.
                    task = cast("TaskFuture", future)
                    output.add(_ended(task))
                output.close()
            except BaseException:
                _give_back(client, job, output)
                raise
    except SparrowError as error:
        raise NotRun(str(error)) from None
    if summary := output.summary():
        click.echo(f"sparrow: {summary}", err=True)
    return output.exit_code


def _give_back(client: Client, job: Job, output: Output) -> None:
    """Leave the job to the cluster again, with how those ended that were not written: the cluster was told that they
    are here as soon as they were. Of the others it gets what the next attach is to say of them."""
    from sparrow_py.session.attaching import TOLD_ANOTHER
    from sparrow_py.session.core import unrun

    try:
        for future in job.futures:
            if output.is_written(future.task):
                future.reference = None
                future.outcome = unrun(job.job_id, future.task, TaskStatus.LOST, TOLD_ANOTHER)
        client.detach(job)
    finally:
        output.abandon()


def _ended(task: TaskFuture) -> Ended:
    """How the task of this future, which is done, ended, as far as this attach is told."""
    from sparrow_py.session.attaching import TOLD_ANOTHER

    ended = outcome(task.task, task)
    return Ended(task.task, None, told_before=True) if ended.error == TOLD_ANOTHER else ended
