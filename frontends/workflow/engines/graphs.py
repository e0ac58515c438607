"""What generators for graph computations have alike: a job of one loop that `idioms` recognises, over NumPy arrays.

A script numbers the keys of vertices and of the ends of edges; each is a slot of the arrays that hold the vertices.
`alive` is the mask of the slots that are rows of the relation of vertices (docs/workflow-semantics.md: a vertex that is
sent nothing may be none after the first iteration). The slot after those of all keys gathers what edges without an end
send. Tables may hold a key several times, or rows without one: these have slots of their own after that, from which
they send; what is gathered for them is at the slot `home` of their key.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from frontends.workflow.engines import scripts
from frontends.workflow.engines.base import Engine, Rules, beyond, described
from frontends.workflow.engines.graph_scalars import ALWAYS, NUMPY_TYPES, Masked, holds, masked, refused
from frontends.workflow.engines.scripts import comment, python_names, string_text
from frontends.workflow.ir.dag import Dag, Leaf, LoopResult, Operator, Values, While
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.values import computation
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.jobs.idioms import EDGE, GATHERED, VERTEX, GraphLoop, NoGraphLoop, Rows, View, graph_loop

ARROW_TEXTS = {
    Type.INTEGER: "pa.int64()",
    Type.DOUBLE: "pa.float64()",
    Type.STRING: "pa.string()",
    Type.BOOLEAN: "pa.bool_()",
    Type.DATE: "pa.date32()",
}
INDENT = "    "
LINE_CHARS_MAX = 108

FUNCTIONS = {
    "read": """\
def read(path: str, schema: pa.Schema) -> pa.Table:
    return pq.read_table(path, columns=schema.names).select(schema.names).cast(schema)
""",
    "arrays": '''\
def arrays(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The values, and whether each is there, is no null."""
    if not column.null_count:
        return column.to_numpy(), np.ones(len(column), bool)
    there = column.is_valid().to_numpy()
    return column.fill_null(False if column.type == pa.bool_() else 0).to_numpy(), there
''',
    "coded": '''\
def coded(*columns: pa.ChunkedArray) -> tuple[pa.Array, list[np.ndarray]]:
    """All keys, and for each column the numbers of its keys among them, -1 for null."""
    together = pa.chunked_array([chunk for one in columns for chunk in one.chunks], columns[0].type).combine_chunks()
    encoded = together.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    numbers = encoded.indices.fill_null(-1).to_numpy()
    return encoded.dictionary, np.split(numbers, np.cumsum([len(one) for one in columns])[:-1])
''',
    "slots_of": '''\
def slots_of(rows: np.ndarray, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The slot of each vertex, from the number of its key, and which key is at home in each slot, -1 for none."""
    rows = rows.astype(np.int64)
    known = np.flatnonzero(rows >= 0)
    first = np.full(keys + 1, -1)
    first[rows[known][::-1]] = known[::-1]
    slots, extra = rows.copy(), np.flatnonzero(first[rows] != np.arange(len(rows)))
    slots[extra] = keys + 1 + np.arange(len(extra))
    return slots, np.concatenate([np.arange(keys), [-1], rows[extra]])
''',
    "links": '''\
def links(source: np.ndarray, home: np.ndarray, keys: int) -> tuple[np.ndarray, np.ndarray | slice]:
    """Each pair of a slot and an edge that begins at its key: (slots, edges, all of them as a slice)."""
    if len(home) == keys + 1:
        if source.min(initial=0) >= 0:
            return source, slice(None)
        edges = np.flatnonzero(source >= 0)
        return source[edges], edges
    order = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[order], np.arange(keys + 1))
    slots = np.flatnonzero(home >= 0)
    counts = np.diff(starts)[home[slots]]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(slots, counts), order[np.repeat(starts[home[slots]], counts) + within]
''',
    "chosen": '''\
def chosen(mask: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
    """Of each array what the mask has; the arrays themselves if that is all."""
    return list(arrays) if mask.all() else [one[mask] for one in arrays]
''',
    "in_slots": '''\
def in_slots(column: tuple[np.ndarray, np.ndarray], slots: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The values of vertices, and whether they are there, at their slots."""
    values, there = np.zeros(size, column[0].dtype), np.zeros(size, bool)
    values[slots], there[slots] = column
    return values, there
''',
    "filled": '''\
def filled(values: object, size: int, dtype: type) -> np.ndarray:
    """An array, also of one value for all."""
    return np.array(np.broadcast_to(values, size), dtype=dtype)
''',
    "table": '''\
def table(schema: pa.Schema, columns: list[pa.Array | tuple[np.ndarray, np.ndarray]]) -> pa.Table:
    """Of Arrow's arrays, and of values beside whether they are there."""
    made = [one if isinstance(one, pa.Array) else pa.array(one[0], mask=~one[1]) for one in columns]
    return pa.table([one.cast(field.type) for one, field in zip(made, schema)], schema)
''',
    "write": scripts.WRITE_TABLE,
}


@dataclass(frozen=True, slots=True)
class Array:
    """A column as two arrays: names of variables."""

    values: str
    there: str
    type: Type

    def masked(self, at: str = "") -> Masked:
        """Its texts, perhaps at a place."""
        return Masked(self.values + at, self.there + at)


class GraphEngine(Engine):
    """An engine that takes nothing but loops that are graph computations."""

    unheeded: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("merge", "share_scans", "infer_types", "part_keys", "map_joins"),
        "a loop is one program over arrays of numbers",
    )
    needed = ("idioms",)

    def inexpressible(self, job: Dag) -> str | None:
        loops = job.of_type(While)
        for operator in job.operators:
            if not isinstance(operator, Leaf | While | LoopResult):
                return f"{self.name} takes one loop and no more, and the job has {described(operator)}"
        if len(loops) != 1:
            return f"{self.name} takes one WHILE, and the job has {len(loops)}"
        if any(isinstance(job.operator(name), Leaf) for name in job.results):
            return f"{self.name} makes results of a loop alone"
        try:
            graph = graph_loop(loops[0])
        except NoGraphLoop as error:
            return f"{self.name} takes graph computations alone, and {described(loops[0])} is none: {error}"
        reason = beyond(self.name, job, without=()) or _not_numbers(graph)
        return None if reason is None else f"{self.name} cannot do {described(loops[0])}: {reason}"

    @abc.abstractmethod
    def program(self, job: Dag, graph: GraphLoop) -> GraphProgram: ...

    def script(self, job: Dag, rules: Rules) -> str:
        program = self.program(job, graph_loop(job.of_type(While)[0]))
        body = program.written()
        text = "\n".join([*body, *program.definitions])
        functions = [function for name, function in FUNCTIONS.items() if f"{name}(" in text]
        raises = [scripts.ITERATIONS_EXCEEDED] if "IterationsExceeded" in text else []
        return scripts.script(
            self.name,
            job,
            body,
            standard=["os", *(["datetime"] if "datetime." in text else [])],
            imports=[*program.imports, "import numpy as np", "import pyarrow as pa", "import pyarrow.parquet as pq"],
            definitions=[*raises, *functions, *program.definitions],
        )


def _not_numbers(graph: GraphLoop) -> str | None:
    """Why a scalar or a column of the loop is none of numbers; None if all are. Keys may be of any type."""
    for scalar in graph.scalars:
        if scalar.as_column in (VERTEX + graph.key, GATHERED + graph.gathered_key):
            continue
        reason = refused(scalar, graph.schema)
        if reason is not None:
            return reason
    views = [*graph.others.values(), *([graph.tested] if graph.tested is not None else [])]
    for view in views:
        schema = _schema(view, graph)
        for scalar in (*(view.columns.values() if view.rows is Rows.OTHER else ()), *view.where):
            reason = refused(scalar, schema)
            if reason is not None:
                return reason
    return None


def _schema(view: View, graph: GraphLoop) -> Schema:
    return graph.loop.body.operator(view.beside).schema if view.rows is Rows.OTHER else graph.schema


def only(prefix: str, scalar: Scalar) -> bool:
    """Whether the scalar reads columns of one relation alone, at least one."""
    return not scalar.constant and all(name.startswith(prefix) for name in scalar.columns)


class GraphProgram(abc.ABC):
    """The lines of `run` for one loop."""

    imports: Sequence[str] = ()

    def __init__(self, job: Dag, graph: GraphLoop) -> None:
        self.job, self.graph, self.schema = job, graph, graph.schema
        self.lines: list[str] = []
        self.definitions: list[str] = []
        self._depth = 0
        body = graph.loop.body
        names = [f"{VERTEX}{one.name}" for one in body.operator(graph.vertices).schema]
        names += [f"{EDGE}{one.name}" for one in body.operator(graph.edges).schema]
        names += [f"{GATHERED}{one.name}" for one in graph.gathered]
        self._others = {name: body.operator(name).schema for name in self._needed_others()}
        names += [f"{name}.{column}" for name, schema in self._others.items() for column in schema.names]
        self.names = dict(python_names(names, self._taken()))

    def _taken(self) -> list[str]:
        fixed = (
            "pa", "pq", "np", "sparse", "numba", "vertices", "edges", "keys", "key", "key_there", "source", "target",
            "rows", "slots", "home", "own", "own_slot", "size", "sender", "edge", "alive", "alive_next", "matched",
            "received", "sends", "sends_own", "goes_on", "iterations", "at_home", "IterationsExceeded",
        )  # fmt: skip
        return [*fixed, *FUNCTIONS]

    def _needed_others(self) -> list[str]:
        """Inputs beside the graph that the loop carries, tests, or computes from."""
        graph = self.graph
        views = [*graph.others.values(), *([graph.tested] if graph.tested is not None else [])]
        found = [*graph.others, *(view.beside for view in views if view.rows is Rows.OTHER)]
        return list(dict.fromkeys(found))

    def emit(self, *lines: str) -> None:
        for line in lines:
            self.lines.append(f"{INDENT * self._depth}{line}" if line else "")

    # ---- what an engine writes ---------------------------------------------------------------

    @abc.abstractmethod
    def prepare(self) -> None:
        """Lines that make of `sender`, `edge` and `target` what `gather` needs."""

    @abc.abstractmethod
    def gather(self) -> None:
        """Lines that set `received` (rows for each slot), and the arrays of what is gathered."""

    # ---- columns -----------------------------------------------------------------------------

    def array(self, name: str) -> Array:
        """Of a column with its prefix."""
        if name in (VERTEX + self.graph.key, GATHERED + self.graph.gathered_key):
            return Array("key", "key_there", self.schema.column(name).type)
        variable = self.names[name]
        return Array(variable, f"{variable}_there", self.schema.column(name).type)

    def gathered_key_is_number(self) -> bool:
        return self.schema.column(VERTEX + self.graph.key).type in NUMPY_TYPES

    def read_columns(self, prefix: str) -> list[str]:
        """Columns, without their prefix, that the computation reads as numbers."""
        scalars = list(self.graph.scalars)
        if self.graph.tested is not None and self.graph.tested.rows is not Rows.OTHER:
            scalars += self.graph.tested.where
        names = {name for scalar in scalars for name in scalar.columns if name.startswith(prefix)}
        schema = self.graph.loop.body.operator(self.graph.vertices if prefix == VERTEX else self.graph.edges).schema
        wanted = [name for name in schema.names if prefix + name in names]
        if prefix == VERTEX:
            wanted = [name for name in schema.names if name != self.graph.key]
        return wanted

    def state(self) -> list[Array]:
        """The vertices' columns but for the key."""
        return [self.array(VERTEX + name) for name in self.read_columns(VERTEX)]

    def columns(self, *, at: Mapping[str, str] | None = None) -> dict[str, Masked]:
        """Texts of all columns. at: {prefix: index}."""
        places = at or {}
        found = {}
        for name in self.schema.names:
            prefix = next(one for one in (VERTEX, EDGE, GATHERED) if name.startswith(one))
            found[name] = self.array(name).masked(places.get(prefix, ""))
        return found

    # ---- the script --------------------------------------------------------------------------

    def written(self) -> list[str]:
        self.emit('with np.errstate(all="ignore"):')
        self._depth += 1
        self._load()
        self.emit("")
        self.prepare()
        self._run_loop()
        self._results()
        if sum("key_values" in line for line in self.lines) == 1:
            self.lines = [line for line in self.lines if "key_values" not in line]
        return self.lines

    def _load(self) -> None:
        graph = self.graph
        for variable, name in (("vertices", graph.vertices), ("edges", graph.edges)):
            leaf = self.job.operator(graph.loop.first_value(name).name)
            wanted = [graph.key] if variable == "vertices" else [graph.source, graph.target]
            wanted += self.read_columns(VERTEX if variable == "vertices" else EDGE)
            self.emit("", comment(leaf))
            self.emit(f"{variable} = {self._table(leaf, list(dict.fromkeys(wanted)))}")
        for name, schema in self._others.items():
            leaf = self.job.operator(graph.loop.first_value(name).name)
            self.emit("", comment(leaf), f"other = {self._table(leaf, list(schema.names))}")
            for column in schema.names:
                variable = self.names[f"{name}.{column}"]
                self.emit(f"{variable}, {variable}_there = arrays(other[{string_text(column)}])")
        self.emit(
            "", "# Slots: one for each key, one for edges without an end, then rows of no key or one that is there."
        )
        key, source, target = map(string_text, (graph.key, graph.source, graph.target))
        self.emit(
            f"keys, (rows, source, target) = coded(vertices[{key}], edges[{source}], edges[{target}])",
            "slots, home = slots_of(rows, len(keys))",
            "size = len(home)",
            "key = keys.take(pa.array(home, mask=home < 0))",
            "alive = np.zeros(size, bool)",
            "alive[slots] = True",
            "sender, edge = links(source, home, len(keys))",
            "target = np.where(target < 0, len(keys), target)[edge]",
        )
        if self.gathered_key_is_number():
            self.emit("key_values, key_there = arrays(pa.chunked_array([key]))")
        for name in self.read_columns(VERTEX):
            array = self.array(VERTEX + name)
            column = f"arrays(vertices[{string_text(name)}])"
            self.emit(f"{array.values}, {array.there} = in_slots({column}, slots, size)")
        for name in self.read_columns(EDGE):
            array = self.array(EDGE + name)
            self.emit(f"{array.values}, {array.there} = (one[edge] for one in arrays(edges[{string_text(name)}]))")

    def _table(self, leaf: Operator, columns: Sequence[str]) -> str:
        schema = Schema(tuple(leaf.schema.column(name) for name in columns))
        if isinstance(leaf, Values):
            values = []
            for column in schema:
                place = leaf.schema.index(column.name)
                texts = [_constant(computation(row[place], leaf.schema)(()), column.type) for row in leaf.rows]
                values.append(f"[{', '.join(texts)}]")
            return f"pa.table([{', '.join(values)}], {_arrow_text(schema)})"
        return f"read(inputs[{string_text(leaf.name)}], {_arrow_text(schema)})"

    def _run_loop(self) -> None:
        graph, loop = self.graph, self.graph.loop
        condition = loop.condition
        self.emit("", comment(loop), "iterations = 0")
        first = condition is not None and condition.tested_first
        self.emit(f"goes_on = {self._any_row() if first else True}", "while goes_on:")
        self._depth += 1
        self.emit(f"if iterations == {loop.iterations_max}:")
        ends = "break" if condition is None else f"raise IterationsExceeded({string_text(loop.name)}, iterations)"
        self.emit(INDENT + ends)
        self.gather()
        self._apply()
        if graph.tested is not None and not graph.tested_carried:
            self.emit(f"goes_on = {self._any_row()}")
        self._advance()
        self.emit("iterations += 1")
        if graph.tested is not None and graph.tested_carried:
            self.emit(f"goes_on = {self._any_row()}")
        self._depth -= 1

    def sending(self, conditions: Sequence[Scalar]) -> str:
        """The text of the mask of vertices that send, by the conditions that are about vertices alone."""
        texts = holds(tuple(conditions), self.schema, self.vertex_columns(), compiled=False)
        texts = [text for text in texts if text != ALWAYS]
        return " & ".join(["alive", *texts])

    def vertex_columns(self) -> dict[str, Masked]:
        """With the numbers of keys that are numbers."""
        found = self.columns()
        for name in (VERTEX + self.graph.key, GATHERED + self.graph.gathered_key):
            found[name] = Masked("key_values", "key_there")
        return found

    # ---- apply -------------------------------------------------------------------------------

    def _apply(self) -> None:
        """Lines that compute the next vertices from what is gathered."""
        following = self.graph.following
        if following.rows is not Rows.GATHERED:
            self.emit("# What is gathered for a vertex is at the slot of its key.")
            self.emit("matched = (home >= 0) & (received[home] > 0)")
            for one in self.graph.gathered:
                array = self.array(GATHERED + one.name)
                self.emit(f"{array.values}, {array.there} = {array.values}[home], {array.there}[home] & matched")
        rows = {Rows.GATHERED: "received > 0", Rows.BOTH: "alive & matched", Rows.ALL: "alive"}[following.rows]
        where = self._holds(following.where)
        self.emit(f"alive_next = {' & '.join([f'({rows})' if where else rows, *where])}")
        for name in self.read_columns(VERTEX):
            array = self.array(VERTEX + name)
            text = self._masked(following.columns[name])
            dtype = NUMPY_TYPES[array.type]
            self.emit(f"{array.values}_next = filled({text.value}, size, {dtype})")
            self.emit(f"{array.there}_next = filled({text.there}, size, bool)")
        for name, view in self.graph.others.items():
            self._apply_other(name, view)

    def _columns_applied(self) -> dict[str, Masked]:
        found = self.vertex_columns()
        if self.graph.following.rows is Rows.ALL:
            found[GATHERED + self.graph.gathered_key] = Masked("key_values", "(key_there & matched)")
        return found

    def _masked(self, scalar: Scalar) -> Masked:
        return masked(scalar, self.schema, self._columns_applied(), compiled=False)

    def _holds(self, scalars: Sequence[Scalar]) -> list[str]:
        texts = holds(tuple(scalars), self.schema, self._columns_applied(), compiled=False)
        return [text for text in texts if text != ALWAYS]

    def _other_columns(self, name: str) -> dict[str, Masked]:
        return {
            column: Masked(self.names[f"{name}.{column}"], f"{self.names[f'{name}.{column}']}_there")
            for column in self._others[name].names
        }

    def _apply_other(self, name: str, view: View) -> None:
        columns, schema = self._other_columns(view.beside), self._others[view.beside]
        size = f"len({next(iter(columns.values())).value})"
        where = [text for text in holds(view.where, schema, columns, compiled=False) if text != ALWAYS]
        kept = f"[filled({' & '.join(where)}, {size}, bool)]" if where else ""
        for column in self._others[name]:
            text = masked(view.columns[column.name], schema, columns, compiled=False)
            variable = self.names[f"{name}.{column.name}"]
            self.emit(f"{variable}_next = filled({text.value}, {size}, {NUMPY_TYPES[column.type]}){kept}")
            self.emit(f"{variable}_there_next = filled({text.there}, {size}, bool){kept}")

    def _advance(self) -> None:
        names = ["alive"]
        for name in self.read_columns(VERTEX):
            array = self.array(VERTEX + name)
            names += [array.values, array.there]
        for name in self.graph.others:
            for column in self._others[name].names:
                names += [self.names[f"{name}.{column}"], f"{self.names[f'{name}.{column}']}_there"]
        for name in names:
            self.emit(f"{name} = {name}_next")

    def _any_row(self) -> str:
        """Whether the loop goes on."""
        view = self.graph.tested
        assert view is not None
        if view.rows is Rows.OTHER:
            columns, schema = self._other_columns(view.beside), self._others[view.beside]
            texts = holds(view.where, schema, columns, compiled=False)
            size = f"len({next(iter(columns.values())).value})"
            shown = " & ".join(text for text in texts if text != ALWAYS) or ALWAYS
            return f"filled({shown}, {size}, bool).any()"
        rows = {
            Rows.VERTICES: "alive",
            Rows.GATHERED: "(received > 0)",
            Rows.BOTH: "(alive & matched)",
            Rows.ALL: "alive",
        }[view.rows]
        texts = self._holds(view.where)
        return f"({' & '.join([rows, *texts])}).any()" if texts else f"{rows}.any()"

    # ---- results -----------------------------------------------------------------------------

    def _results(self) -> None:
        for name in self.job.results:
            operator = self.job.operator(name)
            self.emit("", comment(operator))
            texts = []
            if isinstance(operator, While):
                texts.append("pa.array([iterations])")
            elif isinstance(operator, LoopResult) and operator.carried == self.graph.vertices:
                for column in operator.schema:
                    array = self.array(VERTEX + column.name)
                    at_key = "key.filter(pa.array(alive))"
                    pair = f"({array.values}[alive], {array.there}[alive])"
                    texts.append(at_key if column.name == self.graph.key else pair)
            else:
                assert isinstance(operator, LoopResult)
                texts += [f"({one.value}, {one.there})" for one in self._other_columns(operator.carried).values()]
            self.emit(
                *broken(f"made = table({_arrow_text(operator.schema)}, [", texts, "])"),
                f"write(made, outputs[{string_text(name)}])",
            )


def broken(before: str, arguments: Sequence[str], after: str) -> list[str]:
    """On one line, or with a line for each argument if that is too long."""
    one_line = f"{before}{', '.join(arguments)}{after}"
    if len(one_line) <= LINE_CHARS_MAX:
        return [one_line]
    return [before, *(f"{INDENT}{one}," for one in arguments), after]


def _arrow_text(schema: Schema) -> str:
    fields = ", ".join(f"({string_text(one.name)}, {ARROW_TEXTS[one.type]})" for one in schema)
    return f"pa.schema([{fields}])"


def _constant(value: object, type_: Type) -> str:
    if type_ is Type.DOUBLE and value is not None:
        return f'float("{value}")'
    if type_ is Type.DATE and value is not None:
        return f'datetime.date.fromisoformat("{value}")'
    return string_text(value) if isinstance(value, str) else repr(value)
