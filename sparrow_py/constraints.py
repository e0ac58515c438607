"""Job-level constraints (§3.3): predicates over a node's attributes, all of which must hold.

As text: `zone == eu`, `zone in eu, us`, `gpu exists`, `memory_gb >= 16`, `kernel <= 6.1`. The
attribute `node` is the node's id. Attributes are text; `>=` and `<=` read both sides as numbers,
and do not hold for an attribute that is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from sparrow_py.errors import InvalidRequest

EQUALS, IN, EXISTS, AT_LEAST, AT_MOST = "==", "in", "exists", ">=", "<="
OPERATORS = (EQUALS, IN, EXISTS, AT_LEAST, AT_MOST)
CONSTRAINTS_MAX = 64
VALUES_MAX = 1024
TEXT_CHARS_MAX = 65536
FORMS = "'NAME == VALUE', 'NAME in A, B', 'NAME exists', 'NAME >= NUMBER' or 'NAME <= NUMBER'"


class Constraint(msgspec.Struct, array_like=True, frozen=True):
    """One predicate; `operator` is one of `OPERATORS`."""

    attribute: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(part for part in (self.attribute, self.operator, ", ".join(self.values)) if part)


def is_unicode(text: object) -> bool:
    """Whether it is text that can be sent: with lone surrogates it has no bytes in UTF-8."""
    return isinstance(text, str) and (text.isascii() or text.encode(errors="replace").decode() == text)


def parse(field: str, text: object) -> Constraint:
    """The constraint that the text states; `InvalidRequest` naming `field` if it states none."""
    if not isinstance(text, str) or len(text) > TEXT_CHARS_MAX or not is_unicode(text):
        raise InvalidRequest(field, text, FORMS)
    attribute, _, rest = text.strip().partition(" ")
    operator, _, value = rest.strip().partition(" ")
    value = value.strip()
    values = tuple(part.strip() for part in value.split(",")) if operator == IN else (value,) if value else ()
    constraint = Constraint(attribute, operator, values)
    check(field, constraint)
    return constraint


def check(field: str, constraint: Constraint) -> None:
    """Raise `InvalidRequest` unless the constraint is one that can be evaluated."""
    operator, values = constraint.operator, constraint.values
    expected = {IN: len(values), EXISTS: 0}.get(operator, 1)
    if (
        not constraint.attribute
        or operator not in OPERATORS
        or len(values) != expected
        or len(values) > VALUES_MAX
        or (operator == IN and not values)
        or not all(values)
    ):
        raise InvalidRequest(field, str(constraint), FORMS)
    if operator in (AT_LEAST, AT_MOST) and math.isnan(_number(values[0])):
        raise InvalidRequest(field, str(constraint), f"a number after {operator}")


def holds(constraint: Constraint, attributes: Mapping[str, str]) -> bool:
    """Whether a node with these attributes satisfies it."""
    value = attributes.get(constraint.attribute)
    if value is None:
        return False
    operator = constraint.operator
    if operator == EXISTS:
        return True
    if operator in (EQUALS, IN):
        return value in constraint.values
    number, bound = _number(value), _number(constraint.values[0])
    return number >= bound if operator == AT_LEAST else number <= bound


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
