"""Which jobs run next: the loop without a cluster, with engines that fail, die, vanish and lie about sizes."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from frontends.workflow.errors import NoEngine
from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.jobs.graph import JobGraph, bits
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.running.cluster_runner import JobEnd
from frontends.workflow.running.driver import execute
from frontends.workflow.running.errors import WorkflowFailed
from frontends.workflow.running.execution import (
    DEATHS_MAX,
    Barred,
    Cause,
    Execution,
    FailedJob,
    Failure,
    Job,
    PlannedJob,
)
from frontends.workflow.running.store import KeptRelation, new_run
from tests.support.workflow_dags import Case, assert_same_results, cases

TWO_SIDES = read(
    """t = SCAN 't' (k INTEGER)
u = SCAN 'u' (k INTEGER)
a = DISTINCT t
b = DISTINCT u
c = UNION ALL a, b
d = DISTINCT c
RESULTS d
"""
)


class OneByOne:
    """Plans each unit as a job of its own, on the first engine that is not barred from it; notes what it is told."""

    def __init__(self, *engines: str) -> None:
        self.engines = engines
        self.told: list[dict[str, TableSize]] = []

    def plan(self, rest: Dag, known: Mapping[str, TableSize], barred: Barred) -> Sequence[PlannedJob]:
        self.told.append(dict(known))
        return [PlannedJob(frozenset(names), self.engine(names, barred)) for names in JobGraph(rest).units]

    def engine(self, names: Sequence[str], barred: Barred) -> str:
        reasons = {one: barred.reason(one, names) for one in self.engines}
        able = [one for one, reason in reasons.items() if reason is None]
        if not able:
            raise NoEngine("X", names[0], {one: str(reason) for one, reason in reasons.items()})
        return able[0]


def made(job: Job, rows: int = 1) -> dict[str, TableSize]:
    return {name: TableSize(rows, 8 * rows, {}) for name in job.dag.results}


def names(jobs: Sequence[Job]) -> list[str]:
    return [next(iter(job.names)) for job in jobs]


def test_jobs_start_when_what_they_read_is_there() -> None:
    execution = Execution(TWO_SIDES, OneByOne("e"))
    first = execution.start()
    assert names(first) == ["a", "b"]
    assert execution.start() == []
    execution.finished(first[0].number, made(first[0]))
    assert execution.start() == []
    execution.finished(first[1].number, made(first[1]))
    (union,) = execution.start()
    assert union.inputs == ("a", "b")
    execution.finished(union.number, made(union))
    (last,) = execution.start()
    assert not execution.over
    execution.finished(last.number, made(last))
    assert execution.over
    assert execution.start() == []


def test_no_more_jobs_at_once_than_allowed() -> None:
    execution = Execution(TWO_SIDES, OneByOne("e"), jobs_at_once=1)
    assert names(execution.start()) == ["a"]
    assert execution.start() == []


def test_the_rest_is_planned_with_the_sizes_that_were_made() -> None:
    planner = OneByOne("e")
    execution = Execution(TWO_SIDES, planner, known={"a": TableSize(5)})
    first = execution.start()
    execution.finished(first[0].number, made(first[0], rows=1_000_000))
    execution.start()
    assert planner.told[-1]["a"].rows == 1_000_000


def test_relations_are_needed_until_they_are_read_and_results_for_ever() -> None:
    execution = Execution(TWO_SIDES, OneByOne("e"))
    for job in execution.start():
        execution.finished(job.number, made(job))
    assert execution.needed() == {"a", "b"}
    (union,) = execution.start()
    assert execution.needed() == {"a", "b"}, "the job that runs reads them"
    execution.finished(union.number, made(union))
    assert execution.needed() == {"c"}
    (last,) = execution.start()
    execution.finished(last.number, made(last))
    assert execution.needed() == {"d"}


def failure(cause: Cause = Cause.ENGINE) -> Failure:
    return Failure(cause, f"it failed: {cause.value}")


@pytest.mark.parametrize("cause", [Cause.ENGINE, Cause.MEMORY, Cause.TIMEOUT, Cause.UNREACHABLE])
def test_the_next_best_engine_gets_what_one_failed_at_and_the_reason_is_kept(cause: Cause) -> None:
    execution = Execution(TWO_SIDES, OneByOne("best", "second"))
    first, _ = execution.start()
    execution.failed(first.number, failure(cause))
    (again,) = execution.start()
    assert (again.names, again.engine) == (first.names, "second")
    assert [str(one) for one in execution.failures] == [f"job 1 on best: it failed: {cause.value}"]


def test_an_engine_that_failed_at_some_operators_still_gets_others() -> None:
    execution = Execution(TWO_SIDES, OneByOne("best", "second"))
    first, other = execution.start()
    execution.failed(first.number, failure())
    (again,) = execution.start()
    for job in (again, other):
        execution.finished(job.number, made(job))
    assert [job.engine for job in execution.start()] == ["best"]


def test_an_engine_whose_process_was_killed_may_try_again() -> None:
    execution = Execution(TWO_SIDES, OneByOne("best", "second"), jobs_at_once=1)
    engines = []
    for _ in range(DEATHS_MAX + 1):
        (job,) = execution.start()
        engines.append(job.engine)
        execution.failed(job.number, failure(Cause.DIED))
    assert engines == ["best"] * DEATHS_MAX + ["second"]


@pytest.mark.parametrize("cause", [Cause.WORKFLOW, Cause.STORE])
def test_what_no_engine_helps_against_ends_the_workflow(cause: Cause) -> None:
    execution = Execution(TWO_SIDES, OneByOne("best", "second"))
    first, _ = execution.start()
    with pytest.raises(WorkflowFailed, match=f"it failed: {cause.value}"):
        execution.failed(first.number, failure(cause))


def test_what_an_earlier_run_did_is_not_done_again() -> None:
    execution = Execution(TWO_SIDES, OneByOne("e"), known={"c": TableSize(3)}, done={"a", "b", "c"})
    (last,) = execution.start()
    assert (last.names, last.inputs) == (frozenset({"d"}), ("c",))


def test_what_no_result_needs_is_not_run() -> None:
    execution = Execution(Dag(TWO_SIDES.operators, ("a",)), OneByOne("e"))
    (job,) = execution.start()
    execution.finished(job.number, made(job))
    assert execution.over


# ---- with a driver, over random workflows --------------------------------------------------------


class RandomPlanner(OneByOne):
    """Any division into jobs, each on any engine that is not barred from it."""

    def __init__(self, draw: Any, *engines: str) -> None:
        super().__init__(*engines)
        self.draw = draw

    def plan(self, rest: Dag, known: Mapping[str, TableSize], barred: Barred) -> Sequence[PlannedJob]:
        graph, done, jobs = JobGraph(rest), 0, []
        while done != graph.all:
            job = 0
            for _ in range(self.draw(st.integers(1, 4))):
                ready = list(graph.ready(done | job))
                if ready:
                    job |= 1 << self.draw(st.sampled_from(ready))
            operators = [name for unit in bits(job) for name in graph.units[unit]]
            jobs.append(PlannedJob(frozenset(operators), self.engine(operators, barred)))
            done |= job
        return jobs


class ReferenceRunner:
    """Runs jobs with the reference interpreter; engines other than `sound` may fail, and all lie about sizes."""

    def __init__(self, draw: Any, tables: Mapping[str, pa.Table]) -> None:
        self.draw, self.tables = draw, dict(tables)
        self.cancelled = False

    def start(self, job: Job) -> Future[Any]:
        future: Future[Any] = Future()
        causes = [None, *(one for one in Cause if not one.final)]
        cause = None if job.engine == "sound" else self.draw(st.sampled_from(causes))
        if cause is None:
            self.tables.update(evaluate(job.dag, self.tables, self.tables))
        future.set_result(cause)
        return future

    def outcome(self, job: Job, future: Future[Any]) -> JobEnd | Failure:
        cause = future.result()
        if cause is not None:
            return failure(cause)
        lie = self.draw(st.integers(0, 10**9))
        kept = {name: KeptRelation(f"{job.number}-{name}", lie, 0) for name in job.dag.results}
        return JobEnd(kept, "node", 0.0, 0.0, 0.0, 0.0, 0, cold=False)

    def cancel(self) -> None:
        self.cancelled = True


@given(cases(steps_max=4), st.data())
@settings(max_examples=10)
def test_any_division_into_jobs_on_engines_that_fail_makes_what_one_job_makes(case: Case, data: st.DataObject) -> None:
    try:
        expected = evaluate(case.dag, case.tables)
    except OverflowError:
        assume(False)
    runner = ReferenceRunner(data.draw, case.tables)
    execution = Execution(case.dag, RandomPlanner(data.draw, "weak", "frail", "sound"))
    try:
        execute(execution, runner, _NoStore())  # type: ignore[arg-type]
    except OverflowError:  # An operator that no result needs is part of a job.
        assume(False)
    assert execution.over
    assert not runner.cancelled
    assert_same_results(case.dag, {name: runner.tables[name] for name in case.dag.results}, expected)


class _NoStore:
    def add(self, *_: object) -> None:
        """Nothing is kept."""


class Observed:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def started(self, job: Job) -> None:
        self.told.append(f"started {job.number}")

    def finished(self, job: Job, end: JobEnd) -> None:
        self.told.append(f"finished {job.number} at {end.node}")

    def failed(self, failed: FailedJob) -> None:
        self.told.append(f"failed {failed.job.number}")


class AlwaysFailing(ReferenceRunner):
    def start(self, job: Job) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(Cause.ENGINE)
        return future


def test_when_every_engine_has_failed_the_error_says_how_each_did_and_what_runs_is_stopped(tmp_path: Path) -> None:
    runner, observed = AlwaysFailing(None, {}), Observed()
    execution = Execution(TWO_SIDES, OneByOne("best", "second"), jobs_at_once=1)
    store = new_run(tmp_path, "mark", TWO_SIDES, 1000)
    with pytest.raises(WorkflowFailed) as raised:
        execute(execution, runner, store, [observed])
    store.close(delete=True)
    assert str(raised.value).splitlines() == [
        "the workflow failed: no engine can run X a (best: job 1 failed; second: job 2 failed)",
        "  before: job 1 on best: it failed: engine",
        "  before: job 2 on second: it failed: engine",
    ]
    assert raised.value.earlier == ("job 1 on best: it failed: engine", "job 2 on second: it failed: engine")
    assert observed.told == ["started 1", "failed 1", "started 2", "failed 2"]
    assert runner.cancelled
