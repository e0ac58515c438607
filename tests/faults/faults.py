"""The faults: each is inflicted on what a row hits, lasts until it has been noticed or for a time, and is healed.

How long a fault lasts is part of it. It is the one thing here that is a time and not an event, and only where nobody
but the victim could tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from tests.faults.cluster import CLIENT, GUESTS, HEARTBEAT_S, MACHINES, NODES, SCHEDULERS, Cluster
from tests.faults.matrix import Fault, Moment, Row, Target
from tests.faults.moments import Scene
from tests.faults.network import Network
from tests.support.daemons import gone
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
        self._heal: Callable[[], None] = lambda: None
        _INFLICT[row.fault](self)

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
        self._heal()

    def _missed(self) -> bool:
        """Whether all peers that can be asked have given the victims up (a victim that drains may have ended)."""
        cluster = self._cluster
        if self.row.target is Target.NODE_MONITOR:
            return all(NODES[0] not in (cluster.nodes(name) or ()) for name in cluster.serving(SCHEDULERS))
        if self.row.target is Target.CLIENT:
            metric = "sparrow_scheduler_clients"
            return all(cluster.metric(name, metric) == 0 for name in cluster.serving(SCHEDULERS))
        left = sum(cluster.alive(name) and name not in self._names for name in SCHEDULERS)
        nodes = [cluster.node(name) for name in cluster.serving(NODES)]
        return all(node is not None and len(node["schedulers"]) <= left for node in nodes)

    # ---- what is done ------------------------------------------------------------------------

    def _kill(self) -> None:
        if self._worker:
            psutil.Process(self._worker).kill()
        for name in self._names:
            self._cluster.kill(name)

    def _stop(self) -> None:
        if self._worker:
            worker = psutil.Process(self._worker)
            worker.suspend()
            self._heal = lambda: None if gone(worker.pid) else worker.resume()
            return
        self._cluster.stop(self._names)
        self.held = self._names
        self._heal = lambda: self._cluster.go_on(self._names)

    def _restart(self) -> None:
        self._kill()
        self._heal = self._start

    def _restart_elsewhere(self) -> None:
        self._kill()
        self._heal = partial(self._start, elsewhere=True)

    def _start(self, *, elsewhere: bool = False) -> None:
        for name in self._names:
            self._cluster.start(name, elsewhere=elsewhere)
        self.restarted = self._names

    def _cut(self) -> None:
        network = self._network
        for name in self._names:
            network.cut(MACHINES[name])

        def heal() -> None:
            for name in self._names:
                network.heal(MACHINES[name])

        self._heal = heal

    def _half_open(self) -> None:
        for name in self._names:
            self._network.cut(MACHINES[name])
        workers = set[int]().union(*(self._cluster.workers(name) for name in self._names if name in NODES))
        self._kill()
        self._cluster.wait_until_gone(workers)
        for name in self._names:
            self._network.lose_power(MACHINES[name])
        self._heal = self._start

    @property
    def _network(self) -> Network:
        assert isinstance(self._cluster.network, Network), "the row is skipped without namespaces"
        return self._cluster.network

    def _fill_disk(self) -> None:
        fillers = [self._cluster.disk(name) / FILLER for name in self._names]
        for filler in fillers:
            fill(filler)

        def heal() -> None:
            for filler in fillers:
                filler.unlink()

        self._heal = heal

    def _take_files(self) -> None:
        pids = [self._worker] if self._worker else [self._cluster.pid(name) for name in self._names]
        processes = [psutil.Process(pid) for pid in pids]
        limits = [process.rlimit(psutil.RLIMIT_NOFILE) for process in processes]
        for process, (_, hard) in zip(processes, limits, strict=True):
            process.rlimit(psutil.RLIMIT_NOFILE, (lowest_free_descriptor(process.pid), hard))

        def heal() -> None:
            for process, limit in zip(processes, limits, strict=True):
                if not gone(process.pid):
                    process.rlimit(psutil.RLIMIT_NOFILE, limit)

        self._heal = heal

    def _light_bomb(self) -> None:
        self._scene.bomb.touch()


def lowest_free_descriptor(pid: int) -> int:
    """What the process would be given next: the kernel hands out the lowest that is free."""
    taken = {int(path.name) for path in Path("/proc", str(pid), "fd").iterdir()}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def fill(path: Path) -> None:
    """Write to the file until its disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def _choose(row: Row, cluster: Cluster, scene: Scene) -> list[str]:
    if row.target is Target.NODE_MONITOR:
        return [NODES[0]]
    if row.target is Target.CLIENT:
        return [CLIENT]
    if row.target is Target.EXTERNAL_EXECUTOR:
        return [next(iter(GUESTS))]
    if row.target is Target.ALL_SCHEDULERS:
        return [name for name in SCHEDULERS if cluster.alive(name)]
    if row.target is Target.EXECUTOR:
        return []
    if row.moment in (Moment.FINISHING, Moment.DRAINING):
        return (scene.standing or scene.draining)[:1]
    return (cluster.schedulers_of(*scene.jobs) or list(SCHEDULERS))[:1]


def _choose_worker(cluster: Cluster, scene: Scene) -> int:
    """A Python worker of the first node; one that has started a task, if there is one."""
    workers = cluster.workers(NODES[0])
    busy = workers & {pid for _, pid in scene.logged("start")}
    return min(busy or workers)


_INFLICT: dict[Fault, Callable[[Inflicted], None]] = {
    Fault.SIGKILL: Inflicted._kill,
    Fault.STOP_SHORT: Inflicted._stop,
    Fault.STOP_LONG: Inflicted._stop,
    Fault.RESTART: Inflicted._restart,
    Fault.RESTART_ELSEWHERE: Inflicted._restart_elsewhere,
    Fault.CUT: Inflicted._cut,
    Fault.HALF_OPEN: Inflicted._half_open,
    Fault.DISK_FULL: Inflicted._fill_disk,
    Fault.OUT_OF_FILES: Inflicted._take_files,
    Fault.OUT_OF_MEMORY: Inflicted._light_bomb,
}
