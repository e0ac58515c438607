"""A Dask graph made ready: which tasks are to be run, what each needs, and what is known without running anything."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask._task_spec import Alias, DataNode, Task, convert_legacy_graph, cull, fuse_linear_task_spec
from dask.sizeof import sizeof

from sparrow_py.errors import InvalidRequest, shown

SHARED_BYTES_MIN = 64 << 10
"""Data of the graph that several tasks need are a task of their own from this size on: its result lies at a node, and
goes from there to the nodes that need it, once to each."""
KEYS_SHOWN_MAX = 4
"""Keys of a chain of tasks that an error names."""


@dataclass
class Graph:
    """What is to be run.

    nodes: Dask's tasks, by key. known: values that need no task, by key. targets: of keys that only stand for another,
    that one.
    """

    nodes: dict[Hashable, Any]
    known: dict[Hashable, Any] = field(default_factory=dict)
    targets: dict[Hashable, Hashable] = field(default_factory=dict)

    def target(self, key: Hashable) -> Hashable:
        """The task or known value that a key stands for."""
        while key in self.targets:
            key = self.targets[key]
        return key

    def names(self, key: Hashable) -> dict[Hashable, Hashable]:
        """What the task needs: by the keys that it knows, the tasks or known values that these stand for."""
        return {name: self.target(name) for name in self.nodes[key].dependencies}

    def inputs(self) -> dict[Hashable, set[Hashable]]:
        """Of each task, the tasks that it needs."""
        return {key: {one for one in self.names(key).values() if one not in self.known} for key in self.nodes}


def prepared(dask_graph: Any, wanted: Iterable[Hashable]) -> Graph:
    """The tasks that the wanted keys need. Chains of tasks, each of which nobody but the next needs, are one task.

    `dask_graph`: a mapping, or one of Dask's collections or expressions. `InvalidRequest` for wanted keys that are not
    in it, and for tasks that need themselves.
    """
    wanted = set(wanted)
    plain = dask_graph if isinstance(dask_graph, Mapping) else dask_graph.__dask_graph__()
    nodes = convert_legacy_graph(plain)
    for key in wanted:
        if key not in nodes:
            raise InvalidRequest("keys", key, f"keys of the Dask graph, which has {len(nodes)}")
    nodes = cull(dict(nodes), wanted)
    _check_order(nodes)
    graph = Graph(fuse_linear_task_spec(nodes, wanted))
    _set_aside_aliases(graph)
    _set_aside_data(graph)
    return graph


def _check_order(nodes: Mapping[Hashable, Any]) -> None:
    """`InvalidRequest` if tasks go round in a circle."""
    try:
        graphlib.TopologicalSorter({key: node.dependencies for key, node in nodes.items()}).prepare()
    except graphlib.CycleError as error:
        circle = " needs ".join(map(shown, reversed(error.args[1])))
        raise InvalidRequest("the Dask graph", circle, "tasks that do not need themselves") from None


def _set_aside_aliases(graph: Graph) -> None:
    """Keys that only stand for another."""
    for key, node in list(graph.nodes.items()):
        if isinstance(node, Alias):
            graph.targets[key] = node.target
            del graph.nodes[key]


def _set_aside_data(graph: Graph) -> None:
    """Values that stand in the graph itself, but for large ones that several tasks need."""
    uses = Counter(target for key in graph.nodes for target in set(graph.names(key).values()))
    for key, node in list(graph.nodes.items()):
        if isinstance(node, DataNode) and (uses[key] < 2 or sizeof(node.value) < SHARED_BYTES_MIN):
            graph.known[key] = node.value
            del graph.nodes[key]


def described(node: Any) -> str:
    """A task for error messages: its key, or those of the tasks that it was made of, in their order."""
    keys = list(node.args[0]) if isinstance(node, Task) and node.has_subgraph() else [node.key]
    if len(keys) > KEYS_SHOWN_MAX:
        return f"{_joined(keys[: KEYS_SHOWN_MAX - 1])}, then …, then {shown(keys[-1])} ({len(keys)} keys)"
    return _joined(keys)


def _joined(keys: Iterable[Hashable]) -> str:
    """Keys of tasks that follow each other."""
    return ", then ".join(map(shown, keys))
