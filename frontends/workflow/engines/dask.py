"""Dask: relations as delayed pandas frames, one for each part, in one script for any job without UDFs.

What is computed of a row at a time is computed of each part by itself. For joins, groups and sets the rows are dealt
anew by a hash of their keys, so that equal keys are in one part; each part is then what the engine pandas makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent
from typing import ClassVar

from frontends.workflow.engines import scripts
from frontends.workflow.engines.base import Engine, Rules, beyond
from frontends.workflow.engines.frames import INDENT, Call, Pass, names_text
from frontends.workflow.engines.pandas import FRAME, PandasProgram, arrow_text, script_of
from frontends.workflow.engines.scripts import string_text
from frontends.workflow.ir.dag import (
    Aggregate,
    BlackBox,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Input,
    Intersect,
    Join,
    Operator,
    Scan,
    Sort,
    Top,
    Udf,
    Union,
    Values,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema

FUNCTION_CHARS_MAX = 90
"""Characters of a function that stands on one line."""

READ_PART = '''\
def read_part(path: str, schema: pa.Schema, part: int) -> pd.DataFrame:
    """These columns of a group of rows, in pandas's types with nulls; days as numbers of days since 1970-01-01."""
    file = pq.ParquetFile(path)
    table = file.read_row_group(part, schema.names) if file.num_row_groups else file.read(schema.names)
    table = table.select(schema.names).cast(schema)
    days = [pa.field(one.name, pa.int32() if one.type == pa.date32() else one.type) for one in schema]
    numbers = [pa.field(one.name, pa.int64() if one.type == pa.int32() else one.type) for one in days]
    return table.cast(pa.schema(days)).cast(pa.schema(numbers)).to_pandas(types_mapper=TYPES.get)
'''
SPLIT = '''\
def split(frame: pd.DataFrame, keys: list[str]) -> list[pd.DataFrame]:
    """A frame for each part to come; equal keys, nulls and NaN among them, are in one."""
    hashes = np.zeros(len(frame), "uint64")
    for key in keys:
        column = frame[key]
        if column.dtype == "string":
            values = column.fillna("").to_numpy(object)
        elif column.dtype == "Float64":
            values = column.to_numpy("float64", na_value=0.0) + 0.0
            values = np.where(np.isnan(values), np.nan, values)
        else:
            values = column.astype("Int64").to_numpy("int64", na_value=0)
        hashes = hashes * np.uint64(31) + pd.util.hash_array(values)
    return [frame[hashes % np.uint64(THREADS) == part] for part in range(THREADS)]
'''
PARTS = '''\
class Parts:
    """A relation: delayed frames, which have its rows between them."""

    def __init__(self, parts: list) -> None:
        self.parts = parts

    @classmethod
    def of_file(cls, path: str, schema: pa.Schema) -> "Parts":
        groups = max(1, pq.read_metadata(path).num_row_groups)
        return cls([dask.delayed(read_part)(path, schema, part) for part in range(groups)])

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Parts":
        return cls([dask.delayed(frame)])

    def each(self, function: Callable[[pd.DataFrame], object]) -> "Parts":
        return Parts([dask.delayed(function)(part) for part in self.parts])

    def dealt(self, keys: list[str]) -> "Parts":
        """Rows with equal keys are in one part, whichever relation they are of."""
        pieces = [dask.delayed(split, nout=THREADS)(part, keys) for part in self.parts]
        return Parts([dask.delayed(pd.concat)([one[part] for one in pieces]) for part in range(THREADS)])

    def beside(self, other: "Parts", function: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]) -> "Parts":
        """Each part with that of the other relation at the same place, or its only one."""
        others = other.parts * len(self.parts) if len(other.parts) == 1 else other.parts
        return Parts([dask.delayed(function)(one, two) for one, two in zip(self.parts, others)])

    def together(self) -> "Parts":
        """In one part."""
        return self if len(self.parts) == 1 else Parts([dask.delayed(pd.concat)(self.parts)])

    def and_all(self, other: "Parts") -> "Parts":
        longer, shorter = sorted((self.parts, other.parts), key=len, reverse=True)
        joined = [dask.delayed(pd.concat)(list(pair)) for pair in zip(longer, shorter)]
        return Parts([*joined, *longer[len(shorter) :]])

    def computed(self) -> "Parts":
        return Parts(list(dask.persist(*self.parts)))

    def values(self) -> list:
        return list(dask.compute(*self.parts))
'''


class Dask(Engine):
    name = "dask"
    packages = ("dask", "pandas")

    merges_all = True

    def inexpressible(self, job: Dag) -> str | None:
        return beyond(self.name, job, without=(Udf, BlackBox))

    def script(self, job: Dag, rules: Rules) -> str:
        program = _Program(job, rules)
        return script_of(self.name, job, program, scripts.THREADS, PARTS, READ_PART, SPLIT)


class _Program(PandasProgram):
    reserved: ClassVar[tuple[str, ...]] = (
        *PandasProgram.reserved,
        "dask",
        "Parts",
        "read_part",
        "split",
        "left",
        "right",
        "THREADS",
    )

    def written(self) -> list[str]:
        self.emit("", 'with dask.config.set(scheduler="threads", num_workers=THREADS):')
        self._depth += 1
        return super().written()

    def made_once(self) -> list[Call]:
        return [Call("computed")]

    # ---- leaves and results ------------------------------------------------------------------

    def scanned(self, scan: Scan) -> tuple[str, list[Call]]:
        return f"Parts.of_file(inputs[{string_text(scan.name)}], {arrow_text(scan.schema)})", []

    def handed_in(self, one: Input) -> tuple[str, list[Call]]:
        return f"Parts.of_file(inputs[{string_text(one.name)}], {arrow_text(one.schema)})", []

    def values(self, one: Values) -> tuple[str, list[Call]]:
        return f"Parts.of({super().values(one)[0]})", []

    def counted(self, variable: str) -> str:
        return f"Parts.of({super().counted(variable)})"

    def result(self, variable: str, operator: Operator) -> list[str]:
        return super().result(f"{variable}.together().values()[0]", operator)

    # ---- a row at a time ---------------------------------------------------------------------

    def any_row(self, relation: str, test: Scalar, schema: Schema) -> str:
        return f"any({relation}.each(lambda {FRAME}: {super().any_row(FRAME, test, schema)}).values())"

    def passed(self, source: str, one: Pass) -> tuple[str, list[Call]]:
        return source, _each(*super().passed(FRAME, one))

    # ---- two relations -----------------------------------------------------------------------

    def joined(self, one: Join | CrossJoin, left: str, right: str) -> tuple[str, list[Call]]:
        function = _function("left, right", *super().joined(one, "left", "right"))
        if isinstance(one, CrossJoin):
            return left, [Call("beside", (f"{right}.together()", function))]
        return left, [_dealt(one.left_keys), Call("beside", (f"{right}{_dealt(one.right_keys)}", function))]

    def united(self, one: Union, left: str, right: str) -> tuple[str, list[Call]]:
        alike = self._alike(one, FRAME)
        right = right if alike == FRAME else f"{right}{Call('each', (f'lambda {FRAME}: {alike}',))}"
        calls = [Call("and_all", (right,))]
        return left, calls if one.all_rows else [*calls, *self._once(one.schema)]

    def compared(self, one: Intersect | Difference, left: str, right: str) -> tuple[str, list[Call]]:
        function = _function("left, right", *super().compared(one, "left", "right"))
        other = f"{right}{_dealt(one.right.schema.names)}"
        return left, [_dealt(one.left.schema.names), Call("beside", (other, function))]

    # ---- all rows ----------------------------------------------------------------------------

    def _once(self, schema: Schema) -> list[Call]:
        return [_dealt(schema.names), Call("each", (f"lambda {FRAME}: {FRAME}.drop_duplicates()",))]

    def distinct(self, one: Distinct, source: str) -> tuple[str, list[Call]]:
        return source, self._once(one.schema)

    def aggregated(self, one: Aggregate, source: str) -> tuple[str, list[Call]]:
        brought = _dealt(one.keys) if one.keys else Call("together")
        return source, [brought, *_each(*super().aggregated(one, FRAME))]

    def ordered(self, one: Sort, source: str) -> tuple[str, list[Call]]:
        base, calls = super().ordered(one, FRAME)
        return source, [Call("together"), *_each(base, calls)] if calls else []

    def first(self, one: Top, source: str) -> tuple[str, list[Call]]:
        each = _each(*super().first(one, FRAME))
        return source, [*each, Call("together"), *each]


def _function(arguments: str, base: str, calls: list[Call]) -> str:
    """A lambda, on several lines if it is long."""
    text = f"lambda {arguments}: {base}{''.join(map(str, calls))}"
    if len(text) <= FUNCTION_CHARS_MAX:
        return text
    lines = "\n".join([base, *map(str, calls)])
    return f"lambda {arguments}: (\n{indent(lines, INDENT)}\n)"


def _each(base: str, calls: list[Call]) -> list[Call]:
    """Nothing if nothing is called."""
    return [Call("each", (_function(FRAME, base, calls),))] if calls else []


def _dealt(keys: Iterable[str]) -> Call:
    return Call("dealt", (names_text(keys),))


ENGINE = Dask()
