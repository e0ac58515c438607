"""Joins of RDDs: what the elements of both sides are made into, and what unpacks the pairs that Spark makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from frontends.workflow.engines.pyspark_rdd_elements import NOTHING, Elements, Shape, bare, shape_text
from frontends.workflow.ir.dag import CrossJoin, Join, JoinKind, Side
from frontends.workflow.ir.types import Schema, Type

PARTNER = "partner"
"""The variable that has what a left join finds."""
_CALLS = {
    JoinKind.INNER: "{}.join({})",
    JoinKind.LEFT: "{}.leftOuterJoin({})",
    JoinKind.SEMI: "{}.join({}.distinct())",
    JoinKind.ANTI: "{}.subtractByKey({})",
}

_Column = tuple[Side, str]


@dataclass(frozen=True, slots=True)
class Pairing:
    """left, right: both sides, without keys that are null where those must not meet; left_made, right_made: what their
    elements are made into; call: the Python text of what pairs two RDDs of these; pairs: the elements of that."""

    left: Elements
    right: Elements
    left_made: Shape
    right_made: Shape
    call: str
    pairs: Elements

    def of(self, left: str, right: str) -> Elements:
        """The pairs of two RDDs, whose elements are `left_made` and `right_made`."""
        return replace(self.pairs, rdd=self.call.format(left, right))


def key_part(text: str, type_: Type) -> str:
    """A value as a part of a key: NaN equals itself there."""
    return f"as_key({text})" if type_ is Type.DOUBLE else text


def key_of(elements: Elements, schema: Schema, keys: Sequence[str]) -> Shape:
    """The key of these columns."""
    return bare([key_part(elements.columns[key], schema.column(key).type) for key in keys])


def joined(one: Join, left: Elements, right: Elements, output: Mapping[str, str]) -> Pairing:
    """The join of both sides, whose keys are variables. output: a variable for each column that is made.

    A column that is in the key is not in the value, too. Nulls of one side suffice to be left out: of that which has a
    pass anyway, if either will do.
    """
    variables = _read(one, output)
    key, same = _unpacked_key(one, variables)
    columns = {name: same.get(variable, variable) for name, variable in _columns(one, variables).items()}
    lefts, rights = (_beside_key(one, side, variables) for side in (Side.LEFT, Side.RIGHT))
    left_made = (key_of(left, one.left.schema, one.left_keys), _values(left, lefts))
    right_made = (key_of(right, one.right.schema, one.right_keys), _values(right, rights))
    if one.kind in (JoinKind.INNER, JoinKind.SEMI) and left.needs_pass(left_made):
        left = left.where(_there(left, one.left_keys))
    else:
        right = right.where(_there(right, one.right_keys))
    values = _unpacked(Side.LEFT, lefts, variables), _unpacked(Side.RIGHT, rights, variables)
    return Pairing(left, right, left_made, right_made, _CALLS[one.kind], _pairs(one.kind, key, values, columns))


def crossed(one: CrossJoin, left: Elements, right: Elements, output: Mapping[str, str]) -> Pairing:
    """All pairs of both sides."""
    variables = _read(one, output)
    lefts, rights = ([name for side, name in variables if side is wanted] for wanted in (Side.LEFT, Side.RIGHT))
    element = _unpacked(Side.LEFT, lefts, variables), _unpacked(Side.RIGHT, rights, variables)
    return Pairing(
        left,
        right,
        _values(left, lefts),
        _values(right, rights),
        "{}.cartesian({})",
        Elements("", element, _columns(one, variables)),
    )


def _read(one: Join | CrossJoin, output: Mapping[str, str]) -> dict[_Column, str]:
    """A variable for each column of a side that is read."""
    found: dict[_Column, str] = {}
    for column in one.columns:
        found.setdefault((column.side, column.column), output[column.name])
    return found


def _columns(one: Join | CrossJoin, variables: Mapping[_Column, str]) -> dict[str, str]:
    return {column.name: variables[column.side, column.column] for column in one.columns}


def _key_columns(one: Join) -> list[list[_Column]]:
    """Which columns each part of the key has the value of: without a partner the right ones are null."""
    if one.kind is JoinKind.LEFT:
        return [[(Side.LEFT, left)] for left, _ in one.on]
    return [[(Side.LEFT, left), (Side.RIGHT, right)] for left, right in one.on]


def _unpacked_key(one: Join, variables: Mapping[_Column, str]) -> tuple[Shape, dict[str, str]]:
    """What unpacks the key; {variable that has no place there: the one that has its value}."""
    parts: list[Shape] = []
    same: dict[str, str] = {}
    for columns in _key_columns(one):
        part = NOTHING
        for column in columns:
            variable = variables.get(column)
            if variable is None or variable in same or variable in parts:
                continue
            if part == NOTHING:
                part = variable
            else:
                same[variable] = part
        parts.append(part)
    return bare(parts), same


def _beside_key(one: Join, side: Side, variables: Mapping[_Column, str]) -> list[str]:
    """The columns of the side that are read and are not in the key."""
    in_key = {column for columns in _key_columns(one) for column in columns}
    return [name for found, name in variables if found is side and (found, name) not in in_key]


def _values(elements: Elements, columns: Iterable[str]) -> Shape:
    return bare([elements.columns[name] for name in columns])


def _unpacked(side: Side, columns: Sequence[str], variables: Mapping[_Column, str]) -> Shape:
    """What unpacks `_values`."""
    return bare([variables[side, name] for name in columns]) if columns else NOTHING


def _pairs(kind: JoinKind, key: Shape, values: tuple[Shape, Shape], columns: Mapping[str, str]) -> Elements:
    """The elements as Spark makes them. What a left join does not find is None, in the place of a tuple, too."""
    left, right = values
    if kind is JoinKind.ANTI:
        return Elements("", (key, left), columns)
    if kind is not JoinKind.LEFT or isinstance(right, str):
        return Elements("", (key, (left, right)), columns)
    missing = shape_text(("None",) * len(right))
    bound = frozenset(one for one in right if isinstance(one, str))
    step = f"for {shape_text(right)} in [{PARTNER} or {missing}]"
    return Elements("", (key, (left, PARTNER)), columns, (step,), bound)


def _there(elements: Elements, keys: Iterable[str]) -> str:
    """That no part of the key is null."""
    return " and ".join(f"{elements.columns[key]} is not None" for key in dict.fromkeys(keys))
