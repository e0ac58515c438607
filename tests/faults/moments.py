"""Bringing the cluster to the moment at which a fault strikes: by events, never by waiting for a time.

Two jobs are at stake in every row: one whose tasks may be started three times, and one whose tasks may be started
once. Their tasks write down each start and each end, and wait in between for the gate of the row.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults import guest
from tests.faults.client_process import Submission
from tests.faults.cluster import CLIENT, NODES, PLACES, SCHEDULERS, Client, Cluster
from tests.faults.matrix import Fault, Moment, Row, Target
from tests.faults.work import read_log
from tests.support.waiting import wait_until

MANY, ONCE, OTHERS = "many", "once", "others"
MAX_ATTEMPTS = {MANY: 3, ONCE: 1, OTHERS: 3}
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

    directory: Path
    large: bool
    """Whether results are large."""
    app: str
    gate: Path = field(init=False)
    bomb: Path = field(init=False)
    """The file that has a task of the first job run out of memory."""
    jobs: dict[str, tuple[Submission, Client]] = field(default_factory=dict)
    standing: list[str] = field(default_factory=list)
    """Processes that the moment has stopped."""
    draining: list[str] = field(default_factory=list)
    still_to_submit: Callable[[], None] | None = None
    """Of an idle cluster: the jobs."""

    def __post_init__(self) -> None:
        self.gate = self.directory / "gate"
        self.bomb = self.directory / "bomb"

    def submit(self, cluster: Cluster, kind: str, tasks: int, **more: int) -> None:
        """Have the cluster's client submit a job of this kind."""
        submission = Submission(
            job=f"{self.directory.parent.name}-{self.directory.name}-{kind}-{len(self.jobs)}",
            app=self.app,
            tasks=tasks,
            max_attempts=MAX_ATTEMPTS[kind],
            log=str(self.directory / f"{kind}-{len(self.jobs)}.log"),
            gate=str(self.gate),
            bomb=str(self.bomb) if kind == MANY else "",
            result_bytes=LARGE_RESULT_BYTES if self.large else 0,
            **more,
        )
        self.jobs[submission.job] = (submission, cluster.client)
        cluster.client.submit(submission)

    def submit_both(self, cluster: Cluster, tasks: int) -> None:
        """The two jobs at stake, of so many tasks together."""
        self.submit(cluster, MANY, tasks - tasks // 2)
        self.submit(cluster, ONCE, tasks // 2)

    def logged(self, what: str) -> list[tuple[int, int]]:
        """(task, pid) of all starts or ends of all jobs."""
        return [line for submission, _ in self.jobs.values() for line in read_log(Path(submission.log), what)]

    def starts(self, submission: Submission) -> list[int]:
        """The tasks of a job that have started, as often as they have."""
        return [task for task, _ in read_log(Path(submission.log), "start")]

    def wait_until_logged(self, what: str, count: int) -> None:
        """Return once so many tasks have started or ended."""
        wait_until(lambda: len(self.logged(what)) >= count, f"{count} tasks to {what}")

    def release(self, cluster: Cluster, held: list[str]) -> None:
        """Let everything go on but the processes that the fault holds."""
        self.gate.touch()
        cluster.go_on(name for name in self.standing if name not in held)
        self.submit_rest(cluster)

    def submit_rest(self, cluster: Cluster) -> None:
        """Submit what was to come later, if there is a client that can."""
        if self.still_to_submit is not None and cluster.alive(CLIENT):
            self.still_to_submit()
            self.still_to_submit = None


def bring(row: Row, cluster: Cluster, directory: Path) -> Scene:
    """Bring the cluster to the row's moment."""
    large = row.fault in (Fault.DISK_FULL, Fault.OUT_OF_FILES)
    scene = Scene(directory, large, guest.APP if row.target is Target.EXTERNAL_EXECUTOR else "python")
    _BRING[row.moment](row, cluster, scene)
    return scene


def _idle(row: Row, cluster: Cluster, scene: Scene) -> None:
    scene.still_to_submit = lambda: scene.submit_both(cluster, 2 * PLACES[scene.app])


def _queued(row: Row, cluster: Cluster, scene: Scene) -> None:
    places = PLACES[scene.app]
    scene.submit(cluster, OTHERS, places)
    scene.wait_until_logged("start", places)
    scene.submit_both(cluster, places)
    unplaced = "sparrow_scheduler_unplaced_tasks"
    wait_until(lambda: sum(cluster.metric(name, unplaced) or 0 for name in SCHEDULERS) == places, "tasks to wait")


def _running(row: Row, cluster: Cluster, scene: Scene) -> None:
    scene.submit_both(cluster, PLACES[scene.app])
    scene.wait_until_logged("start", PLACES[scene.app])


def _finishing(row: Row, cluster: Cluster, scene: Scene) -> None:
    """Whoever is to be told next stands still while the tasks end: the scheduler is, but for some targets."""
    ended_before = _ended(cluster)
    _running(row, cluster, scene)
    tasks = PLACES[scene.app]
    if row.target in (Target.EXECUTOR, Target.EXTERNAL_EXECUTOR):
        scene.standing = [NODES[0]]
    elif row.target is Target.CLIENT:
        scene.standing = [CLIENT]
    else:
        scene.standing = cluster.schedulers_of(*scene.jobs)
    cluster.stop(scene.standing)
    scene.gate.touch()
    scene.wait_until_logged("end", tasks)
    if row.target is Target.CLIENT:
        wait_until(lambda: not cluster.schedulers_of(*scene.jobs), "schedulers to have ended the jobs")
    elif NODES[0] not in scene.standing:
        wait_until(lambda: _ended(cluster) == ended_before + tasks, "node monitors to have reported")


def _ended(cluster: Cluster) -> float:
    """Tasks that node monitors were told the end of; they report in the same turn of their loop."""
    return sum(cluster.metric(name, "sparrow_node_monitor_ended_total") or 0 for name in NODES)


def _submitting(row: Row, cluster: Cluster, scene: Scene) -> None:
    """The client stands still in the middle of sending a job."""
    scene.submit(cluster, MANY, PADDED_TASKS, pad_bytes=PAD_BYTES, stop_after=STOP_AFTER)
    client = psutil.Process(cluster.pid(CLIENT))
    wait_until(lambda: client.status() == psutil.STATUS_STOPPED, "the client to stop in the middle of a job")
    cluster.standing.add(CLIENT)
    scene.standing = [CLIENT]
    wait_until(lambda: cluster.schedulers_of(*scene.jobs), "a scheduler to know the job")


def _draining(row: Row, cluster: Cluster, scene: Scene) -> None:
    scene.submit_both(cluster, 2 * PLACES[scene.app])
    scene.wait_until_logged("start", PLACES[scene.app])
    if row.target is Target.ALL_SCHEDULERS:
        scene.draining = list(SCHEDULERS)
    elif row.target in (Target.SCHEDULER, Target.CLIENT):
        scene.draining = cluster.schedulers_of(*scene.jobs)[:1]
    else:
        scene.draining = [NODES[0]]
    idle = set(SCHEDULERS) - set(cluster.schedulers_of(*scene.jobs))
    for name in scene.draining:
        cluster.daemons[name].signal(signal.SIGTERM)
    for name in scene.draining:
        if name in idle:  # It has nothing to finish.
            wait_until(lambda name=name: not cluster.alive(name), f"{name} to end")  # type: ignore[misc]
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
