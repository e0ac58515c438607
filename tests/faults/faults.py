"""The faults: each is inflicted on what a row hits, lasts until it has been noticed or for a time, and is healed.

How long a fault lasts is part of it. It is the one thing here that is a time and not an event, and only where nobody
but the victim could tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psutil

from benchmarks.laboratory import faults
from benchmarks.laboratory.faults import Kind, Undo, happened
from benchmarks.laboratory.network import Namespaces
from tests.faults.cluster import CLIENT, GUESTS, HEARTBEAT_S, NODES, SCHEDULERS, Cluster
from tests.faults.matrix import Fault, Moment, Row, Target
from tests.faults.moments import Scene, kind_of
from tests.support.waiting import wait_until

SHORT_S = HEARTBEAT_S / 5
"""Who is asked for a sign of life has half a heartbeat to answer."""
LONG_S = 2 * HEARTBEAT_S
"""Of what nobody misses."""
SHORTAGE_S = 4 * HEARTBEAT_S
"""A shortage lasts until the jobs have ended, or so long."""
FILLER = "filler"


class Inflicted:
    """A fault that was inflicted on a row's target.

    held: processes that are to stand still until the fault is healed. restarted: those that were started again.
    """

    def __init__(self, row: Row, cluster: Cluster, scene: Scene) -> None:
        self.row = row
        self.held: list[str] = []
        self.restarted: list[str] = []
        self._cluster = cluster
        self._scene = scene
        self._names = _choose(row, cluster, scene)
        self._worker = _choose_worker(cluster, scene) if row.target is Target.EXECUTOR else 0
        """The process id of the Python worker that is hit; the cluster has no names for those."""
        verb = _VERBS.get(row.fault)
        for name in self._names or [NODES[0]]:
            hit = Kind.SHORTAGE if verb is None else kind_of(verb, name) if self._names else Kind(f"{verb}-worker")
            scene.happened.append(happened(hit, name))
        self._undo: Sequence[Undo] = _INFLICT[row.fault](self)

    def last(self, ended: Callable[[], bool]) -> None:
        """Return once it has lasted. ended: whether the jobs have."""
        if self.row.fault is Fault.STOP_SHORT:
            time.sleep(SHORT_S)
        elif self.row.fault is Fault.STOP_LONG and self.row.target in (Target.EXECUTOR, Target.EXTERNAL_EXECUTOR):
            time.sleep(LONG_S)
        elif self.row.fault in (Fault.STOP_LONG, Fault.CUT):
            wait_until(self._missed, f"{self._names} to be missed")
        elif self.row.fault in (Fault.DISK_FULL, Fault.OUT_OF_FILES):
            until_s = time.monotonic() + SHORTAGE_S
            wait_until(lambda: ended() or time.monotonic() > until_s)

    def heal(self) -> None:
        """Take it back, as far as it can be."""
        for undo in self._undo:
            undo()
        if self.row.fault in (Fault.RESTART, Fault.RESTART_ELSEWHERE, Fault.HALF_OPEN):
            self.restarted = self._names

    def _missed(self) -> bool:
        """Whether all peers that can be asked have given the victims up (a victim that drains may have ended)."""
        cluster = self._cluster
        if self.row.target is Target.NODE_MONITOR:
            return all(NODES[0] not in cluster.linked(name) for name in cluster.serving(SCHEDULERS))
        if self.row.target is Target.CLIENT:
            metric = "sparrow_scheduler_clients"
            return all(cluster.metric(name, metric) == 0 for name in cluster.serving(SCHEDULERS))
        left = sum(cluster.runs(name) and name not in self._names for name in SCHEDULERS)
        nodes = [cluster.node(name) for name in cluster.serving(NODES)]
        return all(node is not None and len(node["schedulers"]) <= left for node in nodes)

    # ---- what is done ------------------------------------------------------------------------

    def _kill(self) -> list[Undo]:
        """And not started again."""
        self._kill_all()
        return []

    def _kill_all(self, *, elsewhere: bool = False) -> list[Undo]:
        if self._worker:
            psutil.Process(self._worker).kill()
        return [faults.kill(self._cluster, name, elsewhere=elsewhere) for name in self._names]

    def _stop(self) -> list[Undo]:
        if self._worker:
            return [faults.stop_pids([self._worker])]
        self.held = self._names
        return [faults.stop(self._cluster, name) for name in self._names]

    def _restart_elsewhere(self) -> list[Undo]:
        return self._kill_all(elsewhere=True)

    def _cut(self) -> list[Undo]:
        return [faults.cut(self._cluster, name) for name in self._names]

    def _half_open(self) -> list[Undo]:
        network = self._cluster.network
        assert isinstance(network, Namespaces), "the row is skipped without namespaces"
        self._cut()
        workers = set[int]().union(*(self._cluster.workers(name) for name in self._names if name in NODES))
        undo = self._kill_all()
        self._cluster.wait_until_gone(workers)
        for name in self._names:
            network.lose_power(name)
        return undo

    def _fill_disk(self) -> list[Undo]:
        return [faults.fill(self._cluster.disk(name) / FILLER) for name in self._names]

    def _take_files(self) -> list[Undo]:
        pids = [self._worker] if self._worker else [self._cluster.pid(name) for name in self._names]
        return [faults.take_files(pid) for pid in pids]

    def _light_bomb(self) -> list[Undo]:
        self._scene.light_bomb()
        return []


def _choose(row: Row, cluster: Cluster, scene: Scene) -> list[str]:
    if row.target is Target.NODE_MONITOR:
        return [NODES[0]]
    if row.target is Target.CLIENT:
        return [CLIENT]
    if row.target is Target.EXTERNAL_EXECUTOR:
        return [next(iter(GUESTS))]
    if row.target is Target.ALL_SCHEDULERS:
        return [name for name in SCHEDULERS if cluster.runs(name)]
    if row.target is Target.EXECUTOR:
        return []
    if row.moment in (Moment.FINISHING, Moment.DRAINING):
        return (scene.standing or scene.draining)[:1]
    return (cluster.schedulers_of(*scene.jobs) or list(SCHEDULERS))[:1]


def _choose_worker(cluster: Cluster, scene: Scene) -> int:
    """A Python worker of the first node; one that has started a task, if there is one."""
    workers = cluster.workers(NODES[0])
    busy = workers & {run.pid for run in scene.runs()}
    return min(busy or workers)


_VERBS = {
    **dict.fromkeys((Fault.SIGKILL, Fault.RESTART, Fault.RESTART_ELSEWHERE, Fault.HALF_OPEN), "kill"),
    **dict.fromkeys((Fault.STOP_SHORT, Fault.STOP_LONG), "stop"),
    Fault.CUT: "isolate",
}
"""What the laboratory calls them; the others are shortages."""
_INFLICT: dict[Fault, Callable[[Inflicted], list[Undo]]] = {
    Fault.SIGKILL: Inflicted._kill,
    Fault.STOP_SHORT: Inflicted._stop,
    Fault.STOP_LONG: Inflicted._stop,
    Fault.RESTART: Inflicted._kill_all,
    Fault.RESTART_ELSEWHERE: Inflicted._restart_elsewhere,
    Fault.CUT: Inflicted._cut,
    Fault.HALF_OPEN: Inflicted._half_open,
    Fault.DISK_FULL: Inflicted._fill_disk,
    Fault.OUT_OF_FILES: Inflicted._take_files,
    Fault.OUT_OF_MEMORY: Inflicted._light_bomb,
}
