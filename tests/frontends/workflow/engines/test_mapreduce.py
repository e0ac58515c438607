"""MapReduce jobs make what the reference interpreter makes, in this process and on a cluster."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import assume, given

from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES, THREADS_VARIABLE, Rules
from frontends.workflow.ir.dag import Dag, Leaf, Values, While
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type
from sparrow_py import LocalCluster
from tests.support.workflow_dags import KINDS, Case, assert_same_results, cases
from tests.support.workflow_engines import made_by
from tests.support.workflow_samples import max_property_price

MAPREDUCE = engine("mapreduce")
TABLES = {
    "properties": pa.table({"id": [1, 2, 3, 4], "street": ["Elm", "Elm", "Oak", None], "town": ["A", "A", "B", "B"]}),
    "prices": pa.table({"id": [1, 2, 3, 4, None], "price": [10.0, 20.0, 5.0, 1.0, 7.0]}),
}


@pytest.fixture(autouse=True)
def two_mappers_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_IN_PROCESS", "1")
    monkeypatch.setenv(THREADS_VARIABLE, "2")


def all_relations(case: Case) -> dict[str, pa.Table]:
    """What the reference interpreter makes of each relation."""
    try:
        return evaluate(dataclasses.replace(case.dag, results=case.dag.names), case.tables)
    except OverflowError:
        assume(False)
        raise


def check_jobs(case: Case, rules: Rules) -> None:
    """Each operator as a job by itself, and each pair of neighbours that can be one job."""
    relations = all_relations(case)
    for operator in case.dag.operators:
        if not isinstance(operator, Leaf):
            readers = (reader.name for reader in case.dag.consumers(operator.name))
            for names in ([operator.name], *([operator.name, reader] for reader in readers)):
                check_job(case.dag.subset(names), {**case.tables, **relations}, relations, rules)


def check_job(job: Dag, tables: dict[str, pa.Table], relations: dict[str, pa.Table], rules: Rules) -> None:
    if MAPREDUCE.inexpressible(job) is None:
        expected = {name: relations[name] for name in job.results}
        assert_same_results(job, made_by(MAPREDUCE, job, tables, rules), expected)


WITHOUT_LOOPS = tuple(kind for kind in KINDS if kind is not While)


@pytest.mark.rest
@given(case=cases(kinds=WITHOUT_LOOPS, steps_max=3))
def test_random_jobs(case: Case) -> None:
    check_jobs(case, ALL_RULES)


@pytest.mark.rest
@pytest.mark.parametrize("rule", ["merge", "share_scans"])
@given(case=cases(kinds=WITHOUT_LOOPS, steps_max=3))
def test_random_jobs_with_a_rule_off(rule: str, case: Case) -> None:
    check_jobs(case, ALL_RULES.off(rule))


def test_two_shuffles_by_different_keys_are_no_job() -> None:
    """Figure 3.6: max-property-price is two jobs."""
    assert "cannot be one job of one shuffle" in (MAPREDUCE.inexpressible(max_property_price()) or "")
    assert MAPREDUCE.inexpressible(max_property_price().subset(["locs", "id_price"])) is None
    assert MAPREDUCE.inexpressible(max_property_price().subset(["street_price"])) is None


def test_operators_before_the_shuffle_are_in_the_mapper() -> None:
    source = MAPREDUCE.generate(max_property_price().subset(["locs", "id_price"]))
    mapper, _, reducer = source.partition("def reduce_rows")
    assert "# locs = PROJECT" in mapper and "# id_price = JOIN" in reducer
    apart = MAPREDUCE.generate(max_property_price().subset(["locs", "id_price"]), ALL_RULES.off("merge"))
    assert "def map_rows_2" in apart and "def map_rows_2" not in source


def test_mappers_aggregate_what_they_have() -> None:
    job = max_property_price().subset(["street_price"])
    mapper, _, reducer = MAPREDUCE.generate(job).partition("def reduce_rows")
    assert "# street_price_of_mapper = AGGREGATE id_price" in mapper
    assert "# street_price = AGGREGATE street_price_of_mapper" in reducer


def test_a_relation_joined_with_itself_by_two_keys_passes_the_shuffle_twice() -> None:
    text = (
        "t = SCAN 't' (a INTEGER, b INTEGER)\nr = JOIN INNER t, t ON (a = b) TO (a = LEFT a, b = RIGHT b)\nRESULTS r\n"
    )
    table = pa.table({"a": list(range(20)), "b": list(reversed(range(20)))})
    dag = read(text)
    assert_same_results(dag, made_by(MAPREDUCE, dag, {"t": table}), evaluate(dag, {"t": table}))


def test_constants_are_made_by_one_mapper() -> None:
    dag = Dag((Values(name="v", columns=Schema.of(n=Type.INTEGER), rows=((Scalar("1"),),)),), ("v",))
    assert made_by(MAPREDUCE, dag, {})["v"].to_pydict() == {"n": [1]}


@pytest.mark.processes
@pytest.mark.rest
def test_a_job_runs_on_a_cluster(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKFLOW_IN_PROCESS")
    monkeypatch.setenv("SPARROW_SCHEDULER", ",".join(cluster.addresses))
    job = max_property_price().subset(["locs", "id_price"])
    assert_same_results(job, made_by(MAPREDUCE, job, TABLES), evaluate(job, TABLES))
    # What mappers make of this is too large for a message: the client has to fetch it.
    large = read("t = SCAN 't' (n INTEGER)\nr = SELECT t WHERE {n >= 5}\nRESULTS r\n")
    made = made_by(MAPREDUCE, large, {"t": pa.table({"n": range(40_000)})})
    assert sorted(made["r"]["n"].to_pylist()) == list(range(5, 40_000))
