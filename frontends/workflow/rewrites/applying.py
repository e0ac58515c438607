"""How a rule changes a DAG, one operator and what is below it at a time, until nothing is left to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from frontends.workflow.errors import TooLarge
from frontends.workflow.ir.dag import Dag, Operator, While, free_name
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import NAME_CHARS_MAX, Schema

STEPS_PER_OPERATOR_MAX = 20
"""Steps of a rule on a DAG, for each of its operators: far more than any rule makes."""
SUFFIX_CHARS_MAX = 40
"""Characters that a fresh name may have after the name that it is made from."""


@dataclass(frozen=True)
class Change:
    """Operators in the place of one of the DAG, of which the last has its name and columns; and those to leave out."""

    operators: tuple[Operator, ...]
    without: frozenset[str] = frozenset()


class Surroundings:
    """A DAG, for a rule that looks at one of its operators."""

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        self._readers: dict[str, int] = {}
        for operator in dag.operators:
            for name in operator.inputs:
                self._readers[name] = self._readers.get(name, 0) + 1
        self._fresh: list[str] = []

    def private(self, name: str) -> Operator | None:
        """The operator that makes the relation, if that is read once and no result: None if anybody else sees it."""
        if self._readers.get(name) != 1 or name in self.dag.results:
            return None
        return self.dag.operator(name)

    def fresh(self, stem: str, why: str) -> str:
        """A name that no relation has, made from another and a word that says why there is one more."""
        name = free_name(f"{stem[: NAME_CHARS_MAX - SUFFIX_CHARS_MAX]}_{why}", (*self.dag.names, *self._fresh))
        self._fresh.append(name)
        return name


Step = Callable[[Surroundings, Operator], Change | None]
"""What a rule makes of an operator; None for nothing. Pure."""


def rewritten(dag: Dag, step: Step) -> Dag:
    """The DAG when the rule has nothing to do any more, in the bodies of loops, too.

    A change that would make something larger than its maximum is not made.
    """
    dag = in_bodies(dag, lambda body: rewritten(body, step))
    left_alone: set[str] = set()
    for _ in range(STEPS_PER_OPERATOR_MAX * len(dag)):
        changed = _changed(dag, step, left_alone)
        if changed is None:
            break
        dag = changed
    return dag


def in_bodies(dag: Dag, rule: Callable[[Dag], Dag]) -> Dag:
    """The DAG with the rule applied to the bodies of its loops."""
    changed = {loop.name: dataclasses.replace(loop, body=rule(loop.body)) for loop in dag.of_type(While)}
    if not changed:
        return dag
    return Dag(tuple(changed.get(operator.name, operator) for operator in dag.operators), dag.results)


def _changed(dag: Dag, step: Step, left_alone: set[str]) -> Dag | None:
    surroundings = Surroundings(dag)
    for operator in dag.operators:
        if operator.name in left_alone:
            continue
        try:
            change = step(surroundings, operator)
            if change is not None:
                return _applied(dag, operator, change)
        except TooLarge:
            left_alone.add(operator.name)
    return None


def _applied(dag: Dag, changed: Operator, change: Change) -> Dag:
    operators: list[Operator] = []
    for operator in dag.operators:
        if operator.name == changed.name:
            operators += change.operators
        elif operator.name not in change.without:
            operators.append(operator)
    return Dag(tuple(operators), dag.results)


def cannot_overflow(scalar: Scalar, schema: Schema) -> bool:
    """Whether the scalar is defined for every row: no INTEGER is computed, which may need more than 64 bits, no day.

    What is not may not be computed for rows that the workflow as it was written would not compute it for.
    """
    return not any(
        isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Neg | exp.Abs)
        and node.is_type(exp.DataType.Type.BIGINT, exp.DataType.Type.DATE)
        and not isinstance(node.this, exp.Literal)
        for node in scalar.typed_tree(schema).walk()
    )
