"""Which tasks of compiled stages are called as one: chains.

A chain is tasks of one partition in the order of the program, of which all but the first wait for tasks of the chain
alone. So it waits for what its first task waits for, and delays nothing but what waits for its tasks; a plain task on
the same partition ends it. As it is of one partition, CPU time, flags and moves are as fine as with plain tasks.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from frontends.dataflow.blocks import Graph


@dataclass(slots=True)
class Chained:
    """A graph with chains in place of tasks; numbers of tasks are the graph's.

    Tasks of a chain after the first wait for nothing and are not ready: they are never called by themselves.
    """

    needs: list[int]
    after: list[tuple[int, ...]]
    ready: list[int]
    chains: dict[int, list[int]] = field(default_factory=dict)
    """The tasks of each, by the first."""


def chained(graph: Graph, fit: Container[int]) -> Chained:
    """The graph with chains of those tasks that are `fit`."""
    made = Chained(graph.needs[:], graph.after[:], graph.ready())
    first_of: dict[int, int] = {}
    open_chains: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    """The fit tasks that a task waits for."""
    for task, (_, _, slot, _) in enumerate(graph.tasks):
        if task not in fit:
            open_chains.pop(slot, None)
            continue
        for follower in graph.after[task]:
            before.setdefault(follower, []).append(task)
        chain = open_chains.get(slot)
        waits = before.get(task, [])
        if (
            chain is not None
            and len(waits) == graph.needs[task]
            and all(first_of[other] == chain[0] for other in waits)
        ):
            chain.append(task)
        else:
            chain = open_chains[slot] = made.chains[task] = [task]
        first_of[task] = chain[0]
    for first, chain in made.chains.items():
        inner = chain[1:]
        for task in inner:
            made.needs[task] = 0
        made.after[first] = tuple(
            follower for task in chain for follower in graph.after[task] if first_of.get(follower) != first
        )
    within = first_of.keys() - made.chains.keys()
    made.ready = [task for task in made.ready if task not in within]
    return made
