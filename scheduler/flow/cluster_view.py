"""The cluster as a flow plane sees it: what is free at each node, by the plane's own count.

What is free at a node is counted anew whenever something happened there (`scheduler.lane_room`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scheduler.flow.cluster_changes import Share
from scheduler.flow.policies.policy import Machine
from scheduler.flow.stage_plan import expected_of, stage_name
from scheduler.lane_room import ROUNDING, LaneRoom, takes_tasks

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node
    from scheduler.flow.profiles import Profiles
    from scheduler.plane import BookForPlane
    from sparrow_py.wire.messages import NodeInfo

RACK = "rack"
"""The attribute that names a node's rack."""
LOAD_STEPS: Mapping[str, float] = {
    "cpu": 0.1,
    "memory_bytes": 64 * 2**20,
    "net_in_bytes_per_s": 1e6,
    "net_out_bytes_per_s": 1e6,
}
"""What costs distinguish: a tenth of a task under load spreading, 1 of network-aware's units. A machine whose load is
within a step of what the network was told is no changed one, or rounds would cost as much as the cluster is large."""
DIGITS = 9
"""Of free resources after the point, as the network is told: the same sum in another order is the same."""


def rack_of(node: Node) -> str:
    """The node's rack; nodes that name none are all in one."""
    return node.attributes.get(RACK, "")


class ClusterView(LaneRoom):
    """See the module's docstring."""

    def __init__(self, book: BookForPlane, profiles: Profiles, *, keeps_running: bool) -> None:
        super().__init__()
        self._book = book
        self._profiles = profiles
        self._keeps_running = keeps_running
        """Whether the network has the tasks that run, and takes what they hold from the machines by itself."""
        self._changed: dict[str, None] = {}
        """Nodes at which something happened since the network was told of them."""
        self._offers: dict[str, NodeInfo] = {}
        """By machine that the network was told of: what the node said of itself."""
        self._touched: set[str] = set()
        """Machines that came, went, or offer other things, since that was asked last."""
        self.machines: dict[str, Machine] = {}
        """As the network was told."""
        self._users: dict[str, Counter[str]] = {}
        """By node: how many tasks of each user it has that are no part of the network."""
        self.running: Counter[str] = Counter()
        """By user, over all nodes. (Those in the network it counts itself.)"""
        self.kept_for: StageState | None = None
        """A gang for which slots are kept free."""
        self.kept: dict[str, int] = {}
        """By node: how many that are."""
        self.version = 0
        """Changes whenever machines come or go."""

    # ---- what is free ------------------------------------------------------------------------

    def keep(self, stage: StageState | None, slots: dict[str, int]) -> None:
        """Let nobody but this stage have so many slots of these nodes, those that are free and those that get so."""
        for node_id in slots.keys() | self.kept.keys():
            if slots.get(node_id) != self.kept.get(node_id):
                self.changed(node_id)
        self.kept_for, self.kept = stage, slots

    def room_for(
        self, node: Node, demand: tuple[tuple[str, float], ...], tasks: int = 1, stage: StageState | None = None
    ) -> bool:
        """Whether so many tasks with this demand, of this stage, fit there now."""
        kept = 0 if stage is not None and stage is self.kept_for else self.kept.get(node.id, 0)
        if self.slots_free(node) - kept < tasks:
            return False
        return not self.lacks(node, demand, tasks)

    def lacks(self, node: Node, demand: tuple[tuple[str, float], ...], tasks: int = 1) -> list[str]:
        """Names of resources of which so many tasks with this demand need more than is left there."""
        if not demand:
            return []
        free, offered = self.free(node), node.info.resources
        return [name for name, much in demand if free.get(name, 0.0) < tasks * much - ROUNDING * offered.get(name, 0.0)]

    # ---- what happens at nodes ---------------------------------------------------------------

    def changed(self, node_id: str) -> None:
        """Something happened at the node."""
        self._changed[node_id] = None

    def load_told(self, node: Node) -> bool:
        self.changed(node.id)
        return super().load_told(node)

    def adopted(self, attempt: Attempt) -> None:
        super().adopted(attempt)
        self.changed(attempt.node_id)

    def gone(self, node_id: str) -> None:
        super().gone(node_id)
        self.changed(node_id)

    def forget_told(self) -> None:
        """The network is a new one, and knows nothing."""
        self.machines.clear()
        self._offers.clear()
        self._touched.clear()
        self._changed = dict.fromkeys(node.id for node in self._book.nodes.all())
        self.version += 1

    # ---- what the network is told ------------------------------------------------------------

    def take_changes(self) -> tuple[list[str], list[Machine]]:
        """Machines that are gone, and those that are new or have changed, since this was asked last."""
        gone, machines, nodes = [], [], self._book.nodes
        expected: dict[StageState, tuple[tuple[str, float], ...]] = {}
        for node_id in self._changed:
            node = nodes.get(node_id)
            self._count_users(node_id, node)
            before = self.machines.get(node_id)
            if node is None or not takes_tasks(node):
                if before is not None:
                    del self.machines[node_id], self._offers[node_id]
                    self._touched.add(node_id)
                    gone.append(node_id)
                    self.version += 1
                continue
            if self._offers.get(node_id) is not node.info:
                self._offers[node_id] = node.info
                self._touched.add(node_id)
            machine = self._machine(node, expected)
            if machine != before:
                self.machines[node_id] = machine
                machines.append(machine)
                self.version += before is None
        self._changed.clear()
        return gone, machines

    def take_touched(self) -> set[str]:
        """Machines that kinds of tasks have to look at again: those that came or went, or offer other things, since
        this was asked last."""
        touched, self._touched = self._touched, set()
        return touched

    def duration_s(self, stage: StageState) -> float | None:
        """How long a task of the stage takes, as far as is known: what its user says, or more if tasks took more."""
        learned_s = self._profiles.duration_s(stage.job.user, stage.spec.app, stage_name(stage))
        return max((one for one in (learned_s, stage.spec.expected_duration_s) if one is not None), default=None)

    def shares(self, users: set[str]) -> dict[str, Share]:
        """Of users that have tasks in the network."""
        weight = self._book.options.weight
        return {user: Share(weight(user), self.running[user]) for user in sorted(users)}

    def _machine(self, node: Node, expected: dict[StageState, tuple[tuple[str, float], ...]]) -> Machine:
        """`expected`: of a task of each stage, as far as it was looked up."""
        slots, free = self._for_network(node)
        free = {name: max(0.0, round(amount, DIGITS)) for name, amount in free.items()}
        return Machine(
            node.id, rack_of(node), slots, free, len(node.attempts), dict(node.attributes), self._measured(node),
            self._expected(node, expected),
        )  # fmt: skip

    def _measured(self, node: Node) -> dict[str, float]:
        """What the node measures, in whole steps; as the network was told, where that is about the same."""
        told = self.machines.get(node.id)
        before = told.load if told is not None else {}
        measured: dict[str, float] = {}
        for name, step in LOAD_STEPS.items():
            figure = getattr(node.load, name, None)
            if figure is not None:
                is_same = name in before and abs(figure - before[name]) < step
                measured[name] = before[name] if is_same else step * round(figure / step)
        return measured

    def _expected(self, node: Node, expected: dict[StageState, tuple[tuple[str, float], ...]]) -> dict[str, float]:
        """What our tasks there are expected to use."""
        found: dict[str, float] = {}
        for attempt in node.attempts:
            stage = attempt.stage
            if stage not in expected:
                expected[stage] = tuple(expected_of(stage, self._profiles).items())
            for name, amount in expected[stage]:
                found[name] = found.get(name, 0.0) + amount
        return found

    def _for_network(self, node: Node) -> tuple[int, dict[str, float]]:
        """Slots and resources for the tasks that the network has, those that run among them, if it has these."""
        kept = min(self.kept.get(node.id, 0), self.slots_free(node))
        if not self._keeps_running:
            return self.slots_free(node) - kept, self.free(node)
        slots, free = self.lane_slots(node) - self.strangers(node).slots - kept, self.without_strangers(node)
        running = 0
        for attempt in node.attempts:
            if self._is_in_network(attempt):
                running += 1
                continue
            slots -= 1
            for name, amount in attempt.stage.kind.demand:
                free[name] = free.get(name, 0.0) - amount
        return max(running, slots), free  # If its lane has become smaller, nobody gains by stopping what runs.

    def _is_in_network(self, attempt: Attempt) -> bool:
        """Whether the network has the task, as one that runs."""
        return self._keeps_running and bool(attempt.stage.plan.running.get(attempt.task) == attempt.node_id)

    def _count_users(self, node_id: str, node: Node | None) -> None:
        outside = [one for one in node.attempts if not self._is_in_network(one)] if node is not None else []
        users = Counter(attempt.stage.job.user for attempt in outside)
        before = self._users.pop(node_id, None)
        if before is not None:
            self.running.subtract(before)
        if users:
            self._users[node_id] = users
            self.running.update(users)
        for user in before or ():
            if not self.running[user]:
                del self.running[user]
