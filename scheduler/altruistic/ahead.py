"""All that runs and all that jobs have planned, in one pool: beside that, nobody's plan is in the way of another's."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.intra import Job
from scheduler.altruistic.packing import Run, Runs
from scheduler.altruistic.profile import Profile


class Ahead:
    """From now on; made anew for each look at all jobs."""

    def __init__(self, total: Vector, jobs: Iterable[Job], now_s: float) -> None:
        self.profile = Profile(total)
        self._now_s = now_s
        for job in jobs:
            for group, end_s, tasks in job.running:
                self.profile.take(now_s, max(end_s, now_s), job.dag.demand[group], tasks)
            self._foresee(job, job.plan.listed(), 1)

    def _foresee(self, job: Job, runs: Iterable[Run], sign: int) -> None:
        """Have what the job has planned in the profile, or no longer (-1)."""
        for group, start_s, tasks in runs:
            begin_s = max(start_s, self._now_s)
            end_s = begin_s + float(job.dag.duration_s[group])
            self.profile.take(begin_s, end_s, job.dag.demand[group], sign * tasks)

    def adopts(self, job: Job, runs: Runs) -> bool:
        """Whether there is room for a new plan in place of the job's; the profile has that then."""
        self._foresee(job, job.plan.listed(), -1)
        taken: list[Run] = []
        for run in runs.listed():
            end_s = run.start_s + float(job.dag.duration_s[run.group])
            if self.profile.room(job.dag.demand[run.group], run.start_s, end_s) < run.tasks:
                self._foresee(job, taken, -1)
                self._foresee(job, job.plan.listed(), 1)
                return False
            self._foresee(job, [run], 1)
            taken.append(run)
        return True

    def start(self, job: Job, group: int, tasks: int) -> float:
        """The job starts tasks, planned or not; when they are expected to end."""
        self._foresee(job, job.plan.listed(), -1)
        end_s = job.start(group, tasks, self._now_s)
        self._foresee(job, job.plan.listed(), 1)
        self.profile.take(self._now_s, end_s, job.dag.demand[group], tasks)
        return end_s
