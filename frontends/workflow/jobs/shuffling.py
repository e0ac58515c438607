"""By which key a job with one shuffle places its rows, and whether one key serves all its operators.

The thesis says that operators of one job use the same key, and leaves open what that is (§3.4.1). Here each relation
that has passed the shuffle is at the place that its key says, and an operator that shuffles it again needs rows that
agree on its own key to be at one place. A key is followed through projections, joins and aggregations, column by
column: each column of it is a *part*.

part_keys: rows placed by k are together for a GROUP BY k, x as well, so an operator may be served by a part of its key.
The job then shuffles by the parts that all its operators have. There must be one, and not only BOOLEANs, of whose few
values most reducers would have none. A SORT needs its key whole: with it all rows meet in one reducer, and the rule is
not to bring operators there that had many. Without the rule each operator needs its whole key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    CrossJoin,
    Join,
    JoinKind,
    JoinOutput,
    Operator,
    Project,
    Side,
    Sort,
    Union,
)
from frontends.workflow.ir.types import Type
from frontends.workflow.jobs.classes import JobClass, class_of, shuffle_keys

DIFFERENT = "they shuffle by different keys"
FEW_VALUES = "they share no part of a key but BOOLEANs"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two operators that cannot be served by one shuffle, and why not."""

    one: Operator
    other: Operator
    why: str


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A relation before the shuffle. origins: of each column, the relation and column from which it is unchanged."""

    origins: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A relation after the shuffle. parts: of the key that says where a row is, and the columns that are equal to
    each."""

    parts: tuple[tuple[int, frozenset[str]], ...]


class _Scattered:
    """A relation whose rows are at places of several keys, or of none."""


_Rows = _Mapped | _Placed | _Scattered
_SCATTERED = _Scattered()


class _Parts:
    """Numbers of parts of keys: which stand for one part, and which no key can have."""

    def __init__(self) -> None:
        self._same: list[int] = []
        """Of each number, one that stands for the same part."""
        self._dropped: set[int] = set()
        self._origins: dict[tuple[str, str], int] = {}

    def new(self) -> int:
        """A part that is none of the others."""
        self._same.append(len(self._same))
        return self._same[-1]

    def of_origin(self, origin: tuple[str, str]) -> int:
        """The part that is this column of a relation before the shuffle."""
        found = self._origins.get(origin)
        if found is None:
            found = self._origins[origin] = self.new()
        return found

    def find(self, part: int) -> int:
        while self._same[part] != part:
            part = self._same[part]
        return part

    def unite(self, parts: Sequence[int]) -> int:
        """What stands for all of them from now on."""
        kept = self.find(parts[0])
        for part in map(self.find, parts[1:]):
            if part != kept:
                self._same[part] = kept
                if part in self._dropped:
                    self._dropped.add(kept)
        return kept

    def drop(self, parts: Iterable[int]) -> None:
        self._dropped.update(map(self.find, parts))

    def is_kept(self, part: int) -> bool:
        return self.find(part) not in self._dropped

    def kept(self, parts: Iterable[int]) -> frozenset[int]:
        """What stands for those that a key can still have."""
        return frozenset(map(self.find, parts)) - self._dropped


class Shuffle:
    """The one shuffle of a job, or why there is none: `conflict`.

    operators: of the job, with sources first. mapped: those of them that mappers do although they shuffle by
    themselves: aggregations of what one mapper has, and joins with what each mapper has whole.
    """

    def __init__(self, operators: Sequence[Operator], part_keys: bool, mapped: Iterable[str] = ()) -> None:
        self._mapped = frozenset(mapped)
        self._part_keys = part_keys and not any(isinstance(one, Sort) for one in operators)
        self._relations: dict[str, _Rows] = {}
        self._parts = _Parts()
        self._users: list[tuple[Operator, tuple[int, ...]]] = []
        """Operators that shuffle, and the part that is each column of their keys."""
        self.conflict: Conflict | None = self._followed(operators)

    def keys(self, operator: Operator) -> tuple[tuple[str, ...], ...]:
        """By which columns of each relation that the operator reads the job shuffles, if that is not shuffled yet;
        nothing for an operator that does not shuffle."""
        parts = next((parts for one, parts in self._users if one.name == operator.name), None)
        if parts is None:
            return ()
        used = [place for place, part in enumerate(parts) if self._parts.is_kept(part)]
        return tuple(tuple(columns[place] for place in used) for columns in shuffle_keys(operator))

    def _followed(self, operators: Sequence[Operator]) -> Conflict | None:
        for operator in operators:
            for source in operator.sources:
                if source.name not in self._relations:
                    self._relations[source.name] = _unchanged(source.name, source.schema.names)
            if operator.name in self._mapped or not class_of(operator).shuffles:
                self._relations[operator.name] = self._not_shuffled(operator)
                continue
            placed = self._shuffled(operator)
            why = DIFFERENT if placed is None else self._unserved()
            if placed is None or why is not None:
                other = next((one for one, _ in self._users if one.name != operator.name), operator)
                return Conflict(operator, other, why or DIFFERENT)
            self._relations[operator.name] = placed
        return None

    def _unserved(self) -> str | None:
        """Why no key serves all operators so far; None if one does, of the parts that are then kept."""
        if len(self._users) == 1:
            return None
        whole = [frozenset(map(self._parts.find, parts)) for _, parts in self._users]
        shared = self._parts.kept(frozenset.intersection(*whole))
        if all(parts == shared for parts in whole):
            return None
        if not self._part_keys or not shared:
            return DIFFERENT
        self._parts.drop(frozenset.union(*whole) - shared)
        operator, parts = self._users[-1]
        types = {
            operator.sources[0].schema.column(column).type
            for column, part in zip(shuffle_keys(operator)[0], parts, strict=True)
            if self._parts.is_kept(part)
        }
        return FEW_VALUES if types == {Type.BOOLEAN} else None

    def _shuffled(self, operator: Operator) -> _Placed | None:
        """Where the operator's rows are; None if it reads rows that no key places."""
        keys = shuffle_keys(operator)
        found: list[list[int | None]] = []
        for name, columns in zip(operator.inputs, keys, strict=True):
            rows = self._relations[name]
            if isinstance(rows, _Scattered):
                return None
            found.append(self._parts_of(rows, columns))
        parts = tuple(self._one_part(each) for each in zip(*found, strict=True))
        self._users.append((operator, parts))
        return _Placed(tuple(zip(parts, _columns_of_key(operator, keys), strict=True)))

    def _parts_of(self, rows: _Mapped | _Placed, columns: tuple[str, ...]) -> list[int | None]:
        """For each column the part of the key that it is, None if it is none; other parts of the key are dropped."""
        if isinstance(rows, _Mapped):
            return [self._parts.of_origin(rows.origins[column]) for column in columns]
        left = list(rows.parts)
        found: list[int | None] = []
        for column in columns:
            part = next((one for one in left if column in one[1]), None)
            found.append(None if part is None else part[0])
            if part is not None:
                left.remove(part)
        self._parts.drop(part for part, _ in left)
        return found

    def _one_part(self, parts: Sequence[int | None]) -> int:
        """The part that all relations have at this place of their keys; one that is dropped if any has none."""
        there = [part for part in parts if part is not None] or [self._parts.new()]
        if None in parts:
            self._parts.drop(there)
        return self._parts.unite(there)

    def _not_shuffled(self, operator: Operator) -> _Rows:
        """What an operator that does not shuffle makes of what it reads."""
        if isinstance(operator, Union):
            left, right = (self._relations[name] for name in operator.inputs)
            return self._united(operator, left, right)
        if not operator.inputs or isinstance(operator, CrossJoin):
            return _unchanged(operator.name, operator.schema.names)
        kept = _kept_columns(operator)
        source = self._relations[operator.inputs[0]]
        if isinstance(source, _Scattered):
            return source
        if isinstance(source, _Mapped):
            own = ((name, (operator.name, name)) for name in operator.schema.names)
            return _Mapped({name: source.origins[kept[name]] if name in kept else new for name, new in own})
        return _Placed(
            tuple(
                (part, frozenset(name for name, old in kept.items() if old in columns))
                for part, columns in source.parts
            )
        )

    def _united(self, operator: Union, left: _Rows, right: _Rows) -> _Rows:
        if isinstance(left, _Mapped) and isinstance(right, _Mapped):
            return left if left == right else _unchanged(operator.name, operator.schema.names)
        if not isinstance(left, _Placed) or not isinstance(right, _Placed):
            return _SCATTERED
        names = dict(zip(operator.right.schema.names, operator.left.schema.names, strict=True))
        others = [(self._parts.find(part), columns) for part, columns in right.parts if self._parts.is_kept(part)]
        both: list[tuple[int, frozenset[str]]] = []
        for part, columns in left.parts:
            if not self._parts.is_kept(part):
                continue
            other = next((one for one in others if one[0] == self._parts.find(part)), None)
            if other is None:
                return _SCATTERED
            others.remove(other)
            both.append((part, columns & frozenset(names[name] for name in other[1])))
        return _SCATTERED if others else _Placed(tuple(both))


def _unchanged(relation: str, columns: Iterable[str]) -> _Mapped:
    return _Mapped({name: (relation, name) for name in columns})


def _kept_columns(operator: Operator) -> dict[str, str]:
    """Of the columns that are taken over as they are: {name: name in the source}; of a join, in its left side."""
    if isinstance(operator, Join):
        return _left_columns(operator)
    if isinstance(operator, Project):
        return {one.name: name for one in operator.columns if (name := one.value.as_column) is not None}
    if isinstance(operator, Aggregate):
        return {name: name for name in operator.keys}
    names = operator.schema.names
    return {name: name for name in names if not (isinstance(operator, Arithmetic) and name == operator.column)}


def _left_columns(join: Join) -> dict[str, str]:
    """Right keys of an inner join are equal to the left ones."""
    left_of = {right: left for left, right in join.on} if join.kind is JoinKind.INNER else {}
    found = {one.name: one.column if one.side is Side.LEFT else left_of.get(one.column) for one in join.columns}
    return {name: column for name, column in found.items() if column is not None}


def _columns_of_key(operator: Operator, keys: tuple[tuple[str, ...], ...]) -> list[frozenset[str]]:
    """For each column of the operator's key, which of its own columns are equal to that."""
    if isinstance(operator, Join):
        return [_join_names(operator, left, right) for left, right in operator.on]
    if class_of(operator) is JobClass.NO_OP_MAP:
        return [frozenset((name,)) for name in operator.schema.names]
    return [frozenset((name,)) for name in keys[0]]


def _join_names(operator: Join, left: str, right: str) -> frozenset[str]:
    """The join's columns that are this key in each row; right ones are null where a left row has no partner."""

    def is_key(one: JoinOutput) -> bool:
        if one.side is Side.LEFT:
            return one.column == left
        return one.column == right and operator.kind is JoinKind.INNER

    return frozenset(one.name for one in operator.columns if is_key(one))
