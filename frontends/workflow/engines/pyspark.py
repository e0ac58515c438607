"""PySpark: Spark SQL in this process and a Java machine of its own; `pyspark_rdd` is Spark without SQL.

The code of a black box is a query in Spark's SQL over the relations that it reads.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from frontends.workflow.engines.scripts import THREADS, WRITE_TABLE
from frontends.workflow.engines.spark import SESSION, SETTINGS, SparkEngine
from frontends.workflow.engines.sql import SqlEngine
from frontends.workflow.engines.sql_queries import SqlQueries
from frontends.workflow.engines.sql_scalars import DOUBLE, INTEGER, SqlScalars, call, cast, string, when
from frontends.workflow.ir.scalars.normal_form import without_parentheses

DATABASE = '''\
class Database:
    """Spark SQL: a session by itself. Views are plans, tables are kept by Spark in memory, or on disk."""

    def __init__(self) -> None:
        self.session = session().newSession()
        self.directory = tempfile.TemporaryDirectory(prefix="workflow-pyspark-")
        self.files = 0

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *error: object) -> None:
        self.directory.cleanup()

    def made(self, query: "str | DataFrame") -> DataFrame:
        return self.session.sql(query) if isinstance(query, str) else query

    def view(self, name: str, query: "str | DataFrame") -> None:
        self.made(query).createOrReplaceTempView(name)

    def table(self, name: str, query: "str | DataFrame") -> None:
        self.made(query).localCheckpoint().createOrReplaceTempView(name)

    def rename(self, name: str, new_name: str) -> None:
        self.session.table(name).createOrReplaceTempView(new_name)

    def scan(self, path: str, columns: dict[str, str]) -> DataFrame:
        """These columns of a Parquet file. Spark sees it by a plain name: it hides files whose names begin with `_`,
        and takes `*` and the like for patterns. Statistics of floats leave NaN out, and filters believe them: a
        condition hides these columns from the statistics."""
        self.files += 1
        link = os.path.join(self.directory.name, f"{self.files}.parquet")
        os.symlink(os.path.abspath(path), link)
        schema = pq.read_schema(path)
        declared, parts = [], []
        for name, type_ in columns.items():
            found = schema.field(name[1:-1].replace("``", "`") if name.startswith("`") else name).type
            declared.append(f"{name} {file_type(found)}")
            part = f"CAST({name} AS {type_})"
            if pa.types.is_floating(found):
                part = f"CASE WHEN ISNAN({name}) THEN CAST('NaN' AS {type_}) ELSE {part} END"
            elif pa.types.is_uint64(found):
                part = f"CASE WHEN {name} >= 9223372036854775808 THEN RAISE_ERROR('more than 64 bits') ELSE {part} END"
            parts.append(f"{part} AS {name}")
        return self.session.read.schema(", ".join(declared)).parquet(link).selectExpr(*parts)

    def any_row(self, query: str) -> bool:
        return bool(self.session.sql(query).take(1))

    def write(self, query: str, path: str) -> None:
        table = self.session.sql(query).toArrow()
        write(table.cast(pa.schema([(field.name, field.type) for field in table.schema])), path)
'''
FILE_TYPE = '''\
def file_type(found: pa.DataType) -> str:
    """Spark's type of a column of a file."""
    if pa.types.is_dictionary(found):
        return file_type(found.value_type)
    if pa.types.is_integer(found):
        whole = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
        if pa.types.is_signed_integer(found):
            return whole[found.bit_width]
        return whole.get(2 * found.bit_width, "DECIMAL(20, 0)")
    if pa.types.is_decimal(found):
        return f"DECIMAL({found.precision}, {found.scale})"
    if pa.types.is_floating(found):
        return "DOUBLE" if found.bit_width == 64 else "FLOAT"
    return "BOOLEAN" if pa.types.is_boolean(found) else "DATE" if pa.types.is_date(found) else "STRING"
'''
TOO_LARGE = "9.223372036854775808e18"
"""The least double above all INTEGERs; its negative is one."""


class _Scalars(SqlScalars):
    like_escapes = True

    def quotient(self, node: exp.Expr, table: str | None) -> exp.Expr:
        """By IEEE 754; Spark's is null if the divisor is zero. Infinity times the dividend has its sign, or is NaN."""
        left, right = (self._wanted(one, DOUBLE, table) for one in (node.this, node.args["expression"]))
        quotient = exp.Div(this=left, expression=right, typed=False, safe=False)
        if isinstance(without_parentheses(right), exp.Literal) and float(without_parentheses(right).name) != 0:
            return quotient
        by_zero = exp.Mul(this=left.copy(), expression=cast(string("Infinity"), DOUBLE))
        is_zero = exp.EQ(this=right.copy(), expression=self._double("0.0"))
        return exp.Case(ifs=[exp.If(this=is_zero, true=by_zero)], default=quotient)

    def double_to_integer(self, value: exp.Expr) -> exp.Expr:
        """Towards zero; Spark's cast makes the nearest INTEGER of what is none, and 0 of NaN, which is greatest."""
        least = exp.Neg(this=exp.Literal.number(TOO_LARGE))
        fits = exp.And(
            this=exp.GTE(this=_operand(value.copy()), expression=least),
            expression=exp.LT(this=_operand(value.copy()), expression=exp.Literal.number(TOO_LARGE)),
        )
        return when(fits, cast(value, INTEGER))

    def matches(self, value: exp.Expr, pattern: str) -> exp.Expr:
        r"""`$` of Java matches before a line break at the end, `\z` does not."""
        return call("REGEXP_LIKE", value, string(pattern.removesuffix("$") + r"\z"))


def _operand(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, exp.Binary | exp.Not | exp.Neg) else node


class PySpark(SparkEngine, SqlEngine):
    """Spark SQL."""

    name = "pyspark"
    dialect = "spark"
    queries: ClassVar[SqlQueries] = SqlQueries(_Scalars(), "spark")
    standard = ("os", "sys", "tempfile")
    imports = (
        "import pyarrow as pa",
        "import pyarrow.parquet as pq",
        "from pyspark.sql import DataFrame, SparkSession",
    )
    definitions = (THREADS, SETTINGS, SESSION, FILE_TYPE, WRITE_TABLE, DATABASE)


ENGINE = PySpark()
