"""A round, from the first process to the last: daemons, programs and faults, and then judgement."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.chaos import evidence, oracle, shares
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.faults import Faults
from benchmarks.chaos.plan import GENERATOR, Kind, Plan, draw, summary
from benchmarks.leftovers import living_children
from benchmarks.soak import checks
from benchmarks.soak.watch import DESCRIPTORS_MAX
from sparrow_py.processes.process_control import adopt_orphans

STEP_S = 0.005
ENDED_WITHIN_S = 60.0
"""After the last fault is mended every program has so long to come to its end."""
QUIET_WITHIN_S = 30.0
QUIET_POLL_S = 0.05
DRAINED_WITHIN_S = 30.0
REPLAY = "python -m benchmarks.chaos --seed {seed} --round {number} --placement {placement}"


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
    player = _Player(plan, directory)
    found = player.run()
    violations = [*oracle.judge(found), *shares.judge(found)]
    played = Played(
        generator=GENERATOR,
        seed=seed,
        number=number,
        placement=plan.placement,
        scene=plan.scene,
        lasted_s=round(time.monotonic() - began_s, 2),
        violations=violations,
        counts=oracle.counts(found) | {"faults that met nobody": player.faults.skipped},
        faults=Counter(one.kind.value for one in found.faults()),
        plan=summary(plan),
        replay=REPLAY.format(seed=seed, number=number, placement=plan.placement),
    )
    if violations:
        played.kept = str(_keep(directory, played, found, kept_in))
    shutil.rmtree(directory, ignore_errors=True)
    return played


def _keep(directory: Path, played: Played, found: Evidence, kept_in: Path | None) -> Path:
    """Move a round's directory to where it is kept; what happened in it is added as text."""
    name = f"chaos-{played.seed}-{played.number}-{played.placement}-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    kept = (kept_in or Path(tempfile.gettempdir())) / name
    kept.parent.mkdir(parents=True, exist_ok=True)
    (directory / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(found.plan)))
    (directory / "violations").write_text("".join(f"{line}\n" for line in played.violations))
    (directory / "story").write_text("".join(f"{line}\n" for line in oracle.story(found)))
    shutil.copytree(directory, kept, ignore=shutil.ignore_patterns("tmp"), symlinks=True)
    return kept


class _Player:
    def __init__(self, plan: Plan, directory: Path) -> None:
        adopt_orphans()  # So that none can hide.
        self._strangers = {child.pid for child in psutil.Process().children()}
        self._directory = directory
        self._cluster = Cluster(plan, directory)
        self.faults = Faults(self._cluster)
        self._troubles: list[str] = []

    def run(self) -> Evidence:
        cluster = self._cluster
        try:
            cluster.start()
            descriptors = {name: cluster.processes[name].descriptors() for name in cluster.daemons}
            self._load()
            self._wait_until_quiet()
            self._check_descriptors(descriptors)
            self._troubles += cluster.drain(DRAINED_WITHIN_S)
        finally:
            cluster.destroy()
            self._troubles += [f"a process is left: {what}" for what in _end_orphans(self._strangers)]
        self._troubles += [f"a file is left: {path}" for path in self._left_files()]
        for log in sorted((self._directory / "logs").iterdir()):
            self._troubles += checks.tracebacks(log)
        programs = evidence.read_programs(self._directory / "told")
        runs = evidence.read_runs(self._directory / "runs")
        return Evidence(cluster.plan, programs, runs, self.faults.happened, self._troubles)

    def _load(self) -> None:
        """Programs and faults, until the programs are at their ends."""
        self.faults = Faults(self._cluster)
        self._cluster.start_clients()
        self.faults = Faults(self._cluster)
        deadline_s = None
        while True:
            self.faults.step()
            self._return()
            if self.faults.over:
                if not any(self._cluster.runs(user) for user in self._cluster.users):
                    break
                deadline_s = deadline_s or time.monotonic() + ENDED_WITHIN_S
                if time.monotonic() > deadline_s:
                    self._say_who_hangs()
                    break
            time.sleep(STEP_S)
        for user in self._cluster.users:
            if self._cluster.processes[user].code not in (0, -9, None):
                self._troubles.append(f"the program of {user} ended with code {self._cluster.processes[user].code}")

    def _return(self) -> None:
        """Start programs again that have died in the middle of a submission."""
        for user in self._cluster.plan.returning:
            if not self._cluster.runs(user) and self._cluster.lives[user] == 0:
                process = self._cluster.processes[user]
                killed = any(one.target == user and one.kind is Kind.KILL_CLIENT for one in self.faults.happened)
                if process.code == -9 and not killed:
                    self._cluster.launch(user)

    def _say_who_hangs(self) -> None:
        for user in filter(self._cluster.runs, self._cluster.users):
            self._troubles.append(f"the program of {user} has not ended {ENDED_WITHIN_S:g} s after the last fault")
        for name in filter(self._cluster.runs, self._cluster.daemons):
            for path in ("/v1/jobs", "/v1/nodes", "/metrics"):
                asked = self._directory / "logs" / f"{name}{path.replace('/', '-')}"
                asked.write_text(self._cluster.ask(name, path) or "no answer")
        for user in self._cluster.users:
            self._cluster.processes[user].kill()

    def _wait_until_quiet(self) -> None:
        deadline_s = time.monotonic() + QUIET_WITHIN_S
        while left := list(self._cluster.left()):
            if time.monotonic() > deadline_s:
                self._troubles += [f"left after {QUIET_WITHIN_S:g} s: {what}" for what in left]
                return
            time.sleep(QUIET_POLL_S)

    def _check_descriptors(self, before: dict[str, int]) -> None:
        """Of daemons that lived through the round; each further child may have a few of its own."""
        for name in self._cluster.daemons:
            if self._cluster.runs(name) and not self._cluster.lives[name]:
                process = self._cluster.processes[name]
                now, allowed = process.descriptors(), DESCRIPTORS_MAX + 2 * len(process.children())
                if now > before[name] + allowed:
                    self._troubles.append(f"{name} has {now} descriptors open, {before[name]} before the round")

    def _left_files(self) -> Iterator[Path]:
        """In the daemons' temporary directory. What node monitors leave that were killed goes when the next starts."""
        if not any(one.kind in (Kind.KILL_NODE, Kind.KILL_PAIR, Kind.KILL_ALL) for one in self.faults.happened):
            yield from (self._directory / "tmp").iterdir()


def _end_orphans(strangers: set[int]) -> Iterator[str]:
    """Processes that have lost their parents are ours now; those that still run are ended, and named."""
    deadline_s = time.monotonic() + 5.0
    while (living := living_children(strangers)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    for orphan in living:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield f"{orphan.pid} {' '.join(orphan.cmdline())[:200]}"
            orphan.kill()
            orphan.wait()
