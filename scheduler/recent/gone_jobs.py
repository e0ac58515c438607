"""Jobs that were here and are not any more: how they went, and where in the task log their tasks are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState, StageState
    from sparrow_py.job import TaskStatus

BYTES_MAX = 8 << 20
"""What the jobs that are remembered take together; the oldest go. About 10,000 jobs of one stage."""
AGE_S_MAX = 3600.0
"""For how long a job is remembered."""
STAGES_MAX = 100
"""Stages that are remembered of a job."""
JOB_BYTES = 700
"""What a job takes besides its texts and stages, about."""
STAGE_BYTES = 160
PLACE_BYTES = 36
"""Of a stage before another, which no small number is."""


@dataclass(slots=True)
class GoneStage:
    """A stage. `reserved_at_s`: since when nodes were sought for its tasks; None if they never were. (It is not frozen,
    as that would double what it takes to make one.)"""

    name: str
    first: int
    """The number in the job of its first task."""
    tasks: int
    reserved_at_s: float | None
    after: tuple[int, ...]
    """Places in the job of the stages that come before it."""


@dataclass(slots=True)
class GoneJob:
    """See the module's docstring. Times by the scheduler's clock."""

    id: str
    name: str
    user: str
    app: str
    priority: int
    how: str
    """What became of it: ended, or that it went to another scheduler."""
    tasks: int
    counts: dict[TaskStatus, int]
    submitted_at_s: float
    gone_at_s: float
    stage_count: int
    stages: tuple[GoneStage, ...]
    """The first of them."""
    place: int
    """Of its latest record in the task log."""

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        size = JOB_BYTES + len(self.id) + len(self.name) + len(self.user) + len(self.app) + len(self.how)
        for stage in self.stages:
            size += STAGE_BYTES + len(stage.name) + PLACE_BYTES * len(stage.after)
        return size


def gone(job: JobState, how: str, now_s: float, place: int) -> GoneJob:
    """What is remembered of a job that leaves now."""
    stages = job.stages if len(job.stages) <= STAGES_MAX else job.stages[:STAGES_MAX]
    remembered = tuple(
        [
            GoneStage(one.spec.name, one.first, one.spec.task_count, one.reserved_at_s, stages_before(one))
            for one in stages
        ]
    )
    return GoneJob(
        job.id, job.name, job.user, job.stages[0].spec.app, job.priority, how, job.task_count, job.counts,
        job.born_s, now_s, len(job.stages), remembered, place,
    )  # fmt: skip


def stages_before(stage: StageState) -> tuple[int, ...]:
    """The places in its job of the stages that come right before it."""
    return tuple([one.index for one in stage.predecessors]) if stage.predecessors else ()


class GoneJobs:
    """Those that are remembered, by id: of several that had one id, the latest."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, GoneJob] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, job_id: str) -> GoneJob | None:
        """The job, if it is remembered."""
        return self._jobs.get(job_id)

    def latest_first(self) -> Iterator[GoneJob]:
        """All, those that went last first."""
        return reversed(self._jobs.values())

    def add(self, job: GoneJob) -> None:
        """It has gone."""
        before = self._jobs.pop(job.id, None)
        if before is not None:
            self.bytes -= before.bytes
        self._jobs[job.id] = job
        self.bytes += job.bytes
        while self.bytes > BYTES_MAX:
            self._drop_oldest()

    def expire(self, now_s: float) -> None:
        """Forget those that went longer ago than `AGE_S_MAX`."""
        while self._jobs and next(iter(self._jobs.values())).gone_at_s < now_s - AGE_S_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.bytes -= self._jobs.popitem(last=False)[1].bytes
