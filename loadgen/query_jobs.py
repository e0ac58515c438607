"""Queries of the `sql` framework as jobs that are submitted many times, and the answers that they must have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparrow_py.job import JobSpec, stage_of

TOLERANCE = 1e-9
"""Relative, of floating-point numbers: sums may be added up in another order."""
Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class QueryJobs:
    """specs: by label, the query's job. answers: by label, the rows of its answer when it ran alone."""

    specs: Mapping[str, JobSpec]
    answers: Mapping[str, Rows]

    def spec(self, label: str, job_id: str, probe_ratio: float) -> JobSpec:
        """The query as a job of this id."""
        spec = self.specs[label]
        stages = [replace(stage, probe_ratio=probe_ratio) for stage in spec.stages]
        return replace(spec, stages=stages, job_id=job_id, name=label)

    def is_right(self, label: str, task: int, result: Any) -> bool:
        """Whether the result of this task of the query is as it was when the query ran alone; those of stages that
        others come after are not looked at."""
        spec = self.specs[label]
        name = stage_of(spec, task).name
        if any(name in stage.after for stage in spec.stages):
            return True
        return isinstance(result, bytes) and same_rows(rows_of(result), self.answers[label])


def warm_up() -> None:
    """Import what decodes answers, and decode one: else the first answer would keep due jobs waiting."""
    import pyarrow as pa

    from frontends.sql.results import encode_table

    rows_of(encode_table(pa.table({"one": [1]})))


def rows_of(content: bytes) -> Rows:
    """The rows of a query's result, as its last task returns it."""
    from frontends.sql.results import decode_tables

    table = decode_tables([content])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def same_rows(one: Rows, other: Rows) -> bool:
    """Whether these are the same rows in any order, floats within `TOLERANCE`."""
    if len(one) != len(other):
        return False
    return all(map(_same_row, one, other)) or all(map(_same_row, sorted(one, key=repr), sorted(other, key=repr)))


def _same_row(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(_same_value, one, other))


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12)
    return bool(one == other)
