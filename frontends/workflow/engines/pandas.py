"""pandas: data frames in memory, of pandas's types with nulls, for any job without UDFs.

Each statement makes its frame at once. `pandas_functions` has what is compensated: NaN beside null needs the option
`future.distinguish_nan_and_na`, groups keep null keys, joins do not match them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from frontends.workflow.engines import scripts
from frontends.workflow.engines.base import Engine, Rules, beyond
from frontends.workflow.engines.frames import (
    ATOM,
    Call,
    FrameProgram,
    Pass,
    Text,
    constant_text,
    listed,
    names_text,
)
from frontends.workflow.engines.pandas_functions import TYPES
from frontends.workflow.engines.pandas_scalars import DTYPES, PandasScalars, as_stored
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
    JoinKind,
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
FRAME = "df"


class Pandas(Engine):
    name = "pandas"
    packages = ("pandas",)

    merges_all = True

    def inexpressible(self, job: Dag) -> str | None:
        return beyond(self.name, job, without=(Udf, BlackBox))

    def script(self, job: Dag, rules: Rules) -> str:
        program = PandasProgram(job, rules)
        return script_of(self.name, job, program)


def script_of(engine: str, job: Dag, program: PandasProgram, *definitions: str) -> str:
    """The script with the program's lines. definitions: those of the engine, before those that its lines need."""
    body = program.written()
    defined = [*definitions, TYPES, *program.definitions.values()]
    text = "\n".join([*body, *defined])
    imports = [f"import {one}" for one in ("dask",) if f"{one}." in text]
    imports += ["import numpy as np"] if "np." in text else []
    imports += ["import pandas as pd", "import pyarrow as pa", "import pyarrow.parquet as pq"]
    if "Callable[" in text:
        imports.insert(0, "from collections.abc import Callable\n")
    return scripts.script(
        engine,
        job,
        body,
        standard=["os", *(module for module in ("datetime", "re") if f"{module}." in text)],
        imports=imports,
        definitions=[*([scripts.ITERATIONS_EXCEEDED] if program.raises else []), *defined],
    )


class PandasProgram(FrameProgram):
    reserved: ClassVar[tuple[str, ...]] = (
        "pd", "pa", "pq", "np", "re", "datetime", "Callable", FRAME, "TYPES", "IterationsExceeded", "read", "write",
        "constant", "equal", "less", "same", "among", "remainder", "case", "coalesce", "whole", "parsed", "days_of",
        "calendar", "numbers", "months_later", "year", "month", "day", "date_text", "order", "double_of", "one_row",
        "groups", "reduced",
    )  # fmt: skip

    def __init__(self, job: Dag, rules: Rules) -> None:
        super().__init__(job, rules)
        self.scalars = PandasScalars(self.define)

    def written(self) -> list[str]:
        self.emit("", 'with pd.option_context("future.distinguish_nan_and_na", True):')
        self._depth += 1
        return super().written()

    # ---- leaves and results ------------------------------------------------------------------

    def scanned(self, scan: Scan) -> tuple[str, list[Call]]:
        return self._read(scan.name, scan.schema)

    def handed_in(self, one: Input) -> tuple[str, list[Call]]:
        return self._read(one.name, one.schema)

    def _read(self, name: str, schema: Schema) -> tuple[str, list[Call]]:
        return f"{self.scalars.use('read')}(inputs[{string_text(name)}], {arrow_text(schema)})", []

    def values(self, one: Values) -> tuple[str, list[Call]]:
        rows = [[computation(scalar, one.schema)(()) for scalar in row] for row in one.rows]
        columns = []
        for place, column in enumerate(one.schema):
            values = listed(constant_text(as_stored(row[place], column.type)) for row in rows)
            columns.append(f'{string_text(column.name)}: pd.array({values}, dtype="{DTYPES[column.type]}")')
        return f"pd.DataFrame({{{', '.join(columns)}}})", []

    def counted(self, variable: str) -> str:
        return f'pd.DataFrame({{"iterations": pd.array([{variable}], dtype="Int64")}})'

    def result(self, variable: str, operator: Operator) -> list[str]:
        self.scalars.use("write")
        return [f"write({variable}, outputs[{string_text(operator.name)}], {arrow_text(operator.schema)})"]

    # ---- a row at a time ---------------------------------------------------------------------

    def column(self, name: str, schema: Schema) -> Text:
        return _column(name)

    def scalar(self, scalar: Scalar, schema: Schema, columns: Mapping[str, Text]) -> Text:
        return self._scalar(scalar, schema, columns, FRAME)

    def _scalar(self, scalar: Scalar, schema: Schema, columns: Mapping[str, Text], frame: str) -> Text:
        one = self.scalars.text(scalar, schema, columns, frame)
        return Text(self.scalars.constant(one, scalar.type_in(schema), frame), ATOM) if one.literal else one

    def any_row(self, relation: str, test: Scalar, schema: Schema) -> str:
        columns = {name: _column(name, relation) for name in schema.names}
        return f"{self._scalar(test, schema, columns, relation).within(ATOM)}.any()"

    def passed(self, source: str, one: Pass) -> tuple[str, list[Call]]:
        calls = []
        if one.where:
            condition = " & ".join(text.within(ATOM) if len(one.where) > 1 else text.text for text in one.where)
            calls.append(Call("pipe", (f"lambda {FRAME}: {FRAME}[{condition}]",)))
        return source, calls + self._columns(one)

    def _columns(self, one: Pass) -> list[Call]:
        """Nothing if the columns stay; names alone, if columns are picked."""
        if all(text == _column(name) for name, text in one.columns.items()):
            kept = tuple(one.columns) == one.schema.names and self.rules.infer_types
            return [] if kept else [Call("", tuple(string_text(name) for name in one.columns))]
        places = tuple(one.columns)
        changed = [name for name, text in one.columns.items() if text != _column(name)]
        if len(changed) == 1 and places[: len(one.schema)] == one.schema.names and changed[0].isidentifier():
            return [Call("assign", (f"{changed[0]}=lambda {FRAME}: {one.columns[changed[0]].text}",))]
        return [_framed({name: text.text for name, text in one.columns.items()})]

    # ---- two relations -----------------------------------------------------------------------

    def joined(self, one: Join | CrossJoin, left: str, right: str) -> tuple[str, list[Call]]:
        if isinstance(one, Join) and not one.kind.pairs:
            return self._filtered(one, left, right)
        names = {name: self._right_name(one, name) for name in one.right.schema.names}
        if isinstance(one, Join):
            right = f"{right}.dropna(subset={names_text(dict.fromkeys(one.right_keys))})"
        renamed = {name: new for name, new in names.items() if name != new}
        if renamed or not self.rules.infer_types:
            right += f".rename(columns={_dict_text(renamed)})"
        arguments = [right, f'how="{"cross" if isinstance(one, CrossJoin) else one.kind.value.lower()}"']
        calls = []
        if isinstance(one, Join):
            if one.kind is JoinKind.INNER:
                calls.append(Call("dropna", (f"subset={names_text(dict.fromkeys(one.left_keys))}",)))
            arguments += _on(one.left_keys, [names[key] for key in one.right_keys])
        calls.append(Call("merge", tuple(arguments)))
        made = dict.fromkeys((*one.left.schema.names, *names.values()))
        asked = [
            (output.name, output.column if output.side is Side.LEFT else names[output.column]) for output in one.columns
        ]
        return left, calls + self._picked(asked, list(made))

    def _right_name(self, one: Join | CrossJoin, name: str) -> str:
        """A name for a right column that no left column has, unless both are keys that are equal to each other."""
        if name not in one.left.schema:
            return name
        if isinstance(one, Join) and one.kind is JoinKind.INNER and one.left_keys == one.right_keys:
            return name if name in one.right_keys else _free(name, one)
        return _free(name, one)

    def _filtered(self, one: Join, left: str, right: str) -> tuple[str, list[Call]]:
        """Left rows with a partner, or those without."""
        keys = list(dict.fromkeys(one.right_keys))
        right = f"{right}[{names_text(keys)}].dropna().drop_duplicates()"
        names = {key: key if key not in one.left.schema else _free(key, one) for key in keys}
        if any(left_key != right_key for left_key, right_key in one.on):
            renamed = {key: new for key, new in names.items() if key != new}
            right += f".rename(columns={_dict_text(renamed)})" if renamed else ""
            on = _on(one.left_keys, [names[key] for key in one.right_keys])
        else:
            on = _on(one.left_keys, one.right_keys)
        calls = []
        if one.kind is JoinKind.SEMI:
            calls.append(Call("dropna", (f"subset={names_text(dict.fromkeys(one.left_keys))}",)))
        how = "inner" if one.kind is JoinKind.SEMI else "left_anti"
        calls.append(Call("merge", (right, f'how="{how}"', *on)))
        asked = [(output.name, output.column) for output in one.columns]
        return left, calls + self._picked(asked, [])

    def _picked(self, asked: list[tuple[str, str]], made: list[str]) -> list[Call]:
        if asked == [(name, name) for name in made] and self.rules.infer_types:
            return []
        sources = [of for _, of in asked]
        if len(set(sources)) < len(sources):
            return [_framed({name: _column(of).text for name, of in asked})]
        renamed = {of: name for name, of in asked if name != of}
        picked = [Call("", tuple(string_text(of) for of in sources))]
        return [*picked, Call("rename", (f"columns={_dict_text(renamed)}",))] if renamed else picked

    def united(self, one: Union, left: str, right: str) -> tuple[str, list[Call]]:
        base = f"pd.concat([{left}, {self._alike(one, right)}], ignore_index=True)"
        return base, [] if one.all_rows else [Call("drop_duplicates")]

    def compared(self, one: Intersect | Difference, left: str, right: str) -> tuple[str, list[Call]]:
        how = "inner" if isinstance(one, Intersect) else "left_anti"
        on = f"on={names_text(one.left.schema.names)}"  # Nulls are equal in pandas's joins, as they are here.
        join = Call("merge", (f"{self._alike(one, right)}.drop_duplicates()", f'how="{how}"', on))
        return left, [Call("drop_duplicates"), join]

    def _alike(self, one: Union | Intersect | Difference, right: str) -> str:
        """The right side with the left one's names."""
        if one.left.schema.names == one.right.schema.names and self.rules.infer_types:
            return right
        return f"{right}.set_axis({names_text(one.left.schema.names)}, axis=1)"

    # ---- all rows ----------------------------------------------------------------------------

    def distinct(self, one: Distinct, source: str) -> tuple[str, list[Call]]:
        return source, [Call("drop_duplicates")]

    def aggregated(self, one: Aggregate, source: str) -> tuple[str, list[Call]]:
        schema = one.source.schema
        ordered = [each for each in one.aggregations if _needs_order(each, schema)]
        calls = []
        if ordered:
            self.scalars.use("order")
            self.scalars.use("double_of")
            named = [each.column for each in ordered if each.column is not None]
            columns = {_ordered(name, schema): f"order({_column(name).text})" for name in named}
            texts = ", ".join(f"{string_text(name)}: {text}" for name, text in columns.items())
            calls.append(Call("pipe", (f"lambda {FRAME}: {FRAME}.assign(**{{{texts}}})",)))
        over = "groups" if one.keys else FRAME
        if not one.keys and any(_needs_numpy(each, schema) for each in one.aggregations):
            self.scalars.use("reduced")
        texts_of = {each.name: _aggregation(each, schema, over) for each in one.aggregations}
        if not one.keys:
            self.scalars.use("one_row")
            pairs = [
                f"{string_text(column.name)}: ({texts_of[column.name]}, {string_text(DTYPES[column.type])})"
                for column in one.schema
            ]
            return source, [*calls, Call("pipe", (f"lambda {FRAME}: one_row({{{', '.join(pairs)}}})",))]
        inner = ", ".join(f"{string_text(name)}: {text}" for name, text in texts_of.items())
        calls += [
            Call("groupby", (names_text(one.keys), "dropna=False", "sort=False")),
            Call("pipe", (f"lambda groups: pd.DataFrame({{{inner}}})",)),
            Call("reset_index"),
        ]
        return source, calls

    def ordered(self, one: Sort, source: str) -> tuple[str, list[Call]]:
        return source, [_sorted(one.keys)] if self.is_result(one) else []

    def first(self, one: Top, source: str) -> tuple[str, list[Call]]:
        return source, [_sorted(one.all_keys()), Call("head", (str(one.count),))]


def arrow_text(schema: Schema) -> str:
    fields = ", ".join(f"({string_text(one.name)}, {ARROW_TEXTS[one.type]})" for one in schema)
    return f"pa.schema([{fields}])"


def _column(name: str, frame: str = FRAME) -> Text:
    return Text(f"{frame}[{string_text(name)}]", ATOM)


def _framed(columns: Mapping[str, str]) -> Call:
    """A frame of computed columns."""
    inner = ", ".join(f"{string_text(name)}: {text}" for name, text in columns.items())
    return Call("pipe", (f"lambda {FRAME}: pd.DataFrame({{{inner}}})",))


def _dict_text(names: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{string_text(old)}: {string_text(new)}" for old, new in names.items()) + "}"


def _free(name: str, one: Join | CrossJoin) -> str:
    taken = {*one.left.schema.names, *one.right.schema.names}
    name = f"{name}_right"
    while name in taken:
        name += "_"
    return name


def _on(left: Iterable[str], right: Iterable[str]) -> list[str]:
    left, right = list(left), list(right)
    if left == right:
        return [f"on={names_text(left)}"]
    return [f"left_on={names_text(left)}", f"right_on={names_text(right)}"]


def _sorted(keys: Iterable[SortKey]) -> Call:
    listed_keys = list(keys)
    ascending = [not key.descending for key in listed_keys]
    order = () if all(ascending) else (f"ascending={ascending}",)
    return Call("sort_values", (names_text(key.column for key in listed_keys), *order, 'na_position="last"'))


def _needs_order(one: Aggregation, schema: Schema) -> bool:
    """Whether pandas's own function would not regard NaN as the greatest."""
    extreme = one.function in (Function.MIN, Function.MAX)
    return extreme and one.column is not None and schema.column(one.column).type is Type.DOUBLE


def _needs_numpy(one: Aggregation, schema: Schema) -> bool:
    """Whether pandas's own function of a whole column would give null for NaN."""
    sums = one.function in (Function.SUM, Function.AVG)
    return sums and one.column is not None and schema.column(one.column).type is Type.DOUBLE


def _ordered(name: str, schema: Schema) -> str:
    """The name of the column that is ordered as this one of doubles is."""
    return free_name(f"order of {name}", schema.names)


def _aggregation(one: Aggregation, schema: Schema, over: str) -> str:
    if one.column is None:
        return f"{over}.size()" if over == "groups" else f"len({over})"
    if _needs_order(one, schema):
        assert one.column is not None
        column = _column(_ordered(one.column, schema), over).text
        text = f"{column}.{one.function.name.lower()}()"
        return f"double_of({text})" if over == "groups" else f'double_of(pd.Series([{text}], dtype="Int64"))[0]'
    of = _column(one.column, over).text
    if over == FRAME and _needs_numpy(one, schema):
        return f"reduced({of}, np.{'sum' if one.function is Function.SUM else 'mean'})"
    return {
        Function.SUM: f"{of}.sum(min_count=1)",  # The sum of nothing is 0 to pandas.
        Function.COUNT: f"{of}.count()",
        Function.MIN: f"{of}.min()",
        Function.MAX: f"{of}.max()",
        Function.AVG: f"{of}.mean()",
        Function.COUNT_DISTINCT: f"{of}.nunique()",
    }[one.function]


ENGINE = Pandas()
