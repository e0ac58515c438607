"""Gangs: tasks that are placed together or not at all (paper 004, §5.3.3).

A minimum flow forces all tasks of a gang to be placed (figure 5.19), whatever that costs and whom it drives out, and
the whole network is infeasible if they do not fit: so whether they do is looked at before (`gangs_that_fit`).

All or nothing, for a price, is the construct "and" (figure 5.20), which needs generalised flow (see `constructs`). In
its place `decide_gangs` tries each gang, and undoes what costs more than to have all its tasks wait. That is one gang
after the other, the oldest first: another choice of gangs may cost less in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.flow.building import Building
from scheduler.flow.constructs import Group, Place, gathered, placed_from, with_bounds
from scheduler.flow.problem import InfeasibleError, Problem, Solution
from scheduler.flow.solvers.solver import Solve


def gang(
    network: Building, tasks: Sequence[int], places: Iterable[Place], *, per_machine_max: int = 1, rigid: bool = True
) -> Group:
    """Tasks that are placed all, by a minimum flow (figure 5.19). If not `rigid` they wait until `decide_gangs`."""
    size = len(tasks) if rigid else 0
    group = gathered(network, tasks, size, size)
    placed_from(network, group.leaves, places, per_machine_max)
    return Group(group.gathers, group.leaves, group.gate, len(tasks))


@dataclass(frozen=True)
class Gang:
    """What there is to know of a gang before it is put into a network."""

    name: str
    size: int
    machines: Sequence[int]
    per_machine_max: int = 1


def gangs_that_fit(gangs: Sequence[Gang], slots: Mapping[int, int]) -> tuple[list[Gang], dict[str, str]]:
    """The gangs that can be placed together, the first ones first, and why the others cannot.

    `slots`: how many tasks a machine may have. Whoever is no gang can wait, so the gangs have all slots. A gang is let
    in by paths that give it free slots, for which gangs before it move to other machines of theirs.
    """
    slots_left = dict(slots)
    placed: list[dict[int, int]] = []
    fitting: list[Gang] = []
    refused: dict[str, str] = {}
    for candidate in gangs:
        before = dict(slots_left), [dict(machines) for machines in placed]
        placed.append({})
        fitting.append(candidate)
        found = _place_directly(candidate, placed[-1], slots_left)
        while found < candidate.size and (moved := _find_room(fitting, placed, slots_left, candidate.size - found)):
            found += moved
        if found < candidate.size:
            slots_left, placed = before
            fitting.pop()
            refused[candidate.name] = (
                f"the gang {candidate.name} needs {candidate.size:,} places at once;"
                f" its machines have {found:,} beside the gangs before it"
            )
    return fitting, refused


def _place_directly(gang: Gang, placed: dict[int, int], slots_left: dict[int, int]) -> int:
    """Place tasks of a gang where slots are free. How many."""
    found = 0
    for machine in gang.machines:
        amount = min(slots_left.get(machine, 0), gang.per_machine_max, gang.size - found)
        if amount > 0:
            placed[machine] = placed.get(machine, 0) + amount
            slots_left[machine] -= amount
            found += amount
    return found


def _find_room(gangs: Sequence[Gang], placed: list[dict[int, int]], slots_left: dict[int, int], wanted: int) -> int:
    """Find a path from the last gang to free slots, by breadth first, and place along it. How many tasks; 0 if none."""
    last = len(gangs) - 1
    reached: dict[int, tuple[int, int]] = {}  # a gang: whose task takes its place, and on which machine
    seen: set[int] = set()
    queue = [last]
    for at in queue:
        here = gangs[at]
        for machine in here.machines:
            if machine in seen or placed[at].get(machine, 0) >= here.per_machine_max:
                continue
            if slots_left.get(machine, 0) > 0:
                return _place_along(gangs, placed, slots_left, reached, at, machine, wanted)
            seen.add(machine)
            for other in range(len(gangs)):
                if other not in reached and other != last and placed[other].get(machine, 0) > 0:
                    reached[other] = at, machine
                    queue.append(other)
    return 0


def _place_along(
    gangs: Sequence[Gang],
    placed: list[dict[int, int]],
    slots_left: dict[int, int],
    reached: Mapping[int, tuple[int, int]],
    at: int,
    machine: int,
    wanted: int,
) -> int:
    steps = [(at, machine)]
    while at in reached:
        at, shared = reached[at]
        steps.append((at, shared))
    amount = min(wanted, slots_left[machine])
    for index, (who, where) in enumerate(steps):
        amount = min(amount, gangs[who].per_machine_max - placed[who].get(where, 0))
        if index + 1 < len(steps):
            amount = min(amount, placed[who][steps[index + 1][1]])
    slots_left[machine] -= amount
    for index, (who, where) in enumerate(steps):
        placed[who][where] = placed[who].get(where, 0) + amount
        if index + 1 < len(steps):
            placed[who][steps[index + 1][1]] -= amount
    return amount


@dataclass(frozen=True, slots=True)
class Decision:
    """Which gangs are placed, whole, and the flow that does so."""

    placed: list[Group]
    waiting: list[Group]
    solution: Solution


def decide_gangs(problem: Problem, gangs: Sequence[Group], solve: Solve) -> Decision:
    """All or nothing: each gang, the oldest first, is placed if that is possible and costs less than to have all its
    tasks wait; else what was tried is undone. The problem has them all closed (`gang(rigid=False)`)."""
    placed: list[Group] = []
    waiting: list[Group] = []
    best = solve(problem)
    for candidate in gangs:
        trial = with_bounds(problem, {candidate.gate: (candidate.size, candidate.size)})
        try:
            found = solve(trial)
        except InfeasibleError:
            found = None
        if found is None or found.cost >= best.cost:
            waiting.append(candidate)
        else:
            placed.append(candidate)
            problem, best = trial, found
    return Decision(placed, waiting, best)
