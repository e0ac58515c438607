"""Results of tasks of any job that tasks ask for before there are any: futures as arguments of calls.

A task that lacks such a result is held, in no slot. The result comes from the task that produces it, if that is here
and of the same client; else the client is asked, who hears of all its tasks. A task whose input does not finish ends as
that did.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from scheduler.book.circles import never_coming
from scheduler.book.footprint import failure_bytes
from scheduler.book.jobs import CLAIMING, SETTLED, Failure
from scheduler.book.validation import check_awaited, check_blob
from sparrow_py.errors import LinkError
from sparrow_py.job import FINISHED, LOST, BlobRef
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.cancellation import Cancellation
    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.restarts import Restarts


AS_INPUT = re.compile(r"task \d+ of job \S+, an input: ")
"""So begins the error of a task that ended as another did."""


@dataclass(eq=False, slots=True)
class AwaitedResults:
    """The awaited results of all jobs of a scheduler."""

    _ledger: Ledger
    _outcomes: Outcomes
    _restarts: Restarts
    _cancellation: Cancellation
    _ended: deque[tuple[JobState, int, Failure]] = field(default_factory=deque)
    """Results that will not come, of which tasks that ask for them are to be told. A task that ends so may be an input
    of another, and so on: chains of any length are followed here, and not by calls within calls."""
    _is_telling: bool = False

    # ---- jobs ask for them -------------------------------------------------------------------

    def await_(self, job: JobState, awaited: Collection[tuple[str, int]]) -> None:
        """The job's tasks may ask for these results, as (job, task), from now on."""
        check_awaited(job, awaited)
        unknown = []
        for job_id, task in awaited:
            number = job.expect(job_id, task)
            if not self._watch(job, number):
                unknown.append(number)
        if unknown:
            self._ledger.to_client(job.client, m.AskResults(job.id, unknown))

    def _watch(self, job: JobState, number: int) -> bool:
        """Hear of the task that produces the result, if it is here and has not ended."""
        expected = job.expected[number]
        other = self._ledger.jobs.get(expected.job_id)
        if other is None or (other.client, other.user) != (job.client, job.user):
            return False
        task = expected.task
        if task >= other.task_count or other.phase is CLAIMING:  # Then it may have ended elsewhere.
            return False
        if task < other.received:
            stage = other.stage_of(task)
            if stage.states[task - stage.first] == SETTLED or task - stage.first in stage.rerun:
                return False
        other.watch(task, job, number)
        return True

    # ---- tasks of other jobs end -------------------------------------------------------------

    def watched_ended(self, other: JobState, outcome: m.Outcome, now_s: float) -> None:
        """A task has ended whose result is awaited."""
        watchers = other.watched.pop(outcome.task, {})
        for (_, number), job in watchers.items():
            if outcome.status is FINISHED:
                self._came(job, number, outcome.result, now_s)
            else:
                self._never(job, number, Failure(outcome.status, outcome.result, outcome.error), now_s)

    def watched_left(self, other: JobState, now_s: float) -> None:
        """A job has left before tasks of it have ended whose results are awaited: its client knows where it is."""
        self.ended_elsewhere(other, list(other.watched), now_s)

    def ended_elsewhere(self, other: JobState, tasks: Iterable[int], now_s: float) -> None:
        """Of the job's tasks these will have no outcome here, or have had one elsewhere: the client is asked for those
        whose results are awaited."""
        asked = sorted(key for task in tasks for key in other.watched.pop(task, ()))
        for job_id, keys in groupby(asked, key=lambda key: key[0]):
            job = self._ledger.jobs.get(job_id)
            if job is not None:
                self._ask(job, [number for _, number in keys], now_s)

    def _ask(self, job: JobState, numbers: list[int], now_s: float) -> None:
        if job.client:
            self._ledger.to_client(job.client, m.AskResults(job.id, numbers))
        elif not job.acknowledges:  # Else its client may return yet.
            for number in numbers:
                self._never(job, number, Failure(LOST, b"", "the client that knows of it went away"), now_s)

    # ---- clients say what has become of them -------------------------------------------------

    def given(self, job: JobState, message: m.GiveResults, now_s: float) -> None:
        """The client says what has become of tasks whose results the job awaits."""
        end = job.task_count + job.given_count
        for number in (*message.results, *message.failures):
            if not job.task_count <= number < end:
                raise LinkError(f"job {job.id}: {number} is no number of a result that it awaits")
        for result in (*message.results.values(), *(result for _, result, _ in message.failures.values())):
            if isinstance(result, BlobRef):
                check_blob(result)
        for number, result in message.results.items():
            self._came(job, number, result, now_s)
        for number, (status, result, error) in message.failures.items():
            if status is FINISHED:
                raise LinkError(f"job {job.id}: result {number} has finished, and is said to have failed")
            self._never(job, number, Failure(status, result, m.cut_reason(error)), now_s)

    def client_gone(self, job: JobState, now_s: float) -> None:
        """The job goes on without its client: what that was to say nobody will."""
        unwatched = [number for number in job.expected if not self._is_watched(job, number)]
        self._ask(job, unwatched, now_s)

    def clients_gone(self, jobs: Iterable[JobState], now_s: float) -> None:
        """These jobs, of one client, go on without it: nobody would cancel those of their tasks that wait for
        themselves in the end."""
        for job, number in never_coming([job for job in jobs if self._ledger.is_here(job) and not job.acknowledges]):
            self._never(job, number, Failure(LOST, b"", "it waits for itself in the end"), now_s)

    def _is_watched(self, job: JobState, number: int) -> bool:
        expected = job.expected[number]
        other = self._ledger.jobs.get(expected.job_id)
        return other is not None and (job.id, number) in other.watched.get(expected.task, ())

    # ---- what follows ------------------------------------------------------------------------

    def _came(self, job: JobState, number: int, result: m.Data, now_s: float) -> None:
        if not self._ledger.is_here(job) or number not in job.expected:
            return
        expected = job.expected.pop(number)
        self._forget(job, number, expected.job_id, expected.task)
        job.results[number] = result
        job.has_large = job.has_large or isinstance(result, BlobRef)
        if isinstance(result, bytes) and not self._ledger.holds(job, len(result)):
            self._cancellation.cancel(job, self._ledger.admission.over_bytes(job.user), now_s)
            return
        waiting: dict[StageState, list[int]] = {}
        for stage, task in expected.waiting:
            waiting.setdefault(stage, []).append(task)
        for stage, tasks in waiting.items():
            self._restarts.result_came(stage, tasks, number, now_s)

    def _never(self, job: JobState, number: int, failure: Failure, now_s: float) -> None:
        self._ended.append((job, number, failure))
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._ended:
                self._tell(*self._ended.popleft(), now_s)
        finally:
            self._is_telling = False

    def _tell(self, job: JobState, number: int, failure: Failure, now_s: float) -> None:
        """Tasks that ask for the result end as the task did that was to produce it."""
        expected = job.expected.get(number)
        if not self._ledger.is_here(job) or expected is None or expected.failure is not None:
            return
        self._forget(job, number, expected.job_id, expected.task)
        error = failure.error
        if not AS_INPUT.match(error):  # Of a chain the first is named, which says why, and none of those between.
            error = f"task {expected.task} of job {expected.job_id}, an input: {error}"
        expected.failure = failure._replace(error=m.cut_reason(error))
        waiting, expected.waiting = expected.waiting, []
        size = failure_bytes(expected.failure.result, expected.failure.error)
        job.fixed_bytes += size  # Tasks that are yet to come may ask for it.
        if not self._ledger.holds(job, size):
            self._cancellation.cancel(job, self._ledger.admission.over_bytes(job.user), now_s)
        for stage, task in waiting:
            if number in stage.expects.get(task, ()) and self._ledger.is_here(job):
                self._outcomes.settle_as_input(stage, task, expected.failure, now_s)

    def _forget(self, job: JobState, number: int, job_id: str, task: int) -> None:
        other = self._ledger.jobs.get(job_id)
        if other is not None:
            other.watch_no_more(task, job.id, number)
