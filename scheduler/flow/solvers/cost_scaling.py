"""Cost scaling by pushes and relabels (Goldberg, Tarjan; paper 004, §5.2.1), cold or from an earlier solution.

Costs are multiplied by the number of nodes plus one. A flow is ε-optimal if no residual arc has a reduced cost below
−ε; one that is 1-optimal in these units is optimal. Each phase fills the arcs of negative reduced cost, and then sends
what nodes have in excess along arcs of negative reduced cost; a node that has none is relabelled: its potential rises
by ε or more. The next phase has a smaller ε.

How large the first ε is decides more than anything else. With a small one little has to be repaired later, and where
few tasks contend for a place the first phase is quick; where many do, prices rise by one ε after the other for ever
(a price war). So the first phase starts with a small ε, and has a budget of work: each time that is used up, ε rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.compiled import compiled, inlined
from scheduler.flow.problem import InfeasibleError, Integers, Problem, ProblemError, Solution, StoppedError
from scheduler.flow.solvers.residual import (
    Numbers,
    Ordered,
    Residual,
    delist,
    enlist,
    greatest,
    pull,
    push,
    reaches_demand,
    residual_of,
    sum_of_sizes,
)
from scheduler.flow.solvers.stopping import POLL_STEPS, StopFlag, stop_flag

ALPHA = 9
"""By what ε is divided from phase to phase."""
FIRST_DIVISOR = 3000
"""The first ε of a cold start is the mean cost divided by this."""
RAISE = 100
"""By what ε is multiplied when the first phase has used up its budget."""
BUDGET = 2.5
BUDGET_WARM = 1.5
"""Work that the first phase may do with one ε, in units of nodes plus a tenth of the arcs."""

POTENTIAL_MAX = 2**62
NOWHERE = 2**62 + 2**61
"""Above all potentials plus costs."""

DONE, STOPPED, PAUSED, STUCK, HIGH = range(5)
"""How work ended: no node has excess; the flag is set; as much was done as was allowed; a node has excess and no
residual arc; a potential is too high."""


class Labels(NamedTuple):
    """What pushes and relabels keep for each node."""

    potential: Integers
    next_out: Integers
    """The first of its out-arcs that may have a negative reduced cost and room."""
    next_used: Integers
    """The first place of its used in-arcs that may have a positive reduced cost."""
    stack: Numbers
    """Nodes with excess."""
    stacked: NDArray[np.bool_]


def solve(
    problem: Problem,
    start: Solution | None = None,
    stop: StopFlag | None = None,
    *,
    alpha: int = ALPHA,
    first_divisor: int = FIRST_DIVISOR,
) -> Solution:
    """A flow of least cost. `start` may be of another problem with the same nodes and arcs, with whatever costs,
    capacities and supplies: the fewer changed, the sooner this ends."""
    if alpha < 2:
        raise ValueError(f"alpha is {alpha}, must be 2 or more")
    unit = len(problem.supply) + 1
    potential = None if start is None else scaled(start.potential, unit)
    ordered = residual_of(problem, None if start is None or potential is None else start.flow, unit)
    scaling = Scaling(ordered, potential, stop_flag() if stop is None else stop, alpha)
    if potential is None:
        scaling.run(first_divisor)
    else:
        scaling.run_warm(first_divisor)
    return ordered.solution(exact(scaling.labels.potential))


def scaled(potential: Integers, unit: int) -> Integers | None:
    """Potentials in the units of cost scaling, from 0; None if they do not fit."""
    if not len(potential):
        return potential.copy()
    lowest = int(potential.min())
    if (int(potential.max()) - lowest) * unit >= POTENTIAL_MAX // 2:
        return None
    return (potential - lowest) * unit


def exact(potential: Integers) -> Integers:
    """Potentials in the problem's units, with which complementary slackness holds exactly.

    Let u be the nodes plus one. Of the u remainders by division by u one is that of no potential; raise all potentials
    alike until that is u − 1, so that potentials are u·q + r with r from 0 to u − 2. A residual arc of cost c has
    u·c − (u·q + r) + (u·q′ + r′) ≥ −1, so u·(c − q + q′) ≥ −1 + r − r′ ≥ 1 − u, and c − q + q′, a whole number, is
    above −1.
    """
    unit = len(potential) + 1
    taken = np.zeros(unit, np.bool_)
    taken[potential % unit] = True
    free = int(np.argmin(taken))
    return (potential + (unit - 1 - free)) // unit


@dataclass(slots=True)
class Phase:
    """What one phase did."""

    epsilon: int
    work: int


class Scaling:
    """One run."""

    def __init__(self, ordered: Ordered, potential: Integers | None, stop: StopFlag, alpha: int) -> None:
        network = ordered.network
        nodes = len(network.excess)
        self.network = network
        self.labels = Labels(
            np.zeros(nodes, np.int64) if potential is None else potential,
            np.empty(nodes, np.int64),
            np.empty(nodes, np.int64),
            np.empty(nodes, np.int32),
            np.zeros(nodes, np.bool_),
        )
        self.stop = stop
        self.alpha = alpha
        self.epsilon_max = max(greatest(network.cost), 1)
        self.budget_unit = 1000 + nodes + len(network.tail) // 10
        self.phases: list[Phase] = []

    def run(self, first_divisor: int) -> None:
        """From nothing."""
        self.fill_arcs()
        self.first_phase(self.first_epsilon(first_divisor))
        self.finer_phases()

    def run_warm(self, first_divisor: int) -> None:
        """From a flow and potentials that are nearly right: with the smallest ε, as long as that goes well."""
        lower_sources(self.network, self.labels.potential)
        if not self.fill_arcs():
            return
        if not self.settle(1, int(BUDGET_WARM * self.budget_unit)):
            self.first_phase(self.first_epsilon(first_divisor))
            self.finer_phases()

    def first_epsilon(self, divisor: int) -> int:
        """For a first phase that finds few tasks contending."""
        cost = self.network.cost
        return max(int(sum_of_sizes(cost) / max(len(cost), 1) / divisor), 1)

    def first_phase(self, epsilon: int) -> None:
        """With an ε that rises as long as the work is not done."""
        while not self.settle(epsilon, int(BUDGET * self.budget_unit)):
            if not reaches_demand(self.network):
                raise InfeasibleError("supply that reaches no demand")
            epsilon = min(epsilon * RAISE, self.epsilon_max)

    def finer_phases(self) -> None:
        """The flow is feasible: make it optimal."""
        while (epsilon := self.phases[-1].epsilon) > 1:
            epsilon = max(epsilon // self.alpha, 1)
            self.fill_arcs()
            while not self.settle(epsilon, POTENTIAL_MAX):
                raise AssertionError("without a budget no phase is paused")

    def fill_arcs(self) -> bool:
        """Fill and empty arcs as their reduced costs say. False if no node has excess then."""
        self.refuse_to_go_on(self.stop[0] != 0)
        network, labels = self.network, self.labels
        saturate(network, labels.potential)
        labels.next_out[:] = network.first[:-1]
        labels.next_used[:] = network.used_first[:-1]
        return bool(network.excess.any())

    def settle(self, epsilon: int, work_max: int) -> bool:
        """Send what nodes have in excess to where it lacks; False if that takes more work than allowed."""
        status, work = settle(self.network, self.labels, epsilon, 2 * self.epsilon_max, work_max, self.stop)
        self.phases.append(Phase(epsilon, work))
        self.refuse_to_go_on(status == STOPPED)
        if status == STUCK or (status == HIGH and not reaches_demand(self.network)):
            raise InfeasibleError("supply that reaches no demand")
        if status == HIGH:
            raise ProblemError("cost: potentials do not fit into 62 bits; costs must be smaller")
        return bool(status == DONE)

    def refuse_to_go_on(self, stopped: bool) -> None:
        if stopped:
            raise StoppedError("cost scaling was told to stop")


@compiled
def lower_sources(network: Residual, potential: Integers) -> None:
    """Nodes that no arc enters, tasks that is, get the potential that their out-arcs with room allow."""
    for node in range(len(potential)):
        if network.used_first[node] == network.used_first[node + 1]:
            lowest = NOWHERE
            for arc in range(network.first[node], network.first[node + 1]):
                if network.room[arc] > 0:
                    lowest = min(lowest, network.cost[arc] + potential[network.head[arc]])
            if lowest != NOWHERE:
                potential[node] = lowest


@compiled
def saturate(network: Residual, potential: Integers) -> None:
    """Fill arcs of negative reduced cost, and empty those of positive one."""
    for arc in range(len(network.tail)):
        reduced = network.cost[arc] - potential[network.tail[arc]] + potential[network.head[arc]]
        if reduced < 0:
            if network.room[arc] > 0:
                push(network, arc, network.room[arc])
        elif reduced > 0 and network.flow[arc] > 0:
            pull(network, arc, network.flow[arc])


@compiled
def settle(
    network: Residual, labels: Labels, epsilon: int, dear: int, work_max: int, stop: StopFlag
) -> tuple[int, int]:
    """Push and relabel until no node has excess. Returns how that ended, and how much work was done.

    The arrays have names of their own here: reading them from the tuples at each step takes three times as long.
    """
    first, _, head, cost, room, flow, excess, used_first, used_end, used, used_tail, used_cost, place = network
    potential, next_out, next_used, stack, stacked = labels
    count = collect(excess, stack, stacked)
    work = 0
    poll_at = 0
    while count > 0:
        count -= 1
        node = stack[count]
        stacked[node] = False
        while excess[node] > 0:
            work += 1
            own = potential[node]
            # Send on what the out-arcs take.
            arc = next_out[node]
            end = first[node + 1]
            while arc < end:
                to = head[arc]
                if (
                    room[arc] > 0
                    and cost[arc] + potential[to] < own
                    and cost[arc]
                    + looked_ahead(
                        to,
                        epsilon,
                        dear,
                        excess,
                        first,
                        head,
                        cost,
                        room,
                        used_first,
                        used_end,
                        used_tail,
                        used_cost,
                        potential,
                        next_out,
                        next_used,
                    )
                    < own
                ):
                    amount = min(excess[node], room[arc])
                    if flow[arc] == 0:
                        enlist(arc, node, to, cost[arc], used_end, used, used_tail, used_cost, place)
                    flow[arc] += amount
                    room[arc] -= amount
                    excess[node] -= amount
                    excess[to] += amount
                    count = put_on_stack(to, excess, stack, stacked, count)
                    if excess[node] == 0:
                        break
                arc += 1
            next_out[node] = arc
            if excess[node] == 0:
                break
            # Send back what came along used in-arcs.
            at = next_used[node]
            while at < used_end[node]:
                to = used_tail[at]
                if (
                    potential[to] - used_cost[at] < own
                    and looked_ahead(
                        to,
                        epsilon,
                        dear,
                        excess,
                        first,
                        head,
                        cost,
                        room,
                        used_first,
                        used_end,
                        used_tail,
                        used_cost,
                        potential,
                        next_out,
                        next_used,
                    )
                    - used_cost[at]
                    < own
                ):
                    arc = used[at]
                    amount = min(excess[node], flow[arc])
                    flow[arc] -= amount
                    room[arc] += amount
                    excess[node] -= amount
                    excess[to] += amount
                    if flow[arc] == 0:
                        delist(at, node, used_end, used, used_tail, used_cost, place)
                    count = put_on_stack(to, excess, stack, stacked, count)
                    if excess[node] == 0:
                        break
                else:
                    at += 1
            next_used[node] = at
            if excess[node] == 0:
                break
            if not relabel(
                node,
                epsilon,
                first,
                head,
                cost,
                room,
                used_first,
                used_end,
                used_tail,
                used_cost,
                potential,
                next_out,
                next_used,
            ):
                return STUCK, work
            if potential[node] >= POTENTIAL_MAX:
                return HIGH, work
        if work >= poll_at:
            if stop[0] != 0:
                return STOPPED, work
            if work >= work_max:
                return PAUSED, work
            poll_at = work + POLL_STEPS
    return DONE, work


@inlined
def collect(excess: Integers, stack: Numbers, stacked: NDArray[np.bool_]) -> int:
    """Put all nodes with excess on the stack; returns how many there are."""
    count = 0
    for node in range(len(excess)):
        stacked[node] = excess[node] > 0
        if stacked[node]:
            stack[count] = node
            count += 1
    return count


@inlined
def put_on_stack(node: int, excess: Integers, stack: Numbers, stacked: NDArray[np.bool_], count: int) -> int:
    """A node got something: if it has excess now, it is to be looked at. Returns how many nodes are on the stack."""
    if excess[node] > 0 and not stacked[node]:
        stacked[node] = True
        stack[count] = node
        count += 1
    return count


@inlined
def looked_ahead(
    node: int,
    epsilon: int,
    dear: int,
    excess: Integers,
    first: Integers,
    head: Numbers,
    cost: Integers,
    room: Integers,
    used_first: Integers,
    used_end: Integers,
    used_tail: Numbers,
    used_cost: Integers,
    potential: Integers,
    next_out: Integers,
    next_used: Integers,
) -> int:
    """The potential of a node to which something is to be sent, raised if it could not send that on (Goldberg's push
    look-ahead)."""
    if (
        excess[node] >= 0
        and not can_send(node, first, head, cost, room, used_end, used_tail, used_cost, potential, next_out, next_used)
        and not relabel(
            node,
            epsilon,
            first,
            head,
            cost,
            room,
            used_first,
            used_end,
            used_tail,
            used_cost,
            potential,
            next_out,
            next_used,
        )
    ):
        potential[node] += dear  # A dead end: by ε at a time it would lure others for ever.
    return int(potential[node])


@inlined
def can_send(
    node: int,
    first: Integers,
    head: Numbers,
    cost: Integers,
    room: Integers,
    used_end: Integers,
    used_tail: Numbers,
    used_cost: Integers,
    potential: Integers,
    next_out: Integers,
    next_used: Integers,
) -> bool:
    """Whether one of the node's residual arcs has a negative reduced cost."""
    own = potential[node]
    arc = next_out[node]
    end = first[node + 1]
    while arc < end and (room[arc] == 0 or cost[arc] + potential[head[arc]] >= own):
        arc += 1
    next_out[node] = arc
    if arc < end:
        return True
    at = next_used[node]
    while at < used_end[node] and potential[used_tail[at]] - used_cost[at] >= own:
        at += 1
    next_used[node] = at
    return bool(at < used_end[node])


@inlined
def relabel(
    node: int,
    epsilon: int,
    first: Integers,
    head: Numbers,
    cost: Integers,
    room: Integers,
    used_first: Integers,
    used_end: Integers,
    used_tail: Numbers,
    used_cost: Integers,
    potential: Integers,
    next_out: Integers,
    next_used: Integers,
) -> bool:
    """Raise the potential of a node without residual arcs of negative reduced cost, until it has one; False if it has
    no residual arc."""
    own = potential[node]
    lowest = NOWHERE
    end = first[node + 1]
    start_out = end
    start_used = used_first[node]
    for arc in range(first[node], end):
        if room[arc] > 0:
            reach = cost[arc] + potential[head[arc]]
            if reach < lowest:
                if reach <= lowest - epsilon:
                    start_out = arc  # No arc before will have a negative reduced cost.
                lowest = reach
                if lowest == own:
                    break  # Below its own no neighbour's is.
    if lowest > own:
        for at in range(used_first[node], used_end[node]):
            reach = potential[used_tail[at]] - used_cost[at]
            if reach < lowest:
                if reach <= lowest - epsilon:
                    start_out = end
                    start_used = at
                lowest = reach
                if lowest == own:
                    break
    if lowest == NOWHERE:
        return False
    potential[node] = lowest + epsilon
    next_out[node] = start_out
    next_used[node] = start_used
    return True
