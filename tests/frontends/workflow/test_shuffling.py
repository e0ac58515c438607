"""Which key a job of one shuffle shuffles by, and how many jobs workflows need if a part of a key may serve."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from frontends.workflow import example_data
from frontends.workflow.ir.dag import Dag, While
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.tables import schema_of
from frontends.workflow.jobs.merging import unmergeable
from frontends.workflow.jobs.shuffling import Shuffle
from frontends.workflow.languages import hive
from frontends.workflow.mapping.partition import partitioned
from frontends.workflow.rewrites.rules import optimised
from tests.support import tiny_tpch
from tests.support.workflow_plans import costs_of, one_shuffle
from tests.support.workflow_samples import page_rank

EXAMPLES = Path(__file__).parents[3] / "examples" / "workflow"
TABLES = """
a = SCAN 'a' (k INTEGER, g INTEGER, x DOUBLE, b BOOLEAN)
b = SCAN 'b' (k INTEGER, g INTEGER, x DOUBLE, b BOOLEAN)
"""
BY_K = "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k, g = LEFT g, h = RIGHT g, b = LEFT b)"
BY_K_AND_G = "j = JOIN INNER a, b ON (k = k, g = g) TO (k = LEFT k, g = RIGHT g, x = LEFT x)"


def dag(*lines: str) -> Dag:
    return Dag.of_unread(read("\n".join([TABLES, *lines, f"RESULTS {lines[-1].split()[0]}"])).operators)


@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        ((BY_K, "r = AGGREGATE j BY (g, k) TO (n = COUNT)"), {"j": (("k",), ("k",)), "r": (("k",),)}),
        # What was grouped by more is joined, or grouped again, by less.
        (("n = AGGREGATE a BY (g, k) TO (n = COUNT)", "r = JOIN ANTI n, b ON (g = k) TO (k = LEFT k)"),
         {"n": (("g",),), "r": (("g",), ("k",))}),
        (("n = AGGREGATE a BY (k, g) TO (n = COUNT)", "p = PROJECT n TO (key = {g}, n = {n})",
          "r = AGGREGATE p BY (key) TO (n = MAX n)"), {"n": (("g",),), "r": (("key",),)}),
        # Two keys that share a part which neither is.
        ((BY_K_AND_G, "p = PROJECT j TO (g = {g}, x = {x})", "r = AGGREGATE p BY (x, g) TO (n = COUNT)"),
         {"j": (("g",), ("g",)), "r": (("g",),)}),
        # Three operators: what all of them have.
        ((BY_K_AND_G, "n = AGGREGATE j BY (k, g, x) TO (n = COUNT)", "r = AGGREGATE n BY (k, n) TO (m = COUNT)"),
         {"j": (("k",), ("k",)), "n": (("k",),), "r": (("k",),)}),
        # Two groupings of one table, which is shuffled once.
        (("n = AGGREGATE a BY (k) TO (n = COUNT)", "m = AGGREGATE a BY (k, g) TO (n = COUNT)",
          "r = JOIN INNER m, n ON (k = k, n = n) TO (k = LEFT k)"),
         {"n": (("k",),), "m": (("k",),), "r": (("k",), ("k",))}),
        # Entire rows, of which a column stays.
        (("i = INTERSECT a, b", "p = PROJECT i TO (k = {k}, n = {1})", "r = DISTINCT p"),
         {"i": (("k",), ("k",)), "r": (("k",),)}),
        # What is united is placed by one key.
        ((BY_K, "n = AGGREGATE j BY (k, g) TO (n = COUNT)", "m = AGGREGATE a BY (k, g) TO (n = COUNT)",
          "u = UNION ALL n, m", "r = AGGREGATE u BY (k) TO (n = SUM n)"),
         {"j": (("k",), ("k",)), "n": (("k",),), "m": (("k",),), "r": (("k",),)}),
    ],
)  # fmt: skip
def test_a_part_of_a_key_serves(lines: tuple[str, ...], keys: dict[str, tuple[tuple[str, ...], ...]]) -> None:
    job = dag(*lines)
    assert unmergeable(job) is None
    assert "they shuffle by different keys" in (unmergeable(job, part_keys=False) or "")
    shuffle = Shuffle(job.operators, part_keys=True)
    assert {one.name: found for one in job.operators if (found := shuffle.keys(one))} == keys


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        # All rows would meet, in one reducer.
        (("n = AGGREGATE a BY (k, g) TO (n = COUNT)", "r = AGGREGATE n TO (n = SUM n)"), "by different keys"),
        (("n = AGGREGATE a BY (k, g) TO (n = COUNT)", "r = TOP 3 n BY (n)"), "by different keys"),
        (("n = AGGREGATE a BY (k, g) TO (n = COUNT)", "r = SORT n BY (k)"), "by different keys"),
        (("n = AGGREGATE a BY (k, g) TO (n = COUNT)", "r = SORT n BY (n)"), "by different keys"),
        # Three values, so that most reducers would have no rows.
        (("n = AGGREGATE a BY (b, g) TO (n = COUNT)", "r = AGGREGATE n BY (b) TO (n = SUM n)"), "but BOOLEANs"),
        # The first two share a part, the last two another.
        ((BY_K, "n = AGGREGATE j BY (g, k) TO (n = COUNT)", "r = AGGREGATE n BY (g) TO (n = SUM n)"), "different keys"),
        # A left join's right key is null where a left row has no partner.
        (("j = JOIN LEFT a, b ON (k = k) TO (k = RIGHT k, g = LEFT g)", "r = AGGREGATE j BY (k, g) TO (n = COUNT)"),
         "by different keys"),
        # Rows from before the shuffle are among those from after it.
        ((BY_K, "p = PROJECT j TO (k = {k}, g = {g})", "q = PROJECT a TO (k = {k}, g = {g})", "u = UNION ALL p, q",
          "r = AGGREGATE u BY (k, g) TO (n = COUNT)"), "by different keys"),
    ],
)  # fmt: skip
def test_a_part_of_a_key_does_not_serve(lines: tuple[str, ...], why: str) -> None:
    assert why in (unmergeable(dag(*lines)) or "")


def test_whole_keys_are_kept_where_all_operators_have_them() -> None:
    lines = (BY_K_AND_G, "r = AGGREGATE j BY (g, k) TO (n = COUNT)")
    for part_keys in (True, False):
        assert Shuffle(dag(*lines).operators, part_keys).keys(dag(*lines).operators[-1]) == (("g", "k"),)


# ---- workflows -------------------------------------------------------------------------------


def jobs(workflow: Dag, part_keys: bool) -> list[frozenset[str]]:
    plan = partitioned(costs_of(optimised(workflow), (one_shuffle(part_keys=part_keys),)))
    return [job.operators for job in plan.jobs]


def example(name: str) -> Dag:
    schemas = {table: schema_of(one.schema, table) for table, one in example_data.tables(name, 20).items()}
    file = EXAMPLES / f"{name}.hql"
    return hive.parse(file.read_text("utf-8"), schemas, file.name)


def query(number: int) -> Dag:
    file = EXAMPLES / "tpch" / f"q{number:02}.hql"
    return hive.parse(file.read_text("utf-8"), tiny_tpch.schemas(), file.name)


def test_netflix_has_four_jobs() -> None:
    """Films that agree are summed where they are joined with ratings, the scores of a user where the best is found."""
    found = jobs(example("netflix"), part_keys=True)
    assert found[2:] == [{"agreements", "weighted", "scores"}, {"predicted", "best"}]
    assert len(found) == 4
    assert len(jobs(example("netflix"), part_keys=False)) == 6


def iteration() -> Dag:
    """Of PageRank: links are joined by the vertex that they come from, and summed by that which they lead to."""
    return page_rank().of_type(While)[0].body


@pytest.mark.parametrize(
    ("workflow", "number", "number_off"),
    [
        (partial(example, "top_shopper"), 1, 1),
        (partial(query, 3), 4, 5),
        (partial(query, 17), 2, 2),
        (partial(query, 18), 4, 5),
        (iteration, 2, 2),
    ],
    ids=["top-shopper", "q03", "q17", "q18", "an iteration of PageRank"],
)
def test_jobs_of_a_workflow(workflow: Callable[[], Dag], number: int, number_off: int) -> None:
    dag = workflow()
    assert (len(jobs(dag, part_keys=True)), len(jobs(dag, part_keys=False))) == (number, number_off)
