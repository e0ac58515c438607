"""The 22 queries of TPC-H on a cluster of processes: answers as DuckDB's on the same data.

At scale factor 0.01 in few partitions and, in `make test-rest`, at 0.1 in thirty.
"""

from typing import NamedTuple

import pytest

from frontends.sql.frontend import SqlFrontend
from frontends.sql.tpch_queries import QUERIES, tpch_query
from tests.support.tpch import Reference, check_same

ORDERED = {1, 2, 4, 5, 7, 8, 9, 12, 13, 15, 16, 20, 21, 22}
"""Queries whose ORDER BY sorts all rows, and queries with one row."""


class Dataset(NamedTuple):
    """Data on a cluster, and in one DuckDB."""

    frontend: SqlFrontend
    reference: Reference


@pytest.fixture(params=["hundredth", pytest.param("tenth", marks=pytest.mark.rest)])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    """Of either scale."""
    frontend, reference = (request.getfixturevalue(f"{kind}_{request.param}") for kind in ("frontend", "reference"))
    return Dataset(frontend, reference)


@pytest.mark.parametrize("number", range(1, QUERIES + 1))
def test_a_query_of_tpch_has_the_answer_that_duckdb_gives(number: int, dataset: Dataset) -> None:
    sql = tpch_query(number)
    answer = dataset.frontend.run(sql, timeout_s=60)
    check_same(answer.table, dataset.reference.query(sql), ordered=number in ORDERED)


def test_scans_run_where_their_partition_is_held(dataset: Dataset) -> None:
    holders = dataset.frontend.holders()
    scan = dataset.frontend.run(tpch_query(6), timeout_s=60).stages[0]
    assert scan.constrained
    assert len(scan.nodes) == len(holders) == dataset.frontend.dataset.manifest.partitions
    assert all(node in holders[partition] for partition, node in enumerate(scan.nodes))


def test_the_times_of_stages_add_up_to_the_response_of_a_chain(dataset: Dataset) -> None:
    answer = dataset.frontend.run(tpch_query(3), timeout_s=60)
    assert [stage.name for stage in answer.stages] == ["scan", "group-by", "order-by"]
    assert sum(stage.response_s for stage in answer.stages) == pytest.approx(answer.response_s)
    assert all(0 < service_s < answer.response_s for stage in answer.stages for service_s in stage.service_s)


def test_a_result_is_an_arrow_table(frontend_hundredth: SqlFrontend) -> None:
    table = frontend_hundredth.query("SELECT n_name, n_regionkey FROM nation WHERE n_nationkey = 7")
    assert table.to_pylist() == [{"n_name": "GERMANY", "n_regionkey": 3}]
