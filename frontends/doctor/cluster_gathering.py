"""Facts about a cluster: its schedulers and node monitors are visited, many at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from frontends.doctor.facts import Cluster, Visit
from frontends.doctor.visiting import NODE_MONITOR, SCHEDULER, take_blob, visit
from sparrow_py.access.credentials import Access
from sparrow_py.errors import InvalidRequest, NoScheduler
from sparrow_py.wire.addresses import check_address
from sparrow_py.wire.resolution import resolve

VISITED_AT_ONCE = 16


def cluster(sources: Sequence[str], usual: str, access: Access, nodes_max: int) -> Cluster:
    """The cluster of these sources, or of the usual address if there are none. Of its nodes `nodes_max` are visited,
    by chance, where there are more."""
    addresses, unresolved = _addresses(sources or [usual])
    with ThreadPoolExecutor(VISITED_AT_ONCE) as threads:
        schedulers = list(threads.map(lambda address: visit(SCHEDULER, address, access), addresses))
        nodes = _nodes(schedulers)
        chosen = sorted(random.sample(sorted(nodes), min(len(nodes), nodes_max)))
        hosts = sorted({nodes[name] for name in chosen})
        node_monitors = list(threads.map(lambda address: visit(NODE_MONITOR, address, access), hosts))
        there = {found.address for found in node_monitors if not found.why_not}
        one_of_each = {nodes[name]: name for name in reversed(chosen) if nodes[name] in there}
        trips = list(threads.map(lambda at: take_blob(one_of_each[at], at, access), sorted(one_of_each)))
    return Cluster(
        bool(sources),
        tuple(unresolved),
        tuple(schedulers),
        tuple(node_monitors),
        tuple(trips),
        len(nodes) - len(chosen),
    )


def _addresses(sources: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Those that the sources name; and the sources that name none, with the reason."""
    found: dict[str, None] = {}
    unresolved = []
    for source in sources:
        try:
            found |= dict.fromkeys(asyncio.run(resolve([source])))
        except (NoScheduler, InvalidRequest) as error:
            unresolved.append((source, str(error)))
    return list(found), unresolved


def _nodes(schedulers: Iterable[Visit]) -> dict[str, str]:
    """The nodes' names, and where their HTTP is."""
    entries: list[dict[str, Any]] = [node for one in schedulers for node in one.nodes]
    return {str(node.get("id")): address for node in entries if (address := _address(node))}


def _address(node: dict[str, Any]) -> str:
    try:
        return check_address(str(node.get("address", "")))
    except InvalidRequest:
        return ""  # A node that nobody can reach is of no version that we know.
