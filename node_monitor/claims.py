"""Another scheduler claims a job: what is here of the job goes over, and what is known of the job is told."""

from __future__ import annotations

from collections.abc import Callable

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import WAITS
from node_monitor.fences import Fences, Owner
from node_monitor.history import History
from node_monitor.jobs import Jobs, LocalJob
from node_monitor.lanes import Lane
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import Key
from node_monitor.remembered_outcomes import RememberedOutcomes
from node_monitor.remembered_starts import RememberedStarts
from node_monitor.unclaimed import Unclaimed
from sparrow_py.wire import messages as m


class Claims:
    """Jobs change their scheduler here (ARCHITECTURE.md, "Failover")."""

    __slots__ = (
        "_backlog", "_book", "_fences", "_history", "_jobs", "_lane", "_outcomes", "_starts", "_to_scheduler",
        "_unclaimed",
    )  # fmt: skip

    def __init__(
        self,
        jobs: Jobs,
        book: AttemptBook,
        backlog: Backlog,
        lane: Lane,
        fences: Fences,
        outcomes: RememberedOutcomes,
        starts: RememberedStarts,
        unclaimed: Unclaimed,
        history: History,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._jobs = jobs
        self._book = book
        self._backlog = backlog
        self._lane = lane
        self._fences = fences
        self._outcomes = outcomes
        self._starts = starts
        self._unclaimed = unclaimed
        self._history = history
        self._to_scheduler = to_scheduler

    def claim(self, scheduler: str, message: m.Claim, now_s: float) -> None:
        """The job is this scheduler's now, unless another has claimed it since: it hears what is known of it here."""
        owner, job_id, epoch = (message.user, message.instance), message.job, message.epoch
        known = self._fences.epoch(owner, job_id)
        if known > epoch:
            self._to_scheduler(scheduler, m.Fenced(job_id, known, *owner))
            return
        self._fences.raise_to(owner, job_id, epoch)
        for job in [job for job in self._jobs.by_key.values() if job.id == job_id and job.owner == owner]:
            if job.scheduler != scheduler:
                self._to_scheduler(job.scheduler, m.Fenced(job_id, epoch, *owner))
                self._hand_over(job, scheduler)
        for report in self._outcomes.of(owner, job_id):
            self._to_scheduler(scheduler, report)
        self._withdraw_ready(scheduler, owner, job_id, epoch)
        attempts = [
            one
            for one in self._book.by_key.values()
            if one.job.id == job_id and one.job.scheduler == scheduler and one.charge.ticket.user == message.user
        ]
        for unstarted in [one for one in attempts if one.state is WAITS]:
            self._book.withdraw(unstarted, now_s)
        attempts = [one for one in attempts if one.key in self._book.by_key]
        self._unclaimed.claimed(attempts)
        running = [(one.task, one.number) for one in attempts]
        left = self._jobs.by_key.get((scheduler, job_id))
        if left is not None and not left.attempts:  # What the earlier scheduler had sent; this one does not know of it.
            self._jobs.forget(left)
        vouches = message.age_s is not None and self._tell_starts(scheduler, message, now_s - message.age_s)
        self._to_scheduler(scheduler, m.Claimed(job_id, epoch, running, vouches, *owner))
        self._history.note(now_s, "scheduler %s claimed job %s with epoch %d", scheduler, job_id, epoch)
        if self._book.moved is not None:
            for attempt in attempts:
                self._book.moved(attempt)

    def _hand_over(self, job: LocalJob, scheduler: str) -> None:
        """What of the job is here is the other scheduler's from now on."""
        attempts = [one for one in self._book.by_key.values() if one.job is job]
        for attempt in attempts:
            del self._book.by_key[attempt.key]
        there = self._jobs.hand_over(job, scheduler)
        for attempt in attempts:
            attempt.job = there
            self._book.by_key[attempt.key] = attempt

    def _withdraw_ready(self, scheduler: str, owner: Owner, job_id: str, epoch: int) -> None:
        """The job's ready tasks of earlier epochs do not start; another scheduler that sent them hears so."""
        for key, task in self._backlog.ready.remove(
            lambda key, task: (
                task.job == job_id and self._owner(key, task) == owner and task.attempt >> m.EPOCH_SHIFT < epoch
            )
        ):
            if key[0] != scheduler:
                self._to_scheduler(key[0], m.Fenced(job_id, epoch, *owner))
                self._backlog.say_handed_back(key[0], task, "another scheduler has the job")
            self._backlog.withdraw(key, task)
        if self._lane.waiting:
            self._withdraw_placed(scheduler, owner, job_id, epoch)

    def _withdraw_placed(self, scheduler: str, owner: Owner, job_id: str, epoch: int) -> None:
        """The same for its tasks that wait in the lane."""
        for task in self._lane.take_all(
            lambda task: (
                task.launch.job == job_id
                and task.launch.attempt >> m.EPOCH_SHIFT < epoch
                and (task.ticket.user, self._instance(task.scheduler, job_id)) == owner
            )
        ):
            if task.scheduler != scheduler:
                self._to_scheduler(task.scheduler, m.Fenced(job_id, epoch, *owner))
                self._lane.hand_back([task], "another scheduler has the job")

    def _owner(self, key: Key, task: m.Launch) -> Owner:
        """The user and the instance of a ready task's job."""
        ticket = self._backlog.queue.ticket(key)
        return ("" if ticket is None else ticket.user, self._instance(key[0], task.job))

    def _instance(self, scheduler: str, job_id: str) -> int:
        job = self._jobs.by_key.get((scheduler, job_id))
        return 0 if job is None else job.instance

    def _tell_starts(self, scheduler: str, message: m.Claim, submitted_s: float) -> bool:
        """Name the job's tasks that were started here; returns whether those are all."""
        owner = message.user, message.instance
        tasks = self._starts.of(owner, message.job)
        for first in range(0, len(tasks), m.NUMBERS_PER_MESSAGE_MAX):
            some = tasks[first : first + m.NUMBERS_PER_MESSAGE_MAX]
            self._to_scheduler(scheduler, m.StartedHere(message.job, message.epoch, some, *owner))
        return self._starts.complete_since(message.user, submitted_s)
