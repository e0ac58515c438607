"""Ways to run a workflow: plans of jobs with the code that is generated for them, and code that is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workflow.workloads import Workload
from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines.base import ALL_RULES, Rules
from frontends.workflow.errors import NoEngine
from frontends.workflow.ir.dag import Dag, Input, Scan, While
from frontends.workflow.jobs.graph import JobGraph
from frontends.workflow.jobs.map_joins import NONE_SMALL
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.mapping.history import History
from frontends.workflow.mapping.small_relations import small_relations
from frontends.workflow.running.planning import Choice, choose
from frontends.workflow.switches import REWRITES_OFF, Switches

BY_HAND = Path(__file__).parent / "by_hand"
PlannedJobs = Sequence[tuple[frozenset[str], str]]
"""The operators of each job, and its engine."""


@dataclass(frozen=True)
class Step:
    """A script of an engine. reads, makes: Parquet files by the names that the script has for them. operators: whose
    code it is; none of what is written by hand."""

    engine: str
    source: str
    reads: Mapping[str, Path]
    makes: Mapping[str, Path]
    operators: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Way:
    """Steps, one after the other. results: files that the last ones leave; dag: of which the steps have operators."""

    name: str
    steps: tuple[Step, ...]
    results: tuple[Path, ...]
    dag: Dag | None = None

    @property
    def engines(self) -> tuple[str, ...]:
        """Each once, in the order in which it is needed first."""
        return tuple(dict.fromkeys(step.engine for step in self.steps))


def of_jobs(
    name: str,
    dag: Dag,
    jobs: PlannedJobs,
    files: Mapping[str, Path],
    directory: Path,
    rules: Rules = ALL_RULES,
    small: frozenset[str] = NONE_SMALL,
) -> Way:
    """Generated code of these jobs. files: of the tables; relations between jobs and results go to the directory.

    small: relations that were surely small when the jobs were planned.
    """
    directory.mkdir(parents=True, exist_ok=True)
    kept = {relation: directory / f"{place}.parquet" for place, relation in enumerate(dag.names)}
    steps = []
    for operators, engine in jobs:
        job = dag.subset(operators)
        scans = {scan.name: files[scan.table] for scan in job.of_type(Scan)}
        inputs = {one.name: kept[one.name] for one in job.of_type(Input)}
        source = engine_of(engine).generate(job, rules, small)
        steps.append(Step(engine, source, {**scans, **inputs}, {one: kept[one] for one in job.results}, operators))
    return Way(name, tuple(steps), tuple(kept[result] for result in dag.results), dag)


def choice_among(
    one: Workload, engines: Iterable[str], rates: Calibration, history: History | None = None, *, warm: bool = True
) -> Choice | None:
    """The cheapest plan on these engines; None if they cannot run the workflow."""
    try:
        return choose(
            one.dag, one.sizes, dict.fromkeys(engines, warm), Switches(), history=history, rates=rates
        )  # fmt: skip
    except NoEngine:
        return None


def jobs_on(part: Dag, engine: str, one: Workload) -> list[tuple[frozenset[str], str]] | None:
    """The jobs that cost least for a part of the workflow, as it is, on one engine; None if that cannot run it."""
    switches = Switches.all_but([REWRITES_OFF])
    try:
        plan = choose(part, one.sizes, {engine: True}, switches, rates=Calibration()).plan
    except NoEngine:
        return None
    return [(job.operators, job.engine) for job in plan.jobs]


def planned(name: str, one: Workload, choice: Choice, directory: Path, rules: Rules = ALL_RULES) -> Way:
    """The code of a plan."""
    jobs = [(job.operators, job.engine) for job in choice.plan.jobs]
    return of_jobs(name, choice.plan.dag, jobs, one.files, directory, rules, choice.plan.small)


def by_hand(name: str, workflow: str, engine: str, files: Mapping[str, Path], directory: Path) -> Way | None:
    """The script `by_hand/WORKFLOW_ENGINE.py`, which reads tables by their names and makes `result`; None without."""
    path = BY_HAND / f"{workflow}_{engine}.py"
    if not path.exists():
        return None
    directory.mkdir(parents=True, exist_ok=True)
    result = directory / "by-hand.parquet"
    step = Step(engine.removesuffix("_sql"), path.read_text("utf-8"), files, {"result": result})
    return Way(name, (step,), (result,))


def at_loop(dag: Dag) -> tuple[frozenset[str], frozenset[str]]:
    """The operators before the only loop, and the loop with its results; `ValueError` for other workflows."""
    graph = JobGraph(dag)
    loops = [frozenset(unit) for unit in graph.units if any(isinstance(dag.operator(name), While) for name in unit)]
    if len(loops) != 1:
        raise ValueError(f"a workflow with one loop; this one has {len(loops)}")
    before = graph.names(graph.all) - loops[0]
    if before - set(dag.ancestors(sorted(loops[0]))):
        raise ValueError("a workflow whose last operator is its loop")
    return before, loops[0]


def mixes_at(
    one: Workload, dag: Dag, before: frozenset[str], engines: Sequence[str], directory: Path
) -> Iterator[Way]:  # fmt: skip
    """These operators on each engine that can, and the rest of the workflow on each other one that can."""
    graph = JobGraph(dag)
    rest = graph.names(graph.all) - before
    halves = [
        {name: jobs for name in engines if (jobs := jobs_on(dag.subset(names), name, one)) is not None}
        for names in (before, rest)
    ]
    small = small_relations(dag, one.sizes, {})
    for batch, first in halves[0].items():
        for other, second in halves[1].items():
            if batch != other:
                name, jobs, to = f"{batch} + {other}", [*first, *second], directory / f"{batch}-{other}"
                yield of_jobs(name, dag, jobs, one.files, to, small=small)
