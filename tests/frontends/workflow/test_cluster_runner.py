"""How jobs become tasks, and what the ends of tasks mean for jobs; the client is a double."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frontends.workflow.engines.base import ALL_RULES
from frontends.workflow.ir.reading import read
from frontends.workflow.running.cluster_runner import ClusterRunner, JobSettings
from frontends.workflow.running.execution import Cause, Failure, Job
from frontends.workflow.running.store import new_run
from frontends.workflow.running.tasks import Failed, encode
from sparrow_py.errors import SparrowError, TaskCancelled, TaskFailed, TaskLost
from sparrow_py.job import JobSpec

DAG = read("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nRESULTS a\n")
JOB = Job(1, frozenset({"a"}), "serial", DAG)


class Sent:
    """A client that notes what it is asked to run."""

    def __init__(self) -> None:
        self.specs: list[JobSpec] = []
        self.future: Future[Any] = Future()

    def submit_job(self, spec: JobSpec) -> Any:
        self.specs.append(spec)
        return SimpleNamespace(futures=[self.future])


def ended(tmp_path: Path, error: BaseException, attempts: int = 1) -> tuple[Failure, JobSpec]:
    """How a job is taken to have failed whose task raised this; and the task."""
    client = Sent()
    client.future.set_exception(error)
    client.future.report = SimpleNamespace(attempts=attempts, node="n")  # type: ignore[attr-defined]
    store = new_run(tmp_path / "store", "0" * 16, DAG, 1000)
    runner = ClusterRunner(client, store, {"t": tmp_path / "t.parquet"}, ALL_RULES, JobSettings({"serial": 1}))  # type: ignore[arg-type]
    failure = runner.outcome(JOB, runner.start(JOB))
    store.close(delete=True)
    assert isinstance(failure, Failure)
    return failure, client.specs[0]


def failed(result: bytes, why: str = "no") -> TaskFailed:
    error = TaskFailed(f"task 0 failed on n: {why}")
    error.result = result
    return error


@pytest.mark.parametrize(
    ("error", "attempts", "cause"),
    [
        (failed(encode(Failed("memory", "no more"))), 1, Cause.MEMORY),
        (failed(b""), 1, Cause.DIED),
        (failed(b"", "it ran for longer than task_timeout_s = 2 s"), 1, Cause.TIMEOUT),
        (failed(encode(Failed("died", "killed")), "it ran for longer than task_timeout_s = 2 s"), 1, Cause.TIMEOUT),
        (failed(b"nonsense"), 1, Cause.DIED),
        (TaskLost("its node ended"), 1, Cause.DIED),
        (TaskLost("it found no place"), 0, Cause.UNREACHABLE),
        (SparrowError("no scheduler"), 0, Cause.UNREACHABLE),
        (TaskCancelled("task 0 was cancelled: by ada"), 1, Cause.CANCELLED),
    ],
    ids=[
        "said",
        "nothing said",
        "time is up",
        "killed as time is up",
        "nonsense",
        "lost",
        "no place",
        "no cluster",
        "cancelled",
    ],
)
def test_ends_of_tasks(tmp_path: Path, error: BaseException, attempts: int, cause: Cause) -> None:
    assert ended(tmp_path, error, attempts)[0].cause is cause


def test_a_job_that_is_cancelled_ends_the_workflow_and_says_which_it_was(tmp_path: Path) -> None:
    failure, _ = ended(tmp_path, TaskCancelled("task 0 was cancelled: by ada"))
    assert failure.reason == "job 1 on serial: task 0 was cancelled: by ada"
    assert failure.cause.final


def test_a_task_is_started_once_as_a_lost_one_may_still_write(tmp_path: Path) -> None:
    assert ended(tmp_path, TaskLost("its node ended"))[1].max_attempts == 1
