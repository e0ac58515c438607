"""Polars: lazy frames, which Polars optimises as a whole, in one script for any job without UDFs.

A relation that several operators read is collected where it stands, so that it is evaluated once; so is what a loop
carries, in each iteration.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence

from frontends.workflow.engines import scripts
from frontends.workflow.engines.base import THREADS_VARIABLE, Engine, Rules, beyond
from frontends.workflow.engines.frames import (
    ATOM,
    Call,
    FrameProgram,
    Pass,
    Text,
    constant_text,
    listed,
)
from frontends.workflow.engines.polars_scalars import POLARS_TYPES, PolarsScalars, column, expression
from frontends.workflow.engines.scripts import string_text
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    BlackBox,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    Operator,
    Scan,
    Side,
    Sort,
    SortKey,
    Top,
    Udf,
    Union,
    Values,
    free_name,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.values import computation
from frontends.workflow.ir.types import Schema, Type

ARROW_TEXTS = {
    Type.INTEGER: "pa.int64()",
    Type.DOUBLE: "pa.float64()",
    Type.STRING: "pa.string()",
    Type.BOOLEAN: "pa.bool_()",
    Type.DATE: "pa.date32()",
}
WRITE = '''\
def write(frame: pl.LazyFrame, path: str, schema: pa.Schema) -> None:
    """Beside the path, then renamed: the file is there whole or not at all. Dictionaries of numbers cost too much."""
    texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
    pq.write_table(frame.collect().to_arrow().cast(schema), f"{path}.partial", use_dictionary=texts)
    os.replace(f"{path}.partial", path)
'''


class Polars(Engine):
    name = "polars"
    packages = ("polars",)

    merges_all = True

    def inexpressible(self, job: Dag) -> str | None:
        return beyond(self.name, job, without=(Udf, BlackBox))

    def script(self, job: Dag, rules: Rules) -> str:
        program = _Program(job, rules)
        body = program.written()
        text = "\n".join([*body, *program.definitions.values()])
        numpy = ["import numpy as np"] if "np." in text else []
        definitions = [WRITE, *program.definitions.values()]
        return scripts.script(
            self.name,
            job,
            body,
            standard=["os", *(["datetime"] if "datetime." in text else [])],
            imports=[*numpy, "import polars as pl", "import pyarrow as pa", "import pyarrow.parquet as pq"],
            definitions=[*([scripts.ITERATIONS_EXCEEDED] if program.raises else []), *definitions],
        )

    def environment(self, threads: int) -> dict[str, str]:
        return {THREADS_VARIABLE: str(threads), "POLARS_MAX_THREADS": str(threads)}


class _Program(FrameProgram):
    reserved = (
        "pl", "pa", "pq", "np", "datetime", "write", "remainder", "remainder_of_doubles", "to_integer", "to_double",
        "to_date", "IterationsExceeded",
    )  # fmt: skip

    def __init__(self, job: Dag, rules: Rules) -> None:
        super().__init__(job, rules)
        self._scalars = PolarsScalars(self.define)

    # ---- leaves and results ------------------------------------------------------------------

    def scanned(self, scan: Scan) -> tuple[str, list[Call]]:
        columns = [f"{column(one.name).text}.cast({POLARS_TYPES[one.type]})" for one in scan.schema]
        return f"pl.scan_parquet(inputs[{string_text(scan.name)}])", [Call("select", tuple(columns))]

    def handed_in(self, one: Input) -> tuple[str, list[Call]]:
        return f"pl.scan_parquet(inputs[{string_text(one.name)}])", []

    def values(self, one: Values) -> tuple[str, list[Call]]:
        rows = [[computation(scalar, one.schema)(()) for scalar in row] for row in one.rows]
        texts = [
            f"{string_text(name)}: {listed(constant_text(_as(type_, row[place])) for row in rows)}"
            for place, (name, type_) in enumerate(zip(one.schema.names, one.schema.types, strict=True))
        ]
        types = ", ".join(f"{string_text(column.name)}: {POLARS_TYPES[column.type]}" for column in one.schema)
        return f"pl.LazyFrame({{{', '.join(texts)}}}, schema={{{types}}})", []

    def made_once(self) -> list[Call]:
        return [Call("collect"), Call("lazy")]

    def counted(self, variable: str) -> str:
        return f'pl.LazyFrame({{"iterations": [{variable}]}}, schema={{"iterations": pl.Int64}})'

    def result(self, variable: str, operator: Operator) -> list[str]:
        fields = ", ".join(f"({string_text(one.name)}, {ARROW_TEXTS[one.type]})" for one in operator.schema)
        return [f"write({variable}, outputs[{string_text(operator.name)}], pa.schema([{fields}]))"]

    # ---- a row at a time ---------------------------------------------------------------------

    def column(self, name: str, schema: Schema) -> Text:
        return column(name)

    def scalar(self, scalar: Scalar, schema: Schema, columns: Mapping[str, Text]) -> Text:
        one = self._scalars.text(scalar, schema, columns)
        return Text(expression(one, scalar.type_in(schema)), ATOM) if one.literal else one

    def any_row(self, relation: str, test: Scalar, schema: Schema) -> str:
        condition = self.scalar(test, schema, {name: column(name) for name in schema.names})
        return f"{relation}.filter({condition.text}).limit(1).collect().height > 0"

    def passed(self, source: str, one: Pass) -> tuple[str, list[Call]]:
        calls = []
        if one.where:
            calls.append(Call("filter", tuple(text.text for text in one.where)))
        return source, calls + self._columns(one)

    def _columns(self, one: Pass) -> list[Call]:
        """Nothing if the columns stay; only those that change, if the others stay in their places."""
        kept = {name for name in one.schema.names if one.columns.get(name) == column(name)}
        texts = {name: text for name, text in one.columns.items() if name not in kept}
        if tuple(one.columns)[: len(one.schema)] == one.schema.names:
            return [Call("with_columns", _named(texts))] if texts else []
        if all("pl.col(" not in text.text for text in one.columns.values()):  # A select would have one row.
            changed = Call("with_columns", _named(one.columns))
            return [changed, Call("select", tuple(column(name).text for name in one.columns))]
        return [Call("select", tuple(_aliased(name, text) for name, text in one.columns.items()))]

    # ---- two relations -----------------------------------------------------------------------

    def joined(self, one: Join | CrossJoin, left: str, right: str) -> tuple[str, list[Call]]:
        if isinstance(one, CrossJoin):
            keys: tuple[str, ...] = ()
            how = "cross"
        else:
            right, right_keys = self._different(one.right_keys, right, one.right.schema)
            keys, how = _on(one.left_keys, right_keys), one.kind.value.lower()
        return left, [Call("join", (right, *keys, f'how="{how}"', *_pairing(one))), *self._picked(one)]

    def _picked(self, one: Join | CrossJoin) -> list[Call]:
        """Nothing if the join leaves the very columns that are asked for."""
        left, suffix = one.left.schema.names, _suffix(one)
        made = {(Side.LEFT, name): name for name in left}
        if isinstance(one, CrossJoin) or one.kind.pairs:
            made |= {(Side.RIGHT, name): f"{name}{suffix}" if name in left else name for name in one.right.schema.names}
        asked = [(output.name, made[output.side, output.column]) for output in one.columns]
        if asked == [(name, name) for name in made.values()] and self.rules.infer_types:
            return []
        return [Call("select", tuple(_aliased(name, column(of)) for name, of in asked))]

    def _different(self, keys: Sequence[str], source: str, schema: Schema) -> tuple[str, list[str]]:
        """The right side, with a copy of each key that is to equal several left columns."""
        found: list[str] = []
        copies = []
        for place, key in enumerate(keys):
            name = key if key not in found else free_name(f"{key}:{place}", [*schema.names, *found])
            if name != key:
                copies.append(f"{column(key).text}.alias({string_text(name)})")
            found.append(name)
        return (f"{source}.with_columns({', '.join(copies)})" if copies else source), found

    def united(self, one: Union, left: str, right: str) -> tuple[str, list[Call]]:
        base = f"pl.concat([{left}, {self._alike(one, right)}])"
        return base, [] if one.all_rows else [Call("unique")]

    def compared(self, one: Intersect | Difference, left: str, right: str) -> tuple[str, list[Call]]:
        how = "semi" if isinstance(one, Intersect) else "anti"
        on = f"on={listed(_key(name) for name in one.left.schema.names)}"
        join = Call("join", (self._alike(one, right), on, f'how="{how}"', "nulls_equal=True"))
        return left, [Call("unique"), join]

    def _alike(self, one: Union | Intersect | Difference, right: str) -> str:
        """The right side with the left one's names."""
        pairs = list(zip(one.left.schema.names, one.right.schema.names, strict=True))
        if all(name == of for name, of in pairs) and self.rules.infer_types:
            return right
        return f"{right}.select({', '.join(_aliased(name, column(of)) for name, of in pairs)})"

    # ---- all rows ----------------------------------------------------------------------------

    def distinct(self, one: Distinct, source: str) -> tuple[str, list[Call]]:
        return source, [Call("unique")]

    def aggregated(self, one: Aggregate, source: str) -> tuple[str, list[Call]]:
        texts = _named({column.name: _aggregation(column, one.source.schema) for column in one.aggregations})
        if not one.keys:
            return source, [Call("select", texts)]
        return source, [Call("group_by", tuple(_key(key) for key in one.keys)), Call("agg", texts)]

    def ordered(self, one: Sort, source: str) -> tuple[str, list[Call]]:
        if not self.is_result(one):
            return source, []
        return source, [_sorted(one.keys)]

    def first(self, one: Top, source: str) -> tuple[str, list[Call]]:
        return source, [_sorted(one.all_keys()), Call("head", (str(one.count),))]


def _as(type_: Type, value: object) -> object:
    return float(value) if type_ is Type.DOUBLE and isinstance(value, int) else value


def _key(name: str) -> str:
    """A column where a plain name would do, unless it would be taken for a pattern."""
    text = column(name).text
    return string_text(name) if text == f"pl.col({string_text(name)})" else text


def _aliased(name: str, text: Text) -> str:
    return text.text if text == column(name) else f"{text.within(ATOM)}.alias({string_text(name)})"


def _named(columns: Mapping[str, Text]) -> tuple[str, ...]:
    """As keyword arguments, if all names can be such."""
    if all(name.isidentifier() and name.isascii() and name not in keyword.kwlist for name in columns):
        return tuple(f"{name}={text.text}" for name, text in columns.items())
    return tuple(_aliased(*pair) for pair in columns.items())


def _on(left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
    if list(left) == list(right):
        return (f"on={_keys_text(left)}",)
    return (f"left_on={_keys_text(left)}", f"right_on={_keys_text(right)}")


def _keys_text(keys: Sequence[str]) -> str:
    return _key(keys[0]) if len(keys) == 1 else listed(map(_key, keys))


def _pairing(one: Join | CrossJoin) -> tuple[str, ...]:
    """Arguments of a join that leaves all columns of both sides."""
    if isinstance(one, Join) and not one.kind.pairs:
        return ()
    alike = set(one.left.schema.names) & set(one.right.schema.names)
    suffix = (f"suffix={string_text(_suffix(one))}",) if alike else ()
    return (*suffix, "coalesce=False") if isinstance(one, Join) else suffix


def _suffix(one: Join | CrossJoin) -> str:
    """What follows the names of right columns that the left side has, too."""
    names = {*one.left.schema.names, *one.right.schema.names}
    suffix = "_right"
    while any(f"{name}{suffix}" in names for name in names):
        suffix += "_"
    return suffix


def _sorted(keys: Iterable[SortKey]) -> Call:
    listed_keys = list(keys)
    by = listed(_key(key.column) for key in listed_keys)
    descending = [key.descending for key in listed_keys]
    order = (f"descending={descending}",) if any(descending) else ()
    return Call("sort", (by, *order, "nulls_last=True"))


def _aggregation(one: Aggregation, schema: Schema) -> Text:
    if one.column is None:
        return Text("pl.len().cast(pl.Int64)", ATOM)
    of, double = column(one.column).text, schema.column(one.column).type is Type.DOUBLE
    texts = {
        Function.SUM: f"pl.when({of}.count() > 0).then({of}.sum())",  # The sum of nothing is 0 to Polars.
        Function.COUNT: f"{of}.count().cast(pl.Int64)",
        Function.MIN: f"{of}.min()",
        Function.MAX: f"{of}.nan_max()" if double else f"{of}.max()",
        Function.AVG: f"{of}.mean()",
        Function.COUNT_DISTINCT: f"{of}.drop_nulls().n_unique().cast(pl.Int64)",
    }
    return Text(texts[one.function], ATOM)


ENGINE = Polars()
