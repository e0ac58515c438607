"""A policy whose mistakes about one task are that task's alone: it waits, and the round goes on without it.

What a policy says of a task may depend on what users state, and policies are others' code: one that raises for a task,
or says of it what cannot be, must not lose the round for everybody. What it gets wrong beside tasks does.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path

from scheduler.flow.cluster_changes import ClusterChanges, Mistake, Placed
from scheduler.flow.cluster_network import ClusterNetwork, Explanation
from scheduler.flow.limits import cost_max
from scheduler.flow.policies.policy import (
    AGE_S_MAX,
    Aggregator,
    ArcTo,
    Cluster,
    Machine,
    Policy,
    Task,
    TaskCosts,
    UnitCost,
)
from scheduler.flow.problem import Problem, ProblemError
from scheduler.flow.solvers.stopping import StopFlag

NOWHERE = TaskCosts((), 0, waiting_per_s=0.0, running_per_s=0.0, asks_again=())
"""Of a task of which the policy says nothing: it waits for nothing, or stays where it runs."""
ERROR_CHARS_MAX = 500
"""Of an error's text that is kept."""


class GuardedPolicy:
    """See the module's docstring. Whatever else the policy has, this has, too."""

    def __init__(self, policy: Policy) -> None:
        self.cost_max = cost_max(1)
        """The largest cost, up or down, that is allowed."""
        self._policy = policy
        self._machines: Mapping[str, Machine] = {}
        self._mistakes: dict[str, Mistake] = {}
        for name in dir(policy):  # As instances' own attributes: so checks for protocols find them.
            if not name.startswith("_") and not hasattr(self, name) and callable(found := getattr(policy, name)):
                setattr(self, name, found)

    def take_mistakes(self) -> dict[str, Mistake]:
        """By task, those that were made since this was asked last."""
        mistakes, self._mistakes = self._mistakes, {}
        return mistakes

    def see(self, cluster: Cluster) -> None:
        """See `Policy`, as the others."""
        self._machines = cluster.machines
        self._policy.see(cluster)

    def task(self, task: Task) -> TaskCosts:
        try:
            costs = self._policy.task(task)
            self._check(costs)
        except Exception as error:
            self._mistakes.setdefault(task.name, self._mistake(error))
            return NOWHERE
        return costs

    def machine_cost(self, machine: Machine) -> UnitCost:
        return self._policy.machine_cost(machine)

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        return self._policy.aggregator_arcs(aggregator)

    def _check(self, costs: TaskCosts) -> None:
        """Raise whatever is wrong with them."""
        most = self.cost_max
        if not isinstance(costs, TaskCosts):
            raise ProblemError(f"task() returns {costs!r}; allowed are TaskCosts")
        for arc in costs.arcs:
            cost: object = arc.cost
            if callable(cost):
                cost = cost(0)
            elif not isinstance(cost, int):
                raise ProblemError(f"an arc to {arc.to} costs {cost!r}; costs are whole numbers, or functions")
            if fault := self._fault_of(cost):
                raise ProblemError(f"an arc to {arc.to} costs {fault}")
            if isinstance(arc.to, str) and arc.to not in self._machines:
                raise ProblemError(f"an arc leads to the machine {arc.to}; there is no such machine")
        for name, cost in (("waiting", costs.waiting), ("running", costs.running)):
            if fault := self._fault_of(cost):
                raise ProblemError(f"{name} is {fault}")
        for name, per_s in (("waiting_per_s", costs.waiting_per_s), ("running_per_s", costs.running_per_s)):
            if per_s is None:
                continue
            if not (isinstance(per_s, float | Real) and math.isfinite(per_s) and abs(per_s) * AGE_S_MAX <= most):
                words = f"allowed are numbers up to {most / AGE_S_MAX:g}, up or down"
                raise ProblemError(f"{name} is {per_s!r}; {words}")

    def _fault_of(self, cost: object) -> str:
        """What is wrong with a cost, which the answer begins with; "" if nothing is."""
        if not isinstance(cost, int | Integral):  # The second of which numpy's are.
            return f"{cost!r}; costs are whole numbers"
        if not -self.cost_max <= int(cost) <= self.cost_max:
            return f"{int(cost):,}; allowed are {-self.cost_max:,} to {self.cost_max:,}"
        return ""

    def _mistake(self, error: Exception) -> Mistake:
        """What is told of it: the error in one line, and where it was raised: in others' code, or else by whose policy
        that was."""
        said = str(error) if isinstance(error, ProblemError) else f"{type(error).__name__}: {error}"
        text = " ".join(said.split())
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        if last.filename == __file__:
            where = f"{type(self._policy).__module__}:{type(self._policy).__qualname__}"
        return Mistake(text[:ERROR_CHARS_MAX], where)


class GuardedNetwork:
    """A network of a cluster whose policy is guarded: what it gets wrong of tasks is told with the answer."""

    def __init__(self, policy: Policy, *, keeps_running: bool = False) -> None:
        self._policy = GuardedPolicy(policy)
        self._network = ClusterNetwork(self._policy, keeps_running=keeps_running)

    def round(self, changes: ClusterChanges, stop: StopFlag | None = None) -> Placed:
        """See `ClusterNetwork`, as the others."""
        nodes = self._network.graph.nodes + len(changes.tasks) + len(changes.machines)
        self._policy.cost_max = cost_max(2 * nodes)
        self._policy.take_mistakes()
        placed = self._network.round(changes, stop)
        placed.mistakes.update(self._policy.take_mistakes())
        return placed

    def explain(self, task: str) -> Explanation:
        return self._network.explain(task)

    def dump(self) -> Problem:
        return self._network.dump()
