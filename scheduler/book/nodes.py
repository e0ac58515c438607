"""The nodes that a scheduler knows, and which of them may run a stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparrow_py import constraints
from sparrow_py.wire.messages import PROTOCOL_VERSION, READY, SINCE, LaunchPlaced, NodeInfo, NodeLoad

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt
    from scheduler.book.kinds import Kind

KINDS_MAX = 10_000
"""Kinds of stages whose eligible nodes are kept at hand; beyond it they are found anew."""


class Node:
    """One connected node monitor, as its scheduler sees it."""

    __slots__ = (
        "attempts", "attributes", "id", "info", "launched", "load", "memory", "occupied", "places", "sent", "state",
    )  # fmt: skip

    def __init__(self, node_id: str, info: NodeInfo, version: int = PROTOCOL_VERSION) -> None:
        self.id = node_id
        self.places = version >= SINCE[LaunchPlaced]
        """Whether it has a lane for placed tasks, and can preempt."""
        self.load: NodeLoad | None = None
        """What it has left and what is measured there, as it said last; only nodes that this scheduler has sent a
        `Lead` say so."""
        self.occupied = 0
        """Slots that placed tasks hold there for long, those of other schedulers included."""
        self.memory = info.memory
        """Id of one run of the node monitor's process, and so of what that remembers of tasks: after a restart it has
        another. Empty if it remembers nothing."""
        self.state = READY
        self.attempts: set[Attempt] = set()
        """Attempts launched here whose outcome is not known."""
        self.launched = 0
        """All attempts that this scheduler has launched here since the node has come."""
        self.sent: dict[str, set[int]] = {}
        """Job id to what of the job was sent here: -1 - stage for a stage's common bytes, task for a task's result."""
        self.learn(info)

    def learn(self, info: NodeInfo) -> None:
        """What the node says of itself."""
        self.info = info
        self.attributes = {**info.attributes, "node": self.id}

    def why_not(self, kind: Kind) -> tuple[str, str] | None:
        """(field, reason) if this node could never run stages of the kind, whatever its state."""
        info = self.info
        if kind.app not in info.apps:
            return "app", f"its {kind.app} does not start" if kind.app in info.withdrawn else f"no app {kind.app!r}"
        if kind.runtime and info.apps[kind.app] != kind.runtime:
            return "runtime", f"its {kind.app} is {info.apps[kind.app]}"
        return self.lacks(kind)

    def lacks(self, kind: Kind) -> tuple[str, str] | None:
        """As `why_not`, of the node itself, whatever its executors are."""
        for constraint in kind.where:
            if not constraints.holds(constraint, self.attributes):
                value = self.attributes.get(constraint.attribute)
                return "where", f"{constraint.attribute} {'unset' if value is None else value}"
        if kind.avoid_by and kind.avoid_by not in self.attributes:
            return "avoid_by", f"{kind.avoid_by} unset"
        for name, amount in kind.demand:
            if self.info.resources.get(name, 0.0) < amount:
                return "demand", f"{self.info.resources.get(name, 0.0):g} {name}"
        return None


class Nodes:
    """All connected nodes, with the eligible ones of each kind of stage kept at hand."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self.by_id: Mapping[str, Node] = self._nodes
        """For loops over many of them."""
        self.at_address: dict[str, dict[str, None]] = {}
        """Ids of the connected nodes by the address where their large data are."""
        self.occupied: dict[str, float] = {}
        """Node id to the share of its slots that placed tasks hold; those that hold none are left out."""
        self._eligible: dict[Kind, list[str]] = {}
        self._eligible_sets: dict[Kind, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def __getitem__(self, node_id: str) -> Node:
        return self._nodes[node_id]

    def get(self, node_id: str) -> Node | None:
        """The node, or None if it is not connected."""
        return self._nodes.get(node_id)

    def all(self) -> list[Node]:
        """Every connected node, draining ones included."""
        return list(self._nodes.values())

    def add(self, node: Node) -> None:
        """A node has come."""
        self._nodes[node.id] = node
        self.at_address.setdefault(node.info.address, {})[node.id] = None
        self.changed()

    def learn(self, node: Node, info: NodeInfo) -> None:
        """What a node says of itself has changed."""
        self._leave_address(node)
        node.learn(info)
        self.at_address.setdefault(info.address, {})[node.id] = None
        self.changed()

    def _leave_address(self, node: Node) -> None:
        there = self.at_address[node.info.address]
        del there[node.id]
        if not there:
            del self.at_address[node.info.address]

    def remove(self, node_id: str) -> Node:
        """A node has gone."""
        self.changed()
        self.occupied.pop(node_id, None)
        node = self._nodes.pop(node_id)
        self._leave_address(node)
        return node

    def occupy(self, node: Node, slots: int) -> None:
        """Placed tasks hold so many of the node's slots. It may be given tasks as before: it is only less likely to be
        chosen. So nothing is found anew, as many nodes say so all the time."""
        node.occupied = slots
        if slots:
            self.occupied[node.id] = slots / node.info.slots
        else:
            self.occupied.pop(node.id, None)

    def changed(self) -> None:
        """What a node offers, or its state, changed."""
        self._eligible.clear()
        self._eligible_sets.clear()

    def eligible(self, kind: Kind) -> list[str]:
        """Ids of the nodes that may be given reservations of this kind now. The list is shared: don't change it."""
        found = self._eligible.get(kind)
        if found is None:
            if len(self._eligible) >= KINDS_MAX:
                self._eligible.clear()
            found = self._eligible[kind] = [
                node.id
                for node in self._nodes.values()
                if node.state == READY and node.info.slots > 0 and node.why_not(kind) is None
            ]
        return found

    def eligible_set(self, kind: Kind) -> frozenset[str]:
        """As `eligible`, to look one up."""
        found = self._eligible_sets.get(kind)
        if found is None:
            if len(self._eligible_sets) >= KINDS_MAX:
                self._eligible_sets.clear()
            found = self._eligible_sets[kind] = frozenset(self.eligible(kind))
        return found

    def could_run(self, kind: Kind, among: Collection[str] | None = None) -> bool:
        """Whether some connected node, of these if some are given, has what the kind asks for."""
        nodes = self._nodes.values() if among is None else [self._nodes[node] for node in among if node in self._nodes]
        return any(node.why_not(kind) is None for node in nodes)

    def why_withdrawn(self, kind: Kind) -> str:
        """Why nodes that should run stages of the kind do not, as of one of them; empty if there are none."""
        app = kind.app
        reasons = {
            node.id: node.info.withdrawn[app]
            for node in self._nodes.values()
            if app in node.info.withdrawn and node.lacks(kind) is None
        }
        if not reasons:
            return ""
        first, *others = sorted(reasons)
        also = f" (nor on {len(others)} more)" if others else ""
        return f"the executors of app {app!r} do not start on {first}{also}: {reasons[first]}"

    def why_none_could(self, kind: Kind) -> tuple[str, str] | None:
        """(field, reason) if nodes are connected and none has what the kind asks for; None otherwise.

        There is no field where nothing is wrong with the job: nodes have what it asks for, and it does not start there.
        """
        if self._eligible.get(kind) or not self._nodes or self.could_run(kind):
            return None
        withdrawn = self.why_withdrawn(kind)
        if withdrawn:
            return "", withdrawn
        nodes = self._nodes.values()
        offered = sorted({name for node in nodes for name in node.info.apps})
        if kind.app not in offered:
            have = f"apps offered: {', '.join(offered)}" if offered else "they offer no app"
            return "app", f"no node monitor runs the app {kind.app!r}; {have}"
        runtimes = sorted({node.info.apps[kind.app] for node in nodes if kind.app in node.info.apps})
        if kind.runtime and kind.runtime not in runtimes:
            return "runtime", (
                f"the client's {kind.app} is {kind.runtime} and the node monitors' is {', '.join(runtimes)}; "
                f"what one pickles the other cannot be relied on to read"
            )
        reasons = [reason for node in nodes if (reason := node.why_not(kind)) is not None]
        lacking = {name for name, _ in reasons}
        field = next((name for name in ("demand", "avoid_by") if name in lacking), "where")
        examples = "; ".join(sorted({text for name, text in reasons if name == field})[:3])
        wanted = {
            "demand": ", ".join(f"{amount:g} {name}" for name, amount in kind.demand),
            "avoid_by": f"{kind.avoid_by} exists",
            "where": " and ".join(map(str, kind.where)),
        }[field]
        return field, f"no node monitor satisfies {wanted} (they have: {examples})"
