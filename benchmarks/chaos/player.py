"""A round: a plan played on a cluster of its own, and judged."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.chaos import shares
from benchmarks.chaos.plan import GENERATOR, Plan, draw, summary, zone_of
from benchmarks.laboratory import oracle
from benchmarks.laboratory.cluster import Cluster, Shape
from benchmarks.laboratory.evidence import Evidence
from benchmarks.laboratory.experiment import Experiment
from benchmarks.laboratory.faults import Faults
from benchmarks.laboratory.jobs import GPUS
from benchmarks.laboratory.names import node
from benchmarks.laboratory.network import Network
from benchmarks.laboratory.program import Order

REPLAY = "python -m benchmarks.chaos --seed {seed} --round {number} --placement {placement}"
SCHEDULER_FLAGS = ("--settling-s", "0.5", "--claim-timeout-s", "0.5", "--client-grace-s", "0.7")
NODE_FLAGS = ("--enable-command", "--resource", f"gpu={GPUS}", "--blob-lease-s", "5", "--blob-retention-s", "5")
DRAIN_FLAGS = ("--drain-timeout-s", "5")


class Played(msgspec.Struct, kw_only=True):
    """A line of the journal. kept: the round's directory, if anything was violated. generator: what drew the plan."""

    generator: int
    seed: int
    number: int
    placement: str
    scene: str
    lasted_s: float
    violations: list[str]
    counts: dict[str, int]
    faults: dict[str, int]
    plan: dict[str, Any]
    replay: str = ""
    kept: str = ""


def play(seed: int, number: int, placement: str, kept_in: Path | None) -> Played:
    """Play a round. placement: `all` for the one whose turn it is. kept_in: where directories of rounds are kept in
    which anything is violated; None: where temporary files are."""
    plan = draw(seed, number, placement)
    began_s = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    cluster = Cluster(shape_of(plan), directory, Network(), forked=True)
    experiment = Experiment(cluster, partial(Faults, cluster, plan.faults), returning=plan.returning)
    found = experiment.run()
    found.zones |= {name: zone_of(name) for name in cluster.nodes}
    violations = [*oracle.judge(found), *shares.judge(plan, found)]
    played = Played(
        generator=GENERATOR,
        seed=seed,
        number=number,
        placement=plan.placement,
        scene=plan.scene,
        lasted_s=round(time.monotonic() - began_s, 2),
        violations=violations,
        counts=oracle.counts(found) | {"faults that met nobody": experiment.faults.skipped},
        faults=experiment.faults.counts,
        plan=summary(plan),
        replay=REPLAY.format(seed=seed, number=number, placement=plan.placement),
    )
    if violations:
        played.kept = str(_keep(directory, plan, played, found, kept_in))
    shutil.rmtree(directory, ignore_errors=True)
    return played


def shape_of(plan: Plan) -> Shape:
    """Of the round's cluster: each user has a program of the same name."""
    weights = [f"--user-weight={user}={weight}" for user, weight in plan.users.items()]
    first = [f"--user-priority={plan.first}=10"] if plan.first else []
    jobs = {user: tuple(job for job in plan.jobs if job.user == user) for user in plan.users}
    nodes = [node(number) for number in range(len(plan.slots))]
    return Shape(
        schedulers=plan.schedulers,
        slots=plan.slots,
        heartbeat_s=plan.heartbeat_s,
        programs={user: Order(user=user, jobs=jobs[user]) for user in plan.users},
        scheduler_flags=(*SCHEDULER_FLAGS, *DRAIN_FLAGS, "--placement", plan.placement, *weights, *first),
        node_flags=(*NODE_FLAGS, *DRAIN_FLAGS, "--queue", plan.queue),
        flags={name: ("--attr", f"zone={zone_of(name)}") for name in nodes},
    )


def _keep(directory: Path, plan: Plan, played: Played, found: Evidence, kept_in: Path | None) -> Path:
    """Move a round's directory to where it is kept; what happened in it is added as text."""
    name = f"chaos-{played.seed}-{played.number}-{played.placement}-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    kept = (kept_in or Path(tempfile.gettempdir())) / name
    kept.parent.mkdir(parents=True, exist_ok=True)
    (directory / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    (directory / "violations").write_text("".join(f"{line}\n" for line in played.violations))
    (directory / "story").write_text("".join(f"{line}\n" for line in oracle.story(found)))
    shutil.copytree(directory, kept, symlinks=True)
    return kept
