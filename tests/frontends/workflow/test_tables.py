"""Arrow tables as relations: which types become which, and what does not fit the declared columns."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from frontends.workflow.errors import TableMismatch
from frontends.workflow.ir.tables import arrow_schema, conformed, schema_of
from frontends.workflow.ir.types import Schema, Type

DAY = datetime.date(2020, 2, 29)


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        (pa.array([1, None], pa.int8()), Type.INTEGER, [1, None]),
        (pa.array([1], pa.uint64()), Type.INTEGER, [1]),
        (pa.array([1.5], pa.float32()), Type.DOUBLE, [1.5]),
        (pa.array([Decimal("1.25"), None], pa.decimal128(15, 2)), Type.DOUBLE, [1.25, None]),
        (pa.array([3], pa.int64()), Type.DOUBLE, [3.0]),
        (pa.array(["a", None], pa.large_string()), Type.STRING, ["a", None]),
        (pa.array(["a"], pa.string_view()), Type.STRING, ["a"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), Type.STRING, ["a", "b", "a"]),
        (pa.array([True]), Type.BOOLEAN, [True]),
        (pa.array([DAY], pa.date64()), Type.DATE, [DAY]),
    ],
)
def test_columns_become_one_of_the_five_types(values: pa.Array, type_: Type, expected: list[object]) -> None:
    schema = Schema.of(a=type_)
    table = conformed(pa.table({"b": pa.nulls(len(values)), "a": values}), schema, "t")
    assert table.schema == arrow_schema(schema)
    assert table["a"].to_pylist() == expected


def test_the_schema_of_a_table() -> None:
    arrow = pa.schema(
        [("n", pa.int32()), ("price", pa.decimal128(15, 2)), ("s", pa.large_string()), ("d", pa.date32())]
    )
    assert schema_of(arrow, "t") == Schema.of(n=Type.INTEGER, price=Type.DOUBLE, s=Type.STRING, d=Type.DATE)


@pytest.mark.parametrize("type_", [pa.timestamp("us"), pa.list_(pa.int64()), pa.binary(), pa.null()])
def test_other_types_are_refused_by_name(type_: pa.DataType) -> None:
    with pytest.raises(TableMismatch, match=r"table t: column when is .*; INTEGER, DOUBLE, STRING, BOOLEAN, DATE are"):
        schema_of(pa.schema([("n", pa.int64()), ("when", type_)]), "t")


@pytest.mark.parametrize(
    ("table", "part"),
    [
        (pa.table({"b": [1]}), "0 columns are called a; it has b"),
        (pa.table([pa.array([1]), pa.array([1])], names=["a", "a"]), "2 columns are called a"),
        (pa.table({"a": ["1"]}), "column a is string, and the workflow declares INTEGER"),
        (pa.table({"a": [1.0]}), "column a is double, and the workflow declares INTEGER"),
        (pa.table({"a": pa.array([2**63], pa.uint64())}), "not in range"),
    ],
)
def test_tables_that_are_not_as_declared(table: pa.Table, part: str) -> None:
    with pytest.raises(TableMismatch) as caught:
        conformed(table, Schema.of(a=Type.INTEGER), "t")
    assert part in str(caught.value)
