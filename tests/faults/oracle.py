"""What must hold when a fault is over, whatever it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from node_monitor.core import IDLE_WORKERS_PER_SLOT
from tests.faults.client_process import Submission, Told
from tests.faults.cluster import CLIENT, NODES, PLACES, SCHEDULERS, SLOTS, Client, Cluster
from tests.faults.faults import FILLER
from tests.faults.matrix import Fault, Row, Target
from tests.faults.moments import Scene
from tests.faults.work import read_log
from tests.support.waiting import wait_until

ACCOUNTED_TIMEOUT_S = 45.0
FINISHED, FAILED, LOST, RESULT_LOST = "finished", "failed", "lost", "result lost"


def ended(scene: Scene) -> bool:
    """Whether the client has been told the end of all jobs, as far as it lives."""
    return all(job_ended(client, submission) for submission, client in scene.jobs.values() if lives(client))


def lives(client: Client) -> bool:
    """Whether the process has not ended."""
    return client.process.poll() is None


def job_ended(client: Client, submission: Submission) -> bool:
    """Whether the client has been told that the job ended, or was refused."""
    return any(told.event in ("ended", "refused") for told in client.told(submission.job))


def wait_until_accounted(scene: Scene) -> None:
    """Return once all jobs have ended; says of which tasks nothing was told if they do not."""
    try:
        wait_until(lambda: ended(scene), timeout_s=ACCOUNTED_TIMEOUT_S)
    except AssertionError:
        missing = {
            job: sorted(set(range(submission.tasks)) - {told.task for told in client.told(job)})
            for job, (submission, client) in scene.jobs.items()
        }
        raise AssertionError(f"not accounted for within {ACCOUNTED_TIMEOUT_S:g} s: tasks {missing}") from None


def check_outcomes(row: Row, scene: Scene) -> list[Told]:
    """Each task's outcome told once, started as often as it may be, and as the fault allows; returns the outcomes."""
    all_told = []
    for submission, client in scene.jobs.values():
        told = client.told(submission.job)
        all_told += [line for line in told if line.event == "outcome"]
        check_told(submission, told, heard=lives(client))
        check_starts(submission, told)
        for line in told:
            if line.event == "outcome":
                assert line.status in allowed(row, submission), f"{line} of {submission}"
                assert line.status == FINISHED or line.error, f"no reason: {line}"
    if row.fault is Fault.OUT_OF_MEMORY:
        victims = [line for line in all_told if line.status == FAILED]
        assert [line.task for line in victims] == [0] and "MemoryError" in victims[0].error, victims
    return all_told


def check_told(submission: Submission, told: list[Told], *, heard: bool) -> None:
    """Each outcome once, and then the end, once; of a client that died: none twice."""
    counts = Counter(line.task for line in told if line.event == "outcome")
    events = Counter(line.event for line in told)
    assert max(counts.values(), default=1) == 1, f"told more than once: {counts} of {submission}"
    assert max(events["accepted"], events["refused"], events["ended"]) <= 1, events
    if heard and events["refused"]:
        assert not counts and not events["ended"], f"refused, and told of: {told}"
    elif heard:
        assert set(counts) == set(range(submission.tasks)), f"not told of: {submission}, {counts}"
        assert told[-1].event == "ended", told[-1]


def check_starts(submission: Submission, told: list[Told]) -> None:
    """No task started more often than it may be; what finished has come to its end."""
    log = Path(submission.log)
    starts = Counter(task for task, _ in read_log(log, "start"))
    most = max(starts.values(), default=0)
    assert most <= submission.max_attempts, f"started {most} times: {submission}"
    ends = {task for task, _ in read_log(log, "end")}
    finished = {line.task for line in told if line.status == FINISHED}
    assert finished <= ends, f"finished without an end: {finished - ends} of {submission}"


def allowed(row: Row, submission: Submission) -> set[str]:
    """How a task of this job may end."""
    statuses = {FINISHED}
    if submission.max_attempts == 1:
        statuses |= {LOST}
    if row.fault is Fault.OUT_OF_MEMORY or (row.target, row.fault) in _FAILS:
        statuses |= {FAILED}
    if row.fault is Fault.OUT_OF_FILES:
        statuses |= {RESULT_LOST}  # To fetch a large result takes a connection, at its node and at the client.
    if row.leaves_no_scheduler:
        statuses |= {LOST}
    return statuses


_FAILS = {
    (Target.NODE_MONITOR, Fault.DISK_FULL),
    (Target.EXECUTOR, Fault.OUT_OF_FILES),
    (Target.EXTERNAL_EXECUTOR, Fault.OUT_OF_FILES),
}
"""Where the result or the task itself finds no room: the task fails, and its error says so."""


# ---- the cluster afterwards ------------------------------------------------------------------


def wait_until_clean(cluster: Cluster) -> None:
    """Return once nothing is left of the jobs, and all that lives is linked to each other."""
    left: list[str] = []

    def clean() -> bool:
        left[:] = dirt(cluster)
        return not left

    try:
        wait_until(clean)
    except AssertionError as error:
        raise AssertionError(f"{error}; left over: {left}") from None


def dirt(cluster: Cluster) -> Iterator[str]:
    """What is not as it is in a cluster that has nothing to do."""
    schedulers = [name for name in SCHEDULERS if cluster.alive(name)]
    nodes = [name for name in NODES if cluster.alive(name)]
    for name in schedulers:
        yield from _dirt_of_scheduler(cluster, name, set(nodes))
    for name in nodes:
        yield from _dirt_of_node(cluster, name, len(schedulers))


def _dirt_of_scheduler(cluster: Cluster, name: str, nodes: set[str]) -> Iterator[str]:
    clients = int(cluster.alive(CLIENT))
    expected = {"jobs": 0, "unplaced_tasks": 0, "nodes": len(nodes), "clients": clients}
    for what, value in expected.items():
        found = cluster.metric(name, f"sparrow_scheduler_{what}")
        if found != value:
            yield f"{name}: {what} {found}, not {value}"


WORKERS_MAX = (1 + IDLE_WORKERS_PER_SLOT) * SLOTS
"""Python workers of a node that has nothing to do: fresh ones, and those that are kept for their users."""


def _dirt_of_node(cluster: Cluster, name: str, schedulers: int) -> Iterator[str]:
    node = cluster.node(name)
    if node is None:
        yield f"{name} does not answer"
        return
    if node["free_slots"] != node["slots"] or node["queued_by_user"] or node["state"] != "ready":
        yield f"{name}: {node}"
    if len(node["schedulers"]) != schedulers:
        yield f"{name}: linked to {node['schedulers']}"
    workers = len(cluster.workers(name))
    if not SLOTS <= workers <= WORKERS_MAX:
        yield f"{name}: {workers} workers"
    if cluster.metric(name, "sparrow_node_monitor_blobs") != 0:
        yield f"{name}: blobs"
    files = [path for path in cluster.disk(name).rglob("*") if path.is_file() and path.name not in ("lock", FILLER)]
    if files:
        yield f"{name}: files {files}"


def check_works(cluster: Cluster, directory: Path) -> None:
    """A fresh job finishes, and every place of every executor runs a task of it at the same time."""
    for app in PLACES:
        place = directory / f"fresh-{app}"
        place.mkdir()
        scene = Scene(place, large=False, app=app)
        scene.submit(cluster, "many", PLACES[app])
        scene.wait_until_logged("start", PLACES[app])
        scene.release(cluster, [])
        wait_until_accounted(scene)
        for submission, client in scene.jobs.values():
            told = client.told(submission.job)
            check_told(submission, told, heard=True)
            assert {line.status for line in told if line.event == "outcome"} == {FINISHED}, told
