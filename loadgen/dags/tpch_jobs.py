"""TPC-H's queries as jobs: the stages that were measured, at a scale of which a cluster has something to do.

A stage has a task for each 128 MB that it reads. What it takes at another scale follows from how its rows and bytes
grew between the two scales that were measured. A task is one thread; it reads its input, and writes and sends what it
hands on, all through its time, which is the measured CPU time times `stretch`, and a start.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loadgen.dags.dag_job import DagJob, DagStage
from loadgen.dags.generators import JOBS_MAX, USERS_MAX
from loadgen.dags.operators import AGGREGATE
from loadgen.dags.paper_tables import TPCH
from loadgen.dags.resources import CPU, DISK_IN, DISK_OUT, MEMORY, NET_IN, NET_OUT, bounded
from loadgen.dags.tpch_profile import MeasuredQuery, MeasuredStage, TpchDags, at_scale, read_tpch_dags
from sparrow_py.errors import InvalidOption

TASK_BYTES = 128e6
"""That a task reads."""
TASKS_MAX = 10_000
"""Of a stage; tasks then read more."""
SCALES = (30.0, 100.0, 300.0, 1000.0)
"""Of the data: queries read some GB to some hundred GB of it (§5.1)."""
SCALE_MAX = 10_000.0
STRETCH = 25.0
"""Times the CPU time of DuckDB: engines that spread queries over a cluster are slower by about that, a task of 128 MB
lasts some seconds, and reads about as large a part of a disk's as it takes of a machine's cores."""
STRETCH_MAX = 1e6
START_S = 1.0
"""Of a task, before it has done anything."""
MEMORY_BYTES = 1e9
"""Of a task's process, beside what the operator was measured to need."""
COMBINED = 1000
"""An aggregate that makes one row of so many is computed where these arise; its own stage puts the parts together."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """A stage at a scale."""

    bytes_in: float
    bytes_out: float
    cpu_s: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class TpchJobs:
    """Random queries of the profile at random ones of these scales. users: who submit jobs in turn."""

    profile: TpchDags = field(default_factory=read_tpch_dags)
    scales: tuple[float, ...] = SCALES
    stretch: float = STRETCH
    users: int = 1

    def __post_init__(self) -> None:
        if not self.scales or not all(0 < scale <= SCALE_MAX for scale in self.scales):
            raise InvalidOption("scales", list(self.scales), f"numbers above 0, up to {SCALE_MAX:g}")
        if not 0 < self.stretch <= STRETCH_MAX:
            raise InvalidOption("stretch", self.stretch, f"a number above 0, at most {STRETCH_MAX:g}")
        if not 1 <= self.users <= USERS_MAX:
            raise InvalidOption("users", self.users, f"a whole number from 1 to {USERS_MAX}")

    def generate(self, seed: int, arrivals_s: Sequence[float]) -> Iterator[DagJob]:
        """A job for each arrival; equal seeds give equal jobs. Every query at every scale comes once before any comes
        again."""
        if not 1 <= len(arrivals_s) <= JOBS_MAX:
            raise InvalidOption("jobs", f"{len(arrivals_s):,}", f"a whole number from 1 to {JOBS_MAX:,}")
        rng = random.Random(f"{seed} dags {TPCH}")
        made = {(name, scale): self.stages(name, scale) for name in self.profile.queries for scale in self.scales}
        left: list[tuple[str, float]] = []
        for number, arrival_s in enumerate(arrivals_s):
            if not left:
                left = sorted(made)
                rng.shuffle(left)
            name, scale = left.pop()
            yield DagJob(
                f"{TPCH}-{number}", arrival_s, made[name, scale], f"user{number % self.users}", f"{name} at {scale:g}"
            )

    def stages(self, name: str, scale: float) -> tuple[DagStage, ...]:
        """Those of a query at a scale."""
        query = self.profile.queries[name]
        place = {stage.name: number for number, stage in enumerate(query.stages)}
        sizes = _with_aggregates_combined(query, [self._sizes(stage, scale) for stage in query.stages])
        read = {parent for stage in query.stages for parent in stage.after}
        return tuple(
            self._stage(stage, size, tuple(sorted(place[parent] for parent in stage.after)), stage.name in read)
            for stage, size in zip(query.stages, sizes, strict=True)
        )

    def _sizes(self, stage: MeasuredStage, scale: float) -> _Sizes:
        scales = self.profile.scales
        bytes_in, bytes_out, memory_bytes = (
            at_scale(both, scales, scale) for both in (stage.bytes_in, stage.bytes_out, stage.memory_bytes)
        )
        return _Sizes(bytes_in, bytes_out, stage.cpu_s_per_byte * (bytes_in + bytes_out), memory_bytes)

    def _stage(self, stage: MeasuredStage, size: _Sizes, parents: tuple[int, ...], is_read: bool) -> DagStage:
        tasks = max(1, min(TASKS_MAX, math.ceil(size.bytes_in / TASK_BYTES)))
        duration_s = round(START_S + self.stretch * size.cpu_s / tasks, 3)
        in_per_s, out_per_s = (amount / tasks / duration_s for amount in (size.bytes_in, size.bytes_out))
        demand = {
            CPU: 1.0,
            MEMORY: MEMORY_BYTES + size.memory_bytes / tasks,
            NET_IN if parents else DISK_IN: in_per_s,
            DISK_OUT: out_per_s,
            NET_OUT: out_per_s if is_read else 0.0,
        }
        return DagStage(tasks, duration_s, bounded(demand), parents, stage.kind)


def _with_aggregates_combined(query: MeasuredQuery, sizes: list[_Sizes]) -> list[_Sizes]:
    """Aggregates that leave few of many rows are computed by the tasks of the stage before, unless that has other
    readers, too: then it hands on what they leave, for each of its tasks."""
    sizes = list(sizes)
    place = {stage.name: number for number, stage in enumerate(query.stages)}
    readers = [parent for stage in query.stages for parent in stage.after]
    for number, stage in enumerate(query.stages):
        if stage.kind != AGGREGATE or len(stage.after) > 1 or readers.count(stage.after[0]) > 1:
            continue
        before = place[stage.after[0]]
        if query.stages[before].rows_out[1] < COMBINED * max(1, stage.rows_out[1]):
            continue
        own, above = sizes[number], sizes[before]
        parts = own.bytes_out * max(1, math.ceil(above.bytes_in / TASK_BYTES))
        sizes[before] = _Sizes(
            above.bytes_in, parts, above.cpu_s + own.cpu_s, above.memory_bytes + own.memory_bytes
        )  # fmt: skip
        sizes[number] = _Sizes(parts, own.bytes_out, 0.0, 0.0)
    return sizes
