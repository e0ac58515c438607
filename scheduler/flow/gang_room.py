"""Whether a gang fits into the network, and into a cluster at all, were nothing else there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scheduler.flow import kind_turns
from scheduler.flow.cluster_view import rack_of
from scheduler.lane_room import ROUNDING
from sparrow_py.counted import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node, Nodes
    from scheduler.flow.cluster_view import ClusterView


def why_gang_is_too_large(stage: StageState, tasks_max: int) -> str:
    """Why the waiting tasks of a gang are never weighed together, whatever nodes come; "" if they are."""
    size, most = stage.unplaced, kind_turns.KINDS_PER_USER_MAX
    if size > tasks_max:
        return f"a gang of {counted(size, 'task')}; at most flow_tasks_max = {tasks_max:,} are placed at a time"
    preferences = stage.preferences
    if preferences is None or stage.spec.delay_s is not None:  # Else tasks take any node after that time.
        return ""
    sets = {preferences.preferred[task] for task in preferences.constrained}
    count = len(sets) + (preferences.free > 0)
    if count > most:
        return f"a gang whose tasks prefer {count:,} different sets of nodes; at most {most:,} are weighed at a time"
    return ""


def why_gang_never_fits(stage: StageState, nodes: Nodes, view: ClusterView) -> str:
    """Why the waiting tasks of a gang have no places at once, not even on empty nodes; "" if they have. While no node
    at all may run them they wait for one."""
    size = stage.unplaced
    eligible = [nodes[node_id] for node_id in nodes.eligible(stage.kind)]
    places = _places(stage, eligible, view)
    if not eligible or places >= size:
        return ""
    where = (
        "the node that may run it has" if len(eligible) == 1 else f"the {len(eligible):,} nodes that may run it have"
    )
    return f"a gang of {counted(size, 'task')} needs as many places at once; {where} {places:,}{_kept(eligible, view)}"


def _kept(eligible: list[Node], view: ClusterView) -> str:
    """How many of the nodes' slots placed tasks may not hold; "" if they may hold all."""
    slots = sum(node.info.slots for node in eligible)
    kept = slots - sum(view.lane_slots(node) for node in eligible)
    return f" (of {counted(slots, 'slot')} short_share keeps {kept:,} for sampled tasks)" if kept > 0 else ""


def _places(stage: StageState, eligible: list[Node], view: ClusterView) -> int:
    spec = stage.spec
    at_node = {node.id: places_at(stage, node, view) for node in eligible}
    if spec.max_per_rack is None:
        return sum(at_node.values())
    in_rack: Counter[str] = Counter()
    for node in eligible:
        in_rack[rack_of(node)] += at_node[node.id]
    return sum(min(places, spec.max_per_rack) for places in in_rack.values())


def places_at(stage: StageState, node: Node, view: ClusterView, staying: Collection[Attempt] = ()) -> int:
    """How many tasks of the stage the node would have room for, were nothing else there but these."""
    places = max(0, view.lane_slots(node) - len(staying))
    taken: dict[str, float] = {}
    for attempt in staying:
        for name, amount in attempt.stage.kind.demand:
            taken[name] = taken.get(name, 0.0) + amount
    for name, amount in stage.kind.demand:
        if amount > 0:
            left = max(0.0, node.info.resources.get(name, 0.0) - taken.get(name, 0.0))
            places = min(places, int(left / amount + ROUNDING))
    limit = stage.spec.max_per_node
    return places if limit is None else min(places, limit)
