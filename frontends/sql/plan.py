"""Plans, to which queries are compiled: stages, each with the SQL that its tasks run."""

from __future__ import annotations

from dataclasses import dataclass, field

Outputs = tuple[tuple[str, str], ...]
"""(name, DuckDB's type) of each column of a result, in order; the type is empty if the column is always NULL."""
BUCKET = "__bucket"
"""The column that says which task of the next stage a row goes to; no result has it."""


def input_table(stage: str) -> str:
    """The name by which a fragment's SQL calls the result of an earlier stage."""
    return f"stage {stage}"


@dataclass(frozen=True, slots=True)
class Stage:
    """Tasks that run the same SQL, each on data of its own.

    name: unique in its plan; the part before a dot names the subquery that the stage is for.
    sql: in DuckDB's dialect. It names tables of the dataset, and results of earlier stages by `input_table`.
    after: the stages whose results it reads.
    partitioned: a task for each partition, on a node that holds it (task-level constraint, §3.3); else see `tasks`.
    reads_tables: whether it reads tables of the dataset that every node with a part of it holds.
    tasks: how many tasks a stage that is not partitioned has. With several, each takes its bucket of all its inputs.
    buckets: into how many buckets its tasks cut their results, by the column `BUCKET`; 1: they do not.
    """

    name: str
    sql: str
    after: tuple[str, ...] = ()
    partitioned: bool = False
    reads_tables: bool = False
    tasks: int = 1
    buckets: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages in an order in which they can run; the last has one task, which returns the query's result.

    outputs: the result's columns. tables: the dataset's tables that are read, as the query was compiled.
    """

    stages: tuple[Stage, ...]
    outputs: Outputs
    tables: frozenset[str] = field(default_factory=frozenset)

    def stage(self, name: str) -> Stage:
        """The stage of this name."""
        return next(stage for stage in self.stages if stage.name == name)
