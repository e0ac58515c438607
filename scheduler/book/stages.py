"""The stages of a job: one opens when all tasks of those before it have finished; a task that did not finish dooms what
comes after its stage. Results of a stage with successors are kept until those are over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import SETTLED, StageState

if TYPE_CHECKING:
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.register import Register
    from scheduler.book.waiting import Waiting


@dataclass(eq=False, slots=True)
class Stages:
    """Opens, dooms and closes the stages of all jobs of a scheduler."""

    _ledger: Ledger
    _register: Register
    _outcomes: Outcomes
    _waiting: Waiting

    def open(self, stage: StageState, now_s: float) -> None:
        """The stage's predecessors have finished."""
        if not stage.open:
            return  # The job is being claimed; the end of that opens what may be.
        self._ledger.note(now_s, stage.job.id, "stage %d opens", stage.index)
        self._waiting.begin(stage, stage.unplaced_tasks(), now_s)
        self._ledger.placing.tasks_unplaced(stage, now_s)

    def over(self, stage: StageState, now_s: float) -> None:
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
                        self.open(successor, now_s)
                    else:
                        over.append(successor)
        if stage.job.over:
            self._register.ended(stage.job, now_s)

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
            self._outcomes.settle_rest(one, reason, now_s)

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

    def _drop_results(self, stage: StageState) -> None:
        job = stage.job
        for task in range(len(stage.states)):
            result = job.results.pop(stage.first + task, None)
            if isinstance(result, bytes):
                self._ledger.holds(job, -len(result))
            if stage.states[task] == SETTLED:
                self._outcomes.drop_payload(stage, task)
