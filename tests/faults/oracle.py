"""What must hold when a fault is over, whatever it was: what the laboratory's oracle says, and what the row does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.laboratory import oracle
from benchmarks.laboratory.cluster import CLIENTS_GAUGE
from benchmarks.laboratory.evidence import Evidence, Program
from benchmarks.laboratory.jobs import Job
from benchmarks.laboratory.told import Event, Told
from node_monitor.core import IDLE_WORKERS_PER_SLOT
from tests.faults.cluster import CLIENT, GUESTS, NODES, PLACES, SCHEDULERS, SLOTS, Cluster
from tests.faults.faults import FILLER
from tests.faults.matrix import Fault, Row, Target
from tests.faults.moments import MANY, Scene
from tests.support.waiting import wait_until

ACCOUNTED_TIMEOUT_S = 45.0
CLEAN_POLL_S = 0.05
"""To look once takes a dozen requests: without a pause in between, a row's whole time and a core."""
FINISHED, FAILED, LOST, RESULT_LOST = "finished", "failed", "lost", "result lost"


def status_of(line: Told) -> str:
    """How a task ended, as the tables say it."""
    return RESULT_LOST if line.result_lost else line.status


def outcomes(scene: Scene, name: str) -> list[Told]:
    """What the client was told of the job's tasks."""
    return [line for line in scene.cluster.told(name) if line.event is Event.OUTCOME]


def refused(scene: Scene, name: str) -> bool:
    """Whether the client was told that the job is refused."""
    return any(line.event is Event.REFUSED for line in scene.cluster.told(name))


def ended(scene: Scene) -> bool:
    """Whether the client has been told the end of all jobs, as far as it lives."""
    return all(
        refused(scene, name) or len(outcomes(scene, name)) >= len(job.tasks)
        for name, (job, process) in scene.jobs.items()
        if process.runs
    )


def wait_until_accounted(scene: Scene) -> None:
    """Return once all jobs have ended; says of which tasks nothing was told if they do not, and who has their jobs."""
    try:
        wait_until(lambda: ended(scene), timeout_s=ACCOUNTED_TIMEOUT_S)
    except AssertionError:
        missing = {
            f"{name} at {scene.cluster.schedulers_of(name)}": sorted(untold)
            for name, (job, _) in scene.jobs.items()
            if (untold := set(range(len(job.tasks))) - {line.task for line in outcomes(scene, name)})
        }
        raise AssertionError(f"not accounted for within {ACCOUNTED_TIMEOUT_S:g} s: tasks {missing}") from None


def check_outcomes(row: Row | None, scene: Scene) -> list[Told]:
    """The guarantees hold, and each task ended as the fault allows (no row: nothing failed); returns the outcomes."""
    # That a job is refused, or lost while attempts remain, is right where no scheduler comes back.
    without = [oracle.no_job_is_refused]
    if row is not None and row.leaves_no_scheduler:
        without.append(oracle.losses_are_explained)
    violations = list(oracle.judge(evidence(scene), without))
    assert not violations, violations
    told = []
    for name, (job, _) in scene.jobs.items():
        lines = outcomes(scene, name)
        told += lines
        assert not (lines and refused(scene, name)), f"refused, and told of: {lines}"
        wrong = [line for line in lines if status_of(line) not in allowed(row, job)]
        assert not wrong, f"{wrong} of {job}"
    if row is not None and row.fault is Fault.OUT_OF_MEMORY:
        victims = [line for line in told if line.status == FAILED]
        assert [line.task for line in victims] == [0] and "MemoryError" in victims[0].error, victims
    return told


def evidence(scene: Scene) -> Evidence:
    """All that is known of a row. The client of now is at its end, as far as the row goes."""
    jobs = {name: job for name, (job, _) in scene.jobs.items()}
    programs = []
    for life in range(scene.cluster.lives[CLIENT] + 1):
        names = [name for name in jobs if (name.rpartition("~")[2] if "~" in name else "0") == str(life)]
        lines = [line for name in names for line in scene.cluster.told(name)]
        if any(scene.jobs[name][1].runs for name in names):
            lines.append(Told(event=Event.OVER, at_ns=max(line.at_ns for line in lines)))
        programs.append(Program(CLIENT, life, tuple(lines)))
    slots = dict.fromkeys(NODES, SLOTS) | dict.fromkeys(GUESTS, 1)
    return Evidence(slots, jobs, programs, scene.runs(), scene.happened)


def allowed(row: Row | None, job: Job) -> set[str]:
    """How a task of this job may end."""
    statuses = {FINISHED}
    if row is None:
        return statuses
    if job.max_attempts == 1:
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
    (Target.NODE_MONITOR, Fault.OUT_OF_FILES),
    (Target.EXECUTOR, Fault.OUT_OF_FILES),
    (Target.EXTERNAL_EXECUTOR, Fault.OUT_OF_FILES),
}
"""Where the result or the task itself finds no room: the task fails, and its error says so."""


# ---- the cluster afterwards ------------------------------------------------------------------


def wait_until_clean(cluster: Cluster) -> None:
    """Return once nothing is left of the jobs, and all that lives is linked to each other."""
    try:
        wait_until(lambda: next(dirt(cluster), None) is None, "a clean cluster", poll_s=CLEAN_POLL_S)
    except AssertionError as error:
        raise AssertionError(f"{error}; left over: {list(dirt(cluster))}") from None


def dirt(cluster: Cluster) -> Iterator[str]:
    """What is not as it is in a cluster that has nothing to do."""
    yield from cluster.left(all_linked=True, ignored=(CLIENTS_GAUGE,))
    for name in filter(cluster.runs, SCHEDULERS):
        found = cluster.metric(name, CLIENTS_GAUGE)
        if found != cluster.runs(CLIENT):
            yield f"{name}: {found} clients"
    for name in filter(cluster.runs, NODES):
        yield from _dirt_of_node(cluster, name)


WORKERS_MAX = (1 + IDLE_WORKERS_PER_SLOT) * SLOTS
"""Python workers of a node that has nothing to do: fresh ones, and those that are kept for their users."""


def _dirt_of_node(cluster: Cluster, name: str) -> Iterator[str]:
    node = cluster.node(name)
    if node is None or node["state"] != "ready":
        yield f"{name}: {node}"
    workers = len(cluster.workers(name))
    if not SLOTS <= workers <= WORKERS_MAX:
        yield f"{name}: {workers} workers"
    files = [path for path in cluster.disk(name).rglob("*") if path.is_file() and path.name not in ("lock", FILLER)]
    if files:
        yield f"{name}: files {files}"


def check_works(cluster: Cluster, directory: Path) -> None:
    """A fresh job finishes, and every place of every executor runs a task of it at the same time."""
    for app in PLACES:
        place = directory / f"fresh-{app}"
        place.mkdir()
        scene = Scene(cluster, place, large=False, app=app)
        scene.submit(MANY, PLACES[app])
        scene.wait_until_started(PLACES[app])
        scene.release([])
        wait_until_accounted(scene)
        check_outcomes(None, scene)
