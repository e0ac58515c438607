"""Jobs and nodes as the scheduler's HTTP shows them, as structs of JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec

from scheduler.book.jobs import JobState, StageState
from scheduler.book.kinds import Kind
from scheduler.book.nodes import Node
from scheduler.core import SchedulerCore
from scheduler.http.job import HttpJob
from scheduler.options import SchedulerOptions
from scheduler.recent.gone_jobs import GoneJob
from sparrow_py.daemon.version import version
from sparrow_py.wire import messages as m


class StageSummary(msgspec.Struct):
    """A stage and how far it is."""

    name: str
    app: str
    after: list[str]
    tasks: int
    unplaced: int
    settled: int


class JobRow(msgspec.Struct, kw_only=True):
    """Common to all views of a job. Its tasks are unplaced, running, or have ended in one of four ways. `state`:
    running, ended, or why else it is here no more."""

    id: str
    name: str
    user: str
    app: str
    state: str
    tasks: int
    unplaced: int
    running: int
    finished: int
    failed: int
    cancelled: int
    lost: int
    submitted_at_s: float
    ended_at_s: float | None


class JobOfScheduler(JobRow, kw_only=True):
    """Common to what is shown of a job that is asked for, or listed."""

    priority: int
    """That which it states, or its user's."""
    policy: str
    """That of its scheduler."""


class JobSummary(JobOfScheduler, kw_only=True):
    """A job in the list of jobs."""

    stages: int


class JobDetail(JobOfScheduler, kw_only=True):
    """One job. Tasks of stages that wait for others are unplaced."""

    state: Literal["running", "ended"]
    stages: list[StageSummary]


class JobList(msgspec.Struct):
    """A list of jobs."""

    jobs: list[JobSummary]


class JobCancelled(msgspec.Struct):
    """The job is cancelled."""

    job: str


class Leader(msgspec.Struct):
    """The scheduler that leads a plane, as nodes know it."""

    name: str
    address: str
    """Where nodes dial it."""
    epoch: int


class SchedulerDetail(msgspec.Struct):
    """A scheduler, and whether it takes jobs. Its nodes are those that are linked to it, in whatever state."""

    name: str
    address: str
    policy: str
    placement: str
    """How it places tasks, under policy sparrow; else empty."""
    takes_jobs: bool
    why_not: str
    """Why it takes none; empty if it does."""
    leads: bool | None
    """Whether it leads its plane; null if its plane has no leader."""
    lead_state: str | None
    """What it does about leading it: asking, claiming, leading, standing_by, deposed or refused."""
    epoch: int
    """With which it leads or claims to; else 0."""
    leader: Leader | None
    """The one that leads in its place, if it knows of one."""
    nodes: int
    slots: int
    jobs: int
    version: str
    """Of sparrow-py."""
    protocol: int
    """The newest version of the protocol that it speaks."""


class Demand(msgspec.Struct):
    """How many slots this scheduler's jobs could use now, for whoever starts and ends node monitors."""

    slots_wanted: int
    """Those of tasks that run, and one for each task that waits and may start."""
    running: int
    waiting: int
    slots: int
    """Of the nodes that are linked and take work."""


class Lead(msgspec.Struct):
    """The scheduler leads its plane with this epoch, or is about to."""

    plane: str
    epoch: int
    leads: bool


class NodeSummary(msgspec.Struct):
    """A node that is connected. `busy`, `reservations` and `launched` are this scheduler's own there."""

    id: str
    address: str
    """host:port of the node monitor's HTTP."""
    slots: int
    busy: int
    reservations: int
    apps: dict[str, str]
    attributes: dict[str, str]
    resources: dict[str, float]
    state: str
    withdrawn: dict[str, str]
    """Apps that the node should run and whose executors do not start: the reason for each."""
    launched: int
    """Tasks that were sent there since the node has come, those that were handed back among them."""
    twin: str = ""
    """Where another node monitor is that has the same name, and has been linked in the last minute, too; empty if there
    is none."""


class NodeList(msgspec.Struct):
    """A list of nodes."""

    nodes: list[NodeSummary]


class Place(msgspec.Struct):
    """What it would cost to place a task there, and what is in the way; nothing if that is empty."""

    to: str
    cost: int
    limit: str


class StageExplanation(msgspec.Struct):
    """A stage with tasks that wait. With policy flow `task` is one of them, what it costs to have it wait, and its
    cheapest places."""

    name: str
    waiting: int
    reasons: list[str]
    task: int | None = None
    waiting_cost: int | None = None
    places: list[Place] = []


class JobExplanation(msgspec.Struct):
    """Why tasks of a job wait, stage by stage; there is no stage if none does. `more_stages`: so many more have tasks
    that wait. `so_far`: of those that have run, what the job could have taken, what it waited for, and what held it up,
    in words; a job that has ended has nothing else."""

    job: str
    policy: str
    stages: list[StageExplanation]
    more_stages: int = 0
    so_far: list[str] = []


def row(job: JobState | HttpJob | GoneJob) -> JobRow:
    """A job that runs, one that came over HTTP and has ended, or one that is remembered."""
    return JobRow(**_row(job))


def summary(job: JobState | HttpJob | GoneJob, policy: str) -> JobSummary:
    """The same at a scheduler of this policy."""
    stages = job.stage_count if isinstance(job, GoneJob) else len(job.stages)
    return JobSummary(**_row(job), priority=job.priority, policy=policy, stages=stages)


def detail(job: JobState | HttpJob, policy: str) -> JobDetail:
    """A job that runs, or one that came over HTTP and has ended, with its stages."""
    if isinstance(job, HttpJob):
        stages = [_ended_stage(stage) for stage in job.stages]
    else:
        alone = len(job.stages) == 1  # Then the stage has the job's name, and needs none of its own.
        stages = [_stage("" if alone else stage.spec.name, stage) for stage in job.stages]
    return JobDetail(**_row(job), priority=job.priority, policy=policy, stages=stages)


def _row(job: JobState | HttpJob | GoneJob) -> dict[str, Any]:
    unplaced = running = 0
    ended_at_s: float | None
    counts = {status.value: count for status, count in job.counts.items()}
    if isinstance(job, GoneJob):
        app, state, tasks = job.app, job.how, job.tasks
        submitted_at_s, ended_at_s = job.submitted_at_s, job.gone_at_s
    elif isinstance(job, HttpJob):
        app, tasks, submitted_at_s, ended_at_s = job.stages[0].app, job.task_count, job.submitted_at_s, job.ended_at_s
        state = "running" if ended_at_s is None else "ended"
    else:
        app, state, tasks, unplaced, running = (
            job.stages[0].spec.app, "running", job.task_count, job.unplaced, len(job.attempts),
        )  # fmt: skip
        submitted_at_s, ended_at_s = job.born_s, None  # It may have been at other schedulers before.
        for stage in job.stages:  # Tasks that have ended though their client, which does not read, is not told yet.
            for leave in stage.leaves:
                counts[leave.status.value] += leave.count
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "app": app,
        "state": state,
        "tasks": tasks,
        "unplaced": unplaced,
        "running": running,
        **counts,
        "submitted_at_s": submitted_at_s,
        "ended_at_s": ended_at_s,
    }


def _stage(name: str, stage: StageState) -> StageSummary:
    count = stage.spec.task_count
    unplaced = stage.unplaced + len(stage.held) + count - len(stage.states)
    return StageSummary(name, stage.spec.app, list(stage.spec.after), count, unplaced, stage.settled)


def _ended_stage(stage: m.Stage) -> StageSummary:
    return StageSummary(stage.name, stage.app, list(stage.after), stage.task_count, 0, stage.task_count)


def node(node: Node, reservations: int, twin: str) -> NodeSummary:
    """A node, at which so many reservations of this scheduler are queued."""
    info = node.info
    return NodeSummary(
        node.id, info.address, info.slots, len(node.attempts), reservations, info.apps,
        info.attributes, info.resources, node.state, info.withdrawn, node.launched, twin,
    )  # fmt: skip


def scheduler(core: SchedulerCore, options: SchedulerOptions, name: str, address: str, why_not: str) -> SchedulerDetail:
    """The scheduler itself, of this name and address."""
    leading, nodes = core.leading, core.nodes.all()
    other = None if leading is None else leading.other
    return SchedulerDetail(
        name, address, options.policy, options.placement if options.policy == m.SPARROW else "", not why_not, why_not,
        None if leading is None else leading.leads,
        None if leading is None else leading.state.name.lower(),
        0 if leading is None else leading.epoch,
        None if other is None else Leader(other.leader, other.address, other.epoch),
        len(nodes), sum(node.info.slots for node in nodes), len(core.jobs), version(), m.PROTOCOL_VERSION,
    )  # fmt: skip


def _lacks_something(core: SchedulerCore, kind: Kind) -> bool:
    """Whether nodes are connected, and none has what such tasks ask for; a node more would be as these are."""
    why_not = core.nodes.why_none_could(kind)
    return why_not is not None and why_not[0] != ""


def demand(core: SchedulerCore) -> Demand:
    """What the jobs want now. Tasks of stages whose predecessors have not finished want nothing yet, nor do those that
    wait until they are tried again, nor those that ask for what no node that is connected has."""
    running = sum(len(job.attempts) for job in core.jobs.values())
    wanted: Counter[Kind] = Counter()
    for job in core.jobs.values():
        for stage in job.stages:
            if stage.open and stage.unplaced:
                wanted[stage.kind] += stage.unplaced
    waiting = sum(tasks for kind, tasks in wanted.items() if not _lacks_something(core, kind))
    slots = sum(node.info.slots for node in core.nodes.all() if node.state == m.READY)
    return Demand(running + waiting, running, waiting, slots)
