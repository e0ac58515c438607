"""Bringing the cluster to the moment at which a fault strikes: by events, never by waiting for a time.

Two jobs are at stake in every row: one whose tasks may be started three times, and one whose tasks may be started
once. Their tasks write down each start and each end, and wait in between for the gate of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.laboratory.evidence import Run
from benchmarks.laboratory.faults import Happened, Kind, happened
from benchmarks.laboratory.jobs import Job, Stage, Task, Way
from benchmarks.laboratory.processes import Process
from benchmarks.laboratory.work import BOMB
from tests.faults import guest
from tests.faults.cluster import CLIENT, NODES, PLACES, SCHEDULERS, Cluster
from tests.faults.matrix import Fault, Moment, Row, Target
from tests.support.waiting import wait_until

MANY, ONCE, OTHERS = "many", "once", "others"
MAX_ATTEMPTS = {MANY: 3, ONCE: 1, OTHERS: 3}
PROBE_RATIO = 4.0
"""So that every task has a reservation at every node: a row whose tasks are held up counts on all places being used.
With the default a job of one task may have both of its reservations at one node, and wait there while others idle."""
LARGE_RESULT_BYTES = 200_000
"""Above what goes in a message, so it takes files, connections and room on disks."""
PAD_BYTES = 900_000
"""A task a message: several of them fill what a client lets wait."""
PADDED_TASKS = 12
STOP_AFTER = 8
"""Messages after which a client that is submitting stops: more than it lets wait unsent, so some have left."""


@dataclass
class Scene:
    """A row's jobs, and what holds them up."""

    cluster: Cluster
    directory: Path
    large: bool
    """Whether results are large."""
    app: str
    jobs: dict[str, tuple[Job, Process]] = field(default_factory=dict)
    """By name, with the client's process that submitted each."""
    standing: list[str] = field(default_factory=list)
    """Processes that the moment has stopped."""
    draining: list[str] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    """What was done to whom."""
    still_to_submit: Callable[[], None] | None = None
    """Of an idle cluster: the jobs."""

    def gate(self, kind: str) -> Path:
        """The file for which the tasks of a kind of job wait."""
        return self.directory / f"gate-{kind}"

    def light_bomb(self) -> None:
        """Have a task of the first job run out of memory."""
        Path(f"{self.gate(MANY)}{BOMB}").touch()

    def open_gates(self) -> None:
        """Let all tasks go on."""
        for kind in MAX_ATTEMPTS:
            self.gate(kind).touch()

    def submit(self, kind: str, tasks: int, **more: Any) -> None:
        """Have the cluster's client submit a job of this kind."""
        task = Task(duration_s=0.0, result_bytes=LARGE_RESULT_BYTES if self.large else 0)
        job = Job(
            name=f"{self.directory.parent.name}-{self.directory.name}-{kind}-{len(self.jobs)}",
            user="faults",
            way=Way.CALLS,
            at_s=0.0,
            stages=(Stage(tasks=(task,) * tasks),),
            max_attempts=MAX_ATTEMPTS[kind],
            app="" if self.app == "python" else self.app,
            gate=str(self.gate(kind)),
            probe_ratio=PROBE_RATIO,
            **more,
        )
        self.jobs[self.cluster.submit(job)] = job, self.cluster.processes[CLIENT]

    def submit_both(self, tasks: int) -> None:
        """The two jobs at stake, of so many tasks together."""
        self.submit(MANY, tasks - tasks // 2)
        self.submit(ONCE, tasks // 2)

    def runs(self) -> list[Run]:
        """What tasks of all jobs have written down."""
        return [run for name in self.jobs for run in self.cluster.runs_of(name)]

    def wait_until_started(self, count: int) -> None:
        """Return once so many tasks have started."""
        wait_until(lambda: len(self.runs()) >= count, f"{count} tasks to start")

    def wait_until_ended(self, count: int) -> None:
        """Return once so many tasks have ended."""
        wait_until(lambda: sum(run.end_ns is not None for run in self.runs()) >= count, f"{count} tasks to end")

    def stop(self, names: list[str]) -> None:
        """Have these stand still until all go on."""
        self.standing = names
        self.happened += [happened(kind_of("stop", name), name) for name in names]
        self.cluster.stop(names)

    def release(self, held: list[str]) -> None:
        """Let everything go on but the processes that the fault holds."""
        self.open_gates()
        self.cluster.go_on([name for name in self.standing if name not in held])
        self.submit_rest()

    def submit_rest(self) -> None:
        """Submit what was to come later, if there is a client that can."""
        if self.still_to_submit is not None and self.cluster.runs(CLIENT):
            self.still_to_submit()
            self.still_to_submit = None


def kind_of(verb: str, name: str) -> Kind:
    """What the laboratory calls it. A client that stands still may be given up, as one that is cut off."""
    role = name.partition("-")[0].replace("guest", "worker")
    if role == CLIENT and verb in ("stop", "drain"):
        return Kind.ISOLATE_CLIENT
    return Kind(f"{verb}-{role}")


def bring(row: Row, cluster: Cluster, directory: Path) -> Scene:
    """Bring the cluster to the row's moment."""
    large = row.fault in (Fault.DISK_FULL, Fault.OUT_OF_FILES)
    scene = Scene(cluster, directory, large, guest.APP if row.target is Target.EXTERNAL_EXECUTOR else "python")
    _BRING[row.moment](row, cluster, scene)
    return scene


def _idle(row: Row, cluster: Cluster, scene: Scene) -> None:
    scene.still_to_submit = lambda: scene.submit_both(2 * PLACES[scene.app])


def _queued(row: Row, cluster: Cluster, scene: Scene) -> None:
    places = PLACES[scene.app]
    scene.submit(OTHERS, places)
    scene.wait_until_started(places)
    scene.submit_both(places)
    unplaced = "sparrow_scheduler_unplaced_tasks"
    wait_until(lambda: sum(cluster.metric(name, unplaced) or 0 for name in SCHEDULERS) == places, "tasks to wait")


def _running(row: Row, cluster: Cluster, scene: Scene) -> None:
    scene.submit_both(PLACES[scene.app])
    scene.wait_until_started(PLACES[scene.app])


def _finishing(row: Row, cluster: Cluster, scene: Scene) -> None:
    """Whoever is to be told next stands still while the tasks end: the scheduler is, but for some targets."""
    ended_before = _ended(cluster)
    _running(row, cluster, scene)
    tasks = PLACES[scene.app]
    if row.target in (Target.EXECUTOR, Target.EXTERNAL_EXECUTOR):
        scene.stop([NODES[0]])
    elif row.target is Target.CLIENT:
        scene.stop([CLIENT])
    else:
        scene.stop(cluster.schedulers_of(*scene.jobs))
    scene.open_gates()
    scene.wait_until_ended(tasks)
    if row.target is Target.CLIENT:
        wait_until(lambda: not cluster.schedulers_of(*scene.jobs), "schedulers to have ended the jobs")
    elif NODES[0] not in scene.standing:
        wait_until(lambda: _ended(cluster) == ended_before + tasks, "node monitors to have reported")


def _ended(cluster: Cluster) -> float:
    """Tasks that node monitors were told the end of; they report in the same turn of their loop."""
    return sum(cluster.metric(name, "sparrow_node_monitor_ended_total") or 0 for name in NODES)


def _submitting(row: Row, cluster: Cluster, scene: Scene) -> None:
    """The client stands still in the middle of sending a job."""
    scene.submit(MANY, PADDED_TASKS, input_bytes=PAD_BYTES, stops_after=STOP_AFTER)
    client = psutil.Process(cluster.pid(CLIENT))
    wait_until(lambda: client.status() == psutil.STATUS_STOPPED, "the client to stop in the middle of a job")
    cluster.standing.add(CLIENT)
    scene.standing = [CLIENT]
    scene.happened.append(happened(Kind.ISOLATE_CLIENT, CLIENT))
    wait_until(lambda: cluster.schedulers_of(*scene.jobs), "a scheduler to know the job")


def _draining(row: Row, cluster: Cluster, scene: Scene) -> None:
    scene.submit_both(2 * PLACES[scene.app])
    scene.wait_until_started(PLACES[scene.app])
    if row.target is Target.ALL_SCHEDULERS:
        scene.draining = list(SCHEDULERS)
    elif row.target in (Target.SCHEDULER, Target.CLIENT):
        scene.draining = cluster.schedulers_of(*scene.jobs)[:1]
    else:
        scene.draining = [NODES[0]]
    idle = set(SCHEDULERS) - set(cluster.schedulers_of(*scene.jobs))
    for name in scene.draining:
        scene.happened.append(happened(kind_of("drain", name), name))
        cluster.drain_one(name)
    for name in scene.draining:
        if name in idle:  # It has nothing to finish.
            wait_until(lambda name=name: not cluster.runs(name), f"{name} to end")  # type: ignore[misc]
        else:
            cluster.wait_until_draining(name)


_BRING: dict[Moment, Callable[[Row, Cluster, Scene], None]] = {
    Moment.IDLE: _idle,
    Moment.QUEUED: _queued,
    Moment.RUNNING: _running,
    Moment.FINISHING: _finishing,
    Moment.SUBMITTING: _submitting,
    Moment.DRAINING: _draining,
}
