"""What a stage's tasks are expected to take, and to last (paper 002, §4 and §5.4.2).

Of each figure, the first of these that is known holds:

1. what whoever submitted the job says (`StageSpec.demand`, `expected_duration_s`);
2. what earlier runs of the stage have shown;
3. what the stage's first finished tasks show.

Once enough of the stage's own tasks have finished, and differ from what was thought by more than a factor, they are
right. The first to finish are the shortest: so a figure rises to what they show, but falls, or is had from nothing,
only once as many have finished as run. A duration then is the time that tasks have run, finished or not, over those
that have finished: so long do they last on average if those that run go on as if they had just begun. What is said to
be demanded is never undercut, as node monitors set it aside whether tasks use it or not. A stage whose tasks' duration
is not known cannot be planned, and runs as shares alone have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.altruistic.durations import bounded
from scheduler.altruistic.runs import AMOUNT_MAX, DURATION, Figures, Run

ENOUGH_TASKS = 5
"""Finished tasks of a stage that say more than what was thought before; of a small stage half of its tasks."""
DIFFERS_BY = 1.5
"""A factor: figures that are nearer to each other are the same for a plan."""
MISESTIMATION_MIN, MISESTIMATION_MAX = -0.9, 9.0
"""Demands may be thought to be a tenth to ten times of what they are, durations ten times to a tenth."""


class EstimateError(ValueError):
    """A field that cannot be; the message names the field, the value and what is allowed."""


class Source(StrEnum):
    """Whence a figure is known."""

    NONE = "none"
    SUBMITTER = "submitter"
    HISTORY = "history"
    FIRST_TASKS = "first finished tasks"


class Change(StrEnum):
    """Of an estimate."""

    NONE = "none"
    FELL = "fell"
    ROSE = "rose"
    """In a figure at least, or there was none: jobs may end later than they were to, so a plan is made anew."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of each task of a stage."""

    demand: Mapping[str, float]
    """By resource."""
    duration_s: float | None
    """If the task has what it demands."""
    sources: Mapping[str, Source]
    """Of each figure in `demand`, and of `duration_s` by that name."""

    @property
    def source(self) -> Source:
        """Of the duration."""
        return self.sources.get(DURATION, Source.NONE)


class StageEstimate:
    """What is thought of a stage's tasks, from the job's submission to the stage's end.

    `demand`, `duration_s`: what its submitter says, the slot as one resource of the demand. `history`: what earlier
    runs have shown.
    """

    __slots__ = ("_demand", "_tasks", "now", "run")

    def __init__(
        self, tasks: int, demand: Mapping[str, float], duration_s: float | None = None, history: Figures | None = None
    ) -> None:
        self._tasks = tasks
        self._demand = demand
        self.run = Run()
        """What its own tasks have shown."""
        self.now = _at_first(demand, duration_s, history or {})

    def finished(self, duration_s: float, used: Mapping[str, float | None], running: int, running_s: float) -> Change:
        """One of its tasks has finished; so many still run, and have run for so long together. Those that failed or
        were stopped show nothing."""
        self.run.finished(duration_s, used)
        before, tasks = self.now, self.run.tasks
        if tasks < min(ENOUGH_TASKS, -(-self._tasks // 2)):
            return Change.NONE
        for name, (_, shown) in self.run.figures.items():
            if name == DURATION:
                self._compare(name, before.duration_s, shown, bounded(shown + running_s / tasks), tasks >= running)
            else:
                amount = max(shown, self._demand.get(name, 0.0))
                self._compare(name, before.demand.get(name), amount, amount, tasks >= running)
        return _change(before, self.now)

    def _compare(self, name: str, thought: float | None, least: float, likely: float, may_fall: bool) -> None:
        """Take what the stage's own tasks have shown, if what was thought is too far from it."""
        if thought is not None and least > DIFFERS_BY * thought:
            value = least
        elif may_fall and (thought is None or DIFFERS_BY * likely < thought):
            value = likely
        else:
            return
        sources = {**self.now.sources, name: Source.FIRST_TASKS}
        if name == DURATION:
            self.now = replace(self.now, duration_s=value, sources=sources)
        else:
            self.now = replace(self.now, demand={**self.now.demand, name: value}, sources=sources)


def _at_first(demand: Mapping[str, float], duration_s: float | None, history: Figures) -> Estimate:
    """Before any task has finished."""
    figures = {name: value for name, (_, value) in history.items()}
    sources = dict.fromkeys(figures, Source.HISTORY) | dict.fromkeys(demand, Source.SUBMITTER)
    remembered_s = figures.pop(DURATION, None)
    if duration_s is not None:
        remembered_s, sources[DURATION] = bounded(duration_s), Source.SUBMITTER
    return Estimate(figures | dict(demand), remembered_s, sources)


def _change(before: Estimate, now: Estimate) -> Change:
    if before is now:
        return Change.NONE
    pairs = [(before.demand.get(name), amount) for name, amount in now.demand.items()]
    pairs += [(before.duration_s, now.duration_s)] if now.duration_s is not None else []
    rose = any(was is None or was < amount for was, amount in pairs)
    return Change.ROSE if rose else Change.FELL


def check_misestimation(field: str, misestimation: float) -> None:
    """Raise `EstimateError` unless estimates may be wrong by so much."""
    if not MISESTIMATION_MIN <= misestimation <= MISESTIMATION_MAX:
        raise EstimateError(
            f"{field}: {misestimation} is not valid; allowed: a number from {MISESTIMATION_MIN:g} to "
            f"{MISESTIMATION_MAX:g}"
        )


def misestimated(estimate: Estimate, misestimation: float) -> Estimate:
    """What a planner sees that is wrong by a part of the demand: demands × (1 + misestimation), and as tasks' work is
    what it is, durations ÷ (1 + misestimation) (paper 002, §5.4.2). Tasks take, and last, what they do."""
    check_misestimation("misestimation", misestimation)
    if misestimation == 0:
        return estimate
    factor = 1 + misestimation
    return replace(
        estimate,
        demand={name: min(amount * factor, AMOUNT_MAX) for name, amount in estimate.demand.items()},
        duration_s=None if estimate.duration_s is None else bounded(estimate.duration_s / factor),
    )
