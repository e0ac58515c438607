"""DataFusion: SQL in this process over Arrow, in memory, on all cores.

The code of a black box is a query in DataFusion's SQL over the relations that it reads.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import NormalizationStrategy
from sqlglot.dialects.duckdb import DuckDB

from frontends.workflow.engines.scripts import THREADS
from frontends.workflow.engines.sql import NAN_HIDDEN, SqlEngine
from frontends.workflow.engines.sql_queries import SqlQueries
from frontends.workflow.engines.sql_scalars import DOUBLE, SqlScalars, call, cast, column, string, when
from frontends.workflow.ir.dag import Aggregation, Function
from frontends.workflow.ir.scalars.normal_form import without_parentheses
from frontends.workflow.ir.types import Schema, Type

DATABASE = '''\
class Database:
    """DataFusion: tables are Arrow, in memory."""

    def __init__(self) -> None:
        options = {"datafusion.execution.collect_statistics": "false"}  # Those of files leave NaN out.
        config = datafusion.SessionConfig(options).with_target_partitions(THREADS)
        self.context = datafusion.SessionContext(config)
        self.files = 0

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *error: object) -> None:
        del self.context

    def view(self, name: str, query: str) -> None:
        self.context.sql(f"CREATE OR REPLACE VIEW {name} AS {query}")

    def table(self, name: str, query: str) -> None:
        self.context.sql(f"CREATE OR REPLACE TABLE {name} AS {query}")

    def rename(self, name: str, new_name: str) -> None:
        self.table(new_name, f"SELECT * FROM {name}")  # Shares the columns: nothing is copied.
        self.context.sql(f"DROP TABLE {name}")

    def scan(self, path: str, columns: dict[str, str]) -> str:
        self.files += 1
        name = f'" file {self.files}"'  # A relation's name begins with no space.
        self.context.register_parquet(name, path)
        return f"SELECT {scanned(path, columns)} FROM {name}"

    def any_row(self, query: str) -> bool:
        return any(batch.num_rows for batch in self.context.sql(query).collect())

    def write(self, query: str, path: str) -> None:
        partial = f"{path}.partial"
        result = self.context.sql(query)
        schema = pa.schema([(field.name, plain_type(field.type)) for field in result.schema()])
        texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
        with pq.ParquetWriter(partial, schema, use_dictionary=texts) as writer:  # Those of numbers cost too much.
            for batch in result.execute_stream():
                writer.write_table(pa.table(batch.to_pyarrow()).cast(schema))
        os.replace(partial, path)
'''
PLAIN_TYPE = '''\
def plain_type(found: pa.DataType) -> pa.DataType:
    """DataFusion's texts are views."""
    return pa.string() if pa.types.is_string_view(found) or pa.types.is_large_string(found) else found
'''


class DataFusionSql(DuckDB):
    """DataFusion's SQL is nearly DuckDB's, but its nulls are first where the order descends."""

    NULL_ORDERING = "nulls_are_large"
    NORMALIZATION_STRATEGY = NormalizationStrategy.LOWERCASE


class _Scalars(SqlScalars):
    integers_are_wide = True
    like_escapes = True
    decimals_are_doubles = True

    def one_nan(self, value: exp.Expr) -> exp.Expr:
        """NaNs of two signs are not equal, and -NaN is the least. (NANVL puts values beside others' nulls.)"""
        nan = exp.If(this=call("ISNAN", value), true=_double("NaN"))
        return exp.Case(ifs=[nan], default=value.copy())

    def membership(self, node: exp.Expr, table: str | None) -> exp.Expr:
        """DataFusion finds -0.0 in no list of several constants. (Constants are never -0.0.)"""
        made = super().membership(node, table)
        of_doubles = any(one.type is not None and one.type.this is DOUBLE for one in (node.this, *node.expressions))
        if of_doubles and not all(map(_not_zero, node.expressions)):
            made.set("this", _one_zero(made.this))
        return made

    def other_nan(self, node: exp.Expr) -> bool:
        """Operations make NaN with a sign (of 0 / 0, inf - inf), or turn it."""
        node = without_parentheses(node)
        if isinstance(node, exp.Case | exp.Coalesce):
            return any(self.other_nan(one) for one in _choices(node))
        if isinstance(node, exp.Add | exp.Sub | exp.Mul):
            sides = [without_parentheses(one) for one in (node.this, node.args["expression"])]
            return not any(map(_not_zero, sides)) or any(map(self.other_nan, sides))
        return isinstance(node, exp.Div | exp.Mod) or (isinstance(node, exp.Neg) and not _not_zero(node.this))


def _not_zero(node: exp.Expr) -> bool:
    """Whether the node is a number other than 0."""
    if isinstance(node, exp.Neg):
        node = node.this
    return isinstance(node, exp.Literal) and not node.args["is_string"] and float(node.name) != 0


def _choices(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Coalesce):
        return [node.this, *node.expressions]
    default = node.args.get("default")
    return [*(branch.args["true"] for branch in node.args["ifs"]), *([] if default is None else [default])]


class _Queries(SqlQueries):
    def aggregation(self, one: Aggregation, schema: Schema) -> exp.Expr:
        """MIN and MAX of groups of DOUBLEs begin at the greatest and the least finite number, and what they make of NaN
        depends on the order of rows. So they see no infinity that loses to these, and no NaN. That is so without keys,
        too, as DataFusion itself may group for a COUNT DISTINCT beside them. COUNT DISTINCT takes 0.0 and -0.0 for two
        values."""
        if one.column is None or schema.column(one.column).type is not Type.DOUBLE:
            return super().aggregation(one, schema)
        value = column(one.column)
        if one.function is Function.COUNT_DISTINCT:
            return exp.Count(this=exp.Distinct(expressions=[_one_zero(value)]))
        any_value = exp.GT(this=exp.Count(this=value.copy()), expression=exp.Literal.number(0))
        if one.function is Function.MIN:
            least = exp.Min(this=when(exp.LT(this=value, expression=_double("inf")), value.copy()))
            any_infinity = call("BOOL_OR", exp.EQ(this=value.copy(), expression=_double("inf")))
            others = [when(any_infinity, _double("inf")), when(any_value, _double("NaN"))]
            return exp.Coalesce(this=least, expressions=others)
        if one.function is Function.MAX:
            above = exp.GT(this=value, expression=_double("-inf"))
            number = exp.And(this=above, expression=exp.Not(this=call("ISNAN", value.copy())))
            others = [exp.Max(this=when(number, value.copy())), when(any_value, _double("-inf"))]
            any_nan = call("BOOL_OR", call("ISNAN", value.copy()))
            return exp.Coalesce(this=when(any_nan, _double("NaN")), expressions=others)
        return super().aggregation(one, schema)


def _one_zero(value: exp.Expr) -> exp.Expr:
    """The value, 0.0 for -0.0."""
    return exp.Add(this=value, expression=exp.Literal.number("0.0"))


def _double(text: str) -> exp.Expr:
    return cast(string(text), DOUBLE)


class DataFusion(SqlEngine):
    """DataFusion."""

    name = "datafusion"
    packages = ("datafusion",)
    dialect = "datafusionsql"
    queries: ClassVar[SqlQueries] = _Queries(_Scalars(), "datafusionsql")
    standard = ("os",)
    imports = ("import datafusion", "import pyarrow as pa", "import pyarrow.parquet as pq")
    definitions = (THREADS, PLAIN_TYPE, NAN_HIDDEN, DATABASE)


ENGINE = DataFusion()
