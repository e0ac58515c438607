"""What a flow plane keeps of a stage: which of its tasks the network has, and how these are called there.

The book says that tasks of a stage are unplaced, not which ones, and to walk through all of them after each event would
take a time that grows with the square of the job. So before a round the stage's states are compared, as an array, with
what the network has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler.book.jobs import UNPLACED
from scheduler.flow.policies.policy import Task
from scheduler.flow.stage_limits import has_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.book.jobs import StageState
    from scheduler.flow.profiles import Profiles
    from scheduler.flow.stage_limits import StageRelations


class StagePlan:
    """See the module's docstring."""

    __slots__ = (
        "before_s",
        "fits_not_since_s",
        "fitted_version",
        "number",
        "offered",
        "own_kind",
        "preferred",
        "relations",
        "running",
        "since_s",
    )

    def __init__(self, number: int, relations: StageRelations) -> None:
        self.number = number
        """Of all stages that ever came, so that names of tasks do not come again."""
        self.relations = relations
        """Those of all stages of its job."""
        self.offered: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """By task: whether the network has it."""
        self.since_s: dict[int, float] = {}
        """Of tasks that the network has: since when they wait."""
        self.preferred: dict[int, tuple[str, ...]] = {}
        """Of those: the nodes that they want, as the network was told."""
        self.before_s: dict[int, float] = {}
        """Of tasks that were taken out of the network while they waited: since when they do."""
        self.own_kind = False
        """Whether its kinds are its own, as the network was told."""
        self.running: dict[int, str] = {}
        """Of tasks that run and that the network has: their nodes. Only tasks that may be preempted."""
        self.fitted_version: int | None = None
        """Of a gang: the view's version when there were places for all of it, taken or not."""
        self.fits_not_since_s: float | None = None
        """Of a gang: since when there are not."""

    def name(self, task: int) -> str:
        """What the network calls the task."""
        return f"{self.number}.{task}"

    def waits_no_more(self, task: int) -> None:
        """The network keeps the task, which runs."""
        self.offered[task] = False
        self.since_s.pop(task, None)
        self.preferred.pop(task, None)


def number_of(name: str) -> int:
    """The number of the stage of a task, by the task's name in the network."""
    return int(name.partition(".")[0])


def unplaced_mask(stage: StageState) -> NDArray[np.bool_]:
    """By task: whether it waits for a place."""
    if not stage.states or not stage.open:
        return np.zeros(len(stage.states), np.bool_)
    return np.asarray(np.frombuffer(stage.states, np.uint8) == UNPLACED)


def withdrawn(stage: StageState) -> list[str]:
    """Take all tasks of the stage out of the network: their names there."""
    plan: StagePlan = stage.plan
    names = [plan.name(task) for task in plan.since_s]
    plan.before_s |= plan.since_s
    plan.since_s.clear()
    plan.preferred.clear()
    plan.offered = np.zeros(0, np.bool_)
    return names


def compare(stage: StageState, most: int, now_s: float) -> tuple[list[str], list[int]]:
    """Names of tasks that the network has and should not, and tasks that it has not and should, so that it has at most
    so many of the stage then. From now on it is as it should be."""
    plan: StagePlan = stage.plan
    unplaced = unplaced_mask(stage)
    offered = np.zeros(len(unplaced), np.bool_)
    offered[: len(plan.offered)] = plan.offered[: len(unplaced)]
    wants = stage.preferences.preferred if stage.preferences is not None else {}
    for task, nodes in list(plan.preferred.items()):
        if wants.get(task) != nodes and offered[task]:  # It takes others, too, from now on.
            unplaced[task] = False
    gone = [int(task) for task in np.flatnonzero(offered & ~unplaced)]
    names = [plan.name(task) for task in gone]
    for task in gone:
        plan.since_s.pop(task, None)
        plan.preferred.pop(task, None)
        if stage.states[task] == UNPLACED and stage.open:
            unplaced[task] = True
            offered[task] = False
    new = [int(task) for task in np.flatnonzero(unplaced & ~offered)[: max(0, most - len(plan.since_s))]]
    plan.offered = offered & unplaced
    plan.offered[new] = True
    if plan.before_s and not unplaced.any():
        plan.before_s.clear()
    for task in new:
        plan.since_s[task] = plan.before_s.pop(task, now_s)
        if task in wants:
            plan.preferred[task] = wants[task]
    return names, new


def tasks_for_network(
    stage: StageState, tasks: Iterable[int], profiles: Profiles, kind_of: Callable[[StageState, tuple[str, ...]], str]
) -> list[Task]:
    """These tasks of the stage, as policies look at them."""
    plan: StagePlan = stage.plan
    spec, job = stage.spec, stage.job
    duration_s = spec.expected_duration_s
    if duration_s is None:
        duration_s = profiles.duration_s(job.user, spec.app, stage_name(stage))
    demand = dict(stage.kind.demand)
    expected = expected_of(stage, profiles)
    group = str(plan.number) if has_limits(stage) else ""
    found = []
    for task in tasks:
        detail = stage.details.get(task)
        local = dict(detail.data) if detail is not None and detail.data else {}
        stated = detail.data_bytes if detail is not None else None
        found.append(
            Task(
                name=plan.name(task),
                job=job.id,
                input_bytes=sum(local.values()) if stated is None else stated,
                local_bytes=local,
                user=job.user,
                kind=kind_of(stage, plan.preferred.get(task, ())),
                demand=demand,
                group=group,
                priority=stage.priority,
                since_s=plan.since_s.get(task),
                duration_s=duration_s,
                preferred=plan.preferred.get(task, ()),
                expected=expected,
            )
        )
    return found


def expected_of(stage: StageState, profiles: Profiles) -> dict[str, float]:
    """What each of the stage's tasks is expected to use."""
    return profiles.expected(stage.job.user, stage.spec.app, stage_name(stage), dict(stage.kind.demand))


def stage_name(stage: StageState) -> str:
    """What the stage is called: a job's only stage has the job's name."""
    return stage.spec.name or stage.job.name
