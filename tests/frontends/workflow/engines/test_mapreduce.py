"""MapReduce jobs make what the reference interpreter makes, in this process and on a cluster."""

import dataclasses
import io
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES, THREADS_VARIABLE, Rules
from frontends.workflow.engines.mapreduce import SHARE
from frontends.workflow.ir.dag import (
    Aggregate,
    CrossJoin,
    Dag,
    Distinct,
    Join,
    Leaf,
    Project,
    Select,
    Values,
    While,
)
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages import hive
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.mapping.partition import partitioned
from frontends.workflow.mapping.small_relations import BROADCAST_BYTES_MAX
from frontends.workflow.running.planning import choose
from frontends.workflow.switches import Switches
from frontends.workflow.table_files import given_tables
from sparrow_py import LocalCluster
from tests.support import tiny_tpch
from tests.support.suites import rest_after
from tests.support.workflow_dags import KINDS, Case, assert_same_results, cases
from tests.support.workflow_engines import made_by
from tests.support.workflow_plans import costs_of, one_shuffle
from tests.support.workflow_samples import max_property_price

EXAMPLES = Path(__file__).parents[4] / "examples" / "workflow"
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


def check_jobs(case: Case, rules: Rules, small: Collection[str] = ()) -> int:
    """Each operator as a job by itself, and each pair of neighbours that can be one job; how many joins mappers did."""
    joins = 0
    relations = all_relations(case)
    for operator in case.dag.operators:
        if not isinstance(operator, Leaf):
            readers = (reader.name for reader in case.dag.consumers(operator.name))
            for names in ([operator.name], *([operator.name, reader] for reader in readers)):
                joins += check_job(case.dag.subset(names), {**case.tables, **relations}, relations, rules, small)
    return joins


def check_job(
    job: Dag, tables: dict[str, pa.Table], relations: dict[str, pa.Table], rules: Rules, small: Collection[str] = ()
) -> int:
    """How many joins its mappers did."""
    if MAPREDUCE.refused(job, rules, small) is not None:
        return 0
    expected = {name: relations[name] for name in job.results}
    assert_same_results(job, made_by(MAPREDUCE, job, tables, rules, small, row_group_rows=2), expected)
    return len(MAPREDUCE.read_whole(job, rules, small))


MOSTLY_JOINS = (Join, Join, CrossJoin, Select, Project, Aggregate, Distinct)
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


@pytest.fixture(scope="module")
def share() -> Callable[..., pa.Table]:
    """What scripts define for a mapper's share of a file."""
    defined: dict[str, Callable[..., pa.Table]] = {"pq": pq, "pa": pa}
    exec(SHARE, defined)  # type: ignore[arg-type]
    return defined["share"]


@given(rows=st.integers(0, 12), group_rows=st.integers(1, 13), splits=st.integers(1, 5))
def test_mappers_share_a_file_however_few_row_groups_it_has(
    share: Callable[..., pa.Table], rows: int, group_rows: int, splits: int
) -> None:
    content = io.BytesIO()
    pq.write_table(
        pa.table({"n": pa.array(range(rows), pa.int64()), "x": [0] * rows}), content, row_group_size=group_rows
    )
    with pq.ParquetFile(content) as file:
        shares = [share(file, ["n"], split, splits)["n"].to_pylist() for split in range(splits)]
        few = file.num_row_groups < splits
    assert sorted(row for each in shares for row in each) == list(range(rows))
    if few:
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


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


def check_plan(dag: Dag, tables: dict[str, pa.Table], rules: Rules, small: Collection[str] = ()) -> int:
    """The workflow in as few jobs as there can be, each checked by itself; how many joins mappers did."""
    engines = (one_shuffle(part_keys=rules.part_keys, small=small),)
    relations = evaluate(dataclasses.replace(dag, results=dag.names), tables)
    plan = partitioned(costs_of(dag, engines))
    joins = 0
    for job in plan.jobs:
        assert MAPREDUCE.refused(plan.job_dag(job), rules, small) is None
        joins += check_job(plan.job_dag(job), {**tables, **relations}, relations, rules, small)
    return joins


def keyed_tables(a: Columns, b: Columns) -> dict[str, pa.Table]:
    schema = pa.schema(dict.fromkeys(KEYS, pa.int64()))
    return {"a": pa.table(a, schema), "b": pa.table(b, schema)}


@pytest.mark.rest
@settings(max_examples=15)
@given(dag=regrouped(), a=_KEYED, b=_KEYED, part_keys=st.booleans())
def test_jobs_by_parts_of_keys(dag: Dag, a: Columns, b: Columns, part_keys: bool) -> None:
    rules = dataclasses.replace(ALL_RULES, part_keys=part_keys)
    check_plan(dag, keyed_tables(a, b), rules)


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


# ---- joins of mappers ------------------------------------------------------------------------

NAN = float("nan")
JOINED = {
    # Several row groups, so that both mappers have rows; keys that are null, NaN, twice there, on one side alone.
    "big": pa.table({"k": [1.0, NAN, None, 2.0, 2.0, 7.0, NAN, None], "n": list(range(8))}),
    "few": pa.table({"k": [2.0, NAN, None, 1.0, 2.0, 9.0], "m": [10, 20, 30, 40, 50, None]}),
}
NO_ROWS = {name: table.slice(0, 0) for name, table in JOINED.items()}
SCANS = "big = SCAN 'big' (k DOUBLE, n INTEGER)\nfew = SCAN 'few' (k DOUBLE, m INTEGER)\n"
ON = "ON (k = k) TO"
KINDS_OF_JOINS = {
    "inner": f"r = JOIN INNER big, few {ON} (k = RIGHT k, n = LEFT n, m = RIGHT m)",
    "inner, the small side left": f"r = JOIN INNER few, big {ON} (k = LEFT k, n = RIGHT n, m = LEFT m)",
    "left": f"r = JOIN LEFT big, few {ON} (k = LEFT k, n = LEFT n, m = RIGHT m)",
    "semi": f"r = JOIN SEMI big, few {ON} (k = LEFT k, n = LEFT n)",
    "anti": f"r = JOIN ANTI big, few {ON} (k = LEFT k, n = LEFT n)",
    "cross": "r = CROSS JOIN big, few TO (n = LEFT n, m = RIGHT m)",
    "cross, the small side left": "r = CROSS JOIN few, big TO (n = RIGHT n, m = LEFT m)",
}


def check_map_joins(text: str, joins: dict[str, str], tables: dict[str, pa.Table] = JOINED) -> str:
    """The script, in which mappers do these joins, reading these relations whole, and which makes the right rows."""
    dag, small = read(SCANS + text), {"few", *joins.values()}
    assert MAPREDUCE.read_whole(dag, ALL_RULES, small) == joins
    made = made_by(MAPREDUCE, dag, tables, ALL_RULES, small, row_group_rows=2)
    assert_same_results(dag, made, evaluate(dag, tables))
    return MAPREDUCE.generate(dag, ALL_RULES, small)


@pytest.mark.parametrize("kind", KINDS_OF_JOINS)
def test_a_join_with_a_small_side_is_done_by_each_mapper(kind: str) -> None:
    source = check_map_joins(f"{KINDS_OF_JOINS[kind]}\nRESULTS r\n", {"r": "few"})
    mapper, _, reducer = source.partition("def reduce_rows")
    assert "# r = " in mapper and "# r = " not in reducer
    assert 'task.scan("few_whole", inputs["few"], {"k": "DOUBLE", "m": "BIGINT"}, 0, 1)' in mapper


@pytest.mark.parametrize("empty", [("big",), ("few",), ("big", "few")], ids=" and ".join)
def test_mappers_join_relations_without_rows(empty: tuple[str, ...]) -> None:
    """All kinds in one job."""
    joins = [join.replace("r = ", f"r{number} = ") for number, join in enumerate(KINDS_OF_JOINS.values())]
    text = "\n".join([*joins, f"RESULTS {', '.join(f'r{number}' for number in range(len(joins)))}\n"])
    tables = {name: NO_ROWS[name] if name in empty else table for name, table in JOINED.items()}
    check_map_joins(text, {f"r{number}": "few" for number in range(len(joins))}, tables)


@pytest.mark.parametrize("kind", ["LEFT", "SEMI", "ANTI"])
def test_a_side_whose_rows_count_by_themselves_is_not_read_whole(kind: str) -> None:
    """Each mapper would make what a row of it without a partner becomes."""
    dag = read(f"{SCANS}r = JOIN {kind} few, big {ON} (k = LEFT k, m = LEFT m)\nRESULTS r\n")
    assert MAPREDUCE.generate(dag, ALL_RULES, {"few"}) == MAPREDUCE.generate(dag)


def test_with_map_joins_off_nothing_changes() -> None:
    off = ALL_RULES.off("map_joins")
    for join in KINDS_OF_JOINS.values():
        dag = read(f"{SCANS}{join}\nRESULTS r\n")
        assert MAPREDUCE.generate(dag, off, dag.names) == MAPREDUCE.generate(dag)
        assert MAPREDUCE.generate(dag, ALL_RULES, dag.names) != MAPREDUCE.generate(dag)


SEVERAL = {
    "operators on a row at a time come before the join": (
        "old = SELECT few WHERE {m < 45}\nids = PROJECT old TO (id = {k}, m = {m + 1})\n"
        "r = JOIN INNER big, ids ON (k = id) TO (n = LEFT n, m = RIGHT m)\nRESULTS r\n",
        {"r": "ids"},
    ),
    "the small side is a result, too": (
        f"ids = PROJECT few TO (k = {{k}})\nr = JOIN SEMI big, ids {ON} (n = LEFT n)\nRESULTS ids, r\n",
        {"r": "ids"},
    ),
    "a small table joined with itself": (
        f"r = JOIN INNER few, few {ON} (one = LEFT m, other = RIGHT m)\nRESULTS r\n",
        {"r": "few"},
    ),
    "of two small sides": (
        f"few_2 = SELECT few WHERE {{m > 10}}\nr = JOIN LEFT few, few_2 {ON} (m = LEFT m, m_2 = RIGHT m)\nRESULTS r\n",
        {"r": "few_2"},
    ),
    "constants": (
        "v = VALUES (m INTEGER) ROWS (({1}), ({2}))\nr = CROSS JOIN big, v TO (n = LEFT n, m = RIGHT m)\nRESULTS r\n",
        {"r": "v"},
    ),
    "constants on both sides": (
        "v = VALUES (m INTEGER) ROWS (({1}), ({2}))\nr = CROSS JOIN v, v TO (n = LEFT m, m = RIGHT m)\nRESULTS r\n",
        {"r": "v"},
    ),
    "several in one job, one of which reads what another makes": (
        f"i = JOIN INNER big, few {ON} (k = LEFT k, n = LEFT n, m = RIGHT m)\n"
        f"j = JOIN LEFT i, few {ON} (k = LEFT k, n = LEFT n, m = LEFT m, m_2 = RIGHT m)\n"
        f"r = JOIN ANTI j, few ON (k = k) TO (n = LEFT n)\nRESULTS j, r\n",
        {"i": "few", "j": "few", "r": "few"},
    ),
    "before another operator's shuffle": (
        f"j = JOIN INNER big, few {ON} (k = RIGHT k, n = LEFT n, m = RIGHT m)\n"
        "r = AGGREGATE j BY (m) TO (n = SUM n, x = MAX k, a = AVG n)\nRESULTS r\n",
        {"j": "few"},
    ),
    "before a join that is shuffled, of two relations that mappers have joined": (
        f"i = JOIN INNER big, few {ON} (k = RIGHT k, n = LEFT n, m = RIGHT m)\n"
        f"j = JOIN LEFT big, few {ON} (k = LEFT k, m = RIGHT m)\n"
        f"r = JOIN INNER i, j {ON} (n = LEFT n, m = RIGHT m)\nRESULTS r\n",
        {"i": "few", "j": "few"},
    ),
    "before rows that are distinct": (
        f"j = JOIN INNER big, few {ON} (k = LEFT k, m = RIGHT m)\nr = DISTINCT j\nRESULTS r\n",
        {"j": "few"},
    ),
    "a small side of rows of two tables": (
        f"u = UNION ALL few, few\nr = JOIN INNER big, u {ON} (n = LEFT n, m = RIGHT m)\nRESULTS r\n",
        {"r": "u"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", rest_after(5, *SEVERAL))
def test_joins_of_mappers_among_other_operators(case: str) -> None:
    check_map_joins(*SEVERAL[case])


NOT_BY_MAPPERS = {
    "the small side has passed the shuffle": (
        f"d = AGGREGATE few BY (k) TO (m = MAX m)\nr = JOIN INNER big, d {ON} (n = LEFT n, m = RIGHT m)\nRESULTS r\n"
    ),
    "the other side has": (
        f"d = AGGREGATE big BY (k) TO (n = MAX n)\nr = JOIN INNER d, few {ON} (n = LEFT n, m = RIGHT m)\nRESULTS r\n"
    ),
}


@pytest.mark.parametrize("case", NOT_BY_MAPPERS)
def test_what_has_passed_the_shuffle_is_joined_by_reducers(case: str) -> None:
    dag = read(SCANS + NOT_BY_MAPPERS[case])
    small = {"few", "d"} if "other" not in case else {"few"}
    assert MAPREDUCE.refused(dag, ALL_RULES, small) is None
    assert MAPREDUCE.read_whole(dag, ALL_RULES, small) == {}
    assert MAPREDUCE.generate(dag, ALL_RULES, small) == MAPREDUCE.generate(dag)


def test_a_job_that_is_one_only_if_a_join_is_shuffled_is_one() -> None:
    """What mappers join would be at no place that the UNION's other rows have."""
    dag = read(
        f"{SCANS}j = JOIN INNER big, few {ON} (k = LEFT k, n = LEFT n)\nd = AGGREGATE big BY (k) TO (n = MAX n)\n"
        "u = UNION ALL j, d\nr = AGGREGATE u BY (k) TO (n = SUM n)\nRESULTS r\n"
    )
    assert MAPREDUCE.refused(dag, ALL_RULES, {"few"}) is None
    assert MAPREDUCE.read_whole(dag, ALL_RULES, {"few"}) == {}
    assert MAPREDUCE.generate(dag, ALL_RULES, {"few"}) == MAPREDUCE.generate(dag)


def test_what_is_not_small_after_all_is_joined_all_the_same() -> None:
    rows = 2 * BROADCAST_BYTES_MAX // 16
    tables = {**JOINED, "few": pa.table({"k": np.arange(rows, dtype=float), "m": np.arange(rows)})}
    dag = read(f"{SCANS}{KINDS_OF_JOINS['inner']}\nRESULTS r\n")
    made = made_by(MAPREDUCE, dag, tables, ALL_RULES, {"few"}, row_group_rows=rows // 3)
    assert sorted(made["r"]["m"].to_pylist()) == [1, 2, 2, 7]


@pytest.mark.rest
def test_random_jobs_whose_mappers_join() -> None:
    joins: list[int] = []

    @settings(max_examples=15)
    @given(case=cases(kinds=MOSTLY_JOINS, steps_max=3))
    def check(case: Case) -> None:
        joins.append(check_jobs(case, ALL_RULES, case.dag.names))

    check()
    assert sum(joins) >= 3


@pytest.mark.rest
def test_jobs_whose_mappers_join_by_parts_of_keys() -> None:
    joins: list[int] = []

    @settings(max_examples=15)
    @given(dag=regrouped(), a=_KEYED, b=_KEYED, small=st.sampled_from(("a", "b", "ab")))
    def check(dag: Dag, a: Columns, b: Columns, small: str) -> None:
        joins.append(check_plan(dag, keyed_tables(a, b), ALL_RULES, frozenset(small)))

    check()
    assert sum(joins) >= 3


@pytest.mark.rest
@pytest.mark.parametrize(("number", "jobs", "joins"), [(8, 1, 7), (21, 7, 5)])
def test_queries_of_tpc_h_whose_tables_are_small(number: int, jobs: int, joins: int) -> None:
    """With all joins shuffled they have 8 and 10 jobs."""
    tables = tiny_tpch.tables()
    text = (EXAMPLES / "tpch" / f"q{number:02}.hql").read_text("utf-8")
    sizes = {name: one.size for name, one in given_tables(tables).items()}
    workflow = hive.parse(text, tiny_tpch.schemas(), "tpch.hql")
    plan = choose(workflow, sizes, {"mapreduce": True}, Switches(), rates=Calibration()).plan
    relations = evaluate(dataclasses.replace(plan.dag, results=plan.dag.names), tables)
    parts = [plan.job_dag(job) for job in plan.jobs]
    found = sum(check_job(one, {**tables, **relations}, relations, ALL_RULES, plan.small) for one in parts)
    assert (len(parts), found) == (jobs, joins)


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
