"""The jobs that are here: they are accepted or refused, and they leave, as they end or go to another scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sparrow_py.job import NAME_BYTES_MAX
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.admission import Refusal
    from scheduler.book.attempts import Attempts
    from scheduler.book.deliveries import Deliveries
    from scheduler.book.inventories import Inventories
    from scheduler.book.jobs import JobState
    from scheduler.book.ledger import Ledger

TAKEN_OVER_MAX = 1000
"""Jobs that are remembered to be at another scheduler."""


class TakenOver(NamedTuple):
    """A job that another scheduler has claimed: with which epoch, and whose it is."""

    epoch: int
    user: str


class Register:
    """See the module's docstring."""

    def __init__(self, ledger: Ledger, attempts: Attempts, deliveries: Deliveries, inventories: Inventories) -> None:
        self._ledger = ledger
        self._attempts = attempts
        self._deliveries = deliveries
        self._inventories = inventories
        self.job_gone: Callable[[JobState, str, float], None] = _nobody_is_told
        """Told of each job that was accepted and is here no more: how it went, and when."""
        self.job_refused: Callable[[str, str, Refusal], None] = _nobody_is_told_why
        """Told of each job that is refused: its id, the user, and why."""
        self.watched_left: Callable[[JobState, float], None] = _nobody_watches
        """Called with a job that leaves before tasks of it have ended whose results other jobs await."""
        self.by_client: dict[str, dict[str, JobState]] = {}
        """The jobs of each connected client, by their ids."""
        self.nested: dict[str, int] = {}
        """Connected clients that are within tasks, and how deep the jobs are that they submit."""
        self.taken_over: dict[str, TakenOver] = {}
        """Jobs that were here until another scheduler claimed them; the latest of them."""
        self.news: deque[str] = deque(maxlen=TAKEN_OVER_MAX)
        """Those of them that nobody has been told of."""
        self.left: list[JobState] = []
        """Jobs that have left in the event that is handled now: once it is over nothing looks at them any more."""

    # ---- they come ---------------------------------------------------------------------------

    def add(self, job: JobState) -> None:
        """The job, which was admitted, is here."""
        self._ledger.jobs[job.id] = job
        self._inventories.came(job)
        self.by_client.setdefault(job.client, {})[job.id] = job
        placing = self._ledger.placing
        for stage in job.stages:
            placing.stage_came(stage)

    def client_lets_go(self, job: JobState) -> None:
        """The job goes on without its client, which has not gone."""
        jobs = self.by_client.get(job.client, {})
        jobs.pop(job.id, None)
        if not jobs:
            self.by_client.pop(job.client, None)

    def client_has(self, job: JobState) -> None:
        """The job has a client, which was not the one that submitted it."""
        self.by_client.setdefault(job.client, {})[job.id] = job

    def accept(self, job: JobState, now_s: float) -> None:
        """Tell the job's client that it will run."""
        ledger = self._ledger
        ledger.counters.jobs_accepted += 1
        self.taken_over.pop(job.id, None)
        ledger.note(now_s, job.id, "accepted with epoch %d, %d tasks of user %s", job.epoch, job.task_count, job.user)
        ledger.to_client(job.client, m.JobAccepted(job.id))

    def refuse(self, client: str, user: str, job_id: str, why: Refusal) -> None:
        """Tell the user's client that its job will not run here."""
        self._ledger.counters.jobs_refused += 1
        job_id = job_id[:NAME_BYTES_MAX]
        self._ledger.to_client(client, m.JobRefused(job_id, why.reason, why.field, why.retry_after_s))
        self.job_refused(job_id, user, why)

    # ---- they leave --------------------------------------------------------------------------

    def ended(self, job: JobState, now_s: float) -> None:
        """Every task has its outcome."""
        ledger = self._ledger
        if not ledger.is_here(job):
            return
        ledger.note(now_s, job.id, "ended")
        ledger.counters.jobs_ended += 1
        self._remove(job)
        self._inventories.ended(job, now_s)
        self._deliveries.job_ended(job, now_s)
        ledger.to_client(job.client, m.JobEnded(job.id))
        self.job_gone(job, "ended", now_s)

    def abandon(self, job: JobState, now_s: float) -> None:
        """The job is another scheduler's, or comes again with a higher epoch: drop it without a word."""
        self._ledger.note(now_s, job.id, "abandoned at epoch %d", job.epoch)
        self._ledger.counters.jobs_fenced += 1
        self._inventories.was_sent(job)
        self.drop(job, now_s)
        self.job_gone(job, "was taken over by another scheduler", now_s)

    def fenced(self, message: m.Fenced, now_s: float) -> None:
        """Another scheduler has the job now, as a node says; or another user's job of the same id, or one before it."""
        job = self._ledger.jobs.get(message.job)
        if job is not None and job.is_meant_by(message) and job.epoch < message.epoch:
            self.abandon(job, now_s)
            self.taken_over[job.id] = TakenOver(message.epoch, job.user)
            self.news.append(job.id)
            if len(self.taken_over) > TAKEN_OVER_MAX:
                del self.taken_over[next(iter(self.taken_over))]
            # Its client took it there, and has no use for this; unless it gave the job an id that was used before.
            reason = f"another scheduler has claimed a job of this id, with epoch {message.epoch}"
            self._ledger.to_client(job.client, m.JobRefused(job.id, reason, "job_id"))

    def hand_over(self, now_s: float) -> list[tuple[str, m.Message]]:
        """Let go of all jobs, whose clients take them to other schedulers; returns what to tell which client."""
        ledger = self._ledger
        last_words: list[tuple[str, m.Message]] = []
        for job in list(ledger.jobs.values()):
            unstarted = job.without_start()[: m.UNSTARTED_RANGES_MAX]
            cancelled = job.cancelled and not job.cancelled_for_loss
            handed_over = m.HandedOver(job.id, tuple(unstarted), cancelled, cancelled and job.cancel_running)
            last_words.append((job.client, handed_over))
            ledger.note(now_s, job.id, "handed over")
            for node_id in job.sent_to:  # Nodes are not to forget it: the next scheduler claims it there.
                del ledger.nodes[node_id].sent[job.id]
            job.sent_to.clear()
            self.drop(job, now_s)
            ledger.counters.jobs_handed_over += 1
            self.job_gone(job, "was handed over to other schedulers", now_s)
        return last_words

    def drop(self, job: JobState, now_s: float) -> None:
        """The job, which has not ended, is here no more."""
        for stage in job.stages:
            self._ledger.placing.stage_left(stage, now_s)
        for attempt in list(job.attempts.values()):
            self._attempts.end(attempt)
        self._ledger.admission.withdrawn(job.user, job.unplaced)
        self._deliveries.forget(job)
        self._remove(job)
        if job.watched:
            self.watched_left(job, now_s)

    def _remove(self, job: JobState) -> None:
        ledger = self._ledger
        del ledger.jobs[job.id]
        jobs = self.by_client.get(job.client)
        if jobs is not None:
            jobs.pop(job.id, None)
            if not jobs:
                del self.by_client[job.client]
        ledger.holds(job, -job.held_bytes)
        for number, expected in job.expected.items():
            if (other := ledger.jobs.get(expected.job_id)) is not None:
                other.watch_no_more(expected.task, job.id, number)
        for other_id in job.avoids:
            del ledger.jobs[other_id].avoids[job.id]
        for node_id in sorted(job.sent_to):
            del ledger.nodes[node_id].sent[job.id]
            ledger.to_node(node_id, m.ForgetJob(job.id))
        self.left.append(job)

    def let_go(self) -> None:
        """An event is over: jobs that left in it go."""
        for job in self.left:
            job.dissolve()
        self.left.clear()


def _nobody_is_told(job: JobState, how: str, now_s: float) -> None:
    """Of jobs that are gone."""


def _nobody_is_told_why(job_id: str, user: str, why: Refusal) -> None:
    """Of jobs that are refused."""


def _nobody_watches(job: JobState, now_s: float) -> None:
    """What becomes of the job's tasks."""
