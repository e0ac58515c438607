"""The rewrite of loops whose number of iterations is known before they run."""

from __future__ import annotations

import dataclasses

from frontends.workflow.ir.counters import iterations_certain
from frontends.workflow.ir.dag import Dag, LoopResult, Operator, While
from frontends.workflow.rewrites.applying import Change, Surroundings


def loops_counted(around: Surroundings, operator: Operator) -> Change | None:
    """A loop whose condition only counts iterations makes so many of them, and tests nothing.

    A counter that nothing else reads is not carried any more: engines need not compute, keep and test it in each.
    """
    if not isinstance(operator, While) or operator.condition is None:
        return None
    count = iterations_certain(around.dag, operator)
    if count is None:
        return None
    counter = operator.condition.relation
    loop = dataclasses.replace(operator, condition=None, iterations_max=count)
    if _is_read(around.dag, operator, counter):
        return Change((loop,))
    first = around.private(operator.first_value(counter).name)
    return Change((_without(loop, counter),), frozenset() if first is None else frozenset((first.name,)))


def _is_read(dag: Dag, loop: While, counter: str) -> bool:
    """Whether anything but the next value and the condition reads the counter, or the loop changes nothing else."""
    following = next(one.following for one in loop.carried if one.input == counter)
    left = any(isinstance(one, LoopResult) and one.carried == counter for one in dag.consumers(loop.name))
    others = [one for one in loop.carried if one.input != counter]
    inside = len(loop.body.consumers(counter)) > 1 or bool(loop.body.consumers(following))
    handed_on = any(one.following in (counter, following) for one in others)
    nothing_else = not others or not set(loop.body.results) - {counter, following}
    return left or inside or handed_on or nothing_else


def _without(loop: While, counter: str) -> While:
    """The loop without its counter."""
    following = next(one.following for one in loop.carried if one.input == counter)
    body = loop.body
    return dataclasses.replace(
        loop,
        read=tuple(one for one, name in zip(loop.read, body.input_names, strict=True) if name != counter),
        body=Dag(
            tuple(one for one in body.operators if one.name not in (counter, following)),
            tuple(name for name in body.results if name not in (counter, following)),
        ),
        carried=tuple(one for one in loop.carried if one.input != counter),
    )
