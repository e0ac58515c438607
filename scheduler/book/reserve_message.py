"""What a node is told of reservations of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.options import SchedulerOptions


def reserve_message(
    stage: StageState, ticket_id: int, count: int, options: SchedulerOptions, prefetch: int | None = None
) -> m.Reserve:
    """Queue so many reservations of the stage. prefetch: None is the stage's own."""
    job, spec = stage.job, stage.spec
    return m.Reserve(
        ticket_id, job.id, job.epoch, job.user, options.weight(job.user), stage.priority, spec.app,
        count, spec.prefetch if prefetch is None else prefetch, spec.expected_duration_s, spec.demand,
        job.depth,
    )  # fmt: skip
