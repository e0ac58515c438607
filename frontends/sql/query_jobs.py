"""A plan as a job: a stage for each of the plan's, on the nodes that hold what it reads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from frontends.sql.dataset import Dataset
from frontends.sql.plan import Plan, Stage, input_table
from frontends.sql.tasks import APP, Fragment, Input, encode_task
from sparrow_py.job import JobSpec, StageSpec, TaskSpec

WAIT_FOR_NODES_S = 5.0
"""How long a task waits for a node if no live node holds its partition."""
MAX_ATTEMPTS = 5
NAME_DIGITS = 8
"""Of a hash, in a job's name: of 1,000 queries no two have the same, but for one time in 8,000."""


def job_name(sql: str, dataset: Dataset) -> str:
    """Of a query's job: the same for the same text on the same data. By it and the stages' names an altruistic plane
    knows from earlier runs how long the tasks take."""
    text = f"{dataset.key}\n{sql}"
    return f"query {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:NAME_DIGITS]}"


def query_job(sql: str, plan: Plan, dataset: Dataset, where: Sequence[Sequence[str]]) -> JobSpec:
    """The job of a query. where: for each partition, the nodes that hold it."""
    sizes = {stage.name: len(where) if stage.partitioned else stage.tasks for stage in plan.stages}
    stages = [
        StageSpec(
            [_task_spec(plan, stage, number, sizes, dataset, where) for number in range(sizes[stage.name])],
            name=stage.name,
            after=stage.after,
            app=APP,
            where=[f"{dataset.attribute} exists"] if stage.reads_tables and not stage.partitioned else (),
        )
        for stage in plan.stages
    ]
    name = job_name(sql, dataset)
    return JobSpec(stages=stages, name=name, wait_for_nodes_s=WAIT_FOR_NODES_S, max_attempts=MAX_ATTEMPTS)


def _task_spec(
    plan: Plan, stage: Stage, number: int, sizes: dict[str, int], dataset: Dataset, where: Sequence[Sequence[str]]
) -> TaskSpec:
    bucket = number if stage.tasks > 1 else None
    fragment = Fragment(
        stage.sql,
        str(dataset.directory) if stage.reads_tables else "",
        number if stage.partitioned else None,
        [Input(input_table(name), sizes[name], bucket) for name in stage.after],
        stage.buckets,
        stage is plan.stages[-1],
    )
    preferred = where[number] if stage.partitioned else ()
    return TaskSpec(encode_task(fragment), preferred=preferred, inputs=stage.after)
