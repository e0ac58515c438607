"""Graph engines: loops that are graph computations equal the reference interpreter, and other jobs are refused."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from frontends.workflow.errors import Inexpressible, IterationsExceeded
from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.printing import printed
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from tests.support.workflow_dags import Case, assert_same_results
from tests.support.workflow_engines import installed_engine, made_by
from tests.support.workflow_graphs import SUMS, graph_cases, r_mat, shortest_paths
from tests.support.workflow_samples import page_rank

ENGINES = ("scipy", "numba")
GRAPH = r_mat(scale=5, degree=4, seed=7)
"""32 vertices, 128 edges, some of them several times."""


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba's loops run as Python: compiling them takes seconds for each script."""
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba, "njit", lambda *functions, **options: functions[0] if functions else lambda one: one)


def assert_same_end(name: str, case: Case) -> None:
    """The same results, or the same failure of a loop that goes on for too long."""
    engine = installed_engine(name)
    assert engine.inexpressible(case.dag) is None
    try:
        expected = evaluate(case.dag, case.tables)
    except IterationsExceeded:
        with pytest.raises(IterationsExceeded):
            made_by(engine, case.dag, case.tables)
        return
    assert_same_results(case.dag, made_by(engine, case.dag, case.tables), expected)


@pytest.mark.usefixtures("uncompiled")
class TestRandomGraphs:
    """Duplicates, nulls and NaN among vertices and edges."""

    @settings(max_examples=12)
    @given(case=graph_cases())
    def test_numba(self, case: Case) -> None:
        assert_same_end("numba", case)

    @settings(max_examples=12)
    @given(case=graph_cases())
    def test_scipy(self, case: Case) -> None:
        assert_same_end("scipy", case)

    @settings(max_examples=12)
    @given(case=graph_cases(SUMS))
    def test_sums_as_products_of_matrices(self, case: Case) -> None:
        assert_same_end("scipy", case)


def page_rank_job(iterations: int) -> tuple[Dag, dict[str, pa.Table]]:
    """The loop of PageRank as a job, and its inputs: the edges with their degrees are an earlier job's."""
    whole = page_rank(iterations)
    before = Dag(whole.operators[:5], ("edges_cnt",))
    ranks = pa.table({"id": pa.array(range(32)), "rank": pa.array([1.0] * 32)})
    edges = evaluate(before, {"edges": GRAPH, "page_rank": ranks})["edges_cnt"]
    return whole.subset(["loop", "ranks"]), {"edges_cnt": edges, "page_rank": ranks}


def shortest_paths_job() -> tuple[Dag, dict[str, pa.Table]]:
    costs = pc.add(pc.bit_wise_and(GRAPH["src"], 3), 1).cast(pa.float64())
    start = pa.table({"id": pa.array([0]), "distance": pa.array([0.0])})
    return shortest_paths(6), {"edges": GRAPH.append_column("cost", costs), "distances": start}


@pytest.mark.parametrize("job", [page_rank_job(5), shortest_paths_job()], ids=["PageRank", "shortest paths"])
@pytest.mark.parametrize("name", ["scipy", pytest.param("numba", marks=pytest.mark.rest)])
def test_graphs_of_r_mat(name: str, job: tuple[Dag, dict[str, pa.Table]]) -> None:
    dag, tables = job
    expected = evaluate(dag, tables, inputs=tables)
    assert expected[dag.results[0]].num_rows > 10
    assert_same_results(dag, made_by(installed_engine(name), dag, tables), expected)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("page_rank1 = AGGREGATE links", "some = DISTINCT links\n  page_rank1 = AGGREGATE some", "DISTINCT some"),
        ('SET rank = {"rank" / degree}', 'SET rank = {"rank" % degree}', "MOD in"),
        ("JOIN INNER edges_cnt", "JOIN LEFT edges_cnt", "of kind LEFT"),
    ],
)
def test_near_misses_are_inexpressible(name: str, old: str, new: str, reason: str) -> None:
    text = printed(page_rank_job(3)[0])
    job, engine = read(text.replace(old, new)), installed_engine(name)
    assert reason in str(engine.inexpressible(job))
    with pytest.raises(Inexpressible, match="WHILE loop"):
        engine.generate(job)


@pytest.mark.parametrize("name", ENGINES)
def test_jobs_beside_loops_are_inexpressible(name: str) -> None:
    engine = installed_engine(name)
    assert engine.inexpressible(page_rank()) == f"{name} takes one loop and no more, and the job has AGGREGATE node_cnt"
    before = page_rank().subset(["edges", "node_cnt"])
    assert engine.inexpressible(before) is not None
    assert engine.inexpressible(page_rank().subset(["loop", "ranks"])) is None
