"""How a job goes on: outcomes, the stages that they open or doom, results that others need, and those that got lost.

A stage opens when all tasks of its predecessors have finished; one that did not dooms what comes
after it. Results of stages with successors are kept until those are over. A result that lay at a
node which is gone is produced again by its task, without a second outcome for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.jobs import BLOCKED, SETTLED, Attempt, JobState, StageState
from sparrow_py.job import CANCELLED, FAILED, FINISHED, LOST, BlobRef, TaskStatus
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.nodes import Node
    from scheduler.core import SchedulerCore

INPUT_LOSSES_MAX = 5
"""A task whose inputs were gone so often when it was to start is lost."""


class Progress:
    """Outcomes and what follows from them, for all jobs of a scheduler."""

    def __init__(self, core: SchedulerCore) -> None:
        self._core = core

    # ---- attempts end ------------------------------------------------------------------------

    def ended(self, attempt: Attempt, node: Node, message: m.Report, now_s: float) -> None:
        """An executor finished with the attempt, or failed: the outcome, or another start."""
        stage, task, job = attempt.stage, attempt.task, attempt.stage.job
        starts = stage.starts.get(task, 0) + 1
        cancelled = attempt.cancelled or job.cancelled
        failed = message.status is FAILED
        if failed and job.retry_failed and starts < job.max_attempts and not cancelled:
            self._retry(attempt, message.error, now_s)
            return
        del stage.attempts[task]
        self.settle_reported(stage, task, node, message, starts, now_s)

    def settle_reported(
        self, stage: StageState, task: int, node: Node, message: m.Report, starts: int, now_s: float
    ) -> None:
        """The report is the task's outcome."""
        outcome = m.Outcome(
            stage.job.id, stage.first + task, message.status, message.result, message.error,
            starts if message.status is not CANCELLED or message.started_at_s is not None else starts - 1,
            node.id, stage.reserved_at_s, message.started_at_s, message.service_s, message.stdout, message.stderr,
        )  # fmt: skip
        self._settle(stage, task, outcome, now_s)

    def lost(self, attempt: Attempt, reason: str, now_s: float) -> None:
        """Node or executor died before the outcome was known: again, if attempts remain (guarantee 3)."""
        self._core.counters.attempts_lost += 1
        stage, task = attempt.stage, attempt.task
        starts = stage.starts.get(task, 0) + 1
        if starts < stage.job.max_attempts:
            self._retry(attempt, reason, now_s)
            return
        del stage.attempts[task]
        noun = "time" if starts == 1 else "times"
        self.settle_unrun(stage, task, LOST, f"started {starts} {noun}: {reason}", now_s, starts)

    def _retry(self, attempt: Attempt, reason: str, now_s: float) -> None:
        core, stage, task = self._core, attempt.stage, attempt.task
        core.counters.retries += 1
        stage.starts[task] = stage.starts.get(task, 0) + 1
        core.note(now_s, stage.job.id, "task %d is to start again: %s", stage.first + task, reason)
        if attempt.cancelled or stage.job.cancelled:
            self.give_back(attempt, now_s)
        else:
            self._start_again(stage, task, now_s)

    def _start_again(self, stage: StageState, task: int, now_s: float) -> None:
        """The task, whose starts have been counted, is to start once more."""
        if self._core.telling.count(stage, [task]):
            stage.await_client(task)
        else:
            self.unplaced_again(stage, [task], now_s)

    def give_back(self, attempt: Attempt, now_s: float) -> None:
        """The task is unplaced again, unless it is not wanted any more. The caller sees to its reservations."""
        stage, task = attempt.stage, attempt.task
        if attempt.cancelled or stage.job.cancelled:
            del stage.attempts[task]
            reason = stage.job.cancel_reason or "it was cancelled"
            self.settle_unrun(stage, task, CANCELLED, reason, now_s)
            return
        self.unplaced_again(stage, [task], now_s)

    def unplaced_again(self, stage: StageState, tasks: list[int], now_s: float) -> None:
        """Tasks that were placed, settled, blocked or untold wait for a place. The caller sees to reservations."""
        for task in tasks:
            stage.untold.discard(task)
            stage.give_back(task)
            self._core.admission.returned(stage.job.user)
        if stage.open:  # Else their time-outs begin when it opens.
            self._core.became_unplaced(stage, tasks, now_s)

    # ---- outcomes ----------------------------------------------------------------------------

    def settle_unrun(
        self, stage: StageState, task: int, status: TaskStatus, reason: str, now_s: float, attempts: int | None = None
    ) -> None:
        """Settle a task with no report of an executor."""
        starts = stage.starts.get(task, 0) if attempts is None else attempts
        number = stage.first + task
        outcome = m.Outcome(stage.job.id, number, status, b"", reason, starts, "", stage.reserved_at_s, None, None)
        self._settle(stage, task, outcome, now_s)

    def settle_unplaced(
        self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float
    ) -> None:
        """Settle some of the stage's unplaced tasks."""
        core = self._core
        for task in tasks:
            stage.withdraw(task, SETTLED)
        core.admission.withdrawn(stage.job.user, len(tasks))
        if stage.unplaced:
            core.probing.withdrawn(stage)
        else:
            core.probing.none_unplaced(stage, now_s)
        for task in tasks:
            self.settle_unrun(stage, task, status, reason, now_s)

    def settle_blocked(
        self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float
    ) -> None:
        """Settle tasks that wait for inputs which got lost."""
        for task in tasks:
            for hash_ in stage.blocked.pop(task):
                waiting = stage.job.awaited.get(hash_)
                if waiting is not None:
                    waiting.discard((stage.index, task))
                    if not waiting:
                        del stage.job.awaited[hash_]
            self.settle_unrun(stage, task, status, reason, now_s)

    def settle_untold(self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float) -> None:
        """Settle tasks that were to start again as soon as the client knew their starts."""
        for task in tasks:
            stage.untold.discard(task)
            self.settle_unrun(stage, task, status, reason, now_s)

    def _settle(self, stage: StageState, task: int, outcome: m.Outcome, now_s: float) -> None:
        core, job = self._core, stage.job
        stage.states[task] = SETTLED
        stage.count_settled(1)
        if task in stage.rerun:
            stage.rerun.discard(task)
            self._produced_again(stage, task, outcome, now_s)
        else:
            job.counts[outcome.status] += 1
            core.counters.settled[outcome.status] += 1
            core.to_client(job.client, outcome)
            if not stage.successors:
                self._drop_payload(stage, task)
            else:
                self.keep_result(stage, task, outcome.status, outcome.result, now_s)
            if stage.successors and outcome.status is not FINISHED:
                self.doom(stage, f"task {outcome.task} before it was {outcome.status.value}: {outcome.error}", now_s)
        # A job whose results are too many bytes may have been cancelled, and have ended, meanwhile.
        if stage.settled == stage.spec.task_count and core.jobs.get(job.id) is job:
            self.stage_over(stage, now_s)

    def keep_result(self, stage: StageState, task: int, status: TaskStatus, result: m.Data, now_s: float) -> None:
        """Keep of a settled task what others may need, and no more."""
        core, job = self._core, stage.job
        needed = status is FINISHED and stage.open_successors > 0
        if needed:
            job.results[stage.first + task] = result
        if needed and isinstance(result, BlobRef):
            stage.large = True  # Its task may have to produce that again.
        else:
            self._drop_payload(stage, task)
        if needed and isinstance(result, bytes) and not core.holds(job, len(result)):
            core.cancel(job, core.admission.over_bytes(job.user), now_s)

    def _drop_payload(self, stage: StageState, task: int) -> None:
        payload = stage.payloads[task]
        stage.payloads[task] = None
        if payload and type(payload) is bytes:
            self._core.holds(stage.job, -len(payload))

    # ---- stages ------------------------------------------------------------------------------

    def stage_over(self, stage: StageState, now_s: float) -> None:
        """All tasks of the stage are settled: stages that waited for it open, and what only it needed goes."""
        over = [stage]  # With the empty ones after it, which are over as soon as it is their turn; they may be many.
        for ended in over:
            self._close(ended)
            for successor in ended.successors:
                if ended.index in successor.waits_for and not successor.doomed:
                    successor.waits_for.discard(ended.index)
                    if successor.waits_for:
                        continue
                    if successor.spec.task_count:
                        self.open_stage(successor, now_s)
                    else:
                        over.append(successor)
        if stage.job.over:
            self._core.job_over(stage.job, now_s)

    def _close(self, stage: StageState) -> None:
        """What the stage's tasks were given goes, unless one of them may have to run again for its result."""
        ended = [stage]
        for one in ended:
            wanted = one.large and one.open_successors > 0
            if one.closed or not one.over or wanted:
                continue
            one.closed = True
            for predecessor in one.predecessors:
                predecessor.open_successors -= 1
                if not predecessor.open_successors:
                    self._drop_results(predecessor)
                    ended.append(predecessor)

    def open_stage(self, stage: StageState, now_s: float) -> None:
        """The stage's predecessors have finished."""
        if not stage.open:
            return  # The job is being claimed; the end of that opens what may be.
        self._core.note(now_s, stage.job.id, "stage %d opens", stage.index)
        self._core.became_unplaced(stage, stage.unplaced_tasks(), now_s)
        self._core.probing.ensure(stage, now_s)

    def _drop_results(self, stage: StageState) -> None:
        job = stage.job
        for task in range(len(stage.states)):
            result = job.results.pop(stage.first + task, None)
            if isinstance(result, bytes):
                self._core.holds(job, -len(result))
            if stage.states[task] == SETTLED:
                self._drop_payload(stage, task)

    def doom(self, stage: StageState, reason: str, now_s: float) -> None:
        """A task of the stage did not finish: what comes after it will not run."""
        doomed = [stage]  # And all that comes after it, which may be many.
        for one in doomed:
            if one.dooms:
                continue
            one.dooms = True
            for successor in one.successors:
                if not successor.doomed:
                    successor.doomed = reason
                    doomed.append(successor)
        for one in doomed[1:]:
            self.settle_rest(one, reason, now_s)

    def settle_rest(self, stage: StageState, reason: str, now_s: float) -> None:
        """Cancel the stage's tasks that are not placed, those that have not arrived included."""
        stage.add_tasks([b""] * (stage.spec.task_count - len(stage.states)), {})
        self.settle_blocked(stage, list(stage.blocked), CANCELLED, reason, now_s)
        self.settle_untold(stage, sorted(stage.untold), CANCELLED, reason, now_s)
        self.settle_unplaced(stage, stage.unplaced_tasks(), CANCELLED, reason, now_s)

    # ---- inputs that got lost ----------------------------------------------------------------

    def inputs_missing(self, attempt: Attempt, hashes: tuple[str, ...], reason: str, now_s: float) -> None:
        """A node could not fetch inputs of the attempt, which it handed back: have them produced or uploaded again."""
        stage, task, job = attempt.stage, attempt.task, attempt.stage.job
        hashes = self._still_missing(attempt, hashes)
        if not hashes:
            self.unplaced_again(stage, [task], now_s)
            return
        del stage.attempts[task]
        losses = stage.input_losses[task] = stage.input_losses.get(task, 0) + 1
        if losses >= INPUT_LOSSES_MAX:
            self.settle_unrun(stage, task, LOST, f"its inputs could not be had: {reason}", now_s)
            return
        coming, why_not = set(), ""
        for hash_ in hashes:
            problem = self._recover(job, hash_, now_s)
            if problem is None:
                coming.add(hash_)
            else:
                why_not = why_not or problem
        if why_not:
            self.settle_unrun(stage, task, LOST, f"an input is gone ({reason}) {why_not}", now_s)
            return
        stage.states[task] = BLOCKED
        stage.blocked[task] = coming
        for hash_ in coming:
            job.awaited.setdefault(hash_, set()).add((stage.index, task))
        self._core.note(now_s, job.id, "task %d waits for inputs %s", stage.first + task, sorted(coming))

    def _still_missing(self, attempt: Attempt, hashes: tuple[str, ...]) -> tuple[str, ...]:
        """Of these the inputs that have not been replaced since the attempt's node was told of them."""
        stage, job = attempt.stage, attempt.stage.job
        sent = self._core.nodes[attempt.node_id].sent.get(job.id, set())
        detail = stage.details.get(attempt.task)
        told: list[m.Data | None] = [stage.payloads[attempt.task]]
        if -1 - stage.index in sent:
            told.append(stage.common)
        for first, count in detail.inputs if detail is not None else ():
            told += [job.results[number] for number in range(first, first + count) if number in sent]
        current = {data.hash: data for data in told if isinstance(data, BlobRef)}
        missing = [hash_ for hash_ in hashes if hash_ in current]
        # A node that is gone took all that it had with it: not one of them at a time.
        connected = {node.info.address for node in self._core.nodes.all()}
        gone = {address for hash_ in missing for address in current[hash_].at} - connected
        more = [ref.hash for ref in current.values() if ref.hash not in missing and ref.at and gone.issuperset(ref.at)]
        return (*missing, *more)

    def _recover(self, job: JobState, hash_: str, now_s: float) -> str | None:
        """See that the input comes back; why that cannot be, or None."""
        if hash_ in job.awaited:
            return None
        for number, result in job.results.items():
            if isinstance(result, BlobRef) and result.hash == hash_:
                return self._produce_again(job.stage_of(number), number, now_s)
        if not job.client:
            return "and the client that has it went away"
        self._core.to_client(job.client, m.BlobLost(job.id, hash_))
        return None

    def _produce_again(self, stage: StageState, number: int, now_s: float) -> str | None:
        """Run the task again for its result, without a second outcome."""
        task = number - stage.first
        starts = stage.starts.get(task, 0) + 1
        if stage.states[task] != SETTLED:
            return None  # It does already, for another that needs it.
        if starts >= stage.job.max_attempts or stage.job.cancelled:
            return f"and task {number}, which produced it, has been started {starts} times"
        stage.starts[task] = starts
        stage.count_settled(-1)
        stage.rerun.add(task)
        self._start_again(stage, task, now_s)
        self._core.probing.ensure(stage, now_s)
        return None

    def _produced_again(self, stage: StageState, task: int, outcome: m.Outcome, now_s: float) -> None:
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
                self.settle_blocked(job.stages[index], [waiting], status, reason, now_s)

    def client_gone(self, job: JobState, now_s: float) -> None:
        """Inputs that only the client has will not come back."""
        produced = {result.hash for result in job.results.values() if isinstance(result, BlobRef)}
        for hash_ in [hash_ for hash_ in job.awaited if hash_ not in produced]:
            self._give_up_on(job, hash_, "an input is gone, and the client that has it went away", now_s)

    def blob_at(self, job: JobState, blob: BlobRef, now_s: float) -> None:
        """The client has uploaded an input again, or has not got it (`blob.at` is empty)."""
        if blob.at:
            self._replace(job, blob.hash, blob, None, now_s)
        else:
            self._give_up_on(job, blob.hash, "an input is gone, and the client does not have it", now_s)

    def _replace(self, job: JobState, hash_: str, data: m.Data, producer: int | None, now_s: float) -> None:
        """An input is back: from now on it is `data`."""
        for number, result in list(job.results.items()):
            same = isinstance(result, BlobRef) and result.hash == hash_
            if number == producer or (same and isinstance(data, BlobRef) and data.hash == hash_):
                job.results[number] = data
                if isinstance(data, bytes):
                    self._core.holds(job, len(data))
                self._unsend(job, number)
        if producer is None:
            self._replace_given(job, hash_, data)
        for index, task in sorted(job.awaited.pop(hash_, ())):
            stage = job.stages[index]
            waits_for = stage.blocked[task]
            waits_for.discard(hash_)
            if not waits_for:
                del stage.blocked[task]
                self.unplaced_again(stage, [task], now_s)
                self._core.probing.ensure(stage, now_s)

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
            self._core.nodes[node_id].sent[job.id].discard(key)
