"""What a program declares: datasets and stages, and which of their partitions belong together.

A `Definition` is sent once to workers. Ids are given in order of declaration. Dataset 0, `HOME`, has one partition and
no content: stages that touch nothing else of one partition run where it is, barriers too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from frontends.dataflow.captured import Watched
from frontends.dataflow.errors import InvalidProgram

HOME = 0
DATASETS_MAX = 10_000
STAGES_MAX = 10_000
STALE_NAMED = 20
"""Stages at most, besides the one that was called, that an error says are to be defined again."""


class DatasetKind(StrEnum):
    PARTITIONED = "partitioned"
    SINGLE = "single"
    REPLICATED = "replicated"
    """A copy at each worker that reads it."""


class StageKind(StrEnum):
    COMPUTE = "stage"
    SCATTER = "scatter"
    GATHER = "gather"
    SIGNAL = "signal"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class Given:
    """A dataset's first values are those that the program gave."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Filled:
    """They are arrays of one value; a shape for each partition."""

    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    fill: Any


@dataclass(frozen=True, slots=True)
class Loaded:
    """They are made by a function of the partition's index, where the partition is."""

    function: Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    id: int
    name: str
    kind: DatasetKind
    partitions: int
    source: Given | Filled | Loaded

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.partitions} {'partition' if self.partitions == 1 else 'partitions'})"


@dataclass(frozen=True, slots=True)
class StageSpec:
    """`touches` and the copies say what the stage's task on partition i works on; `partitions`, how many tasks."""

    id: int
    name: str
    kind: StageKind
    function: Callable[..., Any] | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    partitions: int
    touches: tuple[int, ...]
    """Datasets whose partition i the task on i reads or writes."""
    copies_read: tuple[int, ...] = ()
    copies_written: tuple[int, ...] = ()
    parameters: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    """Parameters without a default."""
    to: int | None = None
    """Of a scatter: the dataset whose partitions are the destinations."""
    scatter: int | None = None
    """Of a gather: the stage whose chunks it takes."""
    watched: tuple[Watched, ...] = field(default=(), compare=False)
    """What the function captured and may not change."""
    is_compiled: bool = False
    """Whether the function runs as machine code, consecutive tasks of a partition as one."""
    reduces: str = ""
    """Of the scatter and the gather of a reduce: its name."""
    ends_block: bool = field(init=False)
    opens: int = field(init=False)
    """By how many a call of it changes the number of scatters whose chunks are still to be gathered."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends_block", self.kind in (StageKind.SIGNAL, StageKind.BARRIER))
        opens = (self.kind is StageKind.SCATTER) - (self.kind is StageKind.GATHER)
        object.__setattr__(self, "opens", opens)

    @property
    def group_dataset(self) -> int:
        """A dataset of the group whose partitions say where the tasks run."""
        return self.touches[0]


@dataclass(slots=True)
class Definition:
    """All datasets and stages of a program."""

    datasets: list[DatasetSpec] = field(default_factory=list)
    stages: list[StageSpec] = field(default_factory=list)
    version: int = 0
    """Rises when a stage is defined anew: what was derived from the definition is then derived again."""
    groups: list[int] = field(default_factory=list)
    """The group of each dataset, which is the least dataset of the group; -1 of replicated and of replaced ones."""
    replaced: dict[int, str] = field(default_factory=dict)
    """Datasets in whose place others were made, and how errors call them. They have no values any more."""
    gone: dict[int, None] = field(default_factory=dict)
    """Stages without a name in whose place others were made, under other numbers: programs cannot call them."""

    def __post_init__(self) -> None:
        if not self.datasets:
            self.add_dataset("home", DatasetKind.SINGLE, 1, Given((None,)))

    def add_dataset(
        self, name: str, kind: DatasetKind, partitions: int, source: Given | Filled | Loaded
    ) -> DatasetSpec:
        if len(self.datasets) >= DATASETS_MAX:
            raise InvalidProgram("datasets", len(self.datasets) + 1, f"up to {DATASETS_MAX:,}")
        spec = DatasetSpec(len(self.datasets), name, kind, partitions, source)
        self.datasets.append(spec)
        self.groups.append(-1 if kind is DatasetKind.REPLICATED else spec.id)
        return spec

    def replace_dataset(self, dataset: int, called: str) -> None:
        """Another dataset was made in place of this one, whose group goes on without it."""
        self.replaced[dataset] = called
        group, self.groups[dataset] = self.groups[dataset], -1
        left = self.members(group) if group >= 0 else ()
        for member in left:
            self.groups[member] = left[0]
        self.version += 1

    def release(self, dataset: int) -> None:
        """Forget what the program gave a dataset, or how it is made."""
        self.datasets[dataset] = replace(self.datasets[dataset], source=Given(()))

    def as_it_is(self, datasets: list[DatasetSpec] | None = None, stages: list[StageSpec] | None = None) -> Definition:
        """A copy of its own, perhaps with other forms of its datasets and stages."""
        return Definition(
            list(self.datasets) if datasets is None else datasets,
            list(self.stages) if stages is None else stages,
            self.version,
            list(self.groups),
            dict(self.replaced),
            dict(self.gone),
        )

    def add_stage(self, spec: StageSpec) -> StageSpec:
        """The stage with its id; in place of one that has its name, if there is one.

        Stages of the same name are replaced, so that a cell of a notebook can be run again.
        """
        before = next((stage for stage in self.stages if stage.name == spec.name), None)
        if before is None:
            if len(self.stages) >= STAGES_MAX:
                raise InvalidProgram("stages", len(self.stages) + 1, f"up to {STAGES_MAX:,}")
            spec = replace(spec, id=len(self.stages))
            self.stages.append(spec)
        else:
            if before.kind is not spec.kind:
                raise InvalidProgram(
                    "name",
                    spec.name,
                    "",
                    f"{before.kind} {spec.name} cannot be defined again as a {spec.kind}: state another name=",
                )
            spec = replace(spec, id=before.id)
            self.stages[before.id] = spec
            self.gone.pop(before.id, None)
        self.version += 1
        self._join(spec)
        return spec

    def _join(self, spec: StageSpec) -> None:
        """Datasets that a stage touches together are of one group from now on, also if the stage is replaced."""
        joined = {self.groups[dataset] for dataset in spec.touches}
        least = min(joined)
        if len(joined) > 1:
            self.groups = [least if group in joined else group for group in self.groups]

    def group_of(self, dataset: int) -> int:
        return self.groups[dataset]

    def group_partitions(self) -> dict[int, int]:
        """Each group and how many partitions it has."""
        return {group: self.datasets[group].partitions for group in sorted(set(self.groups)) if group >= 0}

    def members(self, group: int) -> tuple[int, ...]:
        """The datasets of a group."""
        return tuple(dataset for dataset, other in enumerate(self.groups) if other == group)

    def copies(self) -> tuple[int, ...]:
        """The replicated datasets that are not replaced."""
        copies = (spec.id for spec in self.datasets if spec.kind is DatasetKind.REPLICATED)
        return tuple(copy for copy in copies if copy not in self.replaced)

    def names(self, datasets: Sequence[int]) -> str:
        return ", ".join(str(self.datasets[dataset]) for dataset in datasets)


# ---- checks of declarations -----------------------------------------------------------------------


def called(stage: StageSpec) -> str:
    """What an error calls a stage: of a reduce the user knows neither its scatter nor its gather."""
    return f"reduce {stage.reduces}" if stage.reduces else f"{stage.kind} {stage.name}"


def check_datasets_are_there(definition: Definition, stage: StageSpec) -> None:
    """Refuse a stage that refers to a dataset which was made anew, or a gather whose scatter sends elsewhere now. The
    error names the other stages of which that holds, so that all their cells can be run at once."""
    why = _stale(definition, stage)
    if not why:
        return
    there = (other for other in definition.stages if other.id not in definition.gone)
    stale = (called(other) for other in there if _stale(definition, other))
    others = [name for name in dict.fromkeys(stale) if name != called(stage)]
    if others:
        more = len(others) - STALE_NAMED
        named = others[:STALE_NAMED] + ([f"and {more} more"] if more > 0 else [])
        why += f". Others that are to be defined again: {', '.join(named)}"
    raise InvalidProgram("stage", stage.name, "", why)


def _stale(definition: Definition, stage: StageSpec) -> str:
    """Why the stage is to be defined again; empty if it need not be."""
    for dataset in [*stage.reads, *stage.writes, *stage.touches, *(() if stage.to is None else (stage.to,))]:
        if dataset in definition.replaced:
            return (
                f"{called(stage)} uses dataset {definition.replaced[dataset]}, which was made anew: run the cell that "
                "defines the stage again; to have both datasets, give them different names by name="
            )
    scatter = None if stage.scatter is None else definition.stages[stage.scatter]
    if scatter is not None and scatter.to is not None and scatter.to not in stage.touches:
        return (
            f"{called(stage)} takes the chunks of {called(scatter)}, which was defined again and sends them to "
            f"{definition.datasets[scatter.to].name} now: run the cell that defines the gather again"
        )
    return ""


def one_partitioning(definition: Definition, stage: str, datasets: Sequence[int]) -> int:
    """How many partitions these have, replicated ones aside; refused if they differ."""
    counted = [spec for spec in map(definition.datasets.__getitem__, datasets) if spec.kind != DatasetKind.REPLICATED]
    if len({spec.partitions for spec in counted}) > 1:
        raise InvalidProgram(
            "reads and writes",
            None,
            "",
            f"stage {stage} works on different partitionings: {', '.join(map(str, counted))}; a stage reads and writes "
            "datasets with the same number of partitions, and replicated ones; a scatter and a gather move data "
            "between partitionings",
        )
    return counted[0].partitions if counted else 1


def check_distinct(definition: Definition, stage: str, reads: Sequence[int], writes: Sequence[int]) -> None:
    """Each dataset is named once: one argument of the function is one array."""
    named = [*reads, *writes]
    for dataset in named:
        if named.count(dataset) > 1:
            raise InvalidProgram(
                "reads and writes",
                definition.datasets[dataset].name,
                "",
                f"stage {stage} names {definition.datasets[dataset].name} twice; what a stage writes it may read, too, "
                "so name it in writes alone",
            )


def split_datasets(
    definition: Definition, stage: str, reads: Sequence[int], writes: Sequence[int], also: Sequence[int] = ()
) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Partitions of a stage's tasks, the datasets they touch, copies they read, copies they write."""
    check_distinct(definition, stage, reads, writes)
    partitions = one_partitioning(definition, stage, [*reads, *writes, *also])

    def is_copy(dataset: int) -> bool:
        return definition.datasets[dataset].kind is DatasetKind.REPLICATED

    written = tuple(filter(is_copy, writes))
    touched = tuple(dict.fromkeys(dataset for dataset in [*reads, *writes, *also] if not is_copy(dataset)))
    if written and partitions > 1:
        raise InvalidProgram(
            "writes",
            definition.datasets[written[0]].name,
            "",
            f"stage {stage} has {partitions} tasks, which would all write {definition.datasets[written[0]].name}, of "
            "which there is one value: write replicated datasets in a stage that reads and writes single ones, after "
            "a reduce",
        )
    return partitions, touched or (HOME,), tuple(filter(is_copy, reads)), written


def signature_of(stage: str, function: Callable[..., Any], positional: Sequence[str]) -> tuple[set[str], set[str]]:
    """Parameters that a call may state, and those it has to; refused if the function does not take the arrays."""
    if not callable(function):
        raise InvalidProgram("function", function, "a function")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidProgram("function", None, "", f"stage {stage} is async; allowed: a function without async")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Of some functions in C it is not known.
        raise InvalidProgram(
            "function", None, "", f"stage {stage}: it is not known what {function!r:.80} takes; allowed: a function in "
            "Python, which may call it"
        ) from None  # fmt: skip
    taken, parameters, required = 0, set(), set()
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            taken += 1
        elif parameter.kind is parameter.KEYWORD_ONLY:
            parameters.add(parameter.name)
            if parameter.default is parameter.empty:
                required.add(parameter.name)
        else:
            raise InvalidProgram(
                "function", None, "", f"stage {stage} takes {parameter}; allowed: arguments that are named"
            )
    if taken != len(positional):
        raise InvalidProgram(
            "function",
            None,
            "",
            f"stage {stage} takes {taken} positional {'argument' if taken == 1 else 'arguments'}, and is handed "
            f"{len(positional)}: {', '.join(positional) or 'none'} (reads, then writes; parameters come after *)",
        )
    return parameters, required


def check_loader(name: str, function: Callable[..., Any]) -> None:
    """Refuse a function that does not make a partition of its index."""
    if not callable(function):
        raise InvalidProgram("function", function, "a function of a partition's index")
    try:
        inspect.signature(function).bind(0)
    except TypeError as error:
        raise InvalidProgram(
            "function", None, "", f"load {name} is called with one argument, the partition's index: {error}"
        ) from None
    except ValueError:  # Some functions in C do not say what they take.
        return
