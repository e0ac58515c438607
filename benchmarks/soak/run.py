"""One soak: a long experiment over wires, with memory watched, and its records judged."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.laboratory import oracle
from benchmarks.laboratory.cluster import Cluster
from benchmarks.laboratory.evidence import Evidence
from benchmarks.laboratory.experiment import Experiment
from benchmarks.laboratory.faults import Faults
from benchmarks.laboratory.told import Event
from benchmarks.laboratory.wires import Wires
from benchmarks.soak.fill import Filling
from benchmarks.soak.plan import Size, draw, shape, veterans, zone
from benchmarks.soak.watch import Kept, Watch

SAMPLE_S = 2.0
CLIENTS_END_WITHIN_S = 180.0
QUIET_WITHIN_S = 60.0
"""Beside the retention time of large data."""


@dataclass
class Soaked:
    """What a soak has shown."""

    found: Evidence
    faults: Counter[str]
    skipped: int
    kept: list[Kept]
    judged: bool
    """Whether what veterans keep was judged: not if the machine was too slow to fill their memory in the first half."""
    peaks_mb: dict[str, float]
    quiet_after_s: float
    violations: list[str]


class Soak:
    """See `run`. What programs and tasks wrote down is in its directory, and samples of memory (`samples.jsonl`)."""

    def __init__(self, size: Size, seconds: float, seed: int, gap_s: float, directory: Path) -> None:
        self._size = size
        self._seconds = seconds
        self._directory = directory
        self._cluster = Cluster(shape(size, seed), directory, Wires())
        self._veterans = veterans(size)
        self._watch = Watch()
        self._looked_s = 0.0
        faults = partial(Faults, self._cluster, draw(seed, seconds, gap_s, size), alone=True, veterans=self._veterans)
        self._filling = Filling(self._cluster, [name for name in self._cluster.nodes if name in self._veterans])
        self._experiment = Experiment(
            self._cluster,
            faults,
            lasts_s=seconds,
            steps=(self._look, self._filling.step),
            programs_end_within_s=CLIENTS_END_WITHIN_S,
            quiet_within_s=QUIET_WITHIN_S + 2 * size.retention_s,
            all_quiet=True,
        )

    def run(self) -> Soaked:
        """The whole of it."""
        found = self._experiment.run()
        found.zones |= {name: zone(number) for number, name in enumerate(self._cluster.nodes)}
        kept = {name: self._watch.kept(name, self._seconds) for name in self._veterans}
        judged = self._filling.is_over_by(self._seconds / 2)
        for name, one in kept.items() if judged else ():
            unseen = f"{name} was to live through the last half, and be looked at, and was not"
            found.troubles += [unseen] if one is None else one.violations()
        violations = list(oracle.judge(found))
        if violations:
            (self._directory / "story").write_text("".join(f"{line}\n" for line in oracle.story(found)))
        faults = self._experiment.faults
        cluster = self._cluster
        names = {"schedulers": cluster.schedulers, "node monitors": cluster.nodes, "clients": cluster.programs}
        return Soaked(
            found,
            faults.counts,
            faults.skipped,
            [one for one in kept.values() if one is not None],
            judged,
            {kind: self._watch.peak_mb(those) for kind, those in names.items()},
            self._experiment.quiet_after_s,
            violations,
        )

    def _look(self) -> None:
        """At memory and descriptors, now and then."""
        at_s = time.monotonic() - self._cluster.began_ns / 1e9
        if at_s < self._looked_s + SAMPLE_S:
            return
        self._looked_s = at_s
        cluster = self._cluster
        pids = {name: cluster.processes[name].pid for name in cluster.names if cluster.runs(name)}
        self._watch.look(pids, at_s)
        latest = {name: (seen[-1].pid, seen[-1].rss_bytes, seen[-1].descriptors)
                  for name, seen in self._watch.samples.items() if seen[-1].at_s == at_s}  # fmt: skip
        with (self._directory / "samples.jsonl").open("a") as file:
            file.write(json.dumps({"at_s": round(at_s, 1), "pid, rss, descriptors": latest}) + "\n")


def counts(found: Evidence) -> dict[str, int]:
    """The numbers of a soak."""
    numbers = oracle.counts(found)
    outcomes = list(found.told(Event.OUTCOME, Event.MAPPED))
    early = [line for line in outcomes if oracle.lost_early(found, line)]
    twice = list(oracle.outcomes_are_told_once(found)) + list(oracle.starts_are_limited(found))
    silent = list(oracle.every_job_ends(found))
    told = Counter(line.job for line in outcomes)
    killed = [line.job for program in found.programs if not program.over
              for line in program.lines if line.event is Event.SUBMITTED]  # fmt: skip
    forsaken = [name for name in killed if told[name] < len(found.jobs[name].tasks)]
    return {
        "jobs": numbers["jobs"],
        "tasks": numbers["tasks"],
        "finished": numbers["finished"],
        "failed": numbers["failed"],
        "cancelled": numbers["cancelled"],
        "retries": sum(max(0, line.attempts - 1) for line in outcomes),
        "starts that tasks wrote down": numbers["starts"],
        "lost": len(early) + len(silent),
        "duplicated": len(twice),
        "lost with max_attempts=1": numbers["lost with max_attempts=1"],
        "lost after max_attempts starts": numbers["lost"] - numbers["lost with max_attempts=1"] - len(early),
        "results by reference lost": numbers["results by reference lost"],
        "second outcomes suppressed": sum(line.suppressed for line in found.told(Event.OVER)),
        "jobs refused": sum(1 for _ in found.told(Event.REFUSED)),
        "jobs of clients that were killed": len(forsaken),
    }
