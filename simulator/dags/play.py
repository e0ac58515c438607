"""Play jobs on machines: their arrivals, their tasks, and what the allocator starts.

The planner may be wrong about tasks (`misestimate`: demands × (1 + X), durations ÷ (1 + X) in what it sees). Tasks are
as they are: if those of a machine want more of a resource than it has, they share it, and take longer; if they want
more memory than it has, those that came last are killed, and start again. A machine that has killed tasks is given no
others until one of those that it has ends, whatever the planner thinks is free there: it would kill them, too.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from scheduler.altruistic.allocator import Allocator, Start
from scheduler.altruistic.dags import Dag, DagError
from scheduler.altruistic.profile import Matrix
from scheduler.altruistic.settings import Settings
from simulator.dags.watching import Watcher
from simulator.dags.windows import WINDOW_S, Windows, add_busy


class Arrival(NamedTuple):
    """A job comes."""

    at_s: float
    name: str
    dag: Dag
    user: str = ""


@dataclass(slots=True)
class Outcome:
    """What came of a job."""

    arrived_s: float
    ended_s: float = np.inf
    late: int = 0
    """How often its target moved back."""

    @property
    def completion_s(self) -> float:
        return self.ended_s - self.arrived_s


@dataclass(slots=True)
class Result:
    """What came of all jobs."""

    jobs: dict[str, Outcome]
    windows: Windows
    unfit: int
    """How often tasks that had to run fitted nowhere."""
    kills: int
    events: int
    busy: np.ndarray[tuple[int], np.dtype[np.float64]]
    """By resource: part of the machines that was used on average."""

    @property
    def completions_s(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Of each job, in order of arrival."""
        return np.array([job.completion_s for job in self.jobs.values()])

    @property
    def makespan_s(self) -> float:
        return max(job.ended_s for job in self.jobs.values()) - min(job.arrived_s for job in self.jobs.values())


@dataclass(slots=True)
class _AtWork:
    """Tasks of a group on a machine that started together."""

    start: Start
    tasks: int
    left_s: float
    """What they need still, at full speed."""
    since_s: float
    rate: float = 1.0
    version: int = 0


@dataclass
class _Machine:
    """What runs there, with misestimates: tasks slow each other down."""

    capacity: np.ndarray[tuple[int], np.dtype[np.float64]]
    at_work: list[_AtWork] = field(default_factory=list)
    withheld: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
    """What the planner thinks is free there, after tasks were killed."""


def play(
    arrivals: Sequence[Arrival],
    machines: Matrix,
    settings: Settings,
    *,
    seed: int = 0,
    misestimate: float = 0.0,
    memory: int | None = 1,
    window_s: float = WINDOW_S,
    watchers: Sequence[Watcher] = (),
) -> Result:
    """Play until all jobs are over. machines: a row each. memory: the resource of which no task can have less.
    watchers: are told what happens. `DagError` if a task fits on no machine."""
    for arrival in arrivals:
        check_fits(arrival, machines)
    return _Play(arrivals, machines, settings, seed, misestimate, memory, window_s, watchers).run()


def check_fits(arrival: Arrival, machines: Matrix) -> None:
    """`DagError` if a task of the job fits on no machine."""
    for number, group in enumerate(arrival.dag.groups):
        demand = np.array(group.demand)
        if not (demand <= machines * (1 + 1e-9)).all(axis=1).any():
            over = int(np.argmax(demand / np.maximum(machines.max(axis=0), 1e-12)))
            raise DagError(
                f"demand of stage {number} of job {arrival.name}: {demand[over]:g} of resource {over} is not valid; "
                f"allowed: what one machine has beside its other resources, at most {machines[:, over].max():g}"
            )


class _Play:
    def __init__(
        self, arrivals: Sequence[Arrival], machines: Matrix, settings: Settings, seed: int, misestimate: float,
        memory: int | None, window_s: float, watchers: Sequence[Watcher],
    ) -> None:  # fmt: skip
        self._watchers = watchers
        self._allocator = Allocator(machines.shape[1], settings, draw=random.Random(seed).random)
        self._allocator.machines_came([str(number) for number in range(len(machines))], machines)
        self._truth = {arrival.name: arrival.dag for arrival in arrivals}
        self._windows = Windows(machines.sum(axis=0), window_s)
        self._outcomes = {arrival.name: Outcome(arrival.at_s) for arrival in sorted(arrivals)}
        self._wrong = misestimate
        self._largest = machines.max(axis=0)
        self._machines = [_Machine(capacity) for capacity in machines] if misestimate < 0 else []
        self._memory = memory
        self._heap: list[tuple[float, int, Arrival | _AtWork, int]] = []
        self._count = 0
        self._kills = self._events = 0
        self._busy = np.zeros(machines.shape[1])
        self._withheld = np.zeros(machines.shape[1])
        """Of all machines."""
        for arrival in sorted(arrivals, key=lambda arrival: arrival.at_s):
            self._push(arrival.at_s, arrival, 0)

    def run(self) -> Result:
        now_s = self._heap[0][0]
        begin_s, machines = now_s, self._allocator.machines
        while self._heap or self._allocator.jobs:
            next_s = min(self._heap[0][0] if self._heap else np.inf, self._allocator.next_s)
            assert np.isfinite(next_s), "jobs wait, and nothing will happen"
            self._windows.pass_time(self._allocator, now_s, next_s)
            add_busy(self._busy, machines.total - self._withheld, machines.free, float(next_s - now_s))
            now_s = next_s
            touched: set[int] = set()
            while self._heap and self._heap[0][0] <= now_s:
                _, _, what, version = heapq.heappop(self._heap)
                self._happen(what, version, now_s, touched)
            for start in self._allocator.pump(now_s):
                self._start(start, now_s, touched)
            for number in sorted(touched) if self._machines else ():
                self._share_machine(number, now_s)
            for watcher in self._watchers:
                watcher.pumped(self._allocator, now_s)
        total = machines.total * max(now_s - begin_s, 1e-9)
        busy = self._busy / np.where(total > 0, total, 1.0)
        return Result(self._outcomes, self._windows, self._allocator.unfit, self._kills, self._events, busy)

    def _push(self, at_s: float, what: Arrival | _AtWork, version: int) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, what, version))

    def _happen(self, what: Arrival | _AtWork, version: int, now_s: float, touched: set[int]) -> None:
        if isinstance(what, Arrival):
            self._events += 1
            self._allocator.job_came(what.name, self._as_seen(what.dag), what.user)
            return
        if version != what.version:
            return
        self._events += what.tasks
        what.version += 1
        start = what.start
        for watcher in self._watchers:
            watcher.ended(start, what.tasks)
        if self._machines:
            number = int(start.machine)
            self._machines[number].at_work.remove(what)
            self._open(number)
            touched.add(number)
        late = self._allocator.jobs[start.job].late
        if self._allocator.ended(start.job, start.group, start.machine, start.end_s, what.tasks):
            outcome = self._outcomes[start.job]
            outcome.ended_s, outcome.late = now_s, late

    def _as_seen(self, dag: Dag) -> Dag:
        """What the planner thinks of the job; never more than a machine has."""
        wrong = 1 + self._wrong
        if wrong == 1:
            return dag
        groups = [
            replace(
                group,
                demand=tuple(
                    min(amount * wrong, float(most)) for amount, most in zip(group.demand, self._largest, strict=True)
                ),
                duration_s=group.duration_s / wrong,
            )
            for group in dag.groups
        ]
        return Dag(groups)

    def _start(self, start: Start, now_s: float, touched: set[int]) -> None:
        duration_s = float(self._truth[start.job].duration_s[start.group])
        at_work = _AtWork(start, start.tasks, duration_s, now_s)
        for watcher in self._watchers:
            watcher.started(start)
        if self._machines:
            number = int(start.machine)
            self._machines[number].at_work.append(at_work)
            touched.add(number)
        else:
            self._push(now_s + duration_s, at_work, 0)

    # ---- machines that have too little for what runs there ---------------------------------------------

    def _share_machine(self, number: int, now_s: float) -> None:
        """How fast tasks of the machine are from now on."""
        machine = self._machines[number]
        if self._kill_some(number):
            self._shut(number)
        used = np.zeros(len(machine.capacity))
        for each in machine.at_work:
            used += each.tasks * self._truth[each.start.job].demand[each.start.group]
        rate = np.where(used > machine.capacity, machine.capacity / np.where(used > 0, used, 1.0), 1.0)
        for each in machine.at_work:
            demand = self._truth[each.start.job].demand[each.start.group]
            each.left_s -= (now_s - each.since_s) * each.rate
            each.since_s, each.rate = now_s, float(rate[demand > 0].min())
            each.version += 1
            self._push(now_s + max(each.left_s, 0.0) / each.rate, each, each.version)

    def _shut(self, number: int) -> None:
        """No task is to start there."""
        machines, machine = self._allocator.machines, self._machines[number]
        machine.withheld = np.maximum(machines.free[number], 0.0)
        machines.take(str(number), machine.withheld)
        self._withheld += machine.withheld

    def _open(self, number: int) -> None:
        """Tasks may start there again."""
        machine = self._machines[number]
        if machine.withheld is not None:
            self._allocator.machines.give_back(str(number), machine.withheld)
            self._withheld -= machine.withheld
            machine.withheld = None

    def _kill_some(self, number: int) -> bool:
        """Those that came last, until the others have memory enough; whether there were some."""
        machine = self._machines[number]
        if self._memory is None:
            return False
        kills = self._kills
        used = sum(
            each.tasks * float(self._truth[each.start.job].demand[each.start.group][self._memory])
            for each in machine.at_work
        )
        while used > machine.capacity[self._memory] * (1 + 1e-9):
            last = machine.at_work[-1]
            used -= float(self._truth[last.start.job].demand[last.start.group][self._memory])
            last.tasks -= 1
            self._kills += 1
            for watcher in self._watchers:
                watcher.ended(last.start, 1)
            self._allocator.failed(last.start.job, last.start.group, last.start.machine, last.start.end_s)
            if not last.tasks:
                last.version += 1
                machine.at_work.pop()
        return self._kills > kills
