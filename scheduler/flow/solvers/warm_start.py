"""Make an earlier answer fit the problem that it is to be the start for, before cost scaling sends anything.

A task that ended leaves a slot free at a machine that others want, at whose price the arc to the sink is wrong. Filling
that arc, as cost scaling does, would have the sink send a unit back: the potentials of all other machines would rise, ε
by ε, until it comes to this one. Instead the potential of the machine falls to what it sends on for, and the few tasks
for which it is the better place then are taken back from theirs, down to the sink; their slots are free in turn. That
ends where nobody wants a free slot, after a few rounds on a cluster that has slots left.

On a cluster that is full all who wait want every slot: then too many would be taken back, and the answer stays as it
was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.flow.kernels import kernel
from scheduler.flow.problem import Integers, StoppedError
from scheduler.flow.solvers.residual import Numbers, Residual, pull
from scheduler.flow.solvers.stopping import POLL_STEPS, TOLD, StopFlag

ROUNDS_MAX = 6
"""Of potentials that fall and tasks that are taken back."""
SWEEPS_MAX = 8
"""Over inner nodes in a round: as many as the longest path of them has arcs, at most."""
SHARE_MAX = 32
"""One of so many nodes at most is taken back."""

STOPPED = -1
"""What kernels return when the flag is set."""
NOWHERE = 2**63 - 1
"""Above all potentials plus costs."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """fits: nearly all arcs do; else too much would have had to change, and potentials are as before, but for those of
    nodes that no arc enters. sweeps: how often all arcs were looked at."""

    fits: bool
    sweeps: int


def fit(network: Residual, potential: Integers, stop: StopFlag, *, drains: bool = True) -> Fitted:
    """Change flow and potentials so that nearly all arcs fit.

    `drains`: efficient task removal (paper 004, §5.2.5.2). What a place lacks after its task has gone is taken back
    down to the sink.
    """
    before = potential.copy()
    badly_placed = np.empty(len(potential) // SHARE_MAX + 1, np.int32)
    moved = sweeps = 0
    for _ in range(ROUNDS_MAX):
        sweeps += 1
        if drains:
            drain_lacks(network, potential)
        lower_inner(network, potential, stop)
        moving = polled(find_badly_placed(network, potential, badly_placed, stop))
        moved += moving
        if moved > len(badly_placed):
            potential[:] = before
            polled(price_sources(network, potential, False, stop))
            return Fitted(False, sweeps + 1)
        if moving == 0:
            break
        take_back(network, potential, badly_placed[:moving])
    if drains:
        drain_lacks(network, potential)
    polled(price_sources(network, potential, True, stop))
    return Fitted(True, sweeps + 1)


def polled(outcome: int) -> int:
    """The number that a kernel returns, unless it was told to stop."""
    if outcome == STOPPED:
        raise StoppedError(TOLD)
    return outcome


@kernel
def is_source(network: Residual, node: int) -> bool:
    """Whether no arc enters a node: a task's."""
    return bool(network.used_first[node] == network.used_first[node + 1])


@kernel
def ways_of(network: Residual, potential: Integers, node: int) -> tuple[int, int]:
    """The best way of a node that has room, or NOWHERE, and the worst that it uses, or −NOWHERE."""
    best, worst = NOWHERE, -NOWHERE
    for arc in range(network.first[node], network.first[node + 1]):
        reach = network.cost[arc] + potential[network.head[arc]]
        if network.room[arc] > 0:
            best = min(best, reach)
        if network.flow[arc] > 0:
            worst = max(worst, reach)
    return best, worst


@kernel
def lower_sweep(network: Residual, potential: Integers, stop: StopFlag) -> int:
    """Lower inner nodes to the best of their ways. How many were above."""
    found = 0
    for node in range(len(potential)):
        if node % POLL_STEPS == 0 and stop[0] != 0:
            return STOPPED
        if not is_source(network, node):
            best, _ = ways_of(network, potential, node)
            if best < potential[node]:
                potential[node] = best
                found += 1
    return found


def lower_inner(network: Residual, potential: Integers, stop: StopFlag) -> None:
    """Until nothing falls any more, or there is a circle in which potentials would fall for ever."""
    for _ in range(SWEEPS_MAX):
        if polled(lower_sweep(network, potential, stop)) == 0:
            return


@kernel
def find_badly_placed(network: Residual, potential: Integers, found: Numbers, stop: StopFlag) -> int:
    """Write down the sources that use a way although a better one has room. How many: one more than there are places
    for if there are still more."""
    count = 0
    for node in range(len(potential)):
        if node % POLL_STEPS == 0 and stop[0] != 0:
            return STOPPED
        if is_source(network, node):
            best, worst = ways_of(network, potential, node)
            if worst > best:
                if count == len(found):
                    return count + 1
                found[count] = node
                count += 1
    return count


@kernel
def take_back(network: Residual, potential: Integers, sources: Numbers) -> None:
    """From ways that are dearer than the best that has room."""
    for node in sources:
        best, _ = ways_of(network, potential, node)
        for arc in range(network.first[node], network.first[node + 1]):
            if network.flow[arc] > 0 and network.cost[arc] + potential[network.head[arc]] > best:
                pull(network, arc, network.flow[arc])


@kernel
def price_sources(network: Residual, potential: Integers, lowest: bool, stop: StopFlag) -> int:
    """Give sources the highest potential with which their arcs fit. With the lowest one, if a source has nothing left
    to send, the places that it would like next may get cheaper by the difference before anything is to be repaired."""
    for node in range(len(potential)):
        if node % POLL_STEPS == 0 and stop[0] != 0:
            return STOPPED
        if is_source(network, node):
            best, worst = ways_of(network, potential, node)
            if lowest and network.excess[node] <= 0 and worst != -NOWHERE:
                potential[node] = worst
            elif best != NOWHERE:
                potential[node] = best
    return 0


@kernel
def drain_lacks(network: Residual, potential: Integers) -> None:
    """What inner nodes lack is taken back from what they send on, so that only sinks lack it."""
    for node in range(len(network.excess)):
        while network.excess[node] < 0 and not is_source(network, node):
            arc = dearest_used(network, potential, node)
            if arc < 0:
                break
            pull(network, arc, min(-network.excess[node], network.flow[arc]))


@kernel
def dearest_used(network: Residual, potential: Integers, node: int) -> int:
    """The used out-arc of a node on which to save most; −1 if there is none."""
    found = -1
    worst = -NOWHERE
    for arc in range(network.first[node], network.first[node + 1]):
        if network.flow[arc] > 0:
            reach = network.cost[arc] + potential[network.head[arc]]
            if reach > worst:
                found, worst = arc, reach
                if reach >= potential[node]:
                    break
    return found


@kernel
def largest_violation(network: Residual, potential: Integers) -> int:
    """By how much the reduced cost of a residual arc is below 0, at most."""
    worst = np.int64(0)
    for arc in range(len(network.tail)):
        reduced = network.cost[arc] - potential[network.tail[arc]] + potential[network.head[arc]]
        if network.room[arc] > 0:
            worst = max(worst, -reduced)
        if network.flow[arc] > 0:
            worst = max(worst, reduced)
    return int(worst)
