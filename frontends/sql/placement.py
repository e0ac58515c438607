"""Which node holds which partition by the nodes' reports, and which partitions are to be loaded where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from frontends.sql.dataset import Dataset
from frontends.sql.errors import DoesNotFit
from frontends.sql.generate import gigabytes
from frontends.sql.tasks import APP
from sparrow_py.errors import SparrowError

MEMORY_SHARE_MAX = 0.8
"""The part of a machine's memory that its nodes may be asked to use for a dataset."""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node that runs sql executors. host: its machine, whose memory it shares with other nodes there."""

    id: str
    host: str
    slots: int
    memory_bytes: float
    ready: bool
    partitions: frozenset[int]
    """Partitions of the dataset that the node holds."""


def live_nodes(entries: Iterable[Mapping[str, object]], dataset: Dataset) -> list[LiveNode]:
    """The nodes of a scheduler's `/v1/nodes`, in the order of their names, without those that have no sql executors."""
    return sorted((_node(entry, dataset) for entry in entries if APP in entry["apps"]), key=lambda node: node.id)  # type: ignore[operator]


def _node(entry: Mapping[str, object], dataset: Dataset) -> LiveNode:
    attributes, resources = entry["attributes"], entry["resources"]
    assert isinstance(attributes, Mapping)
    assert isinstance(resources, Mapping)
    text = str(attributes.get(dataset.attribute, ""))
    return LiveNode(
        str(entry["id"]),
        str(entry["address"]).rpartition(":")[0],
        int(str(entry["slots"])),
        float(resources.get("memory_bytes", 0.0)),
        entry["state"] == "ready",
        frozenset(int(part) for part in text.split(",") if part.isdecimal()),
    )


def holders(nodes: Iterable[LiveNode], partitions: int) -> list[list[str]]:
    """For each partition, the nodes that hold it and take tasks."""
    found: list[list[str]] = [[] for _ in range(partitions)]
    for node in nodes:
        for partition in node.partitions if node.ready else ():
            if partition < partitions:
                found[partition].append(node.id)
    return found


def choose(nodes: Sequence[LiveNode], partitions: int, replicas: int) -> dict[str, list[int]]:
    """The partitions that each node is to load, so that each is at `replicas` nodes, or at all if there are fewer.

    Partitions that are held stay. A new replica goes to a machine without one, if there is such a machine, and there to
    the node that holds least for its slots. The same input gives the same choice.
    """
    ready = [node for node in nodes if node.ready and node.slots > 0]
    held = {node.id: set(node.partitions) for node in ready}
    added: dict[str, list[int]] = {node.id: [] for node in ready}
    for partition in range(partitions):
        has = [node for node in ready if partition in held[node.id]]
        for _ in range(min(replicas, len(ready)) - len(has)):
            hosts = {node.host for node in has}
            best = min(
                (node for node in ready if partition not in held[node.id]),
                key=lambda node: (node.host in hosts, len(held[node.id]) / node.slots, node.id),
            )
            held[best.id].add(partition)
            added[best.id].append(partition)
            has.append(best)
    return {node: chosen for node, chosen in added.items() if chosen}


def check_fits(dataset: Dataset, nodes: Sequence[LiveNode], added: Mapping[str, Sequence[int]]) -> None:
    """Raise `DoesNotFit` if a machine would have to hold more than its memory; `SparrowError` without any node."""
    if not any(node.ready and node.slots for node in nodes):
        raise SparrowError("no node monitor that runs the app sql is connected; its environment needs the extra sql")
    manifest = dataset.manifest
    wanted: dict[str, float] = {}
    memory: dict[str, float] = {}
    for node in nodes:
        count = len(node.partitions) + len(added.get(node.id, ()))
        wanted[node.host] = (
            wanted.get(node.host, 0.0) + count * manifest.held_bytes + bool(count) * manifest.whole_bytes
        )
        memory[node.host] = max(memory.get(node.host, 0.0), node.memory_bytes)
    for host, needed in wanted.items():
        allowed = MEMORY_SHARE_MAX * memory[host]
        if added and memory[host] and needed > allowed:
            raise DoesNotFit(
                "data",
                str(dataset.directory),
                "",
                f"scale: {manifest.scale:g} does not fit: the nodes at {host} would hold about "
                f"{gigabytes(int(needed))} of it, and at most {gigabytes(int(allowed))} of their "
                f"{gigabytes(int(memory[host]))} of memory may be used; "
                f"add machines, or take fewer replicas",
            )
