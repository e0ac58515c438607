"""Musketeer, §3.4.1 to §3.4.4: what merging, shared scans and type inference save, counted in generated code.

Spark: listings 3.5 and 3.6, four maps against two. MapReduce: passes of a mapper over its rows, and jobs.
"""

import re

import pytest

from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES
from frontends.workflow.ir.reading import read
from tests.support.workflow_samples import max_property_price

CHAIN = read(
    "properties = SCAN 'properties' (id INTEGER, street STRING, town STRING, area INTEGER)\n"
    "prices = SCAN 'prices' (id INTEGER, price DOUBLE)\n"
    "large = SELECT properties WHERE {area > 10}\n"
    "locs = PROJECT large TO (id = {id}, street = {street})\n"
    "id_price = JOIN INNER locs, prices ON (id = id) TO (street = LEFT street, price = RIGHT price)\n"
    "RESULTS id_price\n"
)
"""A job of one shuffle with two operators before it."""


def spark(*off: str) -> str:
    """What the script for max-property-price does, without these rules."""
    source = engine("pyspark_rdd").generate(max_property_price(), ALL_RULES.off(*off))
    return source.partition("def run(")[2].partition("def named_paths")[0]


def maps(source: str) -> int:
    return source.count(".mapPartitions(")


def one_line(source: str) -> str:
    return re.sub(r"\s+", " ", source).replace("( ", "(").replace(" )", ")")


@pytest.mark.parametrize(
    ("off", "number"),
    [
        ((), 2),  # Listing 3.6.
        (("share_scans",), 3),
        (("infer_types",), 3),
        (("share_scans", "infer_types"), 4),  # Listing 3.5.
        (("merge",), 5),  # Of a relation that is kept, the last one, too, is made rows.
    ],
)
def test_maps_of_max_property_price_on_spark(off: tuple[str, ...], number: int) -> None:
    assert maps(spark(*off)) == number


def test_listing_3_5_has_a_map_for_each_step() -> None:
    source = one_line(spark("share_scans", "infer_types"))
    steps = [
        "locs = properties.mapPartitions(lambda rows: ((id_, street, town) for id_, street, town in rows))",
        "id_price = locs.mapPartitions(lambda rows: ((id_, (street, town)) for id_, street, town in rows "
        "if id_ is not None)).join(prices)"
        ".mapPartitions(lambda rows: ((id_, street, town, price) for id_, ((street, town), price) in rows))",
        "street_price = id_price.mapPartitions(lambda rows: (((street, town), price) "
        "for _, street, town, price in rows)).reduceByKey(greater)",
    ]
    for step in steps:
        assert step in source


def test_listing_3_6_composes_them() -> None:
    source = one_line(spark())
    steps = [
        "locs = properties.mapPartitions(lambda rows: ((id_, (street, town)) for id_, street, town in rows "
        "if id_ is not None))",
        "id_price = locs.join(prices)",
        "street_price = id_price.mapPartitions(lambda rows: (((street, town), price) "
        "for _, ((street, town), price) in rows)).reduceByKey(greater)",
    ]
    for step in steps:
        assert step in source


def test_without_merging_each_relation_is_kept_before_the_next_on_spark() -> None:
    relations = ("properties", "prices", "locs", "id_price", "street_price")
    assert all(f" {name} = kept(" in spark("merge") for name in relations)
    assert "kept(" not in spark()


def test_a_table_that_two_operators_read_is_read_once_on_spark() -> None:
    dag = read(
        "t = SCAN 't' (a INTEGER, b INTEGER)\nu = AGGREGATE t BY (a) TO (n = COUNT)\nv = SELECT t WHERE {b > 1}\n"
        "RESULTS u, v\n"
    )
    assert "t = kept(read_rows(" in engine("pyspark_rdd").generate(dag)
    assert "kept(" not in engine("pyspark_rdd").generate(dag, ALL_RULES.off("share_scans"))


def mapper(*off: str) -> str:
    source = engine("mapreduce").generate(CHAIN, ALL_RULES.off(*off))
    return source.partition("def map_rows(")[2].partition("def reduce_rows")[0]


@pytest.mark.parametrize(
    ("off", "number"),
    [((), 1), (("infer_types",), 2), (("share_scans",), 3), (("share_scans", "infer_types"), 3)],
)
def test_passes_of_a_mapper_over_a_table(off: tuple[str, ...], number: int) -> None:
    """Relations that are made as tables, each in a pass, and the pass that gives rows their buckets."""
    source = mapper(*off)
    assert source.count("task.table(") + source.count('task.buckets("locs"') == number
    assert source.count("task.table(") + source.count("task.view(") == 2


def test_jobs_of_mapreduce() -> None:
    jobs = "mapped, reduced = two_stages("
    assert engine("mapreduce").generate(CHAIN).count(jobs) == 1
    assert engine("mapreduce").generate(CHAIN, ALL_RULES.off("merge")).count(jobs) == 3
