"""One job's tasks in time: those that have run, by the log, those that are at nodes now, and how many wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from scheduler.recent.gone_jobs import STAGES_MAX

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState
    from scheduler.recent.gone_jobs import GoneJob
    from scheduler.recent.held_slots import HeldSlots
    from scheduler.recent.task_log import TaskLog

RUNS_MAX = 20_000
"""Attempts of a job in one answer: those that ended last."""
RUNS_PER_TURN = 1_000
"""To take so many from the log takes about a millisecond."""
HERE_MAX = 10_000
"""Attempts at nodes in one answer."""


class TimelineRun(msgspec.Struct, array_like=True):
    """An attempt that has ended: its task, its node's place in `nodes`, when it started and for how long it ran, by the
    node's clock, and its status."""

    task: int
    node: int
    started_at_s: float
    service_s: float
    status: str


class TimelineHere(msgspec.Struct, array_like=True):
    """An attempt at a node now: its task, its node's place in `nodes`, and since when at the latest; null if it came
    after the last look."""

    task: int
    node: int
    since_s: float | None


class TimelineStage(msgspec.Struct):
    """A stage, the number of its first task in the job, and since when nodes were sought for its tasks; null if they
    are not yet. `waiting`: of its tasks those that are at no node and have not ended."""

    name: str
    first: int
    tasks: int
    reserved_at_s: float | None
    waiting: int


class JobTimeline(msgspec.Struct, kw_only=True):
    """One job's tasks in time. `how`: what became of it; empty while it is here. `more_runs`: ends
    of attempts, about, that are not shown: they did not run, were too many at a time, or are forgotten."""

    job: str
    name: str
    user: str
    how: str
    tasks: int
    submitted_at_s: float
    ended_at_s: float | None
    now_s: float
    stages: list[TimelineStage]
    more_stages: int
    nodes: list[str]
    runs: list[TimelineRun]
    more_runs: int
    here: list[TimelineHere]
    more_here: int


class Walk:
    """The runs of a job, from the log, bit by bit: others have their turns between."""

    def __init__(self, tasks: TaskLog, place: int) -> None:
        """place: of the job's latest record."""
        self.runs: list[TimelineRun] = []
        self._numbers: dict[str, int] = {}
        self._left = tasks.walk(place)

    def number(self, node_id: str) -> int:
        """The node's place in `nodes`."""
        return self._numbers.setdefault(node_id, len(self._numbers))

    @property
    def nodes(self) -> list[str]:
        """The names of those that have a number."""
        return list(self._numbers)

    def goes_on(self) -> bool:
        """Take some more; whether there may be others."""
        taken = 0
        for one in islice(self._left, min(RUNS_PER_TURN, RUNS_MAX - len(self.runs))):
            taken += 1
            if math.isfinite(one.started_at_s) and 0 <= one.service_s < math.inf:
                run = TimelineRun(one.task, self.number(one.node), one.started_at_s, one.service_s, one.status.value)
                self.runs.append(run)
        return taken == RUNS_PER_TURN


def of_job(job: JobState, walk: Walk, slots: HeldSlots, now_s: float) -> JobTimeline:
    """Of a job that is here, whose log was walked through."""
    stages = [
        TimelineStage(
            _name(stage.spec.name, job.stages), stage.first, stage.spec.task_count, stage.reserved_at_s,
            stage.spec.task_count - stage.settled - len(stage.attempts),
        )
        for stage in job.stages[:STAGES_MAX]
    ]  # fmt: skip
    here = [
        TimelineHere(one.stage.first + one.task, walk.number(one.node_id), slots.since_s(one.node_id, one.id))
        for one in islice(job.attempts.values(), HERE_MAX)
    ]
    return JobTimeline(
        job=job.id, name=job.name, user=job.user, how="", tasks=job.task_count,
        submitted_at_s=job.born_s, ended_at_s=None, now_s=now_s,
        stages=stages, more_stages=len(job.stages) - len(stages),
        nodes=walk.nodes,
        runs=walk.runs, more_runs=max(0, job.settled - len(walk.runs)),
        here=here, more_here=len(job.attempts) - len(here),
    )  # fmt: skip


def of_gone_job(job: GoneJob, walk: Walk, now_s: float) -> JobTimeline:
    """Of a job that is remembered, whose log was walked through."""
    stages = [
        TimelineStage(_name(stage.name, job.stages), stage.first, stage.tasks, stage.reserved_at_s, 0)
        for stage in job.stages
    ]
    return JobTimeline(
        job=job.id, name=job.name, user=job.user, how=job.how, tasks=job.tasks,
        submitted_at_s=job.submitted_at_s, ended_at_s=job.gone_at_s, now_s=now_s,
        stages=stages, more_stages=job.stage_count - len(stages),
        nodes=walk.nodes,
        runs=walk.runs, more_runs=max(0, sum(job.counts.values()) - len(walk.runs)),
        here=[], more_here=0,
    )  # fmt: skip


def _name(name: str, stages: Sequence[object]) -> str:
    """A stage that is alone has its job's name, and needs none of its own."""
    return "" if len(stages) == 1 else name
