"""Straggler mitigation on top of batch sampling (Sparrow §3.4), decided: what is submitted again, whose outcome counts.

`Speculation` says what the user wants, `Speculator` decides for one job. It has no sockets, clock or chance: it is
told what happens to the job (the *original*) and to the jobs that its slow tasks were submitted again as (the
*copies*), and tells the job's `Sink` as if there had been no copies.

- A task gets one copy at most, when it has been running for too long while enough others have finished.
- Whichever of original and copy is first to finish decides: its outcome is told, the other is cancelled even if it
  runs, and what is heard of that one later is swallowed.
- A copy that does not finish (it failed, was lost, refused or cancelled) decides nothing.
- An original that failed or was lost while its copy is out waits for the copy: a task that could have finished is
  not reported lost. If the copy does not finish either, the original's outcome is told.
- An original that was cancelled is told at once, and its copy is cancelled: whoever cancelled it meant the task.
- `ended` is told with the last outcome; nobody waits until losers have been cancelled.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from sparrow_py.errors import InvariantViolated
from sparrow_py.job import TaskStatus
from sparrow_py.speculation import Speculation

if TYPE_CHECKING:
    from sparrow_py.errors import SparrowError
    from sparrow_py.session.sink import Sink
    from sparrow_py.wire import messages as m

ROUNDING = 1e-9
"""A share of a number of tasks may come out this much too large."""


class Copies(Protocol):
    """Where effects go."""

    def submit_copies(self, tasks: list[int]) -> None:
        """Submit these tasks again, as one new job."""

    def cancel_original(self, task: int) -> None:
        """Cancel the task of the original job, even if it runs."""

    def cancel_copy(self, task: int) -> None:
        """Cancel the copy of this task, even if it runs."""


class RunningMedian:
    """The median of the numbers added so far. To add one costs O(log n)."""

    __slots__ = ("_lower", "_upper")

    def __init__(self) -> None:
        self._lower: list[float] = []
        """The lower half, negated: the largest comes first. Never shorter than the upper one."""
        self._upper: list[float] = []

    def add(self, number: float) -> None:
        """One more number."""
        heapq.heappush(self._upper, -heapq.heappushpop(self._lower, -number))
        if len(self._upper) > len(self._lower):
            heapq.heappush(self._lower, -heapq.heappop(self._upper))

    @property
    def value(self) -> float | None:
        """The median; None of no numbers."""
        if not self._lower:
            return None
        if len(self._lower) > len(self._upper):
            return -self._lower[0]
        return (self._upper[0] - self._lower[0]) / 2


class Speculator:
    """See the module's docstring. Tasks are numbered as in the original job. Times are seconds of any clock that
    never goes back."""

    def __init__(
        self, task_count: int, speculate: Speculation, sink: Sink, copies: Copies, *, tell_placed: bool = True
    ) -> None:
        self.over = False
        """Whether the sink has been told all there is to tell."""
        self.swallowed = 0
        """Outcomes of losers, which nobody was told."""
        self._speculate = speculate
        self._sink = sink
        self._copies = copies
        self._tell_placed = tell_placed
        self._copies_left = math.ceil(speculate.copies_max * task_count - ROUNDING)
        self._told = bytearray(task_count)
        self._untold = task_count
        self._closed = bytearray(task_count)
        """Tasks that will get no copy (any more)."""
        self._running: OrderedDict[int, float] = OrderedDict()
        """When the tasks that run and may get a copy were placed, first ones first. (To find the first key of a
        plain dict takes the longer the more before it are gone.)"""
        self._out: set[int] = set()
        """Tasks whose copy may still decide."""
        self._held: dict[int, m.Outcome] = {}
        """Originals that failed or were lost, and wait for their copy."""
        self._finished = 0
        self._ended_otherwise = 0
        self._median_s = RunningMedian()

    # ---- events: the original ----------------------------------------------------------------

    def accepted(self) -> None:
        """The original will run."""
        self._sink.accepted()

    def refused(self, error: SparrowError) -> None:
        """Nothing of the original will run."""
        self.over = True
        self._sink.refused(error)

    def placed(self, task: int, now_s: float) -> None:
        """The task has left the queue, perhaps again: then what it did before is lost."""
        if self._told[task]:
            return
        if not self._closed[task]:
            self._running[task] = now_s
            self._running.move_to_end(task)
        if self._tell_placed:
            self._sink.placed(task)

    def outcome(self, outcome: m.Outcome) -> None:
        """The original's task has ended."""
        task = outcome.task
        if self._told[task]:
            self.swallowed += 1
        elif outcome.status in (TaskStatus.FINISHED, TaskStatus.CANCELLED) or task not in self._out:
            self._decide(outcome)
        else:
            self._close(task)
            self._held[task] = outcome

    def not_cancelled(self, task: int) -> None:
        """The task runs, and was not cancelled."""
        if not self._told[task]:
            self._sink.not_cancelled(task)

    def ended(self) -> None:
        """All outcomes of the original have been heard; some may wait for their copies."""
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
        """The user cancels these tasks: their copies go, running or not, and they get no others.

        What becomes of the originals is the client core's matter. If one has ended already, and waited for its
        copy, its outcome is told now.
        """
        for task in tasks:
            self._close(task)
            if task in self._out:
                self._out.discard(task)  # First, as for `_decide`.
                self._copies.cancel_copy(task)
                self._copy_over(task)

    def cancel_job(self) -> None:
        """The user cancels the job: as `cancel_tasks` for all tasks."""
        self._copies_left = 0
        self._running.clear()
        self.cancel_tasks(sorted(self._out))

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next; may become earlier or later with any event."""
        if not self._running or not self._copies_left:
            return None
        slow_s = self._slow_s()
        return None if slow_s is None else next(iter(self._running.values())) + slow_s

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: submit again what has been running for too long, the longest first."""
        slow_s = self._slow_s()
        if slow_s is None:
            return
        slow: list[int] = []
        for task, placed_s in self._running.items():
            if placed_s + slow_s > now_s or len(slow) == self._copies_left:
                break
            slow.append(task)
        if not slow:
            return
        for task in slow:
            self._close(task)
        self._out.update(slow)
        self._copies_left -= len(slow)
        self._copies.submit_copies(slow)

    # ---- decisions ---------------------------------------------------------------------------

    def _slow_s(self) -> float | None:
        """A task that runs for longer is slow; None while too few have finished to say."""
        median_s = self._median_s.value
        counted = len(self._told) - self._ended_otherwise
        if median_s is None or self._finished < self._speculate.quantile * counted - ROUNDING:
            return None
        return max(self._speculate.slowdown * median_s, self._speculate.running_s_min)

    def _close(self, task: int) -> None:
        """The task gets no copy from now on."""
        self._closed[task] = True
        self._running.pop(task, None)

    def _copy_over(self, task: int) -> None:
        """The copy cannot decide any more: the original does, or has."""
        self._out.discard(task)
        held = self._held.pop(task, None)
        if held is not None:
            self._decide(held)

    def _decide(self, outcome: m.Outcome, *, of_copy: bool = False) -> None:
        """This is the task's outcome."""
        task = outcome.task
        # First of all, as to cancel the loser may bring its outcome at once.
        self._told[task] = True
        self._untold -= 1
        self._close(task)
        self._count(outcome)
        was_out, was_held = task in self._out, self._held.pop(task, None) is not None
        self._out.discard(task)
        if of_copy and not was_held:
            self._copies.cancel_original(task)
        elif not of_copy and was_out:
            self._copies.cancel_copy(task)
        self._sink.outcome(outcome)
        self._end_if_told()

    def _count(self, outcome: m.Outcome) -> None:
        if outcome.status is not TaskStatus.FINISHED:
            self._ended_otherwise += 1
            return
        self._finished += 1
        if outcome.service_s is not None:
            self._median_s.add(outcome.service_s)

    def _end_if_told(self) -> None:
        if not self._untold and not self.over:
            self.over = True
            self._sink.ended()

    def check_invariants(self) -> None:
        """Raise `InvariantViolated` if something that must hold does not."""
        untold = self._told.count(False)
        if self._untold != untold:
            raise InvariantViolated(f"{untold} tasks have not been told, counted {self._untold}", [])
        for task in [*self._out, *self._held, *self._running]:
            if self._told[task]:
                raise InvariantViolated(f"task {task} has been told, and yet something is to come of it", [])
        if not self._held.keys() <= self._out:
            raise InvariantViolated(f"originals {set(self._held) - self._out} wait for copies that are not out", [])
        if any(self._closed[task] for task in self._running):
            raise InvariantViolated(f"tasks {list(self._running)} may get a copy, and may not", [])
