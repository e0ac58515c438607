"""What a workflow has made, and what it would run: results, plans, times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.ir.dag import Dag
from frontends.workflow.jobs.graph import JobGraph
from frontends.workflow.mapping.partition import Plan, single_engine_plans
from frontends.workflow.mapping.sizes import TableSize, relation_sizes
from frontends.workflow.running import explaining
from frontends.workflow.running.driver import JobRun
from frontends.workflow.running.execution import FailedJob
from frontends.workflow.running.planning import Choice, unmeasured
from frontends.workflow.switches import Switches
from sparrow_py.errors import InvalidRequest


@dataclass(frozen=True)
class Answer:
    """What a workflow has made. tables: its results by name; files: instead of them where files were asked for.

    dag: what ran, with rewrites; jobs: what ran where; failures: jobs that failed and then went elsewhere. seconds:
    from the tables to the results, without the start of a cluster; plan_s: of these until the first plan was there.
    """

    tables: Mapping[str, pa.Table]
    files: Mapping[str, Path]
    dag: Dag
    jobs: tuple[JobRun, ...]
    failures: tuple[FailedJob, ...]
    plan: Plan | None
    seconds: float
    plan_s: float

    def __getitem__(self, name: str) -> pa.Table:
        return self.tables[name]

    @property
    def table(self) -> pa.Table:
        """The only result; `InvalidRequest` if there are several."""
        if len(self.tables) != 1:
            raise InvalidRequest("table", None, "", f"the workflow has the results {', '.join(self.tables)}; name one")
        return next(iter(self.tables.values()))

    def to_pandas(self, name: str | None = None) -> Any:
        """A result, or the only one, as a data frame."""
        return (self.table if name is None else self.tables[name]).to_pandas()

    def text(self) -> str:
        """The jobs that ran, and their times."""
        return explaining.run_text(self.jobs, self.failures, self.seconds)

    def dot(self) -> str:
        """The workflow as it ran, as DOT."""
        return explaining.plan_dot(self.dag, self._groups())

    def html(self, title: str = "workflow") -> str:
        """The same as a page."""
        return explaining.plan_html(title, self.text(), self.dag, self._groups())

    def _groups(self) -> list[tuple[str, frozenset[str]]]:
        return [(f"job {one.job.number}: {one.job.engine}", one.job.names) for one in self.jobs]


@dataclass(frozen=True)
class Explained:
    """A plan that was not run."""

    choice: Choice
    tables: Mapping[str, TableSize]
    switches: Switches

    @property
    def plan(self) -> Plan:
        return self.choice.plan

    def text(self) -> str:
        """Jobs, costs, bounds and runners-up."""
        planner, plan = self.choice.planner, self.plan
        engines = planner.costed_engines()
        sizes = relation_sizes(plan.dag, self.tables, planner.history_sizes)
        singles = single_engine_plans(JobGraph(plan.dag), engines, sizes, planner.cpu_bias)
        return explaining.plan_text(
            plan,
            self.tables,
            planner.history_sizes,
            unmeasured(planner, planner.engines),
            {name: one.cost for name, one in singles.items()},
            self._unheeded(),
            self._read_whole(),
        )

    def _read_whole(self) -> dict[str, str]:
        """{join: what each mapper reads whole for it}."""
        found: dict[str, str] = {}
        for job in self.plan.jobs:
            dag = self.plan.job_dag(job)
            found |= engine_of(job.engine).read_whole(dag, self.switches.rules, self.plan.small)
        return found

    def _unheeded(self) -> list[str]:
        """Of each rule that is off, on which engines of the plan that changes nothing, and why."""
        used = dict.fromkeys(job.engine for job in self.plan.jobs)
        return [
            f"{rule.replace('_', '-')} is off, which changes nothing on {name}: {why}"
            for name in used
            for rule, why in engine_of(name).unheeded.items()
            if not getattr(self.switches.rules, rule)
        ]

    def code(self) -> list[tuple[str, str]]:
        """Of each job a title and its script."""
        return [
            (
                f"job {number} on {job.engine}",
                engine_of(job.engine).generate(self.plan.job_dag(job), self.switches.rules, self.plan.small),
            )
            for number, job in enumerate(self.plan.jobs, 1)
        ]

    def dot(self) -> str:
        """The plan as DOT."""
        return explaining.plan_dot(self.plan.dag, self._groups())

    def html(self, title: str = "workflow") -> str:
        """The plan as a page."""
        return explaining.plan_html(title, self.text(), self.plan.dag, self._groups())

    def _groups(self) -> list[tuple[str, frozenset[str]]]:
        return [(f"job {number}: {job.engine}", job.operators) for number, job in enumerate(self.plan.jobs, 1)]
