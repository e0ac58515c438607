"""CPU time of the flow solver on one cluster, cold and in rounds: so many tasks arrive, as many end, all others age.

python -m benchmarks.flow_rounds --machines 12500 --events 100 --rounds 20
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import click
import numpy as np

from scheduler.flow.changes import Changes
from scheduler.flow.extract import Placements, extract, settle
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.network import NONE
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.warm_up import warm_up
from tests.support.flow_problems import QuincyGraph, quincy_graph

Result = TypeVar("Result")

FIRST_ROUNDS = 3
"""Not counted: in them tasks move whose place was not the best, and memory is touched for the first time."""
PARTS = ("ageing", "changes", "solve", "extraction")


class Cluster:
    """A graph in which tasks run, and the arcs on which they do."""

    def __init__(self, quincy: QuincyGraph, *, prioritised: bool, drains: bool) -> None:
        self.quincy = quincy
        self.drains = drains
        self.chance = np.random.default_rng(1)
        kinds = np.full(len(quincy.problem.supply), Kind.OTHER, np.int64)
        kinds[quincy.sink] = Kind.SINK
        kinds[list(quincy.machines)] = Kind.MACHINE
        kinds[list(quincy.waiting)] = Kind.UNSCHEDULED
        kinds[list(quincy.tasks)] = Kind.TASK
        self.graph = FlowGraph.of(quincy.problem, kinds)
        self.solver = Relaxation(self.graph, prioritised=prioritised, drains=drains)
        self.changes = Changes(self.graph, quincy.sink)
        runs = np.flatnonzero(quincy.running_on >= 0)
        self.running_arc = np.full(2 * len(kinds), NONE, np.int64)
        """By node: a task's running arc, or -1."""
        self.running_arc[quincy.tasks[0] + runs] = quincy.first_arc[runs + 1] - 1
        self.patterns = np.flatnonzero(quincy.running_on < 0)

    def age(self) -> None:
        """A second more that all tasks have run."""
        arcs = self.running_arc[self.running_arc >= 0]
        self.changes.set_costs(arcs, self.graph.cost[arcs] - 1)

    def happen(self, events: int) -> None:
        """Tasks end, and others like those that waited at first arrive."""
        running = np.flatnonzero(self.running_arc >= 0)
        for task in self.chance.choice(running, events, replace=False).tolist():
            self.changes.remove_node(task)
            self.running_arc[task] = NONE
        problem, first_arc = self.quincy.problem, self.quincy.first_arc
        for pattern in self.chance.choice(self.patterns, events).tolist():
            task = self.changes.add_node(1, Kind.TASK)
            for arc in range(int(first_arc[pattern]), int(first_arc[pattern + 1])):
                head = int(problem.head[arc])
                self.changes.add_arc(task, head, int(problem.cost[arc]), 1)
                if head in self.quincy.waiting:
                    below = self.graph.out_arcs(head)[0]
                    self.changes.set_capacity(below, len(running) + events)
        self.changes.apply(drains=self.drains)

    def place(self) -> Placements:
        """Where tasks go. Those that run elsewhere till now, or nowhere, get running arcs, cheaper than their way."""
        placements = extract(self.graph)
        moved = np.flatnonzero((placements.arc >= 0) & (placements.arc != self.running_arc[: len(placements.arc)]))
        old = self.running_arc[moved]
        for arc in old[old >= 0].tolist():
            self.changes.remove_arc(arc)
        placed = placements.machine[moved] >= 0
        self.running_arc[moved[~placed]] = NONE
        new = moved[placed]
        costs = self.graph.potential[new] - self.graph.potential[placements.machine[new]] - 1
        self.running_arc[new] = settle(self.graph, placements, new, costs)
        return placements


def timed(step: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds of a step."""
    start = time.process_time()
    result = step()
    return time.process_time() - start, result


def percentile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return 1000 * float(np.percentile(values, share))


@click.command()
@click.option("--machines", default=12_500, show_default=True)
@click.option("--events", default=100, show_default=True, help="Tasks that arrive, and that end, in a round.")
@click.option("--rounds", default=20, show_default=True)
@click.option("--skew", default=0.0, show_default=True, help="How unequally machines are liked.")
@click.option("--prioritised/--not-prioritised", default=True, help="Arc prioritisation.")
@click.option("--drains/--keeps", default=True, help="Efficient task removal.")
def main(machines: int, events: int, rounds: int, skew: float, prioritised: bool, drains: bool) -> None:
    """Print CPU times of a cold solve, and of the parts of rounds."""
    warm_up()
    quincy = quincy_graph(machines, skew=skew)
    build_s, cluster = timed(lambda: Cluster(quincy, prioritised=prioritised, drains=drains))
    cold_s, round_ = timed(cluster.solver.solve)
    extract_s, _ = timed(lambda: extract(cluster.graph))
    cluster.place()
    arcs = int(np.count_nonzero(cluster.graph.capacity))
    print(f"{machines} machines, {cluster.graph.nodes} nodes, {arcs} arcs")
    print(f"build {build_s:.3f} s, cold {cold_s:.3f} s {round_}, extraction {extract_s:.3f} s")
    parts: dict[str, list[float]] = {part: [] for part in PARTS}
    for number in range(FIRST_ROUNDS + rounds):
        seconds = [timed(cluster.age)[0], timed(lambda: cluster.happen(events))[0]]
        solve_s, round_ = timed(cluster.solver.solve)
        seconds += [solve_s, timed(cluster.place)[0]]
        for part, one in zip(PARTS, seconds, strict=True):
            if number >= FIRST_ROUNDS:
                parts[part].append(one)
    parts["all"] = [sum(each) for each in zip(*(parts[part] for part in PARTS), strict=True)]
    for part, values in parts.items():
        print(
            f"{part:10} median {1000 * statistics.median(values):6.1f} ms, p90 {percentile(values, 90):6.1f}, "
            f"largest {1000 * max(values):6.1f}"
        )
    print(f"last round: {round_}")


if __name__ == "__main__":
    main()
