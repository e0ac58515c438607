"""What the metrics show of a scheduler's core; all counts since the start."""

from __future__ import annotations

from sparrow_py.job import TaskStatus
from sparrow_py.timing.histogram import EndedTasks


class Counters:
    """See the module's docstring; `scheduler.http.metrics` says what each one means."""

    __slots__ = (
        "adopted", "asks", "attempts_lost", "failures_retried", "finished_elsewhere", "handed_back", "jobs_accepted",
        "jobs_ended", "jobs_fenced", "jobs_handed_over", "jobs_refused", "launched", "noops", "preempted", "probes",
        "pushes", "pushes_handed_back", "reservations", "reservations_cancelled", "reservations_idle",
        "reservations_refused", "reservations_shared", "retries", "settled", "stale_reports", "task_times",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self.settled: dict[TaskStatus, int] = dict.fromkeys(TaskStatus, 0)
        self.task_times = EndedTasks()
        """Of tasks that executors have ended, and for which this scheduler has sought nodes."""

    adopted: int
    asks: int
    attempts_lost: int
    failures_retried: int
    finished_elsewhere: int
    handed_back: int
    jobs_accepted: int
    jobs_ended: int
    jobs_fenced: int
    jobs_handed_over: int
    jobs_refused: int
    launched: int
    noops: int
    preempted: int
    probes: int
    pushes: int
    pushes_handed_back: int
    reservations: int
    reservations_cancelled: int
    reservations_idle: int
    reservations_refused: int
    reservations_shared: int
    retries: int
    stale_reports: int
