"""The policy that keeps tasks apart that hurt each other (paper 004, §2.3.1.2 and §5.3.1; Schwarzkopf's §7.3).

A table says by how much a task suffers beside others: a row names the task's class, what is beside it, the type of
machine ("" of any), and the penalty for each unit of that. A task is of the first class of the table that is a
resource which it demands, or of which it is expected to use enough (`measured_min`) as tasks of its stage have done; or
of "". Beside it are the placed tasks that the machine has (`tasks`), and what it measures of itself, by name: `cpu`
(CPUs in use), `memory_bytes`, `net_in_bytes_per_s`, `net_out_bytes_per_s`; or what its placed tasks are expected to use
of that together, if it is more: so tasks count before anything of them is measured.

A machine costs the sum of penalty · amount over what is there. Each further task of the same class that goes there in
the same round costs `tasks`' penalty more: the arc is convex, so a round does not put all on the machine that is best
now. Tasks of different classes that are placed in one round do not see each other, as no arc carries both.

The table is a file of JSON (`table_file`), or comes from measured runs: `fitted` finds the penalties that explain best
by how much tasks took longer than alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from scheduler.flow.convex import rising
from scheduler.flow.policies.policy import AGE_S_MAX, Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost
from scheduler.flow.problem import ProblemError

TASKS = "tasks"
"""What is beside a task, if it is the number of other placed tasks."""
ANY_TYPE = ""
KIND = "class"
ROWS_MAX = 1_000
NUMBERS = {"cost", "measured_min"}
FIELDS = {"task", "beside", "machine_type", *NUMBERS}
EXPECTED = {"cpu": "cpu", "memory_bytes": "memory_bytes", "net_in_bytes_per_s": "net_bytes_per_s"}
"""By what machines measure: what tasks are expected to use of that."""
PENALTY_MAX = 1e6
COST_MAX = 10_000_000
"""Of a machine: so costs stay small enough for solvers, whatever is measured."""


@dataclass(frozen=True, slots=True)
class Penalty:
    """A row of the table."""

    task: str
    """The class: a resource that tasks demand; "" of tasks that demand none of the table's."""
    beside: str
    """`TASKS`, or the name of a load."""
    cost: float
    """For each unit of what is beside."""
    machine_type: str = ANY_TYPE
    measured_min: float = math.inf
    """Of the resource: tasks that do not demand it, but are expected to use so much, are of the class, too."""

    def __post_init__(self) -> None:
        if not 0 <= self.cost <= PENALTY_MAX:
            raise ProblemError(
                f"the penalty of {self.task!r} beside {self.beside!r} is {self.cost}; allowed are 0 to {PENALTY_MAX:g}"
            )
        if not self.measured_min > 0:
            raise ProblemError(
                f"measured_min of {self.task!r} beside {self.beside!r} is {self.measured_min}; allowed are numbers "
                "above 0"
            )


DEFAULT_TABLE = (
    Penalty("net_bytes_per_s", TASKS, 100, measured_min=10e6),
    Penalty("net_bytes_per_s", "net_in_bytes_per_s", 1e-6),
    Penalty("net_bytes_per_s", "net_out_bytes_per_s", 1e-6),
    Penalty("", TASKS, 100),
    Penalty("", "cpu", 100),
)
"""Tasks that demand bandwidth suffer from traffic (a gigabyte a second is as ten tasks), others from busy CPUs."""


@dataclass
class CoLocation:
    """See the module's docstring."""

    table_file: str = ""
    """JSON: a list of objects with `task`, `beside`, `cost` and, if need be, `machine_type` and `measured_min`. "": as
    `table` says."""
    table: Sequence[Penalty] = DEFAULT_TABLE
    type_attribute: str = "machine_type"
    """The attribute of a machine that says of which type it is."""
    waiting_cost: int = 2 * COST_MAX
    waiting_cost_per_s: float = 1.0
    _penalties: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict, init=False)
    """By class and type of machine: what each unit of what is beside costs."""
    _classes: dict[str, float] = field(default_factory=dict, init=False)
    """With how much of them a task has to use that does not demand them."""
    _machines: dict[str, Machine] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name in ("waiting_cost", "waiting_cost_per_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ProblemError(f"{name} is {getattr(self, name)}; allowed are numbers from 0")
        rows = table_of(Path(self.table_file)) if self.table_file else self.table
        if len(rows) > ROWS_MAX:
            raise ProblemError(f"the table of penalties has {len(rows):,} rows; allowed are up to {ROWS_MAX:,}")
        for row in rows:
            self._penalties.setdefault((row.task, row.machine_type), {})[row.beside] = row.cost
            if row.task:
                self._classes[row.task] = min(row.measured_min, self._classes.get(row.task, math.inf))

    def see(self, cluster: Cluster) -> None:
        """Which machines there are, and what goes on there."""
        self._machines = dict(cluster.machines)

    def task(self, task: Task) -> TaskCosts:
        """To the aggregator of its class; to stay costs nothing more."""
        waited = int(self.waiting_cost_per_s * min(task.waited_s, AGE_S_MAX))
        return TaskCosts(
            [ArcTo(Aggregator(KIND, self.class_of(task)), 0)],
            waiting=self.waiting_cost + waited,
            waiting_per_s=self.waiting_cost_per_s,
            running_per_s=0.0,
            asks_again=(),
        )

    def machine_cost(self, machine: Machine) -> UnitCost:
        """Nothing beside the arcs to it."""
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """To all machines."""
        return [self._arc(machine, aggregator.name) for machine in self._machines.values()]

    def machine_arcs(self, machine: Machine) -> Mapping[Aggregator, ArcTo]:
        """From the aggregators of all classes."""
        self._machines[machine.name] = machine
        return {Aggregator(KIND, name): self._arc(machine, name) for name in (*self._classes, "")}

    def class_of(self, task: Task) -> str:
        """The first class of the table that is a resource which the task demands, or of which it uses enough, or ""."""
        for name, measured_min in self._classes.items():
            if task.demand.get(name, 0) > 0 or task.expected.get(name, 0) >= measured_min:
                return name
        return ""

    def penalty(self, task_class: str, beside: str, machine_type: str = ANY_TYPE) -> float:
        """For each unit of what is beside: the row of that type of machine, else the one of any."""
        of_type = self._penalties.get((task_class, machine_type), {})
        return of_type.get(beside, self._penalties.get((task_class, ANY_TYPE), {}).get(beside, 0.0))

    def _arc(self, machine: Machine, task_class: str) -> ArcTo:
        machine_type = machine.attributes.get(self.type_attribute, ANY_TYPE)
        beside = {**machine.load, TASKS: float(machine.running)}
        for name, resource in EXPECTED.items():
            if resource in machine.expected:
                beside[name] = max(beside.get(name, 0.0), machine.expected[resource])
        hurt = sum(self.penalty(task_class, name, machine_type) * amount for name, amount in beside.items())
        step = int(self.penalty(task_class, TASKS, machine_type))
        return ArcTo(machine.name, rising(int(min(max(hurt, 0.0), COST_MAX)), step), machine.slots)


# ---- where tables come from ------------------------------------------------------------------------------------------


def table_of(path: Path) -> list[Penalty]:
    """The rows of a file; `ProblemError` that names the file and the row if there is anything wrong with it."""
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ProblemError(f"table_file {path} cannot be read: {error}") from None
    if not isinstance(rows, list):
        raise ProblemError(f"table_file {path} has a {type(rows).__name__}; allowed is a list of objects")
    return [_row(path, number, row) for number, row in enumerate(rows, 1)]


def _row(path: Path, number: int, row: object) -> Penalty:
    where = f"table_file {path}, row {number}"
    if not isinstance(row, dict) or not {"task", "beside", "cost"} <= row.keys() <= FIELDS:
        raise ProblemError(
            f"{where}: allowed is an object with task, beside, cost and, if need be, machine_type and measured_min"
        )
    for name, value in row.items():
        allowed = int | float if name in NUMBERS else str
        if isinstance(value, bool) or not isinstance(value, allowed):
            what = "a number" if name in NUMBERS else "text"
            raise ProblemError(f"{where}: {name} is {value!r}; allowed is {what}")
    measured_min = float(row.get("measured_min", math.inf))
    try:
        return Penalty(row["task"], row["beside"], float(row["cost"]), row.get("machine_type", ANY_TYPE), measured_min)
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from None


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A task that ran beside others."""

    task: str
    """Its class."""
    beside: Mapping[str, float]
    """What was there, on average over the run: tasks and loads by name."""
    took_s: float
    alone_s: float
    """What it takes on an otherwise idle machine of this type."""
    machine_type: str = ANY_TYPE


def fitted(runs: Iterable[MeasuredRun], *, cost_of_doubling: float = 1_000.0) -> list[Penalty]:
    """The table that explains best by how much tasks took longer: least squares for each class and type of machine.

    A task that takes twice as long costs `cost_of_doubling`. What seems to make tasks faster costs nothing.
    """
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        if not (run.alone_s > 0 and math.isfinite(run.took_s)):
            raise ProblemError(f"a run of {run.task!r} took {run.took_s} s, {run.alone_s} s alone; allowed are above 0")
        groups.setdefault((run.task, run.machine_type), []).append(run)
    table = []
    for (task_class, machine_type), members in groups.items():
        names = sorted({name for run in members for name in run.beside})
        slower = np.array([max(0.0, run.took_s / run.alone_s - 1) for run in members])
        for name, factor in _non_negative(names, members, slower).items():
            table.append(Penalty(task_class, name, min(cost_of_doubling * factor, PENALTY_MAX), machine_type))
    return table


def _non_negative(names: Sequence[str], runs: Sequence[MeasuredRun], slower: np.ndarray) -> dict[str, float]:
    """Least squares; what gets a factor below 0 is left out, and the others are found again."""
    left = list(names)
    while left:
        amounts = np.array([[run.beside.get(name, 0.0) for name in left] for run in runs])
        scale = np.maximum(np.abs(amounts).max(axis=0), np.finfo(float).tiny)
        factors = np.linalg.lstsq(amounts / scale, slower, rcond=None)[0] / scale
        worst = int(np.argmin(factors))
        if factors[worst] >= 0:
            return dict(zip(left, (float(factor) for factor in factors), strict=True))
        del left[worst]
    return {}
