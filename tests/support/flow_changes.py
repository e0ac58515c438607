"""Files whose arcs and nodes often go and come again, with the problem that each iteration describes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from scheduler.flow.problem import Problem
from tests.support.flow_problems import integers

SINK = 3
NODES = (1, 2, SINK)


@dataclass
class Arc:
    """An arc that is there, or that CAP 0 has removed."""

    tail: int
    head: int
    capacity: int
    cost: int


@dataclass
class FileOfChanges:
    """Lines so far, and what they come to: a list of what is there, and nothing of how the reader keeps it."""

    lines: list[str] = field(default_factory=lambda: [f"p min {SINK} 0", f"n {SINK} 0 3", "c EOI"])
    supply: dict[int, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    present: list[Arc] = field(default_factory=list)
    removed: list[Arc] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._write_down()

    def __repr__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def add(self, tail: int, head: int, capacity: int, cost: int) -> None:
        """A line `a`."""
        if tail != head and tail in self.supply and head in self.supply:
            self.lines.append(f"a {tail} {head} 0 {capacity} {cost}")
            (self.present if capacity else self.removed).append(Arc(tail, head, capacity, cost))

    def change(self, tail: int, head: int, capacity: int, cost: int, old_cost: int | None) -> None:
        """A line `x`, if it is clear by the document what it comes to: all arcs that may be meant are alike."""
        for arcs in (self.present, self.removed):
            ends = [arc for arc in arcs if (arc.tail, arc.head) == (tail, head)]
            meant = [arc for arc in ends if old_cost in (None, arc.cost)]
            if meant:
                break
        else:
            return
        if any(arc != meant[0] for arc in meant) or (old_cost is None and arcs is self.present and len(meant) > 1):
            return
        self.lines.append(f"x {tail} {head} 0 {capacity} {cost}" + ("" if old_cost is None else f" 0 {old_cost}"))
        arcs.remove(meant[0])
        (self.present if capacity else self.removed).append(Arc(tail, head, capacity, cost))

    def remove_node(self, node: int) -> None:
        """A line `r`."""
        if node in self.supply:
            self.lines.append(f"r {node}")
            del self.supply[node]
            self.present = [arc for arc in self.present if node not in (arc.tail, arc.head)]
            self.removed = [arc for arc in self.removed if node not in (arc.tail, arc.head)]

    def state_supply(self, node: int, supply: int) -> None:
        """A line `n`."""
        self.lines.append(f"n {node} {supply}")
        self.supply[node] = supply

    def end_iteration(self) -> None:
        """`c EOI`."""
        self.lines.append("c EOI")
        self.supply[SINK] = -sum(self.supply[node] for node in self.supply if node != SINK)
        self._write_down()

    def _write_down(self) -> None:
        arcs = sorted(self.present, key=lambda arc: (arc.tail, arc.head, arc.capacity, arc.cost))
        self.problems.append(
            Problem(
                tail=integers([arc.tail - 1 for arc in arcs]),
                head=integers([arc.head - 1 for arc in arcs]),
                cost=integers([arc.cost for arc in arcs]),
                capacity=integers([arc.capacity for arc in arcs]),
                minimum=integers([0] * len(arcs)),
                supply=integers([self.supply.get(node, 0) for node in NODES]),
            )
        )


@st.composite
def files_of_changes(draw: st.DrawFn) -> FileOfChanges:
    """Few nodes, few costs, many arcs that are alike."""
    file = FileOfChanges()
    ends = st.sampled_from([(1, SINK), (1, 2), (2, SINK)])
    capacity = st.sampled_from([0, 1, 3])
    cost = st.sampled_from([1, 2])
    for _ in range(draw(st.integers(3, 5))):
        for letter in draw(st.lists(st.sampled_from("aaxxxxrrnn"), min_size=4, max_size=10)):
            if letter == "a":
                file.add(*draw(ends), draw(capacity), draw(cost))
            elif letter == "x":
                file.change(*draw(ends), draw(capacity), draw(cost), draw(st.sampled_from([None, 1, 2])))
            elif letter == "r":
                file.remove_node(draw(st.integers(1, 2)))
            else:
                file.state_supply(draw(st.integers(1, 2)), draw(st.integers(0, 3)))
        file.end_iteration()
    return file
