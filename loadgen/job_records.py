"""What became of each job of a workload, whatever ran it: live daemons or simulated ones."""

from __future__ import annotations

import math
from array import array

from loadgen.jobs import WorkloadJob
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

STATUSES = ("", *(status.value for status in TaskStatus))
"""A task's status by the number that `JobRecord` has; the first: its outcome never came."""
WRONG_ANSWER = "the query had another answer than when it ran alone"
_NUMBER = {status: number for number, status in enumerate(STATUSES)}


class JobRecord:
    """The outcome of a job. Times are seconds since the epoch, by this machine's clock or the node's; NaN: unknown.

    number, label: of the job. due_s: when it should have been submitted; submitted_s: when it was. ended_s: the end of
    its last task, NaN if no task ran. For each task: status (a number in `STATUSES`), attempts, node ("": no node),
    reserved_s, started_s, service_s.
    """

    __slots__ = (
        "attempts", "due_s", "error", "job_id", "label", "node", "number", "over", "reserved_s", "service_s",
        "started_s", "status", "submitted_s", "task_status",
    )  # fmt: skip

    def __init__(self, job: WorkloadJob, job_id: str, due_s: float) -> None:
        tasks = len(job.durations_s)
        self.number = job.number
        self.label = job.label
        self.job_id = job_id
        self.due_s = due_s
        self.submitted_s = math.nan
        self.status = "lost"
        self.error = ""
        self.over = False
        self.task_status = bytearray(tasks)
        self.attempts = array("i", [0]) * tasks
        self.node = [""] * tasks
        self.reserved_s = array("d", [math.nan]) * tasks
        self.started_s = array("d", [math.nan]) * tasks
        self.service_s = array("d", [math.nan]) * tasks

    def outcome(self, outcome: m.Outcome) -> None:
        """Record a task's outcome."""
        task = outcome.task
        self.task_status[task] = _NUMBER[outcome.status]
        self.attempts[task] = outcome.attempts
        self.node[task] = outcome.node
        for column, value in (
            (self.reserved_s, outcome.reserved_at_s),
            (self.started_s, outcome.started_at_s),
            (self.service_s, outcome.service_s),
        ):
            if value is not None:
                column[task] = value
        if outcome.error and not self.error:
            self.error = outcome.error

    def answer_is_wrong(self, task: int) -> None:
        """The query has another answer than alone: this task of its last stage counts as failed."""
        self.task_status[task] = _NUMBER[TaskStatus.FAILED]
        self.error = self.error or WRONG_ANSWER

    def end(self) -> None:
        """All outcomes have come: the worst of them is the job's status."""
        self.over = True
        found = {STATUSES[number] for number in self.task_status}
        self.status = next((status for status in ("", "lost", "failed", "cancelled") if status in found), "finished")
        self.status = self.status or "lost"

    def refuse(self, error: Exception) -> None:
        """The job was refused: none of its tasks runs."""
        self.over = True
        self.status = "refused"
        self.error = str(error)

    @property
    def ended_s(self) -> float:
        """The end of the last task that ran."""
        ends = [at_s + took_s for at_s, took_s in zip(self.started_s, self.service_s, strict=True)]
        return max((end_s for end_s in ends if not math.isnan(end_s)), default=math.nan)
