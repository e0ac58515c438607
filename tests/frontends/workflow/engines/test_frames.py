"""Engines of data frames: names that their libraries take for something else, and passes of several operators."""

import pyarrow as pa
import pytest

from frontends.workflow.engines.base import ALL_RULES, Rules
from frontends.workflow.errors import Inexpressible
from frontends.workflow.ir import (
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
from frontends.workflow.reading import read
from frontends.workflow.scalars import Scalar
from frontends.workflow.types import Schema, Type
from tests.support.workflow_dags import Case
from tests.support.workflow_engines import assert_agrees, installed_engine

ENGINES = ("polars", "pandas")
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


GOLDEN = {
    "polars": """\
def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    # sales = SCAN 'sales' (shop STRING, price DOUBLE, n INTEGER) (<ir>:1:1)
    sales = pl.scan_parquet(inputs["sales"]).select(
        pl.col("shop").cast(pl.String),
        pl.col("price").cast(pl.Float64),
        pl.col("n").cast(pl.Int64),
    )

    # dear = SELECT sales WHERE {price > 1.5} (<ir>:2:1)
    # worth = ARITHMETIC dear SET price = {price * n} (<ir>:3:1)
    # named = PROJECT worth TO (shop = {shop}, paid = {price}) (<ir>:4:1)
    named = (
        sales.filter(pl.col("price") > 1.5)
        .select(pl.col("shop"), (pl.col("price") * pl.col("n")).alias("paid"))
    )

    # totals = AGGREGATE named BY (shop) TO (paid = SUM paid) (<ir>:5:1)
    totals = named.group_by("shop").agg(paid=pl.when(pl.col("paid").count() > 0).then(pl.col("paid").sum()))

    write(totals, outputs["totals"], pa.schema([("shop", pa.string()), ("paid", pa.float64())]))
""",
    "pandas": """\
def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    with pd.option_context("future.distinguish_nan_and_na", True):

        # sales = SCAN 'sales' (shop STRING, price DOUBLE, n INTEGER) (<ir>:1:1)
        sales = read(inputs["sales"], pa.schema([("shop", pa.string()), ("price", pa.float64()), ("n", pa.int64())]))

        # dear = SELECT sales WHERE {price > 1.5} (<ir>:2:1)
        # worth = ARITHMETIC dear SET price = {price * n} (<ir>:3:1)
        # named = PROJECT worth TO (shop = {shop}, paid = {price}) (<ir>:4:1)
        named = (
            sales.pipe(lambda df: df[less(1.5, df["price"])])
            .pipe(lambda df: pd.DataFrame({"shop": df["shop"], "paid": df["price"] * df["n"].astype("Float64")}))
        )

        # totals = AGGREGATE named BY (shop) TO (paid = SUM paid) (<ir>:5:1)
        totals = (
            named.groupby(["shop"], dropna=False, sort=False)
            .pipe(lambda groups: pd.DataFrame({"paid": groups["paid"].sum(min_count=1)}))
            .reset_index()
        )

        write(totals, outputs["totals"], pa.schema([("shop", pa.string()), ("paid", pa.float64())]))
""",
}


@pytest.mark.parametrize("name", ENGINES)
def test_consecutive_operators_are_one_pass(name: str) -> None:
    assert run_of(name, SHOPS) == GOLDEN[name].rstrip("\n")


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
