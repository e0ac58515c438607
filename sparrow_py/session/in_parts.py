"""Jobs of more tasks than a scheduler takes of a user: they go to it in parts, as jobs of their own. Pure.

A scheduler refuses such a job for good, and says how many tasks of a user it takes (`unplaced_tasks_max`). The job then
stays with its client, at no scheduler. Its parts follow each other: the next is offered once the one before has been
accepted, and each waits for room for `submit_timeout_s` at most. So a burst of calls waits at its client. What is told
of a part's tasks is told of the job's.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from sparrow_py.errors import SparrowError
from sparrow_py.job import Ended, JobSpec, TaskResult, TaskStatus
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.parts import Parts
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from sparrow_py.session.sink import Sink

WITHDRAWN = "it was cancelled before a scheduler took it"
_ROOM = re.compile(r"\bat most unplaced_tasks_max = (\d+) may be unplaced")
"""What the refusal says: no field of the message has the number."""


def room_of(refusal: m.JobRefused) -> int:
    """How many tasks of a user the scheduler takes, if the job was refused for good as it has more; else 0."""
    if refusal.retry_after_s is not None or refusal.field:
        return 0
    found = _ROOM.search(refusal.reason)
    return int(found[1]) if found else 0


def may_go_in_parts(job: ClientJob) -> bool:
    """Whether no scheduler has had anything of the job, and its tasks are independent of each other, and of others."""
    spec = job.spec
    if job.submission.epoch or job.accepted or job.is_given or job.attached_by is not None or len(job.payloads) < 2:
        return False
    stages = spec.as_stages()
    if len(stages) > 1 or spec.avoid or job.submission.avoid:
        return False
    (stage,) = stages
    return not (stage.gang or stage.max_per_node or stage.max_per_rack)


class Core(Protocol):
    """What parts need of the client's core (`core.ClientCore`), besides what changes jobs."""

    @property
    def jobs(self) -> Mapping[str, ClientJob]:
        """The client's jobs, by id, their parts among them."""

    def submit(
        self,
        spec: JobSpec,
        sink: Sink,
        now_s: float,
        given: Mapping[int, m.Data] = ...,
        ended: Mapping[TaskResult, Ended] = ...,
        *,
        whole: ClientJob | None = None,
    ) -> ClientJob:
        """Submit a job; raises what is wrong with it."""

    def cancel_job(self, job_id: str, now_s: float, *, running: bool = False) -> None:
        """Cancel what of the job has not started; with `running`, what runs, too."""

    def cancel_tasks(self, job_id: str, tasks: list[int], now_s: float, *, running: bool = False) -> None:
        """Cancel tasks."""

    def ask_placed(self, job_id: str, tasks: list[int], told: Callable[[Sequence[int]], None]) -> bool:
        """Ask which of these tasks have left the queue; False if nobody can be asked."""


class JobsInParts:
    """The jobs of a client that go to schedulers in parts."""

    def __init__(
        self,
        core: Core,
        timers: list[tuple[float, str]],
        *,
        accepted: Callable[[ClientJob], None],
        refused: Callable[[ClientJob, SparrowError], None],
        settle: Callable[[ClientJob, m.Outcome], None],
        settle_unrun: Callable[[ClientJob, Iterable[int], TaskStatus, str], None],
        settle_rest: Callable[[ClientJob, TaskStatus, str], None],
    ) -> None:
        """timers: a heap of when time is to be looked at for which job. accepted, refused: a whole job is. settle: a
        task of one has ended. settle_unrun: tasks end so, of which no scheduler knows. settle_rest: the job ends."""
        self._core = core
        self._timers = timers
        self._accepted = accepted
        self._refused = refused
        self._settle = settle
        self._settle_unrun = settle_unrun
        self._settle_rest = settle_rest

    def begin(self, job: ClientJob, room: int, now_s: float) -> None:
        """Its scheduler, and so perhaps each, takes no more than so many tasks of a user: offer the job in parts."""
        job.scheduler = None
        job.streaming = False
        job.parts = Parts(job.spec, room)
        self._settle_unrun(job, list(job.cancelling), TaskStatus.CANCELLED, WITHDRAWN)
        self.offer_next(job, now_s)

    def offer_next(self, job: ClientJob, now_s: float) -> None:
        """Offer the next part, unless one is offered that no scheduler has taken."""
        parts = _parts_of(job)
        if parts.is_offered or job.taken:
            return
        spec = parts.next(job.id, job.settled.__getitem__)
        if spec is None:
            self._accepted(job)
            self._end_if_settled(job)
            return
        sink = PartSink(self, job, spec.job_id, parts.tasks_of[spec.job_id])
        ended = {result: job.ended[number] for result, number in job.awaited.items() if number in job.ended}
        try:
            self._core.submit(spec, sink, now_s, ended=ended, whole=job)
        except SparrowError as error:
            sink.refused(error)

    # ---- news of parts -------------------------------------------------------------------------

    def is_here(self, job: ClientJob) -> bool:
        """Whether the whole job has not ended."""
        return self._core.jobs.get(job.id) is job

    def taken(self, job: ClientJob) -> None:
        """A part was accepted, or is over before: the next may be offered, when time is looked at next."""
        if self.is_here(job):
            _parts_of(job).is_offered = False
            heapq.heappush(self._timers, (job.submitted_s, job.id))

    def refused(self, job: ClientJob, tasks: Sequence[int], error: SparrowError) -> None:
        """No scheduler takes the part with these tasks: what is left of the job would be refused as well."""
        if not self.is_here(job):
            return
        parts = _parts_of(job)
        if not parts.taken and job.unsettled == len(job.payloads):
            self._refused(job, error)
            return
        self._settle_unrun(job, [*tasks, *parts.take_left()], TaskStatus.LOST, str(error))
        self.taken(job)

    def outcome(self, job: ClientJob, outcome: m.Outcome) -> None:
        """How a task ended, by its number in the whole job."""
        if self.is_here(job):
            self._settle(job, outcome)

    def ended(self, job: ClientJob) -> None:
        """All outcomes of a part have been told."""
        self._end_if_settled(job)

    def _end_if_settled(self, job: ClientJob) -> None:
        if not job.unsettled and self.is_here(job):
            self._settle_rest(job, TaskStatus.LOST, "")

    # ---- the user ------------------------------------------------------------------------------

    def cancel_job(self, job: ClientJob, now_s: float, *, running: bool) -> None:
        """Cancel what of the job has not started; with `running`, what runs, too."""
        parts = _parts_of(job)
        self._settle_unrun(job, parts.take_left(), TaskStatus.CANCELLED, WITHDRAWN)
        for part_id in list(parts.tasks_of):
            self._core.cancel_job(part_id, now_s, running=running)
        self._end_if_settled(job)

    def cancel_tasks(self, job: ClientJob, tasks: Sequence[int], now_s: float, *, running: bool) -> None:
        """As `cancel_job`, of these tasks."""
        parts = _parts_of(job)
        offered = parts.by_part(tasks)
        in_parts = {parts.tasks_of[part_id][number] for part_id, numbers in offered.items() for number in numbers}
        self._settle_unrun(job, [task for task in tasks if task not in in_parts], TaskStatus.CANCELLED, WITHDRAWN)
        for part_id, numbers in offered.items():
            self._core.cancel_tasks(part_id, numbers, now_s, running=running)
        self._end_if_settled(job)

    def ask_placed(self, job: ClientJob, tasks: list[int], told: Callable[[Sequence[int]], None]) -> bool:
        """Ask which of these tasks have left the queue: `told` is called once, when all parts have answered."""
        parts = _parts_of(job)
        offered = parts.by_part(tasks)
        placed: list[int] = []
        unanswered = len(offered)

        def answered(own: Sequence[int], numbers: Sequence[int]) -> None:
            nonlocal unanswered
            placed.extend(own[number] for number in numbers if 0 <= number < len(own))
            unanswered -= 1
            if not unanswered:
                told(placed)

        for part_id, numbers in offered.items():
            own = parts.tasks_of[part_id]
            if not self._core.ask_placed(part_id, numbers, partial(answered, own)):
                answered(own, ())
        return bool(offered)


def _parts_of(job: ClientJob) -> Parts:
    assert job.parts is not None, f"job {job.id} went in parts"
    return job.parts


class PartSink:
    """The `Sink` of one part."""

    __slots__ = ("_id", "_is_taken", "_job", "_jobs", "_tasks")

    def __init__(self, jobs: JobsInParts, job: ClientJob, part_id: str, tasks: Sequence[int]) -> None:
        self._jobs = jobs
        self._job = job
        self._id = part_id
        self._tasks = tasks
        self._is_taken = False

    def accepted(self) -> None:
        _parts_of(self._job).taken += 1
        self._taken()

    def _taken(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            self._jobs.taken(self._job)

    def refused(self, error: SparrowError) -> None:
        _parts_of(self._job).tasks_of.pop(self._id, None)
        self._jobs.refused(self._job, self._tasks, error)

    def placed(self, task: int) -> None:
        if self._jobs.is_here(self._job):
            self._job.sink.placed(self._tasks[task])

    def outcome(self, outcome: m.Outcome) -> None:
        told = msgspec.structs.replace(outcome, job=self._job.id, task=self._tasks[outcome.task])
        self._jobs.outcome(self._job, told)

    def not_cancelled(self, task: int) -> None:
        if self._jobs.is_here(self._job):
            self._job.sink.not_cancelled(self._tasks[task])

    def ended(self) -> None:
        _parts_of(self._job).tasks_of.pop(self._id, None)
        self._taken()
        self._jobs.ended(self._job)
