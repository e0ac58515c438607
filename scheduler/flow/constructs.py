"""Parts of flow networks that say more than one task and one machine can (paper 004, §5.3.2).

- "xor" (figure 5.17): of some tasks at most p are placed, at most r a machine (`at_most`).
- Anti-affinity is the same with all tasks, and r tasks a machine or a rack (`spread`).
- Affinity. A task near one that runs is a matter of that task's arcs. Tasks that shall all go to the same machine,
  wherever that is, need "and" (figure 5.18), whose arcs have gain factors: that is generalised flow, which no solver
  here solves, and none of the thesis does. What min-cost flow can do is to place a group on a machine that is named
  (`together`), so the machine is found by trial (`place_together`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.flow.building import Building
from scheduler.flow.problem import InfeasibleError, Problem, ProblemError, Solution
from scheduler.flow.solvers.solver import Solve

# ---- xor, anti-affinity --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A machine that tasks may go to, and what each pays for it."""

    machine: int
    cost: int


@dataclass(frozen=True, slots=True)
class Group:
    """What a construct consists of: tasks go to `gathers`, the arc `gate` leads to `leaves`, from there to places."""

    gathers: int
    leaves: int
    gate: int
    size: int


def at_most(
    network: Building,
    tasks: Sequence[int],
    places: Iterable[Place],
    *,
    placed_max: int,
    per_machine_max: int,
) -> Group:
    """The construct "xor" (figure 5.17): of the tasks at most so many are placed, on a machine at most so many."""
    _at_least("placed_max", placed_max, 0)
    group = gathered(network, tasks, min(placed_max, len(tasks)))
    placed_from(network, group.leaves, places, per_machine_max)
    return group


def spread(
    network: Building,
    tasks: Sequence[int],
    racks: Iterable[Sequence[Place]],
    *,
    per_machine_max: int = 1,
    per_rack_max: int | None = None,
) -> Group:
    """Anti-affinity: on no machine more than so many of the tasks, nor in a rack, of which each is its places."""
    group = gathered(network, tasks, len(tasks))
    if per_rack_max is None:
        placed_from(network, group.leaves, (place for rack in racks for place in rack), per_machine_max)
        return group
    _at_least("per_rack_max", per_rack_max, 1)
    for rack in racks:
        node = network.add_node()
        network.add_arc(group.leaves, node, 0, per_rack_max)
        placed_from(network, node, rack, per_machine_max)
    return group


def gathered(network: Building, tasks: Sequence[int], placed_max: int, minimum: int = 0) -> Group:
    """Lead tasks through one arc, the gate."""
    gathers, leaves = network.add_node(), network.add_node()
    for task in tasks:
        network.add_arc(task, gathers, 0, 1)
    return Group(gathers, leaves, network.add_arc(gathers, leaves, 0, placed_max, minimum), len(tasks))


def placed_from(network: Building, node: int, places: Iterable[Place], per_machine_max: int) -> None:
    """Arcs from a node to machines."""
    _at_least("per_machine_max", per_machine_max, 1)
    for place in places:
        network.add_arc(node, place.machine, place.cost, per_machine_max)


def _at_least(field: str, value: int, lowest: int) -> None:
    if value < lowest:
        raise ProblemError(f"{field} is {value:,}; allowed are numbers from {lowest}")


# ---- affinity ------------------------------------------------------------------------------------------------------


def together(network: Building, tasks: Sequence[int], places: Sequence[Place]) -> tuple[Group, list[int]]:
    """Tasks that shall share one machine: a group, and its arc to each place, closed (capacity 0).

    Which of these opens is for `place_together` to find; as long as all are closed no task of the group is placed.
    """
    group = gathered(network, tasks, len(tasks))
    return group, [network.add_arc(group.leaves, place.machine, place.cost, 0) for place in places]


def place_together(problem: Problem, group: Group, doors: Sequence[int], solve: Solve) -> tuple[int | None, Solution]:
    """Which arc of `together` to open so that all of the group go that way at the least cost; None if it costs less, or
    as much, to have them wait. One solve for each place, so name few."""
    best_door, best = None, solve(problem)
    for door in doors:
        try:
            found = solve(with_bounds(problem, {group.gate: (group.size, group.size), door: (0, group.size)}))
        except InfeasibleError:
            continue
        if found.cost < best.cost:
            best_door, best = door, found
    return best_door, best


def with_bounds(problem: Problem, bounds: Mapping[int, tuple[int, int]]) -> Problem:
    """The problem with other minimums and capacities."""
    minimum, capacity = problem.minimum.copy(), problem.capacity.copy()
    for arc, (low, high) in bounds.items():
        minimum[arc], capacity[arc] = low, high
    return replace(problem, minimum=minimum, capacity=capacity)
