"""Workflows whose jobs run on several engines make what one job makes: values, not only numbers of rows."""

import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from frontends.workflow.engines.base import THREADS_VARIABLE, Engine
from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.jobs.graph import JobGraph, bits
from tests.support.workflow_dags import Case, assert_same_results, cases
from tests.support.workflow_engines import installed_engine, made_by

QUICK = ("serial", "duckdb", "polars", "pandas")


@pytest.fixture(autouse=True)
def mapreduce_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_IN_PROCESS", "1")
    monkeypatch.setenv(THREADS_VARIABLE, "2")


@st.composite
def mixes(draw: st.DrawFn, dag: Dag, names: tuple[str, ...]) -> list[tuple[Engine, Dag]]:
    """The workflow in jobs, in an order in which they can run, each on an engine that can do it."""
    graph, done, jobs = JobGraph(dag), 0, []
    while done != graph.all:
        job = 0
        for _ in range(draw(st.integers(1, 3))):
            if ready := list(graph.ready(done | job)):
                job |= 1 << draw(st.sampled_from(ready))
        made = graph.dag.subset([name for unit in bits(job) for name in graph.units[unit]])
        able = [one for one in map(installed_engine, names) if one.inexpressible(made) is None]
        jobs.append((draw(st.sampled_from(able)), made))
        done |= job
    return jobs


def assert_mix_agrees(case: Case, data: Any, names: tuple[str, ...]) -> None:
    """As one job has them."""
    try:
        expected = evaluate(case.dag, case.tables)
        evaluate(dataclasses.replace(case.dag, results=case.dag.names), case.tables)
    except OverflowError:
        assume(False)
    made = dict(case.tables)
    for engine, job in data.draw(mixes(case.dag, names)):
        made |= made_by(engine, job, made)
    assert_same_results(case.dag, {name: made[name] for name in case.dag.results}, expected)


@given(cases(steps_max=3), st.data())
@settings(max_examples=30)
def test_small_workflows_in_random_jobs_on_random_engines(case: Case, data: st.DataObject) -> None:
    assert_mix_agrees(case, data, QUICK)


@pytest.mark.rest
@given(cases(), st.data())
def test_workflows_in_random_jobs_on_random_engines(case: Case, data: st.DataObject) -> None:
    assert_mix_agrees(case, data, (*QUICK, "datafusion", "dask", "mapreduce"))
