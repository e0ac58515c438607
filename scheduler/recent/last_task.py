"""The task that held a job up, and what the time from when it was wanted to its last start went to.

The last task to end could start once the last one before it in the stages before its own had ended, and so on: along
this chain the job took as long as it did.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.setbacks import Cause, Setback, Setbacks

if TYPE_CHECKING:
    from scheduler.recent.timeline import JobTimeline, TimelineRun

CHAIN_MAX = 100
"""Tasks of the chain that are looked at, the last ones first."""
WAITED_PART = 0.1
"""A wait that is less than this part of its task's run held nobody up."""


@dataclass(frozen=True, slots=True)
class LastTask:
    """The task, its last run, and when nodes were sought for it. setbacks: what it had before that run, in order.
    is_whole: whether that is all. of_stage: the name of its stage, if it is the last of that and not of its job."""

    run: TimelineRun
    node: str
    reserved_at_s: float
    setbacks: Sequence[Setback] = ()
    is_whole: bool = True
    of_stage: str | None = None

    @property
    def since_s(self) -> float:
        """Since when it could have run, had nothing stood in its way."""
        return min(self.reserved_at_s, self.setbacks[0].from_s) if self.setbacks else self.reserved_at_s

    @property
    def waited_s(self) -> float:
        """From then to its last start."""
        return max(0.0, self.run.started_at_s - self.since_s)

    @property
    def held_up(self) -> bool:
        """Whether it was its wait that took the time."""
        return self.waited_s >= WAITED_PART * self.run.service_s

    @property
    def slot_from_s(self) -> float:
        """Since when it waited for the slot in which it ran last."""
        return min(self.run.started_at_s, max((until_s for _, _, until_s in self._ends()), default=self.since_s))

    @property
    def waited_for_slot(self) -> bool:
        """Whether that wait held it up."""
        return self.run.started_at_s - self.slot_from_s >= WAITED_PART * self.run.service_s

    def _ends(self) -> list[tuple[Setback, float, float]]:
        """Each setback, from when to when: it is over as the next one begins, and as the task starts for the last
        time."""
        ends_s = [*(one.from_s for one in self.setbacks), self.run.started_at_s][1:]
        return [
            (one, one.from_s, max(one.from_s, min(one.until_s, end_s)))
            for one, end_s in zip(self.setbacks, ends_s, strict=True)
        ]

    def parts(self) -> tuple[list[tuple[Cause, float, str]], float]:
        """What the wait went to besides slots, in the order in which it came first: each cause with its seconds, if
        there were any, and the last reason that is known; and the seconds for slots. Until a start in vain is over the
        task may have waited for its slot, too: when that start began is not remembered."""
        seconds: dict[Cause, float] = {}
        reasons: dict[Cause, str] = {}
        slot_s, at_s, before = 0.0, self.since_s, None
        for one, from_s, until_s in self._ends():
            gap_s, took_s, cause = max(0.0, from_s - at_s), max(0.0, until_s - max(from_s, at_s)), one.cause
            if cause is Cause.IN_VAIN:
                took_s += gap_s
                cause = Cause.RAN if before is Cause.RAN else cause  # Whose end has come, with the reason.
            else:
                slot_s += gap_s
            seconds[cause] = seconds.get(cause, 0.0) + took_s
            reasons[cause] = one.reason or reasons.get(cause, "")
            at_s, before = max(at_s, until_s), one.cause
        slot_s += max(0.0, self.run.started_at_s - at_s)
        return [(cause, some_s, reasons[cause]) for cause, some_s in seconds.items() if some_s > 0], slot_s


def held_up_by(job: JobTimeline, after: Sequence[Sequence[int]], setbacks: Setbacks | None = None) -> LastTask | None:
    """Of the chain the task with the longest wait, or the one that ran longest where waits were short beside that; None
    if none has run, as far as is remembered. after: of each stage of `job` those that come before it."""
    chain = _chain(job, after, setbacks)
    if not chain:
        return None
    waited, ran = max(chain, key=lambda one: one.waited_s), max(chain, key=lambda one: one.run.service_s)
    return waited if waited.waited_s >= WAITED_PART * ran.run.service_s else ran


def _chain(job: JobTimeline, after: Sequence[Sequence[int]], setbacks: Setbacks | None) -> list[LastTask]:
    """The last task to end, the last one of the stages before its own that ended before it began, and so on."""
    by_stage: dict[int, list[TimelineRun]] = {}
    for run in sorted(job.runs, key=_end_s):
        by_stage.setdefault(stage_of(job, run), []).append(run)
    stages: Iterable[int] = by_stage
    chain: list[LastTask] = []
    before_s = math.inf
    while len(chain) < CHAIN_MAX:
        ends = [one for stage in stages if (one := _last_before(by_stage.get(stage, ()), before_s)) is not None]
        if not ends:
            break
        run = max(ends, key=_end_s)
        stage = stage_of(job, run)
        chain.append(_with_setbacks(job, run, stage, setbacks, job.stages[stage].name if chain else None))
        stages, before_s = after[stage], run.started_at_s
    return chain


def _last_before(runs: Sequence[TimelineRun], before_s: float) -> TimelineRun | None:
    """Of a stage's runs, in the order of their ends, the last one that had ended by then."""
    place = bisect_right(runs, before_s, key=_end_s)
    return runs[place - 1] if place else None


def _end_s(run: TimelineRun) -> float:
    return run.started_at_s + run.service_s


def _with_setbacks(
    job: JobTimeline, run: TimelineRun, stage: int, setbacks: Setbacks | None, of_stage: str | None
) -> LastTask:
    reserved_at_s = job.stages[stage].reserved_at_s
    wanted_s = job.submitted_at_s if reserved_at_s is None else reserved_at_s
    noted = [] if setbacks is None else setbacks.of(job.job, run.task, job.submitted_at_s)
    before = [
        Setback(Cause.RAN, one.started_at_s, _end_s(one)) for one in job.runs if one.task == run.task and one is not run
    ]
    had = sorted((one for one in [*noted, *before] if one.from_s <= run.started_at_s), key=lambda one: one.from_s)
    is_whole = setbacks is None or setbacks.whole_since_s <= wanted_s
    return LastTask(run, job.nodes[run.node], wanted_s, had, is_whole, of_stage)


def stage_of(job: JobTimeline, run: TimelineRun) -> int:
    """The place of its stage among those that are known of the job."""
    return max(0, bisect_right(job.stages, run.task, key=lambda stage: stage.first) - 1)
