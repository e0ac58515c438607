"""A job of the book as the allocator knows it: a group for each stage, with what its tasks are expected to take.

What a group demands is settled when the job comes, as it is what machines are filled by; how long its tasks last is
thought anew as they finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.estimates import Change, StageEstimate
from scheduler.altruistic.known_stages import StageKey, stage_key
from scheduler.altruistic.machines import Machines
from scheduler.book.jobs import OPEN

if TYPE_CHECKING:
    from scheduler.altruistic.stage_history import StageHistory
    from scheduler.book.jobs import JobState, StageState
    from sparrow_py.wire import messages as m

SLOTS = "slots"
"""The resource of which each task takes one."""
UNKNOWN_S = 1.0
"""What a task is planned to take if nobody knows of any task of its job: such jobs yield nothing, so that their plans
matter to nobody."""


class LiveStage:
    """What the plane keeps of a stage."""

    __slots__ = ("_stated", "demand", "estimate", "group", "has_ended", "key", "live", "running", "started_sum_s")

    def __init__(self, live: LiveJob, stage: StageState, history: StageHistory) -> None:
        self.live = live
        self.group = stage.index
        spec, job = stage.spec, stage.job
        self.key: StageKey | None = stage_key(job.user, spec.app, job.name, spec.name)
        self._stated: Mapping[str, float] = {**(spec.demand or {}), SLOTS: 1.0}
        self.estimate = StageEstimate(spec.task_count, self._stated, spec.expected_duration_s, history.of(self.key))
        self.demand: Mapping[str, float] = self._stated
        """By which machines are filled."""
        self.running = 0
        """Tasks that run."""
        self.started_sum_s = 0.0
        """When they started, all times added up."""
        self.has_ended = False
        """Whether the history has been told."""

    def settle_demand(self, machines: Machines, columns: Mapping[str, int]) -> None:
        """See `LiveJob.settle_demands`."""
        likely = self.estimate.now.demand
        fits = likely is self._stated or machines.could_run(np.array(row_of(likely, columns)))
        self.demand = likely if fits else self._stated

    def began(self, at_s: float) -> None:
        """A task runs from now on."""
        self.running += 1
        self.started_sum_s += at_s

    def ended(self, began_s: float) -> None:
        """A task that began then runs no more."""
        self.running -= 1
        self.started_sum_s -= began_s

    def finished(self, report: m.Report, now_s: float) -> Change:
        """A task, which counts as running no more, has finished."""
        if report.service_s is None:
            return Change.NONE
        used = {} if report.used is None else msgspec.structs.asdict(report.used)
        running_s = max(0.0, self.running * now_s - self.started_sum_s)
        return self.estimate.finished(report.service_s, used, self.running, running_s)

    @property
    def duration_s(self) -> float | None:
        """Of a task, as far as is known."""
        return self.estimate.now.duration_s


class LiveJob:
    """See the module's docstring. All its stages are known from the start, their tasks are not."""

    def __init__(self, job: JobState, history: StageHistory) -> None:
        self.job = job
        self.stages: Sequence[StageState] = tuple(job.stages)
        self.plans = [LiveStage(self, stage, history) for stage in job.stages]
        self._number = {stage.spec.name: stage.index for stage in job.stages if stage.spec.name}

    @property
    def may_run(self) -> bool:
        """Whether it was accepted, and something of it runs or is to run. Tasks of it may yet come."""
        return self.job.phase is OPEN and any(left_of(stage) or stage.attempts for stage in self.stages)

    @property
    def can_yield(self) -> bool:
        """Whether it is known how long tasks take of all stages that are not over."""
        return all(
            plan.duration_s is not None or stage.over for stage, plan in zip(self.stages, self.plans, strict=True)
        )

    def settle_demands(self, machines: Machines, columns: Mapping[str, int]) -> None:
        """What its tasks are thought to take is what they are planned with, if some machine has that; else what was
        stated."""
        for plan in self.plans:
            plan.settle_demand(machines, columns)

    def dag(self, columns: Mapping[str, int]) -> Dag:
        """Its stages as groups."""
        known_s = [plan.duration_s for plan in self.plans if plan.duration_s is not None]
        instead_s = sum(known_s) / len(known_s) if known_s else UNKNOWN_S
        return Dag(
            [
                Group(
                    max(1, stage.spec.task_count),
                    tuple(row_of(plan.demand, columns)),
                    plan.duration_s or instead_s,
                    tuple(sorted({one.index for one in stage.predecessors})),
                )
                for stage, plan in zip(self.stages, self.plans, strict=True)
            ]
        )


def left_of(stage: StageState) -> int:
    """Tasks of the stage that have not started and may: now, if it is open."""
    if stage.open:
        return stage.unplaced
    return max(0, stage.spec.task_count - stage.settled - stage.leaving - len(stage.attempts))


def row_of(amounts: Mapping[str, float], columns: Mapping[str, int]) -> list[float]:
    """Amounts by resource as a row. What no machine has is left out: no machine is eligible then."""
    row = [0.0] * len(columns)
    for name, amount in amounts.items():
        column = columns.get(name)
        if column is not None:
            row[column] = amount
    return row
