"""The 22 queries of TPC-H in HiveQL: the reference interpreter's answers are DuckDB's."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from frontends.sql.tpch_queries import QUERIES, tpch_query
from frontends.workflow.ir.dag import Sort
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.languages.hive import parse
from tests.support import tiny_tpch
from tests.support.workflow_dags import assert_same_results

TEXTS = Path(__file__).parents[4] / "examples" / "workflow" / "tpch"


@pytest.fixture(scope="module")
def data() -> dict[str, pa.Table]:
    return tiny_tpch.tables()


@pytest.fixture(scope="module")
def database(data: dict[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    with tiny_tpch.database(data) as connection:
        yield connection


@pytest.mark.parametrize("number", range(1, QUERIES + 1))
def test_a_query_of_tpch_has_the_answer_that_duckdb_gives(
    number: int, data: dict[str, pa.Table], database: duckdb.DuckDBPyConnection
) -> None:
    dag = parse((TEXTS / f"q{number:02}.hql").read_text("utf-8"), tiny_tpch.schemas(), f"q{number:02}.hql")
    (name,) = dag.results
    got = evaluate(dag, data)
    expected = database.sql(tpch_query(number)).to_arrow_table()
    assert expected.num_rows > 0
    assert_same_results(dag, got, {name: expected.cast(got[name].schema)})
    assert isinstance(dag.operator(name), Sort) or expected.num_rows == 1
