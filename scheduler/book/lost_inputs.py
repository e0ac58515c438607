"""Inputs that got lost: a result that lay at a node which is gone is produced again by its task, without a second
outcome for it; what a client gave is uploaded again. Tasks that need such an input are blocked meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import BLOCKED, SETTLED, Attempt, JobState, StageState
from scheduler.book.setbacks import Cause
from scheduler.book.validation import check_blob
from sparrow_py.job import CANCELLED, FINISHED, LOST, BlobRef
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.restarts import Restarts

INPUT_LOSSES_MAX = 5
"""A task whose inputs were gone so often when it was to start is lost; one with as many inputs, or more, once it has
found each of them gone and one again: those that went with one node may be found one by one."""


@dataclass(eq=False, slots=True)
class LostInputs:
    """The lost inputs of all jobs of a scheduler."""

    _ledger: Ledger
    _outcomes: Outcomes
    _restarts: Restarts

    def missing(self, attempt: Attempt, hashes: tuple[str, ...], reason: str, now_s: float) -> None:
        """A node could not fetch inputs of the attempt, which it handed back: have them produced or uploaded again."""
        stage, task, job = attempt.stage, attempt.task, attempt.stage.job
        hashes = self._still_missing(attempt, hashes)
        if not hashes:
            self._restarts.unplaced_again(stage, [task], now_s)
            return
        del stage.attempts[task]
        losses = stage.input_losses[task] = stage.input_losses.get(task, 0) + 1
        if losses >= max(INPUT_LOSSES_MAX, _count_of_inputs(stage, task) + 1):
            self._outcomes.settle_unrun(stage, task, LOST, f"its inputs could not be had: {reason}", now_s)
            return
        why_not = next((why for hash_ in hashes if (why := self._why_gone(job, hash_))), "")
        if why_not:  # The others are not needed, either.
            self._outcomes.settle_unrun(stage, task, LOST, f"an input is gone ({reason}) {why_not}", now_s)
            return
        for hash_ in hashes:
            self._recover(job, hash_, now_s)
        stage.states[task] = BLOCKED
        stage.blocked[task] = set(hashes)
        for hash_ in stage.blocked[task]:
            job.awaited.setdefault(hash_, set()).add((stage.index, task))
        self._ledger.note(now_s, job.id, "task %d waits for inputs %s", stage.first + task, sorted(hashes))
        self._ledger.setbacks.note(stage, task, Cause.INPUTS, now_s, math.inf)

    def _still_missing(self, attempt: Attempt, hashes: tuple[str, ...]) -> tuple[str, ...]:
        """Of these the inputs that have not been replaced since the attempt's node was told of them."""
        stage, job = attempt.stage, attempt.stage.job
        sent = self._ledger.nodes[attempt.node_id].sent.get(job.id, set())
        detail = stage.details.get(attempt.task)
        told: list[m.Data | None] = [stage.payloads[attempt.task]]
        if -1 - stage.index in sent:
            told.append(stage.common)
        for first, count in detail.inputs if detail is not None else ():
            told += [job.results[number] for number in range(first, first + count) if number in sent]
        current = {data.hash: data for data in told if isinstance(data, BlobRef)}
        missing = [hash_ for hash_ in hashes if hash_ in current]
        # A node that is gone took all that it had with it: not one of them at a time.
        connected = {node.info.address for node in self._ledger.nodes.all()}
        gone = {address for hash_ in missing for address in current[hash_].at} - connected
        more = [ref.hash for ref in current.values() if ref.hash not in missing and ref.at and gone.issuperset(ref.at)]
        return (*missing, *more)

    def _why_gone(self, job: JobState, hash_: str) -> str:
        """Why the input cannot come back; empty if it can."""
        if hash_ in job.awaited:
            return ""
        number = _producer(job, hash_)
        if number is None:
            return "" if job.client else "and the client that has it went away"
        stage = job.stage_of(number)
        starts = stage.starts.get(number - stage.first, 0) + 1
        runs_again = stage.states[number - stage.first] != SETTLED  # For another task that needs its result.
        if runs_again or (starts < job.max_attempts and not job.cancelled):
            return ""
        return f"and task {number}, which produced it, has been started {starts} times"

    def _recover(self, job: JobState, hash_: str, now_s: float) -> None:
        """See that the input, which can come back, does."""
        if hash_ in job.awaited:
            return
        number = _producer(job, hash_)
        if number is None:
            self._ledger.to_client(job.client, m.BlobLost(job.id, hash_))
        else:
            self._produce_again(job.stage_of(number), number, now_s)

    def _produce_again(self, stage: StageState, number: int, now_s: float) -> None:
        """Run the task again for its result, without a second outcome."""
        task = number - stage.first
        if stage.states[task] != SETTLED:
            return  # It does already, for another that needs it.
        stage.starts[task] = stage.starts.get(task, 0) + 1
        stage.count_settled(-1)
        stage.rerun.add(task)
        self._restarts.start_again(stage, task, now_s)
        self._ledger.placing.tasks_unplaced(stage, now_s)

    def produced_again(self, stage: StageState, task: int, outcome: m.Outcome, now_s: float) -> None:
        """A task that ran again for its result has ended."""
        job, number = stage.job, stage.first + task
        before = job.results.get(number)
        if not isinstance(before, BlobRef):
            return  # Nobody needs it any more.
        if outcome.status is FINISHED:
            self._replace(job, before.hash, outcome.result, number, now_s)
            return
        reason = f"an input is gone, and task {number}, which produced it, was {outcome.status.value}: {outcome.error}"
        self._give_up_on(job, before.hash, reason, now_s)

    def _give_up_on(self, job: JobState, hash_: str, reason: str, now_s: float) -> None:
        status = CANCELLED if job.cancelled else LOST
        for index, waiting in sorted(job.awaited.get(hash_, ())):
            if waiting in job.stages[index].blocked:  # Else it was settled with one before it.
                self._outcomes.settle_blocked(job.stages[index], [waiting], status, reason, now_s)

    def client_gone(self, job: JobState, now_s: float) -> None:
        """Inputs that only the client has will not come back."""
        for hash_ in [hash_ for hash_ in job.awaited if _producer(job, hash_) is None]:
            self._give_up_on(job, hash_, "an input is gone, and the client that has it went away", now_s)

    def uploaded_again(self, job: JobState, message: m.BlobAt, now_s: float) -> None:
        """The client has uploaded an input again, or could not (`blob.at` is empty)."""
        blob = message.blob
        check_blob(blob)
        if blob.at:
            self._replace(job, blob.hash, blob, None, now_s)
        else:
            why = f"could not upload it again: {m.cut_reason(message.reason)}" if message.reason else "does not have it"
            self._give_up_on(job, blob.hash, f"an input is gone, and the client {why}", now_s)

    def _replace(self, job: JobState, hash_: str, data: m.Data, producer: int | None, now_s: float) -> None:
        """An input is back: from now on it is `data`."""
        for number, result in list(job.results.items()):
            same = isinstance(result, BlobRef) and result.hash == hash_
            if number == producer or (same and isinstance(data, BlobRef) and data.hash == hash_):
                job.results[number] = data
                if isinstance(data, bytes):
                    self._ledger.holds(job, len(data))
                self._unsend(job, number)
        if producer is None:
            self._replace_given(job, hash_, data)
        for index, task in sorted(job.awaited.pop(hash_, ())):
            stage = job.stages[index]
            waits_for = stage.blocked[task]
            waits_for.discard(hash_)
            if not waits_for:
                del stage.blocked[task]
                self._ledger.setbacks.note(stage, task, Cause.INPUTS, now_s, now_s)  # Which ends it.
                self._restarts.unplaced_again(stage, [task], now_s)
                self._ledger.placing.tasks_unplaced(stage, now_s)

    def _replace_given(self, job: JobState, hash_: str, data: m.Data) -> None:
        """As `_replace`, for payloads and common bytes that the client gave."""
        for stage in job.stages:
            if isinstance(stage.common, BlobRef) and stage.common.hash == hash_:
                stage.common = data
                self._unsend(job, -1 - stage.index)
            for task, payload in enumerate(stage.payloads):
                if isinstance(payload, BlobRef) and payload.hash == hash_:
                    stage.payloads[task] = data

    def _unsend(self, job: JobState, key: int) -> None:
        """What nodes were sent under this key is not so any more."""
        for node_id in job.sent_to:
            self._ledger.nodes[node_id].sent[job.id].discard(key)


def _producer(job: JobState, hash_: str) -> int | None:
    """The task of the job whose result the input is, by the job's count; None if the client gave it."""
    produced = ((number, result) for number, result in job.results.items() if number < job.task_count)
    return next((number for number, result in produced if isinstance(result, BlobRef) and result.hash == hash_), None)


def _count_of_inputs(stage: StageState, task: int) -> int:
    detail = stage.details.get(task)
    return 0 if detail is None else sum([count for _, count in detail.inputs])
