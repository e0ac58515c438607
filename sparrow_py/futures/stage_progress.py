"""How far the stages of a job are, counted from its futures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sparrow_py.futures.task_future import TaskFuture
from sparrow_py.job import JobSpec, TaskStatus

COLUMNS = ("stage", "tasks", "finished", "failed", "cancelled", "lost", "left")
"""What `StageProgress.row` has."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Tasks of one stage, by how they ended."""

    name: str
    tasks: int
    finished: int
    failed: int
    cancelled: int
    lost: int

    @property
    def left(self) -> int:
        """Tasks that have not ended."""
        return self.tasks - self.finished - self.failed - self.cancelled - self.lost

    def row(self) -> tuple[str | int, ...]:
        """Its `COLUMNS`."""
        return self.name, self.tasks, self.finished, self.failed, self.cancelled, self.lost, self.left


def stage_progress(spec: JobSpec, futures: Sequence[TaskFuture]) -> list[StageProgress]:
    """The stages of a job, whose futures these are, in their order."""
    if not spec.stages:
        return [_counted(spec.name or spec.app, futures)]
    found, first = [], 0
    for stage in spec.stages:
        found.append(_counted(stage.name, futures[first : first + len(stage.tasks)]))
        first += len(stage.tasks)
    return found


def _counted(name: str, futures: Sequence[TaskFuture]) -> StageProgress:
    ends = Counter(map(_end, futures))
    return StageProgress(name, len(futures), *(ends[status] for status in TaskStatus))


def _end(future: TaskFuture) -> TaskStatus | None:
    """How its task ended; None if it has not."""
    outcome = future.outcome
    if outcome is not None:
        return outcome.status
    if not future.done():
        return None
    if future.cancelled():
        return TaskStatus.CANCELLED
    return TaskStatus.FINISHED if future.exception() is None else TaskStatus.FAILED
