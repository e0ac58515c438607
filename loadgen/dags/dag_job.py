"""A job whose stages are known beforehand: which wait for which, how many tasks they have, what these demand, how long
they take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from loadgen.dags.resources import RESOURCES
from sparrow_py.errors import InvalidOption

STAGES_MAX = 1_000
"""Of a job."""
TASKS_MAX = 100_000
"""Of a job, in all its stages."""
DURATION_S_MAX = 1e9
AMOUNT_MAX = 1e15
"""Of a resource, that a task demands."""
NAME_MAX = 200
"""Characters of a name."""


@dataclass(frozen=True, slots=True)
class DagStage:
    """Tasks that are alike. demand: of each, amounts by the names in `RESOURCES`; what is not named, 0. duration_s: of
    each, if it has that. parents: numbers of the stages that must be over before. kind: of operator, for people."""

    tasks: int
    duration_s: float
    demand: Mapping[str, float]
    parents: tuple[int, ...] = ()
    kind: str = ""

    @property
    def work_s(self) -> float:
        """Of all tasks together."""
        return self.tasks * self.duration_s


@dataclass(frozen=True, slots=True)
class DagJob:
    """A job. stages: each after those that it waits for; the first has number 0. label: what it is one of, for
    reports. `InvalidOption` names a field that cannot be."""

    name: str
    arrival_s: float
    stages: tuple[DagStage, ...]
    user: str = "user0"
    label: str = ""
    _levels: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for field_name, value in (("name", self.name), ("user", self.user)):
            if not 0 < len(value) <= NAME_MAX:
                raise InvalidOption(field_name, value, f"1 to {NAME_MAX} characters")
        if len(self.label) > NAME_MAX:
            raise InvalidOption("label", self.label, f"at most {NAME_MAX} characters")
        if not 0 <= self.arrival_s <= DURATION_S_MAX:
            raise InvalidOption("arrival_s", self.arrival_s, f"seconds from 0 to {DURATION_S_MAX:g}")
        if not 1 <= len(self.stages) <= STAGES_MAX:
            raise InvalidOption("stages", f"{len(self.stages):,} stages", f"1 to {STAGES_MAX:,} stages")
        for number, stage in enumerate(self.stages):
            _check(f"stages[{number}]", number, stage)
        tasks = sum(stage.tasks for stage in self.stages)
        if tasks > TASKS_MAX:
            raise InvalidOption("tasks", f"{tasks:,} in all stages", f"at most {TASKS_MAX:,}")
        levels: list[int] = []
        for stage in self.stages:
            levels.append(1 + max((levels[parent] for parent in stage.parents), default=0))
        object.__setattr__(self, "_levels", tuple(levels))

    @property
    def tasks(self) -> int:
        """In all stages."""
        return sum(stage.tasks for stage in self.stages)

    @property
    def depth(self) -> int:
        """Stages of the longest path."""
        return max(self._levels)

    @property
    def barriers(self) -> int:
        """Stages with several parents (paper 002, §2.2)."""
        return sum(len(stage.parents) > 1 for stage in self.stages)

    @property
    def work_s(self) -> float:
        """Of all tasks together."""
        return sum(stage.work_s for stage in self.stages)

    @property
    def input_work(self) -> float:
        """The part of the work that is in stages that read the job's input: those without parents."""
        return sum(stage.work_s for stage in self.stages if not stage.parents) / self.work_s

    @property
    def critical_path_s(self) -> float:
        """How long the job takes if there is room for all of it."""
        ends_s: list[float] = []
        for stage in self.stages:
            ends_s.append(stage.duration_s + max((ends_s[parent] for parent in stage.parents), default=0.0))
        return max(ends_s)


def _check(where: str, number: int, stage: DagStage) -> None:
    if not 1 <= stage.tasks <= TASKS_MAX:
        raise InvalidOption(f"{where} tasks", stage.tasks, f"a whole number from 1 to {TASKS_MAX:,}")
    if not 0 < stage.duration_s <= DURATION_S_MAX:
        raise InvalidOption(f"{where} duration_s", stage.duration_s, f"seconds above 0, up to {DURATION_S_MAX:g}")
    for resource, amount in stage.demand.items():
        if resource not in RESOURCES:
            raise InvalidOption(f"{where} demand", resource, ", ".join(RESOURCES))
        if not (math.isfinite(amount) and 0 <= amount <= AMOUNT_MAX):
            raise InvalidOption(f"{where} demand {resource}", amount, f"a number from 0 to {AMOUNT_MAX:g}")
    if not any(stage.demand.values()):
        raise InvalidOption(f"{where} demand", dict(stage.demand), "some amount above 0")
    if not all(0 <= parent < number for parent in stage.parents) or len(set(stage.parents)) < len(stage.parents):
        raise InvalidOption(f"{where} parents", list(stage.parents), f"numbers from 0 to {number - 1}, each once")
