"""The job model: what a frontend asks for, and what it is told.

A job is a DAG of stages (of one stage, in this version), a stage a list of tasks that may run
in parallel (Sparrow §2, §6). To schedulers and node monitors a task is an opaque payload
and the name of the app whose executors understand it.
"""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from sparrow_py.errors import InvalidRequest

PROBE_RATIO_DEFAULT = 2.0
PROBE_RATIO_MAX = 1000.0
PREFETCH_MAX = 1024
MAX_ATTEMPTS_DEFAULT = 3
MAX_ATTEMPTS_MAX = 1000
NAME_BYTES_MAX = 256
"""Limit on user, app, job and node names and on job ids, in bytes of UTF-8."""


class TaskStatus(enum.StrEnum):
    """How a task ended. Every task of an accepted job ends in exactly one of these (guarantee 1)."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(slots=True)
class TaskSpec:
    """One task: an opaque `payload` for the executor, and an optional `id` for its submitter's use."""

    payload: bytes = b""
    id: str = ""


@dataclass(slots=True)
class JobSpec:
    """A job of one stage.

    Parameters
    ----------
    tasks: payloads (`bytes`) or `TaskSpec`s. None at all is a job that finishes at once.
    app: whose executors run the tasks.
    common: bytes that every task of the job needs (a pickled function, say); sent once per node.
    name: for people; shown by `sparrow jobs`.
    job_id: minted if empty. An id that a running job has is refused.
    probe_ratio: d of the paper (§3.1): ceil(d·m) reservations for m tasks. Any number from 1.
    prefetch: how many tasks a node monitor may hold per slot ahead of a free slot.
        0 is the paper's late binding; for tasks of a few milliseconds or less 8 to 32 saves
        most of the messages, and gives up that much of late binding.
    max_attempts: how often a task may be started in all; 1 makes execution at-most-once.
    retry_failed: whether a task that ran and failed is started again too.
    queue_timeout_s: a task that has found no place after this long ends lost. None: never.
    expected_duration_s: what a task is expected to take; used as the first charge of fair queueing.
    runtime: what the executors must run, as they state it ("3.11" for the python app); empty: any.
    report_placed: whether the client is told when a task leaves the queue (`Future.running()`).
    """

    tasks: Sequence[bytes | TaskSpec]
    _: KW_ONLY
    app: str = "python"
    common: bytes = b""
    name: str = ""
    job_id: str = ""
    probe_ratio: float = PROBE_RATIO_DEFAULT
    prefetch: int = 0
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    retry_failed: bool = False
    queue_timeout_s: float | None = None
    expected_duration_s: float | None = None
    runtime: str = ""
    report_placed: bool = False

    def validate(self) -> None:
        """Raise `InvalidRequest` for the first field that cannot be."""
        check_name("app", self.app, empty=False)
        check_name("name", self.name)
        check_name("job_id", self.job_id)
        check_name("runtime", self.runtime)
        check_number("probe_ratio", self.probe_ratio, 1, PROBE_RATIO_MAX)
        check_whole("prefetch", self.prefetch, 0, PREFETCH_MAX)
        check_whole("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS_MAX)
        if self.queue_timeout_s is not None:
            check_number("queue_timeout_s", self.queue_timeout_s, 0, math.inf)
        if self.expected_duration_s is not None:
            check_number("expected_duration_s", self.expected_duration_s, 0, 1e9)
        if not isinstance(self.common, bytes):
            raise InvalidRequest("common", self.common, "bytes")
        for name in ("retry_failed", "report_placed"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequest(name, getattr(self, name), "True or False")
        check_task_ids(self.tasks)


@dataclass(slots=True, frozen=True)
class TaskReport:
    """What became of one task.

    Times are seconds since the epoch, each by the clock of the machine where the event
    happened; `service_s` is measured on one monotonic clock. Where a task never got so far, None.
    """

    task: int
    status: TaskStatus
    attempts: int
    node: str
    error: str
    submitted_at_s: float
    reserved_at_s: float | None
    started_at_s: float | None
    finished_at_s: float | None
    service_s: float | None
    stdout: str = ""
    stderr: str = ""

    @property
    def wait_s(self) -> float | None:
        """From submission until the task started (the paper's wait time)."""
        return None if self.started_at_s is None else self.started_at_s - self.submitted_at_s

    @property
    def response_s(self) -> float | None:
        """Wait time plus service time."""
        wait = self.wait_s
        return None if wait is None or self.service_s is None else wait + self.service_s


@dataclass(slots=True)
class JobReport:
    """What became of a job: its tasks' reports in submission order, and the sums."""

    job_id: str
    tasks: list[TaskReport] = field(default_factory=list)

    def count(self, status: TaskStatus) -> int:
        """How many tasks ended so."""
        return sum(1 for task in self.tasks if task.status is status)

    @property
    def response_s(self) -> float | None:
        """The last task's end minus submission; None if no task ran."""
        ends = [t.finished_at_s - t.submitted_at_s for t in self.tasks if t.finished_at_s is not None]
        return max(ends, default=None)


def new_job_id() -> str:
    """A fresh job id: 32 hexadecimal digits, unique without coordination."""
    return uuid.uuid4().hex


def check_name(field: str, value: object, *, empty: bool = True) -> None:
    """Raise `InvalidRequest` unless `value` is a printable string of at most `NAME_BYTES_MAX` bytes."""
    size = len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0
    if not isinstance(value, str) or size > NAME_BYTES_MAX or (not value and not empty):
        raise InvalidRequest(field, value, f"{'' if empty else 'non-empty '}text of at most {NAME_BYTES_MAX} bytes")
    if not value.isprintable():
        raise InvalidRequest(field, value, "printable characters")


def check_number(field: str, value: object, low: float, high: float) -> None:
    """Raise `InvalidRequest` unless `value` is a number with low ≤ value ≤ high (so never NaN)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidRequest(field, value, f"a number from {low:g} to {high:g}")


def check_whole(field: str, value: object, low: int, high: int) -> None:
    """Raise `InvalidRequest` unless `value` is a whole number with low ≤ value ≤ high."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(field, value, f"a whole number from {low} to {high}")


def check_task_ids(tasks: Iterable[bytes | TaskSpec]) -> None:
    """Raise `InvalidRequest` if a task is neither bytes nor a `TaskSpec`, or if an id is given twice."""
    seen: set[str] = set()
    for index, task in enumerate(tasks):
        if isinstance(task, bytes):
            continue
        if not isinstance(task, TaskSpec) or not isinstance(task.payload, bytes):
            raise InvalidRequest(f"tasks[{index}]", task, "bytes, or a TaskSpec whose payload is bytes")
        if not task.id:
            continue
        check_name(f"tasks[{index}].id", task.id)
        if task.id in seen:
            raise InvalidRequest(f"tasks[{index}].id", task.id, "an id that no other task of the job has")
        seen.add(task.id)
