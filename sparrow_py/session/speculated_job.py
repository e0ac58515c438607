"""The driver of `speculator.Speculator`: submits copies of slow tasks as jobs of their own, and cancels losers.

A `SpeculatedJob` lies between the client's core and the sink of a job. Its timers are its host's, so that this module
needs no event loop.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from sparrow_py.errors import SparrowError
from sparrow_py.job import NAME_BYTES_MAX, BlobRef, JobSpec, StageSpec, TaskResult, TaskSpec, new_job_id
from sparrow_py.session.core import ClientCore
from sparrow_py.session.sink import Sink
from sparrow_py.session.speculator import Speculator
from sparrow_py.speculation import Speculation
from sparrow_py.wire import messages as m

AGAIN = " (again)"
"""The end of each copy's name."""


class Timer(Protocol):
    """A timer that calls back when a deadline is due: `clock.DeadlineTimer`."""

    def update(self) -> None:
        """The deadline may have moved."""

    def cancel(self) -> None:
        """Fire no more."""


class Host(Protocol):
    """The session, to whose core the jobs are submitted."""

    core: ClientCore

    def now_s(self) -> float:
        """The time by the session's clock."""

    def timer(self, next_deadline_s: Callable[[], float | None], tick: Callable[[], None]) -> Timer:
        """A timer that calls `tick` when the deadline is due."""

    def submit_copy(self, original: str, spec: JobSpec, sink: Sink, given: Mapping[int, m.Data]) -> None:
        """Submit a copy of tasks of this job, with results that these need; raises as `ClientCore.submit` does."""

    def speculated(self, job_id: str) -> None:
        """All outcomes of this job have been told."""


class SpeculatedJob:
    """The `Sink` of a job whose slow tasks are submitted again; `sink` hears of the job as if there were no copies.

    The job must be submitted with `report_placed`. `sink` hears of placed tasks only if `spec` asks for that.
    """

    def __init__(self, spec: JobSpec, speculate: Speculation, sink: Sink, host: Host) -> None:
        self._spec = spec
        self._host = host
        self._copies: dict[int, tuple[str, int]] = {}
        """Task to the id of its copy's job, and the copy's number there."""
        stages = spec.as_stages()
        self._shape = Shape(stages)
        self._core = Speculator(
            [len(stage.tasks) for stage in stages], speculate, sink, self,
            followed=self._shape.followed, tell_placed=spec.report_placed,
        )  # fmt: skip
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
        """An event was handled: the deadline may have moved, or the job may be over."""
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
        """The copy of a task has ended; `outcome` names the original's job and task."""
        self._core.copy_outcome(outcome)
        self._update()

    def _is_followed(self, task: int) -> bool:
        """Whether other stages come after the task's, and may need its result."""
        return self._shape.stage_of(task) in self._shape.followed

    def copies_refused(self, tasks: list[int]) -> None:
        """Nothing of the copies of these tasks will run."""
        self._core.copies_refused(tasks)
        self._update()

    # ---- the speculator's effects ------------------------------------------------------------

    def submit_copies(self, tasks: list[int]) -> None:
        """Effect of the core."""
        original = self._host.core.jobs.get(self._spec.job_id)
        policy = self._spec.policy if original is None else original.submission.policy
        spec, needed = copy_of(self._spec, self._shape, tasks, policy)
        self._copies.update((task, (spec.job_id, number)) for number, task in enumerate(tasks, len(needed)))
        copy = _Copy(self, self._spec.job_id, tasks, len(needed))
        results = {} if original is None else original.results
        given = {number: results.get(source, b"") for number, source in enumerate(needed)}
        try:
            self._host.submit_copy(self._spec.job_id, spec, copy, given)
        except SparrowError as error:
            copy.refused(error)

    def end_original(self, outcome: m.Outcome) -> None:
        """Effect of the core."""
        if self._is_followed(outcome.task):
            self._host.core.finish(self._spec.job_id, outcome.task, outcome.result)
        else:
            self._cancel(self._spec.job_id, outcome.task)

    def cancel_copy(self, task: int) -> None:
        """Effect of the core."""
        self._cancel(*self._copies[task])

    def _cancel(self, job_id: str, task: int) -> None:
        self._host.core.cancel_tasks(job_id, [task], self._host.now_s(), running=True)


class _Copy:
    """The `Sink` of a job of copies: tells the `SpeculatedJob`, by the original's numbers."""

    __slots__ = ("_first", "_job", "_original", "_tasks")

    def __init__(self, job: SpeculatedJob, original: str, tasks: list[int], first: int) -> None:
        self._job = job
        self._original = original
        self._tasks = tasks
        self._first = first
        """The first copy's number in its job: the tasks before it stand for results that the copies need."""

    def accepted(self) -> None:
        """The user has been told that the original was accepted."""

    def refused(self, error: SparrowError) -> None:
        self._job.copies_refused(self._tasks)

    def placed(self, task: int) -> None:
        """Copies do not ask to be told."""

    def outcome(self, outcome: m.Outcome) -> None:
        task = self._tasks[outcome.task - self._first]
        self._job.copy_outcome(msgspec.structs.replace(outcome, job=self._original, task=task))

    def not_cancelled(self, task: int) -> None:
        """Copies are cancelled even if they run."""

    def ended(self) -> None:
        """All outcomes of the copies have come already."""


class Shape:
    """Which numbers the tasks of a job's stages have, and which stages others come after."""

    def __init__(self, stages: Sequence[StageSpec]) -> None:
        self.stages = stages
        self.firsts = list(itertools.accumulate((len(stage.tasks) for stage in stages[:-1]), initial=0))
        """The number of each stage's first task."""
        before = {name for stage in stages for name in stage.after}
        self.followed = frozenset(index for index, stage in enumerate(stages) if stage.name in before)

    def stage_of(self, task: int) -> int:
        """The position of the task's stage."""
        return bisect.bisect_right(self.firsts, task) - 1

    def numbers(self, index: int) -> range:
        """The numbers of the stage's tasks."""
        return range(self.firsts[index], self.firsts[index] + len(self.stages[index].tasks))


def copy_of(spec: JobSpec, shape: Shape, tasks: list[int], policy: str = "") -> tuple[JobSpec, list[int]]:
    """Returns a new job with copies of these tasks, which are all of one stage, and the tasks of the original whose
    results the copies need.

    The new job has a new id, and allows as many attempts. Its first tasks stand for those whose results are needed: all
    tasks of each stage from which a copy has inputs. Large inputs that were replaced by references stay references. The
    new job is cancelled if its client is lost: nobody needs copies then. It has the policy that was decided for the
    original; its tasks go by themselves, not with a gang or with another stage.
    """
    index = shape.stage_of(tasks[0])
    stage, first = shape.stages[index], shape.firsts[index]
    chosen = [stage.tasks[task - first] for task in tasks]
    asked_for = {
        name if isinstance(name, str) else name[0]
        for task in chosen
        if isinstance(task, TaskSpec)
        for name in task.inputs
        if not isinstance(name, BlobRef | TaskResult)
    }
    before = [position for position, other in enumerate(shape.stages) if other.name in asked_for and position != index]
    given = [StageSpec([b""] * len(one.tasks), name=one.name, app=one.app) for one in (shape.stages[p] for p in before)]
    needed = [number for position in before for number in shape.numbers(position)]
    alone: dict[str, Any] = {"tasks": chosen, "gang": False, "together_with": ""}
    which = alone
    if spec.stages:
        which = {"stages": [*given, replace(stage, **alone, after=tuple(one.name for one in given))]}
    copy = replace(
        spec, **which, job_id=new_job_id(), name=_again(spec.name), report_placed=False, on_client_lost="cancel",
        policy=policy,
    )  # fmt: skip
    return copy, needed


def _again(name: str) -> str:
    """The name of a copy; the original's is cut if the whole would be too long."""
    return name.encode()[: NAME_BYTES_MAX - len(AGAIN)].decode(errors="ignore") + AGAIN
