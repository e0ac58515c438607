"""The nodes that a scheduler knows, and which of them may run a stage."""

from __future__ import annotations

from sparrow_py.messages import NodeInfo


class Node:
    """One connected node monitor, as its scheduler sees it."""

    __slots__ = ("attempts", "commons", "draining", "id", "info", "tickets")

    def __init__(self, node_id: str, info: NodeInfo) -> None:
        self.id = node_id
        self.info = info
        self.draining = False
        self.tickets: set[int] = set()
        """Tickets with live reservations here."""
        self.attempts: set[int] = set()
        """Attempts launched here whose outcome is not known."""
        self.commons: set[str] = set()
        """Jobs whose common bytes were sent here."""


class Nodes:
    """All connected nodes, with the eligible ones of each (app, runtime) kept at hand."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._eligible: dict[tuple[str, str], list[str]] = {}

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
        self._eligible.clear()

    def remove(self, node_id: str) -> Node:
        """A node has gone."""
        self._eligible.clear()
        return self._nodes.pop(node_id)

    def changed(self) -> None:
        """A node's apps or its draining changed."""
        self._eligible.clear()

    def eligible(self, app: str, runtime: str) -> list[str]:
        """Ids of the nodes that may run tasks of this app and runtime (§3.3, job-level constraint).

        The list is shared: don't change it.
        """
        key = (app, runtime)
        found = self._eligible.get(key)
        if found is None:
            found = self._eligible[key] = [
                node.id
                for node in self._nodes.values()
                if not node.draining
                and node.info.slots > 0
                and app in node.info.apps
                and (not runtime or node.info.apps[app] == runtime)
            ]
        return found

    def why_none_eligible(self, app: str, runtime: str) -> tuple[str, str] | None:
        """(field, reason) if nodes are connected and none could ever run this; None otherwise."""
        if not self._nodes:
            return None
        offered = sorted({name for node in self._nodes.values() for name in node.info.apps})
        if app not in offered:
            return "app", f"no node monitor runs the app {app!r}; apps offered: {', '.join(offered) or 'none'}"
        runtimes = sorted({node.info.apps[app] for node in self._nodes.values() if app in node.info.apps})
        if runtime and runtime not in runtimes:
            return "runtime", (
                f"the client's {app} is {runtime} and the node monitors' is {', '.join(runtimes)}; "
                f"what one pickles the other cannot be relied on to read"
            )
        return None
