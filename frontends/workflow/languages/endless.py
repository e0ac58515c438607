"""Loops that cannot end, as far as that shows: the condition tests what does not change, or what moves away."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from sqlglot import exp

from frontends.workflow.errors import EndlessLoop
from frontends.workflow.ir.dag import Arithmetic, Carried, LoopCondition, Operator

_UPWARDS = (exp.LT, exp.LTE)
"""Comparisons of a column with a constant that stop holding when the column grows."""
_DOWNWARDS = (exp.GT, exp.GTE)
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE,
}  # fmt: skip


def check_ends(operators: Mapping[str, Operator], carried: tuple[Carried, ...], condition: LoopCondition) -> None:
    """`EndlessLoop` if the condition, once it holds, holds for ever.

    operators: of the body, by name. Whether a loop ends cannot be told in general; `iterations_max` ends the others.
    """
    following = next((one.following for one in carried if one.input == condition.relation), None)
    if following is None:
        return
    if following == condition.relation:
        raise EndlessLoop(f"the WHILE tests {condition.relation}, which its body leaves as it is")
    step = operators[following]
    if not isinstance(step, Arithmetic) or step.source.name != condition.relation:
        return
    if step.column not in condition.test.columns:
        raise EndlessLoop(f"the WHILE goes on while {condition.test}, and its body changes {step.column} alone")
    added, wanted = _added(step), _direction(condition.test.tree(), step.column)
    if added is not None and wanted is not None and added * wanted <= 0:
        moved = "greater" if wanted > 0 else "less"
        raise EndlessLoop(f"the WHILE goes on while {condition.test}, and its body makes {step.column} never {moved}")


def _added(step: Arithmetic) -> Fraction | None:
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


def _direction(test: exp.Expr, column: str) -> int | None:
    """1 if the column must grow for the test to fail, -1 if it must shrink, None if that does not show."""
    kind, left, right = type(test), test.args.get("this"), test.args.get("expression")
    if isinstance(right, exp.Column):
        kind, left, right = _MIRRORED.get(kind, kind), right, left
    if not isinstance(left, exp.Column) or left.name != column or right is None or _constant(right) is None:
        return None
    if issubclass(kind, _UPWARDS):
        return 1
    return -1 if issubclass(kind, _DOWNWARDS) else None


def _constant(node: object) -> Fraction | None:
    if isinstance(node, exp.Paren):
        return _constant(node.this)
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal) and not node.args["is_string"]:
        return Fraction(node.name)
    return None
