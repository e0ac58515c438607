"""How `sparrow run` has its job run: where, and what becomes of the outcomes as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import TYPE_CHECKING

from frontends.cli.output import Ended, Output
from frontends.cli.run_plan import shown
from frontends.cli.run_steps import Steps
from frontends.cli.starting import told_if_slow
from frontends.command import joblog
from frontends.command.halt import Halting
from frontends.command.tasks import CommandResult, CommandTask, decode_result
from sparrow_py.errors import TaskCancelled, TaskError, TaskFailed
from sparrow_py.job import JobSpec, TaskReport
from sparrow_py.wire.messages import LED, SPARROW

if TYPE_CHECKING:
    from sparrow_py import Client
    from sparrow_py.access.credentials import Access
    from sparrow_py.client import Job
    from sparrow_py.futures.task_future import TaskFuture

COMMANDS_ALONE = ("--warm", "command")
"""Of a node monitor that nobody sends Python tasks: it starts no workers for them ahead."""


class Log:
    """Writes a job log of these tasks, whose inputs have these numbers."""

    def __init__(
        self, file: joblog.JobLog, numbers: Sequence[int], tasks: Sequence[CommandTask], *, here: bool
    ) -> None:
        """`here`: the tasks run on this machine."""
        self._file = file
        self._numbers = numbers
        self._tasks = tasks
        self._here = here

    def add(self, ended: Ended, report: TaskReport | None) -> None:
        """Write the line of this task."""
        self._file.add(
            joblog.Entry(
                self._numbers[ended.task],
                self._host(report),
                0.0 if report is None or report.started_at_s is None else report.started_at_s,
                0.0 if report is None or report.service_s is None else report.service_s,
                *_end(ended.result),
                joblog.written(shown(self._tasks[ended.task])),
            )
        )

    def _host(self, report: TaskReport | None) -> str:
        return joblog.HERE if self._here or report is None or not report.node else report.node


def _end(result: CommandResult | None) -> tuple[int, int, int]:
    """Bytes of output, exit code and signal, as the log has them."""
    if result is None:
        return 0, joblog.NO_EXIT_CODE, 0
    return len(result.stdout), max(0, result.exit_code), max(0, -result.exit_code)


def open_client(schedulers: list[str], access: Access, slots: int | None, stack: ExitStack, policy: str = "") -> Client:
    """A client of these schedulers, or of a cluster of its own for jobs of this policy, which `stack` stops."""
    from sparrow_py import Client, LocalCluster

    if schedulers:
        return Client(schedulers, token=access.token or None, tls=access.tls)
    policies = (policy,) if policy in LED else (SPARROW,)
    with told_if_slow(policies):
        cluster = LocalCluster(
            slots=slots, enable_command=True, forward_output=False, policies=policies, node_options=COMMANDS_ALONE
        )
    return Client(stack.enter_context(cluster))


def follow(
    client: Client, spec: JobSpec, output: Output, halting: Halting | None, log: Log | None, at_once: int | None = None
) -> None:
    """Run the job, write its output and log; on an interrupt, cancel the tasks that have not started.

    at_once: tasks that are submitted at a time, none before the results that are there have been looked at; None: all.
    """
    job = _Whole(client.submit_job(spec)) if at_once is None else Steps(client, spec, at_once)
    try:
        for task, future in job:
            ended = outcome(task, future)
            if log is not None and not ended.cancelled:
                log.add(ended, future.report)  # First: nobody may be there who reads the output.
            output.add(ended)
            if ended.cancelled:
                continue
            if halting is not None and halting.ended(None if ended.result is None else ended.result.exit_code):
                job.cancel(running=halting.halt.now)
        for task in job.unsubmitted():
            output.add(_cancelled(task))
    except BaseException:
        job.cancel()
        raise
    finally:
        output.close()


class _Whole:
    """A job all of whose tasks are submitted at once, with what `Steps` has."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __iter__(self) -> Iterator[tuple[int, TaskFuture]]:
        return ((future.task, future) for future in self._job)

    def cancel(self, *, running: bool = False) -> None:
        self._job.cancel(running=running)

    def unsubmitted(self) -> range:
        return range(0)


def outcome(task: int, future: TaskFuture) -> Ended:
    """How the task of this future, which is done, ended."""
    try:
        return Ended(task, decode_result(future.result()))
    except (TaskCancelled, CancelledError):
        return _cancelled(task)
    except TaskFailed as error:
        return Ended(task, decode_result(error.result) if error.result else None, _reason(future, error))
    except TaskError as error:
        return Ended(task, None, _reason(future, error))


def _cancelled(task: int) -> Ended:
    return Ended(task, None, "cancelled", cancelled=True)


def _reason(future: TaskFuture, error: TaskError) -> str:
    """Why the task did not finish, without the number that `Output` gives it in any case."""
    return (future.report and future.report.error) or str(error)
