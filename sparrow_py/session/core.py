"""The client's pure core: which scheduler gets a job, when to submit again, what is an outcome.

No sockets, clocks or randomness of its own. It makes sure that each task's outcome reaches the
job's `Sink` exactly once, whatever comes over the wire (guarantee 2). When a scheduler is lost, its
jobs go to another with a higher epoch and the outcomes that are known (guarantee 4).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sparrow_py.counted import counted
from sparrow_py.errors import InvalidRequest, InvariantViolated, NoScheduler, Refused, SparrowError
from sparrow_py.exception_pickling import ended_with
from sparrow_py.job import BlobRef, Ended, JobSpec, TaskResult, TaskStatus
from sparrow_py.session.attaching import LOST, TOLD_ANOTHER, Attaching, Attachments, SinkOf
from sparrow_py.session.awaiting import Awaiting
from sparrow_py.session.client_job import (
    CHUNK_TASKS,
    ENTRY_OVERHEAD_BYTES,
    PENDING,
    STATUSES,
    ClientJob,
    bytes_of,
    bytes_of_detail,
    given_results,
)
from sparrow_py.session.detaching import Detaching
from sparrow_py.session.in_parts import WITHDRAWN, JobsInParts, may_go_in_parts, room_of
from sparrow_py.session.letting_go import LettingGo, Told, detached
from sparrow_py.session.turns import Turns
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    import random

    from sparrow_py.session.sink import Sink

INSTANCE_BITS = 48
RETRY_GROWN_MAX_S = 5.0
"""A job that is refused again and again waits so long at most until it is offered again, unless it is told to."""
RETRY_DOUBLINGS_MAX = 16
NOTHING_GIVEN: Mapping[int, m.Data] = MappingProxyType({})
NOTHING_ENDED: Mapping[TaskResult, Ended] = MappingProxyType({})
AVOIDED_SHOWN = 5
"""Jobs that an error names at most."""
FOLLOWING_SHOWN = 5
"""Schedulers that an error names at most."""
DECIDE_TIMEOUT_S = 2.0
"""Schedulers that have not been dialled yet are waited for so long at most before it is decided for which plane a job
is, if that depends on them."""
UNANSWERED_MAX = 100
"""Questions of a job to its scheduler that have no answer yet."""
RETURN_TIMEOUT_S = 2.0
"""A job whose scheduler's link broke waits so long for that scheduler to be reached again: if it lives it has all that
is known of the job, and outcomes that the client has not read."""
USED_MAX = 100_000
"""Memories of node monitors of which a job remembers that they were used; with more it does without."""
_OF_NO_JOB = frozenset({m.Draining, m.Leads, m.AllHandedOver, m.Attached, m.NotAttached})
"""Messages that are not about a job which the client has submitted there."""


class Outbox(Protocol):
    """Where effects go."""

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Send to a scheduler."""

    def stream(self, scheduler: str, job: ClientJob) -> None:
        """Send `job.chunks` to the scheduler as fast as it takes them, then call `streamed`."""

    def upload_again(self, job: ClientJob, hash_: str) -> None:
        """No node has this input of the job any more: upload it, if it is at hand, then call `uploaded`."""


class Nobody:
    """Is told what becomes of a job that has ended, and of which nothing is left to tell."""

    def accepted(self) -> None: ...
    def refused(self, error: SparrowError) -> None: ...
    def placed(self, task: int) -> None: ...
    def outcome(self, outcome: m.Outcome) -> None: ...
    def not_cancelled(self, task: int) -> None: ...
    def ended(self) -> None: ...


NOBODY = Nobody()


class ClientCore:
    """See the module's docstring. Times are seconds of any clock that never goes back."""

    def __init__(self, rng: random.Random, outbox: Outbox, *, submit_timeout_s: float) -> None:
        self.jobs: dict[str, ClientJob] = {}
        self.schedulers: dict[str, int] = {}
        """Connected schedulers and the largest payload in bytes that each takes."""
        self._planes: dict[str, str] = {}
        """The planes of the connected schedulers."""
        self._following: set[str] = set()
        """The connected schedulers that take no jobs, as another leads their plane."""
        self._all_dialled = True
        """Whether each scheduler has answered once, or did not: so that those that will be connected are."""
        self._versions: dict[str, int] = {}
        """Connected schedulers whose version of the protocol is older than ours, and that version."""
        self._draining: set[str] = set()
        """The connected schedulers that take no further jobs."""
        self.duplicates = 0
        """Outcomes that came again and were ignored."""
        self.moves = 0
        """Jobs that went to another scheduler because theirs was lost."""
        self._rng = rng
        self._outbox = outbox
        self._submit_timeout_s = submit_timeout_s
        self._waiting: dict[str, ClientJob] = {}
        """Jobs for which no scheduler is connected, or none that leads their plane."""
        self._timers: list[tuple[float, str]] = []
        self._last_error = ""
        self._questions = itertools.count(1)
        self._failure: SparrowError | None = None
        """Why no job can run any more."""
        self.attached: set[str] = set()
        """The jobs here that this client has attached to."""
        self.attachments = 0
        """How often it has."""
        self._awaiting = Awaiting(self._give_results)
        self._turns = Turns()
        self._detaching = Detaching(outbox.to_scheduler, self.schedulers, self._versions, self.receive, self._let_go)
        self._attachments = Attachments(
            outbox.to_scheduler, self.schedulers, self._versions, self._timers,
            is_all_dialled=lambda: self._all_dialled,
        )  # fmt: skip
        self._positions = itertools.count()
        self._in_parts = JobsInParts(
            self, self._timers, accepted=self._accepted, refused=self._refused, settle=self._settle,
            settle_unrun=self._settle_unrun, settle_rest=self._settle_rest,
        )  # fmt: skip

    # ---- events: the user --------------------------------------------------------------------

    def submit(
        self,
        spec: JobSpec,
        sink: Sink,
        now_s: float,
        given: Mapping[int, m.Data] = NOTHING_GIVEN,
        ended: Mapping[TaskResult, Ended] = NOTHING_ENDED,
        *,
        whole: ClientJob | None = None,
    ) -> ClientJob:
        """Submit a valid job; `InvalidRequest` if one of this id runs, or if a message cannot hold what it has; after
        `fail` the error of that.

        given: tasks of inner stages that are not to run, with their results. The sink is told nothing of these tasks.
        ended: of the tasks whose results the job asks for those that have ended; of the others this core is to be told
        how they end (`ended_elsewhere`), unless they are of jobs that are submitted here.
        whole: the job that it is a part of.
        """
        if self._failure is not None:
            raise self._failure
        if spec.job_id in self.jobs:
            raise InvalidRequest("job_id", spec.job_id, "an id that no running job of this client has")
        instance = self._rng.getrandbits(INSTANCE_BITS)
        deadline_s = now_s + self._submit_timeout_s
        job = ClientJob(spec, sink, deadline_s, instance, submitted_s=now_s, acknowledges=True)
        job.decide_by_s = now_s + DECIDE_TIMEOUT_S
        job.position = next(self._positions)
        if given:
            job.give(given)
        if whole is not None:
            job.whole, job.uploads, job.futures = whole.id, whole.uploads, whole.futures
        self.jobs[job.id] = job
        if job.awaited:
            self._awaiting.begin(job, ended)
        try:
            self._assign(job, now_s)
        except BaseException:
            self._gone(job)
            raise
        return job

    def _gone(self, job: ClientJob) -> bool:
        """The job is not here any more; False if it was not before."""
        if job.awaited:
            self._awaiting.end(job)
            self._turns.end(job)
        self._let_next(job)
        if job.letting_go is not None:
            self._detaching.ended(job)
        if job.attached_by is not None:
            self.attached.discard(job.id)
        return self.jobs.pop(job.id, None) is not None

    def _let_go(self, job: ClientJob) -> None:
        """The job goes on without this client, which hears no more of what others here await of it."""
        self._gone(job)
        self._awaiting.job_failed(job.id, ended_with(detached(job.id)))

    def _let_next(self, job: ClientJob) -> None:
        """The job is taken, or over: those that waited for it are offered when time is looked at next."""
        for behind in self._turns.next(job.id):
            if job.taken:
                behind.deadline_s = inf  # Its time begins when it is offered.
            heapq.heappush(self._timers, (behind.submitted_s, behind.id))

    def cancel_job(self, job_id: str, now_s: float, *, running: bool = False) -> None:
        """Cancel what of the job has not started; with `running`, what runs is stopped too."""
        job = self.jobs.get(job_id)
        if job is None or (job.cancelled and (job.running_too or not running)):
            return
        job.cancelled = True
        job.running_too = running
        if job.parts is not None:
            self._in_parts.cancel_job(job, now_s, running=running)
        elif job.scheduler is None and not job.submission.epoch:
            self._withdraw(job)
        elif job.scheduler is not None and not self._must_stream(job):
            self._outbox.to_scheduler(job.scheduler, m.CancelJob(job_id, running))

    # ---- events: jobs that go on without this client -----------------------------------------

    def detach(
        self,
        spec: JobSpec,
        retention_s: float,
        given_back: Callable[[], Iterable[m.Outcome]],
        told: Told,
        now_s: float,
        submitted_s: float,
    ) -> None:
        """Let go of the job (submitted at `submitted_s`): its scheduler goes on with it, and keeps what becomes
        of it for `retention_s` after its end. Its sink hears no more of it once `told` is called with None.

        given_back: all outcomes that the sink has been told, with references to large results.
        """
        job, letting_go = self.jobs.get(spec.job_id), LettingGo(retention_s, given_back, told, is_over=False)
        if job is None:
            self._keep_ended(spec, letting_go, max(0.0, now_s - submitted_s))
        elif allowed := self._why_not_let_go(job):
            told(InvalidRequest("job", job.id, allowed))
        else:
            self._detaching.begin(job, letting_go)

    def _why_not_let_go(self, job: ClientJob) -> str:
        """Which jobs this one would have to be among to be let go of; empty if it is."""
        if job.parts is not None or job.whole:
            return "a job that a scheduler takes as one: of at most unplaced_tasks_max tasks"
        if job.letting_go is not None:
            return "a job that is not being detached already"
        if job.id in self._awaiting.results:
            return "a job whose results no other job of this client waits for"
        if len(job.ended) < len(job.awaited):
            return "a job whose tasks wait for no results of other jobs any more"
        return ""

    def _keep_ended(self, spec: JobSpec, letting_go: LettingGo, age_s: float) -> None:
        """No scheduler has the job any more: have one keep its outcomes."""
        takers = [one for one in self.schedulers if one not in self._draining]
        if self._failure is not None or not takers:
            letting_go.told(self._failure or NoScheduler(self._last_error or "no scheduler is connected"))
            return
        job = ClientJob(spec, NOBODY, inf, self._rng.getrandbits(INSTANCE_BITS))
        job.submission = msgspec.structs.replace(job.submission, age_s=age_s)
        job.scheduler = self._rng.choice(takers)
        job.decide(self._planes[job.scheduler])
        job.accepted = job.taken = letting_go.is_over = True
        self.jobs[job.id] = job
        self._detaching.begin(job, letting_go)

    def attach(self, job_id: str, sink_of: SinkOf, told: Told, now_s: float) -> None:
        """Attach to a job of this user that was let go of. `told` is called with None once it is this client's.

        sink_of: the tasks of the job that it is given have no payloads.
        """
        if self._failure is not None:
            told(self._failure)
        elif job_id in self.jobs:
            told(InvalidRequest("job_id", job_id, "a job that this client does not have"))
        else:
            by = self._rng.getrandbits(INSTANCE_BITS)
            self._attachments.begin(Attaching(job_id, by, sink_of, told, now_s + DECIDE_TIMEOUT_S), now_s)

    def _attached(self, scheduler: str, message: m.Attached, now_s: float) -> None:
        job = self.jobs.get(message.submission.job)
        if job is not None:  # Its link broke, and it is back.
            if job.attached_by is not None and job.scheduler == scheduler:
                job.taken = True
                self._accepted(job)
            return
        job = self._attachments.attached(scheduler, message, now_s)
        if job is not None:
            job.plane = self._planes[scheduler]
            job.position = next(self._positions)
            self.jobs[job.id] = job
            self.attached.add(job.id)
            self.attachments += 1

    def _not_attached(self, scheduler: str, message: m.NotAttached, now_s: float) -> None:
        if self._attachments.not_attached(scheduler, message, now_s):
            return
        job = self.jobs.get(message.job)
        if job is not None and job.attached_by is not None and job.scheduler == scheduler and not job.taken:
            self._settle_rest(job, TaskStatus.LOST, LOST)

    def _return_to(self, job: ClientJob) -> None:
        """The link to the scheduler of an attached job broke: it alone can go on with it."""
        scheduler = job.returns_to
        job.returns_to = None
        if scheduler not in self.schedulers or job.attached_by is None:
            self._settle_rest(job, TaskStatus.LOST, LOST)
            return
        job.scheduler = scheduler
        self._outbox.to_scheduler(scheduler, m.Attach(job.id, job.attached_by))

    # ---- events: tasks that finish elsewhere -------------------------------------------------

    def finish(self, job_id: str, task: int, result: m.Data) -> None:
        """The task of an inner stage has finished in another job, with this result: its own attempt is stopped, and the
        stages after it go on. The sink is told nothing of it."""
        job = self.jobs.get(job_id)
        if job is None or job.settled[task]:
            return
        self._note_settled(job, task, TaskStatus.FINISHED, result)
        job.finished_elsewhere.append(task)
        self._send_finished(job)

    def ended_elsewhere(self, job_id: str, task: int, ended: Ended) -> None:
        """A task has ended, of a job that may never have been submitted here: jobs may await its result."""
        self._awaiting.task_ended(job_id, task, ended)

    def may_end(self, result: TaskResult) -> bool:
        """Whether a job that is here has this task, and it has not ended."""
        job = self.jobs.get(result.job_id)
        return job is not None and 0 <= result.task < len(job.settled) and not job.settled[result.task]

    def _give_results(self, job: ClientJob, ended: Mapping[int, Ended]) -> None:
        assert job.scheduler is not None, f"job {job.id} is with no scheduler"
        bytes_max = self.schedulers[job.scheduler]
        for message in given_results(job.id, ended, bytes_max):
            self._outbox.to_scheduler(job.scheduler, message)

    def _send_finished(self, job: ClientJob) -> None:
        """Tell the scheduler of these tasks, as soon as it has all tasks. One that gets the job later is told with what
        is known of it."""
        if not job.finished_elsewhere or not job.taken or job.streaming or job.scheduler is None:
            return
        for task in job.finished_elsewhere:
            self._outbox.to_scheduler(job.scheduler, m.FinishedElsewhere(job.id, task, job.results[task]))
        job.finished_elsewhere.clear()

    @staticmethod
    def _must_stream(job: ClientJob) -> bool:
        """Whether the scheduler must get all tasks before they are cancelled: some of them may run already."""
        return job.streaming and job.submission.epoch > 0

    def cancel_tasks(self, job_id: str, tasks: list[int], now_s: float, *, running: bool = False) -> None:
        """Cancel tasks; for each the sink is told an outcome or `not_cancelled`. With `running`, whether they run
        or not."""
        job = self.jobs.get(job_id)
        if job is None:
            return
        if job.parts is not None:
            self._in_parts.cancel_tasks(job, tasks, now_s, running=running)
            return
        for task in tasks:
            if not job.settled[task] and not job.cancelling.get(task, False):
                job.cancelling[task] = running
                job.told_to_cancel.discard(task)
        if job.scheduler is None and not job.submission.epoch and len(job.cancelling) == job.unsettled:
            self._withdraw(job)
        else:
            self._send_cancels(job)

    def _send_cancels(self, job: ClientJob) -> None:
        """Send what is to be cancelled, unless the scheduler may yet refuse the job, or has not all its tasks."""
        if not job.cancelling or not job.taken or job.streaming or job.scheduler is None:
            return
        for running in (False, True):
            tasks = sorted(
                task for task, too in job.cancelling.items() if too is running and task not in job.told_to_cancel
            )
            count = min(CHUNK_TASKS, self.schedulers[job.scheduler] // ENTRY_OVERHEAD_BYTES)
            for first in range(0, len(tasks), count):
                some = tasks[first : first + count]
                self._outbox.to_scheduler(job.scheduler, m.CancelTasks(job.id, some, running))
            job.told_to_cancel.update(tasks)

    def _withdraw(self, job: ClientJob) -> None:
        """Cancel a job that no scheduler has."""
        job.scheduler = None
        self._settle_rest(job, TaskStatus.CANCELLED, WITHDRAWN)

    def ask_placed(self, job_id: str, tasks: list[int], told: Callable[[Sequence[int]], None]) -> bool:
        """Ask the job's scheduler which of these tasks have left the queue; `told` is called once with those that have,
        or with none if the job ends or changes schedulers before that. False if nobody can be asked.

        That a job has been accepted is not waited for: its tasks may run before that is told.
        """
        job = self.jobs.get(job_id)
        if job is not None and job.parts is not None:
            return self._in_parts.ask_placed(job, tasks, told)
        if job is None or job.scheduler is None:
            return False
        if job.asked_placed is None:
            job.asked_placed = {}
        if len(job.asked_placed) >= UNANSWERED_MAX:
            return False
        number = next(self._questions)
        job.asked_placed[number] = told
        self._outbox.to_scheduler(job.scheduler, m.AskPlaced(job_id, number, tasks))
        return True

    @staticmethod
    def _placed_now(job: ClientJob, message: m.PlacedNow) -> None:
        told = job.asked_placed.pop(message.number, None) if job.asked_placed else None
        if told is not None:
            told(message.tasks)

    @staticmethod
    def _no_answer_comes(job: ClientJob) -> None:
        if job.asked_placed is None:
            return
        asked, job.asked_placed = job.asked_placed, None
        for told in asked.values():
            told(())

    # ---- events: schedulers ------------------------------------------------------------------

    def dialling(self) -> None:
        """Schedulers are about to be dialled: `all_dialled` says when each has answered once, or did not."""
        self._all_dialled = False

    def all_dialled(self, now_s: float) -> None:
        """Each scheduler has answered, or did not: jobs for which another was better go to those that have."""
        self._all_dialled = True
        self._offer_waiting(now_s)
        self._attachments.schedulers_changed(now_s)

    def scheduler_up(
        self,
        scheduler: str,
        frame_bytes_max: int,
        now_s: float,
        version: int = m.PROTOCOL_VERSION,
        plane: str = m.SPARROW,
        leads: bool = True,
    ) -> None:
        """A link stands, of this version of the protocol, to a scheduler of this plane."""
        self.schedulers[scheduler] = frame_bytes_max - m.MESSAGE_OVERHEAD_BYTES
        self._planes[scheduler] = plane
        if not leads:
            self._following.add(scheduler)
        if version < m.PROTOCOL_VERSION:
            self._versions[scheduler] = version
        self._offer_waiting(now_s, scheduler)
        self._attachments.schedulers_changed(now_s)

    def _offer_waiting(self, now_s: float, scheduler: str | None = None) -> None:
        """Jobs that wait may have a scheduler now: this one is back, or new, if one is named."""
        for job in list(self._waiting.values()):
            if job.returns_to in (None, scheduler) and self._waiting.pop(job.id, None) is not None:
                self._assign_again(job, now_s)

    def _leads(self, scheduler: str, message: m.Leads, now_s: float) -> None:
        if message.leads:
            self._following.discard(scheduler)
            self._offer_waiting(now_s, scheduler)
        else:
            self._following.add(scheduler)

    def scheduler_unreachable(self, scheduler: str, now_s: float) -> None:
        """The scheduler, which was linked, has been dialled again, and did not answer."""
        for job in [job for job in self._waiting.values() if job.returns_to == scheduler]:
            self._go_elsewhere(job, now_s)

    def _go_elsewhere(self, job: ClientJob, now_s: float) -> None:
        job.returns_to = None
        if self.schedulers or job.attached_by is not None:
            self._waiting.pop(job.id, None)
            self._assign_again(job, now_s)

    def scheduler_down(self, scheduler: str, reason: str, now_s: float, *, redialled: bool = False) -> None:
        """A link is gone: its jobs go to another scheduler, with all that is known of them.

        `redialled`: it is dialled again at once, and unless it stays away (`scheduler_unreachable`) its jobs go back to
        it.
        """
        self._schedulers_lost(scheduler, now_s)
        self._forget(scheduler)
        self._last_error = f"scheduler {scheduler} was lost: {reason}"
        self._attachments.schedulers_changed(now_s, scheduler)
        for job in [job for job in self.jobs.values() if job.scheduler == scheduler]:
            self._move(job, (), now_s, returns_to=scheduler if redialled else None)

    def _schedulers_lost(self, scheduler: str, now_s: float) -> None:
        """Its jobs that were to be let go of are this client's."""
        for job in [job for job in self.jobs.values() if job.scheduler == scheduler and job.letting_go is not None]:
            self._detaching.scheduler_lost(job, now_s)

    def _forget(self, scheduler: str) -> None:
        self.schedulers.pop(scheduler, None)
        self._draining.discard(scheduler)
        self._following.discard(scheduler)
        self._planes.pop(scheduler, None)
        self._versions.pop(scheduler, None)

    def _left(self, scheduler: str, now_s: float) -> None:
        """The scheduler has no job of this client any more. One that it did not answer for has not reached it: another
        gets that as if it were new, and nothing of it counts as started."""
        self._schedulers_lost(scheduler, now_s)
        self._forget(scheduler)
        for job in [job for job in self.jobs.values() if job.scheduler == scheduler]:
            if job.taken:
                self._move(job, (), now_s)
            else:
                job.scheduler = None
                job.streaming = False
                self._no_answer_comes(job)
                self._assign_again(job, now_s)

    def _move(
        self, job: ClientJob, unstarted: tuple[tuple[int, int], ...], now_s: float, *, returns_to: str | None = None
    ) -> None:
        """The job's scheduler has it no more, as far as is known: take it to another, or back to that one."""
        job.scheduler = None
        job.taken = job.streaming = False
        self._no_answer_comes(job)
        job.told_to_cancel.clear()
        job.leave(unstarted)
        self.moves += 1
        # Even a job that was not accepted yet, as far as we know, may have been, and may run.
        job.submission = msgspec.structs.replace(job.submission, epoch=job.submission.epoch + 1)
        job.deadline_s = now_s + self._submit_timeout_s
        if returns_to is None and job.attached_by is not None:
            self._settle_rest(job, TaskStatus.LOST, LOST)
            return
        if returns_to is None:
            self._assign_again(job, now_s)
            return
        job.returns_to, job.return_by_s = returns_to, now_s + RETURN_TIMEOUT_S
        self._waiting[job.id] = job
        for at_s in (job.return_by_s, job.deadline_s):
            heapq.heappush(self._timers, (at_s, job.id))

    def receive(self, scheduler: str, message: Any, now_s: float) -> None:
        """A message from a connected scheduler."""
        kind = type(message)
        if kind in _OF_NO_JOB:
            self._receive_of_no_job(scheduler, message, now_s)
            return
        job = self.jobs.get(message.job)
        if job is None or job.scheduler != scheduler:
            self.duplicates += kind is m.Outcome
            return
        if job.letting_go is not None and self._detaching.hears(job, scheduler, message, now_s):
            return
        if kind is m.Outcome:
            self._settle(job, message)
        elif kind is m.Placed:
            job.sink.placed(message.task)
        elif kind is m.JobAccepted:
            self._accepted(job)
        elif kind is m.JobRefused:
            self._try_again(job, message, now_s)
        elif kind is m.NotCancelled:
            job.cancelling.pop(message.task, None)
            job.told_to_cancel.discard(message.task)
            job.sink.not_cancelled(message.task)
        elif kind is m.JobEnded:
            unsaid = "its scheduler ended the job without saying how this task ended"
            self._settle_rest(job, TaskStatus.LOST, unsaid if job.attached_by is None else TOLD_ANOTHER)
        elif kind is m.Retried:
            job.starts[message.task] = message.starts
        elif kind is m.Counted:
            self._counted(job, scheduler, message)
        elif kind is m.Using:
            self._using(job, scheduler, message)
        elif kind is m.Unused:
            if job.used is not None:
                job.used.discard(message.memory)
        elif kind is m.HandedOver:
            self._detaching.scheduler_lost(job, now_s)
            if message.cancelled:
                job.cancelled, job.running_too = True, job.running_too or message.running
            if job.id in self.jobs:
                self._move(job, message.unstarted, now_s)
        elif kind is m.PlacedNow:
            self._placed_now(job, message)
        elif kind is m.AskResults:
            self._awaiting.asked(job, message.numbers)
        elif kind is m.BlobLost:
            self._outbox.upload_again(job, message.hash)

    def _receive_of_no_job(self, scheduler: str, message: Any, now_s: float) -> None:
        """One of `_OF_NO_JOB`."""
        kind = type(message)
        if kind is m.Draining:
            self._draining.add(scheduler)
        elif kind is m.Leads:
            self._leads(scheduler, message, now_s)
        elif kind is m.AllHandedOver:
            self._left(scheduler, now_s)
        elif kind is m.Attached:
            self._attached(scheduler, message, now_s)
        else:
            self._not_attached(scheduler, message, now_s)

    def _counted(self, job: ClientJob, scheduler: str, message: m.Counted) -> None:
        job.starts.update(message.starts)
        if message.failures:
            job.failures.update(message.failures)
        if message.waiting:
            job.waiting.update(message.starts)
            return
        job.waiting.difference_update(message.starts)
        self._outbox.to_scheduler(scheduler, m.CountKnown(job.id, message.starts, message.failures))

    def _using(self, job: ClientJob, scheduler: str, message: m.Using) -> None:
        if job.used is not None:
            job.used.update(message.memories)
            if len(job.used) > USED_MAX:
                job.used = None
        self._outbox.to_scheduler(scheduler, m.UsingKnown(job.id, message.number))

    def _accepted(self, job: ClientJob) -> None:
        job.taken = True
        job.refusals = 0
        self._let_next(job)
        if not job.accepted:
            job.accepted = True
            job.sink.accepted()
        if job.cancelled and not job.streaming and job.scheduler is not None:
            self._outbox.to_scheduler(job.scheduler, m.CancelJob(job.id, job.running_too))
        self._send_finished(job)
        self._send_cancels(job)
        self._detaching.go_on(job)

    def uploaded(self, job_id: str, blob: BlobRef, reason: str = "") -> None:
        """The input has been uploaded again; `blob.at` is empty if it could not be, for this reason, or as it is not
        here."""
        job = self.jobs.get(job_id)
        if job is None:
            return
        if blob.at:
            stages = [_with_common(stage, blob) for stage in job.submission.stages]
            job.submission = msgspec.structs.replace(job.submission, stages=stages)
            job.given[:] = [blob if one.hash == blob.hash else one for one in job.given]
            for number, (status, result, error) in job.ended.items():
                if isinstance(result, BlobRef) and result.hash == blob.hash:
                    job.ended[number] = status, blob, error
        job.payloads = [blob if isinstance(p, BlobRef) and p.hash == blob.hash and blob.at else p for p in job.payloads]
        if job.scheduler is not None:
            self._outbox.to_scheduler(job.scheduler, m.BlobAt(job_id, blob, m.cut_reason(reason)))

    def abandon(self) -> None:
        """The client is done: nobody is told of its jobs any more."""
        closed = SparrowError("the client was closed meanwhile")
        for job in self.jobs.values():
            self._no_answer_comes(job)
            self._detaching.ended(job, closed)
        self._attachments.give_up(closed)
        self._turns.clear()
        self.jobs.clear()
        self.attached.clear()
        self._waiting.clear()
        self._timers.clear()

    def fail(self, error: SparrowError) -> None:
        """No scheduler will take a job or tell of one any more: the sinks of all jobs are told so."""
        self._failure = error
        jobs = list(self.jobs.values())
        self._attachments.give_up(error)
        self.abandon()
        for job in jobs:
            job.sink.refused(error)

    def stream_failed(self, job: ClientJob, error: SparrowError) -> None:
        """A task of the job cannot be sent."""
        if job.id in self.jobs and job.scheduler is not None:
            self._outbox.to_scheduler(job.scheduler, m.CancelJob(job.id, running=True))
            job.scheduler = None
            self._refused(job, error)

    def streamed(self, job: ClientJob) -> None:
        """All tasks of the job have been sent."""
        job.streaming = False
        if job.id in self.jobs:
            if job.cancelled and job.scheduler is not None:
                self._outbox.to_scheduler(job.scheduler, m.CancelJob(job.id, job.running_too))
            self._send_finished(job)
            self._send_cancels(job)
            self._detaching.go_on(job)

    # ---- events: time ------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        return self._timers[0][0] if self._timers else None

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: submit again what was refused, give up what waited too long."""
        while self._timers and self._timers[0][0] <= now_s:
            job_id = heapq.heappop(self._timers)[1]
            job = self.jobs.get(job_id)
            if job is None:
                self._attachments.time_is(job_id, now_s)
            elif job.parts is not None:
                self._in_parts.offer_next(job, now_s)
            elif job.scheduler is None:
                if job.returns_to is not None and job.return_by_s <= now_s:
                    self._go_elsewhere(job, now_s)
                    continue
                if job.id in self._waiting and job.deadline_s > now_s and (job.plane or job.decide_by_s > now_s):
                    continue
                self._waiting.pop(job.id, None)
                self._assign_again(job, now_s)

    # ---- decisions ---------------------------------------------------------------------------

    def _assign(self, job: ClientJob, now_s: float) -> None:
        """Send the job to a scheduler of its plane chosen at random, or wait for one, or for jobs that go before."""
        if job.attached_by is not None:
            self._return_to(job)
            return
        if job.awaited and not self._has_its_turn(job, now_s):
            return
        if not job.plane and (plane := self._plane_for(job, now_s)):
            job.decide(plane)
        takers = self._takers(job)
        if job.returns_to in self.schedulers and job.returns_to not in takers:
            job.returns_to = None  # It is back, and leads no more.
        if not takers:
            self._wait_for_taker(job, now_s)
            return
        scheduler = self._choose(job, takers)
        submission = job.submission
        unknown = self._unknown_to(scheduler, job)
        if unknown is not None and not submission.epoch:
            field, value, meaning = unknown
            allowed = f"none: scheduler {scheduler} is of a version that does not know {meaning}"
            raise InvalidRequest(field, value, allowed)
        job.returns_to = None
        job.asked_results.clear()
        bytes_max = self.schedulers[scheduler]
        self._check_sizes(job, bytes_max)
        job.scheduler = scheduler
        if job.submission.epoch:
            job.submission = msgspec.structs.replace(job.submission, age_s=max(0.0, now_s - job.submitted_s))
        self._outbox.to_scheduler(scheduler, job.submission)
        following = job.messages(bytes_max)
        first, second = next(following, None), next(following, None)
        job.streaming = second is not None
        if first is not None:
            self._outbox.to_scheduler(scheduler, first)
        if second is not None:
            job.chunks = itertools.chain([second], following)
            self._outbox.stream(scheduler, job)

    def _has_its_turn(self, job: ClientJob, now_s: float) -> bool:
        """Whether the job need not wait for others any more (`Turns`)."""
        if self._turns.wait(job, self.jobs):
            return False
        if job.deadline_s == inf:
            job.deadline_s = now_s + self._submit_timeout_s
        return True

    # ---- decisions: planes -------------------------------------------------------------------

    def _plane_for(self, job: ClientJob, now_s: float) -> str:
        """The plane that the job is for, which has not been decided; empty if that depends on schedulers which may yet
        be connected."""
        wanted = m.FLOW if job.policy == "auto" and job.is_long else m.SPARROW
        if wanted == m.FLOW and self._leaders(m.FLOW):
            return m.FLOW
        if wanted == m.SPARROW and m.SPARROW in self._planes.values():
            return m.SPARROW
        if not self._planes or (not self._all_dialled and now_s < job.decide_by_s):
            return ""
        connected = self._planes.values()
        return next((plane for plane in (m.SPARROW, m.FLOW, m.ALTRUISTIC) if plane in connected), m.FLOW)

    def _leaders(self, plane: str) -> list[str]:
        """The connected schedulers that take jobs for this plane."""
        return [one for one in self.schedulers if self._planes[one] == plane and one not in self._following]

    def _takers(self, job: ClientJob) -> list[str]:
        """The connected schedulers that may have the job."""
        return self._leaders(job.plane) if job.plane else []

    def _wait_for_taker(self, job: ClientJob, now_s: float) -> None:
        """No connected scheduler may have the job: wait for one, for a while."""
        if now_s >= job.deadline_s:
            within = f"within submit_timeout_s = {self._submit_timeout_s:g} s"
            self._refused(job, NoScheduler(f"no scheduler took job {job.id} {within}: {self._why_no_taker(job)}"))
            return
        self._waiting[job.id] = job
        due_s = job.deadline_s
        if not job.plane and self._planes:
            due_s = min(due_s, job.decide_by_s)
        heapq.heappush(self._timers, (due_s, job.id))

    def _why_no_taker(self, job: ClientJob) -> str:
        """Why no connected scheduler may have the job."""
        if not self.schedulers:
            return self._last_error or "no scheduler is connected"
        connected = ", ".join(sorted(set(self._planes.values())))
        why_not = f"it is for policy {job.plane or job.policy}; connected are schedulers of policy {connected}"
        following = [one for one in self.schedulers if self._planes[one] == job.plane]
        if following:
            shown_ones = ", ".join(following[:FOLLOWING_SHOWN])
            why_not += f"; of policy {job.plane}, {shown_ones} does not lead, and takes no jobs"
        return why_not

    def _choose(self, job: ClientJob, takers: list[str]) -> str:
        """Any of these schedulers will do; but jobs that avoid each other must be at one that knows of both (§8), and
        one that has been away for a moment has what is known of its jobs."""
        if job.returns_to in takers:
            return job.returns_to
        if job.submission.avoid and (there := self._where_avoided(job, takers)):
            return there[0]
        schedulers = takers
        if self._versions:
            schedulers = [one for one in schedulers if self._unknown_to(one, job) is None] or schedulers
        if self._draining:
            schedulers = [one for one in schedulers if one not in self._draining] or schedulers
        return self._rng.choice(schedulers)

    def _unknown_to(self, scheduler: str, job: ClientJob) -> tuple[str, object, str] | None:
        """A field that the job states and the scheduler is too old for, its value and meaning; None if there is
        none."""
        version = self._versions.get(scheduler)
        if version is None or version >= m.PLANES_SINCE:
            return None
        for index, stage in enumerate(job.submission.stages):
            if stage.priority is not None:
                return f"stages[{index}].priority", stage.priority, "priorities of stages"
        if job.given:
            return "inputs", f"{len(job.given)} pieces of data", "data as inputs of tasks"
        if job.awaited:
            return (
                "inputs",
                f"{counted(len(job.awaited), 'result')} of other jobs",
                "results of other jobs as inputs of tasks",
            )
        return None

    def _where_avoided(self, job: ClientJob, takers: list[str]) -> list[str]:
        """Those of the schedulers that have jobs which this one avoids, in their order. A new job is refused if there
        are several, or another that may not have it: none of them could keep it from all those jobs. One that moves
        goes on as well as may be."""
        others = {other.id: other.scheduler for name in job.submission.avoid if (other := self.jobs.get(name))}
        there = list(dict.fromkeys(scheduler for scheduler in others.values() if scheduler is not None))
        if len(there) > 1 and not job.submission.epoch:
            where = ", ".join(f"{name} is at {scheduler}" for name, scheduler in list(others.items())[:AVOIDED_SHOWN])
            raise InvalidRequest("avoid", list(others)[:AVOIDED_SHOWN], f"jobs that are at one scheduler; {where}")
        planes = [plane for one in there if (plane := self._planes[one]) != job.plane]
        if planes and not job.submission.epoch:
            allowed = f"jobs of its own policy, {job.plane}; these are of policy {planes[0]}"
            raise InvalidRequest("avoid", list(others)[:AVOIDED_SHOWN], allowed)
        return [one for one in there if one in takers]

    def _assign_again(self, job: ClientJob, now_s: float) -> None:
        """Do as `_assign` for a job that `submit` has taken already: the sink is told what is wrong with it."""
        try:
            self._assign(job, now_s)
        except SparrowError as error:
            self._refused(job, error)

    @staticmethod
    def _check_sizes(job: ClientJob, bytes_max: int) -> None:
        commons = sum([bytes_of(stage.common) for stage in job.submission.stages])
        if commons > bytes_max:
            raise InvalidRequest("common", f"{commons} bytes in all", f"at most {bytes_max} bytes")
        size = len(msgspec.msgpack.encode(job.submission)) if len(job.submission.stages) > 1 else 0
        if size > bytes_max + m.MESSAGE_OVERHEAD_BYTES:
            raise InvalidRequest("stages", f"{size} bytes without their tasks", f"at most {bytes_max} bytes")
        for task, payload in enumerate(job.payloads):
            if isinstance(payload, bytes) and len(payload) > bytes_max:
                raise InvalidRequest(
                    f"tasks[{task}]", f"{len(payload)} bytes", f"a payload of at most {bytes_max} bytes"
                )
        for ref in job.given:
            if bytes_of(ref) > bytes_max:
                raise InvalidRequest("inputs", f"{bytes_of(ref)} bytes", f"references of at most {bytes_max} bytes")
        for task, detail in job.details.items():
            size = bytes_of(job.payloads[task]) + bytes_of_detail(detail)
            if size > bytes_max + m.DETAIL_BYTES_FREE:
                allowed = f"payload, preferred and inputs of at most {bytes_max} bytes together"
                raise InvalidRequest(f"tasks[{task}]", f"{size} bytes", allowed)

    def _try_again(self, job: ClientJob, message: m.JobRefused, now_s: float) -> None:
        if not job.submission.epoch and (job.cancelled or len(job.cancelling) >= job.unsettled > 0):
            self._withdraw(job)
            return
        self._no_answer_comes(job)
        retry_s = message.retry_after_s
        if retry_s is None or now_s + retry_s > job.deadline_s:
            if message.field:
                self._refused(job, InvalidRequest.told(message.field, message.reason))
            elif retry_s is not None:
                until = f"no room is expected within submit_timeout_s = {self._submit_timeout_s:g} s of its submission"
                self._refused(job, Refused(f"{message.reason}; {until}", retry_s))
            elif (room := room_of(message)) and may_go_in_parts(job):
                self._in_parts.begin(job, room, now_s)
            else:
                self._refused(job, Refused(message.reason))
            return
        refused_by, job.scheduler = job.scheduler, None
        job.taken = job.streaming = False
        takers = self._takers(job)
        drains = refused_by in self._draining and bool(takers) and self._choose(job, takers) not in self._draining
        if drains or refused_by not in takers:
            # The submission crossed the word that it drains, or leads no more: another may take it.
            self._assign_again(job, now_s)
            return
        job.refusals += 1
        heapq.heappush(self._timers, (min(now_s + self._wait_s(job, retry_s), job.deadline_s), job.id))

    def _wait_s(self, job: ClientJob, retry_s: float) -> float:
        """How long to wait until the job is offered again.

        The scheduler says when there may be room for it, and says so to all that it refuses: if they all came back
        then, they would be refused again and again, and to refuse them would be its work. So one that is refused
        repeatedly waits twice as long each time, up to a limit, and not as long as the others.
        """
        grown_s = min(retry_s * 2.0 ** min(job.refusals - 1, RETRY_DOUBLINGS_MAX), RETRY_GROWN_MAX_S)
        return max(retry_s, grown_s * self._rng.uniform(0.5, 1.0)) if job.refusals > 1 else retry_s

    def _refused(self, job: ClientJob, error: SparrowError) -> None:
        if job.accepted:  # By a scheduler that is no more.
            self._settle_rest(job, TaskStatus.LOST, str(error))
            return
        self._gone(job)
        self._no_answer_comes(job)
        self._awaiting.job_failed(job.id, (TaskStatus.LOST, b"", str(error)))
        job.sink.refused(error)

    def _settle(self, job: ClientJob, outcome: m.Outcome) -> None:
        task = outcome.task
        if task >= len(job.settled) or task < 0 or job.settled[task]:
            self.duplicates += 1
            return
        self._note_settled(job, task, outcome.status, outcome.result)
        if outcome.attempts > 1 and task in job.results:  # It may have to run again for its result.
            job.keep_starts(task, outcome.attempts)
        if job.id in self._awaiting.results:
            self._awaiting.task_ended(job.id, task, (outcome.status, outcome.result, outcome.error))
        job.sink.outcome(outcome)

    @staticmethod
    def _note_settled(job: ClientJob, task: int, status: TaskStatus, result: m.Data) -> None:
        """The task, which had no outcome, has one."""
        job.settled[task] = STATUSES.index(status) + 1
        job.unsettled -= 1
        if job.inner and status is TaskStatus.FINISHED and job.is_inner(task):
            job.results[task] = result
        if job.cancelling:
            job.cancelling.pop(task, None)
            job.told_to_cancel.discard(task)
        if job.starts:
            job.starts.pop(task, None)
        if job.failures and task not in job.results:
            job.failures.pop(task, None)
        if job.waiting:
            job.waiting.discard(task)

    def _settle_unrun(self, job: ClientJob, tasks: Iterable[int], status: TaskStatus, reason: str) -> None:
        """The tasks, of which no scheduler knows, end so."""
        for task in tasks:
            if not job.settled[task]:
                self._settle(job, unrun(job.id, task, status, reason))

    def _settle_rest(self, job: ClientJob, status: TaskStatus, reason: str) -> None:
        """The job ends; tasks without an outcome get this one."""
        if job.unsettled:
            for task in range(len(job.payloads)):
                if not job.settled[task]:
                    self._settle(job, unrun(job.id, task, status, reason, job.attempts(task)))
        if self._gone(job):
            self._no_answer_comes(job)
            self._waiting.pop(job.id, None)
            job.sink.ended()

    def check_invariants(self) -> None:
        """Raise `InvariantViolated` if something that must hold does not."""
        for job in self.jobs.values():
            unsettled = job.settled.count(PENDING)
            if job.unsettled != unsettled:
                raise InvariantViolated(f"job {job.id}: {unsettled} unsettled tasks, counted {job.unsettled}", [])
            waits = job.id in self._waiting or job.behind in self.jobs or job.parts is not None
            if job.scheduler is None and not waits and all(job.id != key for _, key in self._timers):
                raise InvariantViolated(f"job {job.id} is with no scheduler and waits for nothing", [])
            if job.scheduler is not None and job.scheduler not in self.schedulers:
                raise InvariantViolated(f"job {job.id} is with scheduler {job.scheduler}, which is gone", [])
            if job.scheduler is not None and self._planes[job.scheduler] != job.plane:
                raise InvariantViolated(f"job {job.id} for {job.plane!r} is with {job.scheduler}, of another plane", [])


def _with_common(stage: m.Stage, blob: BlobRef) -> m.Stage:
    """The stage; if its common bytes are this blob, they are where that is now."""
    common = stage.common
    same = isinstance(common, BlobRef) and common.hash == blob.hash
    return msgspec.structs.replace(stage, common=blob) if same else stage


def unrun(job_id: str, task: int, status: TaskStatus, reason: str, attempts: int = 0) -> m.Outcome:
    """The outcome of a task that no scheduler told of."""
    return m.Outcome(job_id, task, status, b"", reason, attempts, "", None, None, None)
