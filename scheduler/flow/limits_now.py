"""What a stage's own limits leave of a cluster at one moment, in words: `max_per_node`, `max_per_rack`, gangs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scheduler.flow.cluster_view import rack_of
from scheduler.flow.stage_limits import nodes_near, running_at
from scheduler.lane_room import ROUNDING, takes_tasks
from sparrow_py.counted import agreeing, counted

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
    from scheduler.flow.cluster_view import ClusterView
    from scheduler.plane import BookForPlane


def why_limited(book: BookForPlane, view: ClusterView, stage: StageState) -> list[str]:
    """Limits that are reached at nodes or in racks which may run the stage, and how many places a gang lacks."""
    spec = stage.spec
    if not spec.gang and spec.max_per_node is None and spec.max_per_rack is None:
        return []
    near, running = nodes_near(stage), running_at(stage)
    nodes = [book.nodes[node_id] for node_id in book.nodes_now(stage) if near is None or node_id in near]
    in_rack = _by_rack(book, running)
    reasons = []
    if spec.max_per_node is not None:
        have = [running[node.id] for node in nodes]
        reasons.append(_reached("max_per_node", spec.max_per_node, have, "node"))
    if spec.max_per_rack is not None:
        have = [in_rack[rack] for rack in {rack_of(node) for node in nodes}]
        reasons.append(_reached("max_per_rack", spec.max_per_rack, have, "rack"))
    if spec.gang and stage.complete and nodes:
        places = Counter({node.id: _places_free(view, stage, node, running[node.id]) for node in nodes})
        if spec.max_per_rack is not None:
            by_rack = _by_rack(book, places)
            free = sum(min(count, max(0, spec.max_per_rack - in_rack[rack])) for rack, count in by_rack.items())
        else:
            free = places.total()
        size = counted(stage.unplaced, "task")
        reasons.append(f"a gang of {size} needs as many places at once; {free:,} {agreeing(free, 'are')} free")
    return [reason for reason in reasons if reason]


def _reached(name: str, limit: int, have: list[int], noun: str) -> str:
    """How many nodes or racks have as many tasks of the stage as they may; "" if none has."""
    full, count = sum(tasks >= limit for tasks in have), len(have)
    if not full:
        return ""
    if full < count:
        where = f"{full:,} of {count:,} {noun}s"
    elif count == 1:
        where = f"the {noun}"
    else:
        where = f"both {noun}s" if count == 2 else f"all {count:,} {noun}s"
    amount = "one" if limit == 1 else f"{limit:,}"
    return f"{name}={limit}: {where} {'has' if full == 1 else 'have'} {amount} of them"


def _by_rack(book: BookForPlane, at_node: Counter[str]) -> Counter[str]:
    in_rack: Counter[str] = Counter()
    for node_id, count in at_node.items():
        node = book.nodes.get(node_id)
        if node is not None:
            in_rack[rack_of(node)] += count
    return in_rack


def _places_free(view: ClusterView, stage: StageState, node: Node, running: int) -> int:
    """How many further tasks of the stage a node has room for, but for its rack's limit."""
    if not takes_tasks(node):
        return 0
    kept = 0 if view.kept_for is stage else view.kept.get(node.id, 0)
    places = view.slots_free(node) - kept
    if places > 0 and stage.kind.demand:
        free = view.free(node)
        for name, amount in stage.kind.demand:
            if amount > 0:
                places = min(places, int(free.get(name, 0.0) / amount + ROUNDING))
    if stage.spec.max_per_node is not None:
        places = min(places, stage.spec.max_per_node - running)
    return max(0, places)
