"""Each engine makes of a workflow what the reference interpreter makes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.workflow.engines.base import ALL_RULES, Rules
from tests.support.workflow_dags import Case, cases
from tests.support.workflow_engines import assert_agrees, installed_engine

ENGINES = ("dask", "datafusion", "duckdb", "pandas", "polars", "serial")


@pytest.mark.rest
@pytest.mark.parametrize("name", ENGINES)
@given(case=cases())
def test_random_workflows(name: str, case: Case) -> None:
    assert_agrees(installed_engine(name), case)


@pytest.mark.rest
@pytest.mark.parametrize("name", ENGINES)
@given(case=cases(), rule=st.sampled_from(Rules.names()))
def test_random_workflows_with_a_rule_off(name: str, rule: str, case: Case) -> None:
    assert_agrees(installed_engine(name), case, ALL_RULES.off(rule))


@pytest.mark.parametrize("name", ENGINES)
@given(case=cases(steps_max=2))
def test_small_random_workflows(name: str, case: Case) -> None:
    assert_agrees(installed_engine(name), case)
