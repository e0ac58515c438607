"""What an engine is: it says which jobs it can do, and writes each as a Python script that runs by itself.

A module of this package that has an `ENGINE`, an instance of a subclass of `Engine`, is an engine; nothing else names
it. Such a module imports nothing heavy: scripts do, in the process that runs them.

A job is a DAG by itself (`Dag.subset`). Its `Scan`s and `Input`s are Parquet files, and so are its results. A script
has

- `run(inputs, outputs)`: {name: path of a Parquet file}, of each `Scan` and `Input`, and of each result, by the names
  of the *relations* (two scans of one table have two names). A warm host process calls it again and again, so it leaves
  nothing behind but what makes the next call faster;
- the rest (head, arguments, `main`), which `scripts.script` adds.

What a script keeps to:

- files of scans may have more columns than the relation, in another order, and columns of other Arrow types that stand
  for one of the five (`tables.type_of_field`): the script picks and casts. `table_files.check_columns` has made sure
  before that the columns are there and can be cast. Files of `Input`s are exactly `tables.arrow_schema`;
- a result's file has exactly the columns, names and types of `tables.arrow_schema`. It is written beside the path
  given, then renamed (`os.replace`), so that a file is there whole or not at all. If the result is a `Sort`, its rows
  have that order; else no order of rows means anything. A result may be a `Scan`, `Values` or `Input` itself;
- a WHILE that exceeds its iterations raises `IterationsExceeded(loop, iterations)`, a class that the script defines
  (`scripts.ITERATIONS_EXCEEDED`): whoever runs a script knows it by its name;
- a script reads `WORKFLOW_THREADS` (`scripts.THREADS`) for how many threads to use, or `Engine.environment` sets the
  engine's own variable.

docs/workflow-semantics.md says what every operator means. An engine compensates where it differs, or declares the
operator inexpressible.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import importlib.metadata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from frontends.workflow.errors import EngineMissing, Inexpressible
from frontends.workflow.ir.dag import BlackBox, Dag, Operator, While
from frontends.workflow.jobs.map_joins import NONE_SMALL

THREADS_VARIABLE = "WORKFLOW_THREADS"
"""The environment variable that says how many threads a script may use."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Switches of what makes generated code fast (thesis, §3.4); no result depends on them.

    A rule that has no meaning for an engine changes nothing there; `Engine.unheeded` says why.
    """

    merge: bool = True
    """Operators of a job are one program of the engine (§3.4.1); off: each is a step by itself, whose whole relation is
    made before the next one begins."""
    share_scans: bool = True
    """Operators that work on a row at a time are one pass over the data, and a table is read once for all its readers
    (§3.4.3); off: a pass for each operator, and the file is read for each reader."""
    infer_types: bool = True
    """A relation is made in the form that its reader needs (§3.4.4), as keyed rows; off: it is put into that form by
    a step of its own."""
    idioms: bool = True
    """A loop that is a graph computation becomes one, in engines for these (§3.4.2); off: they take no job."""
    part_keys: bool = True
    """An engine whose jobs have one shuffle may place rows by a part of an operator's key, so that one shuffle serves
    operators whose keys differ; off: it takes no such job."""
    map_joins: bool = True
    """An engine whose jobs have one shuffle may join without one where a side is known to be small, which each mapper
    reads whole (`jobs.map_joins`); off: it shuffles for each join."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the switches."""
        return tuple(one.name for one in dataclasses.fields(cls))

    def off(self, *names: str) -> Rules:
        """These rules, but those of the names off."""
        return dataclasses.replace(self, **dict.fromkeys(names, False))


ALL_RULES = Rules()


class Engine(abc.ABC):
    """An engine. It holds no state: what is warm is in the process that runs scripts."""

    name: ClassVar[str]
    """The name, by which options and nodes' attributes call it: that of its module."""
    packages: ClassVar[tuple[str, ...]]
    """The distributions that scripts need beside pyarrow; the first one's version is the engine's."""
    modules: ClassVar[tuple[str, ...]] = ()
    """What a host process imports before the first script; `packages` if empty."""
    extra: ClassVar[str] = "workflow"
    """The extra of ours that brings the packages."""
    unheeded: ClassVar[Mapping[str, str]] = {
        "idioms": "it treats graph computations as any other job",
        "part_keys": "its jobs may have any number of shuffles, or none",
        "map_joins": "its jobs may have any number of shuffles, or none",
    }
    """Rules that change none of the engine's scripts: {name: why}."""
    needed: ClassVar[tuple[str, ...]] = ()
    """Rules without which the engine takes no job."""
    merges_all: ClassVar[bool] = False
    """Whether it takes each job whose operators it takes one by one: then plans need not ask about jobs."""

    def version(self) -> str | None:
        """The version that is installed, None if anything is missing. Imports nothing."""
        if self.missing_packages() or self.missing_program() is not None:
            return None
        return importlib.metadata.version(self.packages[0])

    def missing_packages(self) -> tuple[str, ...]:
        """Which of the packages are not installed."""
        return tuple(package for package in self.packages if not _is_installed(package))

    def missing_program(self) -> str | None:
        """What scripts need beside packages and is not here, and how it is installed; None if nothing is missing."""
        return None

    def check_installed(self) -> None:
        """`EngineMissing` says what to install."""
        if self.version() is None:
            raise EngineMissing(self.name, self.missing_packages(), self.extra, self.missing_program())

    @abc.abstractmethod
    def inexpressible(self, job: Dag) -> str | None:
        """Why the engine cannot do the job, in words that name the operator; None if it can."""

    def refused(self, job: Dag, rules: Rules, small: Collection[str] = NONE_SMALL) -> str | None:
        """Why the engine cannot do the job under these rules; None if it can.

        small: relations that are surely so small that each part of a job may read them whole; most engines take the
        same jobs whatever is small.
        """
        return self.barred(rules) or self.inexpressible(job)

    def unmergeable(
        self, dag: Dag, names: Sequence[str], rules: Rules = ALL_RULES, small: Collection[str] = NONE_SMALL
    ) -> str | None:
        """Why operators of a DAG, each of which it takes by itself, cannot be one job; None if they can.

        names: with sources first, without a part of a loop.
        """
        return None if self.merges_all else self.refused(dag.subset(names), rules, small)

    def generate(self, job: Dag, rules: Rules = ALL_RULES, small: Collection[str] = NONE_SMALL) -> str:
        """The script; `Inexpressible` if the engine cannot do the job, or not without a rule that is off.

        It makes the right rows even if what is said to be small is large.
        """
        reason = self.refused(job, rules, small)
        if reason is not None:
            raise Inexpressible(self.name, reason)
        return self.script_of_sizes(job, rules, small)

    def read_whole(self, job: Dag, rules: Rules, small: Collection[str]) -> dict[str, str]:
        """{join: the relation that each part of the job reads whole for it}."""
        return {}

    def barred(self, rules: Rules) -> str | None:
        """Why the engine takes no job under these rules; None if it takes some."""
        missing = [name for name in self.needed if not getattr(rules, name)]
        return f"{self.name} takes nothing while the rule {missing[0]} is off" if missing else None

    @abc.abstractmethod
    def script(self, job: Dag, rules: Rules) -> str:
        """The script of a job that is expressible."""

    def script_of_sizes(self, job: Dag, rules: Rules, small: Collection[str]) -> str:
        """The same; an engine for whose scripts it matters what is small overrides this."""
        return self.script(job, rules)

    def environment(self, threads: int) -> dict[str, str]:
        """Environment variables of a process that is to use so many threads."""
        return {THREADS_VARIABLE: str(threads)}

    def warm_up(self) -> None:
        """What a host process does once, before the first script: imports, a session."""
        for module in self.modules or self.packages:
            importlib.import_module(module)


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def all_operators(job: Dag) -> Iterator[Operator]:
    """The operators of the job, and those of the bodies of its loops."""
    for operator in job.operators:
        yield operator
        if isinstance(operator, While):
            yield from all_operators(operator.body)


def described(operator: Operator) -> str:
    """An operator in a sentence: its keyword, its relation, and its place if it is known."""
    return f"{operator.keyword} {operator.name}" + (f" ({operator.at})" if operator.at is not None else "")


def beyond(engine: str, job: Dag, *, without: Collection[type[Operator]]) -> str | None:
    """Why not, if the job has an operator of one of these classes, or a black box of another engine."""
    for operator in all_operators(job):
        if type(operator) in without:
            return f"{engine} cannot do {described(operator)}"
        if isinstance(operator, BlackBox) and operator.engine != engine:
            return f"{described(operator)} is code of {operator.engine}"
    return None


def shared_relations(job: Dag) -> frozenset[str]:
    """Names of the relations that more than one operator reads, or one twice, or that are read and results, too.

    A relation is evaluated once: sums of doubles that are computed twice may differ.
    """
    uses: dict[str, int] = dict.fromkeys(job.results, 1)
    for operator in job.operators:
        for name in operator.inputs:
            uses[name] = uses.get(name, 0) + 1
    return frozenset(name for name, count in uses.items() if count > 1)
