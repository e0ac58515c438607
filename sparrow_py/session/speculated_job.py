"""The driver of `speculator.Speculator`: submits copies of slow tasks as jobs of their own, and cancels losers.

It sits between the client's core and the sink of a job. It needs no event loop itself: timers are its host's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from sparrow_py.errors import SparrowError
from sparrow_py.job import NAME_BYTES_MAX, JobSpec, new_job_id
from sparrow_py.session.core import ClientCore
from sparrow_py.session.sink import Sink
from sparrow_py.session.speculator import Speculator
from sparrow_py.speculation import Speculation
from sparrow_py.wire import messages as m

AGAIN = " (again)"
"""What the names of copies end in."""


class Timer(Protocol):
    """A timer that calls back when a deadline is due: `clock.DeadlineTimer`."""

    def update(self) -> None:
        """The deadline may have moved."""

    def cancel(self) -> None:
        """Fire no more."""


class Host(Protocol):
    """Whose core the jobs are submitted to: the session."""

    core: ClientCore

    def now_s(self) -> float:
        """The clock."""

    def timer(self, next_deadline_s: Callable[[], float | None], tick: Callable[[], None]) -> Timer:
        """A timer that calls `tick` when the deadline is due."""

    def submit_copy(self, original: str, spec: JobSpec, sink: Sink) -> None:
        """Submit a copy of tasks of this job; raises what `ClientCore.submit` raises."""

    def speculated(self, job_id: str) -> None:
        """All outcomes of this job have been told."""


class SpeculatedJob:
    """The `Sink` of a job whose slow tasks are submitted again; `sink` is told what becomes of it.

    The job must be submitted with `report_placed`; the sink is told of it only if the spec given here asks for that.
    """

    def __init__(self, spec: JobSpec, speculate: Speculation, sink: Sink, host: Host) -> None:
        self._spec = spec
        self._host = host
        self._copies: dict[int, tuple[str, int]] = {}
        """Task to the id of its copy's job, and its number there."""
        task_count = len(spec.as_stages()[0].tasks)
        self._core = Speculator(task_count, speculate, sink, self, tell_placed=spec.report_placed)
        self._timer = host.timer(self._core.next_deadline_s, self._tick)
        self._closed = False
        self.accepted = self._core.accepted
        self.not_cancelled = self._core.not_cancelled

    @property
    def over(self) -> bool:
        """Whether the sink has been told all there is to tell."""
        return self._core.over

    def close(self) -> None:
        """Submit nothing more."""
        self._timer.cancel()

    def _update(self) -> None:
        """After events."""
        if not self._core.over:
            self._timer.update()
        elif not self._closed:
            self._closed = True
            self.close()
            self._host.speculated(self._spec.job_id)

    def _tick(self) -> None:
        self._core.tick(self._host.now_s())
        self._update()

    # ---- the client core's sink --------------------------------------------------------------

    def refused(self, error: SparrowError) -> None:
        self._core.refused(error)
        self._update()

    def placed(self, task: int) -> None:
        self._core.placed(task, self._host.now_s())
        self._update()

    def outcome(self, outcome: m.Outcome) -> None:
        self._core.outcome(outcome)
        self._update()

    def ended(self) -> None:
        self._core.ended()
        self._update()

    # ---- the user ----------------------------------------------------------------------------

    def cancel_tasks(self, tasks: list[int]) -> None:
        """The user cancels these tasks: their copies are cancelled. The original is for the caller to cancel."""
        self._core.cancel_tasks(tasks)
        self._update()

    def cancel_job(self) -> None:
        """The user cancels the job: as `cancel_tasks` for all tasks."""
        self._core.cancel_job()
        self._update()

    # ---- copies ------------------------------------------------------------------------------

    def copy_outcome(self, outcome: m.Outcome) -> None:
        """A copy's task has ended, whose number is the original's already."""
        self._core.copy_outcome(outcome)
        self._update()

    def copies_refused(self, tasks: list[int]) -> None:
        """Nothing of the copies of these tasks will run."""
        self._core.copies_refused(tasks)
        self._update()

    # ---- the speculator's effects ------------------------------------------------------------

    def submit_copies(self, tasks: list[int]) -> None:
        """Effect of the core."""
        spec = copy_of(self._spec, tasks)
        self._copies.update((task, (spec.job_id, number)) for number, task in enumerate(tasks))
        copy = _Copy(self, self._spec.job_id, tasks)
        try:
            self._host.submit_copy(self._spec.job_id, spec, copy)
        except SparrowError as error:
            copy.refused(error)

    def cancel_original(self, task: int) -> None:
        """Effect of the core."""
        self._cancel(self._spec.job_id, task)

    def cancel_copy(self, task: int) -> None:
        """Effect of the core."""
        self._cancel(*self._copies[task])

    def _cancel(self, job_id: str, task: int) -> None:
        self._host.core.cancel_tasks(job_id, [task], self._host.now_s(), running=True)


class _Copy:
    """The `Sink` of a job of copies: tells the original's, in its numbers."""

    __slots__ = ("_job", "_original", "_tasks")

    def __init__(self, job: SpeculatedJob, original: str, tasks: list[int]) -> None:
        self._job = job
        self._original = original
        self._tasks = tasks

    def accepted(self) -> None:
        """The original's acceptance is what the user was told."""

    def refused(self, error: SparrowError) -> None:
        self._job.copies_refused(self._tasks)

    def placed(self, task: int) -> None:
        """Copies do not ask to be told."""

    def outcome(self, outcome: m.Outcome) -> None:
        task = self._tasks[outcome.task]
        self._job.copy_outcome(msgspec.structs.replace(outcome, job=self._original, task=task))

    def not_cancelled(self, task: int) -> None:
        """Copies are cancelled even if they run."""

    def ended(self) -> None:
        """Its outcomes have said what there is to say."""


def copy_of(spec: JobSpec, tasks: list[int]) -> JobSpec:
    """These tasks of a job of one stage as a new job, with a new id and the same attempts.

    Large inputs that were replaced by references stay so. Nobody needs the copies when the client is gone.
    """
    stage = spec.as_stages()[0]
    chosen = [stage.tasks[task] for task in tasks]
    which: dict[str, Any] = {"stages": [replace(stage, tasks=chosen)]} if spec.stages else {"tasks": chosen}
    return replace(
        spec, **which, job_id=new_job_id(), name=_again(spec.name), report_placed=False, on_client_lost="cancel"
    )


def _again(name: str) -> str:
    """The name of a copy, as long as a name may be."""
    return name.encode()[: NAME_BYTES_MAX - len(AGAIN)].decode(errors="ignore") + AGAIN
