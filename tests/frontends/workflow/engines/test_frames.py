"""Engines of data frames: names that their libraries take for something else, and passes of several operators."""

import pyarrow as pa
import pytest

from frontends.workflow.engines.base import ALL_RULES, Rules
from frontends.workflow.errors import Inexpressible
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Dag,
    Distinct,
    Function,
    Join,
    Scan,
    Select,
    Udf,
    joined_columns,
)
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type
from tests.support.workflow_dags import Case
from tests.support.workflow_engines import assert_agrees, installed_engine

ENGINES = ("polars", "pandas", "dask")
SHOPS = read(
    "sales = SCAN 'sales' (shop STRING, price DOUBLE, n INTEGER)\n"
    "dear = SELECT sales WHERE {price > 1.5}\n"
    "worth = ARITHMETIC dear SET price = {price * n}\n"
    "named = PROJECT worth TO (shop = {shop}, paid = {price})\n"
    "totals = AGGREGATE named BY (shop) TO (paid = SUM paid)\n"
    "RESULTS totals\n"
)


@pytest.mark.parametrize("name", ENGINES)
def test_names_that_a_library_would_take_for_patterns(name: str) -> None:
    schema = Schema.of(**{"*": Type.INTEGER, "^a.*$": Type.INTEGER, "abc": Type.INTEGER})
    scan = Scan(name="t", table="t", columns=schema)
    kept = Select(name="kept", source=scan.relation, condition=Scalar('"^a.*$" > 1'))
    sums = Aggregate(
        name="sums", source=kept.relation, keys=("*",), aggregations=(Aggregation("total", Function.SUM, "abc"),)
    )
    columns = joined_columns(kept.relation, sums.relation)
    both = Join(name="both", left=kept.relation, right=sums.relation, on=(("*", "*"),), columns=columns)
    dag = Dag.of_unread((scan, kept, sums, both, Distinct(name="once", source=both.relation)))
    table = pa.table([[1, 1, 2], [2, 3, 1], [5, 6, 7]], names=list(schema.names))
    assert_agrees(installed_engine(name), Case(dag, {"t": table}))


def run_of(name: str, dag: Dag, rules: Rules = ALL_RULES) -> str:
    """The function `run` of the script."""
    text = installed_engine(name).generate(dag, rules)
    return text[text.index("def run(") : text.index("\n\n\ndef named_paths")]


@pytest.mark.parametrize("name", ENGINES)
def test_consecutive_operators_are_one_pass(name: str) -> None:
    text = run_of(name, SHOPS)
    made = [line.split(" = ")[0].strip() for line in text.split("\n") if " = " in line and "#" not in line]
    assert [one for one in made if one.isidentifier()] == ["sales", "named", "totals"]


@pytest.mark.parametrize("name", ENGINES)
def test_without_shared_scans_each_operator_is_a_pass(name: str) -> None:
    text = run_of(name, SHOPS, ALL_RULES.off("share_scans"))
    assert all(f"    {relation} = " in text for relation in ("dear", "worth", "named", "totals"))


@pytest.mark.parametrize("name", ENGINES)
def test_udfs_are_inexpressible(name: str) -> None:
    scan = Scan(name="t", table="t", columns=Schema.of(n=Type.INTEGER))
    called = Udf(name="u", read=(scan.relation,), columns=scan.schema, function="module:name")
    with pytest.raises(Inexpressible, match="UDF u"):
        installed_engine(name).generate(Dag.of_unread((scan, called)))
