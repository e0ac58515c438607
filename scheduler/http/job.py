"""A job that was submitted over HTTP, and the lines of its results so far.

A reader of the lines is a position in them: readers that are slow, or many, cost nothing. A job is counted from the
start as if it had a bare line for each task, and the beginnings of some errors, so there is always room for these.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from scheduler.book.footprint import JOB_BYTES, stage_bytes
from scheduler.http.submissions import Submission
from sparrow_py.job import TaskSpec, TaskStatus
from sparrow_py.wire import messages as m

LINE_OVERHEAD_BYTES = 64
"""What a line takes in memory besides its bytes, about."""
TASK_ID_OVERHEAD_BYTES = 150
"""What a task's id takes in memory besides its characters, about."""
BARE_LINE_BYTES = 80
"""What a bare line takes in memory, about."""
TASK_BYTES = 1 + BARE_LINE_BYTES
"""What a task takes from the start, without its id."""
ERRORS_WITH_ROOM = 20
"""So many failures of a job, for which there is no room otherwise, keep the beginnings of their errors: one of them may
explain all others."""
ERROR_CHARS_MAX = 100
"""Of the error of a task for whose result there is no room: so there is room for more lines."""
ERROR_BYTES = 4 * (ERROR_CHARS_MAX + 1) + 100
"""What the beginning of an error takes in memory at most, about."""


class BareLine(msgspec.Struct, gc=False):
    """What is kept of an outcome if there is no room for more. The line is made of it when it is read."""

    task: int
    status: TaskStatus
    attempts: int


class BareFailure(BareLine, gc=False):
    """The same with the beginning of an error."""

    error: str


class HttpJob:
    """See the module's docstring. `client`: the job's name as a client of the core. `user_priority`: of its user's jobs
    that state none."""

    __slots__ = (
        "avoid_by", "bytes", "client", "counts", "ended_at_s", "errors_left", "gone", "id", "ids", "lines", "name",
        "priority", "refusal", "retried", "settled", "stages", "starts", "submitted_at_s", "task_count", "user",
        "watchers",
    )  # fmt: skip

    def __init__(self, client: str, user: str, submission: Submission, now_s: float, user_priority: int) -> None:
        spec, message = submission.spec, submission.job.submission
        self.client = client
        self.id = message.job
        self.user = user
        self.name = spec.name
        self.avoid_by = message.avoid_by
        self.priority = user_priority if message.priority is None else message.priority
        self.submitted_at_s = now_s
        self.ended_at_s: float | None = None
        self.gone = ""
        """Why its lines are not kept any more; empty while they are."""
        self.refusal: m.JobRefused | None = None
        self.retried: dict[int, int] = {}
        """By task that was to start again: how often it had been started."""
        self.counts = dict.fromkeys(TaskStatus, 0)
        self.lines: list[bytes | BareLine] = []
        self.watchers: set[Callable[[], None]] = set()
        """Called when a line is added and when the job ends or goes."""
        self.stages: list[m.Stage] = [replace(stage, common=b"") for stage in message.stages]
        if not spec.stages:
            self.stages[0] = replace(self.stages[0], name="")
        tasks = list(itertools.chain.from_iterable(stage.tasks for stage in spec.as_stages()))
        self.task_count = len(tasks)
        self.starts = [0, *itertools.accumulate(stage.task_count for stage in self.stages)][:-1]
        """The number of each stage's first task."""
        self.ids = {number: task.id for number, task in enumerate(tasks) if isinstance(task, TaskSpec) and task.id}
        self.settled = bytearray(self.task_count)
        self.errors_left = min(self.task_count, ERRORS_WITH_ROOM)
        """For so many more errors there is always room."""
        self.bytes = self._bytes_without_lines()

    def _bytes_without_lines(self) -> int:
        ids = sum(len(id_) + TASK_ID_OVERHEAD_BYTES for id_ in self.ids.values())
        tasks = self.task_count * TASK_BYTES
        errors = self.errors_left * ERROR_BYTES
        return JOB_BYTES + tasks + ids + errors + sum(map(stage_bytes, self.stages))

    def stage_of(self, task: int) -> m.Stage:
        """The stage of a task, by the job's count."""
        # Of stages that begin with the same number only the last has tasks.
        return self.stages[bisect.bisect_right(self.starts, task) - 1]

    def bare_line(self, outcome: m.Outcome) -> BareLine:
        """The little of an outcome for which there is always room."""
        if not outcome.error or not self.errors_left:
            return BareLine(outcome.task, outcome.status, outcome.attempts)
        self.errors_left -= 1
        return BareFailure(outcome.task, outcome.status, outcome.attempts, beginning_of(outcome.error))

    def add_line(self, line: bytes | BareLine) -> None:
        """One more line for readers."""
        self.lines.append(line)
        self.bytes += bytes_of_line(line)
        self.tell()

    def clear(self, reason: str) -> None:
        """Forget the lines, for this reason; readers get no more."""
        self.lines, self.gone = [], reason
        self.tell()

    def tell(self) -> None:
        """Something has changed: call the watchers."""
        for watcher in list(self.watchers):
            watcher()


def beginning_of(error: str) -> str:
    """As much of an error as is kept where there is little room."""
    return error if len(error) <= ERROR_CHARS_MAX else f"{error[:ERROR_CHARS_MAX]}…"


def bytes_of_line(line: bytes | BareLine) -> int:
    """What a line takes in memory beyond what its job has been counted for, about."""
    return 0 if isinstance(line, BareLine) else len(line) + LINE_OVERHEAD_BYTES - BARE_LINE_BYTES
