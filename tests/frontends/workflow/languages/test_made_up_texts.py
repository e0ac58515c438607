"""Whatever the text: a parser gives a workflow, or says in words why there is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import Scan
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.tables import schema_of
from frontends.workflow.languages import beer
from tests.support.workflow_beer import as_beer, beer_cases
from tests.support.workflow_dags import Case, assert_same_bag
from tests.support.workflow_texts import PARSERS


@given(st.sampled_from(list(PARSERS)), st.text("AaZz_09 \n\t()[]{}<=>,;.`'\"/+-*éß\0", max_size=40))
@settings(max_examples=20)
def test_any_text_is_refused_in_words(suffix: str, text: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        PARSERS[suffix](text)
    assert refused.value.at is not None


@pytest.mark.rest
@given(beer_cases())
@settings(max_examples=15)
def test_a_workflow_that_beer_can_say_gives_the_same_when_it_is_said_in_beer(case: Case) -> None:
    expected = evaluate(case.dag, case.tables)
    wanted = [name for name in case.dag.results if not isinstance(case.dag.operator(name), Scan)]
    if not wanted:
        return
    schemas = {name: schema_of(table.schema, name) for name, table in case.tables.items()}
    said = beer.parse(as_beer(case.dag), schemas)
    got = evaluate(said, case.tables)
    assert len(got) == len(wanted)
    for table, name in zip(got.values(), wanted, strict=True):
        assert_same_bag(table.rename_columns(expected[name].column_names), expected[name])
