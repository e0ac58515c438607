"""Loops that cannot end, as far as that shows: the condition tests what does not change, or what moves away."""

from __future__ import annotations

from collections.abc import Mapping

from frontends.workflow.errors import EndlessLoop
from frontends.workflow.ir.counters import added, direction
from frontends.workflow.ir.dag import Arithmetic, Carried, LoopCondition, Operator


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
    by, wanted = added(step), direction(condition.test, step.column)
    if by is not None and wanted is not None and by * wanted <= 0:
        moved = "greater" if wanted > 0 else "less"
        raise EndlessLoop(f"the WHILE goes on while {condition.test}, and its body makes {step.column} never {moved}")
