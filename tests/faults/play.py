"""A row of the matrix, from the moment to the end: what happened, and after how long."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.faults import oracle
from tests.faults.cluster import CLIENT, PLACES, SUBMIT_TIMEOUT_S, Cluster
from tests.faults.faults import Inflicted
from tests.faults.matrix import Row
from tests.faults.moments import Scene, bring
from tests.support.waiting import wait_until

GIVE_UP_S = 3.0
"""Of a client that is left without any scheduler for good: how long it offers its jobs."""


class Observation(msgspec.Struct, kw_only=True):
    """A row's line in the report. Seconds are from when the fault was inflicted.

    lasted_s: until it was healed. accounted_s: until the client had been told of all tasks; None if it died.
    whole_s: until nothing was left of the jobs, and all that was alive was linked. outcomes: by how they ended.
    restarted: starts beyond the first of their task.
    """

    target: str
    fault: str
    moment: str
    lasted_s: float
    accounted_s: float | None
    whole_s: float
    outcomes: dict[str, int]
    restarted: int
    errors: list[str]


def play(row: Row, cluster: Cluster, directory: Path) -> Observation:
    """Play the row; `AssertionError` if something does not hold that must."""
    cluster.with_submit_timeout(GIVE_UP_S if row.leaves_no_scheduler else SUBMIT_TIMEOUT_S)
    pids = cluster.pids()
    scene = bring(row, cluster, directory)
    inflicted_s = time.monotonic()
    fault = Inflicted(row, cluster, scene)
    scene.release(fault.held)
    fault.last(lambda: oracle.ended(scene))
    lasted_s = time.monotonic() - inflicted_s
    fault.heal()
    scene.submit_rest()
    if CLIENT in fault.restarted:  # The program is started again, and does its work again.
        scene.submit_both(PLACES[scene.app])
    oracle.wait_until_accounted(scene)
    accounted_s = _accounted_s(scene, inflicted_s)
    wait_until_drained(scene, fault, cluster)
    oracle.wait_until_clean(cluster)
    whole_s = time.monotonic() - inflicted_s
    told = oracle.check_outcomes(row, scene)
    cluster.repair()
    oracle.wait_until_clean(cluster)
    cluster.wait_until_gone(pids - cluster.pids())
    oracle.check_works(cluster, directory)
    return Observation(
        target=row.target,
        fault=row.fault,
        moment=row.moment,
        lasted_s=lasted_s,
        accounted_s=accounted_s,
        whole_s=whole_s,
        outcomes=dict(Counter(map(oracle.status_of, told)) + Counter(_refused(scene))),
        restarted=_restarted(scene),
        errors=sorted({line.error for line in told if line.error}),
    )


def _accounted_s(scene: Scene, since_s: float) -> float | None:
    jobs = [name for name, (_, process) in scene.jobs.items() if process.runs]
    return max((scene.cluster.told(name)[-1].at_ns / 1e9 - since_s for name in jobs), default=None)


def _restarted(scene: Scene) -> int:
    starts = [(run.job, run.task) for run in scene.runs()]
    return len(starts) - len(set(starts))


def _refused(scene: Scene) -> dict[str, int]:
    """Tasks of jobs that were refused as a whole."""
    return {"refused": sum(len(job.tasks) for name, (job, _) in scene.jobs.items() if oracle.refused(scene, name))}


def wait_until_drained(scene: Scene, fault: Inflicted, cluster: Cluster) -> None:
    """What was draining ends by itself, but what was started anew."""
    for name in scene.draining:
        if name not in fault.restarted:
            wait_until(lambda name=name: not cluster.runs(name), f"{name} to have drained")  # type: ignore[misc]
