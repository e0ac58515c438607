"""Files of min-cost-flow problems: DIMACS, and the extension in which a file goes on with changes.

The format is that of the first DIMACS implementation challenge (1991). The extension is the one in which Firmament
sends its flow network to Flowlessly (§5.2.7 of paper 004: a solver that keeps the network and receives changes); what
its lines are was taken from these two programs' sources (camsas/firmament: `dimacs_add_node`, `dimacs_change_arc`,
`dimacs_new_arc`, `dimacs_remove_node`, `dimacs_exporter`; ICGog/Flowlessly: `graphs/graph`). A line is a letter and
fields, whole numbers with spaces between:

    file      = graph { EOI changes } [ EOI ] [ EOS ]
    graph     = p { n | a }                 as many lines `a` as p says
    changes   = { n | a | x | r | d }

    c TEXT                                  is passed over, unless it is one of
    c EOI                                   ends an iteration: what there is now is a problem
    c EOS                                   ends the file; nothing after it is read
    p min NODES ARCS                        the first line but for comments
    n ID SUPPLY [TYPE]                      node 1 … NODES; those without a line have supply 0
                                            as a change: a new node, or the new supply of one that there is
    a TAIL HEAD LOW CAP COST [TYPE]         an arc that carries LOW … CAP
    x TAIL HEAD LOW CAP COST [TYPE [OLDCOST]]   new bounds and cost of an arc; CAP 0 removes it
    r ID                                    removes a node and its arcs
    d SUPPLY POTENTIAL ARCS [TYPE]          a new node with the lowest free number; its ARCS follow in lines `a`,
                                            in which 0 stands for that number; POTENTIAL does not count

TYPE of a node is 0, or 1 of a task, 2 of a machine, 3 of the sink; TYPE of an arc is 0, or 1 if its task runs there.
Neither matters here, but for the sink: it is the node of type 3, or else the only one with a negative supply in the
graph. In an iteration of changes that does not state its supply it takes what all others send together (Firmament does
not state it). In any other case supplies must add up to 0.

OLDCOST tells parallel arcs apart: `x` changes the arc that has this cost, of several first those that no line `x` of
this iteration has changed, then the first. Without OLDCOST there must be one arc between the two nodes. Arcs of
capacity 0 are removed, and do not count; but where no arc is meant otherwise, `x` makes one of them anew: with OLDCOST
one of the cost that its last line stated. Arcs that were removed with a node cannot come again.

Nodes are numbered from 1 in files and from 0 in problems. An arc keeps its number from iteration to iteration.

A solution is written as in DIMACS: `s COST`, then `f TAIL HEAD FLOW` for each arc that carries something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

import numpy as np

from scheduler.flow import limits
from scheduler.flow.dimacs_network import ARC_FIELDS, SINK, DimacsNetwork, LineError
from scheduler.flow.problem import Integers, Problem, ProblemError, Solution

LINE_BYTES_MAX = 1 << 16
CHUNK_LINES = 1 << 14
"""Lines of arcs that are read together."""
FIELD_MAX = 10**18 - 1
_DIGITS_MAX = 18
_NUMBER = re.compile(rb"[+-]?[0-9]+\Z")
_LETTERS = b"cpnaxrd"

_TYPE_RANGE = (0, SINK)
_ARC_TYPE_RANGE = (0, (1 << 31) - 1)
_SUPPLY_RANGE = (-limits.CAPACITY_MAX, limits.CAPACITY_MAX)
_ANY = (-FIELD_MAX, FIELD_MAX)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One problem of a file."""

    problem: Problem
    more: bool
    """It ended with `c EOI`, not with the file: others may follow."""


def read(stream: BinaryIO) -> Iterator[Iteration]:
    """The problems of a file, each as soon as its last line has come; `ProblemError` names the line that is wrong."""
    reader = _Reader()
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise LineError(number, f"it has more than {LINE_BYTES_MAX:,} bytes")
        problem = reader.take(line, number)
        if problem is not None:
            yield Iteration(problem, True)
        if reader.over:
            return
    last = reader.end(number)
    if last is not None:
        yield Iteration(last, False)


def read_problem(data: bytes) -> Problem:
    """The first problem of a file."""
    return next(read(BytesIO(data))).problem


# ---- reading -------------------------------------------------------------------------------------------------------


class _Reader:
    """Takes lines. Of the arcs it gathers the lines, and reads many at a time."""

    def __init__(self) -> None:
        self.over = False
        self._network: DimacsNetwork | None = None
        self._arcs_due = 0  # as the line p says
        self._arc_lines: list[bytes] = []
        self._arcs_from = 0  # the first of these lines
        self._changes = False  # the graph is complete
        self._changed_at = 0  # the last line that has to be followed by c EOI
        self._new_node = 0  # the node of the last line d
        self._new_node_arcs = 0  # lines a that still have to follow it

    def take(self, line: bytes, number: int) -> Problem | None:
        """One line; the problem if it ends one."""
        if line.startswith((b"a ", b"a\t")) and self._network is not None and not self._new_node_arcs:
            if not self._arc_lines:
                self._arcs_from = number
            self._arc_lines.append(line)
            self._changed_at = number
            if len(self._arc_lines) >= CHUNK_LINES:
                self._take_arcs()
            return None
        self._take_arcs()
        fields = line.split()
        if not fields:
            return None
        letter = fields[0]
        if letter == b"c":
            return self._take_comment(fields, number)
        try:
            self._take_fields(letter, fields[1:], number)
        except LineError:
            raise
        except ProblemError as error:
            raise LineError(number, str(error)) from None
        self._changed_at = number
        return None

    def end(self, number: int) -> Problem | None:
        """The file ends after so many lines; the problem that this ends, if there is one."""
        self._take_arcs()
        if self._network is None:
            raise LineError(number + 1, "the file ends before the line `p min NODES ARCS`")
        if not self._changes:
            return self._end_iteration(number)
        if self._changed_at:
            raise LineError(number + 1, f"the file ends without `c EOI` after line {self._changed_at}")
        return None

    def _take_comment(self, fields: list[bytes], number: int) -> Problem | None:
        if fields[1:] == [b"EOI"]:
            return self._end_iteration(number)
        if fields[1:] == [b"EOS"]:
            if self._network is None:
                raise LineError(number, "c EOS comes before the line `p min NODES ARCS`")
            if self._changed_at:
                raise LineError(number, f"c EOS comes without `c EOI` after line {self._changed_at}")
            self.over = True
        return None

    def _end_iteration(self, number: int) -> Problem:
        if self._network is None:
            raise LineError(number, "c EOI comes before the line `p min NODES ARCS`")
        if not self._changes and self._network.arcs < self._arcs_due:
            raise LineError(
                number, f"the graph ends after {self._network.arcs:,} of the {self._arcs_due:,} arcs that p announces"
            )
        if self._new_node_arcs:
            raise LineError(number, self._missing_arcs())
        self._changes, self._changed_at = True, 0
        return self._network.end_iteration(number)

    def _take_fields(self, letter: bytes, fields: list[bytes], line: int) -> None:
        if len(letter) != 1 or letter not in _LETTERS:
            raise ProblemError(f"it begins with {_shown(letter)}; allowed are {', '.join(_LETTERS.decode())}")
        if letter == b"p":
            return self._take_p(fields)
        if self._network is None:
            raise ProblemError(f"`{letter.decode()}` comes before the line `p min NODES ARCS`")
        if self._new_node_arcs and letter != b"a":
            raise ProblemError(self._missing_arcs())
        if letter in b"xrd" and not self._changes:
            raise ProblemError(f"`{letter.decode()}` is a change; the graph before it must end with `c EOI`")
        if letter == b"n":
            self._take_n(self._network, fields, line)
        elif letter == b"a":
            self._take_a(self._network, fields, line)
        elif letter == b"x":
            self._take_x(self._network, fields, line)
        elif letter == b"r":
            self._network.remove_node(*_numbers(fields, ("ID",)))
        else:
            self._take_d(self._network, fields, line)

    def _take_p(self, fields: list[bytes]) -> None:
        if self._network is not None:
            raise ProblemError("there is a second line p")
        if fields[:1] != [b"min"]:
            raise ProblemError(f"the problem is {_shown(b''.join(fields[:1]))}; allowed is min")
        nodes, self._arcs_due = _numbers(
            fields[1:], ("NODES", "ARCS"), NODES=(0, limits.NODES_MAX), ARCS=(0, limits.ARCS_MAX)
        )
        self._network = DimacsNetwork(nodes)

    def _take_n(self, network: DimacsNetwork, fields: list[bytes], line: int) -> None:
        node, supply, kind = _numbers(
            fields, ("ID", "SUPPLY"), ("TYPE",), SUPPLY=_SUPPLY_RANGE, TYPE=_TYPE_RANGE, missing=(0,)
        )
        network.state_supply(node, supply, kind, line)

    def _take_x(self, network: DimacsNetwork, fields: list[bytes], line: int) -> None:
        values = _numbers(fields, ARC_FIELDS, ("TYPE", "OLDCOST"), TYPE=_ARC_TYPE_RANGE, missing=(0, 0))
        network.change_arc(values[:5], values[6] if len(fields) == len(values) else None, line)

    def _take_d(self, network: DimacsNetwork, fields: list[bytes], line: int) -> None:
        supply, _, arcs, kind = _numbers(
            fields,
            ("SUPPLY", "POTENTIAL", "ARCS"),
            ("TYPE",),
            SUPPLY=_SUPPLY_RANGE,
            ARCS=(0, limits.ARCS_MAX),
            TYPE=_TYPE_RANGE,
            missing=(0,),
        )
        self._new_node, self._new_node_arcs = network.unused_node(), arcs
        network.state_supply(self._new_node, supply, kind, line)

    def _take_a(self, network: DimacsNetwork, fields: list[bytes], line: int) -> None:
        values = _arc(fields)
        if self._new_node_arcs:
            if (values[0] == 0) == (values[1] == 0):
                raise ProblemError(f"TAIL is {values[0]}, HEAD is {values[1]}; one of them must be 0, for the new node")
            values = [self._new_node if value == 0 else value for value in values[:2]] + values[2:]
            self._new_node_arcs -= 1
        self._add_arcs(network, np.array(values, np.int64).reshape(5, 1), line)

    def _missing_arcs(self) -> str:
        verb = "is" if self._new_node_arcs == 1 else "are"
        return f"of the lines `a` that must follow `d` first {self._new_node_arcs:,} {verb} missing"

    def _take_arcs(self) -> None:
        """Read the lines that were gathered."""
        if not self._arc_lines:
            return
        assert self._network is not None
        columns = _plain_arcs(self._arc_lines)
        if columns is None:
            columns = np.array([_arc_of_line(line, self._arcs_from + at) for at, line in enumerate(self._arc_lines)]).T
        self._arc_lines = []
        self._add_arcs(self._network, columns, self._arcs_from)

    def _add_arcs(self, network: DimacsNetwork, columns: Integers, first_line: int) -> None:
        room = self._arcs_due - network.arcs
        lines = np.arange(first_line, first_line + columns.shape[1])
        if not self._changes and columns.shape[1] > room:
            raise LineError(int(lines[room]), f"there is an arc more than the {self._arcs_due:,} that p announces")
        network.add_arcs(columns, lines)


def _arc(fields: list[bytes]) -> list[int]:
    return _numbers(fields, ARC_FIELDS, ("TYPE",), TYPE=_ARC_TYPE_RANGE, missing=(0,))[:5]


def _arc_of_line(line: bytes, number: int) -> list[int]:
    try:
        return _arc(line.split()[1:])
    except ProblemError as error:
        raise LineError(number, str(error)) from None


def _numbers(
    fields: list[bytes],
    names: tuple[str, ...],
    optional: tuple[str, ...] = (),
    missing: tuple[int, ...] = (),
    **ranges: tuple[int, int],
) -> list[int]:
    """The fields of a line, `missing` in place of the optional ones that are not there."""
    if not len(names) <= len(fields) <= len(names) + len(optional):
        form = " ".join(names) + "".join(f" [{name}]" for name in optional)
        raise ProblemError(f"the fields are {len(fields)}; allowed are {form}")
    values = [
        _number(field, name, *ranges.get(name, _ANY)) for field, name in zip(fields, (*names, *optional), strict=False)
    ]
    return [*values, *missing[len(fields) - len(names) :]]


def _number(text: bytes, name: str, lowest: int, highest: int) -> int:
    if _NUMBER.match(text):
        digits = text.lstrip(b"+-").lstrip(b"0")
        value = int(text) if len(digits) <= _DIGITS_MAX else None
        if value is not None and lowest <= value <= highest:
            return value
    raise ProblemError(f"{name} is {_shown(text)}; allowed is a whole number from {lowest:,} to {highest:,}")


SHOWN_MAX = 30
"""Bytes of a field that an error shows."""


def _shown(text: bytes) -> str:
    """Foreign bytes, without those that a terminal would heed."""
    return repr(text[:SHOWN_MAX])[1:] + ("…" if len(text) > SHOWN_MAX else "")


def _plain_arcs(lines: list[bytes]) -> Integers | None:
    """The five fields of each arc, or None unless all lines are written the plain way: `a`, then five numbers, each
    after one space. All at once, since a large file has millions of them."""
    text = b"".join(lines)
    if text.translate(None, b"a 0123456789-\n") or text.count(b"a") != len(lines):
        return None
    signs = np.frombuffer(text, np.uint8)
    ends, gaps = np.flatnonzero(signs == _NEWLINE), np.flatnonzero(signs == _SPACE)
    if len(ends) != len(lines) or len(gaps) != 5 * len(lines):
        return None
    # Each line has five spaces before its end, each field 1 to 18 signs, and a minus comes first in its field.
    by_line = gaps.reshape(-1, 5)
    starts = np.concatenate([[0], ends[:-1] + 1])
    widths = np.diff(np.column_stack([by_line, ends]), axis=1) - 1
    if not (np.array_equal(by_line[:, 0], starts + 1) and widths.min() >= 1 and widths.max() <= _DIGITS_MAX):
        return None
    minus = np.flatnonzero(signs == _MINUS)
    if len(minus) and not (np.all(signs[minus - 1] == _SPACE) and np.all(signs[minus + 1] >= _ZERO)):
        return None
    numbers = np.fromstring(text.replace(b"a", b"").decode("ascii"), np.int64, sep=" ")
    columns: Integers = numbers.reshape(-1, 5).T
    return columns


_NEWLINE, _SPACE, _MINUS, _ZERO = b"\n -0"


# ---- writing -------------------------------------------------------------------------------------------------------


def write(problem: Problem) -> Iterator[str]:
    """The lines of a graph; `read` makes the same problem of them."""
    yield f"p min {len(problem.supply)} {len(problem.tail)}\n"
    for node in np.flatnonzero(problem.supply):
        yield f"n {node + 1} {problem.supply[node]}\n"
    yield from _arcs(problem, 0)


def write_changes(before: Problem, after: Problem) -> Iterator[str]:
    """The lines of an iteration: what became of the problem before, whose nodes and arcs kept their numbers.

    Of parallel arcs of one cost all are written if one has changed, in the order in which `x` takes them. If one of
    those has been removed, each gets a cost of its own first, since `x` takes removed arcs last.
    """
    nodes, arcs = len(before.supply), len(before.tail)
    if len(after.supply) < nodes or len(after.tail) < arcs:
        raise ProblemError("the problem has fewer nodes or arcs than before; what is removed keeps its number")
    moved = np.flatnonzero((before.tail != after.tail[:arcs]) | (before.head != after.head[:arcs]))
    if len(moved):
        raise ProblemError(f"arc {moved[0]} has other ends than before; they must stay")
    new_supply = after.supply.copy()
    new_supply[:nodes] -= before.supply
    new_supply[nodes:] = 1
    for node in np.flatnonzero(new_supply):
        yield f"n {node + 1} {after.supply[node]}\n"
    to_write = _to_write(before, after)
    old_cost = before.cost.copy()
    if any(before.capacity[arc] == 0 for arc in to_write):
        free_cost = int(max(before.cost.max(), after.cost.max())) + 1
        for arc in to_write:
            yield f"x {after.tail[arc] + 1} {after.head[arc] + 1} 0 0 {free_cost} 0 {old_cost[arc]}\n"
            old_cost[arc] = free_cost
            free_cost += 1
    for arc in to_write:
        fields = f"{after.minimum[arc]} {after.capacity[arc]} {after.cost[arc]} 0 {old_cost[arc]}"
        yield f"x {after.tail[arc] + 1} {after.head[arc] + 1} {fields}\n"
    yield from _arcs(after, arcs)


def end_of_iteration() -> str:
    """The line after a graph or its changes."""
    return "c EOI\n"


def write_solution(problem: Problem, solution: Solution) -> Iterator[str]:
    """The lines of a solution."""
    yield f"s {solution.cost}\n"
    used = np.flatnonzero(solution.flow)
    columns = (problem.tail[used] + 1, problem.head[used] + 1, solution.flow[used])
    for tail, head, flow in zip(*(column.tolist() for column in columns), strict=True):
        yield f"f {tail} {head} {flow}\n"


def _arcs(problem: Problem, first: int) -> Iterator[str]:
    columns = (problem.tail + 1, problem.head + 1, problem.minimum, problem.capacity, problem.cost)
    for tail, head, low, capacity, cost in zip(*(column[first:].tolist() for column in columns), strict=True):
        yield f"a {tail} {head} {low} {capacity} {cost}\n"


def _to_write(before: Problem, after: Problem) -> list[int]:
    arcs = len(before.tail)
    pairs = ((before.minimum, after.minimum), (before.capacity, after.capacity), (before.cost, after.cost))
    changed = np.zeros(arcs, np.bool_)
    for old, new in pairs:
        changed |= old != new[:arcs]
    if not changed.any():
        return []
    # Arcs that `x` could mistake for one another: same ends, same cost.
    _, alike = np.unique(np.stack([before.tail, before.head, before.cost]), axis=1, return_inverse=True)
    alike = alike.ravel()
    touched = np.flatnonzero(np.isin(alike, alike[changed]))
    order = np.lexsort([touched, before.capacity[touched] == 0])
    return [int(arc) for arc in touched[order]]
