"""MapReduce jobs make what the reference interpreter makes, in this process and on a cluster."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES, THREADS_VARIABLE, Rules
from frontends.workflow.ir.dag import Dag, Leaf, Values, While
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.mapping.partition import partitioned
from sparrow_py import LocalCluster
from tests.support.workflow_dags import KINDS, Case, assert_same_results, cases
from tests.support.workflow_engines import made_by
from tests.support.workflow_plans import costs_of, one_shuffle
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


def test_a_relation_that_two_joins_read_by_two_keys_passes_the_shuffle_twice() -> None:
    dag = read(
        "a = SCAN 'a' (k INTEGER, g INTEGER)\nb = SCAN 'b' (k INTEGER)\n"
        "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k)\ni = JOIN INNER b, a ON (k = g) TO (k = LEFT k)\n"
        "s = JOIN INNER j, i ON (k = k) TO (k = LEFT k)\nRESULTS s\n"
    )
    numbers = list(range(20))
    tables = {"a": pa.table({"k": numbers, "g": numbers[::-1]}), "b": pa.table({"k": numbers})}
    assert MAPREDUCE.inexpressible(dag) is None
    assert_same_results(dag, made_by(MAPREDUCE, dag, tables), evaluate(dag, tables))


# ---- parts of keys ---------------------------------------------------------------------------

KEYS = ("k", "g", "h")
STEPS = ("AGGREGATE", "JOIN INNER", "JOIN LEFT", "JOIN SEMI", "JOIN ANTI", "PROJECT", "UNION")
ROWS = 6
_KEYED = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from((None, 1, 2, 3)), min_size=ROWS, max_size=ROWS) for name in KEYS}
)
Columns = dict[str, list[int | None]]


@st.composite
def regrouped(draw: st.DrawFn) -> Dag:
    """Groupings, joins and projections of two tables by more and fewer of three columns, again and again."""
    lines = [f"{name} = SCAN '{name}' (k INTEGER, g INTEGER, h INTEGER)" for name in "ab"]
    made = ["a", "b"]
    for number in range(draw(st.integers(2, 3))):
        name, source, other = f"o{number}", draw(st.sampled_from(made)), draw(st.sampled_from(made))
        keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
        rest = sorted({*KEYS} - {*keys})
        kind = draw(st.sampled_from(STEPS))
        if kind == "AGGREGATE":
            totals = ", ".join(f"{one} = MAX {one}" for one in rest) or "n = COUNT"
            line = f"{name}_all = AGGREGATE {source} BY ({', '.join(keys)}) TO ({totals})\n"
            line += f"{name} = PROJECT {name}_all TO ({', '.join(f'{one} = {{{one}}}' for one in KEYS)})"
        elif kind == "PROJECT":
            moved = dict(zip(KEYS, draw(st.permutations(KEYS)), strict=True))
            line = f"{name} = PROJECT {source} TO ({', '.join(f'{new} = {{{old}}}' for new, old in moved.items())})"
        elif kind == "UNION":
            line = f"{name} = UNION ALL {source}, {other}"
        else:
            right = draw(st.permutations(keys)) if kind == "JOIN INNER" else keys
            on = ", ".join(f"{one} = {two}" for one, two in zip(keys, right, strict=True))
            sides = {one: "RIGHT" if kind == "JOIN INNER" and draw(st.booleans()) else "LEFT" for one in KEYS}
            columns = ", ".join(f"{one} = {side} {one}" for one, side in sides.items())
            line = f"{name} = {kind} {source}, {other} ON ({on}) TO ({columns})"
        lines.append(line)
        made.append(name)
    return Dag.of_unread(read("\n".join([*lines, f"RESULTS {made[-1]}"])).operators)


def check_plan(dag: Dag, tables: dict[str, pa.Table], rules: Rules) -> None:
    """The workflow in as few jobs as there can be, each checked by itself."""
    engines = (one_shuffle(part_keys=rules.part_keys),)
    relations = evaluate(dataclasses.replace(dag, results=dag.names), tables)
    plan = partitioned(costs_of(dag, engines))
    for job in plan.jobs:
        assert MAPREDUCE.refused(plan.job_dag(job), rules) is None
        check_job(plan.job_dag(job), {**tables, **relations}, relations, rules)


@pytest.mark.rest
@settings(max_examples=15)
@given(dag=regrouped(), a=_KEYED, b=_KEYED, part_keys=st.booleans())
def test_jobs_by_parts_of_keys(dag: Dag, a: Columns, b: Columns, part_keys: bool) -> None:
    schema = pa.schema(dict.fromkeys(KEYS, pa.int64()))
    rules = dataclasses.replace(ALL_RULES, part_keys=part_keys)
    check_plan(dag, {"a": pa.table(a, schema), "b": pa.table(b, schema)}, rules)


def test_a_job_shuffles_by_the_part_that_all_its_keys_have() -> None:
    dag = read(
        "a = SCAN 'a' (k INTEGER, g INTEGER)\nb = SCAN 'b' (k INTEGER, g INTEGER)\n"
        "n = AGGREGATE a BY (k, g) TO (n = COUNT)\n"
        "r = JOIN INNER n, b ON (g = k) TO (k = LEFT k, n = LEFT n, g = RIGHT g)\nRESULTS r\n"
    )
    source = MAPREDUCE.generate(dag)
    assert '"n_of_mapper": task.buckets("n_of_mapper", ("g",), reducers)' in source
    assert '"b": task.buckets("b", ("k",), reducers)' in source
    rows = {"k": [1, 1, 2, 3, None] * 4, "g": [2, 3, 3, None, 1] * 4}
    tables = {"a": pa.table(rows), "b": pa.table(rows)}
    assert_same_results(dag, made_by(MAPREDUCE, dag, tables), evaluate(dag, tables))


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
