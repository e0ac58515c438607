"""The command `sparrow` in this process, with a client and a cluster that only look like these."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from functools import cached_property
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar

from click.testing import CliRunner, Result

from frontends.cli.__main__ import main
from frontends.command.process import exit_error
from frontends.command.tasks import CommandResult, CommandTask, decode_task, encode_result
from sparrow_py.errors import InvalidRequest, TaskCancelled, TaskFailed, TaskLost
from sparrow_py.job import JobSpec
from sparrow_py.session.attaching import TOLD_ANOTHER


def sparrow(*arguments: str, stdin: bytes | str = b"") -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def assert_one_line(result: Result, code: int, *parts: str) -> None:
    """The command ended with this code and one line on stderr that has these parts."""
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1), result.output
    assert result.stderr.startswith("sparrow: ")
    for part in parts:
        assert part in result.stderr


class FakeJob:
    """Runs the commands of a job in this process, the last first; results come as an executor's would."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec, self.job_id = spec, spec.name
        self.cancelled = self.cancelled_running = False

    def cancel(self, *, running: bool = False) -> None:
        self.cancelled, self.cancelled_running = True, running

    @cached_property
    def futures(self) -> "list[Future[bytes]]":
        """Futures that are done."""
        return list(self)

    def __len__(self) -> int:
        return len(self.spec.tasks)

    def app_of(self, task: int) -> str:
        return self.spec.app

    def __iter__(self) -> Iterator[Future[bytes]]:
        tasks = [decode_task(payload) for payload in self.spec.tasks if isinstance(payload, bytes)]
        for index, task in reversed(list(enumerate(tasks))):
            future: Any = Future()
            future.task, future.report = index, None
            future.outcome = future.reference = f"how {index} ended"
            self._settle(future, task)
            yield future

    def _settle(self, future: "Future[bytes]", task: CommandTask) -> None:
        if self.cancelled:
            future.set_exception(TaskCancelled("the job was cancelled"))
        elif task.argv[0] == "lose":
            future.set_exception(TaskLost("its node went away 3 times"))
        elif task.argv[0] == "told":
            future.set_exception(TaskLost(TOLD_ANOTHER))
        elif task.argv[0] == "interrupt":
            raise KeyboardInterrupt
        else:
            self._run(future, task)

    def _run(self, future: "Future[bytes]", task: CommandTask) -> None:
        try:
            ended = subprocess.run(task.argv, capture_output=True, cwd=task.cwd, env=task.env, check=False)
        except OSError as error:
            future.set_exception(TaskFailed(str(error)))
            return
        result = encode_result(CommandResult(ended.returncode, ended.stdout, ended.stderr, b"flood" in ended.stdout))
        if ended.returncode == 0:
            future.set_result(result)
            return
        failure: Any = TaskFailed(exit_error(ended.returncode))
        failure.result = result
        future.set_exception(failure)


class FakeClient:
    made: "list[FakeClient]"
    detached: ClassVar[dict[str, tuple[FakeJob, float]]] = {}
    """By id: jobs that were let go of, and for how long they are kept."""

    def __init__(self, where: Any, *, token: str | None = None, tls: object = None) -> None:
        self.where, self.token = where, token
        self.jobs: list[FakeJob] = []
        self.made.append(self)

    def submit_job(self, spec: JobSpec) -> FakeJob:
        self.jobs.append(FakeJob(spec))
        return self.jobs[-1]

    def detach(self, job: FakeJob, *, retention_s: float = 3600.0) -> str:
        self.detached[job.spec.name] = job, retention_s
        return job.spec.name

    def attach(self, job_id: str) -> FakeJob:
        if job_id not in self.detached:
            raise InvalidRequest("job_id", job_id, "a detached job")
        return self.detached.pop(job_id)[0]

    def nodes(self) -> list[Any]:
        return [SimpleNamespace(slots=1)]

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass


class FakeCluster:
    def __init__(
        self,
        slots: int | None,
        enable_command: bool,
        forward_output: bool,
        policies: tuple[str, ...],
        node_options: tuple[str, ...],
    ) -> None:
        self.slots, self.policies = slots, policies
        assert node_options == ("--warm", "command")  # No Python workers.
        assert (enable_command, forward_output) == (True, False)  # The command itself writes what its tasks print.

    def __enter__(self) -> "FakeCluster":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass


def tasks_of(client: FakeClient) -> list[CommandTask]:
    return [decode_task(payload) for payload in client.jobs[0].spec.tasks if isinstance(payload, bytes)]
