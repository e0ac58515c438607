"""The network that a DIMACS file describes, as one line after the other changes it.

Nodes have the file's numbers, from 1. Numbers of arcs do not change either: an arc that is removed keeps its place,
with capacity 0, so that a solver may start from the flow of the iteration before. One that capacity 0 removed may be
made anew there; one that went with its node is never found again. Errors name the field; the reader adds the line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.flow import check, limits
from scheduler.flow.problem import Integers, Problem, ProblemError

ARC_FIELDS = ("TAIL", "HEAD", "LOW", "CAP", "COST")
OTHER, TASK, MACHINE, SINK = range(4)
"""Types of nodes."""


class LineError(ProblemError):
    """A `ProblemError` whose line is known."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class DimacsNetwork:
    """See the module's docstring. An iteration is what one problem is made of: lines up to `end_iteration`."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes  # how many there are, with those that were removed; the arrays have room for more
        self._alive = np.zeros(max(nodes, 1), np.bool_)
        self._alive[:nodes] = True
        self._supply = np.zeros(max(nodes, 1), np.int64)
        self._sink: int | None = None  # index of the node that takes what others send, see `_balance`
        self._stated: dict[int, int] = {}  # of this iteration: each node with a supply of its own, and the line
        self._removed: set[int] = set()  # of this iteration: nodes whose arcs are still to be removed
        self._arcs = np.zeros((5, 0), np.int64)
        self._lines = np.zeros(0, np.int64)
        self._gone = np.zeros(0, np.bool_)  # arcs that went with a node
        self._new: list[tuple[Integers, Integers]] = []  # of this iteration: columns of arcs, and their lines
        self._new_count = 0
        self._finder: _Finder | None = None
        self._iterations = 0

    @property
    def arcs(self) -> int:
        """How many there are, with those that were removed."""
        return self._arcs.shape[1] + self._new_count

    # ---- nodes -------------------------------------------------------------------------------

    def state_supply(self, node: int, supply: int, kind: int, line: int) -> None:
        """A node's supply, first or changed; a node that there is not, or not any more, comes to be."""
        index = node - 1
        if index in self._stated and not self._iterations:
            raise ProblemError(f"ID is {node}, whose supply line {self._stated[index]} has stated")
        if not self._iterations:
            self._check_node("ID", node)
        elif not 1 <= node <= limits.NODES_MAX:
            raise ProblemError(f"ID is {node:,}; {limits.allowed(1, limits.NODES_MAX)}")
        self._revive(index)
        self._supply[index] = supply
        self._stated[index] = line
        if kind == SINK:
            self._sink = index

    def unused_node(self) -> int:
        """The lowest number that no node has."""
        free = np.flatnonzero(~self._alive[: self._nodes])
        node = int(free[0]) + 1 if len(free) else self._nodes + 1
        if node > limits.NODES_MAX:
            raise ProblemError(f"there are {self._nodes:,} nodes; {limits.allowed(0, limits.NODES_MAX)}")
        return node

    def remove_node(self, node: int) -> None:
        """The node goes, with its supply and its arcs."""
        self._check_node("ID", node)
        self._alive[node - 1] = False
        self._supply[node - 1] = 0
        self._stated.pop(node - 1, None)
        self._removed.add(node - 1)
        if self._sink == node - 1:
            self._sink = None

    def _revive(self, index: int) -> None:
        if index in self._removed:
            self._remove_arcs()
        if index >= len(self._alive):
            more = max(index + 1, 2 * len(self._alive)) - len(self._alive)
            self._alive = np.append(self._alive, np.zeros(more, np.bool_))
            self._supply = np.append(self._supply, np.zeros(more, np.int64))
        self._nodes = max(self._nodes, index + 1)
        self._alive[index] = True

    def _check_node(self, field: str, node: int) -> None:
        if not (1 <= node <= self._nodes and self._alive[node - 1]):
            raise ProblemError(self._no_node(field, node))

    def _no_node(self, field: str, node: int) -> str:
        if 1 <= node <= self._nodes:
            return f"{field} is {node:,}, which is no node any more or not yet"
        return f"{field} is {node:,}; {limits.allowed(1, self._nodes)}"

    # ---- arcs --------------------------------------------------------------------------------

    def add_arcs(self, columns: Integers, lines: Integers) -> None:
        """Arcs: the five fields of each, and its line."""
        self._check_arcs(columns, lines)
        self._new.append((columns, lines))
        self._new_count += len(lines)

    def change_arc(self, fields: Sequence[int], old_cost: int | None, line: int) -> None:
        """Bounds and cost of an arc between two nodes. With parallel arcs it takes the cost that the arc has."""
        self._check_arcs(np.array(fields, np.int64).reshape(5, 1), np.array([line]))
        self._remove_arcs()
        finder = self._found(fields[0], fields[1])
        candidates = [arc for arc in finder.candidates(fields[0], fields[1]) if not self._gone[arc]]
        arc = finder.one_of(candidates, self._arcs, old_cost)
        if arc is None:
            between = f"from {fields[0]} to {fields[1]}"
            if not candidates:
                raise ProblemError(f"there is no arc {between}")
            costs = sorted({int(self._arcs[4, candidate]) for candidate in candidates})
            shown = ", ".join(f"{cost:,}" for cost in costs[:COSTS_SHOWN_MAX]) + ", …" * (len(costs) > COSTS_SHOWN_MAX)
            stated = "is not stated" if old_cost is None else f"is {old_cost:,}"
            raise ProblemError(f"OLDCOST {stated}; of the arcs {between} the costs are {shown}")
        self._arcs[2:, arc] = fields[2:]
        self._lines[arc] = line
        finder.changed.add(arc)

    def _check_arcs(self, columns: Integers, lines: Integers) -> None:
        """`LineError` at the first arc that cannot be. How large costs may be is known when all nodes are there."""
        tail, head, low, capacity, _ = columns
        wrong = np.stack(
            [
                ~self._are_nodes(tail),
                ~self._are_nodes(head),
                tail == head,
                (capacity < 0) | (capacity > limits.CAPACITY_MAX),
                (low < 0) | (low > capacity),
            ]
        )
        faulty = wrong.any(axis=0)
        if faulty.any():
            arc = int(faulty.argmax())
            words = (
                self._no_node("TAIL", int(tail[arc])),
                self._no_node("HEAD", int(head[arc])),
                f"HEAD is {head[arc]:,}, its TAIL; it must be another node",
                f"CAP is {capacity[arc]:,}; {limits.allowed(0, limits.CAPACITY_MAX)}",
                f"LOW is {low[arc]:,}; {limits.allowed(0, int(capacity[arc]))}",
            )
            raise LineError(int(lines[arc]), words[int(wrong[:, arc].argmax())])
        if self.arcs + len(lines) > limits.ARCS_MAX:
            raise LineError(int(lines[-1]), f"there are more than {limits.ARCS_MAX:,} arcs")

    def _are_nodes(self, ends: Integers) -> NDArray[np.bool_]:
        known = (ends >= 1) & (ends <= self._nodes)
        return known & self._alive[np.where(known, ends - 1, 0)]

    def _take_in(self) -> None:
        """Put new arcs beside the others."""
        if self._new:
            first = self._arcs.shape[1]
            self._arcs = np.concatenate([self._arcs, *(columns for columns, _ in self._new)], axis=1)
            self._lines = np.concatenate([self._lines, *(lines for _, lines in self._new)])
            self._gone = np.append(self._gone, np.zeros(self._new_count, np.bool_))
            self._new, self._new_count = [], 0
            if self._finder is not None:
                self._finder.add(self._arcs, first)

    def _found(self, tail: int, head: int) -> _Finder:
        self._take_in()
        if self._finder is None:
            self._finder = _Finder(self._arcs)
        return self._finder

    def _remove_arcs(self) -> None:
        """Those of nodes that were removed."""
        if self._removed:
            self._take_in()
            gone = np.zeros(len(self._alive), np.bool_)
            gone[list(self._removed)] = True
            self._removed.clear()
            arcs = np.flatnonzero(gone[self._arcs[0] - 1] | gone[self._arcs[1] - 1])
            self._arcs[2:4, arcs] = 0
            self._gone[arcs] = True

    # ---- the problem -------------------------------------------------------------------------

    def end_iteration(self, line: int) -> Problem:
        """The problem that there is now; `LineError` if it is none."""
        self._remove_arcs()
        self._take_in()
        self._balance()
        self._iterations += 1
        self._stated.clear()
        if self._finder is not None:
            self._finder.changed.clear()
        tail, head, low, capacity, cost = self._arcs.copy()
        most = limits.cost_max(self._nodes)
        cost[(capacity == 0) & (np.abs(cost) > most)] = 0  # Nobody pays it.
        problem = Problem(tail - 1, head - 1, cost, capacity, low, self._supply[: self._nodes].copy())
        dear = np.flatnonzero(np.abs(cost) > most)
        if len(dear):
            arc = int(dear[0])
            raise LineError(
                int(self._lines[arc]),
                f"COST is {cost[arc]:,}; with {self._nodes:,} nodes {limits.allowed(-most, most)}",
            )
        try:
            limits.check_balance(problem)
        except ProblemError as error:
            raise LineError(line, str(error)) from None
        if self._sink is not None and abs(int(problem.supply[self._sink])) > limits.CAPACITY_MAX:
            words = limits.allowed(-limits.CAPACITY_MAX, limits.CAPACITY_MAX)
            raise LineError(line, f"the supply of node {self._sink + 1} is {problem.supply[self._sink]:,}; {words}")
        cycle = check.negative_cycle(problem)
        if cycle:
            raise LineError(int(self._lines[cycle].max()), check.words_of_cycle(problem, cycle, first_node=1))
        return problem

    def _balance(self) -> None:
        """After the first iteration the sink takes what the others send, unless a line has said what it takes."""
        if not self._iterations:
            sinks = np.flatnonzero(self._supply < 0)
            if self._sink is None and len(sinks) == 1:
                self._sink = int(sinks[0])
        elif self._sink is not None and self._sink not in self._stated:
            self._supply[self._sink] -= self._supply.sum()


COSTS_SHOWN_MAX = 5


class _Finder:
    """Finds arcs by their ends. Made when the first arc is changed, since most files change none."""

    def __init__(self, arcs: Integers) -> None:
        self._keys = _keys(arcs[0], arcs[1])
        self._order = np.argsort(self._keys, kind="stable")
        self._keys = self._keys[self._order]
        self._added: dict[int, list[int]] = {}
        self.changed: set[int] = set()  # of this iteration

    def add(self, arcs: Integers, first: int) -> None:
        """Know the arcs from `first` on, too."""
        for arc, key in enumerate(_keys(arcs[0, first:], arcs[1, first:]).tolist(), first):
            self._added.setdefault(key, []).append(arc)

    def candidates(self, tail: int, head: int) -> list[int]:
        """All arcs between the two."""
        key = tail * limits.NODES_MAX + head
        low, high = np.searchsorted(self._keys, [key, key + 1])
        return [*self._order[low:high].tolist(), *self._added.get(key, ())]

    def one_of(self, candidates: list[int], arcs: Integers, old_cost: int | None) -> int | None:
        """The one that is meant: one of capacity 0 only if there is no other; of several of one cost an arc that was
        not changed in this iteration, the first."""
        meant = candidates if old_cost is None else [arc for arc in candidates if arcs[4, arc] == old_cost]
        present = [arc for arc in meant if arcs[3, arc] > 0]
        if old_cost is None and len(present) > 1:
            return None
        return min(present or meant, key=lambda arc: (arc in self.changed, arc), default=None)


def _keys(tail: Integers, head: Integers) -> Integers:
    return tail * np.int64(limits.NODES_MAX) + head
