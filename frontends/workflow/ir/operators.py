"""The operators of the intermediate representation, but for loops, which are in `dag.py` with the DAG.

Each makes one relation. An operator holds a header (`Relation`: name and schema) of each relation that it reads, so it
checks itself and derives its schema when it is made; operators refer to each other by these names alone.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from frontends.workflow.errors import InvalidWorkflow, TooLarge, TypeMismatch
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Column, Schema, Type, check_name
from frontends.workflow.positions import Position

VALUES_ROWS_MAX = 1_000
"""Rows of a `Values`."""
TOP_ROWS_MAX = 2**31 - 1
"""Rows that a `Top` may keep."""


@dataclass(frozen=True, slots=True)
class Relation:
    """The header of a relation."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator(abc.ABC):
    """What makes one relation. Two are equal if they say the same, wherever that stands."""

    name: str
    """The relation's name."""
    schema: Schema = field(init=False, compare=False, repr=False)
    """The relation's columns."""
    at: Position | None = field(default=None, compare=False, repr=False)
    """Where the workflow's text says it."""

    keyword: ClassVar[str]
    """The operator's name in text."""

    def __post_init__(self) -> None:
        try:
            check_name("relation", self.name)
            object.__setattr__(self, "schema", self.derived_schema())
        except InvalidWorkflow as error:
            error.locate(self.at)
            raise

    @abc.abstractmethod
    def derived_schema(self) -> Schema:
        """The schema that follows from what is read; `InvalidWorkflow` if the operator cannot be."""

    @property
    def sources(self) -> tuple[Relation, ...]:
        """Headers of the relations that are read, in the operator's order."""
        return ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the relations that are read, in the operator's order; one that is read twice is there twice."""
        return tuple(source.name for source in self.sources)

    @property
    def relation(self) -> Relation:
        """The header of the relation that is made."""
        return Relation(self.name, self.schema)

    def over(self, *sources: Relation) -> Self:
        """The same operator over other relations, as many: checked, with its schema derived anew."""
        if sources:
            raise InvalidWorkflow(f"{self.keyword} reads no relation")
        return self

    def named(self, name: str) -> Self:
        """The same operator, whose relation has another name."""
        return dataclasses.replace(self, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(Operator):
    """What reads no relation: its columns are stated."""

    columns: Schema

    def derived_schema(self) -> Schema:
        return self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Operator):
    source: Relation

    @property
    def sources(self) -> tuple[Relation, ...]:
        return (self.source,)

    def over(self, *sources: Relation) -> Self:
        (source,) = sources
        return dataclasses.replace(self, source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binary(Operator):
    left: Relation
    right: Relation

    @property
    def sources(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    def over(self, *sources: Relation) -> Self:
        left, right = sources
        return dataclasses.replace(self, left=left, right=right)


# ---- what comes from outside -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Leaf):
    """The table `table`, whose columns are these, perhaps among others."""

    table: str
    keyword: ClassVar[str] = "SCAN"

    def derived_schema(self) -> Schema:
        check_name("table", self.table)
        return self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Values(Leaf):
    """Rows of constants. rows: as long as `columns`."""

    rows: tuple[tuple[Scalar, ...], ...]
    keyword: ClassVar[str] = "VALUES"

    def derived_schema(self) -> Schema:
        if len(self.rows) > VALUES_ROWS_MAX:
            raise TooLarge("rows of VALUES", len(self.rows), VALUES_ROWS_MAX)
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InvalidWorkflow(f"a row of {len(row)} values for {len(self.columns)} columns")
            for column, scalar in zip(self.columns, row, strict=True):
                self._check(column, scalar)
        return self.columns

    def _check(self, column: Column, scalar: Scalar) -> None:
        if not scalar.constant:
            raise InvalidWorkflow(f"{scalar} is no constant")
        if scalar.type_in(self.columns) is not column.type:
            raise TypeMismatch(f"{scalar} is not {column.type.value}, which the column {column.name} is")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input(Leaf):
    """A relation that whoever runs the DAG hands in: in a loop's body the loop, in a job an earlier job."""

    keyword: ClassVar[str] = "INPUT"


# ---- a row at a time -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Unary):
    """The rows for which the condition is true, neither false nor null."""

    condition: Scalar
    keyword: ClassVar[str] = "SELECT"

    def derived_schema(self) -> Schema:
        check_condition(self.condition, self.source.schema)
        return self.source.schema


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a `Project`: its name, and what it is computed from."""

    name: str
    value: Scalar

    @classmethod
    def column(cls, name: str, new_name: str = "") -> Output:
        """A column of the input, perhaps with another name."""
        return cls(new_name or name, Scalar.column(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Unary):
    """A row of these columns for each row."""

    columns: tuple[Output, ...]
    keyword: ClassVar[str] = "PROJECT"

    def derived_schema(self) -> Schema:
        return Schema(tuple(Column(one.name, one.value.type_in(self.source.schema)) for one in self.columns))

    @property
    def only_columns(self) -> bool:
        """Whether columns are picked, ordered and named, and nothing is computed."""
        return all(one.value.as_column is not None for one in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic(Unary):
    """Each row with the column `column` set to `value`: in its place, or as the last column if it is new."""

    column: str
    value: Scalar
    keyword: ClassVar[str] = "ARITHMETIC"

    def derived_schema(self) -> Schema:
        new = Column(self.column, self.value.type_in(self.source.schema))
        columns = self.source.schema.columns
        if self.column not in self.source.schema:
            return Schema((*columns, new))
        return Schema(tuple(new if column.name == self.column else column for column in columns))

    def as_project(self) -> Project:
        """The `Project` that makes the same relation."""
        columns = (
            Output(name, self.value) if name == self.column else Output.column(name) for name in self.schema.names
        )
        return Project(name=self.name, source=self.source, columns=tuple(columns), at=self.at)


# ---- two relations ---------------------------------------------------------------------------


class Side(enum.Enum):
    """One of the two relations that a join reads."""

    LEFT = "LEFT"
    RIGHT = "RIGHT"


class JoinKind(enum.Enum):
    """Which rows a join makes."""

    INNER = "INNER"
    """Pairs of rows whose keys are equal; a key that is null equals none."""
    LEFT = "LEFT"
    """These, and each left row without a partner beside nulls."""
    SEMI = "SEMI"
    """Left rows with a partner, once each."""
    ANTI = "ANTI"
    """Left rows without a partner, those with a null key among them."""

    @property
    def pairs(self) -> bool:
        """Whether rows of both sides go into the result."""
        return self in (JoinKind.INNER, JoinKind.LEFT)


@dataclass(frozen=True, slots=True)
class JoinOutput:
    """A column of a join: its name, and which column of which side it is."""

    name: str
    side: Side
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairing(_Binary):
    """columns: which columns of the two sides the result has; `joined_columns` makes the usual ones."""

    columns: tuple[JoinOutput, ...]

    def derived_schema(self) -> Schema:
        return Schema(tuple(Column(one.name, self._side(one.side).column(one.column).type) for one in self.columns))

    def _side(self, side: Side) -> Schema:
        return (self.left if side is Side.LEFT else self.right).schema


def check_keys_fit(left: Column, right: Column) -> None:
    """`TypeMismatch` unless a JOIN may be on these columns."""
    if left.type is not right.type:
        raise TypeMismatch(
            f"JOIN on {left.name}, {left.type.value}, and {right.name}, {right.type.value}: cast one of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(_Pairing):
    """Rows of two relations brought together by equal keys. on: pairs (left column, right column) of one type each."""

    on: tuple[tuple[str, str], ...]
    kind: JoinKind = JoinKind.INNER
    keyword: ClassVar[str] = "JOIN"

    def derived_schema(self) -> Schema:
        if not self.on:
            raise InvalidWorkflow("a JOIN on no columns; a CROSS JOIN is one")
        for left, right in self.on:
            check_keys_fit(self.left.schema.column(left), self.right.schema.column(right))
        if not self.kind.pairs and any(one.side is Side.RIGHT for one in self.columns):
            raise InvalidWorkflow(f"a JOIN of kind {self.kind.value} has no columns of its right side")
        return super(Join, self).derived_schema()

    @property
    def left_keys(self) -> tuple[str, ...]:
        return tuple(left for left, _ in self.on)

    @property
    def right_keys(self) -> tuple[str, ...]:
        return tuple(right for _, right in self.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossJoin(_Pairing):
    """All pairs of a left and a right row."""

    keyword: ClassVar[str] = "CROSS JOIN"


def joined_columns(
    left: Relation, right: Relation, *, without: Iterable[str] = (), renamed: Mapping[str, str] | None = None
) -> tuple[JoinOutput, ...]:
    """All columns of the left side, then those of the right but `without`.

    renamed: names for columns of the right side. A right column whose name is taken (in any case) and that is not
    renamed has its relation's name and `_` before its own, and a number after it if that is taken, too.
    """
    left_out, names = frozenset(without), dict(renamed or {})
    columns = [JoinOutput(name, Side.LEFT, name) for name in left.schema.names]
    taken = {name.casefold() for name in left.schema.names} | {name.casefold() for name in names.values()}
    for name in right.schema.names:
        if name in left_out:
            continue
        new = names.get(name) or (free_name(f"{right.name}_{name}", taken) if name.casefold() in taken else name)
        taken.add(new.casefold())
        columns.append(JoinOutput(new, Side.RIGHT, name))
    return tuple(columns)


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """`wanted`, or with `_2`, `_3`, … after it what is not taken yet, in any case."""
    folded = {name.casefold() for name in taken}
    name, number = wanted, 2
    while name.casefold() in folded:
        name, number = f"{wanted}_{number}", number + 1
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class _SameColumns(_Binary):
    """Two relations whose columns have the same types, place by place; the result has the left one's names."""

    def derived_schema(self) -> Schema:
        left, right = self.left.schema, self.right.schema
        if left.types != right.types:
            shown = [f"({', '.join(one.value for one in side.types)})" for side in (left, right)]
            raise TypeMismatch(f"{self.keyword} of relations whose columns differ: {shown[0]} and {shown[1]}")
        return left


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(_SameColumns):
    """The rows of both. all_rows: as bags, with as many copies as both have; else each row once."""

    all_rows: bool = False
    keyword: ClassVar[str] = "UNION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intersect(_SameColumns):
    """The rows that are in both, each once; nulls are equal."""

    keyword: ClassVar[str] = "INTERSECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(_SameColumns):
    """The rows that are in the left one and not in the right, each once; nulls are equal."""

    keyword: ClassVar[str] = "DIFFERENCE"


# ---- all rows of a relation ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(Unary):
    """Each row once; nulls are equal."""

    keyword: ClassVar[str] = "DISTINCT"

    def derived_schema(self) -> Schema:
        return self.source.schema


class Function(enum.Enum):
    """What an aggregation computes of the values that are not null."""

    SUM = "SUM"
    """Null of no value; an INTEGER of INTEGERs."""
    COUNT = "COUNT"
    """Without a column: of rows."""
    MIN = "MIN"
    MAX = "MAX"
    AVG = "AVG"
    """A DOUBLE; null of no value."""
    COUNT_DISTINCT = "COUNT DISTINCT"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A column of an `Aggregate`: its name, and the function of which column; None counts rows."""

    name: str
    function: Function
    column: str | None = None

    def type_in(self, schema: Schema) -> Type:
        if self.function is Function.COUNT and self.column is None:
            return Type.INTEGER
        if self.column is None:
            raise InvalidWorkflow(f"{self.function.value} of no column")
        type_ = schema.column(self.column).type
        if self.function in (Function.SUM, Function.AVG) and not type_.numeric:
            raise TypeMismatch(f"{self.function.value} needs numbers, and {self.column} is {type_.value}")
        if self.function in (Function.COUNT, Function.COUNT_DISTINCT):
            return Type.INTEGER
        return Type.DOUBLE if self.function is Function.AVG else type_


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Unary):
    """A row for each combination of the keys' values, nulls being equal; without keys always one row.

    The columns are the keys, then the aggregations; at least one of these.
    """

    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    keyword: ClassVar[str] = "AGGREGATE"

    def derived_schema(self) -> Schema:
        if not self.aggregations:
            raise InvalidWorkflow("an AGGREGATE that computes nothing; DISTINCT gives the combinations of values")
        schema = self.source.schema
        keys = [schema.column(key) for key in self.keys]
        return Schema((*keys, *(Column(one.name, one.type_in(schema)) for one in self.aggregations)))


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to order by. Nulls are last in both directions; NaN is the greatest number."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(Unary):
    """The same rows. If the relation is a result, in this order; rows with equal keys in any."""

    keys: tuple[SortKey, ...]
    keyword: ClassVar[str] = "SORT"

    def derived_schema(self) -> Schema:
        if not self.keys:
            raise InvalidWorkflow("a SORT by no column")
        check_keys(self.keys, self.source.schema)
        return self.source.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Top(Unary):
    """The first `count` rows in the order of the keys, then of all other columns, ascending, as the schema has them.

    So which rows these are does not depend on the engine. As any relation they have no order: a `Sort` gives it.
    """

    count: int
    keys: tuple[SortKey, ...] = ()
    keyword: ClassVar[str] = "TOP"

    def derived_schema(self) -> Schema:
        if not 0 <= self.count <= TOP_ROWS_MAX:
            raise InvalidWorkflow(f"TOP {self.count}; 0 to {TOP_ROWS_MAX:,} rows are allowed")
        check_keys(self.keys, self.source.schema)
        return self.source.schema

    def all_keys(self) -> tuple[SortKey, ...]:
        """The keys, and after them the columns that decide between rows with equal keys."""
        named = {key.column for key in self.keys}
        return (*self.keys, *(SortKey(name) for name in self.schema.names if name not in named))


def check_keys(keys: Sequence[SortKey], schema: Schema) -> None:
    """`InvalidWorkflow` unless each key is another column."""
    for place, key in enumerate(keys):
        schema.column(key.column)
        if any(key.column == earlier.column for earlier in keys[:place]):
            raise InvalidWorkflow(f"the order names the column {key.column} twice")


def check_condition(condition: Scalar, schema: Schema) -> None:
    """`TypeMismatch` unless the scalar is BOOLEAN over this schema."""
    type_ = condition.type_in(schema)
    if type_ is not Type.BOOLEAN:
        raise TypeMismatch(f"the condition {condition} is {type_.value}, not BOOLEAN")


# ---- code of users and engines ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque(Operator):
    """What nobody here looks into: it reads relations and makes one of stated columns."""

    read: tuple[Relation, ...]
    columns: Schema

    @property
    def sources(self) -> tuple[Relation, ...]:
        return self.read

    def derived_schema(self) -> Schema:
        return self.columns

    def over(self, *sources: Relation) -> Self:
        if len(sources) != len(self.read):
            raise InvalidWorkflow(f"{self.keyword} reads {len(self.read)} relations, not {len(sources)}")
        return dataclasses.replace(self, read=sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Udf(Opaque):
    """A user's function of whole relations, run in executors alone.

    function: where its code is, `path/to/file.py:name` or `module:name`. It is called with an Arrow table for each
    relation that is read, and returns an Arrow table of `columns`. The same tables give the same rows.
    """

    function: str
    keyword: ClassVar[str] = "UDF"

    def derived_schema(self) -> Schema:
        where, _, name = self.function.rpartition(":")
        if not where or not name.isidentifier():
            raise InvalidWorkflow(f"UDF {self.function!r}: write path/to/file.py:name or module:name")
        return self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class BlackBox(Opaque):
    """Code of one engine, which no other engine can run. code: as the engine's module says."""

    engine: str
    code: str
    keyword: ClassVar[str] = "BLACK BOX"
