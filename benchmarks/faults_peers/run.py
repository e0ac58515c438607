"""One run: a system starts, its user submits a job, the fault comes; we look on until the user knows or time is up."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.faults_peers.faults import OF_A_WORKER, OF_THE_TASK, RESTART_AFTER_S, STARTS_BEFORE, Fault
from benchmarks.faults_peers.network import HEAD, WORKER_NAMES, network
from benchmarks.faults_peers.observation import Observation, observe
from benchmarks.faults_peers.processes import Processes, freeze, kill, running, with_all_below
from benchmarks.faults_peers.system import Cluster, Setting, System
from benchmarks.laboratory.network import Namespaces, Network

START_TIMEOUT_S = 90.0
"""From the start of a cluster until its job is half done."""
LOOK_EVERY_S = 0.02
LAST_WORDS_CHARS = 1500


class NoRun(Exception):
    """The fault could not be brought about; says why, with the last words of the processes."""


@dataclass
class User:
    """The user's program, and what it has written."""

    process: psutil.Process
    processes: Processes

    def events(self) -> list[dict[str, Any]]:
        """Whole lines only: the last may be on its way."""
        lines = self.processes.out("user").read_text("utf-8", "replace").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith('{"event"') and line.endswith("\n")]


@dataclass(frozen=True)
class Plan:
    """How each run goes."""

    tasks: int
    timeout_s: float
    """From the fault."""
    with_namespaces: bool


def run(system: System, fault: Fault, setting: Setting, plan: Plan) -> Observation:
    """Nothing that was started is left, whatever happens."""
    with_namespaces = fault is Fault.NETWORK_CUT and plan.with_namespaces
    with (
        # A short path: there will be Unix sockets in it, which some systems give long names.
        tempfile.TemporaryDirectory(prefix="fp-", ignore_cleanup_errors=True) as directory,
        closing(network(with_namespaces=with_namespaces)) as between,
        Processes(Path(directory), setting.environment, between.within(HEAD)) as processes,
    ):
        starts = Path(directory) / "starts"
        starts.touch()
        cluster = system.start(processes, between, setting)
        arguments = ["benchmarks.faults_peers.user", system.name, cluster.address, fault, str(starts), str(plan.tasks)]
        user = User(processes.python("user", arguments), processes)
        if fault in OF_THE_TASK:
            _wait_until_submitted(user)
            fault_s = user.events()[0]["at_s"]
        else:
            victim = cluster.workers[-1] if fault in OF_A_WORKER else None
            _wait_until_half_done(user, starts, victim)
            fault_s = time.monotonic()
            _bring_about(fault, cluster, between)
        while running(user.process) and time.monotonic() < fault_s + plan.timeout_s:
            time.sleep(LOOK_EVERY_S)
        last_words = (
            None if running(user.process) else processes.err("user").read_text("utf-8", "replace")[-LAST_WORDS_CHARS:]
        )
        started = starts.read_text().splitlines()
        return observe(plan.tasks, user.events(), started, fault_s, time.monotonic(), last_words)


def _bring_about(fault: Fault, cluster: Cluster, between: Network) -> None:
    if fault is Fault.WORKER_KILLED:
        kill(cluster.workers[-1])
    elif fault is Fault.NETWORK_CUT and isinstance(between, Namespaces):
        between.cut(WORKER_NAMES[-1])
    elif fault is Fault.NETWORK_CUT:
        freeze(cluster.workers[-1])
    else:
        kill(cluster.scheduler())
    if fault is Fault.SCHEDULER_RESTARTED:
        time.sleep(RESTART_AFTER_S)
        cluster.restart()


def _wait_until_submitted(user: User) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not any(event["event"] == "submitted" for event in user.events()):
        _check(user, deadline_s)


def _wait_until_half_done(user: User, starts: Path, victim: psutil.Process | None) -> None:
    """Until enough tasks have started, and one of them at the victim, if there is one."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        lines = starts.read_text().splitlines()
        if len(lines) >= STARTS_BEFORE:
            there = {str(process.pid) for process in with_all_below(victim)} if victim else set()
            if victim is None or any(line.split()[-1] in there for line in lines):
                return
        _check(user, deadline_s)


def _check(user: User, deadline_s: float) -> None:
    """`NoRun` if it ended or time is up; else wait a little."""
    if not running(user.process) or time.monotonic() > deadline_s:
        said = "\n".join(f"{path.name}: {path.read_text('utf-8', 'replace')[-600:]}" for path in _logs(user.processes))
        raise NoRun(f"the job was never so far that the fault could be brought about\n{said}")
    time.sleep(LOOK_EVERY_S)


def _logs(processes: Processes) -> list[Path]:
    return [path for path in sorted(processes.directory.glob("*.*")) if path.suffix in (".out", ".err")]
