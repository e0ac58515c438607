"""All of it: what the driver tells, and what those who show it ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from scheduler.recent.gone_jobs import GoneJobs, gone
from scheduler.recent.held_slots import HeldSlots
from scheduler.recent.hour import Hour, Rates
from scheduler.recent.task_log import RECORD_BYTES, TaskLog

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState
    from scheduler.core import SchedulerCore
    from sparrow_py.wire.messages import Report


class Recent:
    """See the package's docstring. The driver feeds reports to `tasks.add`, which may want one to be looked at closely,
    and says which jobs have gone (`job_gone`) and that time has come (`tick`)."""

    def __init__(self, core: SchedulerCore, now_s: float) -> None:
        self._core = core
        self._jobs = core.jobs
        self.setbacks = core.book.ledger.setbacks
        self.tasks = TaskLog(core.jobs.__contains__)
        self.gone = GoneJobs()
        self.slots = HeldSlots()
        self.hour = Hour(core.counters, now_s)
        self.rates = Rates(core.counters, now_s)
        self._gone_count = 0
        self._look_at_s = self._looked_s = now_s

    # ---- what happens ------------------------------------------------------------------------

    def look_closely(self, report: Report) -> None:
        """The task log, which has this report, wants it to be looked at before the core hears it."""
        self._sample(report)
        self.tasks.look_at = self.hour.service_s.next * RECORD_BYTES

    def _sample(self, report: Report) -> None:
        job, service_s, started_at_s = self._jobs.get(report.job), report.service_s, report.started_at_s
        if job is None or not 0 <= report.task < job.task_count or service_s is None or started_at_s is None:
            return
        number, reserved_at_s = self.tasks.place // RECORD_BYTES, job.stage_of(report.task).reserved_at_s
        if 0 <= service_s < math.inf:
            self.hour.service_s.add(number, service_s)
        if reserved_at_s is not None and math.isfinite(started_at_s):
            self.hour.wait_s.add(number, max(0.0, started_at_s - reserved_at_s))

    def job_gone(self, job: JobState, how: str, now_s: float) -> None:
        """The job is here no more."""
        self.gone.add(gone(job, how, now_s, self.tasks.let_go(job.id)))
        self._gone_count += 1
        if how == "ended" and self._gone_count >= self.hour.job_s.next:
            self.hour.job_s.add(self._gone_count, now_s - job.born_s)

    def chains_since(self, at_s: float, jobs_max: int) -> Iterator[tuple[str, int]]:
        """The users of jobs that are here, or were at this time or later, at most so many, and where in the task log
        their latest records are."""
        here = [(job.user, self.tasks.latest(job.id)) for job in islice(self._jobs.values(), jobs_max)]
        gone = takewhile(lambda job: job.gone_at_s >= at_s, self.gone.latest_first())
        return iter(here + [(job.user, job.place) for job in islice(gone, jobs_max - len(here))])

    # ---- time --------------------------------------------------------------------------------

    def next_deadline_s(self) -> float:
        """When `tick` is due next."""
        return self._look_at_s

    def tick(self, now_s: float) -> None:
        """Look at who has which slots, and end what is over."""
        core, slots, hour = self._core, self.slots, self.hour
        slots.look(core.nodes.all(), now_s)
        hour.looked(slots.by_user)
        self.rates.look(now_s)
        self.tasks.time_passed(now_s - self._looked_s)
        self._looked_s = now_s
        self._look_at_s = now_s + slots.interval_s
        if hour.ends(now_s):
            self.gone.expire(now_s)
            unplaced = sum(core.admission.unplaced.values())
            self.tasks.look_at = 0
            hour.end(now_s, nodes=len(core.nodes), slots=slots.slots, unplaced=unplaced)
