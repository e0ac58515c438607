"""Musketeer, §3.4.1: classes of operators (table 3.1), and which of them may be one job of one shuffle."""

import pytest

from frontends.workflow.ir.dag import Dag, While
from frontends.workflow.ir.printing import _WRITERS
from frontends.workflow.ir.reading import read
from frontends.workflow.jobs.classes import (
    CLASSES,
    JobClass,
    Merge,
    associative,
    class_of,
    merge_rule,
    shuffle_keys,
)
from frontends.workflow.jobs.merging import unmergeable
from frontends.workflow.mapping.costs import EngineModel
from frontends.workflow.mapping.partition import partitioned
from tests.support.workflow_plans import costs_of, one_shuffle
from tests.support.workflow_samples import page_rank

TABLES = """
a = SCAN 'a' (k INTEGER, g INTEGER, x DOUBLE)
b = SCAN 'b' (k INTEGER, g INTEGER, x DOUBLE)
c = SCAN 'c' (k INTEGER, g INTEGER, x DOUBLE)
"""
ROW = ("k", "g", "x")


def dag(*lines: str) -> Dag:
    return Dag.of_unread(read("\n".join([TABLES, *lines, f"RESULTS {lines[-1].split()[0]}"])).operators)


# ---- table 3.1 -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "job_class", "keys"),
    [
        # The table's own rows.
        ("r = PROJECT a TO (k = {k})", JobClass.MAP_ONLY, ()),
        ("r = SELECT a WHERE {k > 1}", JobClass.MAP_ONLY, ()),
        ("r = ARITHMETIC a SET x = {x + 1}", JobClass.MAP_ONLY, ()),
        ("r = ARITHMETIC a SET x = {x - 1}", JobClass.MAP_ONLY, ()),
        ("r = ARITHMETIC a SET x = {x / 2}", JobClass.MAP_ONLY, ()),
        ("r = ARITHMETIC a SET x = {x * 2}", JobClass.MAP_ONLY, ()),
        ("r = UNION ALL a, b", JobClass.MAP_ONLY, ()),
        ("r = INTERSECT a, b", JobClass.NO_OP_MAP, (ROW, ROW)),
        ("r = DIFFERENCE a, b", JobClass.NO_OP_MAP, (ROW, ROW)),
        ("r = AGGREGATE a BY (g) TO (s = SUM x)", JobClass.AGGREGATING, (("g",),)),
        ("r = AGGREGATE a BY (g) TO (n = COUNT)", JobClass.AGGREGATING, (("g",),)),
        ("r = AGGREGATE a TO (m = MAX x)", JobClass.AGGREGATING, ((),)),
        ("r = AGGREGATE a BY (k, g) TO (m = MIN x)", JobClass.AGGREGATING, (("k", "g"),)),
        ("r = JOIN INNER a, b ON (k = g) TO (k = LEFT k)", JobClass.MAP_AND_REDUCE, (("k",), ("g",))),
        # What it lacks.
        ("r = UNION a, b", JobClass.NO_OP_MAP, (ROW, ROW)),
        ("r = DISTINCT a", JobClass.NO_OP_MAP, (ROW,)),
        ("r = SORT a BY (g, k DESC)", JobClass.MAP_AND_REDUCE, (("g", "k"),)),
        ("r = TOP 5 a BY (g)", JobClass.AGGREGATING, ((),)),
        ("r = JOIN LEFT a, b ON (k = k) TO (k = LEFT k)", JobClass.MAP_AND_REDUCE, (("k",), ("k",))),
        ("r = JOIN SEMI a, b ON (k = k) TO (k = LEFT k)", JobClass.MAP_AND_REDUCE, (("k",), ("k",))),
        ("r = JOIN ANTI a, b ON (k = k) TO (k = LEFT k)", JobClass.MAP_AND_REDUCE, (("k",), ("k",))),
        ("r = CROSS JOIN a, b TO (k = LEFT k)", JobClass.MAP_AND_REDUCE, ((), ())),
        ("r = UDF 'm:f' (a, b) TO (k INTEGER)", JobClass.MAP_AND_REDUCE, ((), ())),
        ("r = BLACK BOX 'duckdb' 'SELECT 1' (a) TO (k INTEGER)", JobClass.ALONE, (ROW,)),
    ],
)
def test_table_3_1(line: str, job_class: JobClass, keys: tuple[tuple[str, ...], ...]) -> None:
    operator = dag(line).operators[-1]
    assert class_of(operator) is job_class
    assert shuffle_keys(operator) == keys


def test_every_operator_has_a_class() -> None:
    assert set(CLASSES) == {*_WRITERS, While}


@pytest.mark.parametrize(
    ("one", "other", "rule"),
    [
        *((JobClass.MAP_ONLY, other, Merge.ALWAYS) for other in JobClass if other is not JobClass.ALONE),
        (JobClass.NO_OP_MAP, JobClass.NO_OP_MAP, Merge.SAME_KEY),
        (JobClass.NO_OP_MAP, JobClass.AGGREGATING, Merge.NEVER),
        (JobClass.NO_OP_MAP, JobClass.MAP_AND_REDUCE, Merge.NEVER),
        (JobClass.AGGREGATING, JobClass.AGGREGATING, Merge.SAME_KEY_ASSOCIATIVE),
        (JobClass.AGGREGATING, JobClass.MAP_AND_REDUCE, Merge.SAME_KEY),
        (JobClass.MAP_AND_REDUCE, JobClass.MAP_AND_REDUCE, Merge.SAME_KEY),
        *((JobClass.ALONE, other, Merge.NEVER) for other in JobClass),
    ],
)
def test_rules_of_classes(one: JobClass, other: JobClass, rule: Merge) -> None:
    assert merge_rule(one, other) is merge_rule(other, one) is rule


# ---- jobs ------------------------------------------------------------------------------------

JOIN = "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k, g = LEFT g, h = RIGHT g, x = RIGHT x)"


@pytest.mark.parametrize(
    "lines",
    [
        # Map-only operators before and after a shuffle.
        ("f = SELECT a WHERE {k > 1}", "u = UNION ALL f, b", "g1 = AGGREGATE u BY (g) TO (n = COUNT)",
         "r = SELECT g1 WHERE {n > 1}"),
        # The same key, traced through names, joins and aggregations.
        (JOIN, "p = PROJECT j TO (key = {k}, x = {x})", "r = AGGREGATE p BY (key) TO (s = SUM x)"),
        (JOIN, "r = JOIN INNER j, c ON (k = k) TO (k = LEFT k, x = LEFT x)"),
        ("n = AGGREGATE a BY (k) TO (n = COUNT)", "r = JOIN INNER a, n ON (k = k) TO (k = LEFT k, n = RIGHT n)"),
        ("n = AGGREGATE a BY (k, g) TO (n = COUNT)", "r = SORT n BY (g, k)"),
        ("n = AGGREGATE a BY (k) TO (n = COUNT)", "m = AGGREGATE a BY (k) TO (m = MAX x)",
         "r = JOIN INNER n, m ON (k = k) TO (k = LEFT k, n = LEFT n, m = RIGHT m)"),
        ("n = AGGREGATE a BY (k, g) TO (n = COUNT)", "r = AGGREGATE a BY (g, k) TO (m = MAX x)"),
        # Entire rows, and all rows together.
        ("i = INTERSECT a, b", "d = DISTINCT i", "r = DIFFERENCE d, c"),
        ("t = TOP 3 a BY (x)", "r = AGGREGATE t TO (s = SUM x)"),
        # A left join's left key says where its rows are.
        ("j = JOIN LEFT a, b ON (k = g) TO (k = LEFT k, g = RIGHT g)", "r = AGGREGATE j BY (k) TO (n = COUNT)"),
        # A union of relations that are placed alike.
        (JOIN, "p = PROJECT j TO (k = {k}, x = {x})", "n = AGGREGATE a BY (k) TO (x = MAX x)", "u = UNION ALL p, n",
         "r = AGGREGATE u BY (k) TO (s = SUM x)"),
    ],
)  # fmt: skip
def test_operators_that_may_be_one_job(lines: tuple[str, ...]) -> None:
    assert unmergeable(dag(*lines)) is None


DIFFERENT, CLASSES_DIFFER = "they shuffle by different keys", "they are "


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((JOIN, "r = AGGREGATE j BY (g) TO (s = SUM x)"), DIFFERENT),
        ((JOIN, "q = ARITHMETIC j SET k = {k + 1}", "r = AGGREGATE q BY (k) TO (s = SUM x)"), DIFFERENT),
        ((JOIN, "p = PROJECT j TO (x = {x})", "r = JOIN INNER p, c ON (x = x) TO (x = LEFT x)"), DIFFERENT),
        (("n = AGGREGATE a BY (k) TO (n = COUNT)", "r = AGGREGATE a BY (g) TO (n = COUNT)"), DIFFERENT),
        (("n = AGGREGATE a BY (k) TO (n = COUNT)", "r = AGGREGATE b BY (k) TO (n = COUNT)"), DIFFERENT),
        # Where a left row has no partner, its right key is null.
        (("j = JOIN LEFT a, b ON (k = g) TO (k = LEFT k, g = RIGHT g)", "r = AGGREGATE j BY (g) TO (n = COUNT)"),
         DIFFERENT),
        # Rows of a are at the place of k; g is that of another shuffle of a.
        ((JOIN, "i = JOIN INNER b, a ON (k = g) TO (k = LEFT k)", "s = JOIN INNER j, i ON (g = k) TO (k = LEFT k)",
          "r = SELECT s WHERE {k > 1}"), DIFFERENT),
        # Rows from before the shuffle are among those from after it.
        ((JOIN, "p = PROJECT j TO (k = {k}, g = {g}, x = {x})", "u = UNION ALL p, c",
          "r = AGGREGATE u BY (k) TO (s = SUM x)"), DIFFERENT),
        (("i = INTERSECT a, b", "r = AGGREGATE i BY (k, g, x) TO (n = COUNT)"), CLASSES_DIFFER),
        ((JOIN, "r = DISTINCT j"), CLASSES_DIFFER),
        (("n = AGGREGATE a BY (k) TO (n = COUNT DISTINCT x)", "r = AGGREGATE n BY (k) TO (m = MAX n)"),
         "a distinct count cannot be put together from parts"),
        (("e = BLACK BOX 'duckdb' 'SELECT 1' (a) TO (k INTEGER)", "r = SELECT e WHERE {k > 1}"),
         "BLACK BOX is in no job with another operator"),
    ],
)  # fmt: skip
def test_operators_that_may_not_be_one_job(lines: tuple[str, ...], why: str) -> None:
    found = unmergeable(dag(*lines))
    assert found is not None
    assert why in found


@pytest.mark.parametrize(
    "lines",
    [
        (JOIN, "r = AGGREGATE j BY (k, g) TO (s = SUM x)"),
        # The thesis's rule alone would let this pass: the row is another one.
        ("i = INTERSECT a, b", "p = PROJECT i TO (k = {k})", "r = DISTINCT p"),
    ],
)
def test_operators_that_may_be_one_job_by_a_part_of_a_key(lines: tuple[str, ...]) -> None:
    """Ours, and not the thesis's: `tests/frontends/workflow/test_shuffling.py` has more."""
    assert unmergeable(dag(*lines)) is None
    assert DIFFERENT in (unmergeable(dag(*lines), part_keys=False) or "")


def test_a_reason_names_both_operators() -> None:
    found = unmergeable(dag(JOIN, "r = AGGREGATE j BY (g) TO (s = SUM x)"))
    assert found == "AGGREGATE r and JOIN j cannot be one job of one shuffle: they shuffle by different keys"


def test_a_loop_is_in_no_job_with_another_operator() -> None:
    assert unmergeable(page_rank(), ("loop", "ranks")) is None
    assert "WHILE is in no job with another operator" in (unmergeable(page_rank()) or "")


def test_only_distinct_counts_are_not_associative() -> None:
    for function in ("SUM x", "COUNT", "COUNT x", "MIN x", "MAX x", "AVG x"):
        assert associative(dag(f"r = AGGREGATE a BY (k) TO (v = {function})").operators[-1])
    assert not associative(dag("r = AGGREGATE a BY (k) TO (v = COUNT DISTINCT x)").operators[-1])


# ---- figure 3.6 ------------------------------------------------------------------------------

MAX_PROPERTY_PRICE = """
properties = SCAN 'properties' (id INTEGER, street STRING, town STRING, agent STRING)
prices = SCAN 'prices' (id INTEGER, price DOUBLE)
locs = PROJECT properties TO (id = {id}, street = {street}, town = {town})
id_price = JOIN INNER locs, prices ON (id = id) TO (street = LEFT street, town = LEFT town, price = RIGHT price)
street_price = AGGREGATE id_price BY (street, town) TO (price = MAX price)
shown = PROJECT street_price TO (street = {street}, town = {town}, price = {price})
RESULTS shown
"""


def test_max_property_price_is_two_jobs_of_mapreduce() -> None:
    """Figure 3.6: the projection and the join by id; the maximum by street and town and its projection."""
    mapreduce: EngineModel = one_shuffle()
    plan = partitioned(costs_of(read(MAX_PROPERTY_PRICE), (mapreduce,)))
    assert [job.operators for job in plan.jobs] == [{"locs", "id_price"}, {"street_price", "shown"}]
