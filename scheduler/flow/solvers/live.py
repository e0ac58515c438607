"""Two solvers race on a graph that lasts: relaxation on the graph itself, cost scaling on a copy, each in a thread.

The second starts only once the first has taken twice its usual time: on most rounds it never does, and two threads on
few cores take each other's time. The first to finish stops the other; if that is cost scaling, the graph takes over its
flow and potentials, and the next round goes on from these. A solve that is stopped leaves the graph so that the next
one goes on from there.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from scheduler.flow.graph import FlowGraph
from scheduler.flow.problem import Solution, StoppedError
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.race import LOOK_AT_FLAG_S
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.solvers.stopping import StopFlag, stop_flag

RELAXATION, COST_SCALING, NOTHING = "relaxation", "cost-scaling", ""
SECOND_AFTER_S = 0.1
USUAL_TIMES = 2
"""The second starts after so many times the first's usual time."""
MEMORY = 0.9
"""Of the usual time: how much of it a solve leaves as it was."""


class LiveRace:
    """The solvers of one graph. `second_after_s`: cost scaling starts no earlier; infinity: never."""

    def __init__(self, graph: FlowGraph, *, second_after_s: float = SECOND_AFTER_S) -> None:
        self.graph = graph
        self.second_after_s = second_after_s
        self.relaxation = Relaxation(graph)
        self.wins: Counter[str] = Counter()
        self.spent_s = 0.0
        """How long all solves together took."""
        self.usual_s = 0.0
        """How long relaxation takes where it wins."""

    def solve(self, stop: StopFlag | None = None) -> str:
        """Make the graph's flow one of least cost; who did. `InfeasibleError`; `StoppedError`."""
        if self.graph.is_settled():
            return NOTHING
        if stop is not None and stop[0] != 0:
            raise StoppedError("the race was told to stop")
        start_s = time.monotonic()
        try:
            if self.second_after_s == float("inf"):
                self.relaxation.solve(stop)
                winner = RELAXATION
            else:
                winner = _Heat(self, stop).run()
        finally:
            self.spent_s += time.monotonic() - start_s
        self.wins[winner] += 1
        return winner

    def took(self, seconds: float) -> None:
        """How long relaxation did, when it won."""
        self.usual_s = MEMORY * self.usual_s + (1 - MEMORY) * seconds if self.usual_s else seconds


class _Heat:
    """One race."""

    def __init__(self, race: LiveRace, stop: StopFlag | None) -> None:
        self.race = race
        self.stop = stop
        self.first_flag, self.second_flag = stop_flag(), stop_flag()
        self.over = threading.Event()
        """Relaxation has ended."""
        self.second: Solution | None = None

    def run(self) -> str:
        """Relaxation in this thread, and beside it one that waits and watches."""
        race = self.race
        beside = threading.Thread(target=self._beside, name="flow solver", daemon=True)
        start_s = time.monotonic()
        beside.start()
        try:
            race.relaxation.solve(self.first_flag)
            race.took(time.monotonic() - start_s)
            return RELAXATION
        except StoppedError:
            if self.second is None:
                raise
        finally:
            self.second_flag[0] = 1
            self.over.set()
            beside.join()
        race.graph.adopt(self.second)
        return COST_SCALING

    def _beside(self) -> None:
        """Start cost scaling when it is time, and pass on that both shall stop."""
        second: threading.Thread | None = None
        start_s = time.monotonic()
        starts_s = max(self.race.second_after_s, USUAL_TIMES * self.race.usual_s)
        while True:
            left_s = starts_s - (time.monotonic() - start_s)
            if second is None and left_s <= 0:
                second = threading.Thread(target=self._scale, name="flow solver 2", daemon=True)
                second.start()
            wait_s = LOOK_AT_FLAG_S if self.stop is not None or second is not None else left_s
            if self.over.wait(wait_s if second is not None else min(wait_s, max(left_s, 0.0))):
                break
            if self.stop is not None and self.stop[0] != 0:
                self.first_flag[0] = self.second_flag[0] = 1
        if second is not None:
            second.join()

    def _scale(self) -> None:
        """Cost scaling. Relaxation changes the flow meanwhile: what is read of it is a start like any other."""
        graph = self.race.graph
        try:
            found = cost_scaling.solve(graph.problem(), graph.solution(), self.second_flag)
        except Exception:  # Relaxation goes on alone; it will say what is wrong with the problem, if anything is.
            return
        self.second = found
        self.first_flag[0] = 1
