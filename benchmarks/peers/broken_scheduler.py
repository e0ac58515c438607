"""A killed scheduler, by `benchmarks.faults_peers`: 60 tasks of 0.2 s on two workers of two slots, each a process."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.faults_peers.faults import TASKS, Fault
from benchmarks.faults_peers.observation import Observation, shortened
from benchmarks.faults_peers.run import NoRun, Plan, run
from benchmarks.faults_peers.systems import SYSTEMS
from benchmarks.peers.cases import SCHEDULER
from benchmarks.peers.outcome import PeerResult
from benchmarks.peers.peer import Library
from benchmarks.report import progress

TIMEOUT_S = 20.0
NO_PROCESS = "the program is its scheduler"


def scheduler_killed(libraries: Mapping[str, Library], tasks: int = TASKS) -> dict[str, PeerResult]:
    """Seconds from the kill until the user had all results. Of several settings the last, which helps most."""
    results = {}
    for name, library in libraries.items():
        if not library.scheduler or SCHEDULER in library.lacks:
            results[name] = PeerResult(why=library.lacks.get(SCHEDULER, NO_PROCESS))
            continue
        progress(f"scheduler killed: {name}")
        system = SYSTEMS[library.scheduler]
        setting = system.settings(Fault.SCHEDULER_KILLED)[-1]
        try:
            results[name] = told(run(system, Fault.SCHEDULER_KILLED, setting, Plan(tasks, TIMEOUT_S, False)))
        except (NoRun, TimeoutError) as error:
            results[name] = PeerResult(why=shortened(f"no run: {error}"))
    return results


def told(seen: Observation) -> PeerResult:
    """A value if the user has all results, else what there was."""
    if seen.ending == "ended" and seen.results == seen.tasks:
        return PeerResult(values=[seen.last_s])
    end = {"waits": "still waits", "raised": "raised", "died": "the program ended", "ended": "errors"}[seen.ending]
    return PeerResult(why=f"{seen.results} of {seen.tasks} results, {end} after {seen.last_s:.1f} s")
