"""Real queries as load: their answers are right, they take no less than their ideal, and users launch permutations."""

import math
import random
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.sql.generate import generate
from frontends.sql.placement import LiveNode, choose
from frontends.sql.results import encode_table
from frontends.sql.tpch_queries import tpch_query
from loadgen.audit import Audit
from loadgen.generators import replay_in_processes
from loadgen.jobs import WorkloadStage
from loadgen.plans import Asked, plans
from loadgen.queries import AloneTimes, Queries
from loadgen.query_jobs import QueryJobs, rows_of, same_rows
from loadgen.recorded import EXECUTED
from loadgen.replay import Plan
from loadgen.tables import jobs_table, tasks_table
from loadgen.targets import LocalTarget, Shape
from loadgen.tpch import PAPER_QUERIES
from sparrow_py.errors import InvalidOption, InvalidRequest
from sparrow_py.job import JobSpec, StageSpec, TaskSpec
from tests.support.tpch import Reference

HUNDREDTH = 0.01
JOBS = 8
PARTITIONS = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scale factor 0.01: 60,000 items."""
    return generate(
        tmp_path_factory.mktemp("queries") / "tpch", HUNDREDTH, name="load", partitions=PARTITIONS
    ).directory


@pytest.mark.rest
def test_queries_under_load_have_the_right_answers_and_take_no_less_than_their_ideal(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadgen.queries.RUNS_ALONE", 1)
    shape = Shape(nodes=3, slots=1, schedulers=2, sql_data=str(data))
    queries = Queries(directory=str(data), users=3, load=0.5, jobs=JOBS)
    with LocalTarget(shape, tmp_path) as target:
        prepared = queries.prepare(target.addresses, target.nodes, target.slots, 1, {})
        plan = Plan("run", "sleep", 2.0, target.nodes, 60.0, prepared.query_jobs)
        replayed = replay_in_processes(target.addresses, prepared.jobs, plan, 1, lambda: None, lambda _: None)
    reference = Reference(data)
    for label in PAPER_QUERIES:
        table = reference.query(tpch_query(int(label.removeprefix("q"))))
        wanted = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert same_rows(prepared.query_jobs.answers[label], wanted), label
    # A wrong answer would have been a failed query.
    assert [(record.status, record.error) for record in replayed.records] == [("finished", "")] * JOBS
    assert prepared.settings["execution"] == EXECUTED
    assert prepared.settings["data"] == {"scale": HUNDREDTH, "partitions": PARTITIONS, "replicas": 3}
    jobs = jobs_table(0, prepared.jobs, replayed.records, replayed.start_s, Audit()).to_pylist()
    assert {row["label"] for row in jobs} <= set(PAPER_QUERIES)
    for row in jobs:
        assert 0 < row["ideal_s"] <= row["response_s"]
    tasks = tasks_table(0, prepared.jobs, replayed.records, replayed.start_s, Audit()).to_pylist()
    for row in tasks:
        assert row["constrained"] == (row["stage_name"] == "scan")
        assert row["service_s"] > 0
    ends_s: dict[tuple[int, int], float] = defaultdict(float)
    for row in tasks:
        ends_s[row["job"], row["stage"]] = max(ends_s[row["job"], row["stage"]], row["finished_s"])
    assert all(row["started_s"] >= ends_s[row["job"], row["stage"] - 1] for row in tasks if row["stage"])


# ---- arrivals and permutations, without a cluster ----------------------------------------------


def spec() -> JobSpec:
    """A query of two partitions."""
    scan = StageSpec([TaskSpec(b"0", preferred=["b", "a"]), TaskSpec(b"1", preferred=["c"])], name="scan", app="sql")
    return JobSpec(stages=[scan, StageSpec([TaskSpec(b"2", inputs=["scan"])], name="sum", after=["scan"], app="sql")])


def test_the_rate_follows_from_what_queries_took_alone() -> None:
    queries = Queries(directory="", queries=("q3", "q6"), users=4, load=0.25, jobs=2000)
    alone = {
        "q3": AloneTimes(((0.1, 0.2, 0.3), (0.3, 0.4, 0.1)), (0.5, 0.6)),
        "q6": AloneTimes(((0.1, 0.1, 0.1),), (0.2,)),
    }
    assert queries.jobs_per_s(alone, 8) == pytest.approx(0.25 * 8 / fmean((0.7, 0.3)))
    jobs = list(queries.generate(dict.fromkeys(alone, spec()), alone, {"a": 0, "b": 1, "c": 2}, 8, 1))
    assert len(jobs) == 2000
    mean_s, expected_s = jobs[-1].arrival_s / len(jobs), 1 / queries.jobs_per_s(alone, 8)
    assert abs(mean_s - expected_s) < 3.9 * expected_s / math.sqrt(len(jobs))
    assert Counter(job.user for job in jobs).keys() == {f"user{number}" for number in range(4)}
    by_user: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        by_user[job.user].append(job.label)
        assert job.stages == (WorkloadStage("scan", (), 2), WorkloadStage("sum", ("scan",), 1))
        assert job.preferred == ((1, 0), (2,), ())
    for labels in by_user.values():
        assert all(set(labels[first : first + 2]) == {"q3", "q6"} for first in range(0, len(labels) - 1, 2))


def test_without_a_number_as_many_queries_arrive_as_in_the_seconds() -> None:
    alone = {"q6": AloneTimes(((0.5,),), (0.5,))}
    queries = Queries(directory="", queries=("q6",), load=0.5, seconds=30.0)
    assert len(list(queries.generate({"q6": spec()}, alone, {"a": 0, "b": 1, "c": 2}, 2, 1))) == 60


def test_an_answer_is_right_if_it_has_the_same_rows() -> None:
    table = pa.table({"flag": ["A", "B"], "total": [1.5, 2.5]})
    jobs = QueryJobs({"q6": spec()}, {"q6": rows_of(encode_table(table))})
    assert jobs.is_right("q6", 2, encode_table(table.take([1, 0])))
    assert jobs.is_right("q6", 2, encode_table(pa.table({"flag": ["A", "B"], "total": [1.5, 2.5 + 1e-12]})))
    assert not jobs.is_right("q6", 2, encode_table(pa.table({"flag": ["A", "B"], "total": [1.5, 2.6]})))
    assert not jobs.is_right("q6", 2, encode_table(table.slice(1)))
    assert not jobs.is_right("q6", 2, None)
    assert jobs.is_right("q6", 0, b"what a scan passes on"), "inner stages are not looked at"


def test_a_query_is_submitted_under_its_own_id_and_probe_ratio() -> None:
    found = QueryJobs({"q6": spec()}, {}).spec("q6", "run-7", 3.0)
    assert (found.job_id, found.name, {stage.probe_ratio for stage in found.stages}) == ("run-7", "q6", {3.0})
    assert [stage.tasks for stage in found.stages] == [stage.tasks for stage in spec().stages]


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.randoms())
def test_placed_partitions_are_striped(
    partitions: int, replicas: int, nodes: int, slots: int, one_host: bool, order: random.Random
) -> None:
    """Each node loads as many replicas as any other, or one more, be they on one machine or on one each."""
    live = [
        LiveNode(f"n{number}", "host" if one_host else f"host{number}", slots, 0.0, True, frozenset())
        for number in range(nodes)
    ]
    order.shuffle(live)
    added = choose(live, partitions, replicas)
    counts = [len(added.get(node.id, ())) for node in live]
    assert max(counts) - min(counts) <= 1
    holders = Counter(partition for own in added.values() for partition in own)
    assert holders == dict.fromkeys(range(partitions), min(replicas, nodes))


# ---- the preset ------------------------------------------------------------------------------


@pytest.mark.rest
def test_the_preset_has_a_cluster_that_two_cores_hold(data: Path) -> None:
    made = plans(Asked(preset="queries", data=str(data)))
    shapes = [plan.shape for plan in made if plan.shape is not None]
    assert [(shape.placement, shape.nodes, shape.slots, shape.schedulers) for shape in shapes] == [
        ("sparrow", 4, 1, 2), ("random", 4, 1, 2),
    ]  # fmt: skip
    assert {shape.sql_data for shape in shapes} == {str(data)}
    assert [plan.settings["queries"] for plan in made] == [sorted(PAPER_QUERIES)] * 2
    (plan,) = plans(Asked(preset="queries", data=str(data), nodes=6, slots=2, placements=("batch",)))
    assert plan.shape is not None
    assert (plan.shape.nodes, plan.shape.slots, plan.shape.schedulers) == (6, 2, 2)


def test_errors_of_the_preset_name_the_flag(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"data.*sparrow sql generate"):
        plans(Asked(preset="queries"))
    with pytest.raises(InvalidRequest, match=r"data.*sparrow sql generate"):
        plans(Asked(preset="queries", data=str(tmp_path)))
    with pytest.raises(InvalidOption, match=r"duration.*take as long as they take"):
        plans(Asked(preset="queries", data=str(data), durations_ms=(5.0,)))
    with pytest.raises(InvalidOption, match=r"app.*those of queries"):
        Asked(preset="queries", app="spin")
    with pytest.raises(InvalidOption, match=r"data.*--preset queries"):
        Asked(preset="fig10", data=str(data))
    with pytest.raises(InvalidOption, match="at least 3 nodes"):
        plans(Asked(preset="queries", data=str(data), nodes=2))
    with pytest.raises(InvalidOption, match="below 1"):
        plans(Asked(preset="queries", data=str(data), loads=(1.0,)))
