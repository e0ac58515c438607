"""Tasks that wait for a place again: those that were started in vain are told to the client first, and those whose
failures are retried, or for whose inputs nodes had no room, wait out a delay, in no slot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.delays import Delays
from scheduler.book.footprint import RETRIED_BYTES
from scheduler.book.jobs import HELD, UNPLACED, Attempt, JobState, StageState
from scheduler.book.setbacks import Cause
from sparrow_py.errors import LinkError
from sparrow_py.job import CANCELLED
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    import random

    from scheduler.book.advance_notice import AdvanceNotice
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.waiting import Waiting


@dataclass(eq=False, slots=True)
class Restarts:
    """Has tasks of all jobs of a scheduler placed again."""

    _ledger: Ledger
    _outcomes: Outcomes
    _waiting: Waiting
    _notice: AdvanceNotice
    _rng: random.Random

    # The caller of these five sees to it that nodes are found (`Placing.tasks_unplaced`).

    def retry(self, attempt: Attempt, reason: str, now_s: float) -> None:
        """The attempt was in vain: the task is to start once more, unless it is not wanted any more."""
        stage, task = attempt.stage, attempt.task
        self._ledger.counters.retries += 1
        stage.starts[task] = stage.starts.get(task, 0) + 1
        self._ledger.note(now_s, stage.job.id, "task %d is to start again: %s", stage.first + task, reason)
        self._ledger.setbacks.note(stage, task, Cause.IN_VAIN, now_s, now_s, reason)
        if attempt.cancelled or stage.job.cancelled:
            self.give_back(attempt, now_s)
        else:
            self.start_again(stage, task, now_s)

    def retry_later(self, attempt: Attempt, error: str, now_s: float) -> None:
        """The attempt, whose task is wanted, failed in a way that may pass: the task is to start once more after a
        delay. This start is no lost one, and does not count to `max_attempts`."""
        stage, task, ledger = attempt.stage, attempt.task, self._ledger
        retries = stage.retries
        assert retries is not None, f"stage {stage.index} of {stage.job.id} has no retries"
        if task not in retries.failures:
            stage.job.fixed_bytes += RETRIED_BYTES
            ledger.holds(stage.job, RETRIED_BYTES)  # If that is too many, further jobs are refused.
        retries.failed(task, error)
        ledger.counters.failures_retried += 1
        delay_s = retries.delay_s(task, self._rng)
        ledger.note(now_s, stage.job.id, "task %d failed, and waits %.3f s: %s", stage.first + task, delay_s, error)
        ledger.setbacks.note(stage, task, Cause.PAUSE, now_s, now_s + delay_s)
        waits = delay_s > 0
        told = self._notice.of_starts(stage, [task], waiting=waits)
        if told and waits:
            retries.told_waiting.add(task)
        ledger.admission.returned(stage.job.user)
        self.hold(stage, task, now_s + delay_s, untold=told and not waits)

    def start_again(self, stage: StageState, task: int, now_s: float) -> None:
        """The task, whose starts have been counted, is to start once more."""
        if stage.retries is not None:
            stage.retries.told_waiting.discard(task)  # It is told now.
        if self._notice.of_starts(stage, [task]):
            self._ledger.admission.returned(stage.job.user)
            stage.hold(task, now_s, untold=True)
        else:
            self.unplaced_again(stage, [task], now_s)

    def give_back(self, attempt: Attempt, now_s: float) -> None:
        """The attempt's task is unplaced again, unless it is not wanted any more."""
        stage, task = attempt.stage, attempt.task
        if attempt.cancelled or stage.job.cancelled:
            del stage.attempts[task]
            reason = stage.job.cancel_reason or "it was cancelled"
            self._outcomes.settle_unrun(stage, task, CANCELLED, reason, now_s)
            return
        self.unplaced_again(stage, [task], now_s)

    def unplaced_again(self, stage: StageState, tasks: list[int], now_s: float) -> None:
        """Tasks that were placed, settled or blocked wait for a place."""
        for _ in tasks:
            self._ledger.admission.returned(stage.job.user)
        told = self._tell(stage, tasks)
        for task in told:  # One was adopted that waited, and comes back.
            self.hold(stage, task, now_s, untold=True)
        self._wait(stage, [task for task in tasks if task not in told], now_s)

    def _wait(self, stage: StageState, tasks: list[int], now_s: float) -> None:
        lacking = [task for task in tasks if stage.lacking(task)] if stage.job.expected else []
        ready = [task for task in tasks if task not in lacking] if lacking else tasks
        for task in ready:
            stage.give_back(task)
        if stage.open:  # Else their time-outs begin when it opens.
            self._waiting.begin(stage, ready, now_s)
        self._hold_for_results(stage, lacking, now_s)

    # ---- tasks are held ----------------------------------------------------------------------

    def hold_new(self, stage: StageState, tasks: Iterable[int], now_s: float) -> None:
        """Of these tasks, which have just arrived or been claimed, those are not to start yet that lack results of
        other jobs."""
        lacking = [task for task in tasks if stage.states[task] == UNPLACED and stage.lacking(task)]
        for task in lacking:
            stage.withdraw(task, HELD)
        if lacking and not stage.unplaced:  # Nodes may have been sought for what was yet to come.
            self._ledger.placing.none_unplaced(stage, now_s)
        self._hold_for_results(stage, lacking, now_s)

    def _hold_for_results(self, stage: StageState, tasks: list[int], now_s: float) -> None:
        """These tasks, which count as unplaced in admission, wait for results of other jobs, which they lack. If one
        will not come, that is the task's outcome. All are held before the first is settled, which may end the job."""
        expected = stage.job.expected
        for task in tasks:
            stage.hold(task, now_s, untold=False)
            stage.expect(task, stage.lacking(task))
        for task in tasks:
            numbers = sorted(stage.expects.get(task, ()))
            failure = next((why for number in numbers if (why := expected[number].failure)), None)
            if failure is not None:
                self._outcomes.settle_as_input(stage, task, failure, now_s)

    def result_came(self, stage: StageState, tasks: list[int], number: int, now_s: float) -> None:
        """A result of another job is here that these tasks waited for, if they still do."""
        ready = []
        for task in tasks:
            expects = stage.expects.get(task)
            if expects is not None:
                expects.discard(number)
                if not expects:
                    del stage.expects[task]
                    ready.append(task)
                    self._ledger.setbacks.note(stage, task, Cause.RESULTS, stage.held[task], now_s)
        if ready:
            self._let_go(stage, ready, now_s)

    def hold_after_claim(
        self, stage: StageState, tasks: list[int], untold: set[int], counted: set[int], now_s: float
    ) -> None:
        """Unplaced tasks of a job that has come from another scheduler are not to start yet: of those that are
        `untold` the client is to know the starts, and those that have failed wait out the delay after their last
        failure, from now on, as nobody here knows when that was. `counted`: of which the client is to hear more."""
        retries = stage.retries
        if retries is not None:
            known = retries.told_waiting if stage.job.acknowledges else tasks
            news = [task for task in tasks if stage.failures(task) and (task in counted or task not in known)]
            if news and self._notice.of_starts(stage, news, waiting=True):
                retries.told_waiting.update(news)
        for task in tasks:
            stage.withdraw(task, HELD)
            delay_s = retries.delay_s(task, self._rng) if retries is not None and stage.failures(task) else 0.0
            if retries is None:
                stage.hold(task, now_s, untold=task in untold)
            else:
                self.hold(stage, task, now_s + delay_s, untold=task in untold)

    def hold(self, stage: StageState, task: int, until_s: float, *, untold: bool) -> None:
        """The task, which counts as unplaced in admission, is to start again, and not before then."""
        stage.hold(task, until_s, untold=untold)
        if stage.delays is None:
            stage.delays = Delays()
        stage.delays.wait(task, until_s)
        self._set_timer(stage, stage.delays)

    def _set_timer(self, stage: StageState, delays: Delays) -> None:
        at_s = delays.next_timer_s()
        if at_s is not None:
            self._ledger.at_stage(at_s, stage, self._delays_over)

    def _delays_over(self, stage: StageState, now_s: float) -> None:
        """Delays of tasks are over: those whose client knows their starts wait for a place."""
        delays = stage.delays
        assert delays is not None
        over = delays.take_due(now_s)
        self._set_timer(stage, delays)
        # A task may wait for nothing any more, or for a later time.
        self._let_go(stage, [task for until_s, task in over if stage.held.get(task) == until_s], now_s)

    def _let_go(self, stage: StageState, tasks: list[int], now_s: float) -> None:
        """Of these held tasks those wait for a place that are to wait for nothing else."""
        held, untold, expects = stage.held, stage.untold, stage.expects
        ready = sorted({task for task in tasks if task not in untold and task not in expects and held[task] <= now_s})
        told = self._tell(stage, ready)
        stage.untold.update(dict.fromkeys(told))
        ready = [task for task in ready if task not in told]
        for task in ready:
            stage.hold_no_more(task)
        if ready:
            self._wait(stage, ready, now_s)
            self._ledger.placing.tasks_unplaced(stage, now_s)

    def _tell(self, stage: StageState, tasks: list[int]) -> set[int]:
        """Tell the client of those tasks of which it knows that they wait that they do no longer: these must wait for
        its answer."""
        if stage.retries is None or not stage.retries.told_waiting:
            return set()
        told = [task for task in tasks if task in stage.retries.told_waiting]
        stage.retries.told_waiting.difference_update(told)
        if not told or not stage.job.acknowledges:
            return set()
        self._notice.of_starts(stage, told)
        return set(told)

    # ---- the client knows --------------------------------------------------------------------

    def starts_known(self, job: JobState, message: m.CountKnown, now_s: float) -> None:
        """The client knows these starts: the tasks may start again."""
        known: dict[StageState, list[int]] = {}
        for number, starts in message.starts.items():
            if not 0 <= number < job.task_count:
                raise LinkError(f"job {job.id}: there is no task {number}; it has {job.task_count}")
            stage = job.stage_of(number)
            task = number - stage.first
            counted = stage.starts.get(task, 0), stage.failures(task)
            if task in stage.untold and counted == (starts, message.failures.get(number, 0)):
                known.setdefault(stage, []).append(task)
        self._go_on(known, now_s)

    def client_gone(self, job: JobState, now_s: float) -> None:
        """The job goes on without its client: there is nobody to wait for."""
        job.acknowledges = False
        self._go_on({stage: sorted(stage.untold) for stage in job.stages if stage.untold}, now_s)

    def _go_on(self, told: dict[StageState, list[int]], now_s: float) -> None:
        for stage, numbers in told.items():
            tasks = [task for task in numbers if task in stage.untold]  # What went on before may have ended some.
            for task in tasks:
                del stage.untold[task]
            self._let_go(stage, tasks, now_s)
