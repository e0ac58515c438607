"""Classes of tasks that may go to the same machines, with equal demands and limits in common: their own copies of the
policy's aggregators, and doors to machines where resources or limits bind (see `cluster_graph`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, ValuesView

from scheduler.flow.changes import Changes
from scheduler.flow.cluster_nodes import AggregatorNode, Door, Key, MachineNode, TaskClass, TaskNode
from scheduler.flow.fitting import copies
from scheduler.flow.groups_in_graph import GroupsInGraph
from scheduler.flow.kinds_in_graph import KindsInGraph
from scheduler.flow.network import FIRST_IN, NONE
from scheduler.flow.pipes import Pipes
from scheduler.flow.policies.policy import Aggregator, ArcTo, Task
from scheduler.flow.problem import ProblemError

CLASSES_MAX = 256
"""Beyond these, tasks have no arcs of their class: whether they fit is looked at when they have been placed."""
CLASSES_KEPT = 32
"""Without tasks, for those that come next."""
AGGREGATORS_KEPT = 64
"""To which nothing leads any more."""


class TaskClasses:
    """See the module's docstring. `arcs_of` asks the policy where an aggregator leads."""

    def __init__(
        self,
        changes: Changes,
        pipes: Pipes,
        machines: Mapping[str, MachineNode],
        kinds: KindsInGraph,
        groups: GroupsInGraph,
        arcs_of: Callable[[Aggregator], Sequence[ArcTo]],
    ) -> None:
        self._changes = changes
        self._pipes = pipes
        self._machines = machines
        self._kinds = kinds
        self._groups = groups
        self._arcs_of = arcs_of
        self.known: dict[Key, TaskClass] = {}
        """Those that were used last come last."""
        self._aggregators_kept = AGGREGATORS_KEPT
        self._dropped = False
        """Whether aggregators went since `purge`."""

    def values(self) -> ValuesView[TaskClass]:
        """All of them."""
        return self.known.values()

    def of(self, task: Task) -> TaskClass:
        """The task's class."""
        kind = task.kind if self._kinds.machines(task.kind) is not None else ""
        demand = tuple(sorted((name, amount) for name, amount in task.demand.items() if amount > 0))
        key = kind, demand, self._groups.limits_of(task)
        if key not in self.known and len(self.known) >= CLASSES_MAX:
            key = kind, (), ""
        found = self.known.pop(key, None) or TaskClass(key[0], dict(key[1]), key[2])
        self.known[key] = found
        return found

    def allows(self, kind: TaskClass, machine: str) -> bool:
        """Whether tasks of a class may ever go to a machine."""
        allowed = self._kinds.machines(kind.kind)
        return allowed is None or machine in allowed

    def head(self, kind: TaskClass, to: str | Aggregator, of: TaskNode | Aggregator) -> int | None:
        """The node to which an arc leads; None if there may be no such arc."""
        if isinstance(to, Aggregator):
            return self._aggregator(kind, to).node
        place = self._machines.get(to)
        if place is None:
            whose = of.task.name if isinstance(of, TaskNode) else f"{of.kind} {of.name}".rstrip()
            noun = "task" if isinstance(of, TaskNode) else "the aggregator"
            raise ProblemError(f"an arc of {noun} {whose} leads to the machine {to}; there is no such machine")
        if not self.allows(kind, to):
            return None
        if not kind.has_doors:
            return place.node
        door = kind.doors.get(to)
        if door is None:
            capacity = self._room(kind, to)
            node = self._changes.add_node()
            door = kind.doors[to] = Door(node, self._changes.add_arc(node, place.node, 0, capacity), capacity)
        return door.node

    # ---- what has changed --------------------------------------------------------------------

    def machine_gone(self, name: str) -> None:
        """With its doors."""
        for kind in self.values():
            door = kind.doors.pop(name, None)
            if door is not None:
                self._changes.remove_node(door.node)

    def refresh(self) -> None:
        """Ask where all aggregators lead."""
        for kind in self.values():
            for aggregator in list(kind.aggregators):
                self._refresh(kind, aggregator)

    def refresh_kinds(self, names: set[str]) -> None:
        """Those kinds have other machines."""
        for key, kind in list(self.known.items()) if names else ():
            if kind.kind not in names:
                continue
            if kind.tasks == 0:
                self._drop(key)
            else:
                for aggregator in list(kind.aggregators):
                    self._refresh(kind, aggregator)

    def follow(self, machine: str, arcs: Mapping[Aggregator, ArcTo]) -> None:
        """A machine has changed; so the arcs to it are."""
        for aggregator, arc in arcs.items():
            for kind in self.values():
                node = kind.aggregators.get(aggregator)
                if node is not None:
                    self._lead(kind, node, (machine, 0), arc, aggregator)

    def fit_doors(self, machine: str) -> None:
        """To a machine that has other slots or resources than before."""
        for kind in self.values():
            if machine in kind.doors:
                self.set_door(kind.doors[machine], self._room(kind, machine))

    def fit_groups(self, names: set[str]) -> None:
        """Doors of these groups, which have other room."""
        for kind in self.values() if names else ():
            if kind.group in names:
                for machine, door in kind.doors.items():
                    self.set_door(door, self._room(kind, machine))

    def set_door(self, door: Door, capacity: int) -> None:
        """So many may pass."""
        if door.capacity != capacity:
            door.capacity = capacity
            self._changes.set_capacity(door.arc, capacity)

    def purge(self, kinds_gone: set[str]) -> set[Aggregator] | None:
        """Classes and aggregators that no task needs go; those that were needed last stay, but for those of kinds and
        groups that have gone. The aggregators that are left; None if they may be those that there were."""
        for key, one in list(self.known.items()):
            if one.tasks == 0 and (key[0] in kinds_gone or (key[2] and key[2] not in self._groups.known)):
                self._drop(key)
        unused = [key for key, kind in self.known.items() if kind.tasks == 0]
        for key in unused[: max(0, len(unused) - CLASSES_KEPT)]:
            self._drop(key)
        if sum(len(kind.aggregators) for kind in self.values()) > self._aggregators_kept:
            for kind in self.values():
                self._drop_unused_aggregators(kind)
            self._aggregators_kept = AGGREGATORS_KEPT + 2 * sum(len(kind.aggregators) for kind in self.values())
            self._dropped = True
        dropped, self._dropped = self._dropped, False
        return {name for kind in self.values() for name in kind.aggregators} if dropped else None

    # ---- aggregators and doors ---------------------------------------------------------------

    def _drop(self, key: Key) -> None:
        kind = self.known.pop(key)
        for aggregator in kind.aggregators.values():
            self._drop_aggregator(aggregator)
        for door in kind.doors.values():
            self._changes.remove_node(door.node)
        self._dropped = True

    def _drop_aggregator(self, aggregator: AggregatorNode) -> None:
        for pipe in aggregator.pipes.values():
            self._pipes.forget(pipe)
        self._changes.remove_node(aggregator.node)

    def _drop_unused_aggregators(self, kind: TaskClass) -> None:
        """Those to which nothing leads."""
        graph = self._changes.graph
        first_in = graph.network.nodes[FIRST_IN]
        for name, aggregator in list(kind.aggregators.items()):
            if graph.has_node(aggregator.node) and first_in[aggregator.node] == NONE:
                self._drop_aggregator(kind.aggregators.pop(name))

    def _aggregator(self, kind: TaskClass, aggregator: Aggregator) -> AggregatorNode:
        known = kind.aggregators.get(aggregator)
        if known is None:
            known = kind.aggregators[aggregator] = AggregatorNode(self._changes.add_node())
            self._refresh(kind, aggregator)
        return known

    def _refresh(self, kind: TaskClass, aggregator: Aggregator) -> None:
        """Ask where an aggregator leads, and have it lead there."""
        node = kind.aggregators[aggregator]
        wanted: dict[tuple[str | Aggregator, int], ArcTo] = {}
        for arc in self._arcs_of(aggregator):
            number = 0
            while (arc.to, number) in wanted:
                number += 1
            wanted[arc.to, number] = arc
        for key in [key for key in node.pipes if key not in wanted]:
            self._pipes.remove(node.pipes.pop(key))
        for key, arc in wanted.items():
            self._lead(kind, node, key, arc, aggregator)

    def _lead(
        self, kind: TaskClass, node: AggregatorNode, key: tuple[str | Aggregator, int], arc: ArcTo, of: Aggregator
    ) -> None:
        head = self.head(kind, arc.to, of)
        pipe = node.pipes.get(key)
        if pipe is not None and pipe.head != head:
            self._pipes.remove(node.pipes.pop(key))
            pipe = None
        if pipe is not None:
            self._pipes.change(pipe, arc.cost, arc.capacity)
        elif head is not None:
            node.pipes[key] = self._pipes.add(node.node, head, arc.cost, arc.capacity)

    def _room(self, kind: TaskClass, machine: str) -> int:
        """How many tasks of a class fit into what a machine has left, and the group's limits let there."""
        place = self._machines[machine]
        most = place.machine.slots
        fitting = copies(place.left(), kind.demand)
        if fitting is not None:
            most = min(most, fitting)
        return min(most, self._groups.room(kind.group, machine)) if kind.group else most
