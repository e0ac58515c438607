"""Cost scaling by pushes and relabels (Goldberg, Tarjan; paper 004, §5.2.1), cold or from an earlier solution.

Costs are multiplied by the number of nodes plus one. A flow is ε-optimal if no residual arc has a reduced cost below
−ε; one that is 1-optimal in these units is optimal. Each phase fills the arcs of negative reduced cost, and then sends
what nodes have in excess along arcs of negative reduced cost; a node that has none is relabelled: its potential rises
by ε or more. The next phase has a smaller ε.

How large the first ε is decides more than anything else. With a small one little has to be repaired later, and where
few tasks contend for a place the first phase is quick; where many do, prices rise by one ε after the other for ever
(a price war). So the first phase starts with a small ε, and has a budget of work: each time that is used up, ε rises.
A warm start is made to fit first (`warm_start`), so that the smallest ε mostly does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.kernels import kernel
from scheduler.flow.problem import InfeasibleError, Integers, Problem, ProblemError, Solution, StoppedError
from scheduler.flow.solvers.residual import (
    Numbers,
    Ordered,
    Residual,
    all_reach_demand,
    greatest,
    pull,
    push,
    residual_of,
    sum_of_sizes,
)
from scheduler.flow.solvers.stopping import POLL_ARCS, POLL_STEPS, TOLD, StopFlag, refuse_to_go_on, stop_flag
from scheduler.flow.solvers.warm_start import fit, largest_violation

ALPHA = 9
"""By what ε is divided from phase to phase."""
FIRST_DIVISOR = 1000
"""The first ε of a cold start is the mean cost divided by this."""
RAISE = 100
"""By what ε is multiplied when the first phase has used up its budget."""
BUDGET = 2.0
"""Work that the first phase may do with one ε, in units of nodes plus a tenth of the arcs."""
BUDGET_WARM = 0.75
"""The same for a warm start with the ε that it tries first: cold starts do 5 to 15 times as much."""

ARCS_PER_STEP = 64
"""A node with so many residual arcs counts as a step of work when it is relabelled, with twice as many as two."""

POTENTIAL_MAX = 2**61
"""Where cold starts begin is so much below 0."""
NOWHERE = 2**63 - 1
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
    return start_scaling(problem, start, stop, alpha=alpha).go(first_divisor).solution()


def start_scaling(
    problem: Problem,
    start: Solution | None = None,
    stop: StopFlag | None = None,
    *,
    alpha: int = ALPHA,
    drains: bool = True,
) -> Scaling:
    """All that `solve` does first: for those who want to know what it took, or what it has when it is stopped.

    `drains`: efficient task removal, in a warm start.
    """
    if alpha < 2:
        raise ValueError(f"alpha is {alpha}, must be 2 or more")
    stop = stop_flag() if stop is None else stop
    unit = len(problem.supply) + 1
    potential = None if start is None else scaled(start.potential, unit)
    ordered = residual_of(problem, None if start is None or potential is None else start.flow, unit, stop)
    return Scaling(ordered, potential, stop, alpha, drains=drains)


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
    potential = potential - potential.min(initial=POTENTIAL_MAX)
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

    def __init__(
        self, ordered: Ordered, potential: Integers | None, stop: StopFlag, alpha: int, *, drains: bool = True
    ) -> None:
        network = ordered.network
        nodes = len(network.excess)
        self.ordered = ordered
        self.network = network
        self.is_warm = potential is not None
        self.labels = Labels(
            np.full(nodes, -POTENTIAL_MAX, np.int64) if potential is None else potential,
            np.empty(nodes, np.int64),
            np.empty(nodes, np.int64),
            np.empty(nodes, np.int32),
            np.zeros(nodes, np.bool_),
        )
        self.stop = stop
        self.work_left = int(stop[1]) if len(stop) > 1 else POTENTIAL_MAX
        """What the flag allows."""
        self.alpha = alpha
        self.drains = drains
        self.epsilon_max = max(greatest(network.cost), 1)
        self.budget = int(BUDGET * (1000 + nodes + len(network.tail) // 10))
        self.budget_warm = int(BUDGET_WARM * (nodes + len(network.tail) // 10))
        self.phases: list[Phase] = []
        self.fills = 0
        """How often all arcs were looked at."""

    @property
    def work(self) -> int:
        """Nodes that were looked at, those with many arcs more than once: the steps of which a flag may allow so
        many."""
        return sum(phase.work for phase in self.phases)

    def go(self, first_divisor: int = FIRST_DIVISOR) -> Scaling:
        """Until the flow is of least cost."""
        if self.is_warm:
            self.run_warm(first_divisor)
        else:
            self.run(first_divisor)
        return self

    def solution(self) -> Solution:
        """When it is."""
        return self.ordered.solution(exact(self.labels.potential))

    def run(self, first_divisor: int) -> None:
        """From nothing."""
        self.fill_arcs()
        self.first_phase(self.first_epsilon(first_divisor), self.budget)
        self.finer_phases()

    def run_warm(self, first_divisor: int) -> None:
        """From a flow and potentials that are nearly right, once they fit.

        With the smallest ε, or a cold start's if too much is wrong, as long as that goes well; then with one that is a
        phase below what was wrong.
        """
        first = self.first_epsilon(first_divisor)
        fitted = fit(self.network, self.labels.potential, self.stop, drains=self.drains)
        self.fills += fitted.sweeps
        if fitted.fits:
            epsilon, next_epsilon = 1, first
        else:
            wrong = largest_violation(self.network, self.labels.potential)
            self.fills += 1
            epsilon, next_epsilon = first, max(first, wrong // self.alpha)
        if not self.fill_arcs():
            return
        if not self.settle(epsilon, self.budget_warm):
            self.first_phase(next_epsilon, self.budget_warm)
        self.finer_phases()

    def first_epsilon(self, divisor: int) -> int:
        """For a first phase that finds few tasks contending."""
        cost = self.network.cost
        return max(int(sum_of_sizes(cost) / max(len(cost), 1) / divisor), 1)

    def first_phase(self, epsilon: int, work_max: int) -> None:
        """With an ε that rises as long as the work is not done; for the first time after `work_max`."""
        while not self.settle(epsilon, work_max):
            work_max = self.budget
            if not all_reach_demand(self.network, self.stop):
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
        refuse_to_go_on(self.stop)
        network, labels = self.network, self.labels
        self.fills += 1
        saturate(network, labels.potential, self.stop)
        refuse_to_go_on(self.stop)
        labels.next_out[:] = network.first[:-1]
        labels.next_used[:] = network.used_first[:-1]
        return bool(network.excess.any())

    def settle(self, epsilon: int, work_max: int) -> bool:
        """Send what nodes have in excess to where it lacks; False if that takes more work than allowed."""
        allowed = min(work_max, self.work_left)
        status, work = settle(self.network, self.labels, epsilon, self.epsilon_max, allowed, self.stop)
        self.phases.append(Phase(epsilon, work))
        self.work_left -= work
        if status == STOPPED or (status == PAUSED and self.work_left <= 0):
            raise StoppedError(TOLD)
        if status == STUCK or (status == HIGH and not all_reach_demand(self.network, self.stop)):
            raise InfeasibleError("supply that reaches no demand")
        if status == HIGH:
            raise ProblemError("cost: potentials do not fit into 62 bits; costs must be smaller")
        return bool(status == DONE)


@kernel
def saturate(network: Residual, potential: Integers, stop: StopFlag) -> None:
    """Fill arcs of negative reduced cost, and empty those of positive one. Not all of them if the flag is set."""
    for arc in range(len(network.tail)):
        if arc % POLL_ARCS == 0 and stop[0] != 0:
            return
        reduced = network.cost[arc] - potential[network.tail[arc]] + potential[network.head[arc]]
        if reduced < 0:
            if network.room[arc] > 0:
                push(network, arc, network.room[arc])
        elif reduced > 0 and network.flow[arc] > 0:
            pull(network, arc, network.flow[arc])


@kernel
def settle(
    network: Residual, labels: Labels, epsilon: int, dear: int, work_max: int, stop: StopFlag
) -> tuple[int, int]:
    """Push and relabel until no node has excess. Returns how that ended, and how much work was done."""
    count = put_all_on_stack(network, labels)
    work = 0
    poll_at = 0
    while count > 0:
        count -= 1
        node = labels.stack[count]
        labels.stacked[node] = False
        while network.excess[node] > 0:
            if work >= poll_at:
                if stop[0] != 0:
                    return STOPPED, work
                if work >= work_max:
                    return PAUSED, work
                poll_at = work + POLL_STEPS
            work += 1
            count = send_on(network, labels, node, epsilon, dear, count)
            if network.excess[node] > 0:
                count = send_back(network, labels, node, epsilon, dear, count)
            if network.excess[node] > 0:
                if not relabel(network, labels, node, epsilon):
                    return STUCK, work
                if labels.potential[node] >= POTENTIAL_MAX:
                    return HIGH, work
                arcs = network.first[node + 1] - network.first[node]
                work += (arcs + network.used_end[node] - network.used_first[node]) // ARCS_PER_STEP
    return DONE, work


@kernel
def put_all_on_stack(network: Residual, labels: Labels) -> int:
    """All nodes with excess; returns how many there are."""
    count = 0
    for node in range(len(network.excess)):
        labels.stacked[node] = False
        count = put_on_stack(network, labels, node, count)
    return count


@kernel
def put_on_stack(network: Residual, labels: Labels, node: int, count: int) -> int:
    """If the node has excess, it is to be looked at. Returns how many nodes are on the stack then."""
    if network.excess[node] > 0 and not labels.stacked[node]:
        labels.stacked[node] = True
        labels.stack[count] = node
        return count + 1
    return count


@kernel
def send_on(network: Residual, labels: Labels, node: int, epsilon: int, dear: int, count: int) -> int:
    """Send a node's excess along its out-arcs; returns how many nodes are on the stack then."""
    own = labels.potential[node]
    arc = labels.next_out[node]
    end = network.first[node + 1]
    while arc < end:
        to = network.head[arc]
        if network.room[arc] > 0 and network.cost[arc] + labels.potential[to] < own:
            look_ahead(network, labels, to, epsilon, dear)
            if network.cost[arc] + labels.potential[to] < own:
                push(network, arc, min(network.excess[node], network.room[arc]))
                count = put_on_stack(network, labels, to, count)
                if network.excess[node] == 0:
                    break
        arc += 1
    labels.next_out[node] = arc
    return count


@kernel
def send_back(network: Residual, labels: Labels, node: int, epsilon: int, dear: int, count: int) -> int:
    """Send a node's excess back along its used in-arcs; returns how many nodes are on the stack then."""
    own = labels.potential[node]
    at = labels.next_used[node]
    while at < network.used_end[node]:
        to = network.used_tail[at]
        cost = network.used_cost[at]
        if labels.potential[to] - cost < own:
            look_ahead(network, labels, to, epsilon, dear)
        if labels.potential[to] - cost < own:
            arc = network.used[at]
            pull(network, arc, min(network.excess[node], network.flow[arc]))
            count = put_on_stack(network, labels, to, count)
            if network.excess[node] == 0:
                break
        else:
            at += 1
    labels.next_used[node] = at
    return count


@kernel
def look_ahead(network: Residual, labels: Labels, node: int, epsilon: int, dear: int) -> None:
    """Relabel a node before something is sent there, if it could not send that on (Goldberg's push look-ahead)."""
    if network.excess[node] < 0 or can_send(network, labels, node):
        return
    if not relabel(network, labels, node, epsilon):
        labels.potential[node] += dear  # A dead end: if its potential rose by ε it would lure others for ever.


@kernel
def can_send(network: Residual, labels: Labels, node: int) -> bool:
    """Whether one of the node's residual arcs has a negative reduced cost."""
    own = labels.potential[node]
    end = network.first[node + 1]
    for arc in range(labels.next_out[node], end):
        if network.room[arc] > 0 and network.cost[arc] + labels.potential[network.head[arc]] < own:
            labels.next_out[node] = arc
            return True
    labels.next_out[node] = end
    end = network.used_end[node]
    for at in range(labels.next_used[node], end):
        if labels.potential[network.used_tail[at]] - network.used_cost[at] < own:
            labels.next_used[node] = at
            return True
    labels.next_used[node] = end
    return False


@kernel
def relabel(network: Residual, labels: Labels, node: int, epsilon: int) -> bool:
    """Raise the potential of a node whose residual arcs have no negative reduced cost until one has; False if it has
    no residual arc."""
    own = labels.potential[node]
    lowest = NOWHERE
    end = network.first[node + 1]
    next_out = end
    next_used = network.used_first[node]
    for arc in range(network.first[node], end):
        if network.room[arc] > 0:
            reach = network.cost[arc] + labels.potential[network.head[arc]]
            if reach < lowest:
                if reach <= lowest - epsilon:
                    next_out = arc  # No arc before this one will have a negative reduced cost.
                lowest = reach
                if lowest == own:
                    break  # No neighbour's is below its own.
    if lowest > own:
        for at in range(network.used_first[node], network.used_end[node]):
            reach = labels.potential[network.used_tail[at]] - network.used_cost[at]
            if reach < lowest:
                if reach <= lowest - epsilon:
                    next_out = end
                    next_used = at
                lowest = reach
                if lowest == own:
                    break
    if lowest == NOWHERE:
        return False
    labels.potential[node] = lowest + epsilon
    labels.next_out[node] = next_out
    labels.next_used[node] = next_used
    return True
