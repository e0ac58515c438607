"""Straggler mitigation on top of batch sampling (Sparrow §3.4): which tasks get copies, and whose outcome counts.

`Speculation` says what the user wants, `slow_tasks` which tasks are slow, `Speculator` decides for one job. It has no
sockets, clock or chance. It hears of the job (the *original*), and of the further jobs in which slow tasks were
submitted again (the *copies*). The job's `Sink` hears of one job alone, as if there were no copies.

- A task gets one copy at most, when it has been running for too long while enough others of its stage have finished.
- Whichever of original and copy is first to finish decides: its outcome is told, the other is cancelled even if it
  runs, and the outcome of that other one is swallowed.
- A copy that does not finish (it failed, was lost, refused or cancelled) decides nothing.
- An original that failed or was lost while its copy is out waits for the copy: a task that could have finished is
  not reported lost. If the copy does not finish either, the original's outcome is told. If other stages come after
  the task's, the original's outcome is told at once, as its scheduler has given those stages up already.
- An original that was cancelled is told at once, and its copy is cancelled: whoever cancelled it meant the task.
- `ended` is told with the last outcome; nobody waits until losers have been cancelled.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from sparrow_py.errors import InvariantViolated
from sparrow_py.job import TaskStatus
from sparrow_py.session.slow_tasks import SlowTasks
from sparrow_py.speculation import Speculation

if TYPE_CHECKING:
    from sparrow_py.errors import SparrowError
    from sparrow_py.session.sink import Sink
    from sparrow_py.wire import messages as m


class Copies(Protocol):
    """The effects that a `Speculator` asks for."""

    def submit_copies(self, tasks: list[int]) -> None:
        """Submit these tasks, which are of one stage, again, as one new job."""

    def end_original(self, outcome: m.Outcome) -> None:
        """The copy has decided: the task of the original job is to end, even if it runs."""

    def cancel_copy(self, task: int) -> None:
        """Cancel the copy of this task, even if it runs."""


class Speculator:
    """Decides for one job. Tasks are numbered as in the original job, through all its stages. Times are seconds
    of any clock that never goes back.

    task_counts: of each stage. followed: the stages that others come after, by their position.
    """

    def __init__(
        self,
        task_counts: Sequence[int],
        speculate: Speculation,
        sink: Sink,
        copies: Copies,
        *,
        followed: Collection[int] = (),
        tell_placed: bool = True,
    ) -> None:
        self.over = False
        """Whether the sink has been told all there is to tell."""
        self.swallowed = 0
        """Outcomes of losers, which nobody was told."""
        self._sink = sink
        self._copies = copies
        self._tell_placed = tell_placed
        self._firsts = list(itertools.accumulate(task_counts, initial=0))
        task_count = self._firsts.pop()
        self._stages = [SlowTasks(count, speculate) for count in task_counts]
        self._followed = frozenset(followed)
        self._told = bytearray(task_count)
        self._untold = task_count
        self._closed = bytearray(task_count)
        """Tasks that have a copy, or get none."""
        self._out: set[int] = set()
        """Tasks whose copy may still decide."""
        self._held: dict[int, m.Outcome] = {}
        """Originals that failed or were lost, and wait for their copy."""

    def _stage_of(self, task: int) -> int:
        """The position of the task's stage."""
        return bisect.bisect_right(self._firsts, task) - 1

    # ---- events: the original ----------------------------------------------------------------

    def accepted(self) -> None:
        """The original will run."""
        self._sink.accepted()

    def refused(self, error: SparrowError) -> None:
        """Nothing of the original will run."""
        self.over = True
        self._sink.refused(error)

    def placed(self, task: int, now_s: float) -> None:
        """The original's task was placed. If it was placed before, that attempt is lost."""
        if self._told[task]:
            return
        if not self._closed[task]:
            self._stages[self._stage_of(task)].runs(task, now_s)
        if self._tell_placed:
            self._sink.placed(task)

    def outcome(self, outcome: m.Outcome) -> None:
        """The original's task has ended."""
        task = outcome.task
        if self._told[task]:
            self.swallowed += 1
        elif outcome.status in (TaskStatus.FINISHED, TaskStatus.CANCELLED) or not self._may_be_rescued(task):
            self._decide(outcome)
        else:
            self._close(task)
            self._held[task] = outcome

    def _may_be_rescued(self, task: int) -> bool:
        """Whether a copy may still finish the task although the original did not."""
        return task in self._out and self._stage_of(task) not in self._followed

    def not_cancelled(self, task: int) -> None:
        """The task runs, and was not cancelled."""
        if not self._told[task]:
            self._sink.not_cancelled(task)

    def ended(self) -> None:
        """All outcomes of the original have come; some of them may be held for a copy."""
        self._end_if_told()

    # ---- events: copies ----------------------------------------------------------------------

    def copy_outcome(self, outcome: m.Outcome) -> None:
        """The copy of a task has ended; `outcome.task` is the original's number."""
        if outcome.task not in self._out:
            self.swallowed += 1
        elif outcome.status is TaskStatus.FINISHED:
            self._decide(outcome, of_copy=True)
        else:
            self._copy_over(outcome.task)

    def copies_refused(self, tasks: Iterable[int]) -> None:
        """Nothing of the copies of these tasks will run."""
        for task in tasks:
            self._copy_over(task)

    # ---- events: the user and time -----------------------------------------------------------

    def cancel_tasks(self, tasks: Iterable[int]) -> None:
        """The user cancels these tasks: their copies are cancelled, even if they run, and they get no others.

        The client core cancels the originals. An original's outcome that is held for its copy is told now.
        """
        for task in tasks:
            self._close(task)
            if task in self._out:
                self._out.discard(task)  # First, as for `_decide`.
                self._copies.cancel_copy(task)
                self._copy_over(task)

    def cancel_job(self) -> None:
        """The user cancels the job: as `cancel_tasks` for all tasks."""
        for stage in self._stages:
            stage.give_up()
        self.cancel_tasks(sorted(self._out))

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next. Any event may make that earlier or later."""
        deadlines_s = [due_s for stage in self._stages if (due_s := stage.next_deadline_s()) is not None]
        return min(deadlines_s, default=None)

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: submit copies of the tasks that are slow by now, the slowest first."""
        for stage in self._stages:
            slow = stage.take_slow(now_s)
            if slow:
                for task in slow:
                    self._closed[task] = True
                self._out.update(slow)
                self._copies.submit_copies(slow)

    # ---- decisions ---------------------------------------------------------------------------

    def _close(self, task: int) -> None:
        """The task gets no copy from now on."""
        self._closed[task] = True
        self._stages[self._stage_of(task)].forget(task)

    def _copy_over(self, task: int) -> None:
        """The copy cannot decide any more: the original will, or its outcome, which was held, does now."""
        self._out.discard(task)
        held = self._held.pop(task, None)
        if held is not None:
            self._decide(held)

    def _decide(self, outcome: m.Outcome, *, of_copy: bool = False) -> None:
        """This is the task's outcome."""
        task = outcome.task
        # All of this comes first, as a loser that is cancelled may have its outcome at once.
        self._told[task] = True
        self._untold -= 1
        self._close(task)
        self._stages[self._stage_of(task)].count(outcome.status, outcome.service_s)
        was_out, was_held = task in self._out, self._held.pop(task, None) is not None
        self._out.discard(task)
        if of_copy and not was_held:
            self._copies.end_original(outcome)
        elif not of_copy and was_out:
            self._copies.cancel_copy(task)
        self._sink.outcome(outcome)
        self._end_if_told()

    def _end_if_told(self) -> None:
        if not self._untold and not self.over:
            self.over = True
            self._sink.ended()

    def check_invariants(self) -> None:
        """Raise `InvariantViolated` if something that must hold does not."""
        untold = self._told.count(False)
        if self._untold != untold:
            raise InvariantViolated(f"{untold} tasks have not been told, counted {self._untold}", [])
        running = [task for stage in self._stages for task in stage.running]
        for task in [*self._out, *self._held, *running]:
            if self._told[task]:
                raise InvariantViolated(f"task {task} has been told, and yet something is to come of it", [])
        if not self._held.keys() <= self._out:
            raise InvariantViolated(f"originals {set(self._held) - self._out} wait for copies that are not out", [])
        if any(self._closed[task] for task in running):
            raise InvariantViolated(f"tasks {running} may get a copy, and may not", [])
