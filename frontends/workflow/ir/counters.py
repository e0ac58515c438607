"""Counters of loops: a column that each iteration moves by a constant, tested against another constant."""

from __future__ import annotations

import math
from fractions import Fraction

from sqlglot import exp

from frontends.workflow.ir.dag import Arithmetic, Dag, LoopCondition, Values, While
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Type

UPWARDS = (exp.LT, exp.LTE)
"""Comparisons of a column with a constant that stop holding when the column grows."""
DOWNWARDS = (exp.GT, exp.GTE)
DOUBLE_WHOLE_MAX = 2**53
"""Up to this a DOUBLE is exact for each whole number."""
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE,
}  # fmt: skip


def added(step: Arithmetic) -> Fraction | None:
    """The constant that the step adds to its column, None if it does something else."""
    tree = step.value.tree()
    if not isinstance(tree, exp.Add | exp.Sub):
        return Fraction(0) if step.value.as_column == step.column else None
    left, right = tree.this, tree.args["expression"]
    if isinstance(tree, exp.Add) and isinstance(right, exp.Column):
        left, right = right, left
    constant = _constant(right)
    if not isinstance(left, exp.Column) or left.name != step.column or constant is None:
        return None
    return -constant if isinstance(tree, exp.Sub) else constant


def compared(test: Scalar, column: str) -> tuple[type[exp.Expr], Fraction] | None:
    """How the test compares the column, as if it stood on the left, and with which constant; None if it does not."""
    tree = test.tree()
    kind, left, right = type(tree), tree.args.get("this"), tree.args.get("expression")
    if isinstance(right, exp.Column):
        kind, left, right = _MIRRORED.get(kind, kind), right, left
    constant = _constant(right)
    if not isinstance(left, exp.Column) or left.name != column or constant is None:
        return None
    return kind, constant


def direction(test: Scalar, column: str) -> int | None:
    """1 if the column must grow for the test to fail, -1 if it must shrink, None if that does not show."""
    found = compared(test, column)
    if found is None:
        return None
    if issubclass(found[0], UPWARDS):
        return 1
    return -1 if issubclass(found[0], DOWNWARDS) else None


def iterations_counted(dag: Dag, loop: While) -> int | None:
    """How many iterations the loop makes, at most `iterations_max`; None if it has a condition that is no counter's.

    A counter is one row of constants (`VALUES`), which is carried.
    """
    if loop.condition is None:
        return loop.iterations_max
    count = _counted(dag, loop, loop.condition)
    return None if count is None else min(loop.iterations_max, count)


def iterations_certain(dag: Dag, loop: While) -> int | None:
    """How many iterations the loop makes by its counter, at least one, without exceeding its most; None if that is not
    certain, as if a DOUBLE counts: that is rounded."""
    if loop.condition is None:
        return None
    step = _step(loop, loop.condition)
    count = _counted(dag, loop, loop.condition)
    if step is None or count is None or not 1 <= count <= loop.iterations_max:
        return None
    test = compared(loop.condition.test, step.column)
    is_exact = test is not None and abs(test[1]) <= DOUBLE_WHOLE_MAX
    return count if is_exact and step.schema.column(step.column).type is Type.INTEGER else None


def _step(loop: While, condition: LoopCondition) -> Arithmetic | None:
    """What makes the next value of the relation that is tested, if that is one step."""
    following = next((one.following for one in loop.carried if one.input == condition.relation), None)
    step = loop.body.operator(following) if following is not None else None
    return step if isinstance(step, Arithmetic) and step.source.name == condition.relation else None


def _counted(dag: Dag, loop: While, condition: LoopCondition) -> int | None:
    """How many iterations the condition lets the loop make."""
    step = _step(loop, condition)
    if step is None:
        return None
    by, test = added(step), compared(condition.test, step.column)
    start = _first(dag, loop, condition.relation, step.column)
    if start is None or by is None or test is None or by * (direction(condition.test, step.column) or 0) <= 0:
        return None
    kind, limit = test
    room = (limit - start) / by
    count = math.floor(room) + 1 if kind in (exp.LTE, exp.GTE) else math.ceil(room)
    return max(0 if condition.tested_first else 1, count)


def _first(dag: Dag, loop: While, relation: str, column: str) -> Fraction | None:
    """The column of the counter's only row before the loop."""
    first = dag.operator(loop.first_value(relation).name)
    if not isinstance(first, Values) or len(first.rows) != 1:
        return None
    return _constant(first.rows[0][first.schema.names.index(column)].tree())


def _constant(node: object) -> Fraction | None:
    if isinstance(node, exp.Paren):
        return _constant(node.this)
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal) and not node.args["is_string"]:
        return Fraction(node.name)
    return None
