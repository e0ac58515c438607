"""Which sets of a workflow's operators can be jobs, and in which orders jobs can run.

A *unit* is what no job has a part of: an operator, or a loop with its results. Scans, constants and inputs are part of
each job that reads them, so they are units only where they are results. Sets of units are bits of an int: unit i is
2**i.

A *downset* has with each unit all that the unit's relations are made from: it is what may be done when some jobs are. A
job is what lies between two downsets, one within the other, so it is convex: nothing that another job makes comes
between two of its operators. Each path from the empty downset to that of all units is an order of jobs in which each
finds what it reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from frontends.workflow.ir.dag import Dag, Leaf
from frontends.workflow.jobs.classes import JobClass, class_of

ORDERS_MAX = 8
"""Linear orders that are tried."""


def needed(dag: Dag) -> Dag:
    """The DAG without operators that make nothing for a result; loops keep all of their results."""
    live = {*dag.results, *dag.ancestors(dag.results)}
    live |= {name for one in live for name in dag.inseparable(one)}
    if len(live) == len(dag):
        return dag
    return Dag(tuple(operator for operator in dag.operators if operator.name in live), dag.results)


class JobGraph:
    """The units of a workflow. dag: what is needed of it; units: their operators' names, sources first."""

    def __init__(self, dag: Dag) -> None:
        dag = needed(dag)
        self.dag = dag
        groups: dict[frozenset[str], int] = {}
        members: list[list[str]] = []
        self.unit_of: dict[str, int] = {}
        for operator in dag.operators:
            if isinstance(operator, Leaf) and operator.name not in dag.results:
                continue
            unit = groups.setdefault(dag.inseparable(operator.name), len(groups))
            members.extend([] for _ in range(unit + 1 - len(members)))
            members[unit].append(operator.name)
            self.unit_of[operator.name] = unit
        self.units = tuple(map(tuple, members))
        self.all = (1 << len(self.units)) - 1
        self.before = tuple(self._read_by(names, unit) for unit, names in enumerate(self.units))
        """For each unit, those that make what it reads."""
        self.after = tuple(
            tuple(other for other, before in enumerate(self.before) if before >> unit & 1) for unit in range(len(self))
        )
        """For each unit, those that read what it makes."""

    def __len__(self) -> int:
        return len(self.units)

    def _read_by(self, names: Iterable[str], unit: int) -> int:
        mask = 0
        for name in names:
            for read in self.dag.operator(name).inputs:
                other = self.unit_of.get(read, unit)
                if other != unit and not isinstance(self.dag.operator(read), Leaf):
                    mask |= 1 << other
        return mask

    def names(self, units: int) -> frozenset[str]:
        """The operators of these units."""
        return frozenset(name for unit in bits(units) for name in self.units[unit])

    def in_order(self, units: int) -> tuple[str, ...]:
        """The operators of these units, each after those that it reads."""
        return tuple(name for unit in bits(units) for name in self.units[unit])

    def of_names(self, names: Iterable[str]) -> int:
        """The units of these operators."""
        mask = 0
        for name in names:
            mask |= 1 << self.unit_of[name]
        return mask

    def is_downset(self, units: int) -> bool:
        return all(self.before[unit] & ~units == 0 for unit in bits(units))

    def ready(self, done: int) -> Iterator[int]:
        """The units that are not done, and all that they read is."""
        return (unit for unit in bits(self.all & ~done) if self.before[unit] & ~done == 0)

    def downsets(self, most: int) -> list[int] | None:
        """All downsets, smaller ones first; None if there are more than `most`."""
        found = {0: None}
        layer = [0]
        while layer:
            following: dict[int, None] = {}
            for done in layer:
                for unit in self.ready(done):
                    following[done | 1 << unit] = None
                if len(found) + len(following) > most:  # A layer may have the square of the one before.
                    return None
            found |= following
            layer = list(following)
        return list(found)

    # ---- linear orders -----------------------------------------------------------------------

    def orders(self, most: int = ORDERS_MAX) -> list[tuple[int, ...]]:
        """Different orders of the units in which sources come first, at most so many.

        The first is depth-first (§3.5.2.2): after a unit comes one that reads it, if it can.
        """
        makers: Sequence[Callable[[], tuple[int, ...]]] = (
            lambda: self._depth_first(lambda unit: unit),
            lambda: self._depth_first(lambda unit: (self._shuffles(unit), unit)),
            lambda: self._depth_first(lambda unit: -unit),
            lambda: self._from_results(range(len(self))),
            self._breadth_first,
            lambda: self._from_results(range(len(self) - 1, -1, -1)),
            lambda: self._depth_first(lambda unit: (not self._shuffles(unit), unit)),
            lambda: tuple(range(len(self))),
        )
        found: dict[tuple[int, ...], None] = {}
        for make in makers:
            if len(found) >= most:
                break
            found[make()] = None
        return list(found)

    def _shuffles(self, unit: int) -> bool:
        return any(class_of(self.dag.operator(name)) is not JobClass.MAP_ONLY for name in self.units[unit])

    def _depth_first(self, key: Callable[[int], int | tuple[int, ...]]) -> tuple[int, ...]:
        """key: of several units that may come next, the one with the least comes first."""
        order: list[int] = []
        done = 0
        stack = sorted(self.ready(0), key=key, reverse=True)
        while stack:
            unit = stack.pop()
            order.append(unit)
            done |= 1 << unit
            free = (other for other in self.after[unit] if self.before[other] & ~done == 0)
            stack += sorted(free, key=key, reverse=True)
        return tuple(order)

    def _breadth_first(self) -> tuple[int, ...]:
        order: list[int] = []
        done = 0
        queue = deque(self.ready(0))
        while queue:
            unit = queue.popleft()
            order.append(unit)
            done |= 1 << unit
            queue += (other for other in self.after[unit] if self.before[other] & ~done == 0)
        return tuple(order)

    def _from_results(self, starts: Iterable[int]) -> tuple[int, ...]:
        """Each result as late as it can be made, what it needs just before it."""
        order: dict[int, None] = {}
        for start in starts:
            if self.after[start]:
                continue
            stack = [(start, False)]
            while stack:
                unit, expanded = stack.pop()
                if unit in order:
                    continue
                if expanded:
                    order[unit] = None
                else:
                    stack.append((unit, True))
                    stack += ((other, False) for other in bits(self.before[unit]) if other not in order)
        return tuple(order)


def bits(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
