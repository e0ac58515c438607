"""A client attaches to jobs that another one, or itself, has let go of (`messages.Attach`). Pure.

One scheduler after the other is asked, as the one that keeps a job hands it out with the answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sparrow_py.errors import InvalidRequest, Refused, SparrowError
from sparrow_py.job import JobSpec, StageSpec
from sparrow_py.session.client_job import ClientJob
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from sparrow_py.session.letting_go import Told
    from sparrow_py.session.sink import Sink

SinkOf = Callable[["JobSpec", float, "float | None"], "Sink"]
"""Makes who is told of a job: from the job, its age in seconds, and how long it was to be kept, if that is said."""
ASKED_SHOWN = 3
"""Schedulers that an error names at most."""
LOST = "the scheduler that kept it is lost, and with it what was kept of the job"
"""What becomes of the tasks of an attached job whose scheduler is gone."""
TOLD_ANOTHER = (
    "how it ended was told to a client that was attached before; or its job was cancelled for held_bytes_max, and it "
    "was too much to be kept"
)
"""What is said of tasks of an attached job that nobody tells of."""


class Attaching:
    """One job that the client wants to attach to."""

    __slots__ = ("asked", "asking", "by", "is_kept", "job_id", "sink_of", "told", "until_s")

    def __init__(self, job_id: str, by: int, sink_of: SinkOf, told: Told, until_s: float):
        self.job_id = job_id
        self.by = by
        self.sink_of = sink_of
        self.told = told
        self.until_s = until_s
        """How long schedulers that have not been dialled yet are waited for."""
        self.asking: str | None = None
        """The scheduler that has been asked and has not answered."""
        self.asked: list[str] = []
        self.is_kept = False
        """Whether one has said that another client is attached to the job."""


class Attachments:
    """The jobs that a client wants to attach to."""

    def __init__(
        self,
        send: Callable[[str, m.Message], None],
        schedulers: Collection[str],
        versions: Mapping[str, int],
        timers: list[tuple[float, str]],
        *,
        is_all_dialled: Callable[[], bool],
    ) -> None:
        """send: sends to a scheduler. schedulers: those that are connected. versions: of those that are older.
        timers: a heap of when time is to be looked at for which job."""
        self._send = send
        self._schedulers = schedulers
        self._versions = versions
        self._timers = timers
        self._is_all_dialled = is_all_dialled
        self._by_job: dict[str, Attaching] = {}

    def begin(self, attaching: Attaching, now_s: float) -> None:
        """Ask schedulers for the job."""
        if attaching.job_id in self._by_job:
            attaching.told(InvalidRequest("job_id", attaching.job_id, "a job that is not being attached to already"))
            return
        self._by_job[attaching.job_id] = attaching
        heapq.heappush(self._timers, (attaching.until_s, attaching.job_id))
        self._ask_next(attaching, now_s)

    def _ask_next(self, attaching: Attaching, now_s: float) -> None:
        """Ask a connected scheduler that has not been asked; if there is none, and will be none, nobody has the job."""
        if attaching.asking is not None:
            return
        for scheduler in self._schedulers:
            if scheduler in attaching.asked or self._versions.get(scheduler, m.PROTOCOL_VERSION) < m.SINCE[m.Attach]:
                continue
            attaching.asking = scheduler
            attaching.asked.append(scheduler)
            self._send(scheduler, m.Attach(attaching.job_id, attaching.by))
            return
        if self._is_all_dialled() or now_s >= attaching.until_s:
            del self._by_job[attaching.job_id]
            attaching.told(_why_not(attaching))

    def schedulers_changed(self, now_s: float, gone: str = "") -> None:
        """Another scheduler is connected, or all have been dialled, or this one is gone."""
        for attaching in list(self._by_job.values()):
            if attaching.asking == gone:
                attaching.asking = None
            self._ask_next(attaching, now_s)

    def time_is(self, job_id: str, now_s: float) -> None:
        """Schedulers may not be waited for any more."""
        attaching = self._by_job.get(job_id)
        if attaching is not None:
            self._ask_next(attaching, now_s)

    def not_attached(self, scheduler: str, message: m.NotAttached, now_s: float) -> bool:
        """A scheduler does not keep the job, or not for this client; False if it was not asked."""
        attaching = self._by_job.get(message.job)
        if attaching is None or attaching.asking != scheduler:
            return False
        attaching.is_kept = attaching.is_kept or message.is_kept
        attaching.asking = None
        self._ask_next(attaching, now_s)
        return True

    def attached(self, scheduler: str, message: m.Attached, now_s: float) -> ClientJob | None:
        """The job is this client's from now on; None if it was not asked for."""
        submission = message.submission
        attaching = self._by_job.get(submission.job)
        if attaching is None or attaching.asking != scheduler:
            return None
        del self._by_job[submission.job]
        spec = spec_of(submission)
        job = ClientJob(
            spec, attaching.sink_of(spec, submission.age_s, message.retention_s), now_s, submission.instance,
            submitted_s=now_s - submission.age_s,
        )  # fmt: skip
        # With no epoch it would be taken for one that no scheduler may have.
        job.submission = msgspec.structs.replace(submission, epoch=max(1, submission.epoch), age_s=0.0)
        job.attached_by = attaching.by
        job.inner = []  # Nobody but its scheduler can go on with it.
        job.accepted = job.taken = True
        job.scheduler = scheduler
        attaching.told(None)
        return job

    def give_up(self, error: SparrowError) -> None:
        """No scheduler will answer any more."""
        by_job, self._by_job = dict(self._by_job), {}
        for attaching in by_job.values():
            attaching.told(error)


def _why_not(attaching: Attaching) -> SparrowError:
    if attaching.is_kept:
        return Refused(f"a client is attached to job {attaching.job_id}: one may be at a time")
    asked = ", ".join(attaching.asked[:ASKED_SHOWN]) + ("" if len(attaching.asked) <= ASKED_SHOWN else ", …")
    where = f"asked {len(attaching.asked)}: {asked}" if asked else "asked none"
    return InvalidRequest(
        "job_id", attaching.job_id,
        f"a detached job of this user that one of the connected schedulers keeps ({where}); it keeps none whose time "
        "is over, or of which a client that was attached has been told everything",
    )  # fmt: skip


def spec_of(submission: m.SubmitJob) -> JobSpec:
    """The job as far as one that attaches to it has to know it: its tasks have no payloads."""
    stages = [
        StageSpec([b""] * stage.task_count, name=stage.name, after=stage.after, app=stage.app)
        for stage in submission.stages
    ]
    spec = JobSpec(job_id=submission.job, max_attempts=submission.max_attempts, policy=submission.policy)
    if len(stages) > 1:
        return replace(spec, stages=stages, name=submission.name)
    (one,) = stages
    return replace(spec, tasks=one.tasks, name=submission.name or one.name, app=one.app)
