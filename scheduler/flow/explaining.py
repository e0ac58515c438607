"""Why a task waits, or is where it is: its ways, what they cost, what binds."""

from __future__ import annotations

from scheduler.flow.cluster_changes import Explanation, Way
from scheduler.flow.cluster_graph import ClusterGraph
from scheduler.flow.graph import FlowGraph
from scheduler.flow.policies.policy import Aggregator

WAYS_MAX = 100
"""Of one task that are told."""


def explain(cluster: ClusterGraph, name: str) -> Explanation:
    """The ways of a task, the cheapest first."""
    graph, task = cluster.graph, cluster.tasks[name]
    price = int(graph.cost[task.waiting_arc])
    waits = bool(graph.flow[task.waiting_arc]) or not task.is_sent
    ways = [Way("", price, "", waits)]
    known: dict[int, tuple[int, list[int]]] = {cluster.sink: (0, [])}
    user = cluster.users[task.task.user]
    doors = {door.node: machine for machine, door in task.kind.doors.items()}
    for arc in graph.out_arcs(task.node):
        if arc == task.waiting_arc:
            continue
        found = _cheapest(graph, int(graph.head[arc]), known)
        if found is None:
            head = int(graph.head[arc])
            machine = cluster.by_node.get(head) or doors.get(head, "")
            none = f"{machine} takes no other of its tasks" if machine else "no machine takes another of its tasks"
            ways.append(Way(machine or _place(cluster, [arc]), int(graph.cost[arc]), none, False))
            continue
        path = [arc, *found[1]]
        taken = bool(graph.flow[arc])
        limit = "" if taken else _limit(cluster, path)
        if not limit and not taken and user.minimum and int(graph.flow[user.arc]) == user.minimum:
            limit = "the user's share is used up"
        ways.append(Way(_place(cluster, path), int(graph.cost[arc]) + found[0], limit, taken))
    ways.sort(key=lambda way: way.cost)
    return Explanation(name, task.task.runs_on, price, ways[:WAYS_MAX])


def _cheapest(graph: FlowGraph, node: int, known: dict[int, tuple[int, list[int]]]) -> tuple[int, list[int]] | None:
    """What the cheapest way from a node to the sink costs, and its arcs; full arcs count, closed ones do not."""
    if node in known:
        return known[node]
    best: tuple[int, list[int]] | None = None
    for arc in graph.out_arcs(node):
        if graph.capacity[arc] == 0:
            continue
        beyond = _cheapest(graph, int(graph.head[arc]), known)
        if beyond is None:
            continue
        cost = int(graph.cost[arc]) + beyond[0]
        full = graph.flow[arc] >= graph.capacity[arc] and int(graph.capacity[arc]) == 1
        if best is None or cost < best[0] or (cost == best[0] and full is False):
            best = cost, [arc, *beyond[1]]
    if best is not None:
        known[node] = best
    return best


def _place(cluster: ClusterGraph, path: list[int]) -> str:
    """Where a way leads, in words."""
    words: list[str] = []
    for arc in path:
        node = int(cluster.graph.head[arc])
        name = cluster.by_node.get(node)
        if name is not None:
            words.append(name)
            break
        words += [f"{each.kind} {each.name}".rstrip() for each in _aggregators(cluster, node)]
    return " → ".join(words)


def _aggregators(cluster: ClusterGraph, node: int) -> list[Aggregator]:
    return [
        aggregator
        for kind in cluster.classes.values()
        for aggregator, made in kind.aggregators.items()
        if made.node == node
    ]


def _limit(cluster: ClusterGraph, path: list[int]) -> str:
    """The first full arc of a way, in words."""
    graph = cluster.graph
    for arc in path[1:]:
        if graph.flow[arc] < graph.capacity[arc]:
            continue
        tail, head = int(graph.tail[arc]), int(graph.head[arc])
        machine = cluster.by_node.get(tail)
        if head == cluster.sink and machine is not None:
            return f"{machine} has no free slot"
        machine = cluster.by_node.get(head)
        if machine is not None:
            for kind in cluster.classes.values():
                door = kind.doors.get(machine)
                if door is not None and door.node == tail:
                    return f"{machine} has no room for more such tasks"
        return "no more tasks may go that way"
    return ""
