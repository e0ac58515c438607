"""An experiment, from the first process to the last: a cluster, its programs, faults; and then nothing may be left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.laboratory import evidence
from benchmarks.laboratory.cluster import BLOBS_GAUGE, Cluster, tracebacks
from benchmarks.laboratory.evidence import Evidence
from benchmarks.laboratory.faults import LEAVES_FILES, Faults, Kind
from benchmarks.laboratory.processes import children_now, end_orphans
from sparrow_py.processes.process_control import adopt_orphans

STEP_S = 0.005
QUIET_POLL_S = 0.05
DRAINED_WITHIN_S = 60.0


class Experiment:
    """Plays faults on a cluster. `run` returns what is known of it then.

    lasts_s: how long programs go on at least. steps: what is to be done meanwhile, again and again. returning: programs
    that are started again if they die by themselves. all_quiet: whether large data have to be gone, too, and all
    daemons linked.
    """

    def __init__(
        self,
        cluster: Cluster,
        faults: Callable[[], Faults],
        *,
        lasts_s: float = 0.0,
        steps: Sequence[Callable[[], None]] = (),
        returning: Sequence[str] = (),
        programs_end_within_s: float = 60.0,
        quiet_within_s: float = 30.0,
        all_quiet: bool = False,
    ) -> None:
        self.cluster = cluster
        self.troubles: list[str] = []
        self.quiet_after_s = 0.0
        """How long after the last fault nothing was left."""
        self._make_faults = faults
        self._lasts_s = lasts_s
        self._steps = steps
        self._returning = returning
        self._programs_end_within_s = programs_end_within_s
        self._quiet_within_s = quiet_within_s
        self._all_quiet = all_quiet
        adopt_orphans()  # So that none can hide.
        self._strangers = children_now()

    def run(self) -> Evidence:
        """The whole of it."""
        cluster = self.cluster
        try:
            cluster.start()
            self._before = {name: cluster.processes[name].descriptors() for name in cluster.daemons}
            cluster.start_programs()
            self.faults = self._make_faults()
            self._load()
            self._wait_until_quiet()
            self._check_descriptors()
            self.troubles += cluster.drain(DRAINED_WITHIN_S)
        finally:
            cluster.destroy()
            cluster.network.close()
            self.troubles += [f"a process is left: {what}" for what in end_orphans(self._strangers)]
        self.troubles += self.faults.troubles
        self.troubles += [f"a file is left: {path}" for path in self._left_files()]
        shutil.rmtree(cluster.tmp)
        for log in sorted((cluster.directory / "logs").iterdir()):
            self.troubles += tracebacks(log)
        slots = dict(zip(cluster.nodes, cluster.shape.slots, strict=True))
        return evidence.read(cluster.directory, slots, self.faults.happened, self.troubles)

    def _load(self) -> None:
        """Programs and faults, until the programs are at their ends."""
        cluster, deadline_s = self.cluster, None
        while True:
            self.faults.step()
            cluster.settle()
            for step in self._steps:
                step()
            self._return()
            if self.faults.over and time.monotonic_ns() > cluster.began_ns + self._lasts_s * 1e9:
                running = [name for name in cluster.programs if cluster.runs(name)]
                if not running:
                    break
                for name in running:
                    cluster.processes[name].dismiss()
                deadline_s = deadline_s or time.monotonic() + self._programs_end_within_s
                if time.monotonic() > deadline_s:
                    self._say_who_hangs()
                    break
            time.sleep(STEP_S)
        for name in cluster.programs:
            if cluster.processes[name].code not in (0, -9, None):
                self.troubles.append(f"the program {name} ended with code {cluster.processes[name].code}")

    def _return(self) -> None:
        """Start programs again that have died in the middle of a submission."""
        for name in self._returning:
            if not self.cluster.runs(name) and self.cluster.lives[name] == 0:
                killed = any(one.target == name and one.kind == Kind.KILL_CLIENT for one in self.faults.happened)
                if self.cluster.processes[name].code == -9 and not killed:
                    self.cluster.launch(name)

    def _say_who_hangs(self) -> None:
        cluster = self.cluster
        within = f"{self._programs_end_within_s:g} s after the last fault"
        for name in filter(cluster.runs, cluster.programs):
            self.troubles.append(f"the program {name} has not ended {within}")
        for name in filter(cluster.runs, cluster.daemons):
            for path in ("/v1/jobs", "/v1/nodes", "/metrics"):
                asked = cluster.directory / "logs" / f"{name}{path.replace('/', '-')}"
                asked.write_text(cluster.ask(name, path)[1])
        for name in cluster.programs:
            cluster.processes[name].kill()

    def _wait_until_quiet(self) -> None:
        began_s = time.monotonic()
        ignored = () if self._all_quiet else (BLOBS_GAUGE,)  # They go when their time is over.
        while left := list(self.cluster.left(all_linked=self._all_quiet, ignored=ignored)):
            self.cluster.settle()  # A scheduler that moved at last may begin to work only now.
            if time.monotonic() > began_s + self._quiet_within_s:
                self.troubles += [f"left after {self._quiet_within_s:g} s: {what}" for what in left]
                break
            time.sleep(QUIET_POLL_S)
        self.quiet_after_s = time.monotonic() - began_s

    def _check_descriptors(self) -> None:
        """Of daemons that lived through it; each further child may have a few of its own."""
        for name in self.cluster.daemons:
            if self.cluster.runs(name) and not self.cluster.lives[name]:
                process = self.cluster.processes[name]
                now, allowed = process.descriptors(), DESCRIPTORS_MAX + 2 * len(process.children())
                if now > self._before[name] + allowed:
                    self.troubles.append(f"{name} has {now} descriptors open, {self._before[name]} before")

    def _left_files(self) -> Iterator[Path]:
        """In the daemons' temporary directory."""
        if self._all_quiet or not any(one.kind in LEAVES_FILES for one in self.faults.happened):
            yield from sorted(self.cluster.tmp.iterdir())


DESCRIPTORS_MAX = 16
"""More of them at the end than before: connections over which large data went are kept for a while. One for each link
that ended would be more."""
