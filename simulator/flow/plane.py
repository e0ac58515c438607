"""A cluster whose tasks are placed by rounds of a `ClusterNetwork`, as a simulation of discrete events.

Tasks come and end; whenever something has changed and no round is under way, one begins. It is computed at once, and
takes as long as its counted work costs: what happens meanwhile waits for the next one. Nodes and network cost nothing
(paper 004, §6.2.3: what is looked at is the scheduler alone).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork, Placed
from scheduler.flow.policies.policy import Machine, Policy, Task
from scheduler.flow.policies.quincy import Quincy
from simulator.engine import Engine
from simulator.flow.costs import FlowCosts
from simulator.flow.counted_race import CountedRace, Solvers
from simulator.flow.inputs import Input
from sparrow_py.errors import InvalidOption

MACHINES_PER_RACK = 40
NO_INPUT = Input(0, {})


@dataclass(frozen=True, kw_only=True)
class FlowCluster:
    """What is simulated. keeps_running: tasks that run stay in the network, so they may be moved or stopped."""

    machines: int
    slots: int = 12
    solvers: Solvers = Solvers.RACE
    keeps_running: bool = True
    costs: FlowCosts = field(default_factory=FlowCosts)
    machines_per_rack: int = MACHINES_PER_RACK

    def __post_init__(self) -> None:
        for name, most in (("machines", 1_000_000), ("slots", 65_536), ("machines_per_rack", 1_000_000)):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidOption(name, getattr(self, name), f"a whole number from 1 to {most}")

    def names(self) -> list[str]:
        """Of the machines."""
        return [f"m{number}" for number in range(self.machines)]


@dataclass(slots=True)
class SimulatedTask:
    """duration_s: left to run; infinite for services."""

    name: str
    job: str
    duration_s: float
    submitted_s: float = 0.0
    input: Input = NO_INPUT
    machine: str | None = None
    placed_s: float | None = None
    """For the first time."""
    runs_since_s: float = 0.0
    ended_s: float | None = None
    starts: int = 0

    def as_known(self, *, since_s: float, runs_on: str | None) -> Task:
        """As the network is told of it."""
        return Task(
            self.name,
            self.job,
            input_bytes=self.input.size,
            local_bytes=self.input.local,
            runs_on=runs_on,
            since_s=since_s,
        )


@dataclass(frozen=True, slots=True)
class SimulatedRound:
    """One that was under way from `began_s` on for `took_s`. told: changes of tasks that it was told of; waiting:
    tasks that wait after it."""

    began_s: float
    took_s: float
    solver: str
    told: int
    placed: int
    waiting: int
    nodes: int
    arcs: int


class SimulatedPlane:
    """See the module's docstring."""

    def __init__(self, cluster: FlowCluster, policy: Policy | None = None) -> None:
        self.cluster = cluster
        self.engine = Engine()
        self.engine.end_of_turn = self._begin_round
        self.network = ClusterNetwork(
            Quincy() if policy is None else policy, keeps_running=cluster.keeps_running, second_after_s=float("inf")
        )
        self.race = CountedRace(self.network.graph, cluster.solvers, cluster.costs)
        self.network.race = self.race  # type: ignore[assignment]  # has all of `LiveRace` that is used
        self.tasks: dict[str, SimulatedTask] = {}
        """Those that have not ended."""
        self.done: list[SimulatedTask] = []
        self.rounds: list[SimulatedRound] = []
        self.moved = self.stopped = 0
        self._machines = {
            name: Machine(name, f"r{number // cluster.machines_per_rack}", cluster.slots)
            for number, name in enumerate(cluster.names())
        }
        self._changed_machines: dict[str, None] = dict.fromkeys(self._machines)
        self._new: list[Task] = []
        self._gone: list[str] = []
        self._run: list[tuple[str, str]] = []
        self._busy = False

    # ---- what happens

    def begin(self, running: Iterable[tuple[SimulatedTask, str, float]]) -> None:
        """Tasks that run already: where, and for how long. The round that takes note of them costs no time."""
        for task, machine, ran_s in running:
            self.tasks[task.name] = task
            task.placed_s, task.submitted_s = -ran_s, -ran_s
            self._start(task, machine, -ran_s)
            if self.cluster.keeps_running:
                self._new.append(task.as_known(since_s=-ran_s, runs_on=machine))
        self._carry_out(self._solve()[0])
        self._carry_out(self._solve()[0])
        self.rounds.clear()
        self.moved = self.stopped = 0

    def submit_at(self, at_s: float, tasks: Sequence[SimulatedTask]) -> None:
        """Tasks that come then."""
        self.engine.at(at_s, self._submit, tasks)

    def run(self, until_s: float) -> None:
        """Let everything happen until then."""
        self.engine.run(until_s)

    def _submit(self, tasks: Sequence[SimulatedTask]) -> None:
        now_s = self.engine.now_s
        for task in tasks:
            task.submitted_s = now_s
            self.tasks[task.name] = task
            self._new.append(task.as_known(since_s=now_s, runs_on=None))

    def _start(self, task: SimulatedTask, machine: str, since_s: float) -> None:
        task.machine, task.runs_since_s = machine, max(since_s, 0.0)
        task.starts += 1
        if task.duration_s != float("inf"):
            self.engine.at(self.engine.now_s + task.duration_s, self._end, (task, task.starts))
        if not self.cluster.keeps_running:
            self._take_slots(machine, 1)

    def _end(self, which: tuple[SimulatedTask, int]) -> None:
        task, starts = which
        if task.starts != starts or task.machine is None:
            return
        if not self.cluster.keeps_running:
            self._take_slots(task.machine, -1)
        else:
            self._gone.append(task.name)
        task.ended_s = self.engine.now_s
        self.done.append(self.tasks.pop(task.name))

    def _take_slots(self, machine: str, count: int) -> None:
        """As the network knows machines when placed tasks are no part of it."""
        known = self._machines[machine]
        self._machines[machine] = replace(known, slots=known.slots - count, running=known.running + count)
        self._changed_machines[machine] = None

    # ---- rounds

    def _begin_round(self) -> None:
        """If there is reason to."""
        if self._busy or not (self._new or self._gone or self._run or self._changed_machines):
            return
        began_s = self.engine.now_s
        told = len(self._new) + len(self._gone)
        placed, took_s = self._solve()
        self._busy = True
        self.rounds.append(
            SimulatedRound(
                began_s, took_s, placed.solver, told, len(placed.placed), placed.waiting, placed.nodes, placed.arcs
            )
        )
        self.engine.at(began_s + took_s, self._end_round, placed)

    def _solve(self) -> tuple[Placed, float]:
        """The network's answer, and how long it took."""
        changes = ClusterChanges(
            machines=[self._machines[name] for name in self._changed_machines],
            tasks_gone=self._gone,
            tasks=self._new,
            tasks_run=self._run,
            now_s=max(self.engine.now_s, 0.0),
        )
        self._new, self._gone, self._run, self._changed_machines = [], [], [], {}
        placed = self.network.round(changes)
        took_s = placed.solve_s + self.cluster.costs.round_s(
            nodes=placed.nodes,
            tasks=len(changes.tasks),
            run=len(changes.tasks_run),
            gone=len(changes.tasks_gone) + len(changes.machines),
        )
        return placed, round(took_s, 9)

    def _end_round(self, placed: Placed) -> None:
        self._busy = False
        self._carry_out(placed)

    def _carry_out(self, placed: Placed) -> None:
        """Start, move and stop tasks; those that have ended meanwhile are left alone."""
        now_s = self.engine.now_s
        for name in placed.stopped:
            task = self.tasks.get(name)
            if task is not None and task.machine is not None:
                self._stop(task)
        for name, machine in placed.placed:
            task = self.tasks.get(name)
            if task is None or task.machine == machine:
                continue
            if task.machine is not None:
                self._interrupt(task)
                self.moved += 1
            if task.placed_s is None:
                task.placed_s = now_s
            self._start(task, machine, now_s)
            if self.cluster.keeps_running:
                self._run.append((name, machine))
            else:
                self._gone.append(name)

    def _stop(self, task: SimulatedTask) -> None:
        """A task is to wait, and goes on later."""
        self._interrupt(task)
        self.stopped += 1
        self._new.append(task.as_known(since_s=self.engine.now_s, runs_on=None))

    def _interrupt(self, task: SimulatedTask) -> None:
        """What it has done so far is not lost."""
        assert task.machine is not None
        task.duration_s -= self.engine.now_s - task.runs_since_s
        task.machine = None
        task.starts += 1
