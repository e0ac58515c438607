"""The intermediate representation: a workflow as a DAG of relational operators, each of which makes one relation.

An operator holds a header (`Relation`: name and schema) of each relation that it reads, so it checks itself and derives
its schema when it is made; operators refer to each other by these names alone. A relation is a bag of rows without an
order, but for a `Sort` that is a result. docs/workflow-semantics.md says what each operator means, and `reference.py`
defines it.

| operator | thesis (§3.3) |
|---|---|
| `Scan`, `Values`, `Input` | the tables; constants; what a loop or an earlier job hands in |
| `Select` | SELECT: rows that meet a condition |
| `Project` | PROJECT: columns computed from each row |
| `Arithmetic` | SUM, SUB, MUL, DIV: one column set or added, the others kept |
| `Join`, `CrossJoin` | JOIN on equal columns (inner, left, semi, anti); all pairs |
| `Union`, `Intersect`, `Difference`, `Distinct` | UNION (of bags or of sets), INTERSECT, DIFFERENCE |
| `Aggregate` | AGG, COUNT, MIN, MAX with or without GROUP BY; averages, distinct counts |
| `Sort`, `Top` | |
| `While`, `LoopResult` | WHILE: a body that runs until a condition fails; one of its relations afterwards |
| `Udf`, `BlackBox` | UDF; code of one engine |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from frontends.workflow.errors import EndlessLoop, InvalidWorkflow, NameTaken, TooLarge, TypeMismatch, UnknownRelation
from frontends.workflow.ir.operators import (
    Aggregate,
    Aggregation,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    JoinKind,
    JoinOutput,
    Leaf,
    Opaque,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Side,
    Sort,
    SortKey,
    Top,
    Udf,
    Unary,
    Union,
    Values,
    check_condition,
    check_keys_fit,
    free_name,
    joined_columns,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Column, Schema, Type
from frontends.workflow.positions import Position

__all__ = (
    "ITERATIONS_MAX",
    "LOOP_DEPTH_MAX",
    "OPERATORS_MAX",
    "Aggregate",
    "Aggregation",
    "Arithmetic",
    "BlackBox",
    "Carried",
    "CrossJoin",
    "Dag",
    "Difference",
    "Distinct",
    "Function",
    "Input",
    "Intersect",
    "Join",
    "JoinKind",
    "JoinOutput",
    "Leaf",
    "LoopCondition",
    "LoopResult",
    "Opaque",
    "Operator",
    "Output",
    "Project",
    "Relation",
    "Scan",
    "Select",
    "Side",
    "Sort",
    "SortKey",
    "Top",
    "Udf",
    "Unary",
    "Union",
    "Values",
    "While",
    "check_condition",
    "check_keys_fit",
    "free_name",
    "joined_columns",
    "loop_result",
)

OPERATORS_MAX = 1_000
"""Operators of a DAG, those of loops' bodies included."""
ITERATIONS_MAX = 1_000_000
"""Iterations that a `While` may be allowed to make."""
LOOP_DEPTH_MAX = 3
"""Loops within loops."""

# ---- loops -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Carried:
    """A relation that changes from iteration to iteration. input: the body's `Input` that has its present value;
    following: the body's relation that is its next value, of the same schema."""

    input: str
    following: str


@dataclass(frozen=True, slots=True)
class LoopCondition:
    """A loop goes on while any row of `relation` meets `test`.

    relation: the `Input` of a carried relation, whose value after the iteration is meant, or another relation of the
    body. test: over a row of it. tested_first: the condition decides about the first iteration, too; then the relation
    is a carried one, whose first value is meant.
    """

    relation: str
    test: Scalar
    tested_first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class While(Opaque):
    """A body that runs again and again. Its own relation is one row: how many `iterations` it made.

    read: what the body's `Input`s are at first, in the order in which the body has them; those that are not carried
    stay so. carried: at least one. condition: None for exactly `iterations_max` iterations; else the loop fails
    (`IterationsExceeded`) if the condition still holds after so many. What the loop leaves is read by `LoopResult`s.
    """

    columns: Schema = field(init=False, default=Schema((Column("iterations", Type.INTEGER),)))
    body: Dag
    carried: tuple[Carried, ...]
    condition: LoopCondition | None
    iterations_max: int = ITERATIONS_MAX
    keyword: ClassVar[str] = "WHILE"

    def derived_schema(self) -> Schema:
        if not 1 <= self.iterations_max <= ITERATIONS_MAX:
            raise InvalidWorkflow(f"{self.iterations_max:,} iterations at most; 1 to {ITERATIONS_MAX:,} are allowed")
        if self.body.loop_depth >= LOOP_DEPTH_MAX:
            raise TooLarge("loops within each other", self.body.loop_depth + 1, LOOP_DEPTH_MAX)
        self._check_inputs()
        self._check_carried()
        self._check_condition()
        return self.columns

    def _check_inputs(self) -> None:
        inputs = self.body.of_type(Input)
        if any(isinstance(operator, Scan) for operator in self.body.operators):
            raise InvalidWorkflow("the body of a WHILE has a SCAN; scan before the loop, and read an INPUT in the body")
        if len(inputs) != len(self.read):
            raise InvalidWorkflow(f"a WHILE reads {len(self.read)} relations, and its body has {len(inputs)} inputs")
        for given, inside in zip(self.read, inputs, strict=True):
            if given.schema != inside.schema:
                raise TypeMismatch(
                    f"the columns of {given.name} are not those of {inside.name} in the body of the WHILE"
                )

    def _check_carried(self) -> None:
        if not self.carried:
            raise EndlessLoop("a WHILE whose body changes no relation that it reads")
        seen: set[str] = set()
        for one in self.carried:
            current, following = self.body.operator(one.input), self.body.operator(one.following)
            if not isinstance(current, Input):
                raise InvalidWorkflow(f"{one.input} is carried from iteration to iteration, and no input of the body")
            if one.input in seen:
                raise InvalidWorkflow(f"{one.input} is carried twice")
            if current.schema != following.schema:
                raise TypeMismatch(f"the columns of {one.input} change in the loop, where {one.following} follows it")
            seen.add(one.input)

    def _check_condition(self) -> None:
        if self.condition is not None:
            relation = self.body.operator(self.condition.relation)
            check_condition(self.condition.test, relation.schema)
            carried = self.carries(relation.name)
            if isinstance(relation, Input) and not carried:
                raise EndlessLoop(f"the WHILE tests {relation.name}, which its body does not change")
            if self.condition.tested_first and not carried:
                raise InvalidWorkflow(
                    f"{relation.name} has no value before the first iteration, so nothing can be tested"
                )
        needed = {one.following for one in self.carried}
        if self.condition is not None:
            needed.add(self.condition.relation)
        missing = sorted(name for name in needed - set(self.body.results) if not self.carries(name))
        if missing:
            raise InvalidWorkflow(f"{', '.join(missing)} in the body of a WHILE must be among its results")

    def carries(self, relation: str) -> bool:
        """Whether the body's input of this name is carried."""
        return any(one.input == relation for one in self.carried)

    def first_value(self, relation: str) -> Relation:
        """What the body's input of this name is before the first iteration."""
        return self.read[self.body.input_names.index(relation)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult(Unary):
    """What the carried relation `carried` (the name of the body's `Input`) is after the loop that `source` counts.

    columns: those of the carried relation; `loop_result` fills them in, and the DAG checks them.
    """

    carried: str
    columns: Schema
    keyword: ClassVar[str] = "LOOP RESULT"

    def derived_schema(self) -> Schema:
        return self.columns


def loop_result(name: str, loop: While, carried: str, at: Position | None = None) -> LoopResult:
    """The operator for what the loop leaves of a carried relation."""
    if not loop.carries(carried):
        raise UnknownRelation(carried, [one.input for one in loop.carried], at)
    return LoopResult(
        name=name, source=loop.relation, carried=carried, columns=loop.body.operator(carried).schema, at=at
    )


# ---- the DAG ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dag:
    """Operators in an order in which each comes after those that it reads, and the relations that are asked for."""

    operators: tuple[Operator, ...]
    results: tuple[str, ...]

    def __post_init__(self) -> None:
        by_name: dict[str, Operator] = {}
        folded: dict[str, str] = {}
        for operator in self.operators:
            try:
                _check_place(operator, by_name, folded)
            except InvalidWorkflow as error:
                error.locate(operator.at)
                raise
            by_name[operator.name] = operator
        object.__setattr__(self, "_by_name", by_name)
        if self.size > OPERATORS_MAX:
            raise TooLarge("operators", self.size, OPERATORS_MAX)
        if not self.results:
            raise InvalidWorkflow("a workflow without results")
        for place, name in enumerate(self.results):
            self.operator(name)
            if name in self.results[:place]:
                raise InvalidWorkflow(f"{name} is asked for twice")

    @classmethod
    def relinked(cls, operators: Iterable[Operator], results: Iterable[str]) -> Dag:
        """From operators of which some have changed: each has its sources anew from those before it, by name."""
        made: dict[str, Operator] = {}
        for operator in operators:
            sources = [_found(made, name, operator.at).relation for name in operator.inputs]
            made[operator.name] = operator.over(*sources)
        return cls(tuple(made.values()), tuple(results))

    @classmethod
    def of_unread(cls, operators: Iterable[Operator]) -> Dag:
        """With the relations that nobody reads as results."""
        listed = tuple(operators)
        read = {name for operator in listed for name in operator.inputs}
        return cls(listed, tuple(operator.name for operator in listed if operator.name not in read))

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def __contains__(self, name: object) -> bool:
        return name in self._operators_by_name

    @property
    def _operators_by_name(self) -> dict[str, Operator]:
        found: dict[str, Operator] = self.__dict__["_by_name"]
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The relations' names, in the order of the operators."""
        return tuple(self._operators_by_name)

    @property
    def size(self) -> int:
        """How many operators there are, those of loops' bodies included."""
        return len(self.operators) + sum(loop.body.size for loop in self.of_type(While))

    @property
    def loop_depth(self) -> int:
        """How many loops are within each other."""
        return max((1 + loop.body.loop_depth for loop in self.of_type(While)), default=0)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the `Input`s."""
        return tuple(operator.name for operator in self.of_type(Input))

    def operator(self, name: str) -> Operator:
        """The operator that makes the relation of this name; `UnknownRelation` if there is none."""
        return _found(self._operators_by_name, name, None)

    def of_type(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """The operators of this class, in order."""
        return tuple(operator for operator in self.operators if isinstance(operator, kind))

    @property
    def leaves(self) -> tuple[Operator, ...]:
        """The operators that read no relation: `Scan`, `Values`, `Input`, and UDFs and black boxes of none."""
        return tuple(operator for operator in self.operators if not operator.inputs)

    def consumers(self, name: str) -> tuple[Operator, ...]:
        """The operators that read the relation, in order."""
        self.operator(name)
        return tuple(operator for operator in self.operators if name in operator.inputs)

    def ancestors(self, names: Iterable[str]) -> frozenset[str]:
        """What these relations are made from, directly or not, without themselves unless one is made from another."""
        found: set[str] = set()
        waiting = [name for start in names for name in self.operator(start).inputs]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.operator(name).inputs
        return frozenset(found)

    def is_downset(self, names: Iterable[str]) -> bool:
        """Whether each relation of the set has all that it is made from in the set."""
        chosen = set(names)
        return all(chosen.issuperset(self.operator(name).inputs) for name in chosen)

    def inseparable(self, name: str) -> frozenset[str]:
        """The operators that are in one job with this one, itself among them: a loop and its results."""
        operator = self.operator(name)
        loop = operator.source.name if isinstance(operator, LoopResult) else name
        if not isinstance(self.operator(loop), While):
            return frozenset((name,))
        return frozenset((loop, *(one.name for one in self.consumers(loop) if isinstance(one, LoopResult))))

    def subset(self, names: Iterable[str]) -> Dag:
        """The job that makes these relations, as a DAG by itself.

        A `Scan`, `Values` or `Input` that the operators read is part of the job even if `names` lacks it. Another
        relation from outside is an `Input` of the same name. The results are the relations that are results here or
        that operators outside read, but a table that is scanned is no result on that account. `InvalidWorkflow` if a
        loop is cut apart.
        """
        chosen = {self.operator(name).name for name in names}
        for name in chosen:
            if not self.inseparable(name) <= chosen:
                raise InvalidWorkflow(f"{name} and {', '.join(sorted(self.inseparable(name) - chosen))} are of one job")
        read = {name for one in chosen for name in self.operator(one).inputs} - chosen
        operators = []
        for operator in self.operators:
            if operator.name in chosen or (operator.name in read and isinstance(operator, Leaf)):
                operators.append(operator)
            elif operator.name in read:
                operators.append(Input(name=operator.name, columns=operator.schema, at=operator.at))
        return Dag(
            tuple(operators), tuple(name for name in self.names if name in chosen and self._leaves(name, chosen))
        )

    def _leaves(self, name: str, job: set[str]) -> bool:
        """Whether the relation, which this job makes, is needed outside."""
        if name in self.results:
            return True
        operator = self.operator(name)
        outside = any(consumer.name not in job for consumer in self.consumers(name))
        return outside and not isinstance(operator, Leaf)


Kind = TypeVar("Kind", bound=Operator)


def _check_place(operator: Operator, before: Mapping[str, Operator], folded: dict[str, str]) -> None:
    """Whether the operator may come after those before it. folded: their names without case, and as they are."""
    other = folded.setdefault(operator.name.casefold(), operator.name)
    if operator.name in before or other != operator.name:
        raise NameTaken("relation", operator.name, other)
    for source in operator.sources:
        if _found(before, source.name, operator.at).schema != source.schema:
            raise TypeMismatch(f"{operator.name} reads {source.name} with other columns than the relation has")
    if isinstance(operator, LoopResult):
        loop = before[operator.source.name]
        if not isinstance(loop, While):
            raise InvalidWorkflow(f"{loop.name}, of which {operator.name} is to be a result, is no WHILE")
        if loop_result(operator.name, loop, operator.carried) != operator:
            raise TypeMismatch(f"{operator.name} has other columns than {operator.carried} in the loop {loop.name}")


def _found(operators: Mapping[str, Operator], name: str, at: Position | None) -> Operator:
    if name not in operators:
        raise UnknownRelation(name, operators, at)
    return operators[name]
