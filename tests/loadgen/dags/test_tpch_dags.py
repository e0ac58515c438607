"""TPC-H's queries as jobs: the plans with joins, what is read of the recorded profile, and the jobs made of it."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from frontends.sql.generate import generate_base_tables
from frontends.sql.tpch import BASE_TABLES
from frontends.sql.tpch_queries import QUERIES, tpch_query
from loadgen.dags.arriving import at_once
from loadgen.dags.dag_figures import figures
from loadgen.dags.operators import AGGREGATE, JOIN, SCAN
from loadgen.dags.paper_tables import TABLE, TPCH
from loadgen.dags.resources import CPU, DISK_IN, DISK_OUT, MEMORY, NET_IN, NET_OUT
from loadgen.dags.tpch_jobs import MEMORY_BYTES, SCALES, START_S, TpchJobs
from loadgen.dags.tpch_profile import as_json, at_scale, read_tpch_dags
from loadgen.dags.tpch_recording import record
from loadgen.dags.tpch_stages import stages_of
from sparrow_py.errors import InvalidOption
from tests.support.suites import rest_after

NUMBERS = range(1, QUERIES + 1)
WITHOUT_JOIN = ("q1", "q6")
"""They read one table."""
QUERY: Any = [
    {
        "name": "scan1", "kind": "scan", "after": [], "rows_out": [1000, 10_000], "bytes_in": [20_000_000, 200_000_000],
        "bytes_out": [10_000_000, 100_000_000], "cpu_s": [0.03, 0.3], "memory_bytes": [30_000_000, 300_000_000],
    },
    {
        "name": "scan2", "kind": "scan", "after": [], "rows_out": [25, 25], "bytes_in": [400, 400],
        "bytes_out": [400, 400], "cpu_s": [0.001, 0.001], "memory_bytes": [0, 0],
    },
    {
        "name": "join1", "kind": "join", "after": ["scan1", "scan2"], "rows_out": [1000, 10_000],
        "bytes_in": [10_000_400, 100_000_400], "bytes_out": [10_000_000, 100_000_000],
        "cpu_s": [0.021, 0.201], "memory_bytes": [0, 0],
    },
]  # fmt: skip


def written(path: Path, stages: Any = QUERY, scales: Any = (0.1, 1.0)) -> Path:
    path.write_text(json.dumps({"source": {"scales": scales}, "queries": {"q1": {"stages": stages}}}))
    return path


# ---- plans -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", rest_after(3, 3, 1, 22, *(number for number in NUMBERS if number not in (1, 3, 22))))
def test_the_plan_of_a_query_is_that_of_the_profile(number: int) -> None:
    recorded = read_tpch_dags().queries[f"q{number}"].stages
    plan = stages_of(tpch_query(number))
    assert [(stage.name, stage.kind, stage.after) for stage in plan] == [
        (stage.name, stage.kind, stage.after) for stage in recorded
    ]


def test_all_queries_of_several_tables_have_joins() -> None:
    for name, query in read_tpch_dags().queries.items():
        several = [stage for stage in query.stages if len(stage.after) > 1]
        assert bool(several) == (name not in WITHOUT_JOIN)
        assert all(stage.kind == JOIN for stage in several)
        assert all((stage.kind == SCAN) == (not stage.after) for stage in query.stages)


def test_the_profile_is_near_the_papers_table() -> None:
    """Each query as often as any other."""
    found = figures(list(TpchJobs().generate(1, at_once(len(SCALES) * QUERIES))))
    row = TABLE[TPCH]
    assert found.stages.p50 == pytest.approx(row.stages.p50, rel=0.15)
    assert (found.barriers.p50, found.barriers.p95) == (row.barriers.p50, row.barriers.p95)
    assert found.depth == 5


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    generate_base_tables(directory, 0.01)
    return directory


@pytest.mark.rest
@pytest.mark.processes
@pytest.mark.parametrize("number", NUMBERS)
def test_the_last_stage_has_the_querys_answer(tables: Path, number: int) -> None:
    with duckdb.connect() as connection:
        for table in BASE_TABLES:
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{tables / table}.parquet'")
        plan = stages_of(tpch_query(number))
        for stage in plan:
            connection.execute(f'CREATE TEMP TABLE "{stage.name}" AS {stage.sql}')
        got = connection.execute(f'SELECT * FROM "{plan[-1].name}"').fetchall()
        assert sorted(map(repr, got)) == sorted(map(repr, connection.execute(tpch_query(number)).fetchall()))


@pytest.mark.rest
@pytest.mark.processes
def test_what_is_recorded_is_read(tmp_path: Path) -> None:
    made = record((0.01, 0.02), queries=(3, 6), runs=1)
    (tmp_path / "made.json").write_bytes(as_json(made))
    assert read_tpch_dags(tmp_path / "made.json") == made
    scan = made.queries["q6"].stages[0]
    assert scan.rows_out[0] < scan.rows_out[1]
    assert scan.bytes_in[1] == pytest.approx(2 * scan.bytes_in[0], rel=0.05)
    assert all(min(stage.cpu_s) > 0 for query in made.queries.values() for stage in query.stages)


# ---- jobs --------------------------------------------------------------------------------------------


def test_what_grows_with_the_data_is_told_from_what_does_not() -> None:
    scales = (0.1, 1.0)
    assert at_scale((10, 100), scales, 100.0) == pytest.approx(10_000)
    assert at_scale((25, 25), scales, 100.0) == 25
    assert at_scale((10, 30), scales, 0.1) == pytest.approx(10)
    assert at_scale((50, 25), scales, 100.0) == 25, "what gets less, by chance, stays as it was"
    assert at_scale((0, 100), scales, 10.0) == pytest.approx(1000), "and nothing grows faster than the data"
    assert at_scale((0, 0), scales, 100.0) == 0


def test_stages_have_a_task_for_each_128_mb_and_demand_what_was_measured(tmp_path: Path) -> None:
    jobs = TpchJobs(profile=read_tpch_dags(written(tmp_path / "p.json")), scales=(3.2,), stretch=10.0)
    scan, few, join = jobs.stages("q1", 3.2)
    assert (scan.tasks, few.tasks, join.tasks) == (5, 1, 3)
    assert (scan.parents, join.parents) == ((), (0, 1))
    took_s = START_S + 10 * 3.2 * 0.3 / 5
    assert scan.duration_s == pytest.approx(took_s, abs=0.001)
    assert scan.demand == pytest.approx(
        {
            CPU: 1.0, MEMORY: MEMORY_BYTES + 3.2 * 300e6 / 5, DISK_IN: 128e6 / took_s, DISK_OUT: 64e6 / took_s,
            NET_IN: 0.0, NET_OUT: 64e6 / took_s,
        },
        rel=0.001,
    )  # fmt: skip
    assert join.duration_s == pytest.approx(START_S + 10 * 3.2 * 0.2 / 3, abs=0.001), "less what no rows take"
    assert few.duration_s == START_S
    assert join.demand[NET_OUT] == join.demand[DISK_IN] == 0.0
    assert join.demand[NET_IN] == pytest.approx(join.demand[DISK_OUT], rel=0.001)


def test_an_aggregate_that_leaves_few_rows_is_computed_where_they_arise(tmp_path: Path) -> None:
    """Its own stage puts together what the tasks before it left."""
    total = QUERY[0] | {
        "name": "aggregate1", "kind": AGGREGATE, "after": ["scan1"], "rows_out": [4, 4],
        "bytes_in": QUERY[0]["bytes_out"], "bytes_out": [200, 200],
    }  # fmt: skip
    jobs = TpchJobs(profile=read_tpch_dags(written(tmp_path / "p.json", [QUERY[0], total])))
    scan, aggregate = jobs.stages("q1", 10.0)
    assert (
        scan.duration_s
        > TpchJobs(profile=read_tpch_dags(written(tmp_path / "q.json"))).stages("q1", 10.0)[0].duration_s
    )
    assert (aggregate.tasks, aggregate.duration_s) == (1, START_S)
    groups = [QUERY[0], total | {"rows_out": [100, 1000]}]
    jobs = TpchJobs(profile=read_tpch_dags(written(tmp_path / "p.json", groups)))
    assert jobs.stages("q1", 10.0)[1].tasks == 8


def test_each_query_comes_at_each_scale_before_any_comes_again(tmp_path: Path) -> None:
    jobs = TpchJobs(profile=read_tpch_dags(written(tmp_path / "p.json")), scales=(1.0, 10.0, 100.0))
    labels = [job.label for job in jobs.generate(1, at_once(6))]
    assert sorted(labels[:3]) == sorted(labels[3:]) == ["q1 at 1", "q1 at 10", "q1 at 100"]


@pytest.mark.parametrize(
    ("stages", "scales", "said"),
    [
        ([], (0.1, 1), "a profile that `loadgen dags record` wrote"),
        (QUERY, (1, 0.1), "p.json scales"),
        (QUERY, 3, "a profile that `loadgen dags record` wrote"),
        ([QUERY[0], QUERY[0]], (0.1, 1), "p.json q1 scan1: 'scan1' is not valid"),
        ([QUERY[2]], (0.1, 1), "p.json q1 join1 after"),
        ([QUERY[0] | {"kind": "magic"}], (0.1, 1), "p.json q1 scan1 kind"),
        ([QUERY[0] | {"cpu_s": [-1, 1]}], (0.1, 1), "cpu_s"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(tmp_path: Path, stages: Any, scales: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read_tpch_dags(written(tmp_path / "p.json", stages, scales))


@pytest.mark.parametrize(("field", "value"), [("scales", ()), ("scales", (0.0,)), ("stretch", 0.0), ("users", 0)])
def test_jobs_that_cannot_be_are_refused(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=field):
        TpchJobs(profile=read_tpch_dags(written(tmp_path / "p.json")), **{field: value})
