"""Why the tasks of a job that have not started wait: what the book knows of it, and what the plane does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from scheduler.book.jobs import ARRIVING, CLAIMING
from scheduler.plane import WhyWaiting
from sparrow_py.counted import agreeing, counted

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState, StageState
    from scheduler.core import SchedulerCore

NAMED_MAX = 5
"""Nodes and stages that are named in a reason."""
ATTEMPTS_MAX = 1_000
"""Tasks of a node that are looked at for whose they are."""
STAGES_MAX = 20
"""Stages of a job that are explained: to look at the nodes for each of a thousand would hold up everybody's events."""


@dataclass(slots=True)
class StageWaits:
    """A stage with tasks that have not started, and why."""

    name: str
    waiting: int
    reasons: list[str] = field(default_factory=list)
    ask: Callable[[], WhyWaiting] | None = None
    """Tells the rest; to be called where problems are solved."""


def waiting_stages(core: SchedulerCore, job: JobState, now_s: float) -> tuple[list[StageWaits], int]:
    """The first stages of the job that have tasks which wait, those that are open before others; how many more have."""
    counts = {stage: count for stage in job.stages if (count := _waiting(stage))}
    stages = sorted(counts, key=lambda stage: not stage.open)[:STAGES_MAX]
    found = {stage: StageWaits(stage.spec.name, counts[stage], _reasons(core, stage, now_s)) for stage in stages}
    placed = [stage for stage in stages if stage.open and stage.unplaced]
    for stage, ask in zip(placed, core.plane.explain(placed, now_s), strict=True):
        found[stage].ask = ask
    return list(found.values()), len(counts) - len(stages)


def _waiting(stage: StageState) -> int:
    """Tasks of the stage that have not started, or are to start again."""
    return stage.unplaced + len(stage.blocked) + len(stage.held) + stage.spec.task_count - len(stage.states)


def _reasons(core: SchedulerCore, stage: StageState, now_s: float) -> list[str]:
    job, reasons = stage.job, []
    if missing := stage.spec.task_count - len(stage.states):
        reasons.append(f"{missing:,} of its tasks {agreeing(missing, 'have')} not arrived from the client")
    if job.phase is ARRIVING:
        reasons.append("its job is accepted once all its tasks are here")
    if job.phase is CLAIMING:
        unanswered = len(job.unanswered)
        nodes = f", and {counted(unanswered, 'node', 'have')} not answered" if unanswered else ""
        reasons.append(f"its job was at another scheduler: nodes are asked what they have of it{nodes}")
    if stage.waits_for:
        names = [job.stages[index].spec.name for index in sorted(stage.waits_for)]
        reasons.append(f"it comes after {_some(names)}, of which tasks have not finished")
    if stage.blocked:
        reasons.append(f"{_some_tasks(len(stage.blocked), 'wait')} for inputs that got lost, which are produced again")
    if stage.untold:
        reasons.append(f"{_some_tasks(len(stage.untold), 'start')} again once the client knows of the starts before")
    if stage.expects:
        reasons.append(f"{_some_tasks(len(stage.expects), 'wait')} for results of other jobs, their inputs")
    reasons += _delays(stage, now_s)
    if stage.open and stage.unplaced:
        reasons += _of_nodes(core, stage, now_s)
    return reasons


def _delays(stage: StageState, now_s: float) -> list[str]:
    """That tasks are held for a time, and why."""
    waits = stage.room_waits or {}
    delays_s: dict[bool, list[float]] = {False: [], True: []}
    for task, until_s in stage.held.items():
        if until_s > now_s:
            delays_s[task in waits].append(until_s - now_s)
    reasons = []
    for room, some in delays_s.items():
        if some:
            count = len(some)
            retried = f"{count:,} of its tasks failed and {agreeing(count, 'are')} retried"
            why = f"{_some_tasks(count, 'wait')} until nodes have room for inputs" if room else retried
            reasons.append(f"{why}, the next in {min(some):.1f} s")
    return reasons


def _of_nodes(core: SchedulerCore, stage: StageState, now_s: float) -> list[str]:
    """What of nodes is in the way."""
    nodes, search, reasons = core.nodes, stage.search, []
    eligible = nodes.eligible(stage.kind)
    if not len(nodes):
        reasons.append("no node monitor is connected")
    elif not eligible:
        why = nodes.why_none_could(stage.kind)
        reasons.append(why[1] if why is not None else "no node that may run it is ready")
    elif refused := [node_id for node_id in eligible if node_id in search.refused_by]:
        reasons.append(f"{_some(refused)} handed tasks back or refused them, and are left alone for a while")
    for node_id, why_not in list(search.barred_by.items())[:NAMED_MAX]:
        reasons.append(f"{node_id} takes none of its tasks: {why_not}")
    if eligible and stage.job.avoids:
        avoided = [node_id for node_id in eligible if core.book.reach.avoided_at(stage, node_id)]
        if avoided:
            reasons.append(f"jobs that it avoids run at {_some(avoided)}")
    if stage.preferences is not None and stage.preferences.constrained:
        reasons.append(f"{_some_tasks(len(stage.preferences.constrained), 'wait')} for preferred nodes")
    if search.no_node_since_s is not None:
        reasons.append(f"it has waited for a node for {now_s - search.no_node_since_s:.1f} s")
    if stage.job.queue_timeout_s is not None and stage.place_by_s:
        reasons.append(f"tasks that have no place within queue_timeout_s = {stage.job.queue_timeout_s:g} s are lost")
    return reasons


def slots_held(core: SchedulerCore, node_ids: Sequence[str], may_see: Callable[[str], bool]) -> list[str]:
    """Whose tasks are at these nodes now, in whose queues reservations wait, as far as this scheduler knows. may_see:
    whether whoever asks may see this user's jobs; of others there are no names."""
    said = []
    for node_id in node_ids:
        node = core.nodes.get(node_id)
        if node is None:
            continue
        users: Counter[str] = Counter()
        for attempt in islice(node.attempts, ATTEMPTS_MAX):
            user = attempt.stage.job.user
            users[f"user {user}" if may_see(user) else "other users"] += 1
        most = sorted(users.items(), key=lambda one: (-one[1], one[0]))[:NAMED_MAX]
        whose = ", ".join(f"{user} ({count})" for user, count in most)
        others = "none of this scheduler's tasks is there" if not whose else f"tasks are there of {whose}"
        said.append(f"{node_id} has {counted(node.info.slots, 'slot')}; {others}")
    return said


def _some_tasks(count: int, verb: str) -> str:
    return f"{count:,} of its tasks {agreeing(count, verb)}"


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
